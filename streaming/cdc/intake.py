"""Intake: a batch of Kafka records in, numbered updates and REL out (DESIGN 5, Integrator).

One step decodes, assembles, numbers and works out REL, all in columns. Nothing changes before the last
error is possible, so a step that raises may be repeated; `snapshot` and `restore` carry everything
between steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import GLOBAL_TABLE, CapturedRelation, CapturedSource
from streaming.cdc.apart import PartsApart
from streaming.cdc.assembler import TRANSACTIONS, Assembler
from streaming.cdc.completeness import SourceStep
from streaming.cdc.debezium import Decoder
from streaming.cdc.deltas import RelationDelta, numbered_changes
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.initial_snapshots import InitialSnapshots, SnapshotWork
from streaming.cdc.intake_result import Clock, IntakeResult
from streaming.cdc.later_snapshots import Retaken
from streaming.cdc.old_dates import Look, told_as_others
from streaming.cdc.records import Decoded
from streaming.cdc.rel_of_step import related
from streaming.cdc.replacement import Contents, Replaced, cannot_tell
from streaming.cdc.reshaped_rows import columns_of, refitted
from streaming.cdc.tags import closed_snapshots, touched_keys, transaction_parts
from streaming.cdc.unread_columns import SaidOnce
from streaming.integrator.integrator_machine import (
    MAX_UNIT,
    TIMEOUT_MS,
    Completed,
    IntegratorMachine,
    Numbered,
    numbers_of,
)
from streaming.integrator.knots import Touched
from streaming.integrator.relevance import RelevantView, view_needs
from streaming.integrator.window import Closed, PartOfGlobal
from streaming.messages import Control, GlobalPart, RelRun


class Intake:
    """The integrator's work for one pipeline, without its input and output.

    Args:
        captured: every captured relation, `<source>.fresco_global` among them where it is used.
        views: name and tree of every view.
        groups: merge group -> its views.
        sources: by default one for each source name, whose prefix is its name.
        files: where held rows are staged; None keeps them in memory and inside the snapshot.
        timeout_ms: after which an incomplete global transaction is released as local.
        max_unit: transactions above which a unit is released as local.
        apart: number the parts of global transactions apart, and say which they are.
        engine: see `Decoder`.
        contents: what a relation holds, for snapshots that are taken again.
        look: for days that snapshots tell as others (`old_dates`).
    """

    def __init__(
        self,
        captured: Sequence[CapturedRelation],
        views: Sequence[RelevantView],
        groups: Mapping[str, Sequence[str]],
        *,
        sources: Sequence[CapturedSource] = (),
        files: HeldFiles | None = None,
        timeout_ms: int = TIMEOUT_MS,
        max_unit: int = MAX_UNIT,
        apart: bool = False,
        engine: duckdb.DuckDBPyConnection | None = None,
        contents: Contents = cannot_tell,
        look: Look = lambda captured, columns: (),
    ) -> None:
        self._captured = {r.relation.name: r for r in captured}
        self._files = files
        self.maintain(views, groups)
        self._decoder = Decoder(captured, sources, engine)
        self._sources = self._decoder.sources
        self._assembler = Assembler(captured, self._sources, files)
        self._snapshots = InitialSnapshots(captured, self._sources, files)
        untimed = frozenset(n for n, s in self._sources.items() if s.transactions == "per-event")
        self._retaken = Retaken(self._captured, files, untimed=untimed)
        self._contents, self._look = contents, look
        self._machine = IntegratorMachine(tuple(self._sources), timeout_ms, max_unit)
        self._positions: dict[str, str] = {}
        self._apart = PartsApart() if apart else None
        self._told = SaidOnce(self._captured)
        self._duck = self._decoder.duck

    def maintain(self, views: Sequence[RelevantView], groups: Mapping[str, Sequence[str]]) -> None:
        """Work out REL for these views from the next number on."""
        self._groups = {group: tuple(names) for group, names in groups.items()}
        self._needs = view_needs(views)
        self._used = frozenset[str]().union(*(need.relations for need in self._needs.values()))

    def relations_of(self) -> dict[str, frozenset[str]]:
        """Merge group -> the base relations that its views use, by way of other views too."""
        return {
            group: frozenset[str]().union(*(self._needs[name].relations for name in names))
            for group, names in self._groups.items()
        }

    @property
    def next_number(self) -> int:
        return self._machine.next_number

    def step(self, batch: pa.Table, now_ms: int, idle: int = 0) -> IntakeResult:
        """Take in a batch of records (topic, partition, offset, key, value), empty ones too.

        Args:
            idle: numbers to give out that stand for no transaction, if no transaction takes one.

        Raises:
            FrescoError: SOURCE_SNAPSHOT_REPEATED; after any error the state is as before.
        """
        before = (self._assembler.state, self._snapshots.state, self._machine.state)
        tags, retaken = self._apart, self._retaken
        try:
            return self._step(batch, now_ms, idle)
        except BaseException:
            self._assembler.state, self._snapshots.state, self._machine.state = before
            self._apart, self._retaken = tags, retaken
            raise

    def _step(self, batch: pa.Table, now_ms: int, idle: int) -> IntakeResult:
        clock = Clock()
        replaced = self._replaced(now_ms)
        decoded, told = self._told.look(self._decoder.decode(batch))
        clock.lap("decode")
        logged = self._assembler.unnumbered
        snapshot_work, streamed = self._snapshots.add(decoded, logged)
        self._retaken = self._retaken.add(snapshot_work, now_ms)
        works = self._assembler.add(streamed)
        clock.lap("assemble")
        completed = self._completed(works, snapshot_work, now_ms)
        first = self._machine.next_number
        missing = self._released(first + replaced.numbers, now_ms)
        if replaced.numbers or missing:
            self._machine.pass_over(Numbered(first, first - 1), replaced.numbers + len(missing))
        numbered = self._machine.handle(completed)._replace(first=first)
        if idle and numbered.first > numbered.last and numbered.first > 0:
            numbered = self._machine.pass_over(numbered, idle)
        self._snapshots.keep(snapshot_work)
        ordinals = {s: work.log["ordinal"].to_numpy() for s, work in works.items()}
        taken = self._assembler.take(works, numbers_of(numbered.assignments, ordinals))
        self._retaken = self._retaken.numbered(taken, decoded.times, self._assembler)
        clock.lap("number")
        rows, tainted = dict(taken.rows), dict(taken.tainted)
        if numbered.first == 0 <= numbered.last:
            initial, lacking = self._snapshots.take()
            for name, table in initial.items():
                zero = table.add_column(0, "number", pa.array(np.zeros(table.num_rows, np.int64)))
                rows[name] = pa.concat_tables([zero, rows[name]]) if name in rows else zero
            if lacking:
                tainted[0] = tuple(sorted({*tainted.get(0, ()), *lacking}))
            replaced = self._looked_through(initial)
        for name, table in replaced.rows.items():
            rows[name] = pa.concat_tables([table, rows[name]]) if name in rows else table
        if replaced.refused:
            tainted[first] = tuple(sorted(str(one.relation) for one in replaced.refused))
        batches = {
            name: numbered_changes(self._captured[name], table, self._query)
            for name, table in rows.items()
        }
        for name, changes in batches.items():
            for number, _ in changes.doubtful:
                tainted[number] = tuple(sorted({*tainted.get(number, ()), name}))
        clock.lap("deltas")
        parts = missing
        if self._apart is not None:
            self._apart, given = self._apart.numbered(numbered.assignments)
            parts = (*missing, *given)
        rel = related(
            numbered, batches, tainted, self._groups, self._needs, self._used, self._query, parts
        )
        clock.lap("relevance")
        self._told = told
        doubtful = (bad for changes in batches.values() for _, bad in changes.doubtful)
        bad = (*decoded.bad, *replaced.refused, *doubtful)
        notices = (*replaced.notices, *decoded.notices)
        decoded = dataclasses.replace(decoded, bad=bad, notices=notices)
        numbered = numbered._replace(
            released=tuple(sorted({*numbered.released, *(part.id for part in missing)}))
        )
        return self._result(
            decoded,
            parts,
            numbered,
            taken.transactions,
            batches,
            rel,
            tainted,
            clock,
            replaced.controls,
        )

    def _replaced(self, now_ms: int) -> Replaced:
        """What a snapshot taken again changes under the next number, before this batch's."""
        due = self._retaken.due(self._assembler, now_ms)
        if due is None or self._machine.next_number == 0:
            return Replaced()
        number = self._machine.next_number
        found = self._retaken.replaced(due, self._contents, number, self._duck, self._look)
        self._retaken = self._retaken.done(due)
        return found

    def _looked_through(self, initial: Mapping[str, pa.Table]) -> Replaced:
        """The taints of initial snapshots: such days may have come since the start has looked."""
        filled = [self._captured[name] for name, table in initial.items() if table.num_rows]
        found = [told_as_others(one, 0, self._look) for one in filled]
        controls = [control for taints, _ in found for control in taints]
        return Replaced({}, (), tuple(said for _, said in found if said), tuple(controls))

    def _released(self, first: int, now_ms: int) -> tuple[GlobalPart, ...]:
        """The parts of global transactions numbered apart that have not come in time."""
        if self._apart is None or self._machine.next_number == 0:
            return ()
        self._apart, missing = self._apart.late(now_ms, self._machine.timeout_ms, first)
        return missing

    def _query(self, sql: str, rows: pa.Table) -> pa.Table:
        self._duck.register("rows", rows)
        try:
            return self._duck.execute(sql).to_arrow_table()
        finally:
            self._duck.unregister("rows")

    def _completed(
        self, works: dict[str, SourceStep], snapshots: SnapshotWork, now_ms: int
    ) -> Completed:
        """What became complete; parts that are numbered apart are none of the machine's business."""
        parts: list[PartOfGlobal] = []
        blocks = {}
        for source, work in works.items():
            if work.fresh[0] <= work.fresh[1]:
                blocks[source] = work.fresh
                tags = self._captured.get(f"{source}.{GLOBAL_TABLE}")
                if tags is not None:
                    parts += transaction_parts(source, tags, work)
        closed = tuple(
            Closed(source, seen)
            for source, seen in closed_snapshots(snapshots, self._captured).items()
        )

        def keys(source: str, first: int, last: int) -> Touched:
            return touched_keys(works[source], self._captured, first, last)

        if self._apart is None:
            return Completed(now_ms, blocks, tuple(parts), closed, keys)
        self._apart = self._apart.told(parts, closed, now_ms)
        untagged = tuple(Closed(one.source, ()) for one in closed)
        return Completed(now_ms, blocks, (), untagged, keys)

    def _result(
        self,
        decoded: Decoded,
        parts: tuple[GlobalPart, ...],
        numbered: Numbered,
        transactions: pa.Table,
        batches: Mapping[str, RelationDelta],
        rel: dict[str, tuple[RelRun, ...]],
        tainted: dict[int, tuple[str, ...]],
        clock: Clock,
        untrue: tuple[Control, ...],
    ) -> IntakeResult:
        newest = transactions.group_by("source").aggregate([("position", "max")])
        for source, position in zip(*(c.to_pylist() for c in newest.columns), strict=True):
            self._positions[source] = str(max(position, int(self._positions.get(source, -1))))
        controls = [*untrue, *(one for batch in batches.values() for one in batch.controls)]
        return IntakeResult(
            first=numbered.first,
            last=numbered.last,
            updates={n: b.delta for n, b in sorted(batches.items()) if b.delta.num_rows},
            controls=tuple(sorted(controls, key=lambda c: (c.number, c.relation))),
            runs=rel,
            transactions=transactions,
            positions=dict(self._positions),
            delivered=self._delivered(),
            parts=parts,
            split=self._apart is not None and self._apart.unfinished,
            committed_ms=pc.max(transactions["committed_ms"]).as_py(),
            bad=decoded.bad,
            lost=decoded.lost,
            notices=decoded.notices,
            tainted=tainted,
            released=numbered.released,
            overdue=(*numbered.overdue, *(self._apart.open if self._apart else ())),
            held=numbered.held,
            waiting=self._assembler.waiting,
            incomplete=self._assembler.incomplete,
            open_snapshots=self._snapshots.open,
            largest_unit=numbered.largest,
            ignored=decoded.ignored,
            seconds=clock.seconds,
        )

    def _delivered(self) -> dict[str, int]:
        """Per source: below the first transaction known that has no number; else up to the last."""
        waiting = self._assembler.unnumbered
        return {
            source: min(int(position), waiting.get(source, int(position) + 1) - 1)
            for source, position in self._positions.items()
        }

    @property
    def held_files(self) -> frozenset[str]:
        """Those that rows are in of which a snapshot that was just taken speaks."""
        parts = (self._assembler, self._snapshots, self._retaken)
        return frozenset(path for part in parts for path in part.held_files)

    def snapshot(self) -> dict[str, Any]:
        """Everything between steps, as JSON; large held rows are staged first, each once."""
        self._retaken, retaken = self._retaken.snapshot()
        return {
            "retaken": retaken,
            "assembler": self._assembler.snapshot(),
            "snapshots": self._snapshots.snapshot(),
            "machine": self._machine.snapshot(),
            "positions": dict(self._positions),
            "apart": self._apart and self._apart.note(),
            "columns": columns_of(self._captured),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described; relations may have other columns since."""
        parts = {}
        for part in ("assembler", "snapshots"):
            held = refitted(data[part]["held"], data["columns"], self._captured, self._files)
            parts[part] = {**data[part], "held": held}
        self._assembler.restore(parts["assembler"])
        self._snapshots.restore(parts["snapshots"])
        self._machine.restore(data["machine"])
        now = columns_of(self._captured)
        altered = [n for n, one in data["columns"].items() if now.get(n) != [*map(list, one)]]
        self._retaken = self._retaken.restore(data.get("retaken", {}), altered)
        self._positions = dict(data["positions"])
        if self._apart is not None:
            self._apart = PartsApart.back(data["apart"]) if data.get("apart") else PartsApart()


__all__ = ["TRANSACTIONS", "Intake", "IntakeResult"]
