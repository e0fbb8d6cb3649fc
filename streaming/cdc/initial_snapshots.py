"""Initial snapshots: the rows with op r of a source, which form its part of number 0 (DESIGN 6).

A snapshot is closed by Debezium's notifications: COMPLETED, and of each table as many rows as its
TABLE_SCAN_COMPLETED says. All rows of one snapshot have its log position, so an attempt that was broken
off and begun again is told apart (`attempts`), and a row that comes again at the closed position is a
repeat. Later snapshots may lie in the topics by then: they are handed on (`retaken`), with the
notifications after the first COMPLETED.

What waits is looked at when a snapshot is complete, and not before; so of staged rows nothing stays in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.cdc.held_rows import HeldFiles, HeldRows
from streaming.cdc.records import BadRecord, Decoded
from streaming.cdc.row_query import PASSING, READ, row_schema
from streaming.cdc.snapshot_attempts import initial, lacking, positions_of


@dataclass(frozen=True)
class SnapshotState:
    """A source's snapshot.

    Attributes:
        closed: all rows are in.
        position: log position of the closed snapshot; -1 until then, and where it has no rows.
        scanned: collection -> rows, as notified.
        completed: COMPLETED has come.
        starts: snapshots begun until then.
        bad: relation -> undecodable records so far.
    """

    closed: bool = False
    position: int = -1
    scanned: Mapping[str, int] = field(default_factory=dict)
    completed: bool = False
    starts: int = 0
    bad: Mapping[str, tuple[BadRecord, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class AllSnapshots:
    """All snapshots: per source its state, per relation the rows that wait, and the relations whose
    snapshot lacks undecodable rows."""

    states: Mapping[str, SnapshotState]
    held: Mapping[str, HeldRows]
    tainted: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotWork:
    """What a batch made of the snapshots.

    Attributes:
        closed: the sources whose snapshot it closed.
        again: relation -> rows of snapshots after the initial one.
        told: source -> notifications after the initial snapshot's.
    """

    state: AllSnapshots
    closed: tuple[str, ...]
    again: Mapping[str, pa.Table] = field(default_factory=dict)
    told: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    @property
    def held(self) -> Mapping[str, HeldRows]:
        return self.state.held


class InitialSnapshots:
    """All sources' initial snapshots until number 0 is given."""

    def __init__(
        self,
        relations: Sequence[CapturedRelation],
        sources: Mapping[str, CapturedSource],
        files: HeldFiles | None = None,
    ) -> None:
        self._captured = {r.relation.name: r for r in relations}
        self._sources = sources
        self.state = AllSnapshots(
            {name: SnapshotState() for name in sources},
            {name: HeldRows(row_schema(r), (), files) for name, r in self._captured.items()},
        )

    @property
    def open(self) -> dict[str, str]:
        """Source whose snapshot is not closed -> what has come of it, in words."""
        return {
            source: lacking(self.state.held, self._of(source), state.scanned, state.completed)
            for source, state in self.state.states.items()
            if not state.closed
        }

    def _of(self, source: str) -> list[CapturedRelation]:
        return [one for one in self._captured.values() if one.source == source]

    def add(
        self, decoded: Decoded, logged: Mapping[str, int] | None = None
    ) -> tuple[SnapshotWork, Decoded]:
        """Take the snapshot rows out of a batch; changes nothing.

        Args:
            logged: source -> commit position of its first transaction before the batch.

        Returns:
            The work, and the batch without snapshot rows.
        """
        states = dict(self.state.states)
        held = dict(self.state.held)
        again: dict[str, pa.Table] = {}
        told: dict[str, tuple[Mapping[str, Any], ...]] = {}
        for source, notifications in decoded.notifications.items():
            states[source], told[source] = _notified(states[source], notifications)
        rest = dict(decoded.rows)
        for name, rows in decoded.rows.items():
            read = pc.is_in(rows["op"], pa.array(READ))
            if pc.any(read).as_py():
                rest[name] = rows.filter(pc.invert(read))
                self._receive(states, held, again, self._captured[name], rows.filter(read))
        stream = []
        for record in decoded.bad:
            state = states.get(record.source or "")
            if state is None or state.closed or record.transaction or not record.relation:
                stream.append(record)
            else:
                more = {**state.bad, record.relation: (*state.bad.get(record.relation, ()), record)}
                states[record.source or ""] = replace(state, bad=more)
        streamed = _streamed(decoded, logged or {}) if self.open else {}
        closed, tainted, spare = self._close(states, held, again, told, streamed)
        state_ = AllSnapshots(states, held, (*self.state.tainted, *tainted))
        work = SnapshotWork(state_, closed, again, told)
        return work, replace(decoded, rows=rest, bad=(*spare, *stream))

    def _receive(
        self,
        states: dict[str, SnapshotState],
        held: dict[str, HeldRows],
        again: dict[str, pa.Table],
        captured: CapturedRelation,
        rows: pa.Table,
    ) -> None:
        """Hold the rows until it is known which are the initial snapshot's."""
        name, state = captured.relation.name, states[captured.source]
        passing = pc.equal(rows["op"], PASSING)
        if state.closed or not self._sources[captured.source].snapshot:
            later = pc.or_kleene(passing, pc.greater(rows["position"], state.position))
            again[name] = rows.filter(later)
            return
        if pc.any(passing).as_py():
            again[name], rows = rows.filter(passing), rows.filter(pc.invert(passing))
        held[name] = held[name].plus(rows)

    def _close(
        self,
        states: dict[str, SnapshotState],
        held: dict[str, HeldRows],
        again: dict[str, pa.Table],
        told: dict[str, tuple[Mapping[str, Any], ...]],
        streamed: Mapping[str, int],
    ) -> tuple[tuple[str, ...], tuple[str, ...], list[BadRecord]]:
        """Close what is full; bad records beyond what a snapshot lacks belong to the stream."""
        closed, tainted = [], []
        spare: list[BadRecord] = []
        for source, state in states.items():
            if state.closed:
                continue
            mine = self._of(source)
            if not self._sources[source].snapshot:
                spare += [record for records in state.bad.values() for record in records]
                states[source] = replace(state, closed=True, bad={})
                closed.append(source)
            elif state.completed and (
                found := initial(
                    held,
                    mine,
                    state.scanned,
                    {name: len(records) for name, records in state.bad.items()},
                    state.starts,
                    streamed.get(source),
                )
            ):
                position, masks = found
                told[source] = (*_of_others(state), *told.get(source, ()))
                for captured in mine:
                    name = captured.relation.name
                    later = held[name].read(positions_of(held[name]) > position)
                    if later.num_rows:
                        parts = [again[name]] if name in again else []
                        again[name] = pa.concat_tables([later, *parts])
                    held[name] = held[name].keep(masks[name])
                    lacking = state.scanned.get(captured.counted_as, 0) - held[name].rows
                    tainted += [name] if lacking else []
                    spare += state.bad.get(name, ())[lacking:]
                states[source] = replace(state, closed=True, position=position, bad={})
                closed.append(source)
        return tuple(closed), tuple(tainted), spare

    def keep(self, work: SnapshotWork) -> None:
        """Adopt the work's state."""
        self.state = work.state

    def take(self) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
        """All snapshot rows and the tainted relations, once number 0 is given; forgets them."""
        held = self.state.held
        rows = {name: waiting.read() for name, waiting in held.items() if waiting.rows}
        tainted = self.state.tainted
        empty = {name: waiting.empty() for name, waiting in held.items()}
        self.state = AllSnapshots(self.state.states, empty)
        return rows, tainted

    @property
    def held_files(self) -> Iterator[str]:
        """Those that its rows are in."""
        for held in self.state.held.values():
            yield from held.paths

    def snapshot(self) -> dict[str, Any]:
        """All state as JSON."""
        staged, notes = {}, {}
        for name, rows in self.state.held.items():
            staged[name], notes[name] = rows.snapshot()
        self.state = replace(self.state, held=staged)
        states = {
            name: {
                "closed": s.closed,
                "position": s.position,
                "scanned": dict(s.scanned),
                "completed": s.completed,
                "starts": s.starts,
                "bad": {name: [asdict(b) for b in records] for name, records in s.bad.items()},
            }
            for name, s in self.state.states.items()
        }
        return {
            "held": {name: note for name, note in notes.items() if note},
            "states": states,
            "tainted": list(self.state.tainted),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        states = {}
        for source in self._sources:
            values = dict(data["states"].get(source, {}))
            if "bad" in values:
                values["bad"] = {
                    name: tuple(BadRecord(**record) for record in records)
                    for name, records in values["bad"].items()
                }
            states[source] = SnapshotState(**values)
        held = {
            name: waiting.empty().restore(data["held"].get(name, []))
            for name, waiting in self.state.held.items()
        }
        self.state = AllSnapshots(states, held, tuple(data["tainted"]))


def _notified(
    state: SnapshotState, notifications: Sequence[Mapping[str, Any]]
) -> tuple[SnapshotState, tuple[Mapping[str, Any], ...]]:
    """The state after notifications, and those that are not of the initial snapshot."""
    others = []
    for note in notifications:
        initial = note.get("aggregate_type", "Initial Snapshot") == "Initial Snapshot"
        if state.closed or state.completed or not initial:
            others.append(note)
            continue
        match note["type"]:
            case "STARTED":
                state = replace(state, scanned={}, completed=False, starts=state.starts + 1)
            case "TABLE_SCAN_COMPLETED":
                rows = int(note.get("total_rows_scanned", 0))
                scanned = {**state.scanned, str(note["scanned_collection"]): rows}
                state = replace(state, scanned=scanned)
            case "COMPLETED" | "SKIPPED":
                state = replace(state, completed=True)
    return state, tuple(others)


def _of_others(state: SnapshotState) -> tuple[Mapping[str, Any], ...]:
    """What has been told of an attempt whose rows may still come, where an earlier one was taken."""
    if state.starts <= 1:
        return ()
    scans = [
        {"type": "TABLE_SCAN_COMPLETED", "scanned_collection": name, "total_rows_scanned": rows}
        for name, rows in state.scanned.items()
    ]
    return ({"type": "STARTED"},) * (state.starts - 1) + (*scans, {"type": "COMPLETED"})


def _streamed(decoded: Decoded, logged: Mapping[str, int]) -> dict[str, int]:
    """Source -> commit position of the first transaction that its log tells of."""
    found = dict(logged)
    for source, told in decoded.transactions.items():
        first = pc.min(told["position"].filter(pc.equal(told["status"], "END"))).as_py()
        if first is not None:
            found[source] = min(first, found.get(source, first))
    return found
