"""Groups of views: SPA and PA over real managers, judged as vectors (painting-mvc 2.3, 4, 5, 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.messages import RelRun
from streaming.simulator import integrator_node, rel
from streaming.simulator.case import Case, Faults
from streaming.simulator.judging import auditor, counter_example, run
from streaming.simulator.rel import Pattern
from streaming.simulator.small_views import CaseCatalog
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level
from tests.simulation.cells import THOUSANDS, Runner, assert_level, some

SOME = some(60)
BASE = Case(batch=4, vary=True, merge="auto", scenario="local")
MIXED = replace(BASE, views="mixed", numbering="joined")
APART = replace(BASE, modes=("g_strobe",), numbering="apart", scenario="global", sources=2)
"""Parts of global transactions have numbers of their own."""
STRONG, COMPLETE = Level.STRONG, Level.COMPLETE

GROUPS: dict[str, tuple[Case, Level]] = {
    **{
        f"replicas-{views}-{scenario}": (
            replace(BASE, views=views, scenario=scenario),
            COMPLETE,
        )
        for views in ("pair", "trio", "mixed", "orders", "operators")
        for scenario in ("single", "local", "global")
    },
    "replicas-truncates": (
        replace(BASE, views="operators", relations="bag", truncates=0.1),
        COMPLETE,
    ),
    **{
        f"replicas-{views}-{sources}-sources-{submission}": (
            replace(BASE, views=views, sources=sources, submission=submission, transactions=8),
            STRONG,
        )
        for views, sources in (("copies", 1), ("trio", 3))
        for submission in ("declared", "sequential", "dependent")
    },
    "replicas-greedy": (replace(BASE, views="trio", greedy=True), STRONG),
    "replicas-pa": (replace(BASE, views="trio", merge="pa"), COMPLETE),
    "complete-managers": (
        replace(MIXED, scenario="global", modes=("compensating", "sweep", "replica")),
        COMPLETE,
    ),
    "c-strobe-and-others": (replace(MIXED, modes=("c_tstrobe", "sweep", "replica")), COMPLETE),
    "one-strong": (
        replace(MIXED, scenario="global", modes=("replica", "recompute", "sweep")),
        STRONG,
    ),
    "all-strong": (
        replace(MIXED, scenario="global", modes=("t_strobe", "recompute", "t_strobe")),
        STRONG,
    ),
    "all-strong-greedy": (replace(MIXED, modes=("recompute",), greedy=True), STRONG),
    "eca-and-replica": (
        replace(BASE, views="pair", sources=1, modes=("eca", "replica"), numbering="joined"),
        STRONG,
    ),
    "complete-2": (
        replace(
            BASE,
            views="trio",
            modes=("c_tstrobe_k",),
            batch=2,
            vary=False,
            no_ops=0.0,
            options=(("every", 2), ("period", 2)),
        ),
        Level.COMPLETE_N,
    ),
    **{
        f"g-strobe-{views}-{sources}-sources": (
            replace(APART, views=views, sources=sources),
            STRONG,
        )
        for views in ("pair", "trio", "each")
        for sources in (2, 3)
    },
    "g-strobe-greedy": (replace(APART, views="trio", greedy=True), STRONG),
    "g-strobe-with-actions": (replace(APART, views="trio", rel="with-actions"), STRONG),
    "g-strobe-among-others": (
        replace(MIXED, scenario="global", modes=("g_strobe", "sweep", "replica")),
        STRONG,
    ),
    "two-g-strobe-and-recompute": (
        replace(MIXED, scenario="global", modes=("g_strobe", "g_strobe", "recompute")),
        STRONG,
    ),
    "g-strobe-dependent": (replace(APART, views="trio", submission="dependent"), STRONG),
    "g-strobe-crashes": (replace(APART, views="trio", faults=Faults(crash=0.3)), STRONG),
    "g-strobe-truncates": (replace(APART, views="trio", truncates=0.1, visibility="set"), STRONG),
    "g-strobe-views-change": (replace(APART, views="mixed", view_changes=0.3), STRONG),
    "crashes": (
        replace(
            MIXED,
            scenario="global",
            modes=("replica", "t_strobe", "recompute"),
            faults=Faults(crash=0.3),
        ),
        STRONG,
    ),
    "truncates": (
        replace(
            MIXED,
            modes=("compensating", "sweep", "replica"),
            merge="pa",
            truncates=0.1,
        ),
        STRONG,
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_the_views_of_a_group_move_together(runner: Runner, name: str) -> None:
    assert_level(runner, GROUPS, name, SOME)


@pytest.mark.deep
@pytest.mark.parametrize("name", GROUPS)
def test_the_views_of_a_group_move_together_in_thousands_of_histories(
    runner: Runner, name: str
) -> None:
    assert_level(runner, {name: GROUPS[name]}, name, THOUSANDS)


def test_the_same_managers_without_a_merge_are_right_each_and_wrong_together() -> None:
    """painting-mvc, Example 1: what the merge is for."""
    case = replace(BASE, views="pair", merge="spa")
    seed = 0
    while run(case, seed).group is not Level.COMPLETE or len(simulate(case, seed).group) < 5:
        seed += 1
    outcome = run(replace(case, merge="none"), seed)
    assert set(outcome.levels.values()) == {Level.COMPLETE}


def test_relevance_by_selections_alone_puts_an_order_in_two_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PAPERS 1: T1 open -> moving, T2 moving -> archived; SPA may apply T2 to `archived` first.

    REL as painting-mvc 3.2 proposes, without the views that need no work, loses the order of the rows.
    """
    case = replace(BASE, views="orders", transactions=8)

    def as_printed(
        catalog: CaseCatalog, first: int, patterns: tuple[Pattern, ...]
    ) -> tuple[RelRun, ...]:
        return tuple(
            RelRun(
                first=each.first,
                last=each.last,
                views=tuple(view for view in each.views if view not in each.idle),
            )
            for each in rel.rel_runs(catalog, first, patterns)
        )

    assert counter_example(case, STRONG, range(300)) is None
    monkeypatch.setattr(integrator_node, "rel_runs", as_printed)
    seed = counter_example(case, STRONG, range(300))
    assert seed is not None
    outcome = run(case, seed)
    assert all(level >= STRONG for level in outcome.levels.values()), f"seed {seed}"
    assert outcome.group < STRONG


