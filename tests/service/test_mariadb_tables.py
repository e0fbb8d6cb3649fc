"""Tables of a real MariaDB whose changes its log has in another way, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from askedmariadb import captured, log_end, log_of
from mysqlservers import MARIADBS, database_server
from test_mariadb_log import until_end

from streaming.ask.mariadb.mysql_check import check_server, require
from streaming.capture.capturing import Capture
from streaming.capture.log_events import Commit, Refill, RowChange, Truncate
from streaming.captured.checked import Checked
from streaming.configuration.pipeline_config import parse_config
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.errors import FrescoError
from streaming.pipeline.source_schemas import source_relations


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("mariadb")) as running:
        running.execute("CREATE DATABASE shop", "CREATE TABLE shop.done (n INT)", *TABLES)
        yield running


ENDS = "GENERATED ALWAYS AS ROW"
TABLES = (
    "CREATE TABLE shop.implied (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
    "CREATE TABLE shop.keyless (id INT, a INT) WITH SYSTEM VERSIONING",
    f"CREATE TABLE shop.declared (id INT PRIMARY KEY, a INT, s TIMESTAMP(6) {ENDS} START, `the end`"
    f" TIMESTAMP(6) {ENDS} END, PERIOD FOR SYSTEM_TIME (s, `the end`)) WITH SYSTEM VERSIONING",
    "CREATE TABLE shop.parted (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING"
    " PARTITION BY SYSTEM_TIME (PARTITION past HISTORY, PARTITION now CURRENT)",
    "CREATE TABLE shop.partly (id INT PRIMARY KEY, a INT, b INT WITHOUT SYSTEM VERSIONING)"
    " WITH SYSTEM VERSIONING",
    "CREATE TABLE shop.applied (id INT, a INT, f DATE DEFAULT '2020-01-01', t DATE DEFAULT"
    " '2021-01-01', PERIOD FOR valid (f, t))",
    "CREATE TABLE shop.plain (id INT PRIMARY KEY, a INT, row_start TIMESTAMP(6), row_end TIMESTAMP(6))",
    f"CREATE TABLE shop.numbered (id INT PRIMARY KEY, a INT, s BIGINT UNSIGNED {ENDS} START, e BIGINT"
    f" UNSIGNED {ENDS} END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
)
WORK = (
    "INSERT INTO shop.{0} (id, a) VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    "UPDATE shop.{0} SET a = a + 10 WHERE id <> 4",
    "UPDATE shop.{0} SET a = a WHERE id = 4",
    "UPDATE shop.{0} SET id = 9 WHERE id = 2",
    "DELETE FROM shop.{0} WHERE id = 1",
    "REPLACE INTO shop.{0} (id, a) VALUES (3, 8)",
    "INSERT INTO shop.{0} (id, a) VALUES (3, 4) ON DUPLICATE KEY UPDATE a = 7",
    "BEGIN; INSERT INTO shop.{0} (id, a) VALUES (50, 1); UPDATE shop.{0} SET a = 2 WHERE id = 50;"
    " DELETE FROM shop.{0} WHERE id = 50; INSERT INTO shop.{0} (id, a) VALUES (51, 1); COMMIT",
)
OF_HISTORY = (
    "DELETE HISTORY FROM shop.{0}",
    "SET system_versioning_insert_history = ON; INSERT INTO shop.{0} (id, a, row_start, row_end)"
    " VALUES (70, 1, '2001-01-01', '2002-01-01')",
)
OF_PERIODS = (
    "DELETE FROM shop.applied FOR PORTION OF valid FROM '2020-03-01' TO '2020-04-01'",
    "UPDATE shop.applied FOR PORTION OF valid FROM '2020-02-01' TO '2020-02-10' SET a = 70",
)


def rows_by_log(server: Mariadb, at: Any, *tables: str) -> list[dict[str, Any]]:
    """The rows that a log leaves in captured tables that were empty at its beginning; every
    retraction finds its row, and every change has the table's own columns only."""
    rows: list[dict[str, Any]] = []
    for event in until_end(log_of(server, at, *tables, "done")):
        if isinstance(event, RowChange) and event.table[1] != "done":
            if event.before is not None:
                rows.remove(dict(event.before))
            if event.after is not None:
                rows.append(dict(event.after))
    return rows


def selected(server: Mariadb, table: str, columns: str) -> list[tuple[Any, ...]]:
    with server._connect("shop") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM shop.{table} ORDER BY {columns}")
        return list(cursor.fetchall())


