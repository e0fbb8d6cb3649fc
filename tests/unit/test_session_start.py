"""Groups of isolated views start together or not at all; what has started is stopped whatever happens."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from test_session_plan import BANK, STRONG, config, view

from streaming.captured.captured_schema import captured
from streaming.errors import FrescoError
from streaming.isolated import session_start
from streaming.isolated.session_loop import SessionLoop
from streaming.isolated.session_start import start_sessions
from streaming.metrics import Metrics
from streaming.pipeline.plan import Pipeline
from streaming.pipeline.session_plan import plan_sessions
from streaming.runtime import restarts
from streaming.runtime.step import Fence
from streaming.service.service import Service

NOBODY = "postgresql://reader@127.0.0.1:1/bank"
"""No database listens there; a loop that runs waits for it."""


def start(folder: Path, roles: Collection[str] = ()) -> list[SessionLoop]:
    """Two groups, each of a view over one relation of the same source."""
    settings = config({"connection": NOBODY}, grouping="disjoint", warehouse=str(folder))
    names = ("north.account", "north.entry")
    relations = [
        captured(name, name, [(c.name, "text") for c in BANK[name].schema], collection=name)
        for name in names
    ]
    views = [view("a", STRONG), view("c", STRONG, "SELECT id FROM north.entry")]
    plan = plan_sessions(settings, views, relations)
    assert list(plan.groups) == ["p_isolated_a", "p_isolated_c"]
    pipeline = Pipeline("p", (), (), (), {}, {}, plan)
    fence = Fence(folder / "_state" / "generations", {"process": "a test"})
    return start_sessions(settings, pipeline, fence, Metrics(), lambda error: None, roles)


def threads() -> list[threading.Thread]:
    own = ("isolated:", "listen")
    return [one for one in threading.enumerate() if one.name.startswith(own)]


def damage(folder: Path, group: str) -> None:
    manifests = folder / "_state" / f"isolated-{group}" / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "000000000001.json").write_text("{")


def test_all_groups_run_until_they_are_told_to_stop(tmp_path: Path) -> None:
    loops = start(tmp_path)
    assert len(loops) == 2 and len(threads()) == 4, "a loop and a listener each"
    for loop in loops:
        loop.stop()
    assert threads() == []


@pytest.mark.parametrize("group", ["p_isolated_a", "p_isolated_c"])
def test_a_group_that_cannot_start_leaves_none_running(tmp_path: Path, group: str) -> None:
    damage(tmp_path, group)
    with pytest.raises(FrescoError, match="STATE_DAMAGED"):
        start(tmp_path)
    assert threads() == []
    other = {"p_isolated_a": "p_isolated_c", "p_isolated_c": "p_isolated_a"}[group]
    for loop in start(tmp_path, [f"isolated:{other}"]):
        loop.stop()  # it was left as if nothing had been started


def test_a_loop_that_cannot_begin_stops_those_that_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[SessionLoop] = []

    def begin(*given: object) -> SessionLoop:
        if begun:
            assert threads(), "the first one runs"
            raise RuntimeError("can't start new thread")
        begun.append(SessionLoop(*given))  # type: ignore[arg-type]
        return begun[0]

    monkeypatch.setattr(session_start, "SessionLoop", begin)
    with pytest.raises(RuntimeError, match="new thread"):
        start(tmp_path)
    assert begun and threads() == []


def test_what_does_not_stop_cleanly_keeps_nothing_else_running(tmp_path: Path) -> None:
    settings = config(warehouse=str(tmp_path))
    service, stopped = Service(settings), list[str]()

    class Stage:
        def __init__(self, name: str) -> None:
            self.name = name

        def stop(self) -> None:
            stopped.append(self.name)
            raise ConnectionError("the JVM is gone")

    service._running = {"one": Stage("one"), "two": Stage("two")}  # type: ignore[dict-item]
    service._closers = [lambda: stopped.append("sessions")]
    service.stop()
    service.stop()
    assert stopped == ["one", "two", "sessions"]


class Failing:
    """A stepper that always fails for a reason without a code."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)

    def batch(self, records: object) -> None:
        self.steps.release()
        raise OSError("the disk is full")


def failing(loop: SessionLoop, folder: Path, failed: queue.Queue[FrescoError]) -> SessionLoop:
    """A loop like another one, over a stepper that fails."""
    loop.stop()
    stepper: Any = Failing()
    return SessionLoop(loop._stage, stepper, [], 300.0, failed.put, Metrics(), folder)


def test_a_loop_waits_longer_after_each_failure_and_a_stop_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "WAITS", (0.0, 0.0, 300.0))
    (loop,) = start(tmp_path, ["isolated:p_isolated_a"])
    failed: queue.Queue[FrescoError] = queue.Queue()
    loop = failing(loop, tmp_path, failed)
    steps: Any = loop._stepper
    assert all(steps.steps.acquire(timeout=10) for _ in range(3)), "three failures, then it waits"
    assert not steps.steps.acquire(timeout=0.2) and threads()
    loop.stop()
    assert threads() == [] and failed.empty()


def test_a_loop_that_fails_too_often_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "WAITS", (0.0, 0.0))
    (loop,) = start(tmp_path, ["isolated:p_isolated_a"])
    failed: queue.Queue[FrescoError] = queue.Queue()
    loop = failing(loop, tmp_path, failed)
    error = failed.get(timeout=10)
    assert error.code == "STAGE_FAILED" and error.where == "isolated:p_isolated_a"
    assert "failed 3 times: the disk is full" in error.what
    loop.stop()
