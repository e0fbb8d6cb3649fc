"""A pipeline's own stages, from captured events to the group's table, stepped by hand for tests.

The stages, their manifests, their staged files and the tables are real. Topics are lists here, and
nothing runs by itself: what `feed` takes in has been published when it returns, and `step` lets one stage
take what has come for it. `again` is another start over what has become durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa

from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.intake import Intake
from streaming.engines.evaluator import Limits
from streaming.merge.machine import MergeMachine
from streaming.metrics import Metrics
from streaming.pipeline.catalog import ViewSpec
from streaming.runtime.kafka import Topics, headers
from streaming.runtime.stage_progress import Elsewhere
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stage, Stepper
from streaming.service.stage_set import Stages
from streaming.stages.evaluators import Evaluators
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.merge_stage import MergeStage
from streaming.stages.overview_stage import OverviewStage
from streaming.stages.rel_riding import RidingStage
from streaming.stages.view_stage import ViewStage
from streaming.viewmanagers.base import ManagedView as Maintained
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep

GROUP = "bank"


class SteppedStages:
    """All stages of a pipeline with one group.

    Args:
        folds: batches after which a view manager folds its state.
        records: what the topics hold.

    Attributes:
        stages: by name.
        records: what the topics hold, the test's own for the integrator's.
    """

    rides = False
    """Whether REL rides on the action lists."""
    snapshot = False
    """Whether the sources have initial snapshots."""

    def __init__(
        self,
        folder: Path,
        captured: Sequence[CapturedRelation],
        views: Sequence[ViewSpec],
        folds: int = 50,
        records: dict[str, list[dict[str, Any]]] | None = None,
    ) -> None:
        self._made = (folder, captured, views, folds)
        self.records: dict[str, list[dict[str, Any]]] = {} if records is None else records
        self._read: dict[tuple[str, str], int] = {}
        topics, metrics = Topics(GROUP), Metrics()
        self._topics = topics
        names = tuple(view.name for view in views)
        sources = [
            CapturedSource(n, n, snapshot=self.snapshot) for n in {c.source for c in captured}
        ]

        def make_intake(files: HeldFiles) -> Intake:
            return Intake(captured, views, {GROUP: names}, sources=sources, files=files)

        updates = UpdatesWriter(str(folder), GROUP, [c.relation for c in captured])
        tables = [ViewTable(view.name, view.schema, view.key or ()) for view in views]
        writer = GroupWriter(str(folder), GROUP, GROUP, tables)
        self._closers = (updates.close, writer.close)
        used = {GROUP: frozenset(name for view in views for name in view.relations)}
        integrator = IntegratorStage(
            make_intake, updates, topics, used, metrics, folder, rides=self.rides
        )
        managers = [_manager(folder, view, names, topics, metrics, folds) for view in views]
        merge = MergeStage(
            lambda: self.merge_of(names),
            writer,
            Upkeep(writer),
            metrics,
            None,
            folder,
            routed=self.rides,
        )
        fence = Fence(folder / "_state" / "generations", {"process": "a test"})

        def stepper(stage: Stage) -> Stepper:
            if self.rides and isinstance(stage, ViewStage):
                stage = RidingStage(stage, stage.spec.view, names, topics.actions(GROUP))
            place = folder / "_state" / stage.name.replace(":", "-") / "manifests"
            chain = ManifestStore(place)
            return Stepper(stage, chain, fence, self._publish)

        self._integrator, self._merge = stepper(integrator), stepper(merge)
        self._managers = [stepper(one) for one in managers]
        self.stages = {one.name: one for one in managers}
        self._reads: dict[str, tuple[str, ...]] = {
            merge.name: (topics.rel(GROUP), topics.actions(GROUP))
        }
        self._reads |= {one.name: one.topics(topics) for one in managers}

    def merge_of(self, views: tuple[str, ...]) -> MergeMachine:
        """The group's merge."""
        return MergeMachine(GROUP, views)

    def reach(self, producer: str) -> None:
        """A message is about to be published: a test may stop the driver here."""

    def feed(self, batch: pa.Table) -> None:
        """Step the integrator over a batch of events, then every stage over what came of it."""
        self.number(batch)
        for stepper in (*self._managers, self._merge):
            self._step(stepper, *self._reads[stepper.stage.name])

    def number(self, batch: pa.Table) -> None:
        """Step the integrator alone."""
        self._integrator.batch(batch)

    def step(self, name: str) -> None:
        """Step a view manager or the merge over what has come for it."""
        (stepper,) = (one for one in (*self._managers, self._merge) if one.stage.name == name)
        self._step(stepper, *self._reads[name])

    def collect(self) -> None:
        """Remove the staged files that nobody needs any more."""
        integrator, merge = self._integrator.stage, self._merge.stage
        assert isinstance(integrator, IntegratorStage) and isinstance(merge, MergeStage)
        folder, _, views, _ = self._made
        Stages(
            integrator,
            list(self.stages.values()),
            {GROUP: merge},
            [],
            {GROUP: tuple(view.name for view in views)},
            lambda parent: tuple(view.name for view in views if parent in view.relations),
            Elsewhere(folder),
            cast(Any, SimpleNamespace(wanted=lambda: self.stages)),
            cast(Any, None),
        ).collect()

    def again(self) -> Self:
        """The next start, after this one was killed: nothing is left but files and topics."""
        return type(self)(*self._made, self.records)

    @property
    def published(self) -> int:
        """Up to which number all is in a commit."""
        stage = self._merge.stage
        assert isinstance(stage, MergeStage)
        return stage.published

    def close(self) -> None:
        for close in self._closers:
            close()

    def _step(self, stepper: Stepper, *topics: str) -> None:
        records: list[dict[str, Any]] = []
        for topic in topics:
            place = (stepper.stage.name, topic)
            records += self.records.get(topic, [])[self._read.get(place, 0) :]
            self._read[place] = len(self.records.get(topic, []))
        if records:
            stepper.batch(pa.Table.from_pylist(records))

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        for message in messages:
            self.reach(producer)
            records = self.records.setdefault(message.topic, [])
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


def _manager(
    folder: Path, view: ViewSpec, views: Sequence[str], topics: Topics, metrics: Metrics, folds: int
) -> ViewStage:
    """The stage of a view, over relations or over other views."""
    spec, actions = Maintained(view.name, GROUP, view.tree), topics.actions(GROUP)
    evaluators = Evaluators(view.tree, cast(Any, None), folder / "spark", Limits())
    parents = {name: GROUP for name in view.relations if name in views}
    if parents:
        return OverviewStage(spec, parents, evaluators, folder, actions, metrics, folds)
    return ViewStage(spec, evaluators, folder, actions, metrics, folds)
