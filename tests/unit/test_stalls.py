"""A view that cannot move is never called maintained: each way it can stand still is made to happen here.

Real stages over real manifests and tables, stepped by hand; what a driver says of itself is said as it
says it. Each time `fresco status`, `fresco view list` and the metrics are read, which have to
agree.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.captured.captured_schema import captured
from streaming.cli.commands import app
from streaming.errors import FrescoError
from streaming.metrics import Metrics
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.runtime.fence import Fence
from streaming.runtime.heartbeat import (
    AWAY_SECONDS,
    SILENT_SECONDS,
    Beat,
    BrokerWatch,
    Stall,
    here,
    say,
)
from streaming.runtime.pulse import NOTHING
from streaming.runtime.restarts import Restarts
from streaming.service import stalls as stalling
from streaming.service.stalls import StallsShown
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.stage_trouble import forget_trouble, tell_trouble
from streaming.viewchanges.requests import Requests
from tests.intakeworld import insert, relations
from tests.sourcelog import Record, SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

VIEWS = {"accounts": "SELECT id FROM north.account", "entries": "SELECT id FROM north.entry"}
TAGS = captured(
    "north.fresco_global",
    "north.public.fresco_global",
    [("id", "text"), ("parts", "int4")],
    key=["id"],
)
WELL = dict.fromkeys(VIEWS, ("maintained", None))


class World:
    """A pipeline of two views over one source, and what is told of it."""

    def __init__(self, folder: Path, snapshot: bool = False) -> None:
        self.folder, self.log, self.topics = folder, SourceLog("north"), Topics()
        taken = [*relations(), TAGS]
        known = {one.relation.name: one.relation for one in taken}
        views = [
            parse_view(f"CREATE MATERIALIZED VIEW {n} AS {sql}", known) for n, sql in VIEWS.items()
        ]
        save_catalog(folder, views, {GROUP: list(VIEWS)}, known)
        kind = type("Given", (SteppedStages,), {"snapshot": snapshot})
        self.stages = kind(folder, taken, views)
        integrator = self.stages._integrator.stage
        assert isinstance(integrator, IntegratorStage)
        self.integrator = integrator
        for watch in (
            integrator._watch, integrator._watch_globals, integrator._watch_open, integrator._watch_ends
        ):  # fmt: skip
            watch._patience = 0.0
        self.metrics = Metrics()
        self._shown = StallsShown(folder, self.metrics.stalled)

    def feed(self, records: list[Record]) -> None:
        self.stages.feed(self.topics.batch(records))

    def begin(self) -> None:
        """Number 0 and a transaction of each table are published."""
        self.feed([self.log.begin("9")])
        self.feed(self.log.commit([insert("account", 1), insert("entry", 1)]))

    def beat(self, *more: Stall, **fields: Any) -> None:
        """What a driver says that runs these stages."""
        given = {"generation": 1, "at_ms": int(time.time() * 1000)} | fields
        say(self.folder, Beat(**given, stalls=(*more, *self.integrator.stalls)))

    def told(self) -> dict[str, tuple[str, str | None]]:
        """View -> its state and the code of why, as all three say."""
        listed = {one["view"]: one for one in run("view", "list", "-w", self.folder)}
        status = run("status", "-w", self.folder)
        self._shown()
        metric = {
            sample.labels["view"]: sample.labels["code"]
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "fresco_view_stalled" and sample.value == 1
        }
        codes = {view: (one["error"] or {}).get("code") for view, one in listed.items()}
        assert metric == status["views"] == {view: code for view, code in codes.items() if code}
        assert {one["code"] for one in status["stalls"]} >= set(metric.values())
        for one in status["stalls"]:
            assert one["what"] and one["says"] and one["todo"], one
        shown = CliRunner().invoke(app, ["status", "-w", str(self.folder)], env={"COLUMNS": "300"})
        assert all(code in shown.stdout for code in metric.values())
        return {view: (one["state"], codes[view]) for view, one in listed.items()}


def run(*words: object) -> Any:
    said = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.begin()
    made.beat()
    yield made
    made.stages.close()


def both(state: str, code: str | None) -> dict[str, tuple[str, str | None]]:
    return dict.fromkeys(VIEWS, (state, code))


def test_a_pipeline_that_moves_is_well(world: World) -> None:
    assert world.told() == WELL
    assert run("status", "-w", world.folder)["stalls"] == []


# Nobody runs --------------------------------------------------------------------------------------


def test_without_a_service_nothing_is_maintained(world: World) -> None:
    """One that ended, one that was killed, and one that was fenced out by one that never spoke."""
    nobody = both("waits", "SERVICE_NOT_RUNNING")
    world.beat(ended="KAFKA_UNREACHABLE")
    assert world.told() == nobody
    assert run("status", "-w", world.folder)["service"].endswith("ago: KAFKA_UNREACHABLE")
    world.beat(at_ms=int((time.time() - SILENT_SECONDS - 1) * 1000))
    assert world.told() == nobody
    assert "is silent for" in run("status", "-w", world.folder)["service"]
    killed = subprocess.Popen(["true"])
    killed.wait()
    world.beat(place=here(), process=killed.pid)
    assert world.told() == nobody
    world.beat(place="another machine", process=killed.pid)
    assert world.told() == WELL
    world.beat(place=here(), process=os.getpid())
    assert world.told() == WELL
    Fence(world.folder / "_state" / "generations", {"process": "another"})
    assert world.told() == nobody, "generation 1 still beats, and has been replaced"
    world.beat(generation=2)
    assert world.told() == WELL


def test_a_stage_that_no_driver_runs_is_named(world: World) -> None:
    world.beat(roles=("integrator", f"merge:{GROUP}", "view:accounts"))
    assert world.told() == both("waits", "STAGE_NOT_RUNNING"), "the group waits for its other view"
    (stall,) = run("status", "-w", world.folder)["stalls"]
    assert stall["what"] == "stage view:entries" and "--role view:entries" in stall["todo"]


def test_a_change_that_nobody_makes_does_not_hide_it(world: World) -> None:
    Requests(world.folder).put("drop", "entries")
    assert world.told()["entries"] == ("maintained; is to leave", None)
    world.beat(ended="it was told to stop")
    assert world.told()["entries"] == ("waits; is to leave", "SERVICE_NOT_RUNNING")


def test_a_pipeline_that_never_published_is_not_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.told() == both("waits", "SERVICE_NOT_RUNNING")
    world.beat()
    assert world.told() == both("waits", "VIEW_NOT_PUBLISHED")
    world.begin()
    assert world.told() == WELL
    world.stages.close()


def test_a_view_that_is_to_join_says_what_it_waits_for(world: World) -> None:
    file = run("view", "list", "-w", world.folder)
    assert [one["view"] for one in file] == list(VIEWS)
    entry = {"group": GROUP, "mode": "replica"}
    Requests(world.folder).put("add", "new", entry)
    for ended, code in (("", None), ("it was told to stop", "SERVICE_NOT_RUNNING")):
        world.beat(ended=ended)
        (new,) = (one for one in run("view", "list", "-w", world.folder) if one["view"] == "new")
        assert new["state"] == "is to join; loads its rows"
        assert (new["error"] or {}).get("code") == code


# Sources that cannot be numbered ------------------------------------------------------------------


def test_without_transaction_metadata(world: World) -> None:
    """provide.transaction.metadata is off: rows say no transaction, and no END comes."""
    world.feed([world.log.row("entry", "c", None, {"id": 7, "v": "a"})])
    world.beat()
    assert world.told() == WELL | {"entries": ("waits", "SOURCE_TRANSACTION_MISSING")}
    (stall,) = run("status", "-w", world.folder)["stalls"]
    assert "provide.transaction.metadata=true" in stall["todo"]


def test_an_end_that_counts_rows_that_do_not_come(world: World) -> None:
    *most, end = world.log.commit([insert("entry", 8), insert("entry", 9)])
    world.feed([most[0], most[1], end])
    world.beat()
    assert world.told() == both("waits", "SOURCE_TRANSACTION_INCOMPLETE")
    world.feed([most[2]])
    world.beat()
    assert world.told() == WELL


def test_rows_of_which_no_end_comes(world: World) -> None:
    *most, end = world.log.commit([insert("entry", 8)])
    world.feed(most)
    world.beat()
    assert world.told() == both("waits", "SOURCE_TRANSACTION_OPEN")
    world.feed([end])
    world.beat()
    assert world.told() == WELL


def test_an_initial_snapshot_that_does_not_close(tmp_path: Path) -> None:
    world = World(tmp_path, snapshot=True)
    world.feed(
        [world.log.note("STARTED"), world.log.row("account", "r", None, {"id": 1, "v": "a"})]
    )
    world.beat()
    assert world.told() == both("waits", "SOURCE_SNAPSHOT_OPEN")
    world.stages.close()


def test_a_part_of_a_global_transaction_that_does_not_come(world: World) -> None:
    tag = ("fresco_global", "c", None, {"id": "g", "parts": 2})
    world.feed(world.log.commit([insert("entry", 5), tag]))
    world.stages.number(NOTHING)
    world.beat()
    assert world.told() == both("waits", "SOURCE_GLOBAL_INCOMPLETE")


# Views that stop ----------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_suspends_its_view(world: World) -> None:
    begin, row, end = world.log.commit([insert("entry", 5)])
    world.feed([begin, (row[0], "{not json"), end])
    world.beat()
    assert world.told() == WELL | {"entries": ("suspended", "VIEW_INPUT_DAMAGED")}


def test_a_suspended_view_that_the_merge_does_not_know_of_yet(world: World) -> None:
    begin, row, end = world.log.commit([insert("entry", 5)])
    world.stages.number(world.topics.batch([begin, (row[0], "{not json"), end]))
    world.stages.step("view:entries")
    world.beat()
    assert world.told()["entries"] == ("suspended", "VIEW_INPUT_DAMAGED")


def test_a_source_that_cannot_be_asked(world: World) -> None:
    """Its view's manager says so beside its manifests; the group waits with it."""
    folder = world.folder / "_state" / "view-entries"
    tell_trouble(folder, FrescoError("SOURCE_UNREACHABLE", "no", where="north", todo="start it"))
    assert world.told() == both("waits", "SOURCE_UNREACHABLE")
    forget_trouble(folder)
    assert world.told() == WELL


