"""The delta rules on small examples worked out by hand, and what an evaluator refuses."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.algebra.delta import clustering, delta, leaves
from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Before,
    Delta,
    Join,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch, ViewError
from streaming.scalars.expression import Col, Column, Lit, Schema
from streaming.scalars.functions import call
from streaming.scalars.types import delta_schema

R = Scan("s.r", (Column("W", "int"), Column("X", "int")))
S = Scan("s.s", (Column("X", "int"), Column("Y", "int")))
R_S = Join(R, S, ((1, 0),), None)
MONEY = "decimal(18,2)"
ENTRY = Scan("s.entry", (Column("account", "bigint"), Column("amount", MONEY)))
TOTAL = Aggregate(
    ENTRY, (), (Aggregation("sum", 1, "decimal(28,2)"),), (Column("t", "decimal(28,2)"),)
)
BALANCE = Aggregate(
    ENTRY,
    (0,),
    (Aggregation("sum", 1, "decimal(28,2)"), Aggregation("count_all", None, "bigint")),
    (Column("account", "bigint"), Column("b", "decimal(28,2)"), Column("n", "bigint")),
)


def rows(schema: Schema, *signed: tuple) -> tuple[pa.Table, ...]:
    """One piece of rows (number, multiplicity, values...)."""
    arrow = delta_schema(schema)
    columns = zip(*signed, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
    return (pa.table(arrays, schema=arrow),)


def step(evaluator: DuckEvaluator, first: int, last: int, **given: object) -> list[tuple]:
    """Evaluates and advances; the delta's rows in order."""
    truncates = given.pop("truncates", ())
    batch = Batch(first, last, {f"s.{k}": v for k, v in given.items()}, tuple(truncates))
    found = evaluator.evaluate(batch)
    evaluator.advance()
    return sorted(zip(*(c.to_pylist() for c in found.columns), strict=True), key=repr)


def test_the_rule_of_a_join_has_the_three_terms() -> None:
    plan = delta(R_S, frozenset((R, S)))
    terms = (
        Join(Delta(R), Before(S), ((1, 0),), None),
        Join(Before(R), Delta(S), ((1, 0),), None),
        Join(Delta(R), Delta(S), ((1, 0),), None),
    )
    assert plan == Union(terms)


def test_only_the_terms_of_changed_relations_are_there() -> None:
    assert delta(R_S, frozenset((R,))) == Join(Delta(R), Before(S), ((1, 0),), None)
    assert delta(R_S, frozenset()) is None


def test_a_pair_of_new_rows_stands_from_the_larger_number() -> None:
    evaluator = DuckEvaluator(R_S)
    assert step(evaluator, 0, 0) == []
    found = step(evaluator, 1, 9, r=rows(R.schema, (3, 1, 1, 2)), s=rows(S.schema, (7, 1, 2, 3)))
    assert found == [(7, 1, 1, 2, 2, 3)]


def test_rows_of_a_join_that_meet_what_can_fail_keep_their_multiplicity_in_a_union() -> None:
    """UNION ALL goes by place: the rows of a table made apart stood with their multiplicity last."""
    share = call("/", Col(0, "int"), Col(1, "int"))
    tested = Select(R_S, call(">", share, Lit(0.0, share.type)))
    evaluator = DuckEvaluator(Union((tested, R_S)))
    found = step(evaluator, 0, 5, r=rows(R.schema, (3, 1, 7, 2)), s=rows(S.schema, (4, 1, 2, 9)))
    assert found == [(4, 2, 7, 2, 2, 9)]


def test_a_pair_that_parts_again_inside_a_batch_leaves_when_the_first_of_its_rows_does() -> None:
    evaluator = DuckEvaluator(R_S)
    step(evaluator, 0, 0)
    both = rows(R.schema, (1, 1, 1, 2), (5, -1, 1, 2))
    other = rows(S.schema, (2, 1, 2, 3), (6, -1, 2, 3))
    assert step(evaluator, 1, 9, r=both, s=other) == [(2, 1, 1, 2, 2, 3), (5, -1, 1, 2, 2, 3)]


