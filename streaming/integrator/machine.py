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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streaming.errors import ProtocolError
from streaming.integrator.numbering import Item, Keys, Member, Run, Touched, Unit, Window, order
from streaming.integrator.straddling import merged_into_zero

TIMEOUT_MS = 300_000
MAX_UNIT = 10_000


@dataclass(frozen=True)
class Part:
    """The transaction (source, ordinal) is one of `parts` parts of the global transaction `id`."""

    source: str
    ordinal: int
    id: str
    parts: int


@dataclass(frozen=True)
class Closed:
    """A source's snapshot is closed; `seen` are (id, parts, how many) of the tags it holds."""

    source: str
    seen: tuple[tuple[str, int, int], ...] = ()


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
    parts: tuple[Part, ...] = ()
    closed: tuple[Closed, ...] = ()
    keys: Keys = no_keys


@dataclass(frozen=True)
class Assignment:
    """Ordinals first..last of a source have the numbers number, number + step, ... (step 0 or 1)."""

    source: str
    first: int
    last: int
    number: int
    step: int = 1


@dataclass(frozen=True)
class Numbered:
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


@dataclass(frozen=True)
class Global:
    """A global transaction of which parts are known; `seen` of them in snapshots."""

    parts: int
    first_ms: int
    members: tuple[Member, ...] = ()
    seen: int = 0

    @property
    def complete(self) -> bool:
        return len(self.members) + self.seen >= self.parts


