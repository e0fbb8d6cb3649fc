"""A stage that fails is started again after growing waits, while the others go on (DESIGN 11)."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError
from streaming.runtime.restarts import WAITS, WINDOW_SECONDS, Restarts
from streaming.runtime.stage_queries import Running, StageQuery
from streaming.service.schema_watch import SchemaWatch
from streaming.service.service import Service

STAGE, OTHER = "integrator", "view:other"
AWAY = RuntimeError("no broker")


class Steps:
    """A stepper that counts its steps."""

    def __init__(self, error: Exception | None = None) -> None:
        self.lock, self.count, self.error = threading.RLock(), 0, error
        self.at_work: BaseException | None = None
        self.last: Any = None

    def halt(self) -> None: ...

    def batch(self, records: object) -> None:
        self.count += 1
        if self.error is not None:
            raise self.error


class World:
    """A service that runs two stages; its watch is called at every second of a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now, self.back = 0.0, float("inf")
        """The broker answers from `back` on."""
        self.started: list[float] = []
        self.tried: list[float] = []
        self.collected: list[float] = []
        self.broken: Exception | None = None
        """What the watch runs into between the stages' steps."""
        self.folder = folder
        tables = {"north": SourceConfig(tables={"entry": "public.entry"})}
        self.service = Service(Config(pipeline="p", warehouse=folder, views=folder, sources=tables))
        self.service._watch = Restarts(lambda: self.now)
        self.service._broker = SimpleNamespace(reach=self._reach)  # type: ignore[assignment]
        self.service._query = self._query  # type: ignore[method-assign, assignment]
        self.service._schemas = SchemaWatch(self.service.config, {})
        self.service._stages = SimpleNamespace(  # type: ignore[assignment]
            views=[],
            collect=self._collect,
            recover=lambda: None,
            members=SimpleNamespace(newest_asked=0, generation=0, moved=lambda: False),
            instead=lambda stage, error: self.instead,
            now=lambda stage: stage,
        )
        self.instead: Any = None
        """What takes the place of a stage that cannot go on."""
        for name in (STAGE, OTHER):
            stage: Any = SimpleNamespace(name=name)
            self.service._running[name] = Running(
                stage, (), True, self._made(name), restarts=Restarts(lambda: self.now)
            )

    def _made(self, name: str) -> StageQuery:
        spark: Any = SimpleNamespace(stop=lambda: None, isActive=True)
        steps: Any = Steps()
        return StageQuery(name, steps, spark, str(self.folder / "c"), threading.Event())

    def _reach(self, topics: object) -> None:
        self.tried.append(self.now)
        if self.now < self.back:
            raise AWAY

    def _query(self, stage: Any, *_: object) -> StageQuery:
        self.started.append(self.now)
        return self._made(stage.name)

    def _collect(self) -> None:
        self.collected.append(self.now)
        if self.broken is not None:
            raise self.broken

    def steps(self, name: str) -> Any:
        return self.service._running[name].query.stepper

    def until(self, end: float) -> FrescoError | None:
        """The watch up to a time; the error that ends the service."""
        while self.now < end and self.service._error is None:
            self.service._tick()
            self.now += 1.0
        return self.service._error


@pytest.mark.parametrize("away", [0.0, 1.0, 10.0, 60.0, 180.0])
def test_a_broker_that_is_away_for_a_while_does_not_end_the_service(
    tmp_path: Path, away: float
) -> None:
    world = World(tmp_path)
    world.back = away
    world.service._note_failure(STAGE, AWAY)
    assert world.until(300.0) is None
    assert len(world.started) == 1, "once it is back the stage runs, and is left alone"
    assert away <= world.started[0] <= away + max(WAITS)
    assert not world.service._running[STAGE].restarts.waits
    assert len(world.collected) == 300, "what the other stages leave behind was seen to meanwhile"