def test_duplicates_multiply_in_a_join() -> None:
    evaluator = DuckEvaluator(R_S)
    step(evaluator, 0, 0, r=rows(R.schema, (0, 2, 1, 2)))
    assert step(evaluator, 1, 1, s=rows(S.schema, (1, 3, 2, 9))) == [(1, 6, 1, 2, 2, 9)]


def test_equal_leaves_of_a_self_join_share_their_state() -> None:
    assert leaves(Join(R, R, ((1, 0),), None)) == (R,)


def test_an_aggregate_without_keys_has_its_row_from_the_first_number_over_nothing() -> None:
    evaluator = DuckEvaluator(TOTAL)
    assert step(evaluator, 0, 0) == [(0, 1, None)]
    found = step(evaluator, 1, 2, entry=rows(ENTRY.schema, (1, 1, 7, Decimal("5.00"))))
    assert found == [(1, -1, None), (1, 1, Decimal("5.00"))]


def test_a_view_added_later_has_its_first_row_at_its_own_first_number() -> None:
    assert step(DuckEvaluator(TOTAL), 41, 41) == [(41, 1, None)]


def test_a_transfer_between_two_entries_never_moves_the_total() -> None:
    evaluator = DuckEvaluator(TOTAL)
    step(evaluator, 0, 0, entry=rows(ENTRY.schema, (0, 1, 7, Decimal("5.00"))))
    moved = rows(ENTRY.schema, (1, 1, 7, Decimal("-3.00")), (1, 1, 8, Decimal("3.00")))
    assert step(evaluator, 1, 1, entry=moved) == []


def test_each_number_shows_the_group_as_it_was_then() -> None:
    evaluator = DuckEvaluator(BALANCE)
    step(evaluator, 0, 0)
    one, two = Decimal("1.00"), Decimal("2.00")
    found = step(
        evaluator, 1, 3, entry=rows(ENTRY.schema, (1, 1, 7, one), (2, 1, 7, one), (3, -1, 7, one))
    )
    assert found == [
        (1, 1, 7, one, 1),
        (2, -1, 7, one, 1),
        (2, 1, 7, two, 2),
        (3, -1, 7, two, 2),
        (3, 1, 7, one, 1),
    ]


def test_a_group_whose_last_row_leaves_vanishes_and_a_sum_of_nulls_is_null() -> None:
    evaluator = DuckEvaluator(BALANCE)
    assert step(evaluator, 0, 0, entry=rows(ENTRY.schema, (0, 1, 7, None))) == [(0, 1, 7, None, 1)]
    gone = rows(ENTRY.schema, (1, -1, 7, None))
    assert step(evaluator, 1, 1, entry=gone) == [(1, -1, 7, None, 1)]


def test_null_is_a_group_like_any_other_and_joins_nothing() -> None:
    evaluator = DuckEvaluator(BALANCE)
    step(evaluator, 0, 0, entry=rows(ENTRY.schema, (0, 1, None, Decimal("1.00"))))
    found = step(evaluator, 1, 1, entry=rows(ENTRY.schema, (1, 1, None, Decimal("1.00"))))
    assert found == [(1, -1, None, Decimal("1.00"), 1), (1, 1, None, Decimal("2.00"), 2)]
    joined = DuckEvaluator(R_S)
    step(joined, 0, 0, r=rows(R.schema, (0, 1, 1, None)))
    assert step(joined, 1, 1, s=rows(S.schema, (1, 1, None, 3))) == []


