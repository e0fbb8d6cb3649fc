"""REL that rides on the action lists ends as REL sent directly does (painting-mvc 3.2; DESIGN 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.simulator.auditor import collapsed
from streaming.simulator.case import Case
from streaming.simulator.judging import holds
from streaming.simulator.world import simulate
from streaming.viewmanagers.forwarding import Forwarding
from streaming.viewmanagers.levels import Level
from tests.simulation.cells import Runner, assert_crashes_change_nothing, assert_level, some

SOME = some(30)
BASE = Case(batch=4, vary=True, merge="auto", scenario="local", rel="with-actions", transactions=5)
STRONG, COMPLETE = Level.STRONG, Level.COMPLETE

CASES: dict[str, tuple[Case, Level]] = {
    **{
        f"replicas-{views}-{scenario}": (replace(BASE, views=views, scenario=scenario), COMPLETE)
        for views in ("trio", "mixed", "orders")
        for scenario in ("single", "local", "global")
    },
    "rows-in-order": (replace(BASE, views="trio", order="prefix"), COMPLETE),
    "guarded-rows": (replace(BASE, views="copies", sources=1), COMPLETE),
    "greedy": (replace(BASE, views="trio", greedy=True), STRONG),
    "strong-ones": (
        replace(
            BASE,
            views="mixed",
            scenario="global",
            numbering="joined",
            modes=("t_strobe", "recompute", "sweep"),
        ),
        STRONG,
    ),
    "truncates": (
        replace(
            BASE,
            views="mixed",
            modes=("compensating", "sweep", "replica"),
            merge="pa",
            truncates=0.1,
        ),
        STRONG,
    ),
    "complete-2": (
        replace(
            BASE,
            views="trio",
            modes=("c_tstrobe_k",),
            transactions=6,
            batch=2,
            vary=False,
            no_ops=0.0,
            options=(("every", 2), ("period", 2)),
        ),
        Level.COMPLETE_N,
    ),
    "views-over-views": (replace(BASE, views="tower", rows=2), COMPLETE),
    "views-over-strong-views": (
        replace(BASE, views="diamond", modes=("recompute", *("replica",) * 4)),
        STRONG,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_level_is_that_of_rel_sent_directly(runner: Runner, name: str) -> None:
    assert_level(runner, CASES, name, SOME)


@pytest.mark.parametrize("name", ["replicas-trio-local", "guarded-rows", "views-over-views"])
def test_the_same_states_come_one_after_the_other(name: str) -> None:
    """With one source the numbers are the same both ways, and in order, so are the states."""
    case = replace(CASES[name][0], sources=1, order="prefix")
    for seed in range(30):
        routed, direct = simulate(case, seed), simulate(replace(case, rel="direct"), seed)
        assert routed.stuck is None and direct.stuck is None
        assert collapsed(routed.group) == collapsed(direct.group), f"seed {seed}, {case}"


@pytest.mark.parametrize("name", ["replicas-mixed-global", "strong-ones", "complete-2"])
def test_crashes_at_every_message_change_nothing(name: str) -> None:
    case, _ = CASES[name]
    assert_crashes_change_nothing(case, range(6), 10)


def test_without_a_carrier_some_rel_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """painting-mvc 3.2 has REL_i sent with an action list; where REL_i is empty there is none."""
    case = replace(BASE, views="pair", scenario="single")
    assert all(holds(case, simulate(case, seed), COMPLETE) for seed in range(40))
    monkeypatch.setattr(Forwarding, "carrier", False)
    stuck = [found for seed in range(40) if (found := simulate(case, seed).stuck)]
    assert stuck and all("the merge has come to" in each for each in stuck)
