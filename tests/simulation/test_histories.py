"""A history is the same for the same seed, readable, and wrong once a list is out of its place."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from streaming.algebra.bag import Numbered
from streaming.simulator.__main__ import app
from streaming.simulator.case import Case
from streaming.simulator.judging import auditor, counter_example, run
from streaming.simulator.lattice import Lattice
from streaming.simulator.nodes import applied
from streaming.simulator.notation import Historian, values_text
from streaming.simulator.workload import world
from streaming.simulator.world import SimulatedPipeline, simulate
from streaming.viewmanagers.levels import Level

REPLICA = Case(scenario="local", relations="first")
STROBE = Case(modes=("strobe",), scenario="local", relations="first")


# Lists out of their place --------------------------------------------------------------------------

Lists = list[Numbered]


def lists_of(case: Case, seed: int) -> tuple[SimulatedPipeline, Lists]:
    """A history's action lists, in order, the initial one first."""
    pipeline = SimulatedPipeline(case, seed)
    sent: Lists = []
    show = pipeline._show

    def keep(actions: object) -> None:
        delta = actions.delta  # type: ignore[attr-defined]
        sent.append({} if delta is None else pipeline.operators.open(delta))
        show(actions)  # type: ignore[arg-type]

    pipeline._show = keep  # type: ignore[method-assign, assignment]
    pipeline.run()
    return pipeline, sent


def shown(lists: Lists) -> list[tuple[dict, ...]]:
    now, states = {}, []
    for delta in lists:
        now = applied(now, delta)
        states.append((now,))
    return states


def dropped(lists: Lists, at: int) -> Lists:
    return [*lists[:at], *lists[at + 1 :]]


def doubled(lists: Lists, at: int) -> Lists:
    return [*lists[: at + 1], *lists[at:]]


def swapped(lists: Lists, at: int) -> Lists:
    """The list before the one it undoes or is undone by; others may commute."""
    rows = {row for _, row in lists[at]}
    for other in range(at + 1, len(lists)):
        if rows & {row for _, row in lists[other]}:
            return [
                *lists[:at],
                lists[other],
                *lists[at + 1 : other],
                lists[at],
                *lists[other + 1 :],
            ]
    return lists


@pytest.mark.parametrize("harm", [dropped, doubled, swapped], ids=lambda harm: harm.__name__)
def test_a_list_out_of_its_place_is_found(harm: Callable[[Lists, int], Lists]) -> None:
    found = 0
    for seed in range(60):
        pipeline, lists = lists_of(REPLICA, seed)
        judge = auditor(REPLICA, pipeline.run_, "v")
        assert judge.level(shown(lists)) is Level.COMPLETE
        for at in range(1, len(lists)):
            wrong = harm(lists, at)
            if wrong == lists or not lists[at]:
                continue
            found += 1
            allowed = Level.NONE if harm is not swapped else Level.CONVERGENT
            assert judge.level(shown(wrong)) <= allowed, f"seed {seed}, list {at} {harm.__name__}"
    assert found > 20


# Seeds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [REPLICA, replace(STROBE, visibility="set", batch=3, vary=True)])
def test_a_seed_gives_one_history(case: Case) -> None:
    for seed in range(5):
        assert run(case, seed).history == run(case, seed).history
    assert run(case, 1).history != run(case, 2).history


def test_writing_a_history_down_does_not_change_it() -> None:
    for seed in range(20):
        assert (
            simulate(STROBE, seed).by_view == simulate(STROBE, seed, lambda *message: None).by_view
        )


def test_workloads_have_everything_that_makes_histories_hard() -> None:
    """Crossing global transactions, contradictions, key changes, rows that come back, truncates."""
    case = Case(scenario="global", truncates=0.1)
    seen = set()
    for seed in range(300):
        drawn = world(case.load, random.Random(seed))
        globs = {s: [t.glob for t in log if t.glob] for s, log in drawn.logs.items()}
        for left in globs.values():
            for right in globs.values():
                shared = [g for g in left if g in right]
                if shared != [g for g in right if g in left]:
                    seen.add("crossing")
        lattice = Lattice(drawn, "global", [drawn.catalog.views[0].tree])
        size = lattice.size
        if len(lattice.before) < size:
            seen.add("contradiction")
        for log in drawn.logs.values():
            for change in (change for transaction in log for change in transaction.changes):
                key = drawn.catalog.relations[change.relation].key
                if change.truncates:
                    seen.add("truncate")
                elif change.before == change.after:
                    seen.add("no-op")
                elif change.before and change.after:
                    moved = any(change.before[i] != change.after[i] for i in key)
                    seen.add("key change" if moved else "modification")
    everything = {"crossing", "contradiction", "truncate", "no-op", "key change", "modification"}
    assert seen == everything


