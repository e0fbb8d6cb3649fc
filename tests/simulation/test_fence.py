"""The fence of strobe-family figure 9.3, walked on both sides (`viewmanagers.modes`).

At the level stated for a mode in a scenario no random history is below it; one level up, one is. Each
history has five transactions over three relations and runs the real machines; those of `isolated` lose,
repeat and reorder its messages and crash it.
"""

from __future__ import annotations

import pytest

from streaming.errors import FrescoError
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, SCENES, Scene, refuse_level
from tests.simulation.cells import CELLS, HISTORIES, Cell, Runner, drawn, has, increasing, report

MOST_TO_TIGHT = 3000
"""Seeds to look at for a history below the next level."""


@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS if cell.level > Level.NONE], ids=lambda cell: cell.name
)
def test_no_history_is_below_the_level_stated(fence: Runner, cell: Cell) -> None:
    below = fence.below(cell.case, cell.level, HISTORIES)
    assert not below, report(cell.case, below, HISTORIES)


@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS if cell.level < Level.COMPLETE], ids=lambda cell: cell.name
)
def test_some_history_is_below_the_next_level(cell: Cell) -> None:
    above = Level(cell.level + 1)
    if above is Level.COMPLETE_N:
        above = Level.COMPLETE  # the case has no N; complete-1 is complete
    found = next(
        (
            seed
            for seeds in increasing(MOST_TO_TIGHT)
            for seed in seeds
            if not has(cell.case, seed, above)
        ),
        None,
    )
    assert found is not None, f"none of {MOST_TO_TIGHT} is below {above.text}: {cell.case}"
    assert has(cell.case, found, cell.level), f"seed {found}: {drawn(cell.case, found)}"


@pytest.mark.parametrize("mode", MODES)
def test_a_level_holds_for_less_demanding_scenarios_too(mode: str) -> None:
    """Figure 9.3: "achieves L consistency for scenarios that are less restrictive than S"."""
    levels = [MODES[mode].levels.get(scene) for scene in ("single", "local", "global")]
    known = [level for level in levels if level is not None]
    assert known == sorted(known, reverse=True)
    for one, several in (("one-single", "single"), ("one-local", "local")):
        left, right = (MODES[mode].levels.get(s) for s in (one, several))  # type: ignore[call-overload]
        assert left is not None and (right is None or left >= right)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", SCENES)
def test_a_level_beyond_the_fence_is_refused_with_the_reason(mode: str, scene: Scene) -> None:
    best = MODES[mode].levels.get(scene)
    if best is not None:
        refuse_level(mode, scene, best)
    if best is Level.COMPLETE:
        return
    asked = Level.CONVERGENT if best is None else Level(best + 1)
    with pytest.raises(FrescoError) as caught:
        refuse_level(mode, scene, asked)
    assert caught.value.code == ("MODE_SCENARIO" if best is None else "MODE_LEVEL")
    assert MODES[mode].reason in caught.value.what
    assert "replica" in caught.value.todo
    assert f"use {mode} " not in caught.value.todo
