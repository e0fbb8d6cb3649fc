"""A source that goes away under a running service, in every way: the view waits, says why, and goes on.

Views that ask reach their database over a line of their own, as a user of their own, so an outage is real
for them while Debezium goes on capturing. Other groups never wait. The group of such a view waits as
long as the source's `patience` says; then it goes on without the view, which comes back by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import askedpostgres as asked
import psycopg
import pytest
import yaml
from conftest import Bank
from line import Line
from proofs import assert_complete, assert_equal
from psycopg.conninfo import conninfo_to_dict
from services import BANK_CONFIG, Pipeline, Process, until, write_pipeline

from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.stages.stage_trouble import told_trouble

JOINED = (
    "SELECT e.id, a.id AS account, a.owner, e.amount"
    " FROM {0}.account a JOIN {0}.entry e ON e.account = a.id"
)
VIEWS = {
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED.format("north")),
    "impatient": ("COMPLETE CONSISTENCY USING sweep", JOINED.format("south")),
    "beside": (
        "COMPLETE CONSISTENCY USING replica",
        "SELECT id, account, amount FROM south.entry",
    ),
}
PASSWORD = "out-and-back"
SECONDS = 2.0
"""The limit of a query."""
PATIENCE = {"north": 600.0, "south": 1.0}
IDS = itertools.count(9_000_000_000)


def make_user(dsn: str, password: str = PASSWORD) -> None:
    """Somebody who may read, and nothing else."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        known = connection.execute("SELECT FROM pg_roles WHERE rolname = 'viewer'").fetchone()
        verb = "CREATE" if known is None else "ALTER"
        connection.execute(f"{verb} ROLE viewer LOGIN PASSWORD '{password}'".encode())
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO viewer")


class Shop:
    """The running pipeline and its bank."""

    def __init__(self, bank: Bank, pipeline: Pipeline, service: Process) -> None:
        self.bank, self.pipeline, self.service = bank, pipeline, service

    def writes(self, database: str) -> int:
        """One more entry; returns its id."""
        number = next(IDS)
        with psycopg.connect(self.bank.dsns[database], autocommit=True) as connection:
            connection.execute("INSERT INTO entry VALUES (%s, 1, 5.00)", [number])
        return number

    def shows(self, view: str, number: int) -> None:
        """Return when a view has the entry."""

        def ids() -> list[int]:
            opened = Warehouse(self.pipeline.warehouse)
            return list(opened.read(view, suspended_as_of=True)["id"].to_pylist())

        until(
            lambda: number in ids(),
            f"entry {number} in {view}",
            alive=self.service,
        )

    def waits(self, code: str) -> dict[str, str]:
        """What the view says that it waits for, once it is this."""
        folder = self.pipeline.warehouse / "_state" / "view-asked"

        def told() -> dict[str, str] | None:
            found = told_trouble(folder)
            return found if found and found["code"] == code else None

        return until(told, code, alive=self.service) or {}

    def told(self) -> dict[str, str] | None:
        return told_trouble(self.pipeline.warehouse / "_state" / "view-asked")

    def suspended(self, view: str) -> bool:
        """Whether the newest epoch of the view's group says that it has left."""
        opened = Warehouse(self.pipeline.warehouse)
        group = opened.spec(view)["group"]
        return view in opened.epochs(group)[-1].suspended

    def outage(self, begin: Callable[[], object], code: str, end: Callable[[], object]) -> None:
        """An outage from begin to end: the view waits and says so, another goes on, then it too."""
        begin()
        late = self.writes("north")
        trouble = self.waits(code)
        assert trouble["what"] and trouble["todo"] and "north" in trouble["where"], trouble
        assert PASSWORD not in str(trouble)
        self.shows("beside", self.writes("south"))
        assert (self.told() or {}).get("code") == code
        end()
        self.shows("asked", late)
        until(lambda: self.told() is None, "the trouble to be over", alive=self.service)

    def leaves_and_returns(self, line: Line) -> None:
        """A source that stays away: its view leaves the group, which goes on, and comes back."""
        line.cut()
        late = self.writes("south")
        self.shows("beside", late)
        assert self.suspended("impatient")
        later = self.writes("south")
        self.shows("beside", later)
        line.mend()
        self.shows("impatient", later)
        self.shows("impatient", late)
        until(lambda: not self.suspended("impatient"), "its return", alive=self.service)
        self.shows("impatient", self.writes("south"))


