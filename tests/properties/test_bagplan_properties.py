"""The delta rules equal recomputation at every number, without an engine: plans over bags (DESIGN 4).

Views are random expressions of every operator: select, project, join, self-join, union, monus,
distinct and aggregates in any nesting; histories are cut into random batches.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming.algebra import bag
from streaming.algebra import delta as rules
from streaming.algebra.bag import Bag, Numbered, added, evaluate
from streaming.algebra.delta import leaves
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import Distinct, Monus, Project, Scan, Tree, relations
from streaming.scalars.expression import Col
from tests.properties.delta_trees import RELATIONS, History, histories, views
from tests.properties.test_delta_properties import cut

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
EMPTY: dict[str, Bag] = {name: {} for name in RELATIONS}


def changes(history: History, relation: str, first: int, last: int) -> Numbered:
    """The signed rows of the numbers, truncates expanded: what one state has more than the last."""
    found: Numbered = {}
    for number in range(first, last + 1):
        old = history.states[number - 1][relation] if number else Counter()
        new = history.states[number][relation]
        for row in {*old, *new}:
            if count := new[row] - old[row]:
                found[number, row] = count
    return found


def check(view: Tree, history: History, data: st.DataObject) -> None:
    operators = NumberedBags()
    standing: Bag = {}
    for first, last in cut(data, history.last):
        before = history.states[first - 1] if first else EMPTY
        deltas, bags = {}, {}
        for leaf in leaves(view):
            (relation,) = relations(leaf)
            bags[leaf] = evaluate(leaf, {relation: dict(before[relation])})
            rows = operators.evaluate(leaf, {relation: changes(history, relation, first, last)})
            if rows:
                deltas[leaf] = rows
        plan = rules.delta(view, frozenset(deltas), 0 if first == 0 else None)
        found = {} if plan is None else bag.changes(plan, deltas, bags)
        for number in range(first, last + 1):
            standing = added(standing, {row: c for (n, row), c in found.items() if n == number})
            bags_now = {name: dict(rows) for name, rows in history.states[number].items()}
            assert standing == evaluate(view, bags_now), f"at number {number}"


@settings(max_examples=400, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(), history=histories(), data=st.data())
def test_a_plan_over_bags_equals_recomputation_at_every_number(
    view: Tree, history: History, data: st.DataObject
) -> None:
    check(view, history, data)


def column(relation: str) -> Tree:
    """A relation's first column alone, so that rows repeat."""
    scan = Scan(relation, RELATIONS[relation])
    return Project(scan, (Col(0, scan.schema[0].type),), scan.schema[:1])


@pytest.mark.parametrize(
    "view",
    [Distinct(column("north.entry")), Monus(column("north.entry"), column("south.entry"))],
    ids=["distinct", "monus"],
)
def test_a_rule_that_takes_the_operator_for_a_linear_one_is_found(
    view: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the tests."""
    right = rules.delta

    def wrong(tree: Tree, changed: frozenset[Tree], start: int | None = None) -> Tree | None:
        linear = isinstance(tree, Distinct | Monus)
        return right(tree.children[0] if linear else tree, changed, start)

    monkeypatch.setattr(rules, "delta", wrong)
    found = settings(
        max_examples=100, deadline=None, phases=[Phase.generate], suppress_health_check=SLOW
    )(given(view=st.just(view), history=histories(), data=st.data())(check))
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        found()
