"""Random transactions for a case, all from one seed (strobe-family 3.1).

Each source runs its own log of transactions; a global transaction has a part at two or more sources,
and nothing makes two of them commit in the same order everywhere. A log is drawn to its end before
anything runs, because what one source does never depends on another. Values come from a small domain,
so that keys are used again, rows meet in joins, and deleted rows come back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from streaming.algebra.bag import Bag, Row
from streaming.algebra.tree import Relation
from streaming.simulator.case import Load
from streaming.simulator.small_views import CaseCatalog, catalog

WORLDS = 512
"""How many of the last worlds are remembered, with what is known of them."""


class WorkloadChange(NamedTuple):
    """One row change; both versions None means truncate."""

    relation: str
    before: Row | None
    after: Row | None

    @property
    def truncates(self) -> bool:
        return self.before is None and self.after is None

    @property
    def idles(self) -> bool:
        """An update that changes nothing: no state tells on which side of it another stood."""
        return self.before == self.after and not self.truncates

    @property
    def text(self) -> str:
        """`+y.r2[2,3]`, `-y.r2[2,3]`, `y.r2[2,3]->[2,4]`, `truncate y.r2`."""
        if self.before is None:
            return f"truncate {self.relation}" if self.truncates else f"+{self._row(self.after)}"
        if self.after is None:
            return f"-{self._row(self.before)}"
        return f"{self._row(self.before)}->{row_text(self.after)}"

    def _row(self, row: Row | None) -> str:
        return f"{self.relation}{row_text(row or ())}"


def row_text(row: Row) -> str:
    """A row as the papers write it: [2,3]."""
    return f"[{','.join(str(value) for value in row)}]"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed local transaction, or one source's part of a global one.

    Attributes:
        ordinal: its commit position in the source's log, from 1.
        glob: id of the global transaction that it is one of `parts` parts of.
    """

    source: str
    ordinal: int
    changes: tuple[WorkloadChange, ...]
    glob: str | None = None
    parts: int = 1

    @property
    def id(self) -> str:
        return f"{self.source}{self.ordinal}"

    @property
    def text(self) -> str:
        inside = ", ".join(change.text for change in self.changes)
        tag = f" of {self.glob}" if self.glob else ""
        return f"{self.id}{tag}: {inside}"


@dataclass(frozen=True, eq=False)
class World:
    """Everything that a history starts from."""

    catalog: CaseCatalog
    initial: Mapping[str, Bag]
    logs: Mapping[str, tuple[Transaction, ...]]


def touched(relation: Relation, change: WorkloadChange) -> set[Row]:
    """The keys that a row change touches; whole rows where there is no key."""
    rows = (change.before, change.after)
    if relation.key:
        return {tuple(row[i] for i in relation.key) for row in rows if row is not None}
    return {row for row in rows if row is not None}


@lru_cache(maxsize=WORLDS)
def drawn(load: Load, seed: int) -> tuple[World, tuple[Any, ...]]:
    """The world of a seed, and the generator's state after it: managers of all modes live in the same."""
    rng = random.Random(seed)
    return world(load, rng), rng.getstate()


def world(load: Load, rng: random.Random) -> World:
    """A random world."""
    relation_set = load.relations
    if relation_set == "any":
        relation_set = "first" if rng.random() < 0.5 else "fanout"
    known = catalog(load.views, relation_set, load.sources)
    initial = {}
    for name, relation in known.relations.items():
        bag: Bag = {}
        for _ in range(rng.randint(0, load.rows)):
            if (row := _free_row(rng, load, relation, bag)) is not None:
                bag[row] = bag.get(row, 0) + 1
        initial[name] = bag
    drawer = _Drawer(load, rng, known, {name: dict(bag) for name, bag in initial.items()})
    return World(known, initial, drawer.logs())


def _free_row(rng: random.Random, load: Load, relation: Relation, bag: Bag) -> Row | None:
    """A row whose key is not taken; None when a few draws find none."""
    draw, key = rng.random, relation.key
    sizes = [load.domain + (i in key) for i in range(len(relation.schema))]
    taken = {tuple([other[i] for i in key]) for other in bag} if key else set()
    for _ in range(3):
        row = tuple([int(draw() * size) for size in sizes])
        if not key or tuple([row[i] for i in key]) not in taken:
            return row
    return None


class _Drawer:
    """Draws the sources' logs over their changing contents."""

    def __init__(
        self, load: Load, rng: random.Random, known: CaseCatalog, contents: dict[str, Bag]
    ) -> None:
        self.load, self.rng, self.known, self.contents = load, rng, known, contents
        self.of_source = {
            source: tuple(n for n in known.relations if n.startswith(f"{source}."))
            for source in known.sources
        }

    def logs(self) -> dict[str, tuple[Transaction, ...]]:
        load, rng, sources = self.load, self.rng, self.known.sources
        slots: dict[str, list[tuple[str | None, int]]] = {source: [] for source in sources}
        left, number = load.transactions, 0
        while left > 0:
            if load.scenario == "global" and len(sources) > 1 and left > 1 and rng.random() < 0.6:
                number += 1
                parts = 2 if len(sources) == 2 or rng.random() < 0.8 else 3
                for source in rng.sample(sources, parts):
                    at = slots[source]
                    at.insert(rng.randint(max(0, len(at) - 2), len(at)), (f"G{number}", parts))
                left -= parts
            else:
                slots[rng.choice(sources)].append((None, 1))
                left -= 1
        return {
            source: tuple(
                Transaction(source, place, self._changes(source), glob, parts)
                for place, (glob, parts) in enumerate(at, 1)
            )
            for source, at in slots.items()
        }

    def _changes(self, source: str) -> tuple[WorkloadChange, ...]:
        count = 1
        if self.load.scenario != "single":
            count = self.rng.randint(1, self.load.changes)
        changes = []
        for _ in range(count):
            change = self._change(self.rng.choice(self.of_source[source]))
            apply(self.contents[change.relation], change)
            changes.append(change)
        return tuple(changes)

    def _change(self, name: str) -> WorkloadChange:
        rng, load = self.rng, self.load
        relation, bag = self.known.relations[name], self.contents[name]
        kind = rng.random()
        if kind < load.truncates:
            return WorkloadChange(name, None, None)
        if bag and kind < load.truncates + load.no_ops:
            same = rng.choice(list(bag))
            return WorkloadChange(name, same, same)
        if not bag or rng.random() < 0.45:
            row = _free_row(rng, load, relation, bag)
            if row is not None or not bag:
                return WorkloadChange(name, None, row)
        old = rng.choice(list(bag))
        if rng.random() < 0.55:
            return WorkloadChange(name, old, None)
        if not relation.key or rng.random() < load.key_changes:
            new = _free_row(rng, load, relation, bag)
            return WorkloadChange(name, old, new if new is not None and new != old else None)
        changed = tuple(
            value if i in relation.key else int(rng.random() * load.domain)
            for i, value in enumerate(old)
        )
        return WorkloadChange(name, old, changed if changed != old else None)


def apply(bag: Bag, change: WorkloadChange) -> None:
    """Change a relation's bag in place."""
    if change.truncates:
        bag.clear()
        return
    for row, by in ((change.before, -1), (change.after, 1)):
        if row is not None:
            count = bag.get(row, 0) + by
            if count:
                bag[row] = count
            else:
                del bag[row]
