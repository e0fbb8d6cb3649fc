"""The integrator's machine: numbers source transactions (MVC 3.2; DESIGN 5 and 6).

It hears which transactions of each source are complete, in log order, and which of them are parts of
global transactions, and gives numbers: 0 to the initial state, then 1, 2, ... A part, and everything
later from its source, is held until all parts are in. Number 0 waits until every source's snapshot
is closed; a global transaction that lies partly in a snapshot is merged into number 0 together with
the earlier transactions that touch the same keys. A part that does not come is released as local after
`timeout_ms`. The interleaving of local transactions of different sources is free, because they
commute; it is chosen by the sources' names, so that a run repeated gives the same numbers.

The machine is pure: the time comes in the message, keys through a function asked only for windows in
which global transactions cross. It raises before it changes state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streaming.errors import ProtocolError
from streaming.integrator.knots import Item, Keys, LocalRun, NumberedUnit, Touched
from streaming.integrator.numbering import order
from streaming.integrator.straddling import merged_into_zero
from streaming.integrator.window import (
    Closed,
    NumberingState,
    PartOfGlobal,
    from_json,
    heard,
    known_globals,
    released_late,
    to_json,
    window,
)

TIMEOUT_MS = 300_000
MAX_UNIT = 10_000


def no_keys(source: str, first: int, last: int) -> Touched:
    raise ProtocolError("integrator", (source, first, last), "keys were needed and not given")


@dataclass(frozen=True)
class Completed:
    """What became complete since the last message.

    Attributes:
        now_ms: the time, milliseconds since the epoch.
        blocks: per source, (first, last) ordinals; they follow the last block without a gap.
        parts: those of the transactions in `blocks` that are parts of global transactions.
        closed: snapshots that were closed.
        keys: what transactions touch, for windows in which global transactions cross.
    """

    now_ms: int
    blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    parts: tuple[PartOfGlobal, ...] = ()
    closed: tuple[Closed, ...] = ()
    keys: Keys = no_keys


class Assignment(NamedTuple):
    """Ordinals first..last of a source have the numbers number, number + step, ... (step 0 or 1)."""

    source: str
    first: int
    last: int
    number: int
    step: int = 1


class Numbered(NamedTuple):
    """Numbers first..last were given, first > last when none.

    Attributes:
        assignments: in order of numbers.
        released: global transactions released as local: their parts did not come in time, or their
            unit was larger than allowed.
        largest: transactions in the largest unit.
        held: complete transactions that still wait.
        overdue: incomplete global transactions, reported at once.
    """

    first: int
    last: int
    assignments: tuple[Assignment, ...] = ()
    released: tuple[str, ...] = ()
    largest: int = 0
    held: int = 0
    overdue: tuple[str, ...] = ()


class IntegratorMachine:
    """Gives numbers to complete transactions.

    Args:
        sources: all of them.
        timeout_ms: after how long an incomplete global transaction is released as local.
        max_unit: a knot of more transactions than this is released as local.
    """

    def __init__(
        self, sources: Sequence[str], timeout_ms: int = TIMEOUT_MS, max_unit: int = MAX_UNIT
    ) -> None:
        self.timeout_ms = timeout_ms
        self.max_unit = max_unit
        self.state = NumberingState(
            number=0,
            logs={source: (1, 0) for source in sorted(sources)},
            globals={},
            released={},
            skip={},
            open=frozenset(sources),
        )

    @property
    def next_number(self) -> int:
        return self.state.number

    def handle(self, message: Completed) -> Numbered:
        """Number what can be numbered now.

        Raises:
            ProtocolError: a block with a gap, an unknown source, a part outside the blocks.
        """
        self._check(message)
        state, late = released_late(
            heard(self.state, message.blocks, message.parts, message.closed, message.now_ms),
            message.now_ms,
            self.timeout_ms,
        )
        number = state.number
        assignments: list[Assignment] = []
        if number == 0:
            zero = self._zero(state, message.keys)
            if zero is None:
                self.state = state
                return self._numbered(state, 0, [], late, 0)
            state, assignments = zero
        state, ready = window(state)
        items = order(ready, message.keys) if ready.logs else []
        items, split = self._bounded(items)
        given, next_number = _assign(items, state.number)
        self.state = state = NumberingState(next_number, *state[1:])
        largest = max(
            [len(item.members) for item in items if isinstance(item, NumberedUnit)], default=0
        )
        return self._numbered(state, number, [*assignments, *given], [*late, *split], largest)

    def pass_over(self, numbered: Numbered, count: int) -> Numbered:
        """Give out `count` numbers that stand for no transaction, after a step that gave none.

        Their REL is empty, so they are counted and nothing else: a view that comes back under a
        dropped one's name needs numbers between the two, also where nothing is committed any more.
        """
        self.state = self.state._replace(number=self.state.number + count)
        return numbered._replace(last=self.state.number - 1)

    def _numbered(
        self,
        state: NumberingState,
        first: int,
        assignments: list[Assignment],
        released: list[str],
        largest: int,
    ) -> Numbered:
        held = sum([last - next_ + 1 for next_, last in state.logs.values()])
        waiting = tuple(sorted([i for i, g in state.globals.items() if not g.complete]))
        return Numbered(
            first,
            state.number - 1,
            tuple(assignments),
            tuple(sorted(released)),
            largest,
            held,
            waiting,
        )

    def _check(self, message: Completed) -> None:
        for source, (first, last) in message.blocks.items():
            if source not in self.state.logs:
                raise ProtocolError("integrator", source, "an unknown source")
            if first <= last and first != self.state.logs[source][1] + 1:
                raise ProtocolError("integrator", (source, first, last), "a block leaves a gap")
        for part in message.parts:
            first, last = message.blocks.get(part.source, (1, 0))
            if not first <= part.ordinal <= last:
                raise ProtocolError("integrator", part, "a part outside its block")
        still_open = set(self.state.open)
        for closed in message.closed:
            if closed.source not in still_open:
                raise ProtocolError("integrator", closed, "a snapshot closed twice")
            still_open.remove(closed.source)

    def _zero(
        self, state: NumberingState, keys: Keys
    ) -> tuple[NumberingState, list[Assignment]] | None:
        """Number 0 once all snapshots are closed and what straddles them is in."""
        if state.open:
            return None
        members = merged_into_zero(state.logs, known_globals(state), keys)
        if members is None:
            return None
        skip: dict[str, set[int]] = {}
        for source, ordinal in members:
            skip.setdefault(source, set()).add(ordinal)
        left = {
            id_: g
            for id_, g in state.globals.items()
            if not (g.complete and all(member in members for member in g.members))
        }
        state = state._replace(
            number=1, globals=left, skip={s: frozenset(o) for s, o in skip.items()}
        )
        return state, [Assignment(s, o, o, 0, 0) for s, o in sorted(members)]

    def _bounded(self, items: list[Item]) -> tuple[list[Item], list[str]]:
        """Split the units that are too large into their transactions, in log order."""
        result: list[Item] = []
        split: list[str] = []
        for item in items:
            if isinstance(item, NumberedUnit) and len(item.members) > self.max_unit:
                split += item.globals
                result += [LocalRun(source, ordinal, ordinal) for source, ordinal in item.members]
            else:
                result.append(item)
        return result, split

    # Snapshots ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON."""
        return to_json(self.state)

    def restore(self, data: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        self.state = from_json(data)


def _assign(items: list[Item], number: int) -> tuple[list[Assignment], int]:
    given: list[Assignment] = []
    for item in items:
        if isinstance(item, NumberedUnit):
            given += [Assignment(s, o, o, number, 0) for s, o in item.members]
            number += 1
        else:
            given.append(Assignment(item.source, item.first, item.last, number))
            number += item.last - item.first + 1
    return given, number


def numbers_of(
    assignments: Sequence[Assignment], ordinals: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Per source, the number of each of its (ascending) ordinals, -1 where none was given."""
    result = {source: np.full(len(values), -1, np.int64) for source, values in ordinals.items()}
    by_source: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        by_source.setdefault(assignment.source, []).append(assignment)
    for source, given in by_source.items():
        values = ordinals[source]
        first = np.array([a.first for a in given])
        order_ = np.argsort(first)
        first = first[order_]
        last = np.array([a.last for a in given])[order_]
        number = np.array([a.number for a in given])[order_]
        step = np.array([a.step for a in given])[order_]
        place = np.searchsorted(first, values, side="right") - 1
        inside = (place >= 0) & (values <= last[np.maximum(place, 0)])
        chosen = place[inside]
        result[source][inside] = number[chosen] + step[chosen] * (values[inside] - first[chosen])
    return result
