"""Simulated replicas run the delta plan, and whoever judges them does not (DESIGN 4, 5).

Each rule is broken in turn and the histories show it: a join without one of its terms, a pair under the
wrong number, a group whose old row does not go, a row counted as it stood before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streaming.algebra import bag as bags
from streaming.algebra import delta
from streaming.algebra.bag import Numbered
from streaming.algebra.tree import (
    Aggregate,
    Changes,
    Delta,
    Distinct,
    Join,
    Tree,
    Union,
    walk,
)
from streaming.errors import FrescoError
from streaming.simulator import bag_evaluator
from streaming.simulator.case import Case
from streaming.simulator.judging import holds, run
from streaming.simulator.small_views import ViewSet, catalog
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level
from tests.simulation.cells import forget

CHAIN = Case(scenario="local", transactions=5, batch=4, vary=True)
OPERATORS = replace(CHAIN, views="operators", relations="bag")
COMPLETE = Level.COMPLETE
HISTORIES = 60


# Rules, broken ------------------------------------------------------------------------------------


def both_changed(plan: Tree) -> bool:
    return isinstance(plan, Join) and plan.left.has_numbers and plan.right.has_numbers


def terms(plan: Tree | None) -> tuple[Tree, ...]:
    """Of a join's rule."""
    if plan is None:
        return ()
    return plan.children if isinstance(plan, Union) else (plan,)