# Notation ------------------------------------------------------------------------------------------


def test_a_counter_example_is_written_down_with_its_witness() -> None:
    """Strobe shows the middle of a transaction (strobe-family, Example 3)."""
    seed = counter_example(STROBE, Level.WEAK, range(200))
    assert seed is not None
    outcome = run(STROBE, seed)
    assert outcome.group is Level.CONVERGENT
    assert outcome.witness == outcome.history[-1]
    assert outcome.witness.startswith("v is convergent, not weak: MV {")
    assert " expected one of {" in outcome.witness
    wrong = outcome.witness.split(": MV ")[1].split(" expected")[0]
    assert f"MV v={wrong}" in outcome.history
    assert outcome.history[0] == "U[0..0]={initial state} -> v"
    assert any(line.startswith("Q v") for line in outcome.history)
    assert any(line.startswith("A v") for line in outcome.history)


def test_values_are_written_as_the_papers_do() -> None:
    assert values_text(({(1, 2): 1, (3, 4): 2},), ("v",)) == "{[1,2], 2[3,4]}"
    assert values_text(({(1,): 1}, {}), ("v1", "v2")) == "v1={[1]} v2={}"


def test_the_table_is_painted_step_by_step() -> None:
    historian = Historian(table=True)
    case = Case(views="pair", merge="spa", relations="first")
    historian.pipeline = SimulatedPipeline(case, 1, historian.watch)
    historian.pipeline.run()
    rows = [line for line in historian.lines if line.startswith("    ")]
    assert any(" w " in row for row in rows)
    assert any(" r " in row for row in rows)
    assert any(" g " in row for row in rows)
    assert any(line.startswith("BWT1 [0] v1={") for line in historian.lines)


# The command ---------------------------------------------------------------------------------------


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_command_replays_a_seed() -> None:
    code, output = command("--seed", "7", "--mode", "sweep", "--scenario", "global")
    assert code == 0
    assert "v complete; together complete" in output
    assert "U[0..0]={initial state} -> v" in output


def test_the_command_replays_views_over_views_that_come_and_go() -> None:
    case = ("--views", "diamond", "--merge", "auto", "--transactions", "8")
    changing = ("--view-changes", "0.5", "--rel", "with-actions", "--seed", "2", "--crash", "0.2")
    code, output = command(*case, *changing)
    assert code == 0
    assert "together complete" in output
    assert "JOIN v" in output and "LEAVE v" in output
    assert " with REL[" in output and " w " in output


def test_the_command_replays_managers_with_copies() -> None:
    code, output = command("--mode", "sweep", "--copy", "y.r2", "--copy", "x.r1", "--seed", "3")
    assert code == 0
    assert "v complete; together complete" in output
    assert "answered from copies" in output
    assert "-> y" not in output and "-> x" not in output, "nobody asks what is copied"


def test_the_command_searches_for_the_smallest_seed() -> None:
    code, output = command("--mode", "strobe", "--scenario", "local", "--search", "weak")
    assert code == 0
    seed = counter_example(Case(modes=("strobe",), scenario="local"), Level.WEAK, range(200))
    assert output.startswith(f"seed {seed} is below weak")
    assert "v convergent; together convergent" in output
    code, output = command("--search", "complete", "--histories", "10")
    assert (code, output.strip()) == (0, "none of 10 histories is below complete")


def test_the_command_says_what_a_machine_refuses() -> None:
    code, output = command("--mode", "eca")
    assert code == 1
    assert "VIEW_MODE_SOURCES" in output


@pytest.mark.parametrize(
    ("mode", "said"),
    [("best", "no mode best"), ("isolated", "streaming.simulator.isolated_histories")],
)
def test_an_unknown_mode_is_refused(mode: str, said: str) -> None:
    code, output = command("--mode", mode)
    assert code == 2
    assert said.replace(" ", "") in re.sub(r"[│\s]", "", output), "however its box is wrapped"


def test_an_unknown_level_is_refused_with_the_names() -> None:
    code, output = command("--search", "best")
    assert code == 2
    assert "convergent" in output
