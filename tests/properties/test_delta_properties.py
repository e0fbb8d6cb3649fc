"""The delta rules equal recomputation at every number (DESIGN 4; differential-dataflow's way of
testing).

Views and histories are random; a history is cut into random batches, between which the state is now
and then written out and taken over by a fresh evaluator, or rebuilt from an older checkpoint and a
replay.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming.algebra import delta as rules
from streaming.algebra.bag import evaluate
from streaming.algebra.tree import Join, Scan, Tree, Union
from streaming.engines.duck import duck_evaluator
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.scalars.expression import Schema
from tests.properties.delta_trees import RELATIONS, History, histories, views, with_doubles

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
DOUBLES = with_doubles(RELATIONS)


def batch_of(history: History, relations: dict[str, Schema], first: int, last: int) -> Batch:
    tables = {name: history.table(name, schema, first, last) for name, schema in relations.items()}
    truncates = [(n, name) for n in range(first, last + 1) for name in history.truncates[n]]
    given_rows = {name: (table,) for name, table in tables.items() if table.num_rows}
    return Batch(first, last, given_rows, tuple(truncates))


def recomputed(view: Tree, history: History, number: int) -> Counter:
    bags = {name: dict(bag) for name, bag in history.states[number].items()}
    return Counter(evaluate(view, bags))


def apply(view: Counter, delta: pa.Table, number: int) -> None:
    """Adds the delta's rows of one number to the view's bag."""
    for row in zip(*(column.to_pylist() for column in delta.columns), strict=True):
        if row[0] == number:
            view[row[2:]] += row[1]
            if view[row[2:]] == 0:
                del view[row[2:]]


def assert_net(delta: pa.Table) -> None:
    seen = Counter(
        (row[0], *row[2:]) for row in zip(*(c.to_pylist() for c in delta.columns), strict=True)
    )
    assert all(count == 1 for count in seen.values())
    assert 0 not in delta.column(1).to_pylist()


def fresh(evaluator: DuckEvaluator) -> DuckEvaluator:
    """Another evaluator that takes over the state through files."""
    other = DuckEvaluator(evaluator.tree, threads=1)
    assert evaluator.number is not None
    with tempfile.TemporaryDirectory() as folder:
        names = evaluator.export(Path(folder))
        other.load([[Path(folder) / n for n in leaf] for leaf in names], evaluator.number)
    return other


def cut(draw: st.DataObject, last: int) -> list[tuple[int, int]]:
    ends = draw.draw(st.sets(st.integers(0, last)), label="batch ends") | {last}
    batches, first = [], 0
    for end in sorted(ends):
        batches.append((first, end))
        first = end + 1
    return batches


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(), history=histories(), data=st.data())
def test_a_view_equals_recomputation_at_every_number(
    view: Tree, history: History, data: st.DataObject
) -> None:
    check(view, history, data)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(), history=histories(), data=st.data())
def test_the_same_where_64_bits_do_not_suffice(
    view: Tree, history: History, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duck_evaluator, "cumulate", lambda aggregate, rows: None)
        check(view, history, data)


def check(view: Tree, history: History, data: st.DataObject) -> None:
    evaluator, bag = DuckEvaluator(view, threads=1), Counter()
    for first, last in cut(data, history.last):
        delta = evaluator.evaluate(batch_of(history, RELATIONS, first, last))
        assert_net(delta)
        for number in range(first, last + 1):
            apply(bag, delta, number)
            assert bag == recomputed(view, history, number), f"at number {number}"
        evaluator.advance()
        if data.draw(st.integers(0, 3), label="restart") == 0:
            evaluator = fresh(evaluator)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(DOUBLES, depth=2), history=histories(DOUBLES), data=st.data())
def test_sums_of_doubles_equal_recomputation_within_rounding_and_retract_exactly(
    view: Tree, history: History, data: st.DataObject
) -> None:
    evaluator, bag = DuckEvaluator(view, threads=1), Counter()
    for first, last in cut(data, history.last):
        delta = evaluator.evaluate(batch_of(history, DOUBLES, first, last))
        for number in range(first, last + 1):
            apply(bag, delta, number)
            assert all(count > 0 for count in bag.values()), f"at number {number}"
            assert close(bag, recomputed(view, history, number)), f"at number {number}"
        evaluator.advance()
        if data.draw(st.integers(0, 3), label="restart") == 0:
            evaluator = fresh(evaluator)


def close(left: Counter, right: Counter) -> bool:
    """Equal bags, doubles compared within the rounding of a sum of at most 1e16."""
    one, other = (sorted(bag.elements(), key=repr_rounded) for bag in (left, right))
    return len(one) == len(other) and all(map(row_close, one, other))


def repr_rounded(row: tuple) -> str:
    return repr([round(v) if isinstance(v, float) else v for v in row])


def row_close(left: tuple, right: tuple) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-12, abs_tol=8) if isinstance(a, float) else a == b
        for a, b in zip(left, right, strict=True)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(), history=histories(), data=st.data())
def test_a_checkpoint_and_a_replay_give_the_state_back(
    view: Tree, history: History, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, history.last), label="checkpoint")
    end = data.draw(st.integers(at, history.last), label="end of replay")
    going_on = DuckEvaluator(view, threads=1)
    going_on.evaluate(batch_of(history, RELATIONS, 0, at))
    going_on.advance()
    restored = fresh(going_on)
    for number in range(at + 1, end + 1):
        restored.replay(batch_of(history, RELATIONS, number, number))
        going_on.evaluate(batch_of(history, RELATIONS, number, number))
        going_on.advance()
    if end < history.last:
        rest = batch_of(history, RELATIONS, end + 1, history.last)
        assert sorted(map(repr, restored.evaluate(rest).to_pylist())) == sorted(
            map(repr, going_on.evaluate(rest).to_pylist())
        )


def test_a_rule_without_the_term_of_two_deltas_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the tests: random histories over a join show the missing dL x dR."""
    right = rules._join

    def wrong(*arguments: Any) -> Tree | None:
        plan = right(*arguments)
        return Union(plan.children[:-1]) if isinstance(plan, Union) else plan

    monkeypatch.setattr(rules, "_join", wrong)
    account, entry = (Scan(name, RELATIONS[name]) for name in ("north.account", "north.entry"))
    view = st.just(Join(account, entry, ((0, 0),), None))
    found = settings(
        max_examples=100, deadline=None, phases=[Phase.generate], suppress_health_check=SLOW
    )(given(view=view, history=histories(), data=st.data())(check))
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        found()
