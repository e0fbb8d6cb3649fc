"""Managers that keep copies of some relations give the level they give without (strobe-family 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.simulator.case import Case, Faults
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES
from tests.simulation.cells import Runner, assert_level, case_of, some

SOME = some(20)
COPIED = {"middle": ("y.r2",), "ends": ("x.r1", "z.r3"), "part-of-a-source": ("x.r2",)}
ASKING = [mode for mode, info in MODES.items() if info.asks and not info.sessions]


def cases() -> dict[str, tuple[Case, Level]]:
    found: dict[str, tuple[Case, Level]] = {}
    for mode in ASKING:
        several = "global" in MODES[mode].levels
        scene = "global" if several else "one-local"
        level = MODES[mode].levels[scene]
        for name, copied in COPIED.items():
            whole = name != "part-of-a-source"
            if level is Level.NONE or (whole and not several):
                continue
            case = replace(case_of(mode, scene), visibility="set", copied=copied)
            if not whole and several:
                case = replace(case, sources=2)
            found[f"{mode}-{name}"] = (case, level)
    case = replace(case_of("compensating", "local"), truncates=0.12, visibility="set")
    for name, copied in COPIED.items():
        found[f"truncates-{name}"] = (replace(case, copied=copied, sources=2), Level.STRONG)
    return found


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_the_level_holds(runner: Runner, name: str) -> None:
    assert_level(runner, CASES, name, SOME)


def test_copies_save_statements() -> None:
    case = case_of("sweep", "local")
    with_copies = replace(case, copied=("x.r1", "z.r3"))
    asked, here = 0, 0
    for seed in range(40):
        without, found = simulate(case, seed), simulate(with_copies, seed)
        asked += without.counters["queries"] - found.counters["queries"]
        here += found.counters["answered from copies"]
    assert here > 40
    assert asked > 40, "what is answered here is not asked"


@pytest.mark.parametrize("mode", ["t_strobe", "compensating", "recompute"])
def test_crashes_at_every_message_change_nothing(mode: str) -> None:
    case = replace(case_of(mode, "local"), copied=("y.r2",), truncates=0.05, visibility="set")
    for seed in range(10):
        calm = simulate(case, seed)
        crashed = simulate(replace(case, faults=Faults(crash=1.0)), seed)
        assert crashed.by_view == calm.by_view, f"seed {seed}, {case}"
        assert crashed.stuck is None