def join_without(drops: Callable[[Join], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    right = delta._join

    def broken(*arguments: Any) -> Tree | None:
        *_, start = arguments
        kept = [p for p in terms(right(*arguments)) if start is not None or not drops(p)]
        return delta._sum(kept)

    return lambda patch: patch.setattr(delta, "_join", broken)


def doubled_pairs(patch: pytest.MonkeyPatch) -> None:
    """dL x R_after in place of dL x R_before: pairs of new rows stand twice."""
    right = delta._join

    def broken(*arguments: Any) -> Tree | None:
        parts = terms(right(*arguments))
        return delta._sum([*parts, *filter(both_changed, parts)])

    patch.setattr(delta, "_join", broken)


def pairs_under(number: Callable[[int, int], int]) -> Callable[[pytest.MonkeyPatch], None]:
    """Pairs under another number than the larger one; 0 is that of rows that stood before."""
    right = bags._joined

    def broken(tree: Join, left: Numbered, other: Numbered) -> Numbered:
        found: Counter[tuple[int, Any]] = Counter()
        for a in {n for n, _ in left}:
            for b in {n for n, _ in other}:
                lefts = {k: count for k, count in left.items() if k[0] == a}
                others = {k: count for k, count in other.items() if k[0] == b}
                for (_, row), count in right(tree, lefts, others).items():
                    found[number(a, b), row] += count
        return {k: count for k, count in found.items() if count}

    return lambda patch: patch.setattr(bags, "_joined", broken)


def old_group_stays(patch: pytest.MonkeyPatch) -> None:
    """The group's new row goes in and its old one does not go out."""
    right = bags._changes

    def broken(plan: Changes, leaf: bags.Leaf) -> Numbered:
        found = right(plan, leaf)
        if isinstance(plan.operator, Aggregate):
            return {key: count for key, count in found.items() if count > 0}
        return found

    patch.setattr(bags, "_changes", broken)


def counted_once_for_a_batch(patch: pytest.MonkeyPatch) -> None:
    """What is not linear changes at the batch's last number instead of at each."""
    right = bags._changes

    def broken(plan: Changes, leaf: bags.Leaf) -> Numbered:
        found = right(plan, leaf)
        last, net = max((number for number, _ in found), default=0), Counter[tuple[int, Any]]()
        for (_, row), count in found.items():
            net[last, row] += count
        return {key: count for key, count in net.items() if count}

    patch.setattr(bags, "_changes", broken)


def distinct_is_linear(patch: pytest.MonkeyPatch) -> None:
    right = delta.delta

    def broken(tree: Tree, changed: frozenset[Tree], start: int | None = None) -> Tree | None:
        if isinstance(tree, Distinct) and start is None:
            return broken(tree.child, changed)
        return right(tree, changed, start)

    patch.setattr(delta, "delta", broken)


def no_group_before(patch: pytest.MonkeyPatch) -> None:
    """A join sees an aggregate's rows before the batch as none."""
    right = bags.aggregated

    def broken(tree: Aggregate, rows: bags.Bag) -> bags.Bag:
        return {} if rows and len(rows) > 1 else right(tree, rows)

    patch.setattr(bags, "aggregated", broken)


def one_side_only(patch: pytest.MonkeyPatch) -> None:
    """EXCEPT ALL does not hear of its right side's changes."""
    right = delta.delta

    def broken(tree: Tree, changed: frozenset[Tree], start: int | None = None) -> Tree | None:
        plan = right(tree, changed, start)
        if isinstance(plan, Changes) and len(plan.inputs) == 2 and start is None:
            left, _ = plan.inputs
            return None if left is None else replace(plan, inputs=(left, None))
        return plan

    patch.setattr(delta, "delta", broken)


def truncate_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A truncate's rows do not become retractions."""
    right = bag_evaluator.BagEvaluator._leaf_delta

    def broken(self: Any, *arguments: Any) -> Any:
        found, bag = right(self, *arguments)
        return {key: count for key, count in found.items() if count > 0}, bag

    patch.setattr(bag_evaluator.BagEvaluator, "_leaf_delta", broken)


def lost_pair(patch: pytest.MonkeyPatch) -> None:
    """A join loses a pair, wherever it joins; only who does not use it can tell."""
    right = bags._joined

    def broken(*arguments: Any) -> Numbered:
        found = right(*arguments)
        return dict(list(found.items())[:-1]) if len(found) > 1 else found

    patch.setattr(bags, "_joined", broken)


@dataclass(frozen=True)
class Mutation:
    breaks: Callable[[pytest.MonkeyPatch], None]
    case: Case


MUTATIONS = {
    "no dL x dR": Mutation(join_without(both_changed), CHAIN),
    "no dL x R": Mutation(join_without(lambda p: not p.right.has_numbers), CHAIN),
    "no L x dR": Mutation(join_without(lambda p: not p.left.has_numbers), CHAIN),
    "dL x dR twice": Mutation(doubled_pairs, CHAIN),
    "the smaller number": Mutation(
        pairs_under(lambda a, b: min(a, b) if a and b else max(a, b)), CHAIN
    ),
    "the left row's number": Mutation(pairs_under(lambda a, b: a or b), CHAIN),
    "self-join without dL x dR": Mutation(join_without(both_changed), replace(CHAIN, views="self")),
    "the old group stays": Mutation(old_group_stays, replace(CHAIN, views="total")),
    "groups by batch": Mutation(counted_once_for_a_batch, replace(CHAIN, views="total")),
    "duplicates and differences by batch": Mutation(counted_once_for_a_batch, OPERATORS),
    "DISTINCT as if linear": Mutation(distinct_is_linear, OPERATORS),
    "no group before the batch": Mutation(no_group_before, OPERATORS),
    "EXCEPT ALL of one side": Mutation(one_side_only, OPERATORS),
    "a pair lost by bags": Mutation(lost_pair, CHAIN),
    "a pair lost by the answers' engine": Mutation(lost_pair, replace(CHAIN, modes=("sweep",))),
    "truncate without retractions": Mutation(truncate_forgotten, replace(CHAIN, truncates=0.2)),
}


def below_complete(case: Case) -> int | None:
    """The first seed whose history is not complete, or which a machine refuses."""
    for seed in range(HISTORIES):
        try:
            if not holds(case, simulate(case, seed), COMPLETE):
                return seed
        except (FrescoError, ValueError):  # a row below zero
            return seed
    return None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_shows_in_some_history(broken_rules: pytest.MonkeyPatch, name: str) -> None:
    mutation = MUTATIONS[name]
    assert below_complete(mutation.case) is None
    forget()
    mutation.breaks(broken_rules)
    assert below_complete(mutation.case) is not None, f"{name}: nothing shows in {HISTORIES}"


def test_a_replica_makes_one_plan_for_a_message_of_several_numbers() -> None:
    """Which rules run: dL x R, L x dR and dL x dR, for messages that change several relations."""
    seen: set[type] = set()
    pairs = 0
    for seed in range(20):
        simulate(CHAIN, seed)
    for tree in _trees("chain"):
        for plan in bag_evaluator.rules_of(tree).plans.values():
            for node in () if plan is None else walk(plan):
                seen.add(type(node))
                pairs += both_changed(node)
    assert {Join, Union, Delta} <= seen and pairs


def _trees(views: ViewSet) -> list[Tree]:
    return [view.tree for view in catalog(views, "first", 3).views]


def test_a_history_with_a_broken_rule_says_what_stands_and_what_should(
    broken_rules: pytest.MonkeyPatch,
) -> None:
    MUTATIONS["no dL x dR"].breaks(broken_rules)
    seed = below_complete(CHAIN)
    assert seed is not None
    outcome = run(CHAIN, seed)
    assert outcome.witness is not None and "expected one of" in outcome.witness, f"seed {seed}"
