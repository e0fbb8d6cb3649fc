"""Every pair of managers that `plan` accepts in one group keeps what the group promises.

The pairs are asked of the product (`accepted`): modes, levels, sources with and without transactions,
tagged or not, parts numbered together or apart; batching, order, submission, the way of REL, what answers
see and crashes are drawn with each history. All pairs run a little here, and for long in the deep run.
"""

from __future__ import annotations

import pytest

from streaming.simulator.small_views import catalog
from streaming.viewmanagers.modes import families
from tests.simulation.accepted import WORLDS, below, pairs
from tests.simulation.cells import Runner

FEW, MANY = 3, 300


def assert_promises(runner: Runner, histories: int) -> None:
    asked = {
        name: runner.pool.submit(
            below, pair.case, pair.level, pair.passed, pair.alone, range(histories)
        )
        for name, pair in pairs().items()
    }
    found = {name: future.result() for name, future in asked.items()}
    broken = {name: each for name, each in found.items() if each}
    lines = [
        f"{name}: {len(each)} of {histories}; seed {each[0][0]}: {each[0][1]}"
        for name, each in broken.items()
    ]
    assert not broken, f"{len(broken)} of {len(found)} pairs\n" + "\n".join(lines)


def test_every_pair_of_managers_that_is_accepted_keeps_what_its_group_promises(
    runner: Runner,
) -> None:
    assert_promises(runner, FEW)


@pytest.mark.deep
def test_every_pair_of_managers_that_is_accepted_keeps_it_in_hundreds_of_histories(
    runner: Runner,
) -> None:
    assert_promises(runner, MANY)


def test_the_pairs_are_of_every_family_over_every_kind_of_sources() -> None:
    """What would make the others say nothing: no pair of a family, or of a world."""
    found = list(pairs().values())
    apart_from_one = {"1-local-apart"}  # one source has no parts
    assert {pair.world.name for pair in found} == {one.name for one in WORLDS} - apart_from_one
    modes = {view.mode for pair in found for view in pair.views}
    assert modes == families().keys() - {"isolated"}
    assert {(pair.algorithm.name, pair.algorithm.every) for pair in found} == {
        ("spa", None),
        ("spa", 2),
        ("pa", None),
    }
    both = {p.world.name for p in found if {one.mode for one in p.choices} == {"g_strobe"}}
    assert both >= {"3-global-apart", "3-global"}


def test_the_views_that_are_planned_are_the_views_that_are_simulated() -> None:
    for pair in pairs().values():
        simulated = catalog("pair", "first", pair.world.sources).views
        for planned, other in zip(pair.views, simulated, strict=True):
            assert set(planned.relations) == set(other.tree.scanned)
            assert [c.type for c in planned.schema] == [c.type for c in other.tree.schema]
