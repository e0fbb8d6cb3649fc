"""What a real MariaDB writes into its log beside plain rows: nothing of it is lost or misread."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from askedmariadb import captured, log_end, log_of
from mysqlservers import MARIADBS, database_server

from streaming.ask.mariadb import mysql_url
from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_catalog import read_schemas
from streaming.ask.mariadb.mysql_check import check_server
from streaming.ask.mariadb.mysql_url import arguments, asking, parse_url
from streaming.capture import rollbacks
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.log_events import RowChange, Truncate
from streaming.capture.position import PublishedPosition
from streaming.capture.publishing import LogPublisher
from streaming.captured.captured_schema import CapturedSource
from streaming.captured.checked import Checked
from streaming.cdc.debezium import Decoder
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.errors import FrescoError
from streaming.proof.databases import Database
from streaming.proof.mariadb_tables import read_tables
from tests.sourcelog import Topics


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("mariadb")) as running:
        running.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, s VARCHAR(2000))",
            "CREATE TABLE shop.other (id INT)",
            "CREATE TABLE shop.done (n INT)",
        )
        yield running


def logged(server: Mariadb, *statements: str, tables: tuple[str, ...] = ("t",)) -> list[Any]:
    """The log's events of captured tables, from these statements, which stand in it by now."""
    server.execute("DELETE FROM shop.t")
    at = log_end(server)
    server.execute(*statements, "INSERT INTO shop.done VALUES (1)")
    found: list[Any] = []
    for event in until_end(log_of(server, at, *tables, "done")):
        if isinstance(event, RowChange) and event.table[1] != "done":
            found.append((event.op, dict(event.before or {}), dict(event.after or {})))
        elif isinstance(event, Truncate):
            found.append(("t", event.table))
    return found


def until_end(reader: Any) -> list[Any]:
    """Events of the log until the row of `done`."""
    found: list[Any] = []
    try:
        for event in reader.events():
            found.append(event)
            if isinstance(event, RowChange) and event.table[1] == "done":
                return found
    finally:
        reader.close()
    raise AssertionError("the log has ended")


def test_compressed_rows_and_statements_are_read_as_any_other(server: Mariadb) -> None:
    server.execute("SET GLOBAL log_bin_compress_min_len = 10", "SET GLOBAL log_bin_compress = ON")
    try:
        found = logged(
            server,
            "INSERT INTO shop.t VALUES (1, REPEAT('a', 1500))",
            "UPDATE shop.t SET s = REPEAT('b', 1500)",
            "DELETE FROM shop.t",
            f"TRUNCATE shop.t /* {'x' * 400} */",
        )
    finally:
        server.execute("SET GLOBAL log_bin_compress = OFF")
    a, b = {"id": 1, "s": "a" * 1500}, {"id": 1, "s": "b" * 1500}
    assert found == [("c", {}, a), ("u", a, b), ("d", b, {}), ("t", ("shop", "t"))]


def test_prepared_transactions_end_a_capture_over_captured_tables_only(server: Mariadb) -> None:
    found = logged(
        server,
        "XA START 'a'; INSERT INTO shop.other VALUES (1); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'",
        "XA START 'b'; INSERT INTO shop.other VALUES (2); XA END 'b'; XA PREPARE 'b'; XA ROLLBACK 'b'",
        "XA START 'c'; INSERT INTO shop.t VALUES (3, ''); XA END 'c'; XA COMMIT 'c' ONE PHASE",
    )
    assert found == [("c", {}, {"id": 3, "s": ""})]
    with pytest.raises(FrescoError, match="CAPTURE_XA"):
        logged(
            server,
            "XA START 'd'; INSERT INTO shop.t VALUES (4, ''); XA END 'd'; XA PREPARE 'd'; XA COMMIT 'd'",
        )


