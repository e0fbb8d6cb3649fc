"""Spark runs the text: the same values and errors at the edges of types, and behind guards."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.algebra.bag import bag, evaluate
from streaming.algebra.tree import Relation
from streaming.engines.spark_evaluator import has_no_value
from streaming.errors import FrescoError
from streaming.scalars.expression import Col, Column
from streaming.scalars.failure import fails
from streaming.scalars.functions import call
from streaming.scalars.meanings import normal
from streaming.scalars.types import arrow_type
from streaming.sql.parse import parse
from tests.golden.guarded_queries import CHOSEN, RELATIONS, query
from tests.golden.numeric_edges import ARITHMETIC, COMPARISONS, PAIRS, SIGNS, TYPES, edges
from tests.properties.test_failure_properties import SEED, History, recomputed, view
from tests.unit.test_numeric_edges import FAILED, by_python, same


def ours(text: str, columns: tuple[Column, ...], rows: list[tuple]) -> list[object] | None:
    """Each row's value; None for what we refuse."""
    try:
        tree = parse(f"SELECT {text} AS x FROM s.t", {"s.t": Relation("s.t", columns)})
    except FrescoError as refused:
        assert refused.code == "SQL_FUNCTION_UNSUPPORTED", (text, columns, refused)
        return None
    return by_python(tree, rows)


def in_row(value: object, theirs: object) -> bool:
    """The same; a decimal in a row of Spark's may have more zeros behind the point than its type has."""
    return value == theirs if isinstance(value, Decimal) else same(value, theirs)


