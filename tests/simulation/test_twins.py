"""Every state that a machine of the pipeline reaches can be saved, restored and continued.

Every mode in every scenario of its fence, views over views, views that come and go, REL that rides on
action lists, copied relations: integrator, managers, query processors, adapters, mediators and merge each
have a twin (`twins`). What a refused message leaves is judged there too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streaming.ask.fifo import FifoAdapter
from streaming.errors import ProtocolError
from streaming.simulator.case import Case
from streaming.viewmanagers.modes import MODES
from tests.simulation import (
    test_changing_groups,
    test_copied_relations,
    test_rel_with_actions,
    test_views_over_views,
)
from tests.simulation.cells import CELLS, THOUSANDS, drawn
from tests.simulation.twins import SessionTwins, Twins


def families() -> dict[str, dict[str, Case]]:
    """Cases by where they come from."""
    modules: tuple[Any, ...] = (
        test_changing_groups,
        test_copied_relations,
        test_rel_with_actions,
        test_views_over_views,
    )
    found = {cell.mode: {} for cell in CELLS}
    for cell in CELLS:
        found[cell.mode][cell.name] = cell.case
    for module in modules:
        name = module.__name__.rpartition("test_")[2]
        found[name] = {case: each[0] for case, each in module.CASES.items()}
    return found


FAMILIES = families()
MACHINES = {
    "adapter",
    "processor",
    "mediator",
    "replica",
    "MergeMachine",
    "BlockMerge",
    "RoutedMerge",
}


def play(case: Case, seed: int) -> tuple[int, Counter[str]]:
    """One history; how many messages were compared, and which machines refused a message."""
    if MODES[case.modes[0]].sessions:
        sessions = SessionTwins(drawn(case, seed), seed)
        sessions.run()
        return sessions.compared, Counter()
    twins = Twins(case, seed)
    assert twins.run().stuck is None
    return twins.compared, twins.refused


def play_all(family: str, seeds: range) -> Counter[str]:
    refused: Counter[str] = Counter()
    for name, case in FAMILIES[family].items():
        for seed in seeds:
            try:
                compared, here = play(case, seed)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {name}") from error
            assert compared > 5
            refused += here
    return refused


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_restart_after_any_message_and_a_refused_message_change_nothing(family: str) -> None:
    sessions = family in MODES and MODES[family].sessions
    assert sessions or play_all(family, range(1)), "no strange message was refused"
    assert not sessions or not play_all(family, range(3))


@pytest.mark.deep
def test_many_histories() -> None:
    refused: Counter[str] = Counter()
    for family in FAMILIES:
        refused += play_all(family, range(1, THOUSANDS // 100))
    assert refused.keys() >= MACHINES


def test_an_adapter_that_forgets_what_it_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = FifoAdapter.snapshot
    case = FAMILIES["compensating"]["compensating-local-complete"]
    monkeypatch.setattr(FifoAdapter, "snapshot", lambda self: {**snapshot(self), "out": []})
    with pytest.raises((AssertionError, ProtocolError)):
        for seed in range(20):
            play(case, seed)
