"""A condition finds the same rows of an Arrow table, of a Parquet file and of DuckDB's own table."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.algebra.bag import evaluate
from streaming.algebra.tree import Relation
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck_engine import offer, offering
from streaming.engines.evaluator import Batch
from streaming.packed_rows import write_parquet
from streaming.pipeline.view_specs import parse_view
from streaming.scalars.expression import Column
from streaming.warehouse.reader_query import run

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [1.0, -0.0, math.nan, math.inf, -math.inf, 5.5]),
    "float": (pa.float32(), [1.0, 0.0, math.nan, math.inf, -math.inf, 5.5]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 5, 2**63 - 1]),
    "smallint": (pa.int16(), [-(2**15), 0, 5]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("-1e27"), Decimal("0.0000000001")]),
    "text": (pa.string(), ["", "a", "A", "é", "\U0001f600"]),
    "blob": (pa.binary(), [b"", b"\0", b"\xff"]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [date.min, date(1582, 10, 10), date.max]),
    "timestamp": (pa.timestamp("us"), [datetime.min, datetime(1970, 1, 1), datetime.max]),
    "timestamptz": (pa.timestamp("us", "UTC"), [datetime(1970, 1, 1), datetime(2026, 1, 1)]),
}
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def conditions(count: int) -> list[str]:
    """Of a column v and constants k0, k1, ...: what DuckDB might hand to a scan."""
    single = [f"v {operator} k{k}" for operator in OPERATORS for k in range(count)]
    both = [
        f"({one}) {word} ({other})"
        for one in single
        for other in single
        for word in ("AND", "OR")
        if "k0" in one and "k1" in other
    ]
    more = [
        "v IS NULL",
        "v IS NOT NULL",
        "v IN (k0, k1)",
        "v NOT IN (k0, k1)",
        "v BETWEEN k0 AND k1",
    ]
    return [*single, *both, *more, *(f"NOT ({one})" for one in (*single, *more))]


@pytest.mark.parametrize("name", VALUES)
def test_a_condition_finds_the_rows_that_it_finds_in_a_table(name: str, tmp_path: Path) -> None:
    type_, values = VALUES[name]
    rows = pa.table({"v": pa.array([None, *values, values[0]], type_), "n": range(len(values) + 2)})
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    offer(db, "offered", rows)
    db.register("given", rows)
    db.execute("CREATE TABLE own AS FROM given")
    write_parquet(rows, tmp_path / "rows.parquet")
    constants = dict(
        enumerate(db.execute("SELECT CAST(v AS VARCHAR) FROM own WHERE n > 0").fetchall())
    )
    found = 0
    for condition in conditions(len(values)):
        text = condition
        for k, (constant,) in reversed(constants.items()):
            literal = "'" + str(constant).replace("'", "''") + "'"
            text = text.replace(f"k{k}", f"CAST({literal} AS {name})")
        wanted = db.execute(f"SELECT n FROM own WHERE {text} ORDER BY n").fetchall()
        for table in ("offered", f"read_parquet('{tmp_path / 'rows.parquet'}')"):
            assert (
                db.execute(f"SELECT n FROM {table} WHERE {text} ORDER BY n").fetchall() == wanted
            ), (
                text,
                table,
            )
        found += len(wanted)
    assert found > 20


def test_what_was_offered_is_gone_afterwards_and_may_have_any_name() -> None:
    db = duckdb.connect()
    for count in (1, 2):
        with offering(db, {"order": pa.table({"a": list(range(count))})}):
            assert db.execute('SELECT count(*) FROM "order"').fetchone() == (count,)
    with pytest.raises(duckdb.CatalogException):
        db.execute('SELECT count(*) FROM "order"')


MEASURED = Relation("m.r", (Column("id", "bigint"), Column("d", "double")), (0,))
ROWS = [(1, 1.0), (2, math.nan), (3, None), (4, math.inf), (5, -1.0)]


def never(_: object) -> Any:
    raise AssertionError("nothing is packed here")


TEXTS = (
    "d > 1", "d >= 1", "d <> 1", "d < 5", "d <= 1e308", "d = 1 OR d <=> 5", "NOT (d <= 1)",
    "id < 2 OR id <=> 4", "d BETWEEN 0 AND 1e308", "d > 1 AND d <> 7", "d IN (1, 5)", "d NOT IN (1, 5)",
)  # fmt: skip


@pytest.mark.parametrize("condition", TEXTS)
def test_a_view_has_the_rows_with_nan_whichever_way_they_come(
    condition: str, tmp_path: Path
) -> None:
    view = parse_view(
        f"CREATE MATERIALIZED VIEW v AS SELECT id FROM m.r WHERE {condition}",
        {"m.r": MEASURED},
    )
    wanted = sorted(row[0] for row in evaluate(view.tree, {"m.r": {row: 1 for row in ROWS}}))
    assert wanted
    rows = pa.table(
        {
            "_number": pa.array([0] * len(ROWS), pa.int64()),
            "_multiplicity": pa.array([1] * len(ROWS), pa.int64()),
            "c0": pa.array([row[0] for row in ROWS], pa.int64()),
            "c1": pa.array([row[1] for row in ROWS], pa.float64()),
        }
    )
    write_parquet(rows, tmp_path / "staged.parquet")
    for given in (rows, tmp_path / "staged.parquet"):
        engine = DuckEvaluator(view.tree)
        delta = engine.evaluate(Batch(0, 0, {"m.r": (given,)}))
        assert sorted(delta["c0"].to_pylist()) == wanted, given
    operators = DuckOperators(never, never, small=0)
    found = operators.evaluate(view.tree, {"m.r": operators.value(rows)})
    assert sorted(found.table["c0"].to_pylist()) == wanted


def test_a_file_says_no_greatest_number_of_a_column_that_can_hold_nan(tmp_path: Path) -> None:
    struct = pa.array([{"x": 1.0}, {"x": math.nan}], pa.struct([("x", pa.float32())]))
    rows = pa.table({"n": [1, 2], "d": [1.0, math.nan], "s": struct, "l": [[1.0], [math.nan]]})
    write_parquet(rows, tmp_path / "rows.parquet")
    group = pq.read_metadata(tmp_path / "rows.parquet").row_group(0)
    told = [group.column(at).path_in_schema for at in range(4) if group.column(at).statistics]
    assert told == ["n"]


def test_sql_of_a_reader_finds_nan_too() -> None:
    rows = pa.table({"id": [1, 2], "d": [1.0, math.nan]})
    assert run("SELECT id FROM v WHERE d > 1", {"v": rows})["id"].to_pylist() == [2]
    assert (
        run("SELECT id FROM v WHERE id < 2 OR id IS NOT DISTINCT FROM 5", {"v": rows}).num_rows == 1
    )
