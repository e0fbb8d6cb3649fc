# ruff: noqa: E501  (a table)
"""What sqlglot forgives and Spark does not is refused: each text is one that Spark cannot parse."""

from __future__ import annotations

import pytest

from streaming.errors import FrescoError
from streaming.sql.parse import parse
from streaming.sql.scope import Text
from streaming.sql.spelling import spelled
from streaming.sql.syntax import syntax
from tests.golden.accepted_texts import RELATIONS, TEXTS

NOT_SPARK = [
    "SELECT , k FROM r", "SELECT k, , i FROM r", "SELECT k, FROM r", "SELECT FROM r", "SELECT k FROM r,",
    "SELECT k, i IN (, 1) AS x FROM r", "SELECT k, i IN (1,) AS x FROM r", "SELECT k, i IN () AS x FROM r",
    "SELECT k, CAST(bo AS STRING AS x FROM r", "SELECT k, CAST(i AS INT,) AS x FROM r",
    "SELECT k, i BETWEEN 0 10 AS x FROM r", "SELECT k, i NOT BETWEEN 0 10 AS x FROM r",
    "SELECT k AS <=> FROM r", "SELECT k AS .5 FROM r", "SELECT k AS || FROM r", "SELECT k AS 'x' FROM r", "SELECT k AS 1 FROM r",
    "SELECT AS k FROM r", "SELECT COUNT(+ *) AS n FROM r", "SELECT k FROM . r", "SELECT k FROM r. ", "SELECT k FROM r, WHERE k > 1",
    "SELECT k FROM r WHERE m > . 0", "SELECT . 1.50 AS x FROM r", "SELECT x.k FROM r x JOIN q y ON WHERE x.k = y.k", "SELECT k FROM r JOIN q USING ()",
    "SELECT k FROM r GROUP BY k WHERE k > 1", "SELECT k FROM r HAVING k > 1 GROUP BY k", "SELECT k WHERE k > 1 FROM r",
    "SELECT k FROM r GROUP BY", "SELECT k FROM r GROUP BY ,k", "SELECT k FROM r UNION ALL", "SELECT k FROM r)", "(SELECT k FROM r",
    "SELECT k, i IS 5 AS x FROM r", "SELECT k, i IS .5 AS x FROM r", "SELECT k, i IS k AS x FROM r", "SELECT k, i ISNULL AS x FROM r", "SELECT k, i NOTNULL AS x FROM r",
    "SELECT k, bo = NOT bo AS x FROM r", "SELECT k, i IS NULL = bo AS x FROM r", "SELECT k, i IS NULL IS NULL AS x FROM r",
    "SELECT k, i ! IN (1) AS x FROM r", "SELECT k, i IS ! NULL AS x FROM r", "SELECT k, i = = 1 AS x FROM r", "SELECT k, i <> = 1 AS x FROM r",
    "SELECT k, CASE WHEN bo THEN 1 AS x FROM r", "SELECT k, CASE bo END AS x FROM r", "SELECT k, CASE WHEN bo 1 END AS x FROM r",
    "SELECT k, IF bo THEN 1 ELSE 2 END AS x FROM r", "SELECT k, UPPER(st AS x FROM r", "SELECT k, UPPER st) AS x FROM r", "SELECT k, UPPER(st,) AS x FROM r",
    "SELECT k, DATE AS x '2020-01-01' FROM r", "SELECT k, INT '5' AS x FROM r", "SELECT k, i::TEXT AS x FROM r", "SELECT k, CAST(i AS INT8) AS x FROM r",
    "WITH c AS (SELECT k FROM r), SELECT k FROM c", "WITH SELECT k FROM r", "SELECT k FROM (SELECT k FROM r", "SELECT TOP 3 k FROM r", "SELECT k INTO x FROM r",
    "SELECT left.k FROM r AS left", "SELECT k FROM r AS natural", "SELECT k FROM r minus", "SELECT k, DATE'2020' '-01-01' AS x FROM r",
    "WITH c AS (SELECT k FROM r), C AS (SELECT k FROM q) SELECT k FROM c", "SELECT k FROM ONLY r", "SELECT k FROM r FOR UPDATE", "SELECT k FROM r x y", "SELECT k i j FROM r", "SELECT r.* AS x FROM r", "SELECT * x FROM r",
    "SELECT k FROM r JOIN ON r.k = 1 q", "SELECT k FROM r INNER q", "SELECT k FROM r CROSS q", "SELECT k FROM r JOIN JOIN q", "SELECT k FROM r LEFT q",
    "SELECT 1_000 AS x FROM r", "SELECT 0x1F AS x FROM r", "SELECT 1.5.2 AS x FROM r", "SELECT 1e AS x FROM r", "SELECT $1 AS x FROM r", "SELECT @x AS x FROM r", "SELECT {k} AS x FROM r",
    "SELECT E'a' AS x FROM r", "SELECT N'a' AS x FROM r", "SELECT B'01' AS x FROM r", "SELECT $$a$$ AS x FROM r", "SELECT k # i AS x FROM r", "SELECT k \\ i AS x FROM r",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_SPARK)
def test_what_spark_cannot_parse_is_refused(text):
    """`tests/spark/test_acceptance.py` asks Spark about the same texts."""
    with pytest.raises(FrescoError) as raised:
        parse(text, RELATIONS)
    assert raised.value.where.startswith("line 1, column ")


@pytest.mark.parametrize(
    "condition",
    ["'x' || k + 1 = st", "st || u - i = st", "bo = k < i", "bo <> k >= i", "bo = i IN (1)"],
)
def test_operators_that_sqlglot_binds_in_another_way_than_spark_are_refused(condition):
    """Spark reads ('x' || k) + 1 and (bo = k) < i."""
    with pytest.raises(FrescoError) as raised:
        parse(f"SELECT k FROM r WHERE {condition}", RELATIONS)
    assert raised.value.code in ("SQL_SYNTAX", "SQL_TYPES")


def test_a_column_with_a_sign_has_no_name():
    """Spark calls it (+ k)."""
    with pytest.raises(FrescoError):
        parse("SELECT + k FROM r", RELATIONS)
    parse("SELECT + k AS k FROM r", RELATIONS)


def test_every_accepted_text_is_spelled_as_its_tree():
    for text in TEXTS:
        spelled(Text(text), syntax(Text(text)))


def test_a_word_that_is_taken_out_or_put_in_is_noticed():
    """The tree of one text is never what another text says."""
    for text in TEXTS:
        root = syntax(Text(text))
        words = Text(text).lexemes
        for word in words[:-1]:
            if word.text.upper() in ("AS", "INNER", "+", ";"):
                continue
            without = text[: word.start] + " " * (word.end - word.start) + text[word.end :]
            with pytest.raises(FrescoError):
                spelled(Text(without), root)