def at_edges(spark: SparkSession, columns: tuple[Column, ...], texts: dict[str, str]) -> None:
    """Our values against Spark's; `texts` gives for each the one that is NULL where Spark raises."""
    rows = list(itertools.product(*(edges(c.type) for c in columns)))
    expected = {text: ours(text, columns, rows) for text in texts}
    expected = {text: values for text, values in expected.items() if values is not None}
    arrays = [
        pa.array(values, arrow_type(c.type))
        for c, values in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    names = [c.name for c in columns]
    table = pa.table([*arrays, pa.array(range(len(rows)))], names=[*names, "at"])
    spark.createDataFrame(table).createOrReplaceTempView("edges")
    cells = []
    for text in expected:
        cells.append(texts[text])
        cells.append(f"CASE WHEN {texts[text]} IS NOT NULL THEN {text} END")
    listed = ", ".join(f"{cell} AS x{i}" for i, cell in enumerate(cells))
    found = spark.sql(f"SELECT at, {listed} FROM edges").toArrow().sort_by("at").drop(["at"])
    for i, (text, values) in enumerate(expected.items()):
        tried, plain = (found.column(2 * i + k).to_pylist() for k in (0, 1))
        for row, value, one, other in zip(rows, values, tried, plain, strict=True):
            assert same(one, other)
            if value is FAILED:
                assert one is None and None not in row, f"{text} at {row}: Spark has {one!r}"
            else:
                assert same(value, one), f"{text} at {row} of {columns}: {value!r}, Spark {one!r}"
                assert value is not None or None in row, f"{text} at {row}: Spark raises"


@pytest.mark.parametrize("types", PAIRS, ids=" ".join)
def test_operators_at_the_edges(spark: SparkSession, types: tuple[str, str]) -> None:
    columns = tuple(Column(n, t) for n, t in zip("lr", types, strict=True))
    texts = {f"l {operator} r": f"{tried}(l, r)" for operator, tried in ARITHMETIC.items()}
    at_edges(spark, columns, texts | {t: t for t in (f"l {o} r" for o in COMPARISONS)})


@pytest.mark.parametrize("type_", TYPES)
def test_casts_and_signs_at_the_edges(spark: SparkSession, type_: str) -> None:
    texts = {f"CAST(x AS {t})": f"TRY_CAST(x AS {t})" for t in (*TYPES, "string")}
    if not fails(call("neg", Col(0, type_))):
        texts |= {text: text for text in SIGNS}
    at_edges(spark, (Column("x", type_),), texts)


def test_groups_have_one_zero_and_a_select_list_has_two(spark: SparkSession) -> None:
    rows = pa.table([pa.array([1, 2, 2]), pa.array([-0.0, -0.0, 0.0])], names=["k", "x"])
    spark.createDataFrame(rows).createOrReplaceTempView("zeros")
    shown = spark.sql("SELECT x FROM zeros WHERE k = 1").collect()
    groups = spark.sql("SELECT x, COUNT(*), SUM(x) FROM zeros GROUP BY x").collect()
    assert repr(shown[0].x) == "-0.0"
    assert [repr(tuple(row)) for row in groups] == ["(0.0, 3, 0.0)"]


def raises(spark: SparkSession, text: str) -> bool:
    try:
        spark.sql(text).collect()
    except PySparkException as error:
        assert has_no_value(error), error
        return True
    return False


def test_long_decimals_are_negated_where_spark_does_not_round_them(spark: SparkSession) -> None:
    """Scala's BigDecimal negates with 34 digits: -9...9 of 38 digits overflows, others are rounded."""
    text = "SELECT -CAST('12345678901234567890123456789012345678' AS DECIMAL(38,0)) AS x"
    assert str(spark.sql(text).collect()[0].x) == "-12345678901234567890123456789012350000"
    for type_ in ("decimal(38,0)", "decimal(38,10)"):
        columns, rows = (Column("x", type_),), [(value,) for value in edges(type_)]
        for text in SIGNS:
            for (value,), one in zip(rows, ours(text, columns, rows) or [], strict=True):
                if one is not FAILED:
                    found = f"SELECT {text} AS x FROM (SELECT CAST('{value}' AS {type_}) AS x)"
                    null = found.replace("'None'", "NULL")
                    assert in_row(one, spark.sql(null).collect()[0].x), (text, value)


@pytest.mark.parametrize("type_", ["tinyint", "smallint", "int", "bigint"])
def test_signs_of_integers_at_the_edges(spark: SparkSession, type_: str) -> None:
    columns = (Column("x", type_),)
    for text in SIGNS:
        for value in edges(type_):
            (one,) = ours(text, columns, [(value,)])  # type: ignore[misc]
            found = f"SELECT {text} FROM (SELECT CAST('{value}' AS {type_}) AS x)"
            if value is not None:
                assert (one is FAILED) == raises(spark, found), (text, value)


def test_sums_at_the_edges(spark: SparkSession) -> None:
    for type_ in TYPES:
        columns = (Column("g", "int"), Column("x", type_))
        groups = list(itertools.combinations_with_replacement(edges(type_), 2))
        rows = [(g, x) for g, values in enumerate(groups) for x in values]
        arrays = [
            pa.array(c, arrow_type(t))
            for c, t in zip(zip(*rows, strict=True), ("int", type_), strict=True)
        ]
        spark.createDataFrame(pa.table(arrays, names=["g", "x"])).createOrReplaceTempView("groups")
        text = "SELECT g, try_sum(x), try_avg(x), count(x) FROM groups GROUP BY g"
        for g, total, average, count in spark.sql(text).collect():
            state = {"s.t": bag((g, x) for x in groups[g])}
            for function, theirs in (("SUM", total), ("AVG", average), ("COUNT", count)):
                tree = parse(
                    f"SELECT {function}(x) AS x FROM s.t GROUP BY g",
                    {"s.t": Relation("s.t", columns)},
                )
                try:
                    ((value,),) = evaluate(tree, state)
                except FrescoError:
                    value = None
                    assert theirs is None and set(groups[g]) != {None}, (function, groups[g])
                largest = max((abs(x) for x in groups[g] if x is not None), default=0)  # type: ignore[arg-type,type-var]
                if function == "AVG" and type_ == "bigint" and value is not None:
                    assert theirs == pytest.approx(value, rel=1e-15, abs=1e-15 * largest), groups[g]
                else:
                    assert in_row(value, theirs), (function, type_, groups[g], value, theirs)


@pytest.fixture(scope="module")
def state(spark: SparkSession) -> dict:
    history = History(random.Random(SEED), 30)
    found = history.state(29)
    for name, relation in RELATIONS.items():
        rows = [row for row, count in found[name].items() for _ in range(count)]
        arrays = [
            pa.array(column, arrow_type(c.type))
            for column, c in zip(zip(*rows, strict=True), relation.schema, strict=True)
        ]
        table = pa.table(arrays, names=[c.name for c in relation.schema])
        spark.createDataFrame(table).createOrReplaceTempView(name[2:])
    return found


def texts() -> list[str]:
    return [*CHOSEN, *(query(random.Random(SEED + n)) for n in range(40))]


def test_guards_guard_as_in_spark(spark: SparkSession, state: dict) -> None:
    """Spark may move conditions to rows that we do not meet; it never tests less than we do."""
    failed = stricter = 0
    for text in texts():
        expected = recomputed(view(text), state)
        try:
            rows = spark.sql(text).toArrow()
        except PySparkException as error:
            assert has_no_value(error), (text, error)
            failed += 1
            if expected is not None:
                stricter += 1
                assert (
                    " WHERE " in text or " JOIN " in text or " HAVING " in text or ") q" in text
                ), text
            continue
        assert expected is not None, f"Spark has rows: {text}"
        found = Counter(
            tuple(normal(v) for v in row)
            for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)
        )
        assert found == expected, text
    assert stricter < failed / 3 and failed > 10, (stricter, failed)
