"""The holding queue: updates that have been received and not processed (strobe-family 7, line 3).

The queue keeps the leaves' signed rows, one `Held` for each message. An answer may have seen any of
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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Places, Psj
from streaming.messages import GlobalPart, Rows
from streaming.viewmanagers.asking import Change

V = TypeVar("V")


@dataclass(frozen=True)
class Held(Generic[V]):
    """What is left of one message.

    Attributes:
        numbers: those that ask the view for work, ascending.
        change: of all numbers that are left.
        parts: numbers that are parts of global transactions.
    """

    numbers: tuple[int, ...]
    change: Change[V]
    parts: tuple[GlobalPart, ...] = ()


def within(operators: Operators[V], change: Change[V], first: int, last: int) -> Change[V]:
    """The change of fewer numbers."""
    deltas = {}
    for place, rows in change.deltas.items():
        part = operators.between(rows, first, last)
        if operators.size(part):
            deltas[place] = part
    truncated = tuple((n, r) for n, r in change.truncated if first <= n <= last)
    return Change(first, last, deltas, truncated)


def together(operators: Operators[V], changes: Iterable[Change[V]]) -> Change[V]:
    """The changes of following numbers as one; at least one."""
    all_ = list(changes)
    deltas: dict[int, V] = {}
    for change in all_:
        for place, rows in change.deltas.items():
            deltas[place] = operators.plus(deltas[place], rows) if place in deltas else rows
    truncated = tuple(each for change in all_ for each in change.truncated)
    return Change(all_[0].first, all_[-1].last, deltas, truncated)


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
        self.held: list[Held[V]] = []

    def __bool__(self) -> bool:
        """Whether a number that asks for work is held."""
        return any(one.numbers for one in self.held)

    @property
    def last(self) -> int:
        """The last number held; 0 when none is."""
        return self.held[-1].change.last if self.held else 0

    def put(self, held: Held[V]) -> None:
        self.held.append(held)

    def next(self) -> Held[V] | None:
        """The first message with a number that asks for work; it stays. Those before it are dropped."""
        while self.held and not self.held[0].numbers:
            self.held.pop(0)
        return self.held[0] if self.held else None

    def take_message(self) -> Held[V]:
        """The first message, whole; there must be one."""
        return self.held.pop(0)

    def take(self, last: int) -> Change[V]:
        """Everything up to a number that is held."""
        ops, taken = self._operators, []
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

    def truncate(self, places: Places) -> int | None:
        """The number of the first held truncate of a relation at one of the places."""
        names = {self._psj.relations[place] for place in places}
        for one in self.held:
            for number, relation in one.change.truncated:
                if relation in names:
                    return number
        return None

    def deleted(self, place: int) -> V:
        """The place's rows that a deletion concerned first, positive, under its number."""
        ops = self._operators
        gone = ops.deleted(self._firsts(place))
        return ops.minus(ops.empty(self._psj.leaves[place].schema), gone)

    def inserted(self, place: int) -> V:
        """The place's rows that an insertion concerned first, under its number."""
        return self._operators.inserted(self._firsts(place))

    def _firsts(self, place: int) -> V:
        """For each row the first of its held updates, up to a truncate."""
        ops = self._operators
        every = tuple(range(len(self._psj.leaves[place].schema)))
        deltas = [one.change.deltas[place] for one in self.held if place in one.change.deltas]
        rows = ops.plus(ops.empty(self._psj.leaves[place].schema), *deltas)
        truncate = self.truncate((place,))
        if truncate is not None:
            rows = ops.between(rows, self.held[0].change.first, truncate - 1)
        back = ops.matching(ops.inserted(rows), every, ops.deleted(rows), every)
        if not ops.size(back):
            return rows
        often = ops.matching(rows, every, back, every)
        firsts = ops.minus(rows, often)
        for number in numbers_in(ops, often, self.held[0].change.first, self.last):
            now = ops.between(often, number, number)
            firsts = ops.plus(firsts, ops.minus(now, ops.matching(now, every, firsts, every)))
        return firsts

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> list[dict[str, Any]]:
        """The messages as JSON values; relations by reference."""
        return [
            {
                "numbers": list(one.numbers),
                "change": change_note(self._operators, one.change),
                "parts": [part.model_dump() for part in one.parts],
            }
            for one in self.held
        ]

    def restore(self, saved: list[Mapping[str, Any]]) -> None:
        """The messages back from `snapshot`."""
        self.held = [
            Held(
                tuple(note["numbers"]),
                change_back(self._operators, note["change"]),
                tuple(GlobalPart.model_validate(part) for part in note["parts"]),
            )
            for note in saved
        ]


def change_note(operators: Operators[V], change: Change[V]) -> dict[str, Any]:
    """A change as JSON values; relations by reference."""
    return {
        "first": change.first,
        "last": change.last,
        "deltas": [[p, operators.pack(rows).model_dump()] for p, rows in change.deltas.items()],
        "truncated": [list(each) for each in change.truncated],
    }


def change_back(operators: Operators[V], note: Mapping[str, Any]) -> Change[V]:
    """The change that `change_note` described."""
    return Change(
        note["first"],
        note["last"],
        {p: operators.open(Rows.model_validate(rows)) for p, rows in note["deltas"]},
        tuple((n, r) for n, r in note["truncated"]),
    )