@pytest.mark.parametrize(
    ("table", "more"),
    [
        ("implied", OF_HISTORY),
        ("keyless", ()),
        ("declared", OF_HISTORY[:1]),
        ("parted", OF_HISTORY[:1]),
        ("partly", ("UPDATE shop.partly SET b = 5",)),
        ("applied", OF_PERIODS),
        ("plain", ("UPDATE shop.plain SET row_start = '2020-01-01', row_end = '2021-01-01'",)),
    ],
)
def test_oddity_48_of_a_table_with_periods_the_present_rows_are_captured(
    server: Mariadb, table: str, more: tuple[str, ...]
) -> None:
    """Against the server's own SELECT."""
    at = log_end(server)
    server.execute(
        *(one.format(table) for one in (*WORK, *more)), "INSERT INTO shop.done VALUES (1)"
    )
    (relation,) = captured(server, table)
    names = [column.name for column in relation.relation.schema]
    rows = rows_by_log(server, at, table)
    assert all(list(row) == names for row in rows), (rows, names)
    keyed = table not in ("keyless", "applied")
    assert [names[at] for at in relation.relation.key] == (["id"] if keyed else [])
    wanted = selected(server, table, "id, a")
    assert sorted((row["id"], row["a"]) for row in rows) == wanted and len(wanted) >= 4


def test_oddity_48_system_versioning_that_comes_and_goes_is_followed(server: Mariadb) -> None:
    """The log is read after all of it: the catalog has the last state only."""
    server.execute("CREATE OR REPLACE TABLE shop.going (id INT PRIMARY KEY, a INT)")
    at = log_end(server)
    add, drop = (f"ALTER TABLE shop.going {one} SYSTEM VERSIONING" for one in ("ADD", "DROP"))
    change = "UPDATE going SET a = a + 1; DELETE FROM going WHERE id = (SELECT MAX(id) FROM going)"
    server.execute(
        "INSERT INTO shop.going VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
        f"USE shop; {change}; {add}; {change}; {drop}; {change}; {add}; {change}",
        "INSERT INTO shop.done VALUES (1)",
    )
    rows = rows_by_log(server, at, "going")
    assert sorted((row["id"], row["a"]) for row in rows) == selected(server, "going", "id, a")
    server.execute(
        drop, "CREATE OR REPLACE TABLE shop.done (n INT)", "INSERT INTO shop.done VALUES (1)"
    )
    with pytest.raises(FrescoError, match="CAPTURE_VERSIONED"):
        rows_by_log(server, at, "going")


# What is refused ----------------------------------------------------------------------------------


@pytest.fixture
def judged(server: Mariadb) -> Callable[..., list[Checked]]:
    def of(*tables: str, ours: bool | None = True) -> list[Checked]:
        return check_server(server.url("shop"), "shop", [f"shop.{one}" for one in tables], ours)

    return of


def test_oddity_48_system_versioning_is_refused_under_debezium_and_by_transactions(
    server: Mariadb, judged: Callable[..., list[Checked]]
) -> None:
    assert [one.level for one in judged("implied", "declared", "applied")] == ["ok"]
    levels = {ours: judged("implied", ours=ours) for ours in (None, False)}
    assert [(one.level, one.code) for one in levels[None]] == [("warning", "SOURCE_VERSIONED")]
    assert [one.level for one in levels[False]] == ["wrong"]
    (found,) = judged("numbered")
    assert (found.level, found.code) == ("wrong", "SOURCE_VERSIONED_BY_TRANSACTION")
    server.execute(statements(found))
    assert [one.level for one in judged("numbered")] == ["ok"]


def statements(found: Checked) -> str:
    """The SQL that mends it."""
    return found.todo.rpartition(";")[0]


CASCADES = """
CREATE TABLE shop.`par``ent` (id INT PRIMARY KEY, x INT, y INT, UNIQUE (x, y));
CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, CONSTRAINT `f k` FOREIGN KEY (p)
 REFERENCES `par``ent` (id) ON DELETE CASCADE);
CREATE TABLE shop.nulled (id INT PRIMARY KEY, x INT, y INT, CONSTRAINT two FOREIGN KEY (x, y)
 REFERENCES `par``ent` (x, y) ON DELETE SET NULL ON UPDATE SET NULL);
CREATE TABLE shop.moved (id INT PRIMARY KEY, p INT, CONSTRAINT moving FOREIGN KEY (p)
 REFERENCES `par``ent` (id) ON UPDATE CASCADE);
CREATE TABLE shop.tree (id INT PRIMARY KEY, up INT, CONSTRAINT above FOREIGN KEY (up)
 REFERENCES tree (id) ON DELETE CASCADE);
CREATE TABLE shop.kept (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES `par``ent` (id)
 ON DELETE RESTRICT ON UPDATE NO ACTION)
"""


