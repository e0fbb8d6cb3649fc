"""`isolated` under loss, repetition, reordering and crashes (moro-sartori 5).

Its cells are walked with the others (`test_fence`); here is what else is true of such histories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streaming.algebra.tree import Scan, Tree
from streaming.isolated import add_del, propagation
from streaming.simulator import delta_source
from streaming.simulator.case import Faults
from streaming.simulator.isolated_histories import CASE, holds, run
from streaming.viewmanagers.levels import Level

CALM = Faults(reorder=1.0)
TABLE_IN = add_del.table_in


def test_no_more_than_strong_because_a_session_takes_all_there_is() -> None:
    case = replace(CASE, views="chain", faults=CALM)
    found = [seed for seed in range(30) if not holds(case, seed, Level.COMPLETE_N)]
    assert found
    assert "is strong, not complete-N" in run(case, found[0]).history[-1]


def test_every_fault_happens() -> None:
    counters = run(CASE, 2).counters
    assert all(counters[name] for name in ("crashes", "lost", "repeated", "sessions"))


def test_a_seed_is_a_history() -> None:
    assert run(CASE, 11) == run(CASE, 11)
    assert run(CASE, 11).history != run(CASE, 12).history


# Tests of the tests: each of these is a mistake that the histories find ---------------------------


def unnetted(scan: Scan, one: add_del.Kind, other: add_del.Kind, all_rows: bool) -> Tree:
    """Delta tables as the triggers filled them, which is how the paper is printed."""
    return add_del._rows(add_del.delta_table(scan, one), all_rows)


def not_undone(scan: Scan, state: add_del.State) -> Tree:
    """The table as it is, whatever has committed since the ids were read."""
    return scan if state in ("old", "past") else TABLE_IN(scan, state)


def both_new(places: int, function: str) -> tuple[tuple[add_del.State, ...], ...]:
    """What came joined with the whole new table on both sides."""
    states = add_del.terms(places, function)  # type: ignore[arg-type]
    return tuple(tuple("old" if s == "kept" else s for s in each) for each in states)


@pytest.fixture
def fresh_statements() -> Iterator[None]:
    for cached in (propagation._statement, delta_source.resolved):
        cached.cache_clear()
    yield
    for cached in (propagation._statement, delta_source.resolved):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("module", "name", "mistake"),
    [
        (add_del, "_net", unnetted),
        (add_del, "table_in", not_undone),
        (propagation, "terms", both_new),
    ],
)
def test_a_mistake_is_found(
    module: object,
    name: str,
    mistake: object,
    monkeypatch: pytest.MonkeyPatch,
    fresh_statements: None,
) -> None:
    monkeypatch.setattr(module, name, mistake)
    case = replace(CASE, views="pair", sources=2, transactions=8, domain=2)

    def wrong(seed: int) -> bool:
        try:
            return not holds(case, seed, Level.STRONG)
        except AssertionError:
            return True

    assert any(wrong(seed) for seed in range(60))
