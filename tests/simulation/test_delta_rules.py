"""Simulated replicas run the delta plan, and whoever judges them does not (DESIGN 4, 5).

Each rule is broken in turn and the histories show it: a join without one of its terms, a pair under the
wrong number, a group whose old row does not go, a row counted as it stood before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streaming.algebra import bag as bags
from streaming.algebra import delta, numbered
from streaming.algebra.delta import Changes, Delta, Match, Plan, Recount, Sum
from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Tree,
)
from streaming.engines import bag_plans
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


def both_changed(plan: Plan) -> bool:
    return (
        isinstance(plan, Match) and delta.has_numbers(plan.left) and delta.has_numbers(plan.right)
    )


def join_without(drops: Callable[[Match], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    right = delta._join

    def broken(tree: Join, changed: frozenset[Tree], initial: bool) -> Plan | None:
        plan = right(tree, changed, initial)
        parts = plan.parts if isinstance(plan, Sum) else (plan,)
        kept = [p for p in parts if initial or not (isinstance(p, Match) and drops(p))]
        return delta._sum(kept)

    return lambda patch: patch.setattr(delta, "_join", broken)


def doubled_pairs(patch: pytest.MonkeyPatch) -> None:
    """dL x R_after in place of dL x R_before: pairs of new rows stand twice."""
    right = delta._join

    def broken(tree: Join, changed: frozenset[Tree], initial: bool) -> Plan | None:
        plan = right(tree, changed, initial)
        parts = plan.parts if isinstance(plan, Sum) else (plan,)
        return delta._sum([*parts, *(p for p in parts if p is not None and both_changed(p))])

    patch.setattr(delta, "_join", broken)


def smaller_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        bag_plans, "max", lambda a, b: b if a < 0 else a if b < 0 else min(a, b), raising=False
    )


def number_of_the_left_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bag_plans, "max", lambda a, b: b if a < 0 else a, raising=False)


def old_group_stays(patch: pytest.MonkeyPatch) -> None:
    """The group's new row goes in and its old one does not go out."""
    right = bag_plans._Batch.changes

    def broken(self: Any, plan: Plan) -> dict[Any, int]:
        found = right(self, plan)
        if isinstance(plan, Changes):
            return {key: count for key, count in found.items() if count > 0}
        return found

    patch.setattr(bag_plans._Batch, "changes", broken)


def counted_once_for_a_batch(patch: pytest.MonkeyPatch) -> None:
    """What is not linear changes at the batch's last number instead of at each."""
    right = bag_plans._Batch.changes

    def broken(self: Any, plan: Plan) -> dict[Any, int]:
        found = right(self, plan)
        if not isinstance(plan, Recount | Changes) or not found:
            return found
        last, net = max(number for number, _ in found), Counter[tuple[int, Any]]()
        for (_, row), count in found.items():
            net[last, row] += count
        return {key: count for key, count in net.items() if count}

    patch.setattr(bag_plans._Batch, "changes", broken)


def distinct_is_linear(patch: pytest.MonkeyPatch) -> None:
    right = delta.delta

    def broken(tree: Tree, changed: frozenset[Tree], initial: bool = False) -> Plan | None:
        if isinstance(tree, Distinct) and not initial:
            return broken(tree.child, changed)
        return right(tree, changed, initial)

    patch.setattr(delta, "delta", broken)


def no_group_before(patch: pytest.MonkeyPatch) -> None:
    """A join sees an aggregate's rows before the batch as none."""
    right = bags.aggregated

    def broken(tree: Aggregate, rows: bags.Bag) -> bags.Bag:
        return {} if rows and len(rows) > 1 else right(tree, rows)

    patch.setattr(bag_plans.bags, "aggregated", broken)


def one_side_only(patch: pytest.MonkeyPatch) -> None:
    """EXCEPT ALL does not hear of its right side's changes."""
    right = delta.delta

    def broken(tree: Tree, changed: frozenset[Tree], initial: bool = False) -> Plan | None:
        plan = right(tree, changed, initial)
        if isinstance(plan, Recount) and len(plan.changes) == 2 and not initial:
            left, _ = plan.changes
            return None if left is None else replace(plan, changes=(left, None))
        return plan

    patch.setattr(delta, "delta", broken)


def truncate_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A truncate's rows do not become retractions."""
    right = bag_evaluator.BagEvaluator._leaf_delta

    def broken(self: Any, *arguments: Any) -> Any:
        found, bag = right(self, *arguments)
        return {key: count for key, count in found.items() if count > 0}, bag

    patch.setattr(bag_evaluator.BagEvaluator, "_leaf_delta", broken)


def lost_pairs(module: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """An engine's join loses a pair, wherever it joins; only who does not use it can tell."""
    right = getattr(module, name)

    def broken(*arguments: Any) -> dict[Any, int]:
        found = right(*arguments)
        return dict(list(found.items())[:-1]) if len(found) > 1 else found

    return lambda patch: patch.setattr(module, name, broken)


@dataclass(frozen=True)
class Mutation:
    breaks: Callable[[pytest.MonkeyPatch], None]
    case: Case


MUTATIONS = {
    "no dL x dR": Mutation(join_without(both_changed), CHAIN),
    "no dL x R": Mutation(join_without(lambda p: not delta.has_numbers(p.right)), CHAIN),
    "no L x dR": Mutation(join_without(lambda p: not delta.has_numbers(p.left)), CHAIN),
    "dL x dR twice": Mutation(doubled_pairs, CHAIN),
    "the smaller number": Mutation(smaller_number, CHAIN),
    "the left row's number": Mutation(number_of_the_left_row, CHAIN),
    "self-join without dL x dR": Mutation(join_without(both_changed), replace(CHAIN, views="self")),
    "the old group stays": Mutation(old_group_stays, replace(CHAIN, views="total")),
    "groups by batch": Mutation(counted_once_for_a_batch, replace(CHAIN, views="total")),
    "duplicates and differences by batch": Mutation(counted_once_for_a_batch, OPERATORS),
    "DISTINCT as if linear": Mutation(distinct_is_linear, OPERATORS),
    "no group before the batch": Mutation(no_group_before, OPERATORS),
    "EXCEPT ALL of one side": Mutation(one_side_only, OPERATORS),
    "a pair lost by bags": Mutation(lost_pairs(bags, "joined"), CHAIN),
    "a pair lost by the answers' engine": Mutation(
        lost_pairs(numbered, "_joined"), replace(CHAIN, modes=("sweep",))
    ),
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
            for node in () if plan is None else _below(plan):
                seen.add(type(node))
                pairs += both_changed(node)
    assert {Match, Sum, Delta} <= seen and pairs


def _trees(views: ViewSet) -> list[Tree]:
    return [view.tree for view in catalog(views, "first", 3).views]


def _below(plan: Plan) -> Iterator[Plan]:
    yield plan
    match plan:
        case Sum():
            below: tuple[Plan, ...] = plan.parts
        case Match():
            below = (plan.left, plan.right)
        case _:
            below = (plan.child,) if hasattr(plan, "child") and plan.child is not None else ()
    for one in below:
        yield from _below(one)


def test_a_history_with_a_broken_rule_says_what_stands_and_what_should(
    broken_rules: pytest.MonkeyPatch,
) -> None:
    MUTATIONS["no dL x dR"].breaks(broken_rules)
    seed = below_complete(CHAIN)
    assert seed is not None
    outcome = run(CHAIN, seed)
    assert outcome.witness is not None and "expected one of" in outcome.witness, f"seed {seed}"
