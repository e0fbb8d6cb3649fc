"""`isolated` under loss, repetition, reordering and crashes: strong, and no more (moro-sartori 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streaming.algebra import adddel
from streaming.algebra.tree import Scan, Tree
from streaming.simulator.auditor import Auditor
from streaming.simulator.case import Case, Faults
from streaming.simulator.isolated import CASE, Sessions, audited, run
from streaming.viewmanagers import propagation
from streaming.viewmanagers.levels import Level
from tests.simulation.cells import HISTORIES

CALM = Faults(reorder=1.0)
KINDS = [(views, n) for n in (3, 2, 1) for views in ("chain", "pair", "self", "mixed", "narrow")]


def case_of(seed: int, case: Case = CASE) -> Case:
    """Views, sources and relations by turns."""
    views, sources = KINDS[seed % len(KINDS)]
    relations = ("bag", "fanout", "first")[seed % 7 % 3]
    return replace(case, views=views, sources=sources, relations=relations, transactions=5)


def together(case: Case, seed: int) -> tuple[Auditor, list]:
    """The auditor of all views as one, and what was visible."""
    sessions = Sessions(case, seed)
    sessions.run()
    *_, (_, judge, states) = audited(sessions)
    return judge, states


@pytest.mark.parametrize(("scenario", "count"), [("local", HISTORIES), ("single", HISTORIES)])
def test_all_views_together_are_strong(scenario: str, count: int) -> None:
    for seed in range(count):
        case = case_of(seed, replace(CASE, scenario=scenario))
        judge, states = together(case, seed)
        assert judge.holds(states, Level.STRONG), f"seed {seed} of {case}\n" + "\n".join(
            run(case, seed).history
        )


def test_no_more_than_strong_because_a_session_takes_all_there_is() -> None:
    case = replace(CASE, views="chain", faults=CALM)
    found = [seed for seed in range(30) if not _holds(case, seed, Level.COMPLETE_N)]
    assert found
    assert "is strong, not complete-N" in run(case, found[0]).history[-1]


def test_transactions_over_several_sources_are_seen_in_part_as_the_paper_says() -> None:
    """Section 2: transactions do not span sources. Where they do, each source is right by itself."""
    case = replace(CASE, views="pair", scenario="global", faults=CALM, transactions=5)
    seeds = range(60)
    assert all(_holds(case, seed, Level.WEAK) for seed in seeds)
    assert not all(_holds(case, seed, Level.STRONG) for seed in seeds)


def _holds(case: Case, seed: int, level: Level) -> bool:
    judge, states = together(case, seed)
    return judge.holds(states, level)


def test_every_fault_happens() -> None:
    counters = run(CASE, 2).counters
    assert all(counters[name] for name in ("crashes", "lost", "repeated", "sessions"))


def test_a_seed_is_a_history() -> None:
    assert run(CASE, 11) == run(CASE, 11)
    assert run(CASE, 11).history != run(CASE, 12).history


# Tests of the tests: each of these is a mistake that the histories find ---------------------------


def unnetted(scan: Scan, one: adddel.Kind, other: adddel.Kind, all_rows: bool) -> Tree:
    """Delta tables as the triggers filled them, which is how the paper is printed."""
    return adddel._rows(adddel.delta_table(scan, one), all_rows)


def not_undone(scan: Scan, state: adddel.State) -> Tree:
    """The table as it is, whatever has committed since the ids were read."""
    return scan if state in ("old", "past") else adddel.table_in(scan, state)


def both_new(places: int, function: str) -> tuple[tuple[adddel.State, ...], ...]:
    """What came joined with the whole new table on both sides."""
    states = adddel.terms(places, function)  # type: ignore[arg-type]
    return tuple(tuple("old" if s == "kept" else s for s in each) for each in states)


@pytest.fixture
def fresh_statements() -> Iterator[None]:
    propagation._statement.cache_clear()
    yield
    propagation._statement.cache_clear()


@pytest.mark.parametrize(
    ("module", "name", "mistake"),
    [
        (adddel, "_net", unnetted),
        (propagation, "table_in", not_undone),
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
            return not _holds(case, seed, Level.STRONG)
        except AssertionError:
            return True

    assert any(wrong(seed) for seed in range(60))
