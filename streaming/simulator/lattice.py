"""The true source states of a world: what any serial schedule of its transactions can pass through.

A serial schedule is equivalent to what the sources did when transactions of one source that conflict
(touch a key of a relation in common, or truncate it) keep the order of its log; all others commute
(strobe-family 4.1: "we do not require any fixed order between two non-conflicting actions"). So a
state is an *ideal*: a set of transactions that holds, with each of them, everything it must come after.
Local transactions give one coordinate per source; a global transaction is one element that moves
several coordinates at once. Global transactions whose conflicts at two sources contradict each other
have no serial order; they are one element too.

Nothing here is taken from the machines that are judged by it: views are what `definition` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from streaming.algebra.bag import Bag
from streaming.algebra.tree import Tree, relations
from streaming.simulator.definition import defined
from streaming.simulator.workload import WORLDS, WorkloadChange, World, apply, touched

Grain = Literal["event", "local", "global"]
"""What is one element: a row change, a source's transaction, or a global transaction."""
Values = tuple[Bag, ...]
"""The content of each view that is judged together."""
Shown = tuple[Bag | None, ...]
"""What is visible of each of them; None for a view that is not in the group."""
Place = tuple[str, int, int]
"""A row change: source, ordinal of its transaction, place in it."""


class Event(NamedTuple):
    """A row change and the element it belongs to."""

    place: Place
    change: WorkloadChange
    element: int


