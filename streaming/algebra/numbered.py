"""Signed bags with numbers in plain Python: the operators of the simulator and the tests.

A value maps (number, row) to a multiplicity that is not zero. Linear operators keep numbers; the join
of two rows carries the larger one, since the pair stands from the later of the two on (DESIGN 4). What
is not linear (duplicate elimination, monus, aggregates) is evaluated by `bag` over a state, whose rows
are all under number 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from streaming.algebra import bag as bags
from streaming.algebra.bag import Bag, Row
from streaming.algebra.operators import Positions
from streaming.algebra.tree import (
    Join,
    Project,
    Scan,
    Select,
    Tree,
    Union,
    computes,
    relations,
    walk,
)
from streaming.messages import Rows
from streaming.scalars.expression import Schema
from streaming.scalars.meanings import passing

Numbered = dict[tuple[int, Row], int]
"""(number, row) -> multiplicity, never 0."""


def numbered(rows: Bag, number: int = 0) -> Numbered:
    """A bag's rows under one number."""
    return {(number, row): count for row, count in rows.items()}


def flat(value: Numbered) -> Bag:
    """The rows without their numbers."""
    result: Bag = {}
    for (_, row), count in value.items():
        _add(result, row, count)
    return result


def _add(rows: dict, key: object, count: int) -> None:  # type: ignore[type-arg]
    total = rows.get(key, 0) + count
    if total:
        rows[key] = total
    else:
        rows.pop(key, None)


class NumberedBags:
    """The operators over `Numbered`; packed values are kept here and referred to by name."""

    def __init__(self) -> None:
        self.packed: list[Numbered] = []

    def empty(self, schema: Schema) -> Numbered:
        return {}

    def size(self, value: Numbered) -> int:
        return len(value)

    def evaluate(self, tree: Tree, inputs: Mapping[str, Numbered]) -> Numbered:
        match tree:
            case Scan():
                return inputs[tree.relation]
            case Select():
                rows, holds = self.evaluate(tree.child, inputs), passing(tree.condition)
                return {k: n for k, n in rows.items() if holds(k[1])}
            case Project():
                return _projected(tree, self.evaluate(tree.child, inputs))
            case Join():
                left = self.evaluate(tree.left, inputs)
                spared = not left and not any(computes(node) for node in walk(tree.right))
                return _joined(tree, left, {} if spared else self.evaluate(tree.right, inputs))
            case Union():
                return self.plus(*(self.evaluate(child, inputs) for child in tree.children))
            case _:
                return self._state_only(tree, inputs)

    def _state_only(self, tree: Tree, inputs: Mapping[str, Numbered]) -> Numbered:
        states: dict[str, Bag] = {}
        for name in relations(tree):
            value = inputs[name]
            if any([number for number, _ in value]):
                raise ValueError(f"{type(tree).__name__} over rows with numbers ({name})")
            states[name] = {row: count for (_, row), count in value.items()}
        return numbered(bags.evaluate(tree, states))

    def plus(self, *values: Numbered) -> Numbered:
        result = dict(values[0])
        for value in values[1:]:
            if not result:
                result = dict(value)
                continue
            for key, count in value.items():
                if total := result.get(key, 0) + count:
                    result[key] = total
                else:
                    del result[key]
        return result

    def minus(self, left: Numbered, right: Numbered) -> Numbered:
        result = dict(left)
        for key, count in right.items():
            if total := result.get(key, 0) - count:
                result[key] = total
            else:
                del result[key]
        return result

    def between(self, value: Numbered, first: int, last: int) -> Numbered:
        return {k: count for k, count in value.items() if first <= k[0] <= last}

    def renumbered(self, value: Numbered, number: int) -> Numbered:
        result: Numbered = {}
        for (_, row), count in value.items():
            key = (number, row)
            if total := result.get(key, 0) + count:
                result[key] = total
            else:
                del result[key]
        return result

    def inserted(self, value: Numbered) -> Numbered:
        return {k: count for k, count in value.items() if count > 0}

    def deleted(self, value: Numbered) -> Numbered:
        return {k: count for k, count in value.items() if count < 0}

    def distinct(self, value: Numbered) -> Numbered:
        return {k: 1 for k, count in value.items() if count > 0}

    def matching(
        self, value: Numbered, at: Positions, rows: Numbered, rows_at: Positions
    ) -> Numbered:
        if not value or not rows:
            return {}
        keys = {tuple([row[i] for i in rows_at]) for _, row in rows}
        return {k: n for k, n in value.items() if tuple([k[1][i] for i in at]) in keys}

    def pack(self, value: Numbered) -> Rows:
        self.packed.append(value)
        return _reference(len(value), len(self.packed) - 1)

    def open(self, rows: Rows) -> Numbered:
        assert rows.path is not None
        return self.packed[int(rows.path)]


@lru_cache(maxsize=65536)
def _reference(rows: int, place: int) -> Rows:
    return Rows(rows=rows, path=str(place))


def _projected(tree: Project, rows: Numbered) -> Numbered:
    result: Numbered = {}
    copied = tree.copied
    for (number, row), count in rows.items():
        if copied is None:
            key = (number, bags.projected(tree, row))
        else:
            key = (number, tuple([row[i] for i in copied]))
        if total := result.get(key, 0) + count:
            result[key] = total
        else:
            del result[key]
    return result


def _joined(tree: Join, left: Numbered, right: Numbered) -> Numbered:
    if not left or not right:
        return {}
    on, holds = tree.on, passing(tree.condition)
    matches: dict[Row, list[tuple[int, Row, int]]] = {}
    for (number, row), count in right.items():
        on_right = tuple([row[j] for _, j in on])
        if None not in on_right:
            matches.setdefault(on_right, []).append((number, row, count))
    result: Numbered = {}
    for (number, row), count in left.items():
        for later, other, times in matches.get(tuple([row[i] for i, _ in on]), ()):
            both = row + other
            if holds(both):
                key = (later if later > number else number, both)
                if total := result.get(key, 0) + count * times:
                    result[key] = total
                else:
                    del result[key]
    return result
