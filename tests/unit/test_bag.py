"""The bag evaluator on examples small enough to check by hand."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from streaming.algebra.bag import added, bag, evaluate, negated
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import Distinct, Monus, Relation, Scan
from streaming.errors import FrescoError
from streaming.scalars.expression import Column
from streaming.sql.parse import parse

R = Relation("s.r", (Column("w", "int"), Column("x", "int")))
S = Relation("s.s", (Column("x", "int"), Column("y", "decimal(4,2)")))
D = Relation("s.d", (Column("v", "double"),))
RELATIONS = {r.name: r for r in (R, S, D)}


def result(sql: str, **rows: list[tuple]) -> dict:
    bags = {f"s.{name}": bag(listed) for name, listed in rows.items()}
    return evaluate(parse(sql, RELATIONS), bags)


def test_a_projection_keeps_duplicates():
    """hacid-slides, correct case: MV {[1]} becomes {[1],[1]}."""
    view = "SELECT w FROM s.r JOIN s.s USING (x)"
    assert result(view, r=[(1, 2)], s=[(2, Decimal("3"))]) == {(1,): 1}
    assert result(view, r=[(1, 2)], s=[(2, Decimal("3")), (2, Decimal("4"))]) == {(1,): 2}


def test_multiplicities_multiply_in_a_join_and_signs_too():
    view = parse("SELECT w FROM s.r JOIN s.s USING (x)", RELATIONS)
    rows = {"s.r": {(1, 2): 2}, "s.s": {(2, Decimal(0)): -3}}
    assert evaluate(view, rows) == {(1,): -6}


def test_rows_that_cancel_are_gone():
    one = bag([(1,), (1,), (2,)])
    assert added(one, negated(bag([(1,), (2,)]))) == {(1,): 1}


def test_null_joins_nothing_and_groups_with_null():
    """ODDITIES 12."""
    joined = "SELECT w, y FROM s.r JOIN s.s USING (x)"
    assert result(joined, r=[(1, None)], s=[(None, Decimal(1))]) == {}
    grouped = "SELECT w, COUNT(*) AS n, COUNT(x) AS m, SUM(x) AS s FROM s.r GROUP BY w"
    assert result(grouped, r=[(None, None), (None, 1), (2, None)]) == {
        (None, 2, 1, 1): 1,
        (2, 1, 0, None): 1,
    }


def test_conditions_are_three_valued():
    rows = [(1, None), (None, 1), (1, 1)]
    assert result("SELECT w, x FROM s.r WHERE NOT (w = 1 AND x = 1)", r=rows) == {}
    assert result("SELECT w, x FROM s.r WHERE w = 1 OR x = 1", r=rows) == bag(rows)
    assert result("SELECT w, x FROM s.r WHERE w NOT IN (2, NULL)", r=rows) == {}
    assert result("SELECT w, x FROM s.r WHERE w <=> NULL", r=rows) == {(None, 1): 1}


def test_an_aggregate_without_keys_is_one_row_over_nothing():
    view = "SELECT SUM(w) AS s, COUNT(*) AS n, AVG(w) AS a FROM s.r"
    assert result(view, r=[]) == {(None, 0, None): 1}
    assert result("SELECT w, COUNT(*) AS n FROM s.r GROUP BY w", r=[]) == {}


@pytest.mark.parametrize(
    ("values", "average"),
    [
        (["0.01", "0.01", "0.00"], "0.006667"),
        (["-0.01", "-0.01", "0.00"], "-0.006667"),
        (["0.01"] + ["0.00"] * 7, "0.001250"),
        (["0.05"] + ["0.00"] * 39999, "0.000001"),
        (["-0.01"] + ["0.00"] * 19999, "-0.000001"),
        (["0.01"] + ["0.00"] * 20000, "0.000000"),
    ],
)
def test_a_decimal_average_is_rounded_half_up_once_to_four_more_digits(values, average):
    view = "SELECT AVG(y) AS a FROM s.s"
    assert result(view, s=[(1, Decimal(v)) for v in values]) == {(Decimal(average),): 1}


TWICE, ONCE = Scan("s.r", R.schema), Scan("s.q", R.schema)


def test_monus_takes_away_at_most_what_is_there():
    """moro-sartori 5.2: n times left and m times right is max(0, n - m) times."""
    bags = {"s.r": {(1, 1): 3, (2, 2): 1}, "s.q": {(1, 1): 2, (2, 2): 5, (3, 3): 1}}
    assert evaluate(Monus(TWICE, ONCE), bags) == {(1, 1): 1}
    assert evaluate(Monus(ONCE, TWICE), bags) == {(2, 2): 4, (3, 3): 1}


def test_duplicate_elimination_keeps_one_of_each_and_null_equals_null():
    rows = bag([(1, None), (1, None), (None, None)])
    assert evaluate(Distinct(TWICE), {"s.r": rows}) == {(1, None): 1, (None, None): 1}


@pytest.mark.parametrize("tree", [Distinct(TWICE), Monus(TWICE, ONCE), Monus(ONCE, TWICE)])
def test_what_needs_a_proper_bag_refuses_a_signed_one(tree):
    with pytest.raises(ValueError, match="negative multiplicities"):
        evaluate(tree, {"s.r": {(1, 1): -1}, "s.q": {}})


def test_over_numbers_what_is_not_linear_is_refused():
    with pytest.raises(ValueError, match="Distinct over rows with numbers"):
        NumberedBags().evaluate(Distinct(TWICE), {"s.r": {(4, (1, 1)): 1}})
    assert NumberedBags().evaluate(Distinct(TWICE), {"s.r": {(0, (1, 1)): 2}}) == {(0, (1, 1)): 1}


def test_a_sum_that_its_type_cannot_hold_is_an_error():
    with pytest.raises(FrescoError, match="VALUE_OVERFLOW"):
        result("SELECT w + 1 AS x FROM s.r", r=[(2**31 - 1, 0)])


def test_division_by_zero_is_an_error_but_not_in_a_branch_not_taken():
    with pytest.raises(FrescoError, match="VALUE_DIVISION_BY_ZERO"):
        result("SELECT w / x AS q FROM s.r", r=[(1, 0)])
    view = "SELECT CASE WHEN x <> 0 THEN w / x END AS q FROM s.r"
    assert result(view, r=[(1, 0), (1, 2)]) == {(None,): 1, (0.5,): 1}


def test_nan_equals_itself_and_zero_has_no_sign():
    view = "SELECT v, COUNT(*) AS n FROM s.d WHERE v > 1 OR v = 0 GROUP BY v"
    rows = [(math.nan,), (float("nan"),), (0.0,), (-0.0,), (-1.0,)]
    grouped = result(view, d=rows)
    assert grouped.pop((0.0, 2)) == 1
    ((value, count),) = grouped
    assert math.isnan(value) and count == 2


def test_a_remainder_has_the_dividends_sign():
    assert result("SELECT w % x AS m FROM s.r", r=[(-7, 3), (7, -3)]) == {(-1,): 1, (1,): 1}


def test_an_aggregate_of_a_signed_bag_is_refused():
    view = parse("SELECT SUM(w) AS s FROM s.r", RELATIONS)
    with pytest.raises(ValueError, match="negative"):
        evaluate(view, {"s.r": {(1, 1): -1}})
