"""Compensation for many numbers in one walk equals doing it number by number (`numbered_effects`)."""

from __future__ import annotations

import random

import pytest

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.scalars.expression import Column
from streaming.viewmanagers.asking.numbered_effects import (
    Within,
    firsts,
    keys_under,
    not_yet,
    twice,
    under_ends,
    with_later,
)

OPS = NumberedBags()
SCHEMA = (Column("k", "int"), Column("a", "int"))
EVERY = (0, 1)
LAST = 12


def changes(rng: random.Random, last: int = LAST) -> Numbered:
    """A keyed relation's: a row is inserted and deleted in turn, one version of a key at a time."""
    found: Numbered = {}
    standing: dict[int, tuple[int, int]] = {k: (k, 0) for k in range(3) if rng.random() < 0.5}
    for number in range(1, last + 1):
        for key in rng.sample(range(4), rng.randrange(3)):
            old = standing.pop(key, None)
            if old is not None:
                found[number, old] = -1
            new = (key, rng.randrange(2))
            if new != old and rng.random() < 0.7:
                found[number, new] = 1
                standing[key] = new
    return found


def rows(rng: random.Random) -> Numbered:
    return {
        (rng.randint(1, LAST), (rng.randrange(4), rng.randrange(2))): 1
        for _ in range(rng.randrange(9))
    }


def first_after(changed: Numbered, row: object, number: int) -> int:
    """The sign of a row's first change after a number; 0 where there is none."""
    later = sorted((n, sign) for (n, one), sign in changed.items() if one == row and n > number)
    return later[0][1] if later else 0


def united(pieces: object) -> Numbered:
    return OPS.plus({}, *pieces)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(60))
def test_a_walk_that_halves_the_numbers_meets_what_each_number_meets(seed: int) -> None:
    rng = random.Random(seed)
    some, changed, own = rows(rng), changes(rng), rng.random() < 0.5

    def join(left: Numbered, right: Numbered) -> Numbered:
        assert all(number == 0 for number, _ in right)
        return united(
            {(n, row + other): count * times}
            for (n, row), count in left.items()
            for (_, other), times in right.items()
        )

    expected = united(
        {(n, row + other): count * times}
        for (n, row), count in some.items()
        for (m, other), times in changed.items()
        if m > n or (own and m == n)
    )
    found = with_later(OPS, some, changed, 1, LAST, join, own)
    assert united(found) == expected, seed


@pytest.mark.parametrize("seed", range(60))
def test_the_first_change_of_each_row(seed: int) -> None:
    changed = changes(random.Random(seed))
    expected = {
        (n, row): sign
        for (n, row), sign in changed.items()
        if not any(one == row and m < n for m, one in changed)
    }
    assert firsts(OPS, changed, EVERY, 1, LAST) == expected, seed


@pytest.mark.parametrize("seed", range(120))
def test_what_a_later_insertion_has_brought_in(seed: int) -> None:
    rng = random.Random(seed)
    some, changed = rows(rng), changes(rng, LAST + 4)
    within = {key: sign for key, sign in changed.items() if key[0] <= LAST}
    after = {key: sign for key, sign in changed.items() if key[0] > LAST}
    last_firsts = firsts(OPS, after, EVERY, LAST + 1, LAST + 4)
    expected = {
        (n, row): count for (n, row), count in some.items() if first_after(changed, row, n) > 0
    }
    place = Within(SCHEMA, SCHEMA, EVERY, (0,))
    found = not_yet(OPS, some, place, within, 1, LAST, last_firsts)
    assert united(found) == expected, seed


def test_rows_of_spans_stand_under_their_ends() -> None:
    some: Numbered = {
        (1, (1, 0)): 1,
        (2, (1, 0)): -1,
        (3, (2, 0)): 1,
        (5, (2, 0)): -1,
        (6, (3, 0)): 1,
    }
    spans = ((1, 2), (3, 3), (5, 6))
    assert under_ends(OPS, some, spans) == {(3, (2, 0)): 1, (6, (2, 0)): -1, (6, (3, 0)): 1}


def test_keys_that_more_than_one_number_touches() -> None:
    changed: Numbered = {(1, (1, 0)): -1, (1, (1, 1)): 1, (2, (2, 0)): 1, (4, (1, 1)): -1}
    under = keys_under(OPS, changed, SCHEMA, (0,))
    assert under == {(1, (1,)): 1, (2, (2,)): 1, (4, (1,)): 1}
    assert twice(OPS, under) == {(0, (1,)): 1}
    assert twice(OPS, under, {(9, (2,)): 1}) == {(0, (1,)): 1, (0, (2,)): 1}
