"""The evaluator of a replica manager in plain Python: the view's delta plan over bags.

It does what the service's engines do: it keeps the bags of the view's leaves, makes a batch's signed rows
of each leaf with their numbers, truncates expanded and every retraction checked, and evaluates once, for
the whole batch, the plan that the delta rules give (`algebra.delta`), here as `bag` means it. Whoever
judges a history knows no plan (`definition`). A "table" here is a `Numbered` value with a row count.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from streaming.algebra import bag, delta
from streaming.algebra.bag import Bag, Numbered, Row
from streaming.algebra.delta import leaf_relation, leaves
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import Tree
from streaming.engines.evaluator import Batch, missing
from streaming.messages import Rows
from streaming.viewmanagers.base import Codec

OPERATORS = NumberedBags()


class NumberedTable(dict[Any, int]):
    """A `Numbered` value that says its row count as a table does."""

    @property
    def num_rows(self) -> int:
        return len(self)


class Rules:
    """A view's leaves, each with its relation, and its delta plans by what changes and begins."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.leaves = tuple((leaf, leaf_relation(leaf)) for leaf in leaves(tree))
        self.plans: dict[tuple[frozenset[Tree], int | None], Tree | None] = {}

    def plan(self, changed: frozenset[Tree], start: int | None) -> Tree | None:
        """See `delta.delta`; worked out once."""
        key = (changed, start)
        if key not in self.plans:
            self.plans[key] = delta.delta(self.tree, changed, start)
        return self.plans[key]


@lru_cache(maxsize=256)
def rules_of(tree: Tree) -> Rules:
    """The rules of a view, for all managers of it."""
    return Rules(tree)


def codec(operators: NumberedBags) -> Codec:
    """Rows to and from messages by reference."""

    def open_(rows: Rows) -> pa.Table:
        return cast(pa.Table, operators.open(rows))

    return Codec(lambda table: operators.pack(cast(Numbered, table)), open_)


class BagEvaluator:
    """An `engines.evaluator.Evaluator` over bags.

    Like the others it holds the view's leaves, so rows that a selection keeps out are unknown to it.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.number: int | None = None
        self._rules = rules_of(tree)
        self._bags: dict[Tree, Bag] = {leaf: {} for leaf, _ in self._rules.leaves}
        self._proposed: tuple[int, dict[Tree, Bag]] | None = None

    def evaluate(self, batch: Batch) -> pa.Table:
        deltas: dict[Tree, Numbered] = {}
        after = dict(self._bags)
        changed = {*batch.relations, *(relation for _, relation in batch.truncates)}
        for leaf, relation in self._rules.leaves:
            if relation in changed:
                rows, after[leaf] = self._leaf_delta(leaf, relation, batch)
                if rows:
                    deltas[leaf] = rows
        start = batch.first if self.number is None else None
        plan = self._rules.plan(frozenset(deltas), start)
        found = {} if plan is None else bag.changes(plan, deltas, self._bags)
        self._proposed = (batch.last, after)
        return cast(pa.Table, NumberedTable(found))

    def _leaf_delta(self, leaf: Tree, relation: str, batch: Batch) -> tuple[Numbered, Bag]:
        """The leaf's signed rows with their numbers, and its bag after the batch."""
        pieces, truncates = batch.of(relation)
        by_number: dict[int, list[tuple[Row, int]]] = {number: [] for number in truncates}
        for piece in pieces:
            rows = OPERATORS.evaluate(leaf, {relation: cast(Numbered, piece)})
            for (number, row), count in rows.items():
                by_number.setdefault(number, []).append((row, count))
        found: Numbered = {}
        standing = dict(self._bags[leaf])
        for number in sorted(n for n in by_number if batch.first <= n <= batch.last):
            net = [] if number not in truncates else [(row, -n) for row, n in standing.items()]
            for row, count in (*net, *by_number[number]):
                key = (number, row)
                if total := found.get(key, 0) + count:
                    found[key] = total
                else:
                    del found[key]
                left = standing.get(row, 0) + count
                if left < 0:
                    raise missing(relation, number, row, left)
                if left:
                    standing[row] = left
                else:
                    del standing[row]
        return found, standing

    def advance(self) -> None:
        assert self._proposed is not None
        self.number, self._bags = self._proposed
        self._proposed = None

    def discard(self) -> None:
        self._proposed = None

    def rows(self) -> int:
        return sum(map(len, self._bags.values()))

    def replay(self, batch: Batch) -> None:
        self.evaluate(batch)
        self.advance()

    def export(self, folder: Path) -> list[list[str]]:
        raise NotImplementedError("a simulated replica is rebuilt from its updates")

    def load(self, files: list[list[Path]], number: int) -> None:
        raise NotImplementedError("a simulated replica is rebuilt from its updates")