def test_the_waits_between_the_attempts_grow(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.service._note_failure(STAGE, AWAY)
    error = world.until(WINDOW_SECONDS)
    assert error is not None and error.code == "STAGE_FAILED"
    assert error.where == STAGE and str(AWAY) in error.what
    gaps = [b - a for a, b in zip(world.tried, world.tried[1:], strict=False)]
    assert len(gaps) == len(WAITS) - 1 and gaps == sorted(gaps)
    assert world.tried[-1] - world.tried[0] >= 180.0


def test_failures_that_are_long_past_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.back = 0.0
    for time in range(3 * len(WAITS)):
        world.service._note_failure(STAGE, AWAY)
        assert world.until((time + 1) * WINDOW_SECONDS) is None
    assert world.started == [time * WINDOW_SECONDS for time in range(3 * len(WAITS))]


def test_a_stage_that_waits_to_be_started_takes_no_step(tmp_path: Path) -> None:
    """Its state may be ahead of its manifests, and its query has been stopped."""
    world = World(tmp_path)
    before = world.steps(STAGE)
    assert world.until(3.0) is None and before.count == 3
    world.back = world.now + 30.0
    world.service._note_failure(STAGE, AWAY)
    assert world.until(world.back) is None and before.count == 3
    assert world.until(world.back + max(WAITS)) is None
    assert world.steps(STAGE) is not before and world.steps(STAGE).count > 0


def test_a_tick_that_fails_is_the_integrators_failure(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.back = 0.0
    failing = world.steps(STAGE)
    failing.error = AWAY
    assert world.until(3.0) is None
    assert failing.count == 1 and world.steps(STAGE) is not failing
    coded = FrescoError("SERVICE_FENCED", "another driver holds the pipeline")
    world.steps(STAGE).error = coded
    assert world.until(6.0) is coded


def test_what_the_watch_runs_into_is_no_stages_failure(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broken = OSError("the disk is away")
    error = world.until(WINDOW_SECONDS)
    assert error is not None and error.code == "STAGE_FAILED" and "the disk" in error.what
    assert len(world.collected) == len(WAITS) + 1 and not world.started
    world = World(tmp_path)
    world.broken = OSError("the disk is away")
    assert world.until(30.0) is None
    world.broken = None
    assert world.until(100.0) is None and len(world.collected) > 60


def test_an_error_for_a_person_ends_the_service_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    coded = FrescoError("STATE_DAMAGED", "a manifest cannot be read")
    world.service._note_failure(OTHER, coded)
    assert world.until(5.0) is coded and not world.tried


@pytest.mark.parametrize("coded", [True, False])
def test_a_view_s_stage_that_cannot_go_on_is_replaced_and_the_service_goes_on(
    tmp_path: Path, coded: bool
) -> None:
    """At an error with a code at once; else when the stage has failed too often."""
    world = World(tmp_path)
    world.back = 0.0
    broken: Any = SimpleNamespace(name=STAGE)
    if coded:
        world.instead = broken
        world.service._note_failure(STAGE, FrescoError("ROWS_DAMAGED", "a file is gone"))
    else:
        told: list[str] = []

        def instead(stage: Any, error: Any) -> Any:
            told.append(getattr(error, "code", ""))
            return broken if told[-1] == "STAGE_FAILED" else None

        world.service._stages.instead = instead  # type: ignore[method-assign]
        world.service._note_failure(STAGE, OSError("its disk"))
        for _ in range(len(WAITS)):
            assert world.until(world.now + 62.0) is None
            world.service._note_failure(STAGE, OSError("its disk"))
    assert world.until(world.now + 5.0) is None
    running = world.service._running[STAGE]
    assert running.stage is broken and not running.restarts.waits, "it runs in its place"


@pytest.mark.parametrize(
    ("raised", "others", "moved", "suspends"),
    [
        (TypeError("no len()"), False, False, True),
        (MemoryError(), False, False, True),
        (FileNotFoundError(2, "No such file"), False, False, True),
        (TypeError("no len()"), True, False, False),
        (TypeError("no len()"), False, True, False),
        (OSError(28, "No space left on device"), False, False, False),
        (ConnectionResetError("by peer"), False, False, False),
    ],
    ids=["type", "memory", "file", "others fail too", "another step", "disk", "network"],
)
def test_what_a_view_s_own_work_raises_twice_is_that_view_s(
    tmp_path: Path, raised: Exception, others: bool, moved: bool, suspends: bool
) -> None:
    """Its group waits for a restart or two, and not for three minutes."""
    world = World(tmp_path)
    broken: Any = SimpleNamespace(name=OTHER)
    told: list[FrescoError] = []

    def instead(stage: Any, error: Any) -> Any:
        told.append(error)
        return broken if isinstance(error, ViewError) else None

    world.service._stages.instead = instead  # type: ignore[method-assign]
    world.service._running[OTHER].stage = SimpleNamespace(
        name=OTHER, spec=SimpleNamespace(view="v")
    )
    for number in range(2):
        world.back = 0.0
        if others and number:
            world.back = float("inf")
            world.service._running[STAGE].restarts.failed(AWAY)
        steps = world.steps(OTHER)
        steps.at_work, steps.last = raised, SimpleNamespace(step=7 + number if moved else 7)
        world.service._note_failure(OTHER, raised)
        assert world.until(world.now + 2.0) is None
    assert (world.service._running[OTHER].stage is broken) is suspends
    assert [one.code for one in told if isinstance(one, ViewError)] == ["VIEW_FAILED"] * suspends


def test_what_a_view_s_surroundings_raise_twice_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.back = 0.0
    world.instead = None
    for _ in range(2):
        world.service._note_failure(OTHER, TypeError("no len()"))
        assert world.until(world.now + 2.0) is None
    assert world.service._running[OTHER].stage.name == OTHER


def test_a_stop_does_not_wait_for_a_stage_that_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(len(WAITS)):
        world.service._running[STAGE].restarts.failed()
    assert world.service._running[STAGE].restarts.waits
    world.service.start = lambda: None  # type: ignore[method-assign]
    watch = threading.Thread(target=world.service.run, daemon=True)
    watch.start()
    world.service.request_stop()
    watch.join(timeout=10)  # a wait of the stage is longer by far
    assert not watch.is_alive() and not world.service._running