class Lattice:
    """The ideals of one world at one grain, and what the views are at each.

    Args:
        world: what happened.
        grain: see `Grain`.
        trees: the views that are judged together.

    Attributes:
        size: how many elements there are; an ideal is a bit mask over them.
        relevant: mask of the elements that touch a relation of the views.
    """

    def __init__(self, world: World, grain: Grain, trees: Sequence[Tree]) -> None:
        self.world = world
        self.trees = tuple(trees)
        self._used = [relations(tree) for tree in self.trees]
        self.events = _events(world, grain)
        self._before: list[int] | None = None
        self._number_elements()

    def _number_elements(self) -> None:
        self.size = 1 + max((event.element for event in self.events), default=-1)
        self.full = (1 << self.size) - 1
        self._masks = dict.fromkeys(self.world.initial, 0)
        self._of: dict[str, list[Event]] = {name: [] for name in self._masks}
        for event in self.events:
            self._masks[event.change.relation] |= 1 << event.element
            self._of[event.change.relation].append(event)
        self.relevant = 0
        for name in {name for names in self._used for name in names}:
            self.relevant |= self._masks[name]
        self._values: dict[int, Values] = {}
        self._bags: dict[tuple[str, int], Bag] = {}
        self._evaluated: dict[tuple[int, tuple[int, ...]], Bag] = {}

    @property
    def before(self) -> list[int]:
        """Per element, the mask of those that must come before it. Contracts cycles when first asked."""
        if self._before is None:
            self._before = self._order()
            if any(self._before[e] >> e & 1 for e in range(self.size)):
                self._contract(self._before)
        return self._before

    def _order(self) -> list[int]:
        """`before`, closed transitively; an element in a cycle comes before itself."""
        before = [0] * self.size
        keys = [_keys(self.world, event.change) for event in self.events]
        for j, later in enumerate(self.events):
            for i in range(j):
                earlier = self.events[i]
                if (
                    earlier.element != later.element
                    and earlier.change.relation == later.change.relation
                    and (keys[i] is None or keys[j] is None or keys[i] & keys[j])  # type: ignore[operator]
                ):
                    before[later.element] |= 1 << earlier.element
        for through in range(self.size):
            for element in range(self.size):
                if before[element] >> through & 1:
                    before[element] |= before[through]
        return before

    def _contract(self, before: list[int]) -> None:
        """Elements that come before each other become one."""
        leader = list(range(self.size))
        for a in range(self.size):
            for b in range(a):
                if before[a] >> b & 1 and before[b] >> a & 1:
                    leader[a] = min(leader[a], leader[b])
        names = {old: new for new, old in enumerate(sorted(set(leader)))}
        self.events = [e._replace(element=names[leader[e.element]]) for e in self.events]
        self._number_elements()
        self._before = self._order()

    # States ---------------------------------------------------------------------------------------

    def relation(self, name: str, ideal: int) -> Bag:
        """A relation's rows at an ideal."""
        key = (name, ideal & self._masks[name])
        bag = self._bags.get(key)
        if bag is None:
            bag = dict(self.world.initial[name])
            for event in self._of[name]:
                if ideal >> event.element & 1:
                    apply(bag, event.change)
            self._bags[key] = bag
        return bag

    def values(self, ideal: int) -> Values:
        """The views' contents at an ideal."""
        found = self._values.get(ideal)
        if found is None:
            found = tuple([self._value(x, ideal) for x in range(len(self.trees))])
            self._values[ideal] = found
        return found

    def _value(self, x: int, ideal: int) -> Bag:
        names = self._used[x]
        key = (x, tuple([ideal & self._masks[name] for name in names]))
        found = self._evaluated.get(key)
        if found is None:
            rows: Mapping[str, Bag] = {name: self.relation(name, ideal) for name in names}
            found = self._evaluated[key] = defined(self.trees[x], rows)
        return found

    def following(self, ideal: int) -> Iterator[int]:
        """The ideals with one element more."""
        before = self.before
        for element in range(self.size):
            bit = 1 << element
            if not ideal & bit and before[element] & ideal == before[element]:
                yield ideal | bit

    def ideals(self) -> Iterator[int]:
        """All of them, smaller ones first."""
        layer = [0]
        while layer:
            yield from layer
            layer = list(dict.fromkeys(n for ideal in layer for n in self.following(ideal)))

    def chain(self, order: Sequence[Place]) -> list[int] | None:
        """The ideals of the serial schedule in which the elements end in the order given.

        None when its elements do not keep each source's log as it is; a log kept as it is needs no look
        at conflicts.
        """
        last: dict[int, int] = {}
        at = {place: n for n, place in enumerate(order)}
        if len(at) < len(self.events):
            return None
        inside: dict[int, list[Place]] = {}
        for event in self.events:
            last[event.element] = max(last.get(event.element, -1), at[event.place])
            inside.setdefault(event.element, []).append(event.place)
        ideal, chain = 0, [0]
        reached: dict[str, tuple[int, int]] = {}
        for element in sorted(last, key=last.__getitem__):
            for source, ordinal, n in inside[element]:
                if reached.get(source, (0, 0)) > (ordinal, n):
                    return None
                reached[source] = (ordinal, n)
            ideal |= 1 << element
            chain.append(ideal)
        return chain


@lru_cache(maxsize=WORLDS)
def lattice_of(world: World, grain: Grain, trees: tuple[Tree, ...]) -> Lattice:
    """The lattice of a world; what has been worked out of it serves all that are judged by it."""
    return Lattice(world, grain, trees)


def _events(world: World, grain: Grain) -> list[Event]:
    events: list[Event] = []
    elements: dict[object, int] = {}
    for source, log in world.logs.items():
        for transaction in log:
            for n, change in enumerate(transaction.changes):
                name: object = (source, transaction.ordinal)
                if grain == "event":
                    name = (source, transaction.ordinal, n)
                elif grain == "global" and transaction.glob is not None:
                    name = transaction.glob
                element = elements.setdefault(name, len(elements))
                events.append(Event((source, transaction.ordinal, n), change, element))
    return events


def _keys(world: World, change: WorkloadChange) -> set[tuple[object, ...]] | None:
    """What a change orders of its relation; None for all of it."""
    if change.truncates:
        return None
    if change.idles:
        return set()
    return touched(world.catalog.relations[change.relation], change)
