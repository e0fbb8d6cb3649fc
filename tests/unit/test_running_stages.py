"""Stages that run: their pulse, which ends with them, and what becomes of those that fail (DESIGN 11)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.errors import FrescoError
from streaming.runtime.pulse import Pulse
from streaming.runtime.stage_queries import Running, StageQuery
from streaming.runtime.step import Fence, Manifest, ManifestStore, Stepper, StepResult
from streaming.service.service import Service

QUICK = 0.01


class Waiting:
    """A stage that no message moves on: each step without records counts, or fails."""

    name = "view:v@3"

    def __init__(self, error: Exception | None = None) -> None:
        self.steps: Queue[int] = Queue()
        self._error = error

    def restore(self, snapshot: Mapping[str, Any] | None) -> None: ...

    def run(self, records: pa.Table) -> StepResult | None:
        self.steps.put(records.num_rows)
        if self._error is not None:
            raise self._error
        return None

    def apply(self, manifest: Manifest) -> None: ...

    def applied(self, manifest: Manifest) -> None: ...


def stepper(folder: Path, stage: Waiting) -> Stepper:
    fence = Fence(folder / "generations", {"process": "a test"})
    return Stepper(stage, ManifestStore(folder / "manifests"), fence, lambda *_: None)


def serving(folder: Path, stage: Waiting) -> tuple[Service, Running]:
    """A service that runs one stage, over a query of nothing."""
    config = Config(
        pipeline="p",
        warehouse=folder,
        views=folder,
        sources={"north": SourceConfig(tables={"entry": "public.entry"})},
    )
    spark: Any = SimpleNamespace(stop=lambda: None)
    query = StageQuery(
        stage.name, stepper(folder, stage), spark, str(folder / "c"), threading.Event()
    )
    service = Service(config)
    running = service._running[stage.name] = Running(stage, (), True, query)
    return service, running


@pytest.mark.parametrize("error", [FrescoError("STATE_DAMAGED", "bad"), RuntimeError("no luck")])
def test_a_pulse_that_fails_is_told_of(tmp_path: Path, error: Exception) -> None:
    failed: Queue[BaseException] = Queue()
    made = stepper(tmp_path, Waiting(error))
    pulse = Pulse(lambda: made, failed.put, seconds=QUICK)
    assert failed.get(timeout=10) is error
    pulse.stop()


def test_a_stage_that_cannot_begin_is_left_as_if_it_had_not_been(tmp_path: Path) -> None:
    service, _ = serving(tmp_path, Waiting())
    service._running.clear()
    views: list[Waiting] = []

    def join(member: object) -> Waiting:
        views.append(Waiting())
        return views[-1]

    members = SimpleNamespace(
        moved=lambda: True,
        wanted=lambda: {Waiting.name: SimpleNamespace(view="v")},
        refusing=lambda member: suppress(FrescoError),
        tidy=lambda *_: [],
        followed=lambda: None,
    )
    service._stages = SimpleNamespace(  # type: ignore[assignment]
        members=members, recover=lambda: None, join=join, leave=lambda name: views.clear()
    )

    def run(view: object) -> None:
        raise FrescoError("KAFKA_EXPIRED", "the topic was cut")

    service._run_view = run  # type: ignore[method-assign]
    service._follow_requests()
    assert views == []


def test_a_pulse_ends_with_the_stage_of_a_view_that_is_gone(tmp_path: Path) -> None:
    """A view whose source is away tries to come back for days; each try has a stage of its own."""
    stage = Waiting()
    service, running = serving(tmp_path, stage)
    running.pulse = Pulse(partial(service._stepper, stage.name), print, seconds=QUICK)
    assert stage.steps.get(timeout=10) == 0
    members = SimpleNamespace(
        moved=lambda: True, wanted=dict, tidy=lambda *_: [], followed=lambda: None
    )
    service._stages = SimpleNamespace(  # type: ignore[assignment]
        members=members, recover=lambda: None, leave=lambda name: None
    )
    service._follow_requests()
    assert not service._running and not running.pulse.beats
