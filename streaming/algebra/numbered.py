"""The operators of view managers that ask, in plain Python: for the simulator and the tests.

A value is a numbered bag, whose meaning under a tree `bag` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from streaming.algebra import bag
from streaming.algebra.bag import Numbered
from streaming.algebra.operators import Positions
from streaming.algebra.tree import Tree
from streaming.messages import Rows
from streaming.scalars.expression import Schema


class NumberedBags:
    """The operators over `Numbered`; packed values are kept here and referred to by name."""

    def __init__(self) -> None:
        self.packed: list[Numbered] = []

    def empty(self, schema: Schema) -> Numbered:
        return {}

    def size(self, value: Numbered) -> int:
        return len(value)

    def evaluate(self, tree: Tree, inputs: Mapping[str, Numbered]) -> Numbered:
        return bag.interpret(tree, lambda leaf: inputs[leaf.relation])  # type: ignore[union-attr]

    def plus(self, *values: Numbered) -> Numbered:
        return bag.plus(*values)

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
