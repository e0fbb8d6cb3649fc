"""A real MariaDB: its catalog, its log beside its snapshots, and its answers at exact states."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial

import askedpostgres as asked
import pymysql
import pytest
from askedmariadb import captured, log_of, source, until_rows
from mysqlservers import MARIADBS, database_server
from writers import at_work

from streaming.algebra.source_queries import SourceQuery
from streaming.algebra.tree import Join, Scan
from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_source import MysqlSource
from streaming.ask.mariadb.mysql_url import connect, parse_url
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.initial_scan import InitialScan, begin
from streaming.capture.initial_scan import ScanProgress as TableScan
from streaming.capture.log_events import Commit, RowChange, Truncate
from streaming.captured.captured_schema import CapturedSource
from streaming.cdc.debezium import Decoder
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.demo.pace import Pace
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.errors import FrescoError
from streaming.proof.databases import Database
from streaming.proof.mariadb_tables import read_tables
from streaming.scalars.expression import Column
from tests.sourcelog import Topics

ANSWERS, TRANSACTIONS, AHEAD = 20, 150, 20
ODD = """CREATE TABLE odd (
 id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, iu INT UNSIGNED, bu BIGINT UNSIGNED,
 d DECIMAL(18,2), dw DECIMAL(38,10), f FLOAT, g DOUBLE, dt DATE, d6 DATETIME(6), d3 DATETIME(3),
 t6 TIMESTAMP(6) NULL, tm TIME(6), y YEAR, c CHAR(4), v VARCHAR(300), l1 VARCHAR(9) CHARACTER SET
 latin1, bi BINARY(4), bl BLOB, b1 BIT(1), b10 BIT(10), e ENUM('x','y z'), s SET('a','b','c'),
 j JSON, `Mixed, ``name` TEXT)"""
ROWS = (
    r"""(%d, -128, 255, 4294967295, 18446744073709551615, -12.30,
 1234567890123456789012345678.0123456789, 0.1, 0.1, '2024-02-29', '2024-02-29 12:00:00.123456',
 '2024-02-29 12:00:00.123', '2024-02-29 12:00:00.123456', '-838:59:59.5', 2024, 'ab', 'é🙂', 'é€',
 'ab', x'00ff', b'1', b'1000000001', 'y z', 'c,a', '{"a": [1, 2.5]}', 'it''s "\\" ')""",
    """(%d, 0, 0, 0, 0, 0, -0.5, 16777216, -1e308, '0001-01-01', '9999-12-31 23:59:59.999999',
 '1969-12-31 23:59:59.999', '1970-01-01 00:00:01', '00:00:00', 1901, '', '', '', '', '', b'0', b'0',
 'x', '', '[]', '')""",
    "(%d" + ", NULL" * 25 + ")",
)


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("mariadb")) as running:
        running.execute("CREATE DATABASE shop", f"SET sql_mode = ''; USE shop; {ODD}")
        yield running


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> DuckOperators:
    return asked.operators(tmp_path_factory.mktemp("staged"))


# Values -------------------------------------------------------------------------------------------


def test_a_row_is_the_same_from_the_snapshot_the_log_a_query_and_verify(
    server: Mariadb, ops: DuckOperators
) -> None:
    """Every supported type, at its ends, empty and NULL."""
    (odd,) = captured(server, "odd")
    assert [name for name, _ in odd.refused] == ["tm"]
    for number, row in enumerate(ROWS, 1):
        server.execute(f"SET time_zone = '+00:00'; INSERT INTO shop.odd VALUES {row % number}")
    url = parse_url(server.url("shop"), "shop")
    table, envelope = CapturedTable("shop", "odd", "shop.shop.odd", ("id",)), Envelope("shop", "n")
    with connect(url, "shop", conv=PLAIN) as connection:
        at = begin(connection)
        snapshot, scan = InitialScan(connection, at, 1, 0, "precise"), TableScan(table)
        events = [json.loads(value or b"") for _, _, value in snapshot.rows(envelope, table, scan)]
    assert scan.rows == len(ROWS)
    reader = log_of(server, at, "odd")
    server.execute("UPDATE shop.odd SET id = id + 10")
    changes = [one for one in until_rows(reader, len(ROWS)) if isinstance(one, RowChange)]
    assert [change.before for change in changes] == [event["payload"]["after"] for event in events]

    decoder = Decoder([odd], [CapturedSource("shop", "shop", log=MYSQL_LOG)])
    records = [("shop.shop.odd", json.dumps(event)) for event in events]
    decoded = decoder.decode(Topics().batch(records))
    assert decoded.bad == ()
    rows = decoded.rows["shop.odd"]
    assert set(rows["unfit"].to_pylist()) == set(rows["missing"].to_pylist()) == {None}
    width = len(odd.relation.schema)
    logged = [rows[f"a{i}"].to_pylist() for i in range(1, width)]

    asking = source(server, ops, "odd")
    names = ", ".join(f"`{c.name.replace('`', '``')}`" for c in odd.relation.schema)
    tree = asked.view(f"SELECT {names} FROM shop.odd", [odd])
    (answer,) = asked.asked(asking, (tree, {})).rows  # type: ignore[arg-type]
    answered = sorted(asked.listed(answer), key=lambda one: one[0])
    assert [list(column) for column in zip(*answered, strict=True)][1:] == logged
    asking.close()

    database = Database(server.url("shop"), {"odd": "shop.odd"})
    read = read_tables("shop", database, [odd.relation], {"shop.odd": ()})["shop.odd"]
    assert [column.to_pylist() for column in read.columns][1:] == logged


def test_truncate_rollback_and_other_tables_in_the_log(server: Mariadb) -> None:
    server.execute("CREATE TABLE shop.few (a INT) ENGINE=InnoDB", "CREATE TABLE shop.other (a INT)")
    url = parse_url(server.url("shop"), "shop")
    with connect(url, "shop", conv=PLAIN) as connection:
        at = begin(connection)
    server.execute(
        "INSERT INTO shop.few VALUES (1), (1)",
        "BEGIN; INSERT INTO shop.few VALUES (7); ROLLBACK",
        "INSERT INTO shop.other VALUES (1)",
        "FLUSH BINARY LOGS",
        "TRUNCATE TABLE shop.few",
        "ALTER TABLE shop.few ADD COLUMN b VARCHAR(5) DEFAULT 'é'",
        "INSERT INTO shop.few (a) VALUES (2)",
    )
    events = until_rows(log_of(server, at, "few"), 3)
    rows = [one.after for one in events if isinstance(one, RowChange)]
    assert rows == [{"a": 1}, {"a": 1}, {"a": 2, "b": "é"}]
    assert [one.table for one in events if isinstance(one, Truncate)] == [("shop", "few")]


def test_a_change_logged_as_a_statement_stops_the_reader_and_one_of_others_does_not(
    server: Mariadb,
) -> None:
    server.execute("CREATE TABLE shop.worded (a INT)", "CREATE TABLE shop.mute (a INT)")
    url = parse_url(server.url("shop"), "shop")
    with connect(url, "shop", conv=PLAIN) as connection:
        at = begin(connection)
    for table in ("mute", "worded"):
        server.execute(
            "SET SESSION binlog_format = 'STATEMENT'; INSERT INTO shop." + table + " VALUES (1)"
        )
    with pytest.raises(FrescoError, match="CAPTURE_STATEMENT"):
        until_rows(log_of(server, at, "worded"), 1)


# Answers ------------------------------------------------------------------------------------------


def test_an_answer_holds_exactly_the_transactions_its_state_saw(
    server: Mariadb, ops: DuckOperators
) -> None:
    """Four writers commit, some roll back, the log goes on to new files; the log is the judge."""
    server.execute("CREATE TABLE shop.led (n INT)", "CREATE TABLE shop.other_led (n INT)")
    found = captured(server, "led", "other_led")
    asking = MysqlSource("shop", server.url("shop"), found, ops)
    start = asking.answer(SourceQuery("v", 0, 1, "shop", ())).state
    url = parse_url(server.url("shop"), "shop")
    with connect(url, "shop", conv=PLAIN) as connection:
        at = begin(connection)
    assert at.state.upto >= start.upto
    done = list[int]()

    def write(seed: int, pace: Pace) -> None:
        rng = random.Random(seed)
        with (
            pymysql.connect(
                host=url.host, port=url.port, user=url.user, password=url.password, database="shop"
            ) as connection,
            connection.cursor() as cursor,
        ):
            while pace.may_write():
                number = rng.randrange(2**31)
                for table in ("led", "other_led"):
                    cursor.execute(f"INSERT INTO {table} VALUES (%s)", (number,))
                if rng.random() < 0.2:
                    connection.rollback()
                    continue
                connection.commit()
                done.append(number)
                pace.wrote()
                if rng.random() < 0.02:
                    cursor.execute("FLUSH BINARY LOGS")

    trees = [asked.view(f"SELECT n FROM shop.{name}", found) for name in ("led", "other_led")]
    answers, pace = [], Pace(AHEAD)
    with at_work(pace, [partial(write, seed) for seed in range(4)]):
        while len(answers) < ANSWERS or len(done) < TRANSACTIONS:
            pace.read(pace.written)
            answers.append(asked.asked(asking, *((tree, {}) for tree in trees)))  # type: ignore[arg-type]
    asking.close()
    logged: list[tuple[int, int]] = []
    pending: list[int] = []
    for event in until_rows(log_of(server, at, "led"), len(done)):
        if isinstance(event, RowChange):
            pending.append(event.after["n"])  # type: ignore[index]
        elif isinstance(event, Commit):
            logged += [(event.at.number - 1, number) for number in pending]
            pending = []
    for answer in answers:
        led, other = (asked.listed(rows) for rows in answer.rows)
        assert led == other, "both parts are of one snapshot"
        seen = sorted(number for position, number in logged if answer.state.saw("", position))
        assert sorted(number for (number,) in led) == seen
    assert len(logged) >= TRANSACTIONS


def test_keys_restrict_what_is_read_and_a_coarser_collation_loses_nothing(
    server: Mariadb, ops: DuckOperators
) -> None:
    server.execute(
        "CREATE TABLE shop.big (id BIGINT PRIMARY KEY, name VARCHAR(20) COLLATE"
        " utf8mb4_general_ci, KEY (name))",
        "INSERT INTO shop.big WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s"
        " WHERE n < 900) SELECT n, IF(n % 2, CONCAT('name ', n), CONCAT('NAME ', n)) FROM s",
    )
    found = captured(server, "big")
    schema = (Column("k", "bigint"), Column("w", "string"))
    scan = Scan("shop.big", found[0].relation.schema)
    known = asked.known(["bigint", "string"], [(3, "name 3"), (4, "name 4"), (5, "no")], ops)
    asking = MysqlSource("shop", server.url("shop"), found, ops)
    by_id = Join(Scan("@left", schema), scan, ((0, 0),), None)
    by_name = Join(Scan("@left", schema), scan, ((1, 1),), None)
    one, other = asked.asked(asking, (by_id, {"@left": known}), (by_name, {"@left": known})).rows  # type: ignore[arg-type]
    assert [row[2] for row in asked.listed(one)] == [3, 4, 5]
    assert [row[2:] for row in asked.listed(other)] == [(3, "name 3")], "case counts here"
    pinned = asking.pin()
    server.execute("DELETE FROM shop.big WHERE id = 3")
    again = asked.asked(asking, (by_name, {"@left": known}))  # type: ignore[arg-type]
    assert (len(asked.listed(again.rows[0])), again.state) == (1, pinned)
    asking.release()
    assert asked.listed(asked.asked(asking, (by_name, {"@left": known})).rows[0]) == []  # type: ignore[arg-type]
    asking.close()
