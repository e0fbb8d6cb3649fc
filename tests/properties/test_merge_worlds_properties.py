"""The merge by base facts: no schedule's order is broken, and every state can be saved and continued.

`painting_worlds` draws which relations transactions change and which views come and go; `painting_runs`
plays a history on SPA, PA, views passed through beside others, and blocks, with every batching, order and
discipline.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from painting_runs import play
from painting_worlds import KINDS, world

from streaming.merge.batching import GREEDY, NONE, Batching, bound
from streaming.merge.disciplines import Discipline

BATCHINGS = (GREEDY, NONE, NONE, bound(3, 0), bound(4, 7))
ORDERS = ("overtake", "overtake", "prefix")
DISCIPLINES: tuple[Discipline, ...] = ("declared", "dependent", "dependent", "sequential")

of_any_kind = pytest.mark.parametrize("kind", KINDS)
drawn = given(
    st.integers(min_value=0, max_value=2**40),
    st.sampled_from(BATCHINGS),
    st.sampled_from(ORDERS),
    st.sampled_from(DISCIPLINES),
)


@of_any_kind
@settings(max_examples=100, deadline=None)
@drawn
def test_no_transaction_shows_before_one_that_a_relation_puts_before_it(
    kind: str, seed: int, batching: Batching, order: str, discipline: Discipline
) -> None:
    play(world(seed, kind), batching, order, discipline, restarts=False)


@of_any_kind
@settings(max_examples=25, deadline=None)
@drawn
def test_a_restart_after_any_message_and_a_refused_message_change_nothing(
    kind: str, seed: int, batching: Batching, order: str, discipline: Discipline
) -> None:
    assert play(world(seed, kind), batching, order, discipline, restarts=True) > 0


@pytest.mark.deep
@of_any_kind
def test_thousands_of_histories(kind: str) -> None:
    for seed in range(1_500):
        rng = random.Random(seed)
        options = rng.choice(BATCHINGS), rng.choice(ORDERS), rng.choice(DISCIPLINES)
        try:
            play(world(seed, kind), *options, restarts=True)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {kind}, {options}") from error