@contextmanager
def running(bank: Bank, folder: Path, lines: Mapping[str, Line]) -> Iterator[Shop]:
    """The service over both databases; its views reach them over the lines."""
    views = folder / "views"
    views.mkdir(parents=True)
    for view, (how, query) in VIEWS.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (views / f"{view}.sql").write_text(text)
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    settings |= {"pipeline": "outages", "views": str(views), "grouping": "disjoint"}
    settings["metrics"] = {"port": 0}
    for source, line in lines.items():
        known = conninfo_to_dict(bank.dsns[source])
        known |= {"port": line.port, "user": "viewer", "password": PASSWORD}
        settings["sources"][source] |= {
            "connection": url(known),
            "query_timeout": SECONDS,
            "patience": PATIENCE[source],
        }
    pipeline = write_pipeline(folder, settings, bank.environment)
    with pipeline.running() as service:
        shop = Shop(bank, pipeline, service)
        until(lambda: readable(pipeline), "the first epochs", alive=service)
        yield shop
        bank.rests(pipeline, service)
        assert service.stops() == 0


def readable(pipeline: Pipeline) -> bool:
    """Whether each view has an epoch."""
    opened = Warehouse(pipeline.warehouse)
    try:
        return len(opened.groups()) == 2 and all(opened.epochs(group) for group in opened.groups())
    except FrescoError:
        return False


def url(known: dict[str, object]) -> str:
    host, port, name = known["host"], known["port"], known["dbname"]
    return f"postgresql://{known['user']}:{known['password']}@{host}:{port}/{name}"


def blocked(dsn: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """What makes every query of a table wait, and what ends that."""
    blocker = psycopg.connect(dsn)

    def end() -> None:
        blocker.rollback()
        blocker.close()

    return lambda: blocker.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE"), end


def thrown_out(dsn: str) -> None:
    """The server ends every session of the user, as a restart does."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'viewer'"
        )


@pytest.mark.timeout(900)
def test_a_view_waits_for_its_source_and_goes_on_by_itself(bank: Bank, tmp_path: Path) -> None:
    dsn = bank.dsns["north"]
    port = int(conninfo_to_dict(dsn)["port"] or 0)
    for database in bank.dsns.values():
        make_user(database)
    (tmp_path / "older").mkdir()
    with asked.server(tmp_path / "older") as older, Line(port) as line, Line(port) as south:
        asked.execute(
            older.dsn("north"),
            "CREATE TABLE account (id bigint PRIMARY KEY, owner text, branch text)",
            "CREATE TABLE entry (id bigint PRIMARY KEY, account bigint, amount numeric(18,2))",
        )
        make_user(older.dsn("north"))
        with running(bank, tmp_path / "outages", {"north": line, "south": south}) as shop:
            shop.shows("asked", shop.writes("north"))

            def changes_password(password: str) -> None:
                make_user(dsn, password)
                thrown_out(dsn)

            lock, unlock = blocked(dsn)
            shop.outage(line.cut, "SOURCE_UNREACHABLE", line.mend)
            shop.outage(lock, "SOURCE_QUERY_TIMEOUT", unlock)
            shop.outage(
                lambda: changes_password("another"),
                "SOURCE_CREDENTIALS",
                lambda: changes_password(PASSWORD),
            )
            shop.outage(lambda: line.turn(older.port), "SOURCE_BEHIND", lambda: line.turn(port))
            thrown_out(dsn)
            shop.shows("asked", shop.writes("north"))
            shop.leaves_and_returns(south)
            pipeline, service = shop.pipeline, shop.service
        assert "Traceback" not in service.says and PASSWORD not in service.says
        assert_complete(verify_pipeline(pipeline.warehouse, 50))
        assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
