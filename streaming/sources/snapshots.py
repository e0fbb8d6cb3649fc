"""Initial snapshots: the rows with op r of a source, which form its part of number 0 (DESIGN 6).

A snapshot is closed by Debezium's notifications: COMPLETED, and of each table as many rows as its
TABLE_SCAN_COMPLETED says. All rows of one snapshot have its log position, so an attempt that was broken
off and begun again is told apart, and a row that comes again at the closed position is a repeat. A row
at another position after that is a second snapshot, which cannot be merged and is refused.

What waits is counted, and looked at only where a count is exceeded; so of staged rows nothing stays in
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import FrescoError
from streaming.sources.held import Held, HeldFiles
from streaming.sources.records import BadRecord, Decoded
from streaming.sources.rowquery import row_schema
from streaming.sources.schema import CapturedRelation, CapturedSource


@dataclass(frozen=True)
class SnapshotState:
    """A source's snapshot.

    Attributes:
        closed: all rows are in.
        position: log position of the newest attempt.
        scanned: collection -> rows, as notified.
        completed: COMPLETED has come.
        bad: relation -> undecodable records so far.
    """

    closed: bool = False
    position: int = -1
    scanned: Mapping[str, int] = field(default_factory=dict)
    completed: bool = False
    bad: Mapping[str, tuple[BadRecord, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class AllSnapshots:
    """All snapshots: per source its state, per relation the rows that wait, and the relations whose
    snapshot lacks undecodable rows."""

    states: Mapping[str, SnapshotState]
    held: Mapping[str, Held]
    tainted: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotWork:
    """What a batch made of the snapshots, and the sources whose snapshot it closed."""

    state: AllSnapshots
    closed: tuple[str, ...]

    @property
    def held(self) -> Mapping[str, Held]:
        return self.state.held


class Snapshots:
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
            {name: Held(row_schema(r), (), files) for name, r in self._captured.items()},
        )

    @property
    def open(self) -> tuple[str, ...]:
        return tuple(name for name, state in self.state.states.items() if not state.closed)

    def add(self, decoded: Decoded) -> tuple[SnapshotWork, Decoded]:
        """Take the snapshot rows out of a batch; changes nothing.

        Returns:
            The work, and the batch without snapshot rows.

        Raises:
            FrescoError: SOURCE_SNAPSHOT_REPEATED.
        """
        states = dict(self.state.states)
        held = dict(self.state.held)
        for source, notifications in decoded.notifications.items():
            states[source] = _notified(states[source], notifications)
        rest = dict(decoded.rows)
        for name, rows in decoded.rows.items():
            read = pc.equal(rows["op"], "r")
            if pc.any(read).as_py():
                rest[name] = rows.filter(pc.invert(read))
                self._receive(states, held, self._captured[name], rows.filter(read))
        stream = []
        for record in decoded.bad:
            state = states.get(record.source or "")
            if state is None or state.closed or record.transaction or not record.relation:
                stream.append(record)
            else:
                more = {**state.bad, record.relation: (*state.bad.get(record.relation, ()), record)}
                states[record.source or ""] = replace(state, bad=more)
        closed, tainted, spare = self._close(states, held)
        state_ = AllSnapshots(states, held, (*self.state.tainted, *tainted))
        return SnapshotWork(state_, closed), replace(decoded, rows=rest, bad=(*spare, *stream))

    def _receive(
        self,
        states: dict[str, SnapshotState],
        held: dict[str, Held],
        captured: CapturedRelation,
        rows: pa.Table,
    ) -> None:
        """Hold the rows of the newest attempt only; what is held of an older one goes."""
        state = states[captured.source]
        positions = rows["position"].to_numpy()
        wanted = self._sources[captured.source].snapshot
        if state.closed or not wanted:
            other = np.flatnonzero(positions != state.position)
            if len(other):
                raise _again(captured, rows, int(other[0]), wanted)
            return
        newest = int(max(positions.max(), state.position))
        if newest > state.position:
            states[captured.source] = replace(state, position=newest)
            for name, other_ in self._captured.items():
                if other_.source == captured.source:
                    held[name] = held[name].empty()
        name = captured.relation.name
        held[name] = held[name].plus(rows.filter(pa.array(positions == newest)))

    def _close(
        self, states: dict[str, SnapshotState], held: dict[str, Held]
    ) -> tuple[tuple[str, ...], tuple[str, ...], list[BadRecord]]:
        """Close what is full; bad records beyond what a snapshot lacks belong to the stream."""
        closed, tainted = [], []
        spare: list[BadRecord] = []
        for source, state in states.items():
            if state.closed:
                continue
            mine = [r for r in self._captured.values() if r.source == source]
            if not self._sources[source].snapshot:
                spare += [record for records in state.bad.values() for record in records]
                states[source] = replace(state, closed=True, bad={})
                closed.append(source)
            elif state.completed and all(_filled(state, held, captured) for captured in mine):
                for captured in mine:
                    name = captured.relation.name
                    lacking = state.scanned.get(captured.counted_as, 0) - held[name].rows
                    tainted += [name] if lacking else []
                    spare += state.bad.get(name, ())[lacking:]
                states[source] = replace(state, closed=True, bad={})
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


def _notified(state: SnapshotState, notifications: Sequence[Mapping[str, Any]]) -> SnapshotState:
    for note in notifications:
        if state.closed or note.get("aggregate_type", "Initial Snapshot") != "Initial Snapshot":
            continue
        match note["type"]:
            case "STARTED":
                state = replace(state, scanned={}, completed=False)
            case "TABLE_SCAN_COMPLETED":
                rows = int(note.get("total_rows_scanned", 0))
                scanned = {**state.scanned, str(note["scanned_collection"]): rows}
                state = replace(state, scanned=scanned)
            case "COMPLETED" | "SKIPPED":
                state = replace(state, completed=True)
    return state


def _filled(state: SnapshotState, held: dict[str, Held], captured: CapturedRelation) -> bool:
    """Whether as many rows are in as were scanned, undecodable ones included.

    A row delivered twice has the same key; a table without one cannot tell, and waits.
    """
    name = captured.relation.name
    wanted = state.scanned.get(captured.counted_as, 0)
    rows = held[name].rows
    if rows > wanted and captured.relation.key:
        keys = [f"a{i}" for i in captured.relation.key]
        table = held[name].read(columns=keys).append_column("row", pa.array(np.arange(rows)))
        first = table.group_by(keys).aggregate([("row", "min")])["row_min"].to_numpy()
        mask = np.zeros(rows, bool)
        mask[first] = True
        held[name] = held[name].keep(mask)
        rows = held[name].rows
    return rows <= wanted <= rows + len(state.bad.get(name, ()))


def _again(captured: CapturedRelation, rows: pa.Table, place: int, wanted: bool) -> FrescoError:
    name = captured.relation.name
    where = (
        f"topic {captured.topic}, partition {rows['partition'][place].as_py()}, "
        f"offset {rows['offset'][place].as_py()}"
    )
    if not wanted:
        what = f"a snapshot row of {name}, whose source is configured to have no snapshot"
        todo = "set snapshot: true for the source, or snapshot.mode=no_data in its connector"
    else:
        what = f"a second snapshot of {name} after the first one was closed"
        todo = (
            "start a new pipeline from this snapshot, or go back to the offsets before it and "
            "take the snapshot signal (or the lost slot's re-snapshot) out of the connector"
        )
    return FrescoError("SOURCE_SNAPSHOT_REPEATED", what, where=where, todo=todo)
