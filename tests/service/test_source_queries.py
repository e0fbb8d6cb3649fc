"""Answers of a real PostgreSQL: exact values, an exact state, few rows read, errors with codes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import askedpostgres as asked
import duckdb
import psycopg
import pyarrow as pa
import pytest

from streaming.algebra.duckops import DuckOperators
from streaming.algebra.query import SourceQuery
from streaming.algebra.signed import Signed
from streaming.algebra.tree import Column, Join, Scan
from streaming.algebra.types import delta_schema
from streaming.embedded.postgres import Postgres
from streaming.errors import FrescoError
from streaming.sources.pgstate import PgState, PgStateCodec
from streaming.sources.query import PostgresSource
from streaming.sources.values import casts

BIG = 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("asked")) as running:
        yield running


@pytest.fixture(scope="module")
def dsn(server: Postgres) -> str:
    return server.dsn("north")


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> DuckOperators:
    return asked.operators(tmp_path_factory.mktemp("staged"))


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def source(dsn: str, ops: DuckOperators, *tables: str, **how: Any) -> PostgresSource:
    return PostgresSource("north", dsn, asked.captured(dsn, *tables), ops, **how)


def known(types: list[str], rows: list[tuple[Any, ...]], ops: DuckOperators) -> Signed:
    schema = tuple(Column(f"k{i}", t) for i, t in enumerate(types))
    return Signed(delta_schema(schema), bag={(7, row): 1 for row in rows})


# Values -------------------------------------------------------------------------------------------

VALUES: dict[str, list[tuple[str, str]]] = {
    "smallint": [("-32768", "-32768")],
    "int": [("7", "7")],
    "bigint": [("9223372036854775807", "9223372036854775807")],
    "real": [("0.1", "0.1"), ("'NaN'", "NaN"), ("'-Infinity'", "-Infinity")],
    "double precision": [("0.1", "0.1"), ("1e300", "1.0E300"), ("'Infinity'", "Infinity")],
    "boolean": [("true", "true"), ("false", "false")],
    "text": [("''", ""), (r"'\N'", r"\N"), ("E'a\"\\r\\nb,\\\\'", 'a"\r\nb,\\'), ("'ß€😀'", "ß€😀")],
    "varchar(9)": [("'x '", "x ")],
    "char(4)": [("'ab'", "ab  ")],
    "uuid": [("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
    "json": [("'{\"a\" :1}'", '{"a" :1}')],
    "jsonb": [("'{\"a\" :1}'", '{"a": 1}')],
    "bytea": [(r"'\x00ff5c'", "AP9c"), ("''", "")],
    "numeric(18,2)": [("-1.5", "-1.50"), ("9999999999999999.99", "9999999999999999.99")],
    "numeric(38,0)": [("99999999999999999999999999999999999999", "9" * 38)],
    "numeric": [("1.50000000000000000000000", "1.5"), ("-12345678901234567890.000000000000000001",) * 2],
    "date": [
        ("'2024-02-29'", "19782"),
        ("'0044-03-15 BC'", "-735160"),
        ("'infinity'", "2147483647"),
        ("'-infinity'", "-2147483647"),
    ],
    "timestamp": [
        ("'2024-01-01 00:00:00.000001'", "1704067200000001"),
        ("'infinity'", "9223372036825200000"),
        ("'-infinity'", "-9223372036832400000"),
    ],
    "timestamp(3)": [("'2024-01-01 00:00:00.0014'", "1704067200001")],
    "timestamptz": [
        ("'2024-01-01 01:00:00.5+01'", "2024-01-01T00:00:00.500000Z"),
        ("'1969-12-31 23:59:59.999999Z'", "1969-12-31T23:59:59.999999Z"),
        ("'infinity'", "infinity"),
        ("'-infinity'", "-infinity"),
    ],
}  # fmt: skip
"""Database type -> (literal, Debezium's text of it, decimals written out)."""


@pytest.fixture(scope="module")
def typed(dsn: str) -> list[Any]:
    """One table t0, t1, ... per type: a value, and its number in the list; None is the last."""
    for index, (type_, pairs) in enumerate(VALUES.items()):
        rows = ", ".join(f"({n}, {sql})" for n, (sql, _) in enumerate([*pairs, ("NULL", "")]))
        execute(
            dsn, f"CREATE TABLE t{index} (n int, x {type_})", f"INSERT INTO t{index} VALUES {rows}"
        )
    return asked.captured(dsn, *(f"t{i}" for i in range(len(VALUES))))


@pytest.mark.parametrize("type_", VALUES)
def test_an_answer_has_the_values_that_the_log_has(
    type_: str, typed: list[Any], dsn: str, ops: DuckOperators
) -> None:
    one = typed[list(VALUES).index(type_)]
    texts: list[str | None] = [text for _, text in VALUES[type_]]
    log = decoded(one, [*texts, None])
    asking = PostgresSource("north", dsn, [one], ops)
    scan = Scan(one.relation.name, one.relation.schema)
    (value,) = asked.asked(asking, (scan, {})).rows
    table = value.table.sort_by("c0")
    assert same(table.column("c1"), log), (table.column("c1"), log)
    for position in range(len(texts)):
        if one.source_types[1].startswith("json"):
            continue
        # The value finds itself when it is a key, by itself and with the row's number.
        row = table.slice(position, 1)
        for on in ([(1, 1)], [(0, 0), (1, 1)]):
            tree = Join(Scan("@left", scan.schema), scan, tuple(on), None)
            found = asked.asked(asking, (tree, {"@left": ops.value(row)})).rows[0].table
            assert same(found.column("c3"), log.slice(position, 1)), (type_, position, on)
    asking.close()


def same(column: pa.ChunkedArray, log: pa.Array) -> bool:
    """Whether type and values are the same; NaN equals itself."""
    array = column.combine_chunks()
    if pa.types.is_floating(log.type):
        return array.type == log.type and str(array.to_pylist()) == str(log.to_pylist())
    return bool(array.equals(log))


def decoded(captured: Any, texts: list[str | None]) -> pa.Array:
    """What `sources.values` makes of Debezium's texts of the column x."""
    from dataclasses import replace

    found = casts(replace(captured, decimals="string"), "x")[1]
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    engine.register("t", pa.table({"x1": pa.array(texts, pa.string())}))
    table = engine.execute(f"SELECT {', '.join(found.columns)} FROM t").to_arrow_table()
    parts = tuple(column.combine_chunks() for column in table.columns)
    return found.finish(parts)


@pytest.mark.parametrize("value", ["'NaN'", "1e25", "0.1234567890123456789"])
def test_a_number_that_does_not_fit_is_refused_by_name_where_it_is_read(
    value: str, dsn: str, ops: DuckOperators
) -> None:
    execute(dsn, "DROP TABLE IF EXISTS unfit", "CREATE TABLE unfit (n int, x numeric)",
            f"INSERT INTO unfit VALUES (1, {value})")  # fmt: skip
    asking = source(dsn, ops, "unfit")
    found = asked.captured(dsn, "unfit")
    with pytest.raises(FrescoError, match=r"SOURCE_VALUE_UNFIT: north\.unfit has a value of x "):
        asked.asked(asking, (asked.view("SELECT n, x FROM north.unfit", found), {}))
    answer = asked.asked(asking, (asked.view("SELECT n FROM north.unfit", found), {}))
    assert asked.listed(answer.rows[0]) == [(1,)], "a view that does not read it goes on"
    asking.close()


def test_what_texts_are_equal_is_not_the_database_s_opinion(dsn: str, ops: DuckOperators) -> None:
    """A char(4) is equal without its blanks there; the answer has no more than Spark's rows."""
    execute(
        dsn,
        "CREATE TABLE texts (a text, b char(4))",
        "INSERT INTO texts VALUES ('x', 'ab'), ('X', 'ab'), ('y', 'ab')",
    )
    found, asking = asked.captured(dsn, "texts"), source(dsn, ops, "texts")
    tree = asked.view("SELECT a, b FROM north.texts WHERE a = 'X' AND NOT (a = 'q')", found)
    assert asked.listed(asked.asked(asking, (tree, {})).rows[0]) == [("X", "ab  ")]
    scan = Scan("north.texts", found[0].relation.schema)
    join = Join(Scan("@left", (Column("k", "string"),)), scan, ((0, 1),), None)
    rows = known(["string"], [("ab",), ("ab  ",)], ops)
    answer = asked.listed(asked.asked(asking, (join, {"@left": rows})).rows[0])
    assert answer == [("ab  ", a, "ab  ") for a in ("X", "x", "y")]
    tree = asked.view("SELECT a FROM north.texts WHERE b = 'ab'", found)
    assert asked.listed(asked.asked(asking, (tree, {})).rows[0]) == []
    asking.close()


# The state ----------------------------------------------------------------------------------------


def test_an_answer_holds_exactly_the_transactions_its_state_saw(
    dsn: str, ops: DuckOperators
) -> None:
    """Six writers commit, some slowly, some roll back; every answer is compared with what it says."""
    execute(dsn, "CREATE TABLE led (xid text, n int)", "CREATE TABLE other (xid text, n int)")
    stop, done, lock = threading.Event(), set[str](), threading.Lock()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(dsn) as connection:
            while not stop.is_set():
                (xid,) = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone()  # type: ignore[misc]
                for n in range(rng.randint(1, 3)):
                    connection.execute("INSERT INTO led VALUES (%s, %s)", (xid, n))
                    connection.execute("INSERT INTO other VALUES (%s, %s)", (xid, n))
                if rng.random() < 0.3:
                    time.sleep(rng.random() * 0.02)
                if rng.random() < 0.2:
                    connection.rollback()
                    continue
                connection.commit()
                with lock:
                    done.add(xid)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for one in writers:
        one.start()
    asking, found = source(dsn, ops, "led", "other"), asked.captured(dsn, "led", "other")
    trees = [asked.view(f"SELECT xid, n FROM north.{name}", found) for name in ("led", "other")]
    answers = []
    try:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            answers.append(asked.asked(asking, *((tree, {}) for tree in trees)))
    finally:
        stop.set()
        for one in writers:
            one.join()
    before = 0
    for answer in answers:
        led, other = (asked.listed(rows) for rows in answer.rows)
        assert led == other, "both parts are of one snapshot"
        assert {xid for xid, _ in led} == {xid for xid in done if answer.state.saw(xid, 0)}
        codec = PgStateCodec()
        assert codec.back(codec.note(answer.state)) == answer.state
        assert answer.state.upto >= before
        before = answer.state.upto
    assert len(answers) > 20 and len(done) > 200, (len(answers), len(done))
    assert any(answer.state.xip for answer in answers)  # type: ignore[attr-defined]
    asking.close()


def test_the_log_s_short_ids_are_widened_by_the_epoch_that_is_near() -> None:
    state = PgState(0, xmin=(5 << 32) + 3, xmax=(5 << 32) + 9, xip=frozenset({(5 << 32) + 4}))
    assert state.saw("2", 0) and state.saw("3", 0) is True
    assert not state.saw("4", 0), "it was running"
    assert state.saw("5", 0) and not state.saw("9", 0)
    assert state.saw(str(2**32 - 1), 0), "the last of the epoch before"
    assert not PgState(0, 2**32 - 5, 2**32 - 5).saw("1", 0), "the first of the epoch after"


def test_a_statement_without_parts_asks_for_the_state_alone(dsn: str, ops: DuckOperators) -> None:
    asking = source(dsn, ops, "led")
    answer = asking.answer(SourceQuery("v", 0, 3, "north", ()))
    assert (answer.rows, answer.id, answer.step) == ((), 0, 3)
    before = answer.state.upto
    asking.mark()
    later = asking.answer(SourceQuery("v", 0, 4, "north", ())).state
    assert later.upto > before, "a mark moves the log"
    asking.close()


# How much is read ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(dsn: str) -> list[Any]:
    execute(
        dsn,
        "CREATE TABLE big (id bigint PRIMARY KEY, g int, x numeric(18,2), t text)",
        f"INSERT INTO big SELECT i, i % 1000, i / 3.0, 'text ' || i FROM generate_series(1, {BIG}) i",
        "CREATE TABLE small (g int PRIMARY KEY, name text)",
        "INSERT INTO small SELECT i, 'name ' || i FROM generate_series(0, 999) i",
        "ANALYZE big", "ANALYZE small",
    )  # fmt: skip
    return asked.captured(dsn, "big", "small")


def with_known(found: list[Any]) -> Join:
    scan = Scan("north.big", found[0].relation.schema)
    schema = (Column("id", "bigint"), Column("t", "string"))
    return Join(Scan("@left", schema), scan, ((0, 0), (1, 3)), None)


def keys(count: int, ops: DuckOperators) -> Signed:
    rows = [(i * 7 % BIG + 1, f"text {i * 7 % BIG + 1}") for i in range(count)]
    return known(["bigint", "string"], rows, ops)


def test_keys_in_arrays_and_in_a_temporary_table_find_the_same(
    big: list[Any], dsn: str, ops: DuckOperators
) -> None:
    rows = keys(3000, ops)
    arrays = PostgresSource("north", dsn, big, ops)
    table = PostgresSource("north", dsn, big, ops, array_limit=100)
    one, other = (
        asked.asked(asking, (with_known(big), {"@left": rows})) for asking in (arrays, table)
    )
    assert len(asked.listed(one.rows[0])) == 3000
    assert asked.listed(one.rows[0]) == asked.listed(other.rows[0])
    assert set(one.rows[0].table.column("_number").to_pylist()) == {7}, "the known rows' number"
    arrays.close()
    table.close()


def scans(dsn: str, table: str) -> tuple[int, int]:
    """(sequential scans, rows they read) of a table so far."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(  # type: ignore[return-value]
            "SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname = %s", (table,)
        ).fetchone()


def test_few_keys_use_the_index_also_two_relations_away(
    big: list[Any], dsn: str, ops: DuckOperators
) -> None:
    """Nothing of the 10^5 rows but what the keys ask for is read; the neighbour is reduced too."""
    asking = PostgresSource("north", dsn, big, ops)
    both = Join(with_known(big), Scan("north.small", big[1].relation.schema), ((3, 0),), None)
    before = scans(dsn, "big")
    (rows,) = asked.asked(asking, (both, {"@left": keys(10, ops)})).rows
    assert len(asked.listed(rows)) == 10
    asking.close()  # its counts are published when it goes
    deadline = time.monotonic() + 10
    while scans(dsn, "small") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert scans(dsn, "big") == before


def test_no_known_rows_no_statement(big: list[Any], dsn: str, ops: DuckOperators) -> None:
    asking = PostgresSource("north", dsn, big, ops)
    (rows,) = asked.asked(asking, (with_known(big), {"@left": keys(0, ops)})).rows
    assert asked.listed(rows) == [] and asking.statements == 0
    asking.close()


def test_a_pinned_state_stays_while_the_source_goes_on(dsn: str, ops: DuckOperators) -> None:
    execute(dsn, "CREATE TABLE pins (a int)", "INSERT INTO pins VALUES (1)")
    asking, found = source(dsn, ops, "pins"), asked.captured(dsn, "pins")
    tree = asked.view("SELECT a FROM north.pins", found)
    pinned = asking.pin()
    for value in (2, 3):
        execute(dsn, f"INSERT INTO pins VALUES ({value})")
        answer = asked.asked(asking, (tree, {}))
        assert (asked.listed(answer.rows[0]), answer.state) == ([(1,)], pinned)
        asking.mark()
    asking.release()
    answer = asked.asked(asking, (tree, {}))
    assert asked.listed(answer.rows[0]) == [(1,), (2,), (3,)] and answer.state.upto > pinned.upto
    asking.close()
