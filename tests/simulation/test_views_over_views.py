"""Views over views, three deep, beside base views, in the whole pipeline (ryco-pyco 3; DESIGN 5).

The auditor evaluates every view over relations alone, so it knows nothing of parents and their lists.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.simulator.case import Case
from streaming.simulator.judging import counter_example, run
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.over_views.mediator import Mediator
from tests.simulation.cells import Runner, assert_crashes_change_nothing, assert_level, some

SOME = some(30)
TOWER = Case(
    views="tower", batch=4, vary=True, merge="auto", scenario="local", transactions=5, rows=2
)
DIAMOND = replace(TOWER, views="diamond")
STRONG, COMPLETE = Level.STRONG, Level.COMPLETE

CASES: dict[str, tuple[Case, Level]] = {
    **{
        f"replicas-{views}-{scenario}": (
            replace(TOWER, views=views, scenario=scenario),
            COMPLETE,
        )
        for views in ("tower", "diamond")
        for scenario in ("single", "local", "global")
    },
    "each-by-itself": (replace(TOWER, merge="none", scenario="global"), COMPLETE),
    "all-ask": (
        replace(TOWER, scenario="global", modes=("sweep", "compensating", "sweep", "compensating")),
        COMPLETE,
    ),
    "asking-between": (
        replace(DIAMOND, modes=("sweep", "replica", "compensating", "replica", "sweep")),
        COMPLETE,
    ),
    "snapshots-of-any-set": (
        replace(
            TOWER, visibility="set", modes=("compensating", "sweep", "compensating", "replica")
        ),
        COMPLETE,
    ),
    "keyed-parents": (
        replace(TOWER, numbering="joined", modes=("c_tstrobe", "sweep", "replica", "t_strobe")),
        STRONG,
    ),
    "strong-at-the-bottom": (
        replace(TOWER, scenario="global", modes=("recompute", "replica", "sweep", "replica")),
        STRONG,
    ),
    "strong-in-the-middle": (
        replace(TOWER, modes=("replica", "recompute", "compensating", "sweep")),
        STRONG,
    ),
    "strong-on-both-sides": (
        replace(DIAMOND, modes=("recompute", "recompute", "sweep", "replica", "replica")),
        STRONG,
    ),
    "eca-below": (
        replace(
            TOWER,
            sources=1,
            numbering="joined",
            modes=("eca", "replica", "compensating", "replica"),
        ),
        STRONG,
    ),
    "greedy": (replace(DIAMOND, greedy=True), STRONG),
    "truncates": (replace(TOWER, truncates=0.15), COMPLETE),
    "truncates-asking": (
        replace(
            TOWER,
            truncates=0.15,
            merge="pa",
            modes=("compensating", "replica", "sweep", "sweep"),
        ),
        STRONG,
    ),
    "rows-that-repeat": (replace(DIAMOND, relations="bag"), COMPLETE),
}


@pytest.mark.parametrize("name", CASES)
def test_the_level_holds(runner: Runner, name: str) -> None:
    assert_level(runner, CASES, name, SOME)


@pytest.mark.parametrize("name", [name for name, (_, level) in CASES.items() if level is STRONG])
def test_no_more_than_the_level_holds(name: str) -> None:
    case, _ = CASES[name]
    assert counter_example(case, COMPLETE, range(400)) is not None


@pytest.mark.parametrize(
    "name", ["replicas-diamond-local", "all-ask", "strong-on-both-sides", "truncates-asking"]
)
def test_crashes_at_every_message_change_nothing(name: str) -> None:
    case, _ = CASES[name]
    assert_crashes_change_nothing(case, range(5), 20)


def test_a_mediator_that_does_not_wait_for_its_parents_shows_what_never_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ryco-pyco, Example 1: the rows of a parent meet those of a relation at another DU-id."""
    case = replace(TOWER, merge="none", modes=("replica", "sweep", "sweep", "replica"))
    assert counter_example(case, COMPLETE, range(50)) is None
    monkeypatch.setattr(Mediator, "_ready", Mediator._ordered)
    monkeypatch.setattr(Mediator, "_check_list", lambda *_: None)
    seed = counter_example(case, Level.CONVERGENT, range(100))
    assert seed is not None
    outcome = run(case, seed)
    assert outcome.levels["v1"] is COMPLETE, "a base view has no parents"


def test_the_history_tells_which_lists_the_children_hear() -> None:
    outcome = run(TOWER, 3, table=True)
    heard = [line for line in outcome.history if line.startswith("AL v1[0..0]")]
    assert {line.partition(" -> ")[2] for line in heard} == {"", "v2", "v3"}
    assert any(" w " in line for line in outcome.history if line.startswith("    "))
