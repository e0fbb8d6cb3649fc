"""The modes that need no keys, over random histories of relations without keys: rows repeat.

A small share of what the fence's own test runs (`tests/simulation`): a defect in one of these managers
shows here in seconds. Every failure names its seed; `python -m streaming.simulator` replays it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.simulator.case import Case, Faults
from streaming.simulator.judging import counter_example, run
from streaming.viewmanagers.levels import Level

CRASHES = Faults(crash=0.15)
HELD = {
    "compensating, single, sets": (
        Case(("compensating",), "single", visibility="set", batch=2, vary=True, faults=CRASHES),
        Level.COMPLETE,
    ),
    "compensating, local, sets": (
        Case(("compensating",), "local", sources=2, visibility="set", batch=3, vary=True),
        Level.COMPLETE,
    ),
    "compensating, global": (
        Case(("compensating",), "global", views="narrow", batch=2, vary=True),
        Level.COMPLETE,
    ),
    "compensating, self-join": (
        Case(("compensating",), "local", views="self", sources=1, batch=2, vary=True),
        Level.COMPLETE,
    ),
    "compensating, truncates": (
        Case(("compensating",), "local", truncates=0.2, visibility="set", batch=3, vary=True),
        Level.STRONG,
    ),
    "eca, single": (
        Case(("eca",), "single", sources=1, batch=2, vary=True, faults=CRASHES),
        Level.STRONG,
    ),
    "eca, local, no gate": (
        Case(("eca",), "local", sources=1, options=(("gate", 0),)),
        Level.STRONG,
    ),
    "eca, self-join": (
        Case(("eca",), "local", views="self", sources=1, batch=2, vary=True),
        Level.STRONG,
    ),
    "eca, truncates": (
        Case(("eca",), "local", sources=1, truncates=0.2, batch=2, vary=True),
        Level.STRONG,
    ),
    "recompute, local": (
        Case(("recompute",), "local", visibility="set", batch=2, vary=True, faults=CRASHES),
        Level.STRONG,
    ),
    "recompute, truncates": (
        Case(("recompute",), "single", sources=2, truncates=0.2, batch=2, vary=True),
        Level.STRONG,
    ),
}
HISTORIES = 180


@pytest.mark.parametrize("name", HELD)
def test_the_level_holds(name: str) -> None:
    case, level = HELD[name]
    case = replace(case, relations="bag", transactions=5)
    seed = counter_example(case, level, range(HISTORIES))
    assert seed is None, f"{case}, seed {seed}: {run(case, seed).witness}"


@pytest.mark.parametrize(
    ("case", "level"),
    [
        (Case(("naive",), "single", sources=1), Level.CONVERGENT),
        (Case(("naive",), "local"), Level.CONVERGENT),
        (Case(("eca",), "single", sources=1, options=(("gate", 0),)), Level.COMPLETE),
        (Case(("eca",), "single", sources=1, batch=3), Level.COMPLETE),
        (Case(("recompute",), "single", batch=2), Level.COMPLETE),
    ],
    ids=lambda value: getattr(value, "modes", [value])[0],
)
def test_one_level_up_there_is_a_counter_example(case: Case, level: Level) -> None:
    found = counter_example(case, level, range(400))
    assert found is not None, f"{case}: none in 400 histories"
