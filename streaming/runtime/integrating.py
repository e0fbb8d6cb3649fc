"""The integrator stage: captured events in, numbered transactions and their REL entries out (MVC 3.2).

A step decodes what came, puts source transactions together, numbers the complete ones and works out
their relevant views. Its manifest holds the numbered rows by reference; applying it records them in
`_updates` first and publishes them second, so a view manager never knows of a number that a restart
could not read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.messages import Control, Rel, Rows, Updates
from streaming.metrics import Metrics
from streaming.rows import pack, unpack
from streaming.runtime.kafka import Topics
from streaming.runtime.staging import Staging
from streaming.runtime.step import Manifest, StepResult
from streaming.sources.intake import Intake, IntakeResult
from streaming.warehouse.updates import UpdatesWriter


class IntegratorStage:
    """Stage `integrator`."""

    name = "integrator"

    def __init__(
        self,
        make_intake: Callable[[Callable[[pa.Table], str]], Intake],
        updates: UpdatesWriter,
        topics: Topics,
        relations_of: Mapping[str, frozenset[str]],
        metrics: Metrics,
        warehouse: Path,
    ) -> None:
        """Args:
        make_intake: from a function that stages held rows and returns their path.
        relations_of: merge group -> the relations its views use.
        """
        self._make = make_intake
        self._updates, self._topics, self._metrics = updates, topics, metrics
        self._relations_of, self._warehouse = relations_of, warehouse
        self._staging = Staging(warehouse, self.name)
        self._held = Staging(warehouse, "held")
        self._unpacked: dict[int, dict[str, pa.Table]] = {}
        self.restore(None)

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """A fresh intake with the manifest's state."""
        self._intake = self._make(self._hold)
        self._sequence = 0
        self._unpacked.clear()
        if snapshot:
            self._sequence = int(snapshot["sequence"])
            self._intake.restore(snapshot["intake"])

    def run(self, records: pa.Table) -> StepResult | None:
        """One batch of captured events, or a tick without any (timeouts)."""
        result = self._intake.step(records, int(time.time() * 1000))
        self._measure(result)
        if result.first is None and records.num_rows == 0:
            return None
        messages: list[tuple[str, Any]] = []
        writes: dict[str, Any] = {}
        if result.first is not None and result.last is not None:
            messages, writes = self._outgoing(result, result.first, result.last)
        snapshot = {"sequence": self._sequence, "intake": self._intake.snapshot()}
        return StepResult(snapshot=snapshot, messages=tuple(messages), writes=writes)

    def apply(self, manifest: Manifest) -> None:
        """Record the numbered updates; a repeated step is skipped by its sequence."""
        writes = manifest.writes
        if not writes:
            return
        held = self._unpacked.pop(writes["sequence"], {})
        tables = {
            name: held[name] if name in held else self._unpack(reference)
            for name, reference in writes["relations"].items()
        }
        self._updates.append(
            writes["sequence"], tables, self._unpack(writes["transactions"]),
            [Control.model_validate(one) for one in writes["controls"]], writes["last"],
        )
        self._metrics.numbered.set(writes["last"])

    def applied(self, manifest: Manifest) -> None:
        """Remove held rows that no snapshot refers to."""
        self._held.collect(1 << 62, keep=frozenset(self._intake.held_paths()))

    def collect(self, passed: int) -> None:
        """Remove staged updates that every view manager has handled."""
        self._staging.collect(passed)

    def _outgoing(
        self, result: IntakeResult, first: int, last: int
    ) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
        """The step's messages per merge group, and what goes into `_updates`."""
        stage = self._staging.keeper(last)
        tables = {name: rows for name, rows in result.updates.items() if rows.num_rows}
        packed = {name: pack(rows, stage) for name, rows in tables.items()}
        messages: list[tuple[str, Any]] = []
        for group, runs in result.runs.items():
            wanted = self._relations_of[group]
            messages.append((self._topics.rel(group), Rel(
                group=group, first=first, last=last, runs=runs, positions=result.positions,
                committed_ms=result.committed_ms, released=result.released,
            )))
            messages.append((self._topics.updates(group), Updates(
                group=group, first=first, last=last, runs=runs,
                relations={name: rows for name, rows in packed.items() if name in wanted},
                controls=tuple(one for one in result.controls if one.relation in wanted),
            )))
        self._sequence += 1
        self._unpacked = {self._sequence: tables}
        writes = {
            "sequence": self._sequence, "last": last,
            "relations": {name: rows.model_dump(mode="json") for name, rows in packed.items()},
            "transactions": pack(result.transactions, stage).model_dump(mode="json"),
            "controls": [one.model_dump(mode="json") for one in result.controls],
        }
        return messages, writes

    def _measure(self, result: IntakeResult) -> None:
        for bad in result.bad:
            self._metrics.bad_records.labels(bad.topic).inc()
        self._metrics.held_parts.set(result.held_parts)
        self._metrics.held_rows.set(result.held_rows)
        self._metrics.released.inc(len(result.released))
        self._metrics.rows.labels(self.name).inc(
            sum(rows.num_rows for rows in result.updates.values()))
        for source, count in result.counts.items():
            self._metrics.transactions.labels(source).inc(count)
        if result.committed_ms is not None:
            lag = max(0.0, time.time() - result.committed_ms / 1000)
            for source in result.counts:
                self._metrics.source_lag.labels(source).set(lag)

    def _hold(self, rows: pa.Table) -> str:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        return self._held.keeper(0)(sink.getvalue().to_pybytes())

    def _unpack(self, reference: Mapping[str, Any]) -> pa.Table:
        return unpack(Rows.model_validate(reference), self._warehouse)