def test_rows_without_a_view_in_common_may_still_have_an_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """painting-mvc 6.2 says that SPA and PA are unchanged where transactions touch several relations.

    They are not, when a relation that no view uses orders two transactions. V1 = r1, V2 = r2; T1 changes
    r1 and r3, T2 changes r2 and then the same key of r3: no serial schedule has T2 first. Their REL sets
    have no view in common, so SPA may show T2 before T1. REL says `guarded` of such rows.
    """
    case = replace(BASE, views="copies", scenario="local", sources=1, transactions=8)

    def as_printed(
        catalog: CaseCatalog, first: int, patterns: tuple[Pattern, ...]
    ) -> tuple[RelRun, ...]:
        found = rel.rel_runs(catalog, first, patterns)
        return tuple(run.model_copy(update={"guarded": False}) for run in found)

    assert counter_example(case, COMPLETE, range(400)) is None
    monkeypatch.setattr(integrator_node, "rel_runs", as_printed)
    seed = counter_example(case, STRONG, range(400))
    assert seed is not None
    outcome = run(case, seed)
    assert outcome.group < STRONG, f"seed {seed}"
    assert set(outcome.levels.values()) == {COMPLETE}
    assert counter_example(replace(case, order="prefix"), COMPLETE, range(400)) is None


def test_parts_of_a_global_transaction_move_two_views_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By relation alone, nothing ties parts that no view has in common: each view is right by itself.

    V1 = r1, r2 at x; V2 = r2, r3 at x and y. G1 changes r1 at x and r3 at y, under two numbers.
    """
    case = replace(APART, views="pair")

    def by_relation(
        catalog: CaseCatalog, first: int, patterns: tuple[Pattern, ...]
    ) -> tuple[RelRun, ...]:
        bare = tuple((changed, seen, False) for changed, seen, _ in patterns)
        return rel.rel_runs(catalog, first, bare)

    assert counter_example(case, STRONG, range(200)) is None
    monkeypatch.setattr(integrator_node, "rel_runs", by_relation)
    seed = counter_example(case, STRONG, range(200))
    assert seed is not None
    outcome = run(case, seed)
    assert all(level >= STRONG for level in outcome.levels.values()), f"seed {seed}"
    assert outcome.group < STRONG


def test_some_history_of_a_group_of_g_strobe_is_below_complete() -> None:
    """The fence's other side: the level stated for such a group is tight."""
    assert counter_example(replace(APART, views="pair"), COMPLETE, range(300)) is not None


def test_a_view_that_is_passed_through_leaves_the_others_in_order() -> None:
    """painting-mvc 6.3: what a convergent view shows may be wrong for a while, nobody else may be.

    V3 = r3 is passed through; T1 on r1 and r3, T2 on r2 and r3: V3's column alone knows of their order.
    """
    replicas = replace(
        BASE, views="each", sources=1, transactions=8, modes=("replica", "replica", "naive")
    )
    beside_g_strobe = replace(APART, views="each", modes=("g_strobe", "g_strobe", "naive"))
    for case in (replicas, beside_g_strobe):
        for seed in range(150):
            found = simulate(case, seed)
            others = [(one, other, None) for one, other, _ in found.group]
            assert found.stuck is None
            assert auditor(case, found, None).holds(others, STRONG), f"seed {seed}, {case}"
