# ruff: noqa: E501, SIM905  (a table of texts)
"""Whatever text a view may have, Spark accepts, with the same names and types of its columns.

Texts that are right, nearly right, and mutations of right ones (the seed is printed where it fails).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.algebra.tree import Tree
from streaming.errors import FrescoError
from streaming.scalars.functions import AGGREGATES, CALLS
from streaming.sql.parse import parse
from tests.golden.accepted_texts import RELATIONS, TEXTS
from tests.spark.mutations import mutated
from tests.unit.test_spelling import NOT_SPARK

NEARLY = [
    "SELECT + st AS x FROM r", "SELECT + (st) AS x FROM r", "SELECT + ! bo AS x FROM r", "SELECT + 1 AS x FROM r", "SELECT ROUND(m, FALSE) AS x FROM r", "SELECT ROUND(m, 1) AS x FROM r",
    *(f"SELECT k, {scalar} AS x FROM r" for scalar in (
        "i = '1_000'", "i = '\u0661'", "i = '1.5'", "i = ' 1 '", "i = '0x1F'", "m = '1_0'", "m = '1e400'", "m = '2.5d'", "m = 'NaN'", "d = 'inf'", "d = '\u0661'",
        "bo = 'yes'", "bo = 'true'", "dt = '2024-1-31'", "dt = '\u0662024-01-31'", "dt = '2023-02-29'", "ts = '2024-01-31'", "ts = '2024-01-31 24:00:00'", "ts = '2024-01-31 10:00:00+19:00'",
        "1e400", "1e-400", "1e400D", "3.5e38F", "300Y", "40000S", "9223372036854775808L", "99999999999999999999999999999999999999999", "CASE WHEN NULL THEN 1 END", "IF(NULL, 1, 2)",
        "i IS UNKNOWN", "NOT NULL", "NULL AND bo", "NULL = NULL", "i = NULL", "NULL IN (1)", "i IN (NULL)", "NULL BETWEEN 1 AND 2", "NULL LIKE 'a'", "-NULL", "ABS(NULL)", "UPPER(NULL)",
        "COALESCE()", "COALESCE(NULL, NULL)", "NULLIF(NULL, 1)", "CONCAT()", "NVL(1)", "IF(bo, 1)", "ROUND(m, NULL)", "ROUND(m, 1, 2)", "SUBSTRING(st)", "TRIM(st, 'a')", "MOD(k, 2, 3)", "LENGTH(i)", "UPPER(i)",
        "st + 1", "'1' + 1", "bo + 1", "dt + 1", "st || NULL", "i || dt", "bo < bo", "bo > true", "dt = ts", "dt = i", "st = i", "bo = 1", "i::TEXT", "i::INT4", "CAST(i AS BOOL)", "CAST(i AS VOID)", "CAST(i AS DECIMAL(39,0))",
        "CAST(i AS DECIMAL(5,6))", "CAST(i AS FLOAT8)", "CAST(i AS STRING COLLATE UTF8_LCASE)", "date('2024-01-31')", "string(i)", "int(m)", "k == - - 2", "- - -2147483648", "-(-2147483648)", "i !> 1", "'a' 'b' \"c\"", "k -1",
        "k--1\n", "i=-1", "1.e1", "1.5.2", ".e1", "1e", "1e+", "1L2", "2S3", "1.L", "0.5L", "1e3L", "1BD2", "x'1F'", "X 'AB'", "DATE'2020' '-01-01'", "DATE (st)", "TIMESTAMP_NTZ'2024-01-31 10:00:00+01:00'", "i DIV 2", "i <> - 1",
    )),
    *("SELECT k FROM r " + end for end in (
        "WHERE NULL", "HAVING NULL", "WHERE 1", "WHERE 'true'", "WHERE st", "JOIN q ON NULL", "JOIN q USING (m)", "GROUP BY k HAVING i > 1", "GROUP BY 1, 1", "GROUP BY 'k'", "GROUP BY NULL", "GROUP BY TRUE", "GROUP BY 2",
        "GROUP BY k + 0", "GROUP BY -1", "GROUP BY (1)", "GROUP BY 1.0", "GROUP BY 1L", "as", "AS AS", "AS from", "AS left", "left", "cross", "JOIN", "union", "AS `a b`", "AS t(a)", "t (a, b)", "WHERE k = k = bo", "WHERE k = i = k", "; SELECT 1",
    )),
    *(f"SELECT k AS {word} FROM r" for word in "select from where group by having order union all as on using join inner cross left null true false case when then else end and or not in is like between distinct cast date timestamp interval limit values table with".split()),
    *(f"SELECT {word}.k FROM r AS {word}" for word in "select from where group having order union all as on using join inner cross left full natural lateral anti semi null true case end and or not in is like between distinct date limit values table with except minus intersect".split()),
    "SELECT bo, bo FROM r", "SELECT k AS a, i AS A FROM r", "SELECT k AS ` ` FROM r", "SELECT k AS `` FROM r", "SELECT `` FROM r", "SELECT K, `k` AS j FROM R", "SELECT r.`k` FROM `r`", "SELECT `r.k` FROM r",
    "SELECT K FROM r", "SELECT St, k AS KK FROM R", "SELECT R.St FROM r", "SELECT * FROM r x JOIN q y USING (K)", "SELECT x.* FROM r x JOIN q y USING (k)", "SELECT y.* FROM r x JOIN q y USING (k)", "SELECT y.k FROM r x JOIN q y USING (k)",
    "SELECT k + 1 AS k FROM r GROUP BY k", "SELECT k + 1 AS z FROM r GROUP BY z", "SELECT i AS k, COUNT(*) AS n FROM r GROUP BY k", "SELECT st AS m, SUM(k) AS n FROM q GROUP BY m", "SELECT k + 1 AS z FROM r GROUP BY k + 1 HAVING z > 1",
    "SELECT k FROM r GROUP BY k HAVING COUNT(*) > 1 AND k > 1", "SELECT COUNT(*) AS n FROM r HAVING n > 1", "SELECT SUM(k) AS k FROM r HAVING k > 1", "SELECT 1 AS one FROM r HAVING true", "SELECT 1 AS one FROM r HAVING COUNT(*) > 1",
    "SELECT UPPER(st) AS s FROM q GROUP BY upper(ST)", "SELECT k * 2 + 1 AS x FROM r GROUP BY k * 2", "SELECT k + m AS x FROM q GROUP BY m + k", "SELECT CASE WHEN k > 1 THEN k END AS x FROM r GROUP BY k > 1", "SELECT COUNT(k, i) AS n FROM r", "SELECT SUM(*) AS n FROM r",
    "SELECT COUNT() AS n FROM r", "SELECT SUM(st) AS n FROM r", "SELECT SUM(NULL) AS n FROM r", "SELECT AVG(bo) AS n FROM r", "SELECT SUM('1') AS n FROM r", "SELECT AVG('1') AS n FROM r", "SELECT COUNT(r.*) AS n FROM r", "SELECT SUM(k + SUM(k)) AS n FROM r",
    "SELECT k FROM r UNION ALL SELECT bo FROM r", "SELECT dt FROM r UNION ALL SELECT ts FROM r", "SELECT st FROM r UNION ALL SELECT k FROM r", "SELECT k FROM r UNION ALL SELECT '1' AS k FROM r", "SELECT 'a' AS k FROM r UNION ALL SELECT k FROM r",
    "WITH r AS (SELECT k FROM q) SELECT k FROM r", "WITH c AS (SELECT k FROM r), c AS (SELECT k FROM q) SELECT k FROM c", "WITH c AS (SELECT k FROM e), e AS (SELECT k FROM r) SELECT k FROM c", "WITH c(a, b) AS (SELECT k FROM r) SELECT a FROM c",
    "WITH c AS (SELECT k FROM r) SELECT k FROM C", "SELECT k FROM (SELECT k, k FROM r)", "SELECT a.k FROM r a, q a", "SELECT r.k FROM r, r", "SELECT r.k FROM r JOIN s.q ON s.q.k = r.k", "SELECT q.k FROM s.q JOIN q ON q.k = s.q.k", "SELECT z.k FROM s.q z",
]  # fmt: skip


def accepted(text: str) -> Tree | None:
    try:
        return parse(text, RELATIONS)
    except FrescoError:
        return None


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql("CREATE DATABASE IF NOT EXISTS s")
    for name, relation in RELATIONS.items():
        nulls = ", ".join(
            f"CAST(NULL AS {c.type}) AS `{c.name.replace('`', '``')}`" for c in relation.schema
        )
        if "." in name:
            spark.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT {nulls}")
        else:
            spark.sql(f"SELECT {nulls}").createOrReplaceTempView(name)
    yield spark
    spark.sql("DROP DATABASE s CASCADE")
    for name in ("r", "q"):
        spark.catalog.dropTempView(name)


def wider(spark: SparkSession, texts: list[str]) -> list[str]:
    """What is wrong with each text that is accepted here and not so in Spark."""
    wrong = []
    for text in texts:
        tree = accepted(text)
        if tree is None:
            continue
        try:
            schema = spark.sql(text).schema
        except PySparkException as error:
            wrong.append(f"{text!r}: {str(error).strip().splitlines()[:1]}")
            continue
        found = [(field.name, field.dataType.simpleString()) for field in schema]
        here = [(column.name, column.type) for column in tree.schema]
        if found != here:
            wrong.append(
                f"{text!r}: {[pair for pair in zip(found, here, strict=False) if pair[0] != pair[1]]}"
            )
    return wrong


def test_spark_accepts_what_is_nearly_right_where_a_view_may_say_it(spark):
    assert sum(accepted(text) is not None for text in NEARLY) > 60
    assert not wider(spark, NEARLY)


def test_spark_cannot_read_what_sqlglot_forgives(spark):
    """So the list in `tests/unit/test_spelling.py` is right."""
    read = []
    for text in NOT_SPARK:
        try:
            spark.sql(text)
        except PySparkException:
            continue
        read.append(text)
    assert not read


def test_every_function_by_a_name_that_spark_knows(spark):
    known = {row[0] for row in spark.sql("SHOW ALL FUNCTIONS").collect()}
    assert set(CALLS) | set(AGGREGATES) <= known


@pytest.mark.parametrize("seed", [20260711])
def test_spark_accepts_what_is_accepted_of_mutated_texts(seed, spark):
    texts = list(dict.fromkeys(mutated(TEXTS, 1500, seed)))
    assert sum(accepted(text) is not None for text in texts) > 60
    assert not wider(spark, texts), f"seed {seed}"


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_spark_accepts_what_is_accepted_of_many_mutated_texts(seed, spark):
    assert not wider(spark, list(dict.fromkeys(mutated(TEXTS, 5000, seed)))), f"seed {seed}"
