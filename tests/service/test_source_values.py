"""The values that a real PostgreSQL answers with are those that its log has, to the last digit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import askedpostgres as asked
import duckdb
import pyarrow as pa
import pytest
from askedpostgres import execute, known, source

from streaming.algebra.tree import Join, Scan
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.captured.json_values import casts
from streaming.demo.embedded.postgres_server import Postgres
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.errors import FrescoError
from streaming.scalars.expression import Column


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
        ("'5874897-12-31'", "2145042905"),
        ("'infinity'", "-2147472692"),
        ("'-infinity'", "-2147472691"),
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
        ("'0044-03-15 12:00Z BC'", "-0043-03-15T12:00:00.000000Z"),
        ("'10000-01-01Z'", "+10000-01-01T00:00:00.000000Z"),
        ("'294247-01-09 12:00:00.000001Z'", "+294247-01-09T12:00:00.000001Z"),
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
    """What `captured.json_values` makes of Debezium's texts of the column x."""
    found = casts(replace(captured, decimals="string"), "x")[1]
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    engine.register("t", pa.table({"x1": pa.array(texts, pa.string())}))
    table = engine.execute(f"SELECT {', '.join(found.columns)} FROM t").to_arrow_table()
    parts = tuple(column.combine_chunks() for column in table.columns)
    return found.finish(parts)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("numeric", "'NaN'"),
        ("numeric", "1e25"),
        ("numeric", "0.1234567890123456789"),
        ("timestamp", "'294276-12-31'"),
        ("timestamptz", "'294276-12-31'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name_where_it_is_read(
    type_: str, value: str, dsn: str, ops: DuckOperators
) -> None:
    execute(dsn, "DROP TABLE IF EXISTS unfit", f"CREATE TABLE unfit (n int, x {type_})",
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
