"""Snapshots after the initial one: held until they can take effect, each source's at one number.

A connector takes a snapshot again when it is told to (an ad-hoc one, blocking or incremental), when its
slot or its offsets are lost, or at each start (`snapshot.mode=always`). What such rows mean is
`replacing`'s; here is when they may be looked at. A *whole* snapshot (blocking, or as at the start) is
looked at when its notifications say that it is complete, as many rows of each relation are in as were
scanned, and everything it may have seen has a number. Its rows do not say what that is: a blocking one
is stamped with where the log stood, and has seen more. So the log must have come to a transaction that
committed `CLOCKS_MS` after the notification of the end: late, and never wrong. An *incremental* one
tells rows between the log's own events (op `i` here), each at its own place: it is looked at when its
COMPLETED has come and all events before its rows have numbers. Keys that it does not name stay as they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.sources.held import Held, HeldFiles
from streaming.sources.records import Decoded
from streaming.sources.replacing import (
    distinct,
    found_empty,
    numbered_of,
    outcome,
    replacement,
    touched,
    touched_schema,
)
from streaming.sources.rowquery import PASSING, row_schema
from streaming.sources.schema import CapturedRelation
from streaming.sources.snapshotnotes import Told, heard
from streaming.sources.snapshots import SnapshotWork
from streaming.sources.transactions import Assembler

CLOCKS_MS = 5_000
"""How far a database's clock and its connector's may be apart."""
Contents = Callable[[CapturedRelation, int], pa.Table]
"""A relation's rows after a number, as a delta; raises FrescoError where they cannot be had."""


@dataclass(frozen=True)
class Taking:
    """One relation's rows in a snapshot that has not taken effect.

    Attributes:
        rows: as decoded.
        later: the keys of events after the first of them (`touched_schema`).
        since: partition -> offset of the first row.
        position: the rows' log position; -1 of an incremental snapshot.
    """

    rows: Held
    later: Held
    since: Mapping[int, int]
    position: int


Key = tuple[str, bool]
"""Relation, or source, and whether the snapshot is whole."""