def test_oddity_49_a_cascade_into_a_captured_table_is_refused_and_mended(
    server: Mariadb, judged: Callable[..., list[Checked]]
) -> None:
    """What the advised statements make of it stands in the log. A user who may only read sees it."""
    children = ("child", "nulled", "moved", "tree")
    server.execute(
        f"USE shop; {CASCADES}",
        "CREATE OR REPLACE USER poor IDENTIFIED BY 'poor-secret'; GRANT SELECT ON shop.* TO poor",
    )
    found = judged(*children, "kept", "par`ent")
    assert [(one.level, one.code) for one in found] == [("wrong", "SOURCE_CASCADES")] * 4
    url = server.url("shop").replace(f"fresco:{server.password}@", "poor:poor-secret@")
    by_poor = check_server(url, "shop", [f"shop.{one}" for one in children])
    assert [one.says for one in by_poor] == [one.says for one in found]
    with pytest.raises(FrescoError, match=r"SOURCE_CASCADES.*`f k`|SOURCE_CASCADES.*f k.*above"):
        require("shop", found)
    for one in found:
        server.execute(statements(one))
    assert [one.level for one in judged(*children, "kept")] == ["ok"]
    at = log_end(server)
    server.execute(
        "INSERT INTO shop.`par``ent` VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
        "INSERT INTO shop.child VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO shop.nulled VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
        "DELETE FROM shop.`par``ent` WHERE id <> 2",
        "INSERT INTO shop.tree VALUES (1, NULL), (2, 1)",
        "INSERT INTO shop.moved VALUES (1, 2)",
        "INSERT INTO shop.done VALUES (1)",
    )
    rows = rows_by_log(server, at, "child")
    assert [(row["id"], row["p"]) for row in rows] == selected(server, "child", "id, p") == [(2, 2)]
    rows = rows_by_log(server, at, "nulled")
    nulled = sorted((row["id"], row["x"], row["y"]) for row in rows)
    assert nulled == selected(server, "nulled", "id, x, y")
    assert nulled == [(1, None, None), (2, 2, 2), (3, None, None)]
    for refused in ("UPDATE shop.`par``ent` SET id = 5", "DELETE FROM shop.tree WHERE id = 1"):
        with pytest.raises(pymysql.err.IntegrityError):
            server.execute(refused)


def test_oddity_49_a_cascade_that_comes_while_captured_ends_the_capture(server: Mariadb) -> None:
    server.execute(
        "CREATE TABLE shop.above (id INT PRIMARY KEY) ENGINE = InnoDB",
        "CREATE TABLE shop.below (id INT PRIMARY KEY, p INT) ENGINE = InnoDB",
    )
    at = log_end(server)
    server.execute(
        "ALTER TABLE shop.below ADD FOREIGN KEY (p) REFERENCES shop.above (id) ON DELETE CASCADE",
        "INSERT INTO shop.done VALUES (1)",
    )

    def recheck() -> None:
        require("shop", check_server(server.url("shop"), "shop", ["shop.below"], ours=True))

    reader = log_of(server, at, "below", "done")
    reader._recheck = recheck
    with pytest.raises(FrescoError, match=r"SOURCE_CASCADES.*below"):
        until_end(reader)


# Rows that statements move ------------------------------------------------------------------------

PARTED = (
    "PARTITION BY RANGE (id)"
    " (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN (200))"
)
MOVES = (
    "INSERT INTO m VALUES (1, 'a'), (2, 'b'), (150, 'c'), (151, 'c')",
    "ALTER TABLE m TRUNCATE PARTITION high",
    "INSERT INTO m VALUES (152, 'd'), (153, 'e')",
    "INSERT INTO apart VALUES (7, 'x'), (8, 'y')",
    "ALTER TABLE m EXCHANGE PARTITION low WITH TABLE apart",
    "UPDATE m SET s = CONCAT(s, s)",
    "ALTER TABLE m DROP PARTITION low",
    "DELETE FROM m WHERE id = 152",
    "INSERT INTO other VALUES (30, 'r'), (31, 's')",
    "RENAME TABLE m TO was, other TO m",
    "UPDATE m SET id = id + 10",
    "RENAME TABLE m TO other, was TO m",
    "INSERT INTO m VALUES (154, 'q'), (155, 'q')",
    "DROP TABLE m",
    "CREATE TABLE m (id INT, s VARCHAR(99))",
    "INSERT INTO m VALUES (1, 'n'), (1, 'n'), (2, 'n')",
    "ALTER IGNORE TABLE m ADD UNIQUE (id)",
    "INSERT INTO m VALUES (50, 'z')",
    "CREATE OR REPLACE TABLE m AS SELECT * FROM apart",
    "DROP TABLE IF EXISTS nothing, m",
)
"""Statements over m, of which those that move rows say nothing of them in the log."""


