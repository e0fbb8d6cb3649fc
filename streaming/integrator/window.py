"""What the integrator's machine remembers: complete transactions without a number, global ones that lack
a part, and the window that can be numbered (DESIGN 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from streaming.integrator.knots import Member
from streaming.integrator.numbering import Window


@dataclass(frozen=True)
class PartOfGlobal:
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


class NumberingState(NamedTuple):
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


def known_globals(state: NumberingState) -> dict[str, tuple[bool, int, tuple[Member, ...]]]:
    return {id_: (g.complete, g.seen, g.members) for id_, g in state.globals.items()}


def heard(
    state: NumberingState,
    blocks: Mapping[str, tuple[int, int]],
    parts: Sequence[PartOfGlobal],
    closed: Sequence[Closed],
    now_ms: int,
) -> NumberingState:
    logs = dict(state.logs)
    for source, (first, last) in blocks.items():
        if first <= last:
            logs[source] = (logs[source][0], last)
    if not parts and not closed and not state.globals:
        return NumberingState(state.number, logs, {}, state.released, state.skip, state.open)
    globals_ = dict(state.globals)
    released = dict(state.released)
    for snapshot in closed:
        for id_, wanted, count in snapshot.seen:
            known = globals_.get(id_, Global(wanted, now_ms))
            globals_[id_] = replace(known, seen=known.seen + count)
    open_ = state.open - {snapshot.source for snapshot in closed}
    for part in parts:
        if released.get(part.id, 0) > 0:
            released[part.id] -= 1
            continue
        known = globals_.get(part.id, Global(part.parts, now_ms))
        member = (part.source, part.ordinal)
        if member not in known.members:
            globals_[part.id] = replace(known, members=tuple(sorted((*known.members, member))))
    if not open_:
        # A tag that a snapshot holds in all its parts belongs to number 0 like any row.
        globals_ = {i: g for i, g in globals_.items() if g.members or not g.complete}
    released = {id_: left for id_, left in released.items() if left > 0}
    return NumberingState(state.number, logs, globals_, released, state.skip, open_)


def released_late(
    state: NumberingState, now_ms: int, timeout_ms: int
) -> tuple[NumberingState, list[str]]:
    """Incomplete global transactions that waited too long become local."""
    if not state.globals:
        return state, []
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
    return state._replace(globals=left, released=released), late


def window(state: NumberingState) -> tuple[NumberingState, Window]:
    """The longest prefix of each log in which every global transaction is whole, taken out."""
    if not state.globals and not state.skip:
        logs = {s: (first, last) for s, (first, last) in state.logs.items() if first <= last}
        taken = {s: (max(first, last + 1), last) for s, (first, last) in state.logs.items()}
        rest = NumberingState(state.number, taken, {}, state.released, {}, state.open)
        return rest, Window(logs, {}, {})
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
    found = Window(logs, parts, state.skip)
    skip = {s: ordinals for s, ordinals in skip.items() if ordinals}
    return state._replace(logs=next_, globals=left, skip=skip), found


def to_json(state: NumberingState) -> dict[str, Any]:
    """The state as JSON."""
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


def from_json(data: Mapping[str, Any]) -> NumberingState:
    """The state that `to_json` described."""
    return NumberingState(
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
