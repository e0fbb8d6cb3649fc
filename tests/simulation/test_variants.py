"""The levels of the fence under everything else that may happen to a history.

Answers at states that are no prefix of a log, truncates, other views and keys, more contention, crashes
of every machine at every message, and the algorithms' own options.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.simulator.case import Case
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, Scene
from tests.simulation.cells import (
    Runner,
    assert_crashes_change_nothing,
    assert_level,
    case_of,
    some,
)

SOME = some(60)
ANY_VIEW = ("replica", "compensating", "sweep", "recompute")
"""Modes that ask for no keys."""
STROBES = [mode for mode, info in MODES.items() if info.keyed]
RIGHT = [
    mode
    for mode, info in MODES.items()
    if info.levels["one-local"] > Level.NONE and not info.sessions
]


def scene_of(mode: str) -> Scene:
    """The hardest scenario that the mode is for."""
    return "global" if "global" in MODES[mode].levels else "one-local"


def variants() -> dict[str, tuple[Case, Level]]:
    found: dict[str, tuple[Case, Level]] = {}
    for mode in RIGHT:
        scene = scene_of(mode)
        level = MODES[mode].levels[scene]
        for name, changed in {
            "sets": {"visibility": "set"},
            "crowded": {"domain": 1, "rows": 2, "transactions": 8},
            "one-by-one": {"batch": 1},
        }.items():
            if "period" in MODES[mode].settings and name == "one-by-one":
                continue
            found[f"{mode}-{name}"] = (replace(case_of(mode, scene), **changed), level)  # type: ignore[arg-type]
        truncates = replace(case_of(mode, scene), truncates=0.12, visibility="set")
        # A truncate that an answer has seen too early makes one list of several numbers.
        found[f"{mode}-truncates"] = (
            truncates,
            level if mode == "replica" else min(level, Level.STRONG),
        )
    for mode in ANY_VIEW:
        level = MODES[mode].levels["global"]
        for view in ("narrow", "self"):
            for keys in ("any", "bag"):
                case = replace(case_of(mode, "global"), views=view, relations=keys)
                found[f"{mode}-{view}-{keys}"] = (case, level)
    found["replica-total"] = (replace(case_of("replica", "local"), views="total"), Level.COMPLETE)
    bag = replace(case_of("eca", "one-local"), views="narrow", relations="bag")
    found["eca-narrow-bag"] = (bag, Level.STRONG)
    for mode in STROBES:
        for option in ("gate", "grouped", "from_view"):
            if (usual := MODES[mode].settings.get(option)) is not None:
                case = case_of(mode, "local")
                case = replace(case, options=(*case.options, (option, 1 - usual)))
                found[f"{mode}-{option}-{1 - usual}"] = (case, MODES[mode].levels["local"])
    for mode in ("sweep", "t_strobe", "c_tstrobe", "c_tstrobe_k"):
        for window in (1, 3):
            case = case_of(mode, "local")
            case = replace(case, options=(*case.options, ("window", window)))
            found[f"{mode}-window-{window}"] = (case, MODES[mode].levels["local"])
    for mode in ("t_strobe", "g_strobe", "c_tstrobe"):
        level = MODES[mode].levels["local"]
        joined = replace(case_of(mode, "global"), numbering="joined")
        found[f"{mode}-joined"] = (joined, level)
    return found


VARIANTS = variants()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_level_holds(runner: Runner, name: str) -> None:
    assert_level(runner, VARIANTS, name, SOME)


@pytest.mark.parametrize("mode", RIGHT)
def test_crashes_at_every_message_change_nothing(mode: str) -> None:
    case = replace(case_of(mode, scene_of(mode)), visibility="set", truncates=0.05)
    assert_crashes_change_nothing(case, range(40), 6)


def test_without_the_order_of_a_channel_the_published_algorithms_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the FIFO adapter is for: answers and updates of a source travel apart (DESIGN 7)."""

    class Nothing:
        def __init__(self, *arguments: object, **more: object) -> None: ...

        def handle(self, message: object) -> list[object]:
            return [message]

    monkeypatch.setattr("streaming.simulator.nodes.FifoAdapter", Nothing)
    from streaming.simulator.judging import counter_example

    for mode in ("strobe", "c_strobe", "sweep"):
        case = case_of(mode, "single")
        level = MODES[mode].levels["single"]
        assert counter_example(case, level, range(400)) is not None
