"""Without its own rule each mode that asks falls below its level: the histories do exercise the rule.

The rules of the strobe family are broken in `tests/properties/test_strobe_family_random.py`, those of
`replica` in `test_delta_rules`. Here are the others, and the judge shares no code with any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streaming.algebra.tree import Scan, Tree
from streaming.errors import FrescoError
from streaming.isolated import add_del, propagation
from streaming.isolated.add_del import State
from streaming.simulator.case import Case
from streaming.viewmanagers.asking import chains, compensating, eca, recompute
from streaming.viewmanagers.asking.g_strobe import GStrobe
from streaming.viewmanagers.asking.sweep import SweepManager
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, Scene
from tests.simulation.cells import case_of, drawn, has

HISTORIES = 150
Breaks = Callable[[pytest.MonkeyPatch], None]


def answer_as_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recompute, "compensate", lambda ops, psj, term, rows, seen, finish: (rows, ()))


def answer_without_cross_terms(patch: pytest.MonkeyPatch) -> None:
    right = recompute.compensate
    patch.setattr(recompute, "compensate", lambda *a, **more: (right(*a, **more)[0], ()))


def chain_with_surplus(patch: pytest.MonkeyPatch) -> None:
    right = chains.answered

    def broken(ops: Any, psj: Any, chain: Any, place: int, rows: Any, surplus: Any) -> Any:
        return right(ops, psj, chain, place, rows, ops.minus(surplus, surplus))

    patch.setattr(compensating, "answered", broken)


def chain_without_own_batch(patch: pytest.MonkeyPatch) -> None:
    """Changes of the same batch at places that come before are not added."""
    right = chains.answered

    def broken(ops: Any, psj: Any, chain: Any, *rest: Any) -> Any:
        return right(ops, psj, replace(chain, more={}), *rest)

    patch.setattr(compensating, "answered", broken)


def sweep_as_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SweepManager, "compensated", lambda self, work, place, rows: rows)


def eca_without_compensation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eca, "before", lambda ops, terms, later: ())


def parts_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GStrobe, "tt", property(lambda self: {}))


def old_as_of_the_past(patch: pytest.MonkeyPatch) -> None:
    """Equation (3) forgotten: what the other place has changed too is not taken back."""
    right = add_del.table_in

    def broken(scan: Scan, state: State) -> Tree:
        return right(scan, "past" if state == "old" else state)

    patch.setattr(add_del, "table_in", broken)


def added_by_itself(patch: pytest.MonkeyPatch) -> None:
    """ADD(E) x F(old) alone, without kept(E) x ADD(F)."""
    right = propagation.terms
    patch.setattr(
        propagation, "terms", lambda n, of: right(n, of)[:1] if of == "ADD" else right(n, of)
    )


@dataclass(frozen=True)
class Rule:
    """A mode's rule, and how to break it."""

    mode: str
    scene: Scene
    breaks: Breaks

    @property
    def case(self) -> Case:
        return case_of(self.mode, self.scene)

    @property
    def level(self) -> Level:
        return MODES[self.mode].levels[self.scene]


RULES = {
    "recompute: the answer's state": Rule("recompute", "global", answer_as_it_is),
    "recompute: cross terms": Rule("recompute", "global", answer_without_cross_terms),
    "compensating: the surplus": Rule("compensating", "global", chain_with_surplus),
    "compensating: the own batch": Rule("compensating", "global", chain_without_own_batch),
    "sweep: local compensation": Rule("sweep", "global", sweep_as_answered),
    "eca: Q_i - sum of Q_j<U_i>": Rule("eca", "one-local", eca_without_compensation),
    "g_strobe: condition 3": Rule("g_strobe", "global", parts_not_waited_for),
    "isolated: equation (3)": Rule("isolated", "local", old_as_of_the_past),
    "isolated: figure 2's join": Rule("isolated", "local", added_by_itself),
}


def below(rule: Rule) -> int | None:
    """The first seed that has not the level, or that a machine refuses."""
    for seed in range(HISTORIES):
        try:
            if not has(rule.case, seed, rule.level):
                return seed
        except (FrescoError, ValueError, AssertionError):  # a deletion finds no row
            return seed
    return None


@pytest.mark.parametrize("name", RULES)
def test_without_its_rule_a_mode_loses_its_level(
    name: str, broken_rules: pytest.MonkeyPatch
) -> None:
    rule = RULES[name]
    assert has(rule.case, 0, rule.level), drawn(rule.case, 0)
    rule.breaks(broken_rules)
    assert below(rule) is not None, f"{name}: nothing shows in {HISTORIES} histories"
