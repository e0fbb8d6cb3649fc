"""Oddity 31: no value that a table can hold makes a printer raise, whatever Python can hold."""

from __future__ import annotations

import json
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner
from warehouse_rows import next_epoch, write_catalog

from streaming.algebra.tree import Project, Scan
from streaming.cli.commands import app
from streaming.cli.reporting import print_rows
from streaming.cli.tables import rows_table
from streaming.cli.topic_lines import told
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch, ViewError
from streaming.messages import ActionList, encode
from streaming.packed_rows import pack
from streaming.scalars import written
from streaming.scalars.expression import Col, Column
from streaming.scalars.types import arrow_type, delta_schema
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_state import _named
from streaming.warehouse.group_writer import GroupWriter
from tests.unit.test_delta_rules import call

DAYS = {
    0: "1970-01-01",
    -735160: "-0043-03-15",
    -719163: "0000-12-31",
    2932897: "+10000-01-01",
    2145042905: "+5874897-12-31",
    2147483647: "infinity",
    -2147483647: "-infinity",
}
MOMENTS = {
    1: "1970-01-01 00:00:00.000001",
    -63517780800000000: "-0043-03-15 12:00:00",
    253402300800000000: "+10000-01-01 00:00:00",
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
}
COLUMNS = (Column("d", "date"), Column("t", "timestamp"), Column("n", "timestamp_ntz"))
VIEW = ViewTable("far", COLUMNS)


def far_rows() -> pa.Table:
    """Every day beside every moment, as the pipeline holds them."""
    pairs = [(day, moment) for day in DAYS for moment in MOMENTS]
    days = pa.array([day for day, _ in pairs], pa.int32()).view(pa.date32())
    moments = pa.array([moment for _, moment in pairs], pa.int64())
    columns = [moments.view(arrow_type(one.type)) for one in COLUMNS[1:]]
    counts = pa.array([1] * len(pairs), pa.int64())
    zeros = pa.array([0] * len(pairs), pa.int64())
    schema = delta_schema(COLUMNS)
    return pa.Table.from_arrays([zeros, counts, days, *columns], schema=schema)


def expected() -> list[tuple[str, ...]]:
    return [
        (day, f"{moment}{'' if 'inf' in moment else '+00:00'}", moment)
        for day in DAYS.values()
        for moment in MOMENTS.values()
    ]


def test_fresco_sql_shows_every_day_and_moment(tmp_path: Path) -> None:
    write_catalog(tmp_path, "g", [VIEW])
    writer = GroupWriter(str(tmp_path), "p", "g", [VIEW])
    writer.commit({VIEW.name: far_rows()}, next_epoch(None, "g", ((0, 0),)))
    query = ["sql", "SELECT d, t, n FROM far", "--warehouse", str(tmp_path)]
    shown = CliRunner().invoke(app, [*query, "--json"])
    assert shown.exit_code == 0, shown.output
    found = [tuple(json.loads(line).values()) for line in shown.stdout.splitlines()]
    assert sorted(found) == sorted(expected())
    table = CliRunner().invoke(app, query, env={"COLUMNS": "300"})
    assert table.exit_code == 0 and all(one in table.stdout for row in expected() for one in row), (
        table.output
    )


def test_topics_tail_and_a_row_that_conflicts_show_them_too() -> None:
    def no_stage(content: bytes) -> str:
        raise AssertionError("small rows travel inline")

    rows = far_rows()
    message = ActionList(group="g", view="far", first=0, last=0, delta=pack(rows, no_stage))
    says = told("p.actions.g", 9, 1000, encode(message), {}, Path("/nowhere"), rows.num_rows)
    for row in expected():
        assert any(f"({', '.join(row)})" in line for line in says.rows), (row, says)
    plain = rows.drop_columns(rows.column_names[:2])
    names = [_named(VIEW, plain, at) for at in range(plain.num_rows)]
    assert names == [f"d='{d}', t='{t}', n='{n}'" for d, t, n in expected()]


@pytest.mark.parametrize("at", range(len(MOMENTS)))
def test_the_row_without_a_value_is_named(at: int) -> None:
    schema = (Column("i", "int"), *COLUMNS)
    scan = Scan("s.r", schema)
    tree = Project(scan, (call("/", Col(0, "int"), Col(0, "int")), *map(column, range(1, 4))),
                   (Column("q", "double"), *COLUMNS))  # fmt: skip
    row = far_rows().slice(at, 1)
    given = [*row.columns[:2], pa.array([0], pa.int32()), *row.columns[2:]]
    batch = Batch(0, 0, {"s.r": (pa.Table.from_arrays(given, schema=delta_schema(schema)),)})
    with pytest.raises(ViewError) as caught:
        DuckEvaluator(tree).evaluate(batch)
    assert caught.value.where.endswith(f"i = 0, d = {', '.join(_labelled(expected()[at]))}")


def column(at: int) -> Col:
    return Col(at, COLUMNS[at - 1].type)


def _labelled(row: tuple[str, ...]) -> list[str]:
    return [row[0], f"t = {row[1]}", f"n = {row[2]}"]


ANSWERS = {
    "list of moments": ("SELECT [DATE '0044-03-15 (BC)', NULL] AS x", ["-0043-03-15", None]),
    "struct": ("SELECT {'a': DATE '12000-01-01', 'b': 1} AS x", {"a": "+12000-01-01", "b": 1}),
    "map": ("SELECT MAP {'k': DATE 'infinity'} AS x", [["k", "infinity"]]),
    "the end of a day": ("SELECT TIME '24:00:00' AS x", "24:00:00"),
    "nanoseconds": ("SELECT TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS x",
                    "2024-01-01 00:00:00.123456789"),
    "no number": ("SELECT 'nan'::DOUBLE AS x", "NaN"),
    "beyond every number": ("SELECT [-'inf'::FLOAT] AS x", ["-Infinity"]),
    "enum": ("SELECT 'a'::ENUM('a', 'b') AS x", "a"),
    "decimal": ("SELECT 1.50 AS x", "1.50"),
    "interval": ("SELECT INTERVAL 1 MONTH IS NOT NULL AS x", True),
    "huge": ("SELECT 170141183460469231731687303715884105727::HUGEINT AS x", None),
    "uuid": ("SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID AS x",
             "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "union": ("SELECT union_value(d := DATE '12000-01-01') AS x", "+12000-01-01"),
    "interval itself": ("SELECT INTERVAL 1 MONTH AS x", None),
    "array": ("SELECT array_value(DATE '12000-01-01') AS x", ["+12000-01-01"]),
    "nothing": ("SELECT NULL AS x", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_sql_can_make_of_them_is_shown_and_is_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query, value = ANSWERS[name]
    answer = duckdb.connect().execute(query).to_arrow_table()
    print_rows(answer, {})
    line = capsys.readouterr().out
    found = json.loads(line, parse_constant=lambda word: pytest.fail(f"no JSON: {line}"))["x"]
    if value is not None:
        assert found == value
    console = Console(width=200)
    with console.capture() as shown:
        console.print(rows_table(answer, 1))
    assert "1 row" in shown.get()


def test_days_are_counted_as_duckdb_counts_them() -> None:
    """The years that both can write: another calendar than ours would show here."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    days = sorted(random.Random(seed).sample(range(-719162, 2932897), 20_000))
    array = pa.array(days, pa.int32()).view(pa.date32())
    given = pa.table({"x": array})
    texts = duckdb.connect().execute("SELECT CAST(x AS VARCHAR) AS x FROM given").to_arrow_table()
    assert given.num_rows and written.values(array) == texts.column("x").to_pylist()
