"""The holding queue: updates that have been received and not processed (strobe-family 7, line 3).

The queue keeps the leaves' signed rows, one `HeldMessage` a message. An answer may have seen any of
them, so what they did to the state that is being worked on is asked of the queue:

* `deleted`: the rows of a place whose first held update is a deletion. They stood in the state, and an
  answer may lack what they join with: C-Strobe's lines 12 to 15 ask for it.
* `inserted`: the rows of a place whose first held update is an insertion. They did not stand in the
  state, and an answer may hold what they join with: line 16 takes it away.

Which one came first decides, because a row that a keyed relation has once can only be deleted when it
is there and inserted when it is not. A row is the leaf's whole row, projected attributes and others.
A truncate deletes without naming rows, so of its relation only what comes before it counts; no answer
has seen what comes after, for the managers do not wait for one that may have seen the truncate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Places, Psj
from streaming.messages import GlobalPart, Rows
from streaming.viewmanagers.asking.asking_manager import PlaceChange
from streaming.viewmanagers.asking.numbered_effects import firsts

V = TypeVar("V")

Span = tuple[int, int]
"""A first and a last number."""


@dataclass(frozen=True)
class HeldMessage(Generic[V]):
    """What is left of one message.

    Attributes:
        numbers: those that ask the view for work, ascending.
        change: of all numbers that are left.
        parts: numbers that are parts of global transactions.
        cut: whether it ends at a cut; a piece of a message need not.
    """

    numbers: tuple[int, ...]
    change: PlaceChange[V]
    parts: tuple[GlobalPart, ...] = ()
    cut: bool = True


@dataclass(frozen=True)
class HeldBatch(Generic[V]):
    """Numbers that are worked on together; a truncate is alone.

    Attributes:
        units: the first and the last number of each share of them that gets a state of its own.
        spans: the same of each share between two cuts; no unit crosses one.
    """

    change: PlaceChange[V]
    units: tuple[Span, ...]
    spans: tuple[Span, ...]


def within(
    operators: Operators[V], change: PlaceChange[V], first: int, last: int
) -> PlaceChange[V]:
    """The change of fewer numbers."""
    deltas = {}
    for place, rows in change.deltas.items():
        part = operators.between(rows, first, last)
        if operators.size(part):
            deltas[place] = part
    truncated = tuple((n, r) for n, r in change.truncated if first <= n <= last)
    return PlaceChange(first, last, deltas, truncated)


def together(operators: Operators[V], changes: Iterable[PlaceChange[V]]) -> PlaceChange[V]:
    """The changes of following numbers as one; at least one."""
    all_ = list(changes)
    deltas: dict[int, V] = {}
    for change in all_:
        for place, rows in change.deltas.items():
            deltas[place] = operators.plus(deltas[place], rows) if place in deltas else rows
    truncated = tuple(each for change in all_ for each in change.truncated)
    return PlaceChange(all_[0].first, all_[-1].last, deltas, truncated)


def numbers_in(operators: Operators[V], rows: V, first: int, last: int) -> Iterator[int]:
    """The numbers in [first..last] under which there are rows, ascending."""
    part = operators.between(rows, first, last)
    if not operators.size(part):
        return
    if first == last:
        yield first
        return
    middle = (first + last) // 2
    yield from numbers_in(operators, part, first, middle)
    yield from numbers_in(operators, part, middle + 1, last)


class HoldingQueue(Generic[V]):
    """Messages in order of arrival."""

    def __init__(self, psj: Psj, operators: Operators[V]) -> None:
        self._psj = psj
        self._operators = operators
        self.held: list[HeldMessage[V]] = []
        self._firsts: dict[int, V] = {}
        """What `firsts` has found since the queue last changed."""

    def __bool__(self) -> bool:
        """Whether a number that asks for work is held."""
        return any(one.numbers for one in self.held)

    @property
    def last(self) -> int:
        """The last number held; 0 when none is."""
        return self.held[-1].change.last if self.held else 0

    def put(self, held: HeldMessage[V]) -> None:
        self._firsts.clear()
        self.held.append(held)

    def next(self) -> HeldMessage[V] | None:
        """The first message with a number that asks for work; it stays. Those before it are dropped."""
        while self.held and not self.held[0].numbers:
            self._firsts.clear()
            self.held.pop(0)
        return self.held[0] if self.held else None

    def take_message(self) -> HeldMessage[V]:
        """The first message, whole; there must be one."""
        self._firsts.clear()
        return self.held.pop(0)

    def take(self, last: int) -> PlaceChange[V]:
        """Everything up to a number that is held."""
        ops, taken = self._operators, []
        self._firsts.clear()
        while self.held and self.held[0].change.first <= last:
            one = self.held[0]
            taken.append(within(ops, one.change, one.change.first, min(last, one.change.last)))
            if one.change.last > last:
                rest = within(ops, one.change, last + 1, one.change.last)
                numbers = tuple(n for n in one.numbers if n > last)
                self.held[0] = replace(one, numbers=numbers, change=rest)
                break
            self.held.pop(0)
        return together(ops, taken)

    def batch(self, most: int, period: int = 1) -> HeldBatch[V] | None:
        """What can be worked on now; it leaves the queue. None while nothing can.

        Args:
            most: numbers that are taken at most, or one block.
            period: numbers in a block, whose ends are its multiples; a unit is a block, or what a cut
                leaves of it. A block of which a piece has not come yet is not taken.
        """
        head = self.next()
        if head is None:
            return None
        first = head.numbers[0]
        end = (first - 1) // period * period + max(most // period, 1) * period
        found, ended = self._until(end)
        if not ended and not self.held[-1].cut:
            found = [(n, s) for n, s in found if (n - 1) // period * period + period <= self.last]
        if not found:
            return None
        if head.change.first < first:
            self.take(first - 1)
        units = _spans(found, lambda one: (one[1], (one[0] - 1) // period))
        return HeldBatch(self.take(found[-1][0]), units, _spans(found, lambda one: one[1]))

    def _until(self, end: int) -> tuple[list[tuple[int, int]], bool]:
        """Numbers up to `end` and no further than a truncate, each with the cuts before it.

        Returns also whether there was more.
        """
        found: list[tuple[int, int]] = []
        cuts = 0
        for one in self.held:
            truncates = {number for number, _ in one.change.truncated}
            for number in one.numbers:
                if number > end or (found and number in truncates):
                    return found, True
                found.append((number, cuts))
                if number in truncates:
                    return found, True
            cuts += one.cut
        return found, False

    def truncate(self, places: Places) -> int | None:
        """The number of the first held truncate of a relation at one of the places."""
        names = {self._psj.relations[place] for place in places}
        for one in self.held:
            for number, relation in one.change.truncated:
                if relation in names:
                    return number
        return None

    def touches(self, place: int) -> bool:
        """Whether a change of the place is held; where none is, nothing need be asked of its rows."""
        return any([place in one.change.deltas for one in self.held])

    def rows(self, place: int) -> V:
        """The place's held changes."""
        deltas = [one.change.deltas[place] for one in self.held if place in one.change.deltas]
        return self._operators.plus(self._operators.empty(self._psj.leaves[place].schema), *deltas)

    def deleted(self, place: int) -> V:
        """The place's rows that a deletion concerned first, positive, under its number."""
        ops = self._operators
        gone = ops.deleted(self.firsts(place))
        return ops.minus(ops.empty(self._psj.leaves[place].schema), gone)

    def inserted(self, place: int) -> V:
        """The place's rows that an insertion concerned first, under its number."""
        return self._operators.inserted(self.firsts(place))

    def firsts(self, place: int) -> V:
        """For each row the first of its held updates, up to a truncate."""
        if place not in self._firsts:
            every = tuple(range(len(self._psj.leaves[place].schema)))
            rows, last = self.rows(place), self.last
            truncate = self.truncate((place,))
            if truncate is not None:
                last = truncate - 1
                rows = self._operators.between(rows, 0, last)
            first = self.held[0].change.first if self.held else last
            self._firsts[place] = firsts(self._operators, rows, every, first, last)
        return self._firsts[place]

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> list[dict[str, Any]]:
        """The messages as JSON values; relations by reference."""
        return [
            {
                "numbers": list(one.numbers),
                "change": change_note(self._operators, one.change),
                "parts": list(one.parts),
                "cut": one.cut,
            }
            for one in self.held
        ]

    def restore(self, saved: list[Mapping[str, Any]]) -> None:
        """The messages back from `snapshot`."""
        self.held = [
            HeldMessage(
                tuple(note["numbers"]),
                change_back(self._operators, note["change"]),
                tuple(GlobalPart.model_validate(part) for part in note["parts"]),
                note["cut"],
            )
            for note in saved
        ]
        self._firsts.clear()


