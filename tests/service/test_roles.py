"""Stages in drivers of their own, each killed at a drawn moment: the views come out whole (DESIGN 9)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from conftest import Bank
from proofs import (
    assert_complete,
    assert_equal,
    assert_every_epoch_once,
    assert_no_change_twice,
)
from services import Pipeline, Process, until

from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.service.status import pipeline_status

OTHERS = ("branch_total", "large_entry", "owner_entries", "total")
VIEW, MERGE = "view:balance", "merge:split"
DRIVERS: Mapping[str, tuple[str, ...]] = {
    "rest": ("integrator", *(f"view:{name}" for name in OTHERS)),
    "view": (VIEW,),
    "merge": (MERGE,),
}
AFTER_SECONDS = 0.3


def options(roles: tuple[str, ...]) -> list[str]:
    """The words of `fresco run` for some roles, metrics on any free port."""
    return [word for role in roles for word in ("--role", role)] + ["--metrics-port", "0"]


@contextmanager
def drivers(pipeline: Pipeline) -> Iterator[dict[str, Process]]:
    """One process for each driver, killed at the end whatever happened."""
    running = {name: pipeline.start(name, *options(roles)) for name, roles in DRIVERS.items()}
    try:
        yield running
    finally:
        for driver in running.values():
            driver.kill()


def steps(pipeline: Pipeline, role: str) -> str:
    """The name of the newest manifest of a stage."""
    folder = pipeline.warehouse / "_state" / role.replace(":", "-") / "manifests"
    return max((name for name in os.listdir(folder) if name[0].isdigit()), default="")


@pytest.mark.timeout(900)
def test_merge_and_a_view_manager_in_drivers_of_their_own_survive_the_kill_of_each(
    bank: Bank, make_pipeline: Callable[[str], Pipeline]
) -> None:
    seed = int(os.environ.get("FRESCO_KILL_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FRESCO_KILL_SEED={seed}")
    chance = random.Random(seed)
    pipeline = make_pipeline("split")
    with drivers(pipeline) as running:
        with bank.at_work(pipeline, rate=20, seed=seed):
            until(pipeline.newest, "the first epoch", alive=running["rest"])
            # The integrator's last: while it starts again, no other has a step to be killed in.
            for name in (*chance.sample(["view", "merge"], 2), "rest"):
                role, before = DRIVERS[name][0], steps(pipeline, DRIVERS[name][0])
                others = [driver for other, driver in running.items() if other != name]
                until(lambda: steps(pipeline, role) > before, f"a step of {role}")  # noqa: B023
                assert not running[name].ended_within(chance.uniform(0, AFTER_SECONDS))
                running[name].kill()
                running[name] = pipeline.start(name, *options(DRIVERS[name]))
                assert all(driver.running for driver in others), "a role fenced out another"
            until(lambda: generations(pipeline) == {4, 5, 6}, "a step of each of the new drivers")
            until(lambda: pipeline.epochs()[-1].generation > 3, "an epoch of the new merge")
        bank.rests(pipeline, running["merge"])
        told = pipeline_status(pipeline.warehouse).drivers
        assert {one.roles for one in told} == {tuple(sorted(roles)) for roles in DRIVERS.values()}
        assert all(str(one.owner["metrics"]).startswith("http://127.0.0.1:") for one in told)
        assert {name: driver.stops() for name, driver in running.items()} == dict.fromkeys(
            DRIVERS, 0
        )
    for driver in running.values():
        assert "Traceback" not in driver.says
    assert_complete(verify_pipeline(pipeline.warehouse, 50))
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)


def generations(pipeline: Pipeline) -> set[int]:
    """Of the newest steps."""
    return {one.generation for one in pipeline_status(pipeline.warehouse).stages}