# Stages that take no step -------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["integrator", "view:entries", f"merge:{GROUP}"])
def test_a_stage_that_waits_for_its_restart(world: World, stage: str) -> None:
    restarts = Restarts()
    restarts.failed(RuntimeError("no broker\n\tat org.apache.kafka"))
    world.beat(Stall.of(f"stage {stage}", restarts.waiting(stage)))
    assert world.told() == both("waits", "STAGE_RESTARTS")
    (stall,) = run("status", "-w", world.folder)["stalls"]
    assert stall["says"].endswith(": no broker") and "failed 1 times" in stall["says"]


def test_a_view_manager_that_the_merge_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalling, "PATIENCE", 0.0)
    assert world.told() == WELL
    world.stages.number(
        world.topics.batch(world.log.commit([insert("account", 5), insert("entry", 5)]))
    )
    world.stages.step("view:accounts")
    world.stages.step(f"merge:{GROUP}")
    assert world.told() == both("waits", "STAGE_NO_STEP")
    (stall,) = run("status", "-w", world.folder)["stalls"]
    assert stall["what"] == "stage view:entries" and "numbers 2 to 2 wait" in stall["says"]
    world.stages.step("view:entries")
    world.stages.step(f"merge:{GROUP}")
    assert world.told() == WELL


def test_a_merge_that_takes_no_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.stages.number(world.topics.batch(world.log.commit([insert("entry", 5)])))
    world.stages.step("view:accounts")
    world.stages.step("view:entries")
    assert world.told() == WELL, "for a moment that is nothing"
    monkeypatch.setattr(stalling, "PATIENCE", 0.0)
    assert world.told() == both("waits", "STAGE_NO_STEP")
    (stall,) = run("status", "-w", world.folder)["stalls"]
    assert stall["what"] == f"stage merge:{GROUP}"


def test_kafka_away(world: World) -> None:
    now = [0.0]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        watch = BrokerWatch(f"127.0.0.1:{nobody.getsockname()[1]}", lambda: now[0])
        assert watch.stalls() == []
        now[0] = AWAY_SECONDS
        world.beat(*watch.stalls())
        assert world.told() == both("waits", "KAFKA_UNREACHABLE")
        nobody.listen()
        assert watch.stalls() == []
