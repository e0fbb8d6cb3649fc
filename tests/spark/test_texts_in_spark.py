"""The text of every accepted construct means in Spark what it means here, and is no wider.

Nothing that Fresco makes of a text reaches Spark: it gets the text itself, over views of the same
names, types and rows. So a clause that the parser drops, a quote that it loses or a precedence that it
takes otherwise shows as another result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming.algebra.bag import bag, evaluate
from streaming.algebra.tree import Tree
from streaming.engines.tree_sql import tree_sql
from streaming.errors import FrescoError
from streaming.scalars.meanings import normal
from streaming.sql.parse import parse
from tests.golden.accepted_texts import LISTED, QUERIES, RELATIONS, ROWS
from tests.properties.trees import arrow_table

TABLES = {name: arrow_table(RELATIONS[name].schema, rows) for name, rows in ROWS.items()}
BAGS = {name: bag(rows) for name, rows in ROWS.items()}


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql("CREATE DATABASE IF NOT EXISTS s")
    for name, table in TABLES.items():
        columns = RELATIONS[name].schema
        quoted = [f"`{c.name.replace('`', '``')}` {c.type}" for c in columns]
        frame = spark.createDataFrame(
            table.rename_columns([c.name for c in columns]), ", ".join(quoted)
        )
        if "." in name:
            frame.write.format("parquet").mode("overwrite").saveAsTable(name)
        else:
            frame.createOrReplaceTempView(name)
    yield spark
    spark.sql("DROP DATABASE s CASCADE")
    for name in ("r", "q"):
        spark.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for position, (name, listed) in enumerate(ROWS.items()):
        normalized = [tuple(normal(value) for value in row) for row in listed]
        table = arrow_table(RELATIONS[name].schema, normalized)
        connection.register("rows", table)
        connection.execute(f"CREATE TABLE t{position} AS SELECT * FROM rows")
    yield connection
    connection.close()


def rows(table: pa.Table) -> Counter:
    columns = [column.to_pylist() for column in table.columns]
    return Counter(tuple(normal(v) for v in row) for row in zip(*columns, strict=True))


def normalized(found: Mapping[tuple, int]) -> Counter:
    return Counter({tuple(normal(v) for v in row): count for row, count in found.items()})


def outcome(compute) -> Counter | str:
    """The rows, or that there was an error."""
    try:
        return compute()
    except (FrescoError, duckdb.Error, PySparkException):
        return "an error"


def here(tree: Tree) -> Counter | str:
    return outcome(lambda: normalized(evaluate(tree, BAGS)))


def ducked(tree: Tree, duck: duckdb.DuckDBPyConnection) -> Counter | str:
    text = tree_sql(tree, "duckdb", {name: f"t{i}" for i, name in enumerate(TABLES)})
    return outcome(lambda: rows(duck.execute(text).to_arrow_table()))


def same_columns(frame: DataFrame, tree: Tree) -> None:
    found = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    assert found == [(column.name, column.type) for column in tree.schema]


def compare(text: str, spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> Counter | str:
    tree = parse(text, RELATIONS)
    frame = spark.sql(text)
    same_columns(frame, tree)
    expected = outcome(lambda: rows(frame.toArrow()))
    assert here(tree) == expected, text
    assert ducked(tree, duck) == expected, text
    return expected


def test_each_scalar_is_what_spark_makes_of_its_text(spark, duck):
    """Many in one select list where none has an error; those with one alone."""
    alone = [f"SELECT k, {scalar} AS x FROM r" for scalar in LISTED]
    wrong = {
        s
        for s, text in zip(LISTED, alone, strict=True)
        if here(parse(text, RELATIONS)) == "an error"
    }
    calm = [scalar for scalar in LISTED if scalar not in wrong]
    for start in range(0, len(calm), 30):
        some = calm[start : start + 30]
        items = ", ".join(f"{scalar} AS x{i}" for i, scalar in enumerate(some))
        text = f"SELECT k, {items} FROM r"
        tree, frame = parse(text, RELATIONS), spark.sql(text)
        same_columns(frame, tree)
        expected = frame.toArrow()
        for engine, found in (("bag", evaluate(tree, BAGS)), ("duck", ducked(tree, duck))):
            by_key = {row[0]: row for row in found}
            for row in rows(expected):
                for scalar, want, got in zip(some, row[1:], by_key[row[0]][1:], strict=True):
                    assert got is want or (got == want and type(got) is type(want)), (
                        engine,
                        scalar,
                        row[0],
                    )
    for scalar in wrong:
        assert compare(f"SELECT k, {scalar} AS x FROM r", spark, duck) == "an error"
    assert len(calm) > 250


@pytest.mark.parametrize("text", QUERIES)
def test_each_query_is_what_spark_makes_of_its_text(text, spark, duck):
    assert compare(text, spark, duck) != "an error"


@pytest.mark.parametrize(
    "scalar", ["bo", "i > 0 AND NOT bo OR i IS NULL", "st NOT LIKE 'a%'", "d = 0"]
)
def test_a_condition_selects_the_rows_that_spark_selects(scalar, spark, duck):
    compare(f"SELECT k FROM r WHERE {scalar}", spark, duck)
    compare(f"SELECT r.k FROM r JOIN q ON {scalar.replace('st', 'r.st')}", spark, duck)
