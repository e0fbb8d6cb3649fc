"""Every ALTER of a captured MariaDB table, as its catalog tells it: which columns are the ones of before.

What becomes of views then is the same for all databases (`test_altered_postgres`); here of some.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alteredmariadb import AlteredMariadbTable
from alteredpostgres import both_ways
from askedmariadb import captured, log_end, log_of
from mysqlservers import MARIADBS, database_server

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.log_events import Commit, Ddl, RowChange
from streaming.capture.position import PublishedPosition
from streaming.capture.publishing import LogPublisher
from streaming.captured.captured_schema import CapturedSource
from streaming.captured.layout import Layout, grown
from streaming.cdc.debezium import Decoder
from streaming.cdc.unread_columns import unread
from streaming.demo.embedded.mariadb_server import Mariadb
from tests.changingviews import Driver
from tests.sourcelog import Topics

COLUMNS = (
    "id INT PRIMARY KEY, i INT, u INT UNSIGNED, d DECIMAL(10,2), v VARCHAR(20) CHARACTER SET latin1,"
    " w VARCHAR(20) CHARACTER SET utf8mb4, t TINYTEXT, m DATETIME(6), e ENUM('a','b'), y BINARY(4)"
)
GOES_ON = [
    "ADD z INT DEFAULT 3",
    "ADD z INT FIRST",
    "MODIFY i INT FIRST",
    "MODIFY i INT NOT NULL DEFAULT 0, ALGORITHM=COPY",
    "MODIFY e ENUM('a','b','c')",
    "MODIFY w VARCHAR(200) CHARACTER SET utf8mb4",
    "MODIFY v VARCHAR(20) CHARACTER SET utf8mb4",
    "MODIFY t TEXT",
    "CONVERT TO CHARACTER SET utf8mb4",
    "ADD INDEX (i), ADD UNIQUE (u), COMMENT = 'x', ROW_FORMAT = DYNAMIC",
    "ENGINE = InnoDB",
]
WIDENS = {
    "MODIFY id BIGINT": {"id"},
    "MODIFY i BIGINT": {"i"},
    "MODIFY d DECIMAL(14,2)": {"d"},
}
LOSES = {
    "DROP i": {"i"},
    "CHANGE i j INT": {"i"},
    "RENAME COLUMN i TO j": {"i"},
    "MODIFY i SMALLINT": {"i"},
    "MODIFY i INT UNSIGNED": {"i"},
    "MODIFY u BIGINT UNSIGNED": {"u"},
    "MODIFY d DECIMAL(10,1)": {"d"},
    "MODIFY d DECIMAL(14,4)": {"d"},
    "MODIFY d DOUBLE": {"d"},
    "MODIFY w VARCHAR(5)": {"w"},
    "MODIFY w VARBINARY(80)": {"w"},
    "MODIFY m DATETIME": {"m"},
    "MODIFY e ENUM('b','a')": {"e"},
    "MODIFY y BINARY(8)": {"y"},
    "CONVERT TO CHARACTER SET latin1": {"w", "t", "e"},
}


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("altered")) as running:
        running.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield running


def altered(server: Mariadb, *changes: str) -> Layout:
    """The layout of a table that is made and then altered."""
    server.execute(
        "SET sql_mode = ''",
        "DROP TABLE IF EXISTS shop.t",
        f"CREATE TABLE shop.t ({COLUMNS})",
        "INSERT INTO shop.t VALUES"
        " (1, 2, 3, 1.25, 'é', 'é', 'x', '2026-01-02 03:04:05.678901', 'b', 'y')",
    )
    layouts = grown({}, captured(server, "t"), 0)
    for number, change in enumerate(changes, 1):
        server.execute("SET sql_mode = ''", f"ALTER TABLE shop.t {change}")
        layouts = grown(layouts, captured(server, "t"), number)
    return layouts["shop.t"]


def names(layout: Layout, *, lost: bool) -> set[str]:
    gone = {one.name for one in layout.columns if one.until is not None and one.lost == lost}
    return gone


def test_what_every_alter_leaves_of_a_mariadb_s_columns(server: Mariadb) -> None:
    wrong = []
    cases = [(one, set[str](), set[str]()) for one in GOES_ON]
    cases += [(one, wider, set()) for one, wider in WIDENS.items()]
    cases += [(one, set(), lost) for one, lost in LOSES.items()]
    for change, wider, lost in cases:
        layout = altered(server, change)
        found = names(layout, lost=False), names(layout, lost=True)
        if found != (wider, lost):
            wrong.append((change, found))
    assert wrong == []


def test_oddity_37_a_column_dropped_and_made_anew_is_told_by_a_row_without_it(
    server: Mariadb,
) -> None:
    """The catalog has the same column afterwards, and no row has changed."""
    server.execute(
        "CREATE TABLE shop.anew (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO shop.anew VALUES (1, 10, 100), (2, 20, 200)",
    )
    at, before = log_end(server), captured(server, "anew")
    server.execute(
        "ALTER TABLE shop.anew DROP COLUMN a", "ALTER TABLE shop.anew ADD a INT DEFAULT 5"
    )
    reader, found = log_of(server, at, "anew"), list[object]()
    try:
        for event in reader.events():
            found += [event] if event is not None else []
            if sum(isinstance(one, Ddl) for one in found) == 2 and isinstance(event, Commit):
                break
    finally:
        reader.close()
    (change,) = (one for one in found if isinstance(one, RowChange))
    assert change.op == "u" and change.before == change.after == {"id": 1, "b": 100}
    table = CapturedTable("shop", "anew", "shop.shop.anew", ("id",))
    publisher = LogPublisher(
        Envelope("shop", "n"), {("shop", "anew"): table}, PublishedPosition(at)
    )
    messages = [message for event in found for message in publisher.handle(event)]
    records = [(m[0], m[2].decode()) for m in messages if m[0] == table.topic and m[2]]
    decoder = Decoder(before, [CapturedSource("shop", "shop", log=MYSQL_LOG)])
    decoded = decoder.decode(Topics().batch(records))
    (lost,) = unread(decoded.rows["shop.anew"])
    assert (lost.position, lost.missing, decoded.bad) == (1, True, ())


TABLE = {"id": "INT", "i": "INT", "d": "DECIMAL(10,2)", "v": "VARCHAR(20)"}
VIEWS = {
    "ids": "SELECT id FROM north.entry",
    **{f"of_{one}": f"SELECT id, {one} FROM north.entry" for one in "idv"},
}
WALKS = {
    "wider": ("MODIFY i BIGINT", set[str]()),
    "rounded": ("MODIFY d DECIMAL(10,1)", {"of_d"}),
    "letters lost": ("MODIFY v VARCHAR(20) CHARACTER SET latin1", {"of_v"}),
    "made anew": ("DROP v; ADD v VARCHAR(9) DEFAULT 'new'", {"of_v"}),
    "made anew alike": ("DROP v; ADD v VARCHAR(20) DEFAULT 'new'", {"of_v"}),
}


@pytest.mark.parametrize(("name", "again"), both_ways(WALKS))
def test_oddities_37_52_and_53_views_go_on_or_come_back_from_the_source(
    server: Mariadb, tmp_path: Path, name: str, again: bool
) -> None:
    change, stops = WALKS[name]
    with closing(AlteredMariadbTable(tmp_path, server, TABLE, VIEWS)) as table:
        table.run("INSERT INTO shop.entry VALUES (1, 1, 1.25, 'я'), (2, 2, 2.25, 'b')")
        driver = Driver(table)
        table.rounds(driver)
        if again:
            driver.close()
        table.run(*(f"ALTER TABLE shop.entry {one}" for one in change.split("; ")))
        if again:
            driver = Driver(table)
        table.rounds(driver)
        assert set(table.suspended()) == stops, table.suspended()
        table.run(
            "INSERT INTO shop.entry VALUES (3, 3, 3.5, 'c')", "DELETE FROM shop.entry WHERE id = 2"
        )
        table.rounds(driver)
        assert set(table.suspended().values()) <= {"VIEW_COLUMN_CHANGED"}
        for view in VIEWS.keys() - stops:
            assert table.shown(view) == table.truth(view), view
        for view in sorted(stops):
            table.anew(driver, view)
        table.run("UPDATE shop.entry SET i = 9, d = 7.5, v = 'z' WHERE id = 1")
        table.rounds(driver)
        assert table.suspended() == {}
        for view in VIEWS:
            assert table.shown(view) == table.truth(view), view
        table.proved()
        driver.close()