def _spans(
    numbers: Iterable[tuple[int, int]], key: Callable[[tuple[int, int]], object]
) -> tuple[Span, ...]:
    """The first and the last number of each run of one key."""
    runs = ([number for number, _ in run] for _, run in groupby(numbers, key))
    return tuple((run[0], run[-1]) for run in runs)


def batch_note(operators: Operators[V], batch: HeldBatch[V]) -> dict[str, Any]:
    """A batch as JSON values; relations by reference."""
    return {
        "change": change_note(operators, batch.change),
        "units": [list(one) for one in batch.units],
        "spans": [list(one) for one in batch.spans],
    }


def batch_back(operators: Operators[V], note: Mapping[str, Any]) -> HeldBatch[V]:
    """The batch that `batch_note` described."""
    units, spans = (tuple((a, b) for a, b in note[name]) for name in ("units", "spans"))
    return HeldBatch(change_back(operators, note["change"]), units, spans)


def change_note(operators: Operators[V], change: PlaceChange[V]) -> dict[str, Any]:
    """A change as JSON values; relations by reference."""
    return {
        "first": change.first,
        "last": change.last,
        "deltas": [[p, operators.pack(rows)] for p, rows in change.deltas.items()],
        "truncated": [list(each) for each in change.truncated],
    }


def change_back(operators: Operators[V], note: Mapping[str, Any]) -> PlaceChange[V]:
    """The change that `change_note` described."""
    return PlaceChange(
        note["first"],
        note["last"],
        {p: operators.open(Rows.model_validate(rows)) for p, rows in note["deltas"]},
        tuple((n, r) for n, r in note["truncated"]),
    )