@dataclass(frozen=True)
class Due:
    """The relations of a source that may take effect together.

    Attributes:
        empty: of them those in which the snapshot found nothing; without either it was broken off
            before it had read one.
    """

    source: str
    whole: bool
    relations: tuple[str, ...]
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retaken:
    """All snapshots that wait; every method leaves it as it is.

    Attributes:
        past: source -> position of its last whole snapshot that has taken effect.
        committed: source -> when its newest numbered transaction committed.
    """

    captured: Mapping[str, CapturedRelation]
    files: HeldFiles | None = None
    takings: Mapping[Key, Taking] = field(default_factory=dict)
    told: Mapping[Key, Told] = field(default_factory=dict)
    past: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)

    def numbered(self, transactions: pa.Table) -> Retaken:
        """After numbers were given to transactions (`TRANSACTIONS`)."""
        if not transactions.num_rows:
            return self
        newest = transactions.group_by("source").aggregate([("committed_ms", "max")])
        found = dict(zip(*(column.to_pylist() for column in newest.columns), strict=True))
        new = {s: max(ms, self.committed.get(s, 0)) for s, ms in found.items() if ms is not None}
        return replace(self, committed={**self.committed, **new})

    def add(
        self, work: SnapshotWork, streamed: Decoded, waiting: Mapping[str, Held], now_ms: int
    ) -> Retaken:
        """After a batch.

        Args:
            streamed: without snapshot rows.
            waiting: relation -> rows that wait for their transaction, this batch's not included.
        """
        if not (work.again or work.told or self.takings):
            return self
        takings, told = dict(self.takings), dict(self.told)
        for source, notes in work.told.items():
            for note in notes:
                whole = note.get("aggregate_type") != "Incremental Snapshot"
                told[source, whole] = heard(told.get((source, whole), Told()), note, now_ms)
        for name, rows in work.again.items():
            captured = self.captured[name]
            passing = pc.equal(rows["op"], PASSING)
            for whole, mine in (
                (False, rows.filter(passing)),
                (True, rows.filter(pc.invert(passing))),
            ):
                if whole:
                    mine = mine.filter(
                        pc.greater(mine["position"], self.past.get(captured.source, -1))
                    )
                if mine.num_rows:
                    self._receive(takings, told, captured, whole, mine, waiting[name])
        for (name, whole), taking in takings.items():
            if name in streamed.rows:
                later = self._later(self.captured[name], taking, streamed.rows[name])
                takings[name, whole] = replace(taking, later=taking.later.plus(later))
        return replace(self, takings=takings, told=told)

    def _receive(
        self,
        takings: dict[Key, Taking],
        told: dict[Key, Told],
        captured: CapturedRelation,
        whole: bool,
        rows: pa.Table,
        waiting: Held,
    ) -> None:
        """Hold the rows; of whole snapshots only the newest one's."""
        name = captured.relation.name
        newest = pc.max(rows["position"]).as_py() if whole else -1
        old = takings.get((name, whole))
        if whole and old is not None and newest < old.position:
            return
        if whole:
            others = [
                t for (n, w), t in takings.items() if w and self._source(n) == captured.source
            ]
            if not any(one.position >= newest for one in others):
                known = told.get((captured.source, True), Told())
                told[captured.source, True] = replace(known, positions=known.positions + 1)
            rows = rows.filter(pc.equal(rows["position"], newest))
        if old is None or newest > old.position:
            first = rows.group_by("partition").aggregate([("offset", "min")])
            since = dict(zip(*(column.to_pylist() for column in first.columns), strict=True))
            held = Held(row_schema(captured), (), self.files)
            marks = Held(touched_schema(captured), (), self.files)
            old = Taking(held, marks, since, newest)
            before = (
                waiting.read(columns=None) if waiting.rows else row_schema(captured).empty_table()
            )
            old = replace(old, later=marks.plus(self._later(captured, old, before)))
        takings[name, whole] = replace(old, rows=old.rows.plus(rows))

    def _later(self, captured: CapturedRelation, taking: Taking, rows: pa.Table) -> pa.Table:
        partitions, first = rows["partition"].to_numpy(), np.full(rows.num_rows, -1)
        for partition, offset in taking.since.items():
            first[partitions == partition] = offset
        return touched(captured, rows.filter(pa.array(rows["offset"].to_numpy() > first)))

    def _source(self, relation: str) -> str:
        return self.captured[relation].source

    # Taking effect --------------------------------------------------------------------------------

    def due(self, assembler: Assembler) -> Due | None:
        """A snapshot that may take effect now; with `assembler`'s state of the same moment."""
        for (source, whole), told in self.told.items():
            if not told.completed:
                continue
            found = (
                self._whole(source, told, assembler) if whole else self._passing(source, assembler)
            )
            if found is not None:
                return found
        return None

    def _whole(self, source: str, told: Told, assembler: Assembler) -> Due | None:
        mine = [one for one in self.captured.values() if one.source == source]
        listed = [one for one in mine if one.counted_as in told.scanned]
        if told.starts < told.positions:
            return None
        if self.committed.get(source, 0) <= told.at + CLOCKS_MS:
            return None
        empty = tuple(one.relation.name for one in listed if not told.scanned[one.counted_as])
        filled = tuple(one.relation.name for one in listed if told.scanned[one.counted_as])
        for name in filled:
            taking = self.takings.get((name, True))
            wanted = told.scanned[self.captured[name].counted_as]
            if taking is None or not _passed(assembler, source, taking.position):
                return None
            if taking.rows.rows != wanted and distinct(self.captured[name], taking.rows) != wanted:
                return None
        return Due(source, True, filled, empty)

    def _passing(self, source: str, assembler: Assembler) -> Due | None:
        mine = [name for name, whole in self.takings if not whole and self._source(name) == source]
        for name in mine:
            last = self.takings[name, False].rows.read(columns=["partition", "offset"])
            waits = assembler.state.held[name].table
            ends = last.group_by("partition").aggregate([("offset", "max")])
            for partition, offset in zip(*(c.to_pylist() for c in ends.columns), strict=True):
                before = waits.filter(pc.equal(waits["partition"], partition))["offset"]
                if len(before) and pc.min(before).as_py() < offset:
                    return None
        return Due(source, False, tuple(mine)) if mine else None

    def replaced(
        self,
        due: Due,
        assembler: Assembler,
        contents: Contents,
        number: int,
        duck: duckdb.DuckDBPyConnection,
    ) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
        """Relation -> its rows under `number` where they differ from the log's, and what to say of it.

        Raises:
            FrescoError: SOURCE_SNAPSHOT_REPEATED.
        """
        rows, notices = {}, []
        for name in due.relations:
            captured, taking = self.captured[name], self.takings[name, due.whole]
            later = numbered_of(taking.later, assembler.state.held[name])
            old = contents(captured, number - 1)
            found = replacement(captured, taking.rows.read(), later, old, due.whole, duck)
            if found is not None:
                zero = pa.array(np.full(found.num_rows, number))
                rows[name] = found.add_column(0, "number", zero)
            notices.append(outcome(captured, found, number))
        for name in due.empty:
            if contents(self.captured[name], number - 1).num_rows:
                notices.append(found_empty(self.captured[name]))
        return rows, tuple(notices)

    def done(self, due: Due) -> Retaken:
        """Without a snapshot that has taken effect."""
        gone = {(name, due.whole) for name in due.relations}
        if due.whole:  # and what was read for nothing, where it was broken off
            gone = {key for key in self.takings if key[1] and self._source(key[0]) == due.source}
        positions = [self.takings[key].position for key in gone]
        past = dict(self.past)
        if due.whole:
            past[due.source] = max(positions, default=past.get(due.source, -1))
        left = {key: taking for key, taking in self.takings.items() if key not in gone}
        told = {key: one for key, one in self.told.items() if key != (due.source, True)}
        return replace(self, takings=left, told=told if due.whole else self.told, past=past)

    # Snapshots of itself --------------------------------------------------------------------------

    def snapshot(self) -> tuple[Retaken, dict[str, Any]]:
        """Itself with its rows staged, and what a JSON snapshot says of it."""
        takings, notes = {}, []
        for (name, whole), taking in self.takings.items():
            rows, row_notes = taking.rows.snapshot()
            later, later_notes = taking.later.snapshot()
            takings[name, whole] = replace(taking, rows=rows, later=later)
            since = sorted(taking.since.items())
            notes.append([name, whole, row_notes, later_notes, since, taking.position])
        told = [
            [*key, dict(t.scanned), t.completed, t.at, t.starts, t.positions]
            for key, t in self.told.items()
        ]
        note = {"takings": notes, "told": told, "past": dict(self.past)}
        note["committed"] = dict(self.committed)
        return replace(self, takings=takings), note

    def restore(self, note: Mapping[str, Any], altered: Collection[str] = ()) -> Retaken:
        """The same back from a JSON snapshot's note.

        Args:
            altered: relations that have other columns since; what was held of them is of no use.
        """
        takings: dict[Key, Taking] = {}
        for name, whole, rows, later, since, position in note.get("takings", ()):
            captured = self.captured.get(name)
            if captured is not None and name not in altered:
                held = Held(row_schema(captured), (), self.files).restore(rows)
                marks = Held(touched_schema(captured), (), self.files).restore(later)
                takings[name, whole] = Taking(held, marks, dict(map(tuple, since)), position)
        told = {(source, whole): Told(*rest) for source, whole, *rest in note.get("told", ())}
        past, committed = dict(note.get("past", {})), dict(note.get("committed", {}))
        return replace(self, takings=takings, told=told, past=past, committed=committed)


def _passed(assembler: Assembler, source: str, position: int) -> bool:
    """Whether everything the source committed up to a position has a number."""
    first = assembler.unnumbered.get(source)
    if first is not None:
        return first > position
    return assembler.state.sources[source].last_position > position