def test_what_was_rolled_back_to_a_savepoint_or_whole_is_not_told(
    server: Mariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary table, or a change of a table without transactions, brings it into the log."""
    server.execute(
        "CREATE TABLE shop.my (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TRIGGER shop.both_of BEFORE INSERT ON shop.t FOR EACH ROW"
        " INSERT INTO shop.my SELECT NEW.id FROM DUAL WHERE NEW.id > 100",
    )
    part = """BEGIN; INSERT INTO shop.t VALUES (20, ''); SAVEPOINT `a b`; INSERT INTO shop.t VALUES
     (21, ''); CREATE TEMPORARY TABLE shop.t1 (i INT); SAVEPOINT c; INSERT INTO shop.t VALUES (22, '');
     ROLLBACK TO `A B`; INSERT INTO shop.t VALUES (23, ''); COMMIT"""
    first = """BEGIN; SAVEPOINT a; INSERT INTO shop.t VALUES (31, ''); CREATE TEMPORARY TABLE shop.t2
     (i INT); ROLLBACK TO a; INSERT INTO shop.t VALUES (32, ''); COMMIT"""
    whole = """BEGIN; INSERT INTO shop.t VALUES (41, ''); CREATE TEMPORARY TABLE shop.t3 (i INT);
     ROLLBACK"""
    mixed = (
        "BEGIN; INSERT INTO shop.t VALUES (50, ''); INSERT INTO shop.t VALUES (101, ''); ROLLBACK"
    )
    try:
        for held in (10_000, 0):
            monkeypatch.setattr(rollbacks, "HELD", held)
            server.execute("DELETE FROM shop.my")
            found = logged(server, part, first, whole, mixed, tables=("t", "my"))
            assert [after["id"] for _, _, after in found] == [20, 23, 32, 101], held
    finally:
        server.execute("DROP TRIGGER shop.both_of")


def test_an_alter_in_two_phases_is_no_end(server: Mariadb) -> None:
    found = logged(
        server,
        "SET binlog_alter_two_phase = ON; ALTER TABLE shop.other ADD COLUMN b INT",
        "INSERT INTO shop.t VALUES (1, '')",
    )
    assert found == [("c", {}, {"id": 1, "s": ""})]


def test_a_log_with_and_without_checksums_is_read_over_the_change(server: Mariadb) -> None:
    """A short table without a key: its description ends where a checksum would stand."""
    server.execute("CREATE OR REPLACE TABLE shop.s (a INT)")
    try:
        found = logged(
            server,
            "INSERT INTO shop.s VALUES (1)",
            "SET GLOBAL binlog_checksum = NONE",
            "INSERT INTO shop.s VALUES (2)",
            "SET GLOBAL binlog_checksum = CRC32",
            "INSERT INTO shop.s VALUES (3)",
            tables=("s",),
        )
        server.execute("SET GLOBAL binlog_checksum = NONE")
        alone = logged(server, "INSERT INTO shop.s VALUES (4)", tables=("s",))
    finally:
        server.execute("SET GLOBAL binlog_checksum = CRC32")
    assert [after["a"] for _, _, after in found + alone] == [1, 2, 3, 4]


RETYPED = {
    "d": ("DECIMAL(10,2)", "DECIMAL(12,4)", "1.5"),
    "t": ("DATETIME", "DATETIME(6)", "'2024-02-29 12:00:00'"),
    "u": ("BIGINT", "BIGINT UNSIGNED", "5"),
    "w": ("BIGINT UNSIGNED", "BIGINT", "5"),
    "v": ("VARCHAR(20)", "VARBINARY(20)", "'ab'"),
    "b": ("BIT(10)", "BIT(20)", "b'101'"),
    "n": ("INT", "BIGINT", "7"),
}
"""Column -> its type, its next type, and a value."""


def test_rows_say_the_types_they_were_written_by(server: Mariadb) -> None:
    """A reader that looked at the catalog before the ALTER, or after it, misreads none of them."""
    columns = ", ".join(f"{name} {was}" for name, (was, _, _) in RETYPED.items())
    alters = ", ".join(f"MODIFY {name} {now}" for name, (_, now, _) in RETYPED.items())
    values = ", ".join(value for _, _, value in RETYPED.values())
    server.execute(f"CREATE TABLE shop.typed (id INT PRIMARY KEY, {columns})")
    before = captured(server, "typed")
    at = log_end(server)
    server.execute(
        f"INSERT INTO shop.typed VALUES (1, {values})",
        f"ALTER TABLE shop.typed {alters}",
        f"INSERT INTO shop.typed VALUES (2, {values})",
        "INSERT INTO shop.done VALUES (1)",
    )
    after = captured(server, "typed")
    table = CapturedTable("shop", "typed", "shop.shop.typed", ("id",))
    done = CapturedTable("shop", "done", "shop.shop.done", ())
    publisher = LogPublisher(
        Envelope("shop", "n"),
        {("shop", "typed"): table, ("shop", "done"): done},
        PublishedPosition(at),
    )
    events = until_end(log_of(server, at, "typed", "done"))
    messages = [m for event in events if event is not None for m in publisher.handle(event)]
    records = [(m[0], m[2].decode()) for m in messages if m[0] == table.topic and m[2]]
    retyped = {name for name in RETYPED if name != "n"}
    for relations, misread in ((before, 2), (after, 1)):
        decoder = Decoder(relations, [CapturedSource("shop", "shop", log=MYSQL_LOG)])
        decoded = decoder.decode(Topics().batch(records))
        assert decoded.bad == ()
        names = [column.name for column in relations[0].relation.schema]
        rows = decoded.rows["shop.typed"].to_pylist()
        for row in rows:
            told = {names[position] for position in row["unfit"] or ()}
            assert told == (retyped if row["a0"] == misread else set()), row
            if row["a0"] != misread:
                got = {name: row[f"a{at}"] for at, name in enumerate(names)}
                assert (got["d"], got["u"], got["w"], got["n"]) == (Decimal("1.5"), 5, 5, 7)
                assert got["t"] == datetime(2024, 2, 29, 12)
        assert {row["a0"] for row in rows} == {1, 2}


@pytest.mark.parametrize(
    "type_", ["VARCHAR(200)", "VARCHAR(2000)", "TEXT", "BLOB", "VARBINARY(300)"]
)
def test_a_compressed_column_and_those_behind_it_are_read(server: Mariadb, type_: str) -> None:
    server.execute(
        f"CREATE OR REPLACE TABLE shop.c (id INT PRIMARY KEY, z {type_} COMPRESSED, d DATE)",
        "SET GLOBAL column_compression_threshold = 10",
    )
    values = ["NULL", "''", "'a'", "REPEAT('ab', 100)"]
    inserts = [f"INSERT INTO shop.c VALUES ({n}, {v}, '1970-01-02')" for n, v in enumerate(values)]
    found = logged(server, *inserts, tables=("c",))
    wanted = [None, b"", b"a", b"ab" * 100]
    text = type_.startswith(("VARCHAR", "TEXT"))
    for (_, _, after), value in zip(found, wanted, strict=True):
        octets = None if value is None else base64.b64encode(value).decode()
        assert after["z"] == (value.decode() if text and value is not None else octets)
        assert after["d"] == 1


def test_columns_that_are_left_out_or_not_seen_do_not_shift_the_others(server: Mariadb) -> None:
    """Generated and invisible ones are read; what has no type here stands between them."""
    server.execute(
        "CREATE OR REPLACE TABLE shop.z (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, u UUID, i INT"
        " INVISIBLE DEFAULT 7, g GEOMETRY, st INT AS (id * 2) STORED, n6 INET6, n4 INET4, h POINT,"
        " tm TIME(3), y YEAR(2), w VARCHAR(9) AS (CONCAT('a', id)) VIRTUAL, d DECIMAL(60,2), e DATE)"
    )
    (relation,) = captured(server, "z")
    assert [name for name, _ in relation.refused] == ["u", "g", "n6", "n4", "h", "tm", "y", "d"]
    ((_, _, row),) = logged(
        server,
        "INSERT INTO shop.z (id, u, g, n6, n4, h, tm, y, d, e) VALUES (5, UUID(), POINT(1, 2), '::1',"
        " '1.2.3.4', POINT(3, 4), '-01:00:00.5', 70, 1.5, '1970-01-02')",
        tables=("z",),
    )
    read = {column.name: row[column.name] for column in relation.relation.schema}
    assert read == {"id": 5, "v": 6, "i": 7, "st": 10, "w": "a5", "e": 1}


def test_moments_in_the_format_of_mariadb_5_3_are_refused_before_they_are_misread(
    server: Mariadb,
) -> None:
    """Without decimals their length is known; with some it is in no log."""
    make = "CREATE OR REPLACE TABLE shop.o (id INT PRIMARY KEY, a DATETIME{0}, t TIME{0}, n INT)"
    insert = "INSERT INTO shop.o VALUES (1, '2024-02-29 12:34:56', '-838:59:59', 7)"
    row = {"id": 1, "a": 1709210096000, "t": -3020399000000, "n": 7}

    def wrong() -> list[Checked]:
        checks = check_server(server.url("shop"), "shop", ["shop.o"])
        return [one for one in checks if one.level == "wrong"]

    server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        server.execute(make.format(""))
        assert logged(server, insert, tables=("o",)) == [("c", {}, row)] and wrong() == []
        server.execute(make.format("(3)"))
    finally:
        server.execute("SET GLOBAL mysql56_temporal_format = ON")
    (refused,) = wrong()
    assert refused.code == "SOURCE_OLD_MOMENTS" and "a, t" in refused.says
    with pytest.raises(FrescoError, match="CAPTURE_ROWS"):
        logged(server, insert, tables=("o",))
    server.execute(refused.todo.partition("; then")[0])
    assert wrong() == []
    found = logged(server, "DELETE FROM shop.o", insert, tables=("o",))
    assert found[-1] == ("c", {}, row)


# Statements ---------------------------------------------------------------------------------------

INDIRECT = {
    "a view": "INSERT INTO shop.seen VALUES (1, '')",
    "a view of a view": "UPDATE shop.seen_twice SET s = 'a'",
    "a trigger": "INSERT INTO shop.watched VALUES (1)",
    "a function": "SELECT shop.writes(1)",
    "a function in an insert": "INSERT INTO shop.other (id) VALUES (shop.writes(1))",
    "a file": "LOAD DATA INFILE 'rows.txt' INTO TABLE shop.t",
    "a comment that is executed": "/*!50000 DELETE FROM shop.t */",
}
DIRECT = (
    "REPLACE INTO shop.other (id) SELECT id FROM shop.t",
    "INSERT INTO elsewhere.t VALUES (1)",
    "INSERT INTO shop.other (id) VALUES (1) /* shop.t */",
    "UPDATE shop.other o, shop.t SET o.id = t.id",
    "LOAD DATA INFILE 'rows.txt' INTO TABLE shop.other (id, @s)",
    "INSERT INTO shop.watching VALUES (1)",
)


def test_a_statement_that_changes_a_captured_table_by_whatever_way_ends_the_capture(
    server: Mariadb,
) -> None:
    """And none that does not: the format is a session's own choice."""
    server.execute(
        "CREATE DATABASE elsewhere; CREATE TABLE elsewhere.t (id INT)",
        "CREATE VIEW shop.seen AS SELECT * FROM shop.t",
        "CREATE VIEW shop.seen_twice AS SELECT * FROM shop.seen",
        "CREATE TABLE shop.watched (id INT); CREATE TABLE shop.watching (id INT)",
        "CREATE TRIGGER shop.writing AFTER INSERT ON shop.watched FOR EACH ROW"
        " INSERT INTO shop.t VALUES (NEW.id, '')",
        "CREATE TRIGGER shop.reading AFTER INSERT ON shop.watching FOR EACH ROW"
        " INSERT INTO shop.other (id) SELECT COUNT(*) FROM shop.t",
        "SET GLOBAL log_bin_trust_function_creators = ON; CREATE FUNCTION shop.writes(n INT)"
        " RETURNS INT BEGIN INSERT INTO shop.t VALUES (n, ''); RETURN n; END",
        "USE shop; SELECT 7, 'x' INTO OUTFILE 'rows.txt'",
        "INSERT INTO shop.t VALUES (5, '')",
    )
    as_statements = "USE shop; SET binlog_format = STATEMENT; "
    harmless = [f"{as_statements}{one}; SET binlog_format = ROW" for one in DIRECT]
    assert logged(server, *harmless, "INSERT INTO shop.t VALUES (2, '')") == [
        ("c", {}, {"id": 2, "s": ""})
    ]
    for way, statement in INDIRECT.items():
        server.execute("DELETE FROM shop.t")
        at = log_end(server)
        server.execute(
            as_statements + statement, "SET binlog_format = ROW; INSERT INTO shop.done VALUES (1)"
        )
        with pytest.raises(FrescoError, match=r"CAPTURE_STATEMENT.*shop\.t"):
            print(way, until_end(log_of(server, at, "t", "done")))


def test_a_user_who_may_not_see_triggers_is_told_once(
    server: Mariadb, caplog: pytest.LogCaptureFixture
) -> None:
    server.execute(
        "CREATE OR REPLACE USER poor IDENTIFIED BY 'poor-secret'",
        "GRANT SELECT, REPLICATION SLAVE ON *.* TO poor",
    )
    at = log_end(server)
    harmless = "INSERT INTO shop.other (id) VALUES (1)"
    server.execute(
        f"SET binlog_format = STATEMENT; {harmless}; CREATE TABLE shop.more (a INT); {harmless}",
        "SET binlog_format = ROW; INSERT INTO shop.done VALUES (1)",
    )
    url = server.url("shop").replace(f"fresco:{server.password}@", "poor:poor-secret@")
    until_end(log_of(server, at, "t", "done", url=url))
    assert caplog.text.count("GRANT TRIGGER, EXECUTE") == 1 and "poor-secret" not in caplog.text


def test_a_truncate_is_seen_as_its_session_wrote_it(server: Mariadb) -> None:
    server.execute("CREATE TABLE shop.`é` (a INT)")
    found = logged(
        server,
        'SET sql_mode = ANSI_QUOTES; TRUNCATE TABLE "shop"."t"',
        "TRUNCATE /* why */ TABLE -- so\n shop.t",
        "/*!50000 TRUNCATE TABLE shop.t */",
    )
    assert found == [("t", ("shop", "t"))] * 3
    at = log_end(server)
    url = parse_url(server.url("shop"), "shop")
    with pymysql.connect(**arguments(url) | {"charset": "latin1"}) as session:
        session.cursor().execute("TRUNCATE TABLE `é`")
    server.execute("INSERT INTO shop.done VALUES (1)")
    events = until_end(log_of(server, at, "é", "done"))
    assert [one.table for one in events if isinstance(one, Truncate)] == [("shop", "é")]


def test_no_question_waits_for_ever_for_a_locked_table(
    server: Mariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_url, "LOCK_SECONDS", 1)
    url, other = (
        server.url("shop"),
        pymysql.connect(**arguments(parse_url(server.url("shop"), "shop"))),
    )
    (one,) = read_schemas(url, "shop", "pre", {"t": "shop.t"})

    def rows_in_t() -> None:
        with asking(parse_url(url, "shop"), "shop") as cursor:
            cursor.execute("SELECT * FROM t")

    def table_t() -> None:
        read_tables("shop", Database(url, {"t": "shop.t"}), [one.relation], {"shop.t": ()})

    with other, other.cursor() as locking:
        locking.execute("LOCK TABLES t WRITE")
        read_schemas(url, "shop", "pre", {"t": "shop.t"})
        for ask in (rows_in_t, table_t):
            with pytest.raises(FrescoError, match="SOURCE_TABLE_LOCKED") as refused:
                ask()
            locking.execute(refused.value.todo.partition("among: ")[2])
            assert other.thread_id() in [int(row[0]) for row in locking.fetchall()]
    rows_in_t()
    table_t()