EMPTY = (
    f"CREATE OR REPLACE TABLE shop.m (id INT, s VARCHAR(99)) {PARTED}",
    "CREATE OR REPLACE TABLE shop.apart (id INT, s VARCHAR(99))",
    "CREATE OR REPLACE TABLE shop.other (id INT, s VARCHAR(99))",
    "CREATE OR REPLACE TABLE shop.done (n INT)",
)


def held(server: Mariadb) -> list[tuple[Any, ...]] | None:
    """The rows of m; None where there is no such table."""
    try:
        return selected(server, "m", "id, s")
    except pymysql.err.ProgrammingError:
        return None


def each_state(events: list[Any]) -> list[list[tuple[Any, ...]]]:
    """The rows of m after each transaction that touches it."""
    rows: list[tuple[Any, ...]] = []
    states: list[list[tuple[Any, ...]]] = []
    touched = False
    for event in events:
        match event:
            case Truncate() | Refill():
                rows, touched = [], True
            case RowChange(table=(_, "m"), before=before, after=after):
                touched = True
                if before is not None:
                    rows.remove((before["id"], before["s"]))
                if after is not None:
                    rows.append((after["id"], after["s"]))
            case Commit() if touched:
                states.append(sorted(rows))
                touched = False
    return states


def test_rows_that_statements_move_are_told_as_the_table_held_them(
    server: Mariadb, caplog: pytest.LogCaptureFixture
) -> None:
    """By a capture that was away meanwhile: what several of them left is not to be told apart any more,
    but every retraction finds its row, and the last word is right."""
    server.execute(*EMPTY)
    at = log_end(server)
    last = [*MOVES, "CREATE TABLE m LIKE apart", "RENAME TABLE m TO x, other TO m", "DROP TABLE x"]
    server.execute("USE shop; " + "; ".join(last), "INSERT INTO shop.done VALUES (1)")
    events = until_end(log_of(server, at, "m", "done"))
    assert each_state(events)[-1] == held(server) != []
    assert "TRUNCATE PARTITION high" in caplog.text


def test_rows_that_statements_move_are_told_one_by_one(server: Mariadb) -> None:
    """As a capture that follows the log reads them: with changes after, but no other such statement."""
    server.execute(*EMPTY)
    before: list[tuple[Any, ...]] = []
    at = log_end(server)
    for step, statement in enumerate(MOVES):
        if statement.startswith(("INSERT", "UPDATE", "DELETE", "CREATE TABLE")):
            server.execute(f"USE shop; {statement}")
            continue
        before = held(server) or []
        at = log_end(server)
        server.execute(f"USE shop; {statement}")
        wanted = held(server)
        later = (
            f"USE shop; INSERT INTO m VALUES (160, 'later'), (170, 'later'), ({110 + step}, 'more');"
            " UPDATE m SET id = -id; DELETE FROM m WHERE s IN ('c', 'later')"
        )
        server.execute(*([] if wanted is None else [later]), "INSERT INTO shop.done VALUES (1)")
        events = until_end(log_of(server, at, "m", "done"))
        given = [
            RowChange(("shop", "m"), "c", None, {"id": i, "s": s}, at, 0, 1, 0) for i, s in before
        ]
        states = each_state([*given, Commit(at, 0), *events])
        assert states[len(before) > 0] == (wanted or []), (statement, states, wanted)
        assert states[-1] == (held(server) or []), statement


def test_a_pipeline_over_a_cascade_is_not_planned(server: Mariadb) -> None:
    """By `plan`, `doctor` and each start, as the first thing that is asked."""
    server.execute(
        "CREATE OR REPLACE TABLE shop.lower (id INT PRIMARY KEY, p INT, FOREIGN KEY (p)"
        " REFERENCES lower (id) ON DELETE CASCADE)",
        database="shop",
    )
    source = {
        "database": "mariadb",
        "connection": server.url("shop"),
        "tables": {"l": "shop.lower"},
    }
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", "sources": {"shop": source}}
    config = parse_config(raw, folder=Path("/"))
    with pytest.raises(FrescoError, match="SOURCE_CASCADES"):
        source_relations(config, "shop")
    with pytest.raises(FrescoError, match="SOURCE_CASCADES"):
        Capture(config, "shop", print).run()
