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

A connector that is ended in the middle says nothing more, and a record that cannot be decoded is missing
for ever. So when the source has committed for `SILENCE_MS` after the last that was heard of a snapshot,
no more of it comes: a whole one is let go, because what its relations hold it cannot say, and of an
incremental one what has come is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.assembler import Assembler, NumberedRows
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.initial_snapshots import SnapshotWork
from streaming.cdc.later_rows import Taking
from streaming.cdc.old_dates import Look, told_as_others
from streaming.cdc.replacement import (
    REPEATED,
    Contents,
    Replaced,
    distinct,
    found_empty,
    may_hold,
    outcome,
    refused,
    replacement,
    unfinished,
)
from streaming.cdc.row_query import PASSING
from streaming.cdc.snapshot_notes import SnapshotNotes, heard
from streaming.errors import FrescoError
from streaming.messages import Control

CLOCKS_MS = 5_000
"""How far a database's clock and its connector's may be apart."""
SILENCE_MS = 600_000
"""Of a snapshot under way something is heard more often: rows and notifications, as they are read."""
Key = tuple[str, bool]
"""Relation, or source, and whether the snapshot is whole."""


@dataclass(frozen=True)
class Due:
    """The relations of a source that may take effect together.

    Attributes:
        empty: of them those in which the snapshot found nothing; without either it was broken off
            before it had read one.
        silent: of those that cannot take effect, because no more comes of the snapshot, how many rows
            have come, and of how many that were scanned (None where nobody has said).
    """

    source: str
    whole: bool
    relations: tuple[str, ...]
    empty: tuple[str, ...] = ()
    silent: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Retaken:
    """All snapshots that wait; every method leaves it as it is.

    Attributes:
        past: source -> position of its last whole snapshot that has taken effect.
        committed: source -> when its newest numbered transaction committed.
        untimed: sources whose events may not say when they committed.
    """

    captured: Mapping[str, CapturedRelation]
    files: HeldFiles | None = None
    takings: Mapping[Key, Taking] = field(default_factory=dict)
    told: Mapping[Key, SnapshotNotes] = field(default_factory=dict)
    past: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    untimed: frozenset[str] = frozenset()

    def numbered(
        self, taken: NumberedRows, times: Mapping[str, int], assembler: Assembler
    ) -> Retaken:
        """After numbers were given to transactions: events that never get one say nothing of a key.

        Args:
            times: source -> when its newest event committed; it counts where none waits for a number.
        """
        if not taken.transactions.num_rows:
            return self
        newest = taken.transactions.group_by("source").aggregate([("committed_ms", "max")])
        found = dict(zip(*(column.to_pylist() for column in newest.columns), strict=True))
        left = assembler.unnumbered
        found |= {source: ms for source, ms in times.items() if source not in left}
        new = {s: max(ms, self.committed.get(s, 0)) for s, ms in found.items() if ms is not None}
        takings = {
            key: taking.passed_by(taken.rows[key[0]]) if key[0] in taken.rows else taking
            for key, taking in self.takings.items()
        }
        return replace(self, takings=takings, committed={**self.committed, **new})

    def add(self, work: SnapshotWork, now_ms: int) -> Retaken:
        """After a batch was decoded, whose events have no number yet."""
        if not (work.again or work.told or self.takings):
            return self
        takings, told = dict(self.takings), dict(self.told)
        for source, notes in work.told.items():
            for note in notes:
                whole = note.get("aggregate_type") != "Incremental Snapshot"
                told[source, whole] = heard(
                    told.get((source, whole), SnapshotNotes()), note, now_ms
                )
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
                    self._receive(takings, told, captured, whole, mine)
                    key = captured.source, whole
                    told[key] = replace(told.get(key, SnapshotNotes()), heard=now_ms)
        return replace(self, takings=takings, told=told)

    def _receive(
        self,
        takings: dict[Key, Taking],
        told: dict[Key, SnapshotNotes],
        captured: CapturedRelation,
        whole: bool,
        rows: pa.Table,
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
                known = told.get((captured.source, True), SnapshotNotes())
                told[captured.source, True] = replace(known, positions=known.positions + 1)
            rows = rows.filter(pc.equal(rows["position"], newest))
        if old is None or newest > old.position:
            old = Taking.begun(captured, rows, newest, self.files)
        takings[name, whole] = old.plus(rows)

    def _source(self, relation: str) -> str:
        return self.captured[relation].source

    # Taking effect --------------------------------------------------------------------------------

    def due(self, assembler: Assembler, now_ms: int) -> Due | None:
        """A snapshot that may take effect now; with `assembler`'s state of the same moment."""
        for (source, whole), told in self.told.items():
            now = self.committed.get(source, now_ms if source in self.untimed else 0)
            silent = now > told.heard + SILENCE_MS
            found = None
            if not whole and (told.completed or silent):
                found = self._passing(source, assembler)
            elif whole and told.completed:
                found = self._whole(source, told, assembler)
            if found is None and whole and silent:
                found = self._given_up(source, told)
            if found is not None:
                return found
        return None

    def _given_up(self, source: str, told: SnapshotNotes) -> Due:
        return Due(source, True, (), (), self._counts(source, told))

    def _counts(self, source: str, told: SnapshotNotes) -> dict[str, tuple[int, int | None]]:
        """Relation -> rows that have come of a whole snapshot, and those that were scanned."""
        return {
            name: (taking.rows.rows, told.scanned.get(taking.captured.counted_as))
            for (name, whole), taking in self.takings.items()
            if whole and taking.captured.source == source
        }

    def _whole(self, source: str, told: SnapshotNotes, assembler: Assembler) -> Due | None:
        mine = [one for one in self.captured.values() if one.source == source]
        listed = [one for one in mine if one.counted_as in told.scanned]
        if told.starts < told.positions:
            return None
        if self.committed.get(source, 0) <= told.at + CLOCKS_MS:
            return None
        empty = tuple(one.relation.name for one in listed if not told.scanned[one.counted_as])
        filled = tuple(one.relation.name for one in listed if told.scanned[one.counted_as])
        counts = self._counts(source, told)
        newest = max([self.takings[name, True].position for name in counts], default=-1)
        for name in filled:
            taking = self.takings.get((name, True))
            if taking is None or taking.position < newest:
                return None  # nothing of it has come, or of an attempt before
            if not _passed(assembler, source, newest):
                return None
            rows, wanted = taking.rows.rows, told.scanned[self.captured[name].counted_as]
            if rows < wanted or (
                rows > wanted and distinct(self.captured[name], taking.rows) != wanted
            ):
                return None
        rest = {name: count for name, count in counts.items() if name not in (*filled, *empty)}
        return Due(source, True, filled, empty, rest)

    def _passing(self, source: str, assembler: Assembler) -> Due | None:
        mine = [name for name, whole in self.takings if not whole and self._source(name) == source]
        for name in mine:
            if not self.takings[name, False].precedes(assembler.state.held[name].table):
                return None
        return Due(source, False, tuple(mine)) if mine else None

    def replaced(
        self,
        due: Due,
        contents: Contents,
        number: int,
        duck: duckdb.DuckDBPyConnection,
        look: Look,
    ) -> Replaced:
        """What is new under `number`, and what to say of it."""
        rows, bad, notices, controls = {}, [], [], list[Control]()
        for name in due.relations:
            captured, taking = self.captured[name], self.takings[name, due.whole]
            taken, later = taking.rows.read(), taking.later.read()
            try:
                old = contents(captured, number - 1)
                found = replacement(captured, taken, later, old, due.whole, duck)
            except FrescoError as error:
                if error.code != REPEATED:
                    raise
                bad.append(refused(captured, taken, error))
                continue
            if found is not None:
                zero = pa.array(np.full(found.num_rows, number))
                rows[name] = found.add_column(0, "number", zero)
                taints, said = told_as_others(captured, number, look)
                controls += taints
                notices += [said] if said else []
            notices.append(outcome(captured, found, number))
        notices += [
            found_empty(self.captured[name])
            for name in due.empty
            if may_hold(self.captured[name], contents, number - 1)
        ]
        notices += [unfinished(self.captured[n], *counts) for n, counts in due.silent.items()]
        return Replaced(rows, tuple(bad), tuple(notices), tuple(controls))

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

    @property
    def held_files(self) -> Iterator[str]:
        """Those that its rows are in."""
        for taking in self.takings.values():
            yield from (*taking.rows.paths, *taking.later.paths)

    def snapshot(self) -> tuple[Retaken, dict[str, Any]]:
        """Itself with its rows staged, and what a JSON snapshot says of it."""
        takings, notes = {}, []
        for (name, whole), taking in self.takings.items():
            takings[name, whole], note = taking.snapshot()
            notes.append([name, whole, *note])
        told = [
            [*key, dict(t.scanned), t.completed, t.at, t.starts, t.positions, t.heard]
            for key, t in self.told.items()
        ]
        kept = {"takings": notes, "told": told, "past": dict(self.past)}
        return replace(self, takings=takings), {**kept, "committed": dict(self.committed)}

    def restore(self, note: Mapping[str, Any], altered: Collection[str] = ()) -> Retaken:
        """The same back from a JSON snapshot's note.

        Args:
            altered: relations that have other columns since; what was held of them is of no use.
        """
        takings: dict[Key, Taking] = {}
        for name, whole, *rest in note.get("takings", ()):
            captured = self.captured.get(name)
            if captured is not None and name not in altered:
                takings[name, whole] = Taking.back(captured, self.files, rest)
        told = {
            (source, whole): SnapshotNotes(*told) for source, whole, *told in note.get("told", ())
        }
        past, committed = dict(note.get("past", {})), dict(note.get("committed", {}))
        return replace(self, takings=takings, told=told, past=past, committed=committed)


def _passed(assembler: Assembler, source: str, position: int) -> bool:
    """Whether everything the source committed up to a position has a number."""
    first = assembler.unnumbered.get(source)
    if first is not None:
        return first > position
    return assembler.state.sources[source].last_position > position
