"""Delta plans in plain Python: what each rule means, written to be obviously right (DESIGN 4).

The DuckDB and Spark engines render a plan to SQL (`program`); this evaluates the same plan over small
bags, so a rule can be checked against recomputation without an engine. What is not linear is literally
computed anew, at each number at which its input changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streaming.algebra import bag as bags
from streaming.algebra.bag import Bag, Row
from streaming.algebra.delta import (
    Before,
    Changes,
    Counts,
    Delta,
    Filter,
    Groups,
    Map,
    Match,
    Plan,
    Recount,
    Sum,
    before,
)
from streaming.algebra.numbered import Numbered, flat, numbered
from streaming.algebra.tree import Distinct, Join, Monus, Scan, Tree
from streaming.scalars.meanings import evaluate as value_of
from streaming.scalars.meanings import passing

SOME = Scan("", ())
"""Stands for the sides of a join whose rows are at hand."""


def evaluate(
    plan: Plan,
    deltas: Mapping[Tree, Numbered],
    bags_before: Mapping[Tree, Bag],
    start: int | None = None,
) -> Numbered:
    """The plan's signed rows with their numbers.

    Args:
        deltas: the batch's signed rows, by leaf.
        bags_before: every leaf's bag before the batch.
        start: the history's first number when this batch begins it, else None.

    Raises:
        KeyError: a leaf without a bag, or a changed one without a delta.
    """
    return _Batch(deltas, bags_before, start).changes(plan)


class _Batch:
    def __init__(
        self, deltas: Mapping[Tree, Numbered], befores: Mapping[Tree, Bag], start: int | None
    ) -> None:
        self._deltas = deltas
        self._befores = befores
        self._start = start

    def state(self, plan: Plan) -> Bag:
        """The rows of a plan without numbers."""
        match plan:
            case Before():
                return self._befores[plan.leaf]
            case Groups():
                return bags.aggregated(plan.aggregate, self.state(before(plan.aggregate.child)))
            case Counts():
                return recounted(plan.tree, [self.state(side) for side in plan.sides])
            case _:
                return flat(self._linear(plan, lambda below: numbered(self.state(below))))

    def changes(self, plan: Plan) -> Numbered:
        """The rows of a plan with numbers."""
        match plan:
            case Delta():
                return self._deltas[plan.leaf]
            case Changes():
                child = {} if plan.child is None else self.changes(plan.child)
                old = {} if self._begins else self.state(before(plan.aggregate.child))
                aggregate = plan.aggregate
                return self._anew(
                    lambda sides: bags.aggregated(aggregate, sides[0]), [old], [child]
                )
            case Recount():
                changes = [{} if side is None else self.changes(side) for side in plan.changes]
                olds = [self.state(side) for side in plan.sides] or [{} for _ in changes]
                tree = plan.tree
                return self._anew(lambda sides: recounted(tree, sides), olds, changes)
            case _:
                return self._linear(plan, self._either)

    @property
    def _begins(self) -> bool:
        return self._start is not None

    def _either(self, plan: Plan) -> Numbered:
        """A join's side without numbers is under one below all others, so a pair keeps the other's."""
        if isinstance(plan, Before | Groups | Counts):
            return numbered(self.state(plan), -1)
        return self.changes(plan)

    def _linear(self, plan: Plan, rows: Callable[[Plan], Numbered]) -> Numbered:
        result: Numbered = {}
        match plan:
            case Filter():
                found, holds = rows(plan.child).items(), passing(plan.condition)
                return {k: n for k, n in found if holds(k[1])}
            case Map():
                for (number, row), count in rows(plan.child).items():
                    image = tuple(value_of(e, row) for e in plan.expressions)
                    _add(result, number, image, count)
            case Sum():
                for part in plan.parts:
                    for (number, row), count in rows(part).items():
                        _add(result, number, row, count)
            case Match():
                join = Join(SOME, SOME, plan.on, plan.condition)
                left, right = _by_number(rows(plan.left)), _by_number(rows(plan.right))
                for one, lefts in left.items():
                    for other, rights in right.items():
                        for row, count in bags.joined(join, lefts, rights).items():
                            _add(result, max(one, other), row, count)
        return result

    def _anew(
        self,
        value: Callable[[Sequence[Bag]], Bag],
        olds: Sequence[Bag],
        changes: Sequence[Numbered],
    ) -> Numbered:
        """What `value` of the sides' bags changes by, at each number at which a side does."""
        standing = {} if self._begins else value(olds)
        numbers = {number for change in changes for number, _ in change}
        if self._start is not None:
            numbers.add(self._start)
        result: Numbered = {}
        sides = list(olds)
        steps = [_by_number(change) for change in changes]
        for number in sorted(numbers):
            sides = [
                bags.added(s, step.get(number, {})) for s, step in zip(sides, steps, strict=True)
            ]
            now = value(sides)
            for row, count in bags.added(now, bags.negated(standing)).items():
                result[number, row] = count
            standing = now
        return result


def recounted(tree: Distinct | Monus, sides: Sequence[Bag]) -> Bag:
    """The operator's rows over its sides' bags."""
    return bags.distinct(sides[0]) if isinstance(tree, Distinct) else bags.monus(*sides)


def _by_number(rows: Numbered) -> dict[int, Bag]:
    result: dict[int, Bag] = {}
    for (number, row), count in rows.items():
        result.setdefault(number, {})[row] = count
    return result


def _add(rows: Numbered, number: int, row: Row, count: int) -> None:
    total = rows.get((number, row), 0) + count
    if total:
        rows[number, row] = total
    else:
        rows.pop((number, row), None)
