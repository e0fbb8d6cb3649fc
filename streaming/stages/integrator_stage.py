"""The integrator stage: captured events in, numbered transactions and their REL entries out (MVC 3.2).

A step decodes what came, puts source transactions together, numbers the complete ones and works out
their relevant views. Its manifest holds the numbered rows by reference; applying it records them in
`_updates` first and publishes them second, so a view manager never knows of a number that a restart
could not read back.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.captured.checked import warn
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.intake import Intake, IntakeResult
from streaming.cdc.record_shapes import FirstRecords
from streaming.cdc.records import BadRecord, abridged
from streaming.messages import Control, Rel, Rows, Updates
from streaming.metrics import Metrics
from streaming.packed_rows import pack, unpack, write_parquet
from streaming.runtime.heartbeat import Stall
from streaming.runtime.kafka import Topics
from streaming.runtime.manifests import Manifest, ManifestExists, put_if_absent
from streaming.runtime.snapshots import IntegratorState
from streaming.runtime.staging import Staging
from streaming.runtime.step import StepResult
from streaming.stages import incomplete_watch
from streaming.stages.source_logs import with_logs
from streaming.stages.span_watch import SpanWatch
from streaming.viewchanges.announcements import ViewChanges
from streaming.warehouse.retention import UpdatesRetention
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep

log = logging.getLogger("fresco")

UPKEEP_SECONDS = 0.2
"""Time for upkeep of `_updates` after a step, at most once in `UPKEEP_EVERY` seconds."""
UPKEEP_EVERY = 10.0


class IntegratorStage:
    """Stage `integrator`."""

    name = "integrator"

    def __init__(
        self,
        make_intake: Callable[[HeldFiles], Intake],
        updates: UpdatesWriter,
        topics: Topics,
        relations_of: Mapping[str, frozenset[str]],
        metrics: Metrics,
        warehouse: Path,
        retention: UpdatesRetention | None = None,
        asked: Mapping[str, frozenset[str]] | None = None,
        spans: SpanWatch | None = None,
        changes: ViewChanges | None = None,
        rides: bool = False,
        first: FirstRecords | None = None,
    ) -> None:
        """Args:
        make_intake: from where held rows are staged.
        relations_of: merge group -> the relations its views use.
        retention: drops old updates; None keeps them all.
        asked: merge group -> the sources that its view managers ask.
        spans: watches transactions that span groups; None where none can.
        changes: views that come and go; None where they never do.
        rides: REL goes to the view managers, whose lists take it to the merge.
        first: judges the shapes of the first records of topics.
        """
        self._make = make_intake
        self._updates, self._topics, self._metrics = updates, topics, metrics
        self._relations_of, self._warehouse = relations_of, warehouse
        self._asked, self._spans, self._spanned = asked or {}, spans, 0
        self._changes, self._rides = changes, rides
        self._first = first or FirstRecords([])
        self._staging = Staging(warehouse, self.name)
        self._held = Staging(warehouse, "held")
        self.numbered = -1
        """The last number of which a durable manifest has been applied: in `_updates` and published."""
        self._bad = warehouse / "_state" / "bad_records"
        self._bad.mkdir(parents=True, exist_ok=True)
        self._upkeep = Upkeep(None, [updates.table])
        self._retention, self._needed = retention, 0
        self._tidied = time.monotonic()
        self._unpacked: dict[int, dict[str, pa.Table]] = {}
        self._watch = incomplete_watch.IncompleteWatch(
            lambda source, seconds: metrics.incomplete.labels(source).set(seconds),
            incomplete_watch.rows_missing,
        )
        self._watch_globals = incomplete_watch.globals_watch()
        self._watch_open = incomplete_watch.snapshots_watch()
        self._watch_ends = incomplete_watch.ends_watch()
        self.restore(None)

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """A fresh intake with the manifest's state."""
        self.numbered = -1
        self._intake = self._make(HeldFiles(self._hold, self._load))
        saved = IntegratorState.loaded(snapshot) if snapshot else None
        self._held_before = frozenset(saved.files if saved else ())
        self._found, self._ran = self._held.files(), False
        self._sequence = self._spanned = 0
        self._unpacked.clear()
        if saved:
            self._sequence, self._spanned = saved.sequence, saved.spanned
            self._intake.restore(saved.intake)
        if self._changes is not None:
            self._changes.restore(saved.views if saved else None)
            self._maintain(self._changes)

    def run(self, records: pa.Table) -> StepResult | None:
        """One batch of captured events, or a tick without any (timeouts)."""
        self._ran = True
        warn(self._first.look(records))
        idle = self._changes.idle_numbers(self._intake.next_number - 1) if self._changes else 0
        result = self._intake.step(records, int(time.time() * 1000), idle)
        if self._spans is not None:
            self._spanned += self._spans.look(result, self._relations_of)
        bad = abridged(result.bad)
        self._measure(result, bad)
        changes = self._changes.announce(result.last, result.split) if self._changes else []
        if result.first > result.last and records.num_rows == 0 and not changes:
            return None
        messages: list[tuple[str, Any]] = []
        writes: dict[str, Any] = {}
        if result.first <= result.last:
            messages, writes = self._outgoing(result)
        for change in changes:
            for topic in (self._topics.rel(change.group), self._topics.updates(change.group)):
                messages.append((topic, change))
        lost = ({**asdict(one), "lost": True} for one in result.lost)
        state = IntegratorState.of(
            sequence=self._sequence,
            intake=self._intake.snapshot(),
            files=self._intake.held_files,
            number=result.last,
            bad=(*map(asdict, bad), *lost),
            incomplete=result.incomplete,
            spanned=self._spanned,
            views=self._changes.snapshot() if self._changes is not None else None,
        )
        if self._changes is not None and changes:
            self._maintain(self._changes)
        return StepResult(snapshot=state, messages=tuple(messages), writes=writes)

    def apply(self, manifest: Manifest) -> None:
        """Record the numbered updates; a repeated step is skipped by its sequence.

        It is skipped before its rows are read: their staged files may be gone by then.
        """
        saved = IntegratorState.loaded(manifest.snapshot)
        for bad in saved.bad:
            self._record_bad(bad)
        if self._changes is not None and saved.views is not None:
            self._changes.tell(saved.views)
        writes = manifest.writes
        if not writes or writes["sequence"] <= self._updates.recorded():
            return
        held = self._unpacked.pop(writes["sequence"], {})
        tables = {
            name: held[name] if name in held else self._unpack(reference)
            for name, reference in writes["relations"].items()
        }
        self._updates.append(
            writes["sequence"],
            tables,
            self._unpack(writes["transactions"]),
            [Control.model_validate(one) for one in writes["controls"]],
            writes["last"],
        )
        self._metrics.numbered.set(writes["last"])

    def applied(self, manifest: Manifest) -> None:
        """Remove held rows that no snapshot refers to; cut and fold `_updates` now and then.

        What a crash has left between a file and its manifest goes with the first step of this start,
        and not before: until then a driver that was replaced might still write the manifest.
        """
        if time.monotonic() - self._tidied >= UPKEEP_EVERY:
            if self._retention is not None:
                self._retention.run(int(time.time() * 1000), self._needed)
            self._upkeep.run(UPKEEP_SECONDS)
            self._tidied = time.monotonic()
        saved = IntegratorState.loaded(manifest.snapshot)
        self.numbered, held = saved.number, frozenset(saved.files)
        orphans, self._found = (self._found, frozenset()) if self._ran else ((), self._found)
        self._held.drop(self._held_before.union(orphans) - held)
        self._held_before = held

    @property
    def stalls(self) -> list[Stall]:
        """What keeps sources from being numbered, as it was told; another thread may ask."""
        alone = {**self._watch.told, **self._watch_ends.told}
        held = [Stall.of(f"source {source}", error) for source, error in alone.items()]
        every = [*self._watch_globals.told.values(), *self._watch_open.told.values()]
        return [*held, *(Stall.of(f"stage {self.name}", error) for error in every)]

    def collect(self, passed: int, needed: int) -> None:
        """Remove staged updates that every view manager has handled.

        Args:
            needed: the first number that must stay in `_updates`, however old it is.
        """
        self._staging.collect(passed)
        self._needed = needed

    def _maintain(self, changes: ViewChanges) -> None:
        """From the next number on, for the views that there are now."""
        self._intake.maintain(changes.views(), changes.groups())
        self._relations_of, self._asked = self._intake.relations_of(), changes.asked()

    def _outgoing(self, result: IntakeResult) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
        """The step's messages per merge group, and what goes into `_updates`."""
        first, last = result.first, result.last
        controls = (
            *result.controls,
            *(
                Control(number=number, relation=relation, kind="tainted")
                for number, names in sorted(result.tainted.items())
                for relation in names
            ),
        )
        stage = self._staging.keeper(last)
        tables = {name: rows for name, rows in result.updates.items() if rows.num_rows}
        packed = {name: pack(rows, stage) for name, rows in tables.items()}
        messages: list[tuple[str, Any]] = []
        for group, runs in result.runs.items():
            wanted = self._relations_of[group]
            rel = Rel(
                group=group,
                first=first,
                last=last,
                runs=runs,
                positions=result.positions,
                committed_ms=result.committed_ms,
                released=result.released,
            )
            if not self._rides:
                messages.append((self._topics.rel(group), rel))
            updates = Updates(
                group=group,
                first=first,
                last=last,
                runs=runs,
                relations={name: rows for name, rows in packed.items() if name in wanted},
                controls=tuple(one for one in controls if one.relation in wanted),
                parts=result.parts,
                rel=(rel,) if self._rides else (),
            )
            told = with_logs(
                updates, result, self._asked.get(group, ()), partial(pack, stage=stage)
            )
            messages += [(self._topics.updates(group), one) for one in told]
        self._sequence += 1
        self._unpacked = {self._sequence: tables}
        writes = {
            "sequence": self._sequence,
            "last": last,
            "relations": {name: rows.model_dump(mode="json") for name, rows in packed.items()},
            "transactions": pack(result.transactions, stage).model_dump(mode="json"),
            "controls": [one.model_dump(mode="json") for one in controls],
        }
        return messages, writes

    def _measure(self, result: IntakeResult, bad: Sequence[BadRecord]) -> None:
        for notice in result.notices:
            log.warning("%s", notice)
        for topic, count in Counter(one.topic for one in (*result.bad, *result.lost)).items():
            self._metrics.bad_records.labels(topic).inc(count)
        for one in (*bad, *result.lost):
            log.warning("%(code)s: %(what)s [%(where)s] -> %(todo)s", one.error)
        for released in result.released:
            log.warning("global transaction %s was released as local", released)
        late = self._watch_globals.look({one: one for one in result.overdue})
        late += self._watch_open.look(result.open_snapshots)
        late += self._watch_ends.look(_without_end(result))
        for error in (*self._watch.look(result.incomplete), *late):
            log.warning("%s", error)
        self._metrics.held_parts.set(result.held)
        self._metrics.held_rows.set(sum(result.waiting.values()))
        self._metrics.released.inc(len(result.released))
        self._metrics.rows.labels(self.name).inc(
            sum(rows.num_rows for rows in result.updates.values())
        )
        for part in (
            result.transactions.group_by("source")
            .aggregate([("number", "count"), ("committed_ms", "max")])
            .to_pylist()
        ):
            self._metrics.transactions.labels(part["source"]).inc(part["number_count"])
            if part["committed_ms_max"] is not None:
                lag = max(0.0, time.time() - part["committed_ms_max"] / 1000)
                self._metrics.source_lag.labels(part["source"]).set(lag)

    def _record_bad(self, bad: Mapping[str, Any]) -> None:
        """Keep what is wrong with a record under its place; the topic keeps the record itself."""
        place = f"{bad['topic']}-{bad['partition']}-{bad['offset']}.json"
        with suppress(ManifestExists):
            put_if_absent(self._bad / place, json.dumps(bad).encode())

    def _hold(self, rows: pa.Table) -> str:
        sink = pa.BufferOutputStream()
        write_parquet(rows, sink)
        return self._held.keeper(0)(sink.getvalue().to_pybytes())

    def _load(self, path: str, columns: Sequence[str]) -> pa.Table:
        return pq.read_table(self._warehouse / path, columns=list(columns))

    def _unpack(self, reference: Mapping[str, Any]) -> pa.Table:
        return unpack(Rows.model_validate(reference), self._warehouse)


def _without_end(result: IntakeResult) -> dict[str, str]:
    """Sources whose rows wait for nothing but an END -> how far they are numbered."""
    if result.held or result.overdue:
        return {}
    known = result.incomplete.keys() | result.open_snapshots.keys()
    waiting = {relation.partition(".")[0] for relation in result.waiting}
    return {source: result.positions.get(source, "-1") for source in waiting - known}
