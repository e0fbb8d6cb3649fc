"""Every execution order that a discipline allows shows the views only states of the sequential one.

MVC 4.3: transactions that depend on each other commit in order; the others may run beside each other.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from painting_columns import changing
from painting_histories import GROUP, History, history

from streaming.merge.batching import GREEDY, NONE, BatchedTransaction, Batching, bound
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import MergeMachine

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=300, deadline=None)
States = dict[str, list[tuple[tuple[str, int], ...]]]
"""Per view its successive contents, as (list, last number applied of it)."""


def machine(h: Any, batching: Batching, discipline: Discipline) -> MergeMachine:
    strong = any(not getattr(event, "complete", True) for event in h.events)
    return MergeMachine(GROUP, h.views, "pa" if strong else "spa", batching, discipline=discipline)


def execute(views: tuple[str, ...], commits: list[BatchedTransaction]) -> States:
    """The states that a warehouse shows which commits in this order."""
    now: dict[str, tuple[tuple[str, int], ...]] = dict.fromkeys(views, ())
    states: States = {view: [()] for view in views}
    for batch in commits:
        for view in {part.view for part in batch.parts}:
            parts = [part for part in batch.parts if part.view == view]
            applied = dict(now.get(view, ())) | {part.list_id: part.last for part in parts}
            now[view] = tuple(applied.items())
            states.setdefault(view, [()]).append(now[view])
    return states


def run(
    h: Any, rng: random.Random, batching: Batching, discipline: Discipline
) -> tuple[list[BatchedTransaction], int]:
    """The commits of one execution in the order in which they happened; how many ran at once."""
    merge = machine(h, batching, discipline)
    running: list[BatchedTransaction] = []
    commits: list[BatchedTransaction] = []
    most = 0
    for event in [*h.events, *[None] * 200]:
        if event is not None:
            merge.handle(event)
        while (event is None or rng.random() < 0.6) and (batch := merge.take_batch()) is not None:
            running.append(batch)
        most = max(most, len(running))
        while running and rng.random() < 0.4:
            done = running.pop(rng.randrange(len(running)))
            merge.committed(done.sequence)
            commits.append(done)
    assert not running and not merge.submission.ready
    covered = merge.submission.commits.covered
    assert (covered.frontier, covered.ahead) == (merge.frontier, [])
    return commits, most


def sequential(h: Any) -> States:
    """Each transaction by itself, in the order in which they became ready."""
    merge = machine(h, NONE, "declared")
    commits = []
    for event in h.events:
        merge.handle(event)
        commits += list(iter(merge.take_batch, None))
    return execute(h.views, commits)


@many
@given(
    seeds,
    st.booleans(),
    st.sampled_from(["dependent", "sequential"]),
    st.sampled_from([NONE, GREEDY, bound(2, 0)]),
)
def test_any_order_that_is_allowed_shows_states_of_the_sequential_one(
    seed: int, strong: bool, discipline: Discipline, batching: Batching
) -> None:
    h = history(seed, strong=strong)
    commits, most = run(h, random.Random(seed), batching, discipline)
    found, expected = execute(h.views, commits), sequential(h)
    for view in h.views:
        assert found[view][-1] == expected[view][-1], f"seed {seed}: {view} ends elsewhere"
        assert is_within(found[view], expected[view]), f"seed {seed}: {view}"
    if discipline == "sequential":
        assert most <= 1 and [batch.sequence for batch in commits] == list(
            range(1, len(commits) + 1)
        )


def is_within(found: list[Any], expected: list[Any]) -> bool:
    """Whether `found` are some of `expected`, in order."""
    rest = iter(expected)
    return all(state in rest for state in found)


@many
@given(seeds, st.booleans(), st.sampled_from([NONE, GREEDY, bound(2, 0)]))
def test_the_order_holds_for_views_that_come_and_go(
    seed: int, strong: bool, batching: Batching
) -> None:
    h = changing(seed, strong)
    commits, _ = run(h, random.Random(seed), batching, "dependent")
    shown = dict.fromkeys(h.views, -1)
    applied: dict[str, int] = {}
    for batch in commits:
        for view, _ in batch.dropped:
            del shown[view]
        for view, number in batch.added:
            assert view not in shown, f"seed {seed}: {view} was not closed before it was opened"
            shown[view] = applied[view] = number - 1
        for part in batch.parts:
            assert part.view in shown, f"seed {seed}: rows for a column that is not there"
            assert part.last > applied.get(part.view, -1), f"seed {seed}: {part} out of order"
            applied[part.view] = part.last
    assert set(shown) == set(h.members), f"seed {seed}"


def test_independent_transactions_do_run_beside_each_other() -> None:
    beside = 0
    for seed in range(100):
        h: History = history(seed)
        beside += run(h, random.Random(seed), NONE, "dependent")[1] > 1
    assert beside > 30
