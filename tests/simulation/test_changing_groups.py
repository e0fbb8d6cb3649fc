"""Views that join the group and leave it in mid-stream, judged with it (painting-mvc 1.2; DESIGN 5).

At each cut any view may leave or join. A visible state shows the views that are in the group, and has
to show all of them at one source state: from the epoch in which a view joins, and whatever was under
way when another left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from streaming.messages import ActionList, ViewChange
from streaming.simulator import integrator_node, items
from streaming.simulator.case import Case
from streaming.simulator.judging import counter_example, holds, run
from streaming.simulator.world import SimulatedPipeline, simulate
from streaming.viewmanagers.levels import Level
from tests.simulation.cells import Runner, assert_crashes_change_nothing, assert_level, some

SOME = some(25)
BASE = Case(
    batch=2, vary=True, merge="auto", scenario="local", view_changes=0.4, transactions=7, rows=2
)
STRONG, COMPLETE = Level.STRONG, Level.COMPLETE

CASES: dict[str, tuple[Case, Level]] = {
    **{
        f"replicas-{views}-{scenario}": (replace(BASE, views=views, scenario=scenario), COMPLETE)
        for views in ("trio", "mixed", "orders", "each")
        for scenario in ("single", "local", "global")
    },
    "one-source": (replace(BASE, views="each", sources=1), COMPLETE),
    "rows-in-order": (replace(BASE, views="mixed", order="prefix"), COMPLETE),
    "greedy": (replace(BASE, views="trio", greedy=True), STRONG),
    "by-pa": (replace(BASE, views="trio", merge="pa"), COMPLETE),
    "asking": (
        replace(
            BASE,
            views="mixed",
            scenario="global",
            visibility="set",
            modes=("compensating", "sweep", "replica"),
        ),
        COMPLETE,
    ),
    "some-strong": (
        replace(BASE, views="mixed", modes=("replica", "recompute", "sweep")),
        STRONG,
    ),
    "strobes": (
        replace(
            BASE,
            views="mixed",
            numbering="joined",
            visibility="set",
            modes=("t_strobe", "g_strobe", "c_tstrobe"),
        ),
        STRONG,
    ),
    "eca": (
        replace(BASE, views="pair", sources=1, modes=("eca", "replica"), numbering="joined"),
        STRONG,
    ),
    "truncates": (
        replace(
            BASE,
            views="mixed",
            merge="pa",
            truncates=0.1,
            modes=("compensating", "sweep", "replica"),
        ),
        STRONG,
    ),
    "complete-2": (
        replace(
            BASE,
            views="trio",
            modes=("c_tstrobe_k",),
            transactions=8,
            vary=False,
            no_ops=0.0,
            options=(("every", 2), ("period", 2)),
        ),
        Level.COMPLETE_N,
    ),
    "views-over-views": (replace(BASE, views="tower"), COMPLETE),
    "views-over-views-asking": (
        replace(BASE, views="tower", modes=("sweep", "compensating", "sweep", "replica")),
        COMPLETE,
    ),
    "views-over-strong-views": (
        replace(BASE, views="diamond", modes=("recompute", *("replica",) * 4)),
        STRONG,
    ),
    "rel-with-actions": (replace(BASE, views="mixed", rel="with-actions"), COMPLETE),
    "rel-with-actions-over-views": (
        replace(BASE, views="diamond", rel="with-actions", scenario="global"),
        COMPLETE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_level_holds(runner: Runner, name: str) -> None:
    assert_level(runner, CASES, name, SOME)


@pytest.mark.parametrize("name", ["greedy", "some-strong", "views-over-strong-views"])
def test_no_more_than_the_level_holds(name: str) -> None:
    case, _ = CASES[name]
    assert counter_example(case, COMPLETE, range(400)) is not None


@pytest.mark.parametrize(
    "name", ["replicas-mixed-local", "asking", "strobes", "rel-with-actions-over-views"]
)
def test_crashes_at_every_message_change_nothing(name: str) -> None:
    case, _ = CASES[name]
    assert_crashes_change_nothing(case, range(6), 10)


# What happens in these histories ---------------------------------------------------------------------


class Seen:
    """Counts what makes the coming and going of views hard."""

    def __init__(self, case: Case, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.left: dict[str, int] = {}
        self.joined: set[tuple[str, int]] = set()
        self.pipeline = SimulatedPipeline(case, seed, self.watch)

    def watch(self, sender: str, receiver: str, message: Any) -> None:
        if receiver != "merge":
            return
        match message:
            case ViewChange(change="drop"):
                self.counts["left"] += 1
                self.left[message.view] = message.number
            case ViewChange():
                said = (message.view, message.number)
                self.counts["echo" if said in self.joined else "joined"] += 1
                self.joined.add(said)
                self.counts["came back"] += message.view in self.left and sender == "integrator"
                self.counts["overtook the integrator"] += (
                    said not in self.joined and sender != "integrator"
                )
            case ActionList():
                late = message.last <= self.left.get(message.view, -1)
                self.counts["list after the end"] += late


def test_views_come_go_and_come_back_while_lists_are_under_way() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        seen = Seen(replace(BASE, views="mixed"), seed)
        seen.pipeline.run()
        counts += seen.counts
    for what in ("joined", "left", "echo", "came back", "list after the end"):
        assert counts[what] >= 5, f"{what} in {counts}"


def test_the_history_shows_who_is_there() -> None:
    lines = [
        line
        for seed in range(20)
        for line in run(replace(BASE, views="pair"), seed, table=True).history
    ]
    assert any(line.startswith("JOIN v1@") for line in lines)
    assert any(line.startswith("LEAVE v2@") for line in lines)
    shown = [line for line in lines if line.startswith("BWT")]
    assert any("v1=- v2={" in line for line in shown)
    assert any("v1={" in line and line.endswith(" v2=-") for line in shown)


# Tests of the tests ----------------------------------------------------------------------------------


def test_a_view_that_joins_with_what_was_one_number_before_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_old(world: Any, numbers: Any, *rest: Any) -> Any:
        found = items.whole(world, numbers, *rest)
        before = items.whole(world, numbers[:-1], *rest)
        rows = {
            name: rest[0].pack(rest[0].renumbered(rest[0].open(rows), len(numbers)))
            for name, rows in before.relations.items()
        }
        return found.model_copy(update={"relations": rows})

    case = replace(BASE, views="each")
    assert all(holds(case, simulate(case, seed), COMPLETE) for seed in range(20))
    monkeypatch.setattr(integrator_node, "whole", too_old)
    wrong = []
    for seed in range(40):
        try:
            wrong += [] if holds(case, simulate(case, seed), Level.CONVERGENT) else [seed]
        except Exception as error:  # a row that is not there is taken away
            wrong.append((seed, error))
    assert len(wrong) > 5


def test_a_manager_that_asks_must_be_told_what_its_first_state_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later snapshot of a source may lack a transaction that the first state had (DESIGN 7)."""

    def untold(*given: Any) -> Any:
        return items.whole(*given).model_copy(update={"logs": {}})

    case, level = CASES["asking"]
    monkeypatch.setattr(integrator_node, "whole", untold)
    assert counter_example(case, level, range(100)) is not None
