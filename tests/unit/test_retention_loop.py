"""The integrator cuts `_updates` between its steps; a view manager that starts again misses nothing.

Integrator and view manager are the product's, with manifests on a real file system; only Kafka is a
list. Every transaction of the log committed in 1970, so all of them are older than any retention.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streaming.engines.evaluator import Limits
from streaming.errors import FrescoError
from streaming.metrics import Metrics
from streaming.runtime.kafka import Topics as OwnTopics
from streaming.runtime.kafka import headers
from streaming.runtime.stage_progress import Elsewhere
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stage, Stepper
from streaming.service.building import Stages
from streaming.stages import integrator_stage
from streaming.stages.evaluators import Evaluators
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.view_stage import ViewStage
from streaming.viewmanagers.base import ManagedView
from streaming.warehouse import retention
from streaming.warehouse.retention import UpdatesRetention
from streaming.warehouse.updates import UpdatesReader, UpdatesWriter
from streaming.warehouse.upkeep import drop_below
from tests.intakeworld import BaseView, insert, make, relations, row
from tests.sourcelog import Record, SourceLog, Topics

VIEW = "north_account"
OWN = OwnTopics("bank")
CHECKPOINT_BATCHES = 3


class Loop:
    """An integrator and one view's manager, a step of each for every transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.topics = SourceLog("north"), Topics()
        self.published: list[dict[str, Any]] = []
        self.group = SimpleNamespace(published=-1)
        self.fence = Fence(folder / "generations", {})
        self.updates = UpdatesWriter(
            str(folder), "bank", [captured.relation for captured in relations()]
        )
        self.integrator = IntegratorStage(
            lambda files: make(files=files),
            self.updates,
            OWN,
            {"main": frozenset(one.relation.name for one in relations())},
            Metrics(),
            folder,
            UpdatesRetention(self.updates.table, hours=1),
        )
        self.integrator_steps = self.stepper(self.integrator)
        self.start_view()

    def stepper(self, stage: Stage) -> Stepper:
        store = ManifestStore(self.folder / stage.name.replace(":", "-"))
        return Stepper(stage, store, self.fence, self.publish)

    def start_view(self) -> None:
        """The view's manager, started again from its manifest."""
        tree = BaseView(relations()[0]).tree
        none: Any = None
        evaluators = Evaluators(tree, none, self.folder / "spark", Limits())
        spec = ManagedView(VIEW, "main", tree)
        self.view = ViewStage(
            spec, evaluators, self.folder, OWN.actions("main"), Metrics(), CHECKPOINT_BATCHES
        )
        self.view_steps = self.stepper(self.view)

    def publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        for message in messages:
            fields = headers("bank", producer, generation, message)
            self.published.append(
                {
                    "topic": message.topic,
                    "partition": 0,
                    "offset": len(self.published),
                    "value": message.body.encode(),
                    "headers": [{"key": key, "value": value} for key, value in fields],
                }
            )

    def step(self, records: list[Record]) -> None:
        """The records through the integrator and the view; then what the service's tick does."""
        self.integrator_steps.batch(self.topics.batch(records))
        mine = [one for one in self.published if one["topic"] == OWN.updates("main")]
        self.view_steps.batch(pa.Table.from_pylist(mine))
        merges: Any = {"main": self.group}
        groups = {"main": (VIEW,)}
        elsewhere = Elsewhere(self.folder)
        members: Any = SimpleNamespace(wanted=lambda: {self.view.name: None})
        parts = (merges, [], groups, lambda _: (), elsewhere, members, self.integrator)
        Stages(self.integrator, [self.view], *parts).collect()

    @property
    def kept_from(self) -> int:
        return UpdatesReader(str(self.folder)).kept_from


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    monkeypatch.setattr(integrator_stage, "UPKEEP_EVERY", 0.0)
    monkeypatch.setattr(retention, "EVERY_MS", 0)
    return Loop(tmp_path)


def test_nothing_goes_before_a_view_has_a_checkpoint_or_above_its_group_s_frontier(
    loop: Loop,
) -> None:
    loop.group.published = 1
    for number in range(1, CHECKPOINT_BATCHES + 1):
        loop.step(loop.log.commit([insert("account", number)]))
        assert loop.kept_from == 0
    loop.step(loop.log.commit([insert("account", 90)]))
    loop.step(loop.log.commit([insert("account", 91)]))
    assert loop.view.needed > 2
    assert loop.kept_from == 2


def test_a_view_that_starts_again_after_a_cut_goes_on_as_if_nothing_had_gone(loop: Loop) -> None:
    """A restart replays what came after the checkpoint; rows from before the cut can still leave."""
    loop.group.published = 1 << 60
    for number in range(1, 12):
        loop.step(loop.log.commit([insert("account", number)]))
        if number % 4 == 0:
            loop.start_view()
    loop.step(loop.log.commit([("account", "d", row(number), None) for number in range(1, 12)]))
    assert loop.view.suspended is None
    assert loop.view.handled == 12
    assert 0 < loop.kept_from <= loop.view.needed
    assert UpdatesReader(str(loop.folder)).transactions(-1, loop.kept_from - 2).num_rows == 0


def test_a_view_whose_updates_are_gone_refuses_to_start(loop: Loop) -> None:
    for number in (1, 2):
        loop.step(loop.log.commit([insert("account", number)]))
    drop_below(loop.updates.table, 2)
    with pytest.raises(FrescoError, match=r"STATE_UPDATES_DROPPED.*below 2"):
        loop.start_view()