@dataclass(frozen=True)
class State:
    """Everything the machine knows.

    Attributes:
        number: the next to give.
        logs: per source, (next ordinal to number, last complete ordinal).
        globals: those with a part that has no number.
        released: ids that are local from now on, with the parts still to come.
        skip: per source, ordinals at or above the next that are in number 0 already.
        open: sources whose snapshot is not closed.
    """

    number: int
    logs: Mapping[str, tuple[int, int]]
    globals: Mapping[str, Global]
    released: Mapping[str, int]
    skip: Mapping[str, frozenset[int]]
    open: frozenset[str]


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
        self._state = State(
            number=0,
            logs={source: (1, 0) for source in sorted(sources)},
            globals={},
            released={},
            skip={},
            open=frozenset(sources),
        )

    @property
    def next_number(self) -> int:
        return self._state.number

    def handle(self, message: Completed) -> Numbered:
        """Number what can be numbered now.

        Raises:
            ProtocolError: a block with a gap, an unknown source, a part outside the blocks.
        """
        self._check(message)
        state, late = _released(_heard(self._state, message), message.now_ms, self.timeout_ms)
        number = state.number
        assignments: list[Assignment] = []
        if number == 0:
            zero = self._zero(state, message.keys)
            if zero is None:
                self._state = state
                return self._numbered(state, 0, [], late, 0)
            state, assignments = zero
        state, window = _window(state)
        items = order(window, message.keys) if window.logs else []
        items, split = self._bounded(items)
        given, next_number = _assign(items, state.number)
        state = replace(state, number=next_number)
        self._state = state
        largest = max((len(item.members) for item in items if isinstance(item, Unit)), default=0)
        return self._numbered(state, number, [*assignments, *given], [*late, *split], largest)

    def _numbered(
        self,
        state: State,
        first: int,
        assignments: list[Assignment],
        released: list[str],
        largest: int,
    ) -> Numbered:
        held = sum(last - next_ + 1 for next_, last in state.logs.values())
        waiting = tuple(sorted(i for i, g in state.globals.items() if not g.complete))
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
            if source not in self._state.logs:
                raise ProtocolError("integrator", source, "an unknown source")
            if first <= last and first != self._state.logs[source][1] + 1:
                raise ProtocolError("integrator", (source, first, last), "a block leaves a gap")
        for part in message.parts:
            first, last = message.blocks.get(part.source, (1, 0))
            if not first <= part.ordinal <= last:
                raise ProtocolError("integrator", part, "a part outside its block")
        for closed in message.closed:
            if closed.source not in self._state.open:
                raise ProtocolError("integrator", closed, "a snapshot closed twice")

    def _zero(self, state: State, keys: Keys) -> tuple[State, list[Assignment]] | None:
        """Number 0 once all snapshots are closed and what straddles them is in."""
        if state.open:
            return None
        members = merged_into_zero(state.logs, _globals(state), keys)
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
        state = replace(
            state, number=1, globals=left, skip={s: frozenset(o) for s, o in skip.items()}
        )
        return state, [Assignment(s, o, o, 0, 0) for s, o in sorted(members)]

    def _bounded(self, items: list[Item]) -> tuple[list[Item], list[str]]:
        """Split the units that are too large into their transactions, in log order."""
        result: list[Item] = []
        split: list[str] = []
        for item in items:
            if isinstance(item, Unit) and len(item.members) > self.max_unit:
                split += item.globals
                result += [Run(source, ordinal, ordinal) for source, ordinal in item.members]
            else:
                result.append(item)
        return result, split

    # Snapshots ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON."""
        state = self._state
        return {
            "number": state.number,
            "logs": {source: list(log) for source, log in state.logs.items()},
            "globals": {
                id_: [g.parts, g.first_ms, [list(m) for m in g.members], g.seen]
                for id_, g in state.globals.items()
            },
            "released": dict(state.released),
            "skip": {source: sorted(ordinals) for source, ordinals in state.skip.items()},
            "open": sorted(state.open),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        self._state = State(
            number=data["number"],
            logs={source: (log[0], log[1]) for source, log in data["logs"].items()},
            globals={
                id_: Global(parts, first_ms, tuple((s, o) for s, o in members), seen)
                for id_, (parts, first_ms, members, seen) in data["globals"].items()
            },
            released=dict(data["released"]),
            skip={source: frozenset(ordinals) for source, ordinals in data["skip"].items()},
            open=frozenset(data["open"]),
        )


def _globals(state: State) -> dict[str, tuple[bool, int, tuple[Member, ...]]]:
    return {id_: (g.complete, g.seen, g.members) for id_, g in state.globals.items()}


def _heard(state: State, message: Completed) -> State:
    logs = dict(state.logs)
    for source, (first, last) in message.blocks.items():
        if first <= last:
            logs[source] = (logs[source][0], last)
    globals_ = dict(state.globals)
    released = dict(state.released)
    for closed in message.closed:
        for id_, parts, count in closed.seen:
            known = globals_.get(id_, Global(parts, message.now_ms))
            globals_[id_] = replace(known, seen=known.seen + count)
    open_ = state.open - {closed.source for closed in message.closed}
    for part in message.parts:
        if released.get(part.id, 0) > 0:
            released[part.id] -= 1
            continue
        known = globals_.get(part.id, Global(part.parts, message.now_ms))
        member = (part.source, part.ordinal)
        if member not in known.members:
            globals_[part.id] = replace(known, members=tuple(sorted((*known.members, member))))
    if not open_:
        # A tag that a snapshot holds in all its parts belongs to number 0 like any row.
        globals_ = {i: g for i, g in globals_.items() if g.members or not g.complete}
    released = {id_: left for id_, left in released.items() if left > 0}
    return replace(state, logs=logs, globals=globals_, released=released, open=open_)


def _released(state: State, now_ms: int, timeout_ms: int) -> tuple[State, list[str]]:
    """Incomplete global transactions that waited too long become local."""
    late = [
        id_
        for id_, g in state.globals.items()
        if not g.complete and now_ms - g.first_ms >= timeout_ms
    ]
    if not late:
        return state, []
    released = dict(state.released)
    for id_ in late:
        known = state.globals[id_]
        released[id_] = known.parts - known.seen - len(known.members)
    left = {id_: g for id_, g in state.globals.items() if id_ not in late}
    return replace(state, globals=left, released=released), late


def _window(state: State) -> tuple[State, Window]:
    """The longest prefix of each log in which every global transaction is whole, taken out."""
    limits = {source: last for source, (_, last) in state.logs.items()}
    blocked: set[str] = set()
    pending = [id_ for id_, g in state.globals.items() if not g.complete]
    while pending:
        for id_ in pending:
            blocked.add(id_)
            for source, ordinal in state.globals[id_].members:
                limits[source] = min(limits[source], ordinal - 1)
        pending = [
            id_
            for id_, g in state.globals.items()
            if id_ not in blocked and any(ordinal > limits[s] for s, ordinal in g.members)
        ]
    logs = {s: (n, limits[s]) for s, (n, _) in state.logs.items() if n <= limits[s]}
    parts = {id_: g.members for id_, g in state.globals.items() if id_ not in blocked}
    left = {id_: g for id_, g in state.globals.items() if id_ in blocked}
    next_ = {s: (logs[s][1] + 1 if s in logs else n, last) for s, (n, last) in state.logs.items()}
    skip = {
        s: frozenset(o for o in ordinals if o >= next_[s][0]) for s, ordinals in state.skip.items()
    }
    window = Window(logs, parts, state.skip)
    skip = {s: ordinals for s, ordinals in skip.items() if ordinals}
    return replace(state, logs=next_, globals=left, skip=skip), window


def _assign(items: list[Item], number: int) -> tuple[list[Assignment], int]:
    given: list[Assignment] = []
    for item in items:
        if isinstance(item, Unit):
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
