"""SIGKILL at any moment leaves what a run without it would have left (G5).

The service is killed with its JVM while people work at the bank: at drawn moments of its start, and
right when something new appears in the warehouse, which is when something else is half done. The
moments come from a seed, printed, so that a run can be made again with the same plan.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Bank
from proofs import assert_proved
from services import Pipeline, Process, until

STARTING = "starting"
PLACES = {
    "a step of the integrator": "_state/integrator/manifests",
    "a step of a view manager": "_state/view-balance/manifests",
    "a step of the merge": "_state/merge-{group}/manifests",
    "recorded updates": "_updates/_delta_log",
    "a commit of the changelog": "{group}_changes/_delta_log",
    "an epoch": "{group}/_delta_log",
}
FEW, MANY = 4, 10
STARTING_SECONDS = 6.0
AFTER_SECONDS = 0.05


@dataclass(frozen=True)
class Kill:
    """When to kill: so many seconds after the start, or after something new has appeared."""

    moment: str
    seconds: float


def plan(chance: random.Random, count: int) -> list[Kill]:
    """First the snapshot's; of many, every place at least once, and starts in between."""
    snapshot = ["a step of the integrator", "a commit of the changelog"]
    if count == FEW:
        later = [STARTING, *chance.sample([one for one in PLACES if one not in snapshot], 2)]
        snapshot = [chance.choice(snapshot)]
    else:
        drawn = chance.choices(list(PLACES), k=count - len(PLACES) - len(snapshot) - 2)
        later = [STARTING, STARTING, *PLACES, *drawn]
    chance.shuffle(later)
    return [
        Kill(one, chance.uniform(0, STARTING_SECONDS if one == STARTING else AFTER_SECONDS))
        for one in [*snapshot, *later]
    ]


def newest(folder: Path) -> str:
    """The highest name of a finished file in a folder; "" while there is none."""
    if not folder.is_dir():
        return ""
    return max((name for name in os.listdir(folder) if name[0].isdigit()), default="")


def await_moment(kill: Kill, pipeline: Pipeline, service: Process) -> None:
    """Return at the moment of the kill."""
    if kill.moment in PLACES:
        folder = pipeline.warehouse / PLACES[kill.moment].format(group=pipeline.group)
        before = newest(folder)
        until(lambda: newest(folder) > before, kill.moment, alive=service)
    assert not service.ended_within(kill.seconds), service.tail()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.deep)])
def test_killed_at_any_moment_the_views_and_the_record_come_out_whole(
    bank: Bank, make_pipeline: Callable[[str], Pipeline], count: int
) -> None:
    seed = int(os.environ.get("FRESCO_KILL_SEED") or random.SystemRandom().randrange(2**32))
    kills = plan(random.Random(seed), count)
    print(f"FRESCO_KILL_SEED={seed}", *kills, sep="\n  ")
    assert len(kills) == count
    pipeline = make_pipeline(f"killed_{count}")
    with ExitStack() as last:
        with bank.at_work(pipeline, rate=5, seed=seed):
            for kill in kills:
                with pipeline.running() as service:
                    await_moment(kill, pipeline, service)
            service = last.enter_context(pipeline.running())
            before = pipeline.newest()
            until(lambda: pipeline.newest() != before, "an epoch of the last start", alive=service)
        bank.rests(pipeline, service)
        assert service.stops() == 0
    assert pipeline.epochs()[-1].generation > sum(kill.moment in PLACES for kill in kills)
    assert_proved(pipeline, bank.dsns, bank.bootstrap, sample=300)
