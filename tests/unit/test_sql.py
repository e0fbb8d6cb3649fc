"""What DuckDB would do otherwise, and the SQL makes it do as Spark does."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest

from streaming.algebra.tree import Relation
from streaming.engines.tree_sql import tree_sql
from streaming.scalars import exact, letter_case
from streaming.scalars.expression import Column
from streaming.scalars.functions import CALLS, TYPING
from streaming.scalars.meanings import LAZY, MEANINGS
from streaming.scalars.renderings import DUCK, SPARK
from streaming.sql.parse import parse

R = Relation(
    "s.r",
    (
        Column("i", "int"),
        Column("m", "decimal(18,2)"),
        Column("s", "string"),
        Column("d", "double"),
    ),
)


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        yield connection


def first(connection, expression: str, *row: str) -> object:
    """The expression's value at one row, given as SQL literals for i, m, s and d."""
    cells = dict(zip("imsd", row, strict=False))
    values = ", ".join(
        f"CAST({cells.get(c.name, 'NULL')} AS {c.type.upper()}) AS c{i}"
        for i, c in enumerate(R.schema)
    ).replace("STRING", "VARCHAR")
    tree = parse(f"SELECT {expression} AS x FROM s.r", {"s.r": R})
    return connection.execute(tree_sql(tree, "duckdb", {"s.r": f"(SELECT {values})"})).fetchone()[0]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("m / 3", Decimal("33.333333")),
        ("-m / 3", Decimal("-33.333333")),
        ("m / 150", Decimal("0.666667")),
        ("CAST(m AS INT) / 8", 12.5),
        ("CAST(m + 0.99 AS INT)", 100),
        ("CAST(-m - 0.99 AS INT)", -100),
        ("ROUND(m / 16, 2)", Decimal("6.25")),
        ("CAST(0.125 AS DECIMAL(3,2))", Decimal("0.13")),
        ("CAST(-0.125 AS DECIMAL(3,2))", Decimal("-0.13")),
        ("CONCAT(s, NULL)", None),
        ("TRIM(' \u00a0 ')", "\u00a0"),
        ("SUBSTRING(s, 0, 2)", "ab"),
        ("'a_b' LIKE 'a_b'", True),
        ("UPPER('straße')", "STRASSE"),
        ("LOWER('ÉA')", "éa"),
        ("LENGTH('e\u0301')", 2),
        ("i % -3", 1),
        ("m * 9999999999999999.99", Decimal("999999999999999999.00")),
        ("CAST(9999999999999999.99 AS DECIMAL(18,2)) + m", Decimal("10000000000000099.99")),
        ("CAST(-9999999999999999.99 AS DECIMAL(18,2)) - m", Decimal("-10000000000000099.99")),
        ("CAST(9999999999999999.99 AS DECIMAL(18,2)) / m", Decimal("99999999999999.9999")),
        ("d = d", True),
    ],
)
def test_duckdb_is_made_to_agree_with_spark(duck, expression, value):
    assert first(duck, expression, "7", "100", "'abc'", "'NaN'") == value


@pytest.mark.parametrize(
    "expression", ["i / 0", "i % 0", "m / 0", "m % 0", "d / 0", "d % 0", "i + 2147483647"]
)
def test_what_spark_refuses_at_a_row_is_an_error_not_a_null(duck, expression):
    with pytest.raises(duckdb.Error):
        first(duck, expression, "7", "100", "'abc'", "1")


@pytest.mark.parametrize("expression", ["i / 0", "i % 0", "m / 0", "m % 0", "d / 0", "d % 0"])
def test_null_divided_by_zero_is_null_as_in_spark(duck, expression):
    assert first(duck, expression) is None


def test_a_letter_whose_other_case_is_uncertain_is_an_error(duck):
    with pytest.raises(duckdb.Error, match="VALUE_LETTERCASE"):
        first(duck, "LOWER(s)", "1", "1", "'ΟΔΟΣ'")


def test_every_expanding_letter_is_written_as_spark_writes_it(duck):
    for letter, capital in letter_case.EXPANDING.items():
        assert first(duck, "UPPER(s)", "1", "1", f"'x{letter}'") == "X" + capital


@pytest.mark.parametrize("count", [1, 3, 7, 20000, 20001, 2**62])
@pytest.mark.parametrize(
    "total", ["0.01", "-0.01", "0.05", "9" * 26 + ".99", "-" + "9" * 26 + ".99"]
)
def test_an_average_from_totals_is_rounded_once(duck, total, count):
    expected = (
        exact.average(Decimal(total), count, "decimal(22,6)")
        if abs(Decimal(total) / count) < 10**16
        else None
    )
    text = exact.duck_average(
        f"CAST('{total}' AS DECIMAL(28,2))",
        f"CAST({count} AS BIGINT)",
        "decimal(28,2)",
        "decimal(22,6)",
    )
    if expected is None:
        with pytest.raises(duckdb.Error):
            duck.execute(f"SELECT {text}")
    else:
        assert duck.execute(f"SELECT {text}").fetchone()[0] == expected


def test_an_average_over_nothing_is_null(duck):
    text = exact.duck_average("CAST(NULL AS DECIMAL(28,2))", "0", "decimal(28,2)", "decimal(22,6)")
    assert duck.execute(f"SELECT {text}").fetchone()[0] is None


def test_every_function_has_a_typing_rule_two_renderings_and_a_meaning():
    assert set(DUCK) == set(SPARK) == set(MEANINGS) | set(LAZY)
    assert set(DUCK) - {"cast"} <= set(TYPING)
    assert {rule for rule, _, _ in CALLS.values()} <= set(TYPING)


def test_texts_are_quoted_for_each_engine():
    tree = parse("SELECT i, s FROM s.r WHERE s = 'it\\'s \\\\ n'", {"s.r": R})
    assert "'it''s \\ n'" in tree_sql(tree, "duckdb", {"s.r": "r"})
    assert "'it\\'s \\\\ n'" in tree_sql(tree, "spark", {"s.r": "r"})