def test_a_truncate_takes_everything_that_stood_before_its_number() -> None:
    evaluator = DuckEvaluator(R)
    step(evaluator, 0, 0, r=rows(R.schema, (0, 2, 1, 1)))
    after = rows(R.schema, (1, 1, 2, 2), (2, 1, 3, 3))
    found = step(evaluator, 1, 2, r=after, truncates=[(2, "s.r")])
    assert found == [(1, 1, 2, 2), (2, -1, 2, 2), (2, -2, 1, 1), (2, 1, 3, 3)]


def test_a_retraction_without_its_row_names_relation_number_and_row() -> None:
    evaluator = DuckEvaluator(BALANCE)
    step(evaluator, 0, 0, entry=rows(ENTRY.schema, (0, 1, 7, Decimal("1.00"))))
    twice = rows(
        ENTRY.schema, (4, -1, 7, Decimal("1.00")), (5, -1, 7, Decimal("1.00")), (6, 1, 7, None)
    )
    with pytest.raises(ViewError, match=r"transaction 5 takes a row out of s\.entry") as caught:
        evaluator.evaluate(Batch(1, 9, {"s.entry": twice}))
    assert caught.value.code == "VIEW_RETRACTION_MISSING"
    assert caught.value.number == 5
    assert step(evaluator, 1, 1, entry=rows(ENTRY.schema, (1, -1, 7, Decimal("1.00")))) == [
        (1, -1, 7, Decimal("1.00"), 1)
    ]


def test_a_row_retracted_before_it_comes_is_missing_although_the_batch_brings_it_later() -> None:
    evaluator = DuckEvaluator(R)
    step(evaluator, 0, 0)
    with pytest.raises(ViewError) as caught:
        evaluator.evaluate(Batch(1, 3, {"s.r": rows(R.schema, (1, -1, 1, 1), (3, 1, 1, 1))}))
    assert caught.value.number == 1


def test_an_arithmetic_error_is_told_with_its_first_number() -> None:
    share = call("/", Col(0, "int"), Col(1, "int"))
    view = Project(R, (share,), (Column("q", share.type),))
    evaluator = DuckEvaluator(view)
    step(evaluator, 0, 0)
    with pytest.raises(ViewError) as caught:
        evaluator.evaluate(
            Batch(1, 900, {"s.r": rows(R.schema, (5, 1, 1, 1), (617, 1, 1, 0), (800, 1, 1, 0))})
        )
    assert (caught.value.code, caught.value.number) == ("VIEW_ARITHMETIC", 617)
    assert caught.value.where == "number 617, row of s.r: W = 1, X = 0"
    assert step(evaluator, 1, 1, r=rows(R.schema, (1, 1, 6, 3)))[0][:2] == (1, 1)


def test_a_sum_that_its_type_cannot_hold_is_an_arithmetic_error() -> None:
    view = Aggregate(
        Scan("s.b", (Column("v", "bigint"),)),
        (),
        (Aggregation("sum", 0, "bigint"),),
        (Column("t", "bigint"),),
    )
    evaluator = DuckEvaluator(view)
    most = 2**63 - 1
    assert step(evaluator, 0, 0, b=rows(view.child.schema, (0, 1, most)))[0][2] == most
    with pytest.raises(ViewError) as caught:
        evaluator.evaluate(Batch(1, 2, {"s.b": rows(view.child.schema, (2, 1, 1))}))
    assert (caught.value.code, caught.value.number) == ("VIEW_ARITHMETIC", 2)
    assert caught.value.where == "number 2, row of s.b: v = 1"


def test_of_many_rows_the_one_without_a_value_is_named_and_none_where_only_several_fail() -> None:
    share = call("/", Col(0, "int"), Col(1, "int"))
    view = Project(R, (share,), (Column("q", share.type),))
    good = [(1, 1, at, at + 1) for at in range(1000)]
    with pytest.raises(ViewError) as caught:
        DuckEvaluator(view).evaluate(
            Batch(0, 1, {"s.r": rows(R.schema, *good[:613], (1, 1, 7, 0), *good[613:])})
        )
    assert caught.value.where == "number 1, row of s.r: W = 7, X = 0"
    most = 2**62
    total = Aggregate(
        Scan("s.b", (Column("v", "bigint"),)),
        (),
        (Aggregation("sum", 0, "bigint"),),
        (Column("t", "bigint"),),
    )
    with pytest.raises(ViewError) as caught:
        DuckEvaluator(total).evaluate(
            Batch(0, 1, {"s.b": rows(total.child.schema, *[(1, 1, most)] * 4)})
        )
    assert caught.value.where == "number 1"


