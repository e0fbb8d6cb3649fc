"""A history's table at a number is what its signed rows up to there add up to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from verified_bank import arrow

from streaming.proof.proof_engine import as_print, open_engine, print_of, stand_at
from streaming.proof.relation_history import History
from streaming.scalars.expression import Column

SCHEMA = (Column("name", "string"), Column("amount", "decimal(28,2)"))
Signed = tuple[int, int, str | None, Decimal | None]
Bag = Counter[tuple[Any, ...]]
VALUES = [None, Decimal("0.00"), Decimal("-0.01"), Decimal("1e20")]


def signed_rows(chance: random.Random, numbers: int, cuts: Sequence[int]) -> list[Signed]:
    """Rows that come and go up to three times, none below zero, some under one number twice."""
    standing: Bag = Counter()
    found: list[Signed] = []
    for number in range(numbers):
        if number in cuts:
            standing.clear()
        for _ in range(chance.choice((0, 0, 1, 2, 5))):
            row = chance.choice(("a", "b|1:c", "", None)), chance.choice(VALUES)
            change = chance.randint(-standing[row], 3)
            standing[row] += change
            if change:
                found.append((number, change, *row))
    chance.shuffle(found)
    return found


def folded(rows: Sequence[Signed], number: int, cuts: Sequence[int]) -> Bag:
    since = max((cut for cut in cuts if cut <= number), default=0)
    bag: Bag = Counter()
    for at, change, *row in rows:
        if since <= at <= number:
            bag[tuple(row)] += change
    return Counter({row: times for row, times in bag.items() if times})


def fetched(engine: duckdb.DuckDBPyConnection, query: str) -> Bag:
    return Counter(engine.execute(f"SELECT * FROM {query}").fetchall())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cuts", [(), (7,), (0, 5, 6, 19)])
def test_the_rows_at_every_number_are_the_sum_of_the_changes_since_the_last_truncation(
    seed: int, cuts: Sequence[int]
) -> None:
    rows = signed_rows(random.Random(seed), 20, cuts)
    engine = open_engine()
    history = History(engine, "h", SCHEMA, arrow(SCHEMA, rows), cuts)
    now = history.rows_now()
    for number in (*range(20), 3):
        stand_at(engine, number)
        assert fetched(engine, now) == folded(rows, number, cuts)
        bag = engine.execute(f"SELECT * FROM {history.bag(number)}").fetchall()
        assert {row[:-1]: row[-1] for row in bag} == folded(rows, number, cuts)


@pytest.mark.parametrize("seed", range(5))
def test_the_running_print_is_the_print_of_the_rows_and_no_other_number_s_rows(seed: int) -> None:
    rows = signed_rows(random.Random(seed), 30, ())
    engine = open_engine()
    history = History(engine, "h", SCHEMA, arrow(SCHEMA, rows))
    prints = history.prints(range(30))
    bags = [folded(rows, number, ()) for number in range(30)]
    for number, print_ in prints.items():
        query = print_of(history.bag(number), SCHEMA, "_n")
        assert as_print(engine.execute(query).fetchone() or ()) == print_
        same = {n for n in prints if prints[n] == print_}
        assert same == {n for n, bag in enumerate(bags) if bag == bags[number]}


def test_numbers_ahead_are_added_and_nothing_in_between() -> None:
    rows: list[Signed] = [
        (0, 2, "a", None),
        (1, -1, "a", None),
        (2, 1, "b", None),
        (3, 3, "c", None),
    ]
    engine = open_engine()
    history = History(engine, "h", SCHEMA, arrow(SCHEMA, rows))
    assert fetched(engine, history.rows_ahead(0, [(2, 2)])) == {("a", None): 2, ("b", None): 1}
    assert fetched(engine, history.rows_ahead(1, [(3, 4)])) == {("a", None): 1, ("c", None): 3}


def test_changes_are_seen_between_two_numbers_and_truncations_are_changes() -> None:
    history = History(open_engine(), "h", SCHEMA, arrow(SCHEMA, [(2, 1, "a", None)]), [5])
    assert [history.changes(n - 1, n) for n in range(7)] == [n in (2, 5) for n in range(7)]
    assert not history.changes(2, 4)
