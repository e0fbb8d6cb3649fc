"""Oddity 54 on a real MariaDB: a delete that its log does not hold, then the same key again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from askedmariadb import captured, log_end, log_of
from mysqlservers import MARIADBS, database_server

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.log_events import Commit, RowChange
from streaming.capture.position import PublishedPosition
from streaming.capture.publishing import LogPublisher
from streaming.captured.captured_schema import CapturedSource
from streaming.configuration.source_config import SourceConfig
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.pipeline.catalog import load_views
from streaming.pipeline.choosing import choose
from streaming.pipeline.configured_groups import form_groups
from streaming.pipeline.plan import Pipeline
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.view_states import view_states
from streaming.warehouse.snapshot import suspended_views
from tests.changingviews import NAME, Driver, Shop

TABLES = ("entry", "other")
VIEWS = {
    "entries": "SELECT id, account, amount FROM shop.entry",
    "totals": "SELECT account, COUNT(*) AS n FROM shop.entry GROUP BY account",
    "words": "SELECT id FROM shop.other",
}


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("lost")) as running:
        running.execute(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "CREATE TABLE shop.entry (id BIGINT PRIMARY KEY, account INT, amount BIGINT)",
            "CREATE TABLE shop.other (id BIGINT PRIMARY KEY)",
        )
        yield running


class Logged(Shop):
    """A shop whose events are the log of a real server."""

    def __init__(self, folder: Path, server: Mariadb) -> None:
        self._server, self._marks = server, 0
        super().__init__(folder, views=VIEWS)
        tables = {name: f"shop.{name}" for name in TABLES}
        source = SourceConfig(database="mariadb", tables=tables, snapshot=False)
        self.config = self.config.model_copy(update={"sources": {"shop": source}})
        self._captured = captured(server, *TABLES)
        start = log_end(server)
        self._reader = log_of(server, start, *TABLES)
        self._log = self._reader.events()
        known = {("shop", n): CapturedTable("shop", n, f"shop.shop.{n}", ("id",)) for n in TABLES}
        self._publisher = LogPublisher(Envelope("shop", "n"), known, PublishedPosition(start))

    def read(self) -> None:
        """All that has been logged until now."""
        self._marks += 1
        self._server.execute(f"INSERT INTO shop.other VALUES ({self._marks})")
        marked = False
        for event in self._log:
            if event is None:
                continue
            if isinstance(event, RowChange) and event.table == ("shop", "other"):
                marked = marked or event.after == {"id": self._marks}
            for topic, _, value in self._publisher.handle(event):
                self.publish([(topic, None if value is None else value.decode())])
            if marked and isinstance(event, Commit):
                return

    def planned(self) -> Pipeline:
        by_name = {one.relation.name: one.relation for one in self._captured}
        views, choices = load_views(self.views, by_name), {}
        for view in views:
            choices[view.name] = choose(self.config, view, by_name, choices)
        groups = form_groups(self.config, views, choices, by_name.keys())
        sources = (CapturedSource("shop", "shop", log=MYSQL_LOG, snapshot=False),)
        made = {group.name: group.views for group in groups}
        return Pipeline(NAME, sources, tuple(self._captured), tuple(views), made, choices)

    def close(self) -> None:
        self._reader.close()


def shown(shop: Shop, view: str) -> list[tuple[object, ...]]:
    table = Warehouse(shop.warehouse).read(view, suspended_as_of=True)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_oddity_54_it_is_suspended_alone_and_comes_back_from_the_source(
    server: Mariadb, tmp_path: Path
) -> None:
    shop = Logged(tmp_path, server)
    driver = Driver(shop)
    server.execute("INSERT INTO shop.entry VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)")
    shop.read()
    driver.round()
    assert shown(shop, "entries") == [(1, 1, 10), (2, 1, 20), (3, 2, 30)]
    server.execute("SET sql_log_bin = 0", "DELETE FROM shop.entry WHERE id = 2")
    server.execute("INSERT INTO shop.entry VALUES (2, 5, 21)")
    shop.read()
    for _ in range(3):
        driver.round()
    assert suspended_views(shop.warehouse, NAME).keys() == {"entries"}
    (state,) = (one for one in view_states(shop.warehouse) if one.view == "entries")
    assert state.error is not None and state.error["code"] == "WAREHOUSE_KEY"
    assert "id=2" in state.error["what"]
    assert shown(shop, "words") == [(1,), (2,)], "the others go on"
    assert shown(shop, "totals") == [(1, 2), (2, 1), (5, 1)]
    driver.close()
    driver = Driver(shop)  # and so does the next start
    server.execute("RENAME TABLE shop.entry TO shop.aside, shop.aside TO shop.entry")
    shop.read()
    for _ in range(12):
        driver.round()
        if not suspended_views(shop.warehouse, NAME):
            break
    assert suspended_views(shop.warehouse, NAME) == {}
    assert shown(shop, "entries") == [(1, 1, 10), (2, 5, 21), (3, 2, 30)]
    assert shown(shop, "totals") == [(1, 1), (2, 1), (5, 1)]
    assert shown(shop, "words") == [(1,), (2,), (3,)]
    driver.close()
    shop.close()
    assert verify_pipeline(shop.warehouse).problems == ()
