"""The evaluator of a replica manager in plain Python: recomputation at every number.

It keeps the bags of the view's leaves and, at each number that changes one of them, evaluates the
view anew; the delta is the difference. Slow for large relations and obviously right, so that what a
history shows is the doing of the machines. A "table" here is a `Numbered` value with a row count.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from streaming.algebra.bag import Bag, evaluate
from streaming.algebra.delta import is_leaf, leaf_relation
from streaming.algebra.evaluator import Batch, missing
from streaming.algebra.numbered import Numbered, NumberedBags
from streaming.algebra.tree import Aggregate, Join, Project, Scan, Select, Tree, Union
from streaming.messages import Rows
from streaming.viewmanagers.base import Codec


class NumberedTable(dict[Any, int]):
    """A `Numbered` value that says its row count as a table does."""

    @property
    def num_rows(self) -> int:
        return len(self)


@lru_cache(maxsize=256)
def split(tree: Tree) -> tuple[dict[str, Tree], Tree]:
    """The view's leaves by name, and the view over scans of those names."""
    leaves: dict[str, Tree] = {}

    def over(node: Tree) -> Tree:
        if is_leaf(node):
            name = f"@{len(leaves)}"
            leaves[name] = node
            return Scan(name, node.schema)
        match node:
            case Join():
                return replace(node, left=over(node.left), right=over(node.right))
            case Union():
                return replace(node, children=tuple(over(child) for child in node.children))
            case Select() | Project() | Aggregate():
                return replace(node, child=over(node.child))
        raise TypeError(f"{type(node).__name__} is not kept by a simulated replica")

    top = over(tree)
    return leaves, top


def codec(operators: NumberedBags) -> Codec:
    """Rows to and from messages by reference."""

    def open_(rows: Rows) -> pa.Table:
        return cast(pa.Table, operators.open(rows))

    return Codec(lambda table: operators.pack(cast(Numbered, table)), open_)


class BagEvaluator:
    """An `algebra.evaluator.Evaluator` over bags.

    Like the others it holds the view's leaves, so rows that a selection keeps out are unknown to it.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.number: int | None = None
        self._leaves, self._over_leaves = split(tree)
        self._bags: dict[str, Bag] = {name: {} for name in self._leaves}
        self._view: Bag = {}
        self._proposed: tuple[int, dict[str, Bag], Bag] | None = None

    def evaluate(self, batch: Batch) -> pa.Table:
        bags = {name: dict(bag) for name, bag in self._bags.items()}
        view = self._view
        delta = NumberedTable()
        rows = {relation: self._by_number(batch, relation) for relation in batch.relations}
        numbers = {n for each in rows.values() for n in each} | {n for n, _ in batch.truncates}
        if self.number is None:
            numbers.add(batch.first)
        for number in sorted(n for n in numbers if batch.first <= n <= batch.last):
            for name, leaf in self._leaves.items():
                relation = leaf_relation(leaf)
                if (number, relation) in batch.truncates:
                    bags[name].clear()
                changed = rows.get(relation, {}).get(number, {})
                self._apply(relation, bags[name], number, evaluate(leaf, {relation: changed}))
            after = dict(evaluate(self._over_leaves, bags))
            for row in {**view, **after}:
                if count := after.get(row, 0) - view.get(row, 0):
                    delta[number, row] = count
            view = after
        self._proposed = (batch.last, bags, view)
        return cast(pa.Table, delta)

    def _by_number(self, batch: Batch, relation: str) -> dict[int, Bag]:
        found: dict[int, Bag] = {}
        for piece in batch.relations[relation]:
            for (number, row), count in cast(Numbered, piece).items():
                of = found.setdefault(number, {})
                of[row] = of.get(row, 0) + count
        return found

    def _apply(self, relation: str, bag: Bag, number: int, rows: Bag) -> None:
        for row, count in rows.items():
            total = bag.get(row, 0) + count
            if total < 0:
                raise missing(relation, number, row, total)
            if total:
                bag[row] = total
            else:
                bag.pop(row, None)

    def advance(self) -> None:
        assert self._proposed is not None
        self.number, self._bags, self._view = self._proposed
        self._proposed = None

    def discard(self) -> None:
        self._proposed = None

    def rows(self) -> int:
        return sum(len(bag) for bag in self._bags.values())

    def replay(self, batch: Batch) -> None:
        self.evaluate(batch)
        self.advance()

    def export(self, folder: Path) -> list[list[str]]:
        raise NotImplementedError("a simulated replica is rebuilt from its updates")

    def load(self, files: list[list[Path]], number: int) -> None:
        raise NotImplementedError("a simulated replica is rebuilt from its updates")
