"""The Spark evaluator equals DuckDB's and recomputation: one rule, two dialects.

Samples of the property tests' random views and histories, fewer of them: each costs seconds.
"""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from pyspark.sql import SparkSession

from streaming.algebra.delta import aggregates
from streaming.algebra.normal_form import normal
from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    Project,
    Relation,
    Scan,
    Tree,
)
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch, Evaluator, ViewError
from streaming.engines.spark_evaluator import SparkEvaluator
from streaming.scalars.expression import Col, Column, Schema
from streaming.scalars.functions import call
from streaming.scalars.types import avg_type, delta_schema, sum_type
from streaming.sql.parse import parse
from tests.properties.delta_trees import RELATIONS, History, histories, views
from tests.properties.test_delta_properties import apply, batch_of, recomputed
from tests.unit import test_limits as limits
from tests.unit.test_limits import chain


def signed(delta: pa.Table) -> Counter:
    return Counter(zip(*(column.to_pylist() for column in delta.columns), strict=True))


def rows(schema: Schema, *given: tuple) -> tuple[pa.Table, ...]:
    arrow = delta_schema(schema)
    columns = zip(*given, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
    return (pa.table(arrays, schema=arrow),)


def test_spark_equals_duckdb_equals_recomputation_on_random_views(
    spark: SparkSession, tmp_path: Path
) -> None:
    @seed(20260101)
    @settings(
        max_examples=4,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(view=views(depth=2), history=histories(most=4))
    def compared(view: Tree, history: History) -> None:
        assume(history.last >= 2 and aggregates(view))
        compare(view, history, spark, tmp_path)

    compared()


def compare(view: Tree, history: History, spark: SparkSession, folder: Path) -> None:
    duck: Evaluator = DuckEvaluator(view, threads=1)
    other: Evaluator = SparkEvaluator(view, spark, folder / "state")
    bag: Counter = Counter()
    for first, last in ((0, 0), (1, history.last)):
        batch = batch_of(history, RELATIONS, first, last)
        one, two = duck.evaluate(batch), other.evaluate(batch)
        assert one.schema == two.schema
        assert signed(one) == signed(two)
        for number in range(first, last + 1):
            apply(bag, two, number)
            assert bag == recomputed(view, history, number), f"at number {number}"
        duck.advance()
        other.advance()


def test_spark_counts_rows_anew_as_duckdb_does(spark: SparkSession, tmp_path: Path) -> None:
    """Monus under duplicate elimination, over random histories."""
    north, south = (Scan(name, RELATIONS[name]) for name in ("north.entry", "south.entry"))
    view = Distinct(Monus(north, south))

    @seed(20260102)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(history=histories(most=4))
    def compared(history: History) -> None:
        assume(history.last >= 2)
        compare(view, history, spark, tmp_path)

    compared()


EVERY = Scan(
    "s.every",
    (
        Column("k", "int"),
        Column("big", "bigint"),
        Column("small", "smallint"),
        Column("money", "decimal(18,2)"),
        Column("fine", "decimal(38,10)"),
        Column("real", "double"),
        Column("text", "string"),
        Column("raw", "binary"),
        Column("day", "date"),
        Column("at", "timestamp"),
        Column("wall", "timestamp_ntz"),
        Column("yes", "boolean"),
    ),
)
ROW = (
    1,
    2**62,
    -3,
    Decimal("12345678.91"),
    Decimal("-1234567890123456.0123456789"),
    0.1,
    "häß",
    b"\x00\xff",
    date(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 1),
    True,
)


def summed(tree: Tree, keys: tuple[int, ...], positions: tuple[int, ...]) -> Aggregate:
    aggregations = [Aggregation("count_all", None, "bigint")]
    for position in positions:
        type_ = tree.schema[position].type
        aggregations.append(Aggregation("count", position, "bigint"))
        for function, typed in (("sum", sum_type), ("avg", avg_type)):
            result = typed(type_)
            assert result is not None
            aggregations.append(Aggregation(function, position, result))
    columns = [Column(f"a{i}", a.type) for i, a in enumerate(aggregations)]
    schema = tuple(tree.schema[key] for key in keys) + tuple(columns)
    return Aggregate(tree, keys, tuple(aggregations), schema)


@pytest.mark.parametrize(
    "view",
    [EVERY, summed(EVERY, (0,), (2, 3, 4, 5)), summed(EVERY, tuple(range(6, 12)), (1,))],
    ids=["rows", "sums", "groups of every type"],
)
def test_every_type_with_nulls_comes_out_the_same(
    view: Tree, spark: SparkSession, tmp_path: Path
) -> None:
    nulls = (None,) * len(ROW)
    partly = (1, *nulls[1:])
    given_rows = [(0, 1, *ROW), (0, 2, *nulls), (1, 1, *partly), (2, -1, *ROW), (2, 1, *partly)]
    duck: Evaluator = DuckEvaluator(view)
    other: Evaluator = SparkEvaluator(view, spark, tmp_path / "state")
    for number in range(3):
        some = [row for row in given_rows if row[0] == number]
        batch = Batch(number, number, {"s.every": rows(EVERY.schema, *some)})
        one, two = duck.evaluate(batch), other.evaluate(batch)
        assert one.schema == two.schema == delta_schema(view.schema)
        assert signed(one) == signed(two)
        duck.advance()
        other.advance()


def test_state_moves_from_duckdb_to_spark_and_back(spark: SparkSession, tmp_path: Path) -> None:
    entry = Scan("s.entry", (Column("account", "bigint"), Column("amount", "decimal(18,2)")))
    account = Scan("s.account", (Column("id", "bigint"), Column("owner", "string")))
    view = summed(Join(account, entry, ((0, 0),), None), (1,), (3,))
    evaluators: list[Evaluator] = [
        DuckEvaluator(view),
        SparkEvaluator(view, spark, tmp_path / "state"),
        DuckEvaluator(view),
    ]
    accounts = rows(account.schema, (0, 1, 7, "ann"), (0, 1, 8, None))
    before: Evaluator | None = None
    for number, evaluator in enumerate(evaluators):
        if before is not None:
            folder = tmp_path / f"moved{number}"
            folder.mkdir()
            files = [[folder / name for name in leaf] for leaf in before.export(folder)]
            evaluator.load(files, number - 1)
        amount = (number, 1, 7, Decimal("1.50"))
        given_rows = {"s.entry": rows(entry.schema, amount)}
        if number == 0:
            given_rows["s.account"] = accounts
        found = signed(evaluator.evaluate(Batch(number, number, given_rows)))
        assert (number, 1, "ann", number + 1, number + 1) == next(r for r in found if r[1] > 0)[:5]
        evaluator.advance()
        before = evaluator


def test_spark_tells_the_number_of_a_missing_row_and_of_an_arithmetic_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    relation = Scan("s.r", (Column("a", "int"), Column("b", "int")))
    share = call("/", Col(0, "int"), Col(1, "int"))
    view = Project(relation, (share,), (Column("q", share.type),))
    evaluator: Evaluator = SparkEvaluator(view, spark, tmp_path / "state")
    evaluator.evaluate(Batch(0, 0, {"s.r": rows(relation.schema, (0, 1, 6, 3))}))
    evaluator.advance()
    with pytest.raises(ViewError) as caught:
        evaluator.evaluate(Batch(1, 4, {"s.r": rows(relation.schema, (1, 1, 1, 1), (3, 1, 1, 0))}))
    assert (caught.value.code, caught.value.number) == ("VIEW_ARITHMETIC", 3)
    with pytest.raises(ViewError) as caught:
        evaluator.evaluate(Batch(1, 2, {"s.r": rows(relation.schema, (2, -1, 9, 2))}))
    assert (caught.value.code, caught.value.number) == ("VIEW_RETRACTION_MISSING", 2)
    found = evaluator.evaluate(Batch(1, 1, {"s.r": rows(relation.schema, (1, -1, 6, 3))}))
    assert found.column(1).to_pylist() == [-1]


def test_spark_meets_what_can_fail_only_in_rows_that_get_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A guard in a join's condition, one in WHERE, and a row without a partner."""
    relations = {
        name: Relation(f"s.{name}", tuple(Column(c, "int") for c in columns))
        for name, columns in {"l": ("k", "i"), "r": ("j", "v")}.items()
    }
    text = "SELECT k, 10 % i AS x FROM s.l JOIN s.r ON k = j AND v > 0 WHERE 10 / i > v AND i <> 7"
    view = normal(parse(text, {each.name: each for each in relations.values()}))
    left = rows(relations["l"].schema, (0, 1, 1, 2), (1, 1, 2, 0), (2, 1, 3, 0), (4, 1, 4, 0))
    right = rows(relations["r"].schema, (0, 1, 1, 1), (3, 1, 3, 0), (5, 1, 4, 1))
    evaluators: list[Evaluator] = [
        DuckEvaluator(view),
        SparkEvaluator(view, spark, tmp_path / "state"),
    ]
    for evaluator in evaluators:
        first = evaluator.evaluate(Batch(0, 0, {"s.l": left, "s.r": right}))
        assert [column.to_pylist() for column in first.columns[2:]] == [[1], [0]]
        evaluator.advance()
        with pytest.raises(ViewError) as caught:
            evaluator.evaluate(Batch(1, 6, {"s.l": left, "s.r": right}))
        assert (caught.value.code, caught.value.number) == ("VIEW_ARITHMETIC", 5)
        assert not evaluator.evaluate(Batch(1, 4, {"s.l": left, "s.r": right})).num_rows


ORDERS = Scan("a.orders", (Column("id", "bigint"), Column("customer", "bigint")))
LINES = Scan("a.lines", (Column("order_id", "bigint"), Column("qty", "int")))
CUSTOMERS = Scan("b.customers", (Column("id", "bigint"), Column("region", "string")))


def sold_by_region() -> Tree:
    """Three relations joined and added up."""
    lines = Join(ORDERS, LINES, ((0, 0),), None)
    joined = Join(lines, CUSTOMERS, ((1, 0),), None)
    columns = (Col(5, "string"), Col(3, "int"))
    flat = Project(joined, columns, (Column("region", "string"), Column("qty", "int")))
    schema = (Column("region", "string"), Column("sold", "bigint"))
    return Aggregate(flat, (0,), (Aggregation("sum", 1, "bigint"),), schema)


def shop_batch(first: int, last: int) -> Batch:
    """An order with two lines under each number; one line is taken back by the next number."""
    orders = [(n, 1, n, n % 5) for n in range(first, last + 1)]
    lines = [(n, 1, n, q) for n in range(first, last + 1) for q in (n % 7, 100)]
    lines += [(n, -1, n - 1, 100) for n in range(max(first, 1), last + 1)]
    relations = {
        "a.orders": rows(ORDERS.schema, *orders),
        "a.lines": rows(LINES.schema, *lines),
    }
    if first == 0:
        regions = [(0, 1, c, f"r{c % 2}") for c in range(5)]
        relations["b.customers"] = rows(CUSTOMERS.schema, *regions)
    return Batch(first, last, relations)


def test_a_step_over_a_small_state_is_three_jobs_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Which takes the time is planning: thirteen jobs took four core-seconds, and six views a minute."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    evaluator = SparkEvaluator(sold_by_region(), spark, tmp_path / "state")
    evaluator.evaluate(shop_batch(0, 20))
    evaluator.advance()
    before = scheduler.numTotalJobs()
    found = evaluator.evaluate(shop_batch(21, 40))
    evaluator.advance()
    # What retracts a row of the state asks for it, the answer is one, the totals are written by one.
    assert found.num_rows and scheduler.numTotalJobs() - before <= 3


def test_a_state_goes_on_with_spark_when_what_brought_it_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    view = sold_by_region()
    duck, other = DuckEvaluator(view, threads=1), SparkEvaluator(view, spark, tmp_path / "state")
    duck.evaluate(shop_batch(0, 20))
    duck.advance()
    moving = tmp_path / "moving"
    moving.mkdir()
    names = duck.export(moving)
    other.load([[moving / name for name in leaf] for leaf in names], 20)
    shutil.rmtree(moving)
    assert signed(other.evaluate(shop_batch(21, 30))) == signed(duck.evaluate(shop_batch(21, 30)))


def test_an_evaluated_batch_that_is_forgotten_leaves_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    evaluator = SparkEvaluator(sold_by_region(), spark, tmp_path / "state")
    evaluator.evaluate(shop_batch(0, 5))
    evaluator.advance()
    kept = sorted((tmp_path / "state").rglob("*.parquet"))
    evaluator.evaluate(shop_batch(6, 9))
    assert sorted((tmp_path / "state").rglob("*.parquet")) != kept
    evaluator.discard()
    assert sorted((tmp_path / "state").rglob("*.parquet")) == kept


@pytest.mark.parametrize("rest", ["", " WHERE a > 3 AND a <> 8"])
def test_a_chain_of_queries_that_use_a_column_four_times_is_planned_by_spark_too(
    spark: SparkSession, tmp_path: Path, rest: str
) -> None:
    """Spark would move the condition down, four times as long at each query: minutes at eight."""
    view = parse(chain(12, f"SELECT a FROM c{{}}{rest}"), limits.RELATIONS)
    schema = limits.RELATIONS["n.r"].schema
    given = rows(schema, *((0, 1, *row) for row in limits.ROWS))
    batch = Batch(0, 0, {"n.r": given})
    duck, other = DuckEvaluator(view, threads=1), SparkEvaluator(view, spark, tmp_path / "state")
    assert signed(other.evaluate(batch)) == signed(duck.evaluate(batch))
