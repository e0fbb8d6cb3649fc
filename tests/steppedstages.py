"""A pipeline's own stages, from captured events to the group's table, stepped by hand for tests.

The stages, their manifests, their staged files and the tables are real. Topics are lists here, and
nothing runs by itself: what `feed` takes in has been published when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from streaming.algebra.evaluator import Limits
from streaming.catalog import ViewSpec
from streaming.merge.machine import MergeMachine
from streaming.metrics import Metrics
from streaming.runtime.evaluators import Evaluators
from streaming.runtime.integrating import IntegratorStage
from streaming.runtime.kafka import Topics, headers
from streaming.runtime.maintaining import ViewStage
from streaming.runtime.merging import MergeStage
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stage, Stepper
from streaming.sources.held import HeldFiles
from streaming.sources.intake import Intake
from streaming.sources.schema import CapturedRelation, CapturedSource
from streaming.viewmanagers.base import ViewSpec as Maintained
from streaming.warehouse.table import ViewTable
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep
from streaming.warehouse.writer import GroupWriter

GROUP = "bank"


class SteppedStages:
    """All stages of a pipeline with one group, over sources without initial snapshots."""

    def __init__(
        self, folder: Path, captured: Sequence[CapturedRelation], views: Sequence[ViewSpec]
    ) -> None:
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._read: dict[tuple[str, str], int] = {}
        topics, metrics = Topics(GROUP), Metrics()
        self._topics = topics
        names = tuple(view.name for view in views)
        sources = [CapturedSource(n, n, snapshot=False) for n in {c.source for c in captured}]

        def make_intake(files: HeldFiles) -> Intake:
            return Intake(captured, views, {GROUP: names}, sources=sources, files=files)

        updates = UpdatesWriter(str(folder), GROUP, [c.relation for c in captured])
        tables = [ViewTable(view.name, view.schema, view.key or ()) for view in views]
        writer = GroupWriter(str(folder), GROUP, GROUP, tables)
        self._closers = (updates.close, writer.close)
        used = {GROUP: frozenset(name for view in views for name in view.relations)}
        integrator = IntegratorStage(make_intake, updates, topics, used, metrics, folder)
        managers = [
            ViewStage(
                Maintained(view.name, GROUP, view.tree),
                Evaluators(view.tree, cast(Any, None), folder / "spark", Limits()),
                folder,
                topics.actions(GROUP),
                metrics,
                checkpoint_batches=50,
            )
            for view in views
        ]
        merge = MergeStage(
            lambda: MergeMachine(GROUP, names), writer, Upkeep(writer), metrics, None, folder
        )
        fence = Fence(folder / "_state" / "generations", {"process": "a test"})

        def stepper(stage: Stage) -> Stepper:
            chain = ManifestStore(folder / "_state" / stage.name.replace(":", "-"))
            return Stepper(stage, chain, fence, self._publish)

        self._integrator, self._merge = stepper(integrator), stepper(merge)
        self._managers = [stepper(one) for one in managers]

    def feed(self, batch: pa.Table) -> None:
        """Step the integrator over a batch of events, then every stage over what came of it."""
        self._integrator.batch(batch)
        for manager in self._managers:
            self._step(manager, self._topics.updates(GROUP))
        self._step(self._merge, self._topics.rel(GROUP), self._topics.actions(GROUP))

    def close(self) -> None:
        for close in self._closers:
            close()

    def _step(self, stepper: Stepper, *topics: str) -> None:
        records: list[dict[str, Any]] = []
        for topic in topics:
            place = (stepper.stage.name, topic)
            records += self._records.get(topic, [])[self._read.get(place, 0) :]
            self._read[place] = len(self._records.get(topic, []))
        if records:
            stepper.batch(pa.Table.from_pylist(records))

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        for message in messages:
            records = self._records.setdefault(message.topic, [])
            fields = headers(GROUP, producer, generation, message)
            records.append(
                {
                    "topic": message.topic,
                    "partition": 0,
                    "offset": len(records),
                    "value": message.body.encode(),
                    "headers": [{"key": key, "value": value} for key, value in fields],
                }
            )
