"""The typing rules and the rendered SQL, held against Spark: its analyzer and its values."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from streaming.algebra.bag import bag, evaluate
from streaming.algebra.tree import Project, Relation, Scan
from streaming.engines.tree_sql import tree_sql
from streaming.errors import FrescoError
from streaming.scalars import exact
from streaming.scalars.expression import Column
from streaming.scalars.meanings import normal
from streaming.scalars.types import NULL
from streaming.sql.parse import parse
from tests.golden.spark_types import COLUMNS, EXPRESSIONS, UNIONS
from tests.properties.trees import (
    RELATIONS,
    TYPES,
    arrow_table,
    bags,
    databases,
    rows,
    scalars,
    trees,
)

TYPED = {"s.t": Relation("s.t", tuple(Column(n, t) for n, t in COLUMNS.items()))}
ONE = Relation("one", tuple(Column(f"c{i}", t) for i, t in enumerate(TYPES)))


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    columns = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in COLUMNS.items())
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("types_t")
    return spark


def analyzed(spark: SparkSession, query: str) -> list[str]:
    return [field.dataType.simpleString() for field in spark.sql(query).schema]


def test_spark_types_every_golden_expression_so(spark):
    plain = {e: t for e, t in EXPRESSIONS.items() if not e.startswith(("SUM", "AVG", "COUNT"))}
    for chosen in (plain, {e: t for e, t in EXPRESSIONS.items() if e not in plain}):
        items = ", ".join(f"{e} AS x{i}" for i, e in enumerate(chosen))
        types = analyzed(spark, f"SELECT {items} FROM types_t")
        assert dict(zip(chosen, types, strict=True)) == chosen


def test_spark_and_the_parser_unite_types_alike(spark):
    for (one, other), type_ in UNIONS.items():
        query = "SELECT {} AS x FROM {} UNION ALL SELECT {} FROM {}"
        assert analyzed(spark, query.format(one, "types_t", other, "types_t")) == [type_]
        tree = parse(query.format(one, "s.t", other, "s.t"), TYPED)
        assert tree.schema == (Column("x", type_),)


def test_the_rendered_sql_has_the_trees_types_in_spark(spark):
    """Also what the renderings cast explicitly must be what Spark would have made of it."""
    names = ", ".join(f"{name} AS c{i}" for i, name in enumerate(COLUMNS))
    for expression, type_ in EXPRESSIONS.items():
        tree = parse(f"SELECT {expression} AS x FROM s.t", TYPED)
        query = tree_sql(tree, "spark", {"s.t": f"(SELECT {names} FROM types_t)"})
        assert analyzed(spark, query) == [type_], expression


def drawn(strategy: st.SearchStrategy, count: int) -> list:
    """A fixed sample of a strategy's values (seeded, so that a failure can be repeated)."""
    found: list = []

    @hypothesis.seed(20240229)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @given(strategy)
    def collect(value):
        found.append(value)

    collect()
    return found


def spark_bag(frame) -> Counter:
    columns = [column.to_pylist() for column in frame.toArrow().columns]
    return Counter(tuple(normal(v) for v in row) for row in zip(*columns, strict=True))


def test_spark_gives_functions_the_values_the_bag_evaluator_gives(spark):
    """All scalars in one job: those without an error at one row of extreme values."""
    scan = Scan(ONE.name, ONE.schema)
    sample = drawn(st.tuples(scalars(ONE.schema, 2), rows(ONE.schema, extreme=True, size=1)), 300)
    queries, expected = [], []
    for scalar, listed in sample:
        if scalar.type == NULL or not listed:
            continue
        tree = Project(scan, (scalar,), (Column("x", scalar.type),))
        try:
            (row,) = evaluate(tree, {"one": bag(listed)})
        except FrescoError:
            continue
        table = f"one{len(queries)}"
        spark.createDataFrame(arrow_table(ONE.schema, listed)).createOrReplaceTempView(table)
        queries.append((tree, table))
        expected.append(row[0])
    assert len(queries) > 90
    for start in range(0, len(queries), 25):
        parts = [tree_sql(t, "spark", {"one": n}) for t, n in queries[start : start + 25]]
        cells = " CROSS JOIN ".join(f"({part}) q{i}" for i, part in enumerate(parts))
        outputs = ", ".join(f"q{i}.c0 AS o{i}" for i in range(len(parts)))
        table = spark.sql(f"SELECT {outputs} FROM {cells}").toArrow()
        actual = [normal(column.to_pylist()[0]) for column in table.columns]
        for (tree, _), got, want in zip(
            queries[start : start + 25], actual, expected[start : start + 25], strict=True
        ):
            assert got is want or got == want, tree.expressions


def test_an_average_from_totals_is_rounded_once_in_spark_too(spark):
    totals = ["0.01", "-0.01", "0.05", "-0.05", "1234567890123456.78", "-99.99"]
    counts = [1, 3, 7, 8, 20000, 20001, 39999]
    rows_ = [(t, n) for t in totals for n in counts]
    values = ", ".join(f"(CAST('{t}' AS DECIMAL(28,2)), CAST({n} AS BIGINT))" for t, n in rows_)
    text = exact.spark_average("total", "n", "decimal(28,2)", "decimal(22,6)")
    query = f"SELECT total, n, {text} AS a FROM VALUES {values} AS t(total, n)"
    assert analyzed(spark, query)[2] == "decimal(22,6)"
    for total, count, average in spark.sql(query).collect():
        assert average == exact.average(total, count, "decimal(22,6)"), (total, count)


def test_spark_gives_trees_the_bags_the_bag_evaluator_gives(spark):
    sample = drawn(st.tuples(trees(), databases()), 30)
    compared = 0
    for tree, database in sample:
        if any(column.type == NULL for column in tree.schema):
            continue
        try:
            expected = evaluate(tree, bags(database))
        except FrescoError:
            continue
        names = {}
        for index, (name, listed) in enumerate(database.items()):
            frame = spark.createDataFrame(arrow_table(RELATIONS[name].schema, listed))
            frame.createOrReplaceTempView(f"rel{index}")
            names[name] = f"rel{index}"
        frame = spark.sql(tree_sql(tree, "spark", names))
        assert [f.dataType.simpleString() for f in frame.schema] == [c.type for c in tree.schema]
        assert spark_bag(frame) == expected, tree
        compared += 1
    assert compared > 12
