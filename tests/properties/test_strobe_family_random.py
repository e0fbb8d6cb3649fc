"""Random histories of the Strobe family in the simulator: levels held, and why each rule is needed.

The fence (figure 9.3, both ways) is walked in `simulation`; here are the options that it does not walk,
views that hide what they join on, and mutations: an algorithm without one of its rules must fail.
"""

from __future__ import annotations

from typing import Any

import pytest

from streaming.simulator.case import Case, Faults
from streaming.simulator.judging import counter_example, run
from streaming.viewmanagers.asking.compensated import Compensated
from streaming.viewmanagers.asking.strobe import Strobe
from streaming.viewmanagers.levels import Level

HISTORIES = 60
STRONG, COMPLETE, COMPLETE_N = Level.STRONG, Level.COMPLETE, Level.COMPLETE_N


def case(mode: str, scenario: Any, options: tuple[tuple[str, int], ...] = (), **more: Any) -> Case:
    chosen: dict[str, Any] = {"relations": "fanout", "batch": 2, "vary": True, **more}
    return Case(modes=(mode,), scenario=scenario, options=options, **chosen)


HELD = {
    "strobe": (case("strobe", "single"), STRONG),
    "strobe without a gate": (case("strobe", "single", (("gate", 0),)), STRONG),
    "t_strobe": (case("t_strobe", "local"), STRONG),
    "t_strobe without a gate": (case("t_strobe", "local", (("gate", 0),)), STRONG),
    "t_strobe from the view": (
        case("t_strobe", "local", (("from_view", 1),), relations="first"),
        STRONG,
    ),
    "t_strobe, truncates": (case("t_strobe", "local", truncates=0.2), STRONG),
    "t_strobe, crashes": (case("t_strobe", "local", faults=Faults(crash=0.2)), STRONG),
    "t_strobe, joined globals": (case("t_strobe", "global", numbering="joined"), STRONG),
    "g_strobe": (case("g_strobe", "global"), STRONG),
    "g_strobe without a gate": (case("g_strobe", "global", (("gate", 0),)), STRONG),
    "g_strobe, crashes": (case("g_strobe", "global", faults=Faults(crash=0.2)), STRONG),
    "c_strobe": (case("c_strobe", "single"), COMPLETE),
    "c_tstrobe": (case("c_tstrobe", "local"), COMPLETE),
    "c_tstrobe, small keys": (case("c_tstrobe", "local", relations="first", domain=2), COMPLETE),
    "c_tstrobe, key changes": (case("c_tstrobe", "local", key_changes=0.6), COMPLETE),
    "c_tstrobe ungrouped": (case("c_tstrobe", "local", (("grouped", 0),)), COMPLETE),
    "c_tstrobe from the view": (
        case("c_tstrobe", "local", (("from_view", 1),), relations="first"),
        COMPLETE,
    ),
    "c_tstrobe, truncates": (case("c_tstrobe", "local", truncates=0.2), STRONG),
    "c_tstrobe, crashes": (case("c_tstrobe", "local", faults=Faults(crash=0.2)), COMPLETE),
    "c_tstrobe, joined globals": (case("c_tstrobe", "global", numbering="joined"), COMPLETE),
    "c_tstrobe, snapshots": (case("c_tstrobe", "local", visibility="set"), COMPLETE),
    "c_tstrobe_k, truncates": (
        case("c_tstrobe_k", "local", (("period", 2),), truncates=0.1),
        STRONG,
    ),
    "c_strobe_k": (
        case("c_strobe_k", "single", (("period", 2), ("every", 2)), vary=False),
        COMPLETE_N,
    ),
}


def explained(made: Case, seed: int | None) -> str:
    if seed is None:
        return ""
    return f"seed {seed}:\n" + "\n".join(run(made, seed).history)


@pytest.mark.parametrize("name", HELD)
def test_the_level_is_held(name: str) -> None:
    made, level = HELD[name]
    bad = counter_example(made, level, range(HISTORIES))
    assert bad is None, explained(made, bad)


def without_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Strobe, "key_delete_answer", lambda self, answer, place, deleted: answer)


def without_compensating_queries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compensated, "_later_deletions", lambda self, name, query: iter(()))


def without_line_16(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compensated, "settled", lambda self, i: self.families.pop(i).delta)


def with_deletions_first_come(patch: pytest.MonkeyPatch) -> None:
    """Line 16 for every insertion, deletion before it or not."""

    def settled(self: Any, i: int) -> Any:
        delta = self.families.pop(i).delta
        for one in self.queue.held:
            for place, rows in one.change.deltas.items():
                delta = self.key_delete_star(delta, place, self.operators.inserted(rows))
        return delta

    patch.setattr(Compensated, "settled", settled)


MUTATIONS = {
    "Strobe without pending(Q)": (
        without_pending,
        case("strobe", "single", (("gate", 0),)),
        STRONG,
    ),
    "C-Strobe without lines 12 to 15": (
        without_compensating_queries,
        case("c_strobe", "single"),
        COMPLETE,
    ),
    "C-Strobe without line 16": (without_line_16, case("c_strobe", "single"), COMPLETE),
    "line 16 without its condition": (
        with_deletions_first_come,
        case("c_tstrobe", "local", domain=2, transactions=8),
        COMPLETE,
    ),
    "a gate that only holds": (without_compensating_queries, case("t_strobe", "local"), STRONG),
    "a gate that keeps what came later": (without_line_16, case("t_strobe", "local"), STRONG),
    "Strobe on whole transactions as on updates": (
        lambda patch: None,
        case("strobe", "local"),
        STRONG,
    ),
    "T-Strobe on global transactions": (lambda patch: None, case("t_strobe", "global"), STRONG),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_one_of_its_rules_the_level_is_lost(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate, made, level = MUTATIONS[name]
    mutate(monkeypatch)
    assert counter_example(made, level, range(1500)) is not None, "the rule seems to do nothing"