def test_sums_of_doubles_retract_the_very_row_they_gave_out() -> None:
    relation = Scan("s.d", (Column("k", "int"), Column("v", "double")))
    view = Aggregate(
        relation,
        (0,),
        (Aggregation("sum", 1, "double"),),
        (Column("k", "int"), Column("t", "double")),
    )
    evaluator = DuckEvaluator(view)
    given = [0.1, 0.2, 1e16, -1e16, 0.3]
    standing = step(evaluator, 0, 0, d=rows(relation.schema, (0, 1, 1, 0.7)))[0][3]
    for number, value in enumerate(given, start=1):
        found = step(evaluator, number, number, d=rows(relation.schema, (number, 1, 1, value)))
        for row in found:
            if row[1] == -1:
                assert row[3] == standing
        standing = next((row[3] for row in found if row[1] == 1), standing)
    in_order = sum(sorted([0.7, *given]))
    assert standing == in_order


def test_parquet_rows_are_read_column_by_column_and_other_numbers_are_skipped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it's here.parquet"
    pq.write_table(rows(R.schema, (1, 1, 1, 1), (2, 1, 2, 2), (9, 1, 9, 9))[0], path)
    evaluator = DuckEvaluator(Project(R, (Col(0, "int"),), (Column("W", "int"),)))
    step(evaluator, 0, 0)
    assert step(evaluator, 1, 2, r=(path,)) == [(1, 1, 1), (2, 1, 2)]


def test_two_branches_told_apart_by_a_constant_need_no_netting() -> None:
    def branch(tag: str, relation: str) -> Tree:
        scan = Scan(relation, ENTRY.schema)
        schema = (Column("db", "string"), *ENTRY.schema)
        tagged = Project(scan, (Lit(tag, "string"), Col(0, "bigint"), Col(1, MONEY)), schema)
        summed = Aggregation("sum", 2, "decimal(28,2)")
        return Aggregate(tagged, (0, 1), (summed,), (*schema[:2], Column("b", "decimal(28,2)")))

    from streaming.engines.netting import is_net

    view = Union((branch("north", "s.n"), branch("south", "s.s")))
    plan = delta(view, frozenset(leaves(view)))
    assert plan is not None and is_net(plan)
    same = Union((branch("north", "s.n"), branch("north", "s.s")))
    plan = delta(same, frozenset(leaves(same)))
    assert plan is not None and not is_net(plan)


def test_batches_that_change_the_same_leaves_run_the_same_program() -> None:
    evaluator = DuckEvaluator(R_S)
    step(evaluator, 0, 0, r=rows(R.schema, (0, 1, 1, 1)))
    programs = []
    for number in (1, 2):
        evaluator.evaluate(Batch(number, number, {"s.r": rows(R.schema, (number, 1, 1, 2))}))
        assert evaluator._pending is not None
        programs.append(evaluator._pending[0])
        evaluator.advance()
    assert programs[0] is programs[1] and programs[0].answer is not None


def test_a_leaf_is_clustered_by_what_it_is_joined_on_else_grouped_on() -> None:
    assert clustering(R_S) == {R: (1,), S: (0,)}
    assert clustering(BALANCE) == {ENTRY: (0,)}
    selected = Select(ENTRY, call("isnotnull", Col(0, "bigint")))
    assert clustering(Union((selected, ENTRY))) == {selected: (), ENTRY: ()}
