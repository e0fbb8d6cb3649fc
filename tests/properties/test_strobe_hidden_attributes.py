"""The Strobe family on views that do not show what they join and select on, against recomputation.

A small driver of its own, because every view here is made by `with_keys`: transactions of several
relations at three sources, one channel of updates, answers that come after the updates they have seen
(FIFO) and otherwise at any time.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from streaming.algebra.bag import Bag, bag
from streaming.algebra.tree import Tree
from streaming.algebra.view_keys import with_keys
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.strobe import Strobe
from tests.askedsources import Change, tables, view
from tests.strobe_as_printed import AsPrinted, ConditionOnAll
from tests.strobeworld import Make, Played, one_message

R = tables(x__r="a b", y__s="k b c", z__t="c d")
VIEWS = [
    with_keys(view(sql, R), R)[0]
    for sql in (
        "SELECT t.d FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.d",
        "SELECT r.a FROM x.r r JOIN y.s s ON r.b = s.b WHERE s.c > 0",
        "SELECT s.k, r.b + s.c AS n FROM x.r r JOIN y.s s ON r.b < s.b",
        "SELECT r.a FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.c AND r.a <> t.d",
    )
]
SHOWN = [
    view(
        "SELECT r.a, r.b, s.k, s.c, t.d FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.c",
        R,
    )
]
"""Every attribute is shown, or equals one that is."""
HISTORIES = 250


def changed(rng: random.Random, rows: dict[str, Bag], relations: tuple[str, ...]) -> list[Change]:
    """A transaction's changes; keys stay unique, and an update may change the key."""
    made: list[Change] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(relations)
        width, now = len(R[name].schema), dict(rows[name])
        for relation, sign, row in made:
            if relation == name:
                now = _with(now, row, sign)
        new = tuple(rng.randrange(3) for _ in range(width))
        old = rng.choice([row for row in now if row[0] == new[0]] or list(now) or [None])
        if old is not None:
            made.append((name, -1, old))
        if old is None or rng.random() < 0.6:
            if any(row[0] == new[0] for row in now if row != old):
                continue
            made.append((name, 1, new))
    return made


def _with(rows: Bag, row: tuple[Any, ...], sign: int) -> Bag:
    total = {**rows, row: rows.get(row, 0) + sign}
    return {each: count for each, count in total.items() if count}


def played(make: Make, seed: int, views: list[Tree] = VIEWS) -> Played:
    """A whole history; the manager has answered everything at its end."""
    rng = random.Random(seed)
    tree = views[seed % len(views)]
    initial = {
        name: bag((k, *(rng.randrange(3) for _ in relation.schema[1:])) for k in range(3) if k)
        for name, relation in R.items()
    }
    world = Played(make, tree, R, initial)
    names = tuple(world.sources.rows)
    waiting: list[Any] = []
    for _ in range(6):
        waiting.append(world.sources.commit(*changed(rng, world.sources.rows, names)))
        while rng.random() < 0.6:
            _step(rng, world, waiting)
    while waiting or world.statements:
        _step(rng, world, waiting)
    return world


def _step(rng: random.Random, world: Played, waiting: list[Any]) -> None:
    """An answer evaluated, behind all updates on their way; or the next messages delivered."""
    if world.statements and rng.random() < 0.5:
        waiting.append(world.evaluate(rng.choice(world.statements).source))
    elif waiting:
        first = waiting.pop(0)
        if rng.random() < 0.3 and waiting and _updates(first) and _updates(waiting[0]):
            first = one_message(world.operators, first, waiting.pop(0))
        world.deliver(first)


def _updates(message: Any) -> bool:
    return hasattr(message, "runs")


def right(world: Played, complete: bool) -> bool:
    """Whether every list brings MV to the state after its last number, and all numbers are covered."""
    mv = dict(world.sources.states[0])
    covered = 0
    for first, last, _, rows in world.sent:
        if first != covered + 1 or (complete and last != first):
            return False
        for row, count in rows.items():
            mv = _with(mv, row, count)
        if mv != world.sources.states[last]:
            return False
        covered = last
    return covered == world.sources.number


HELD = {
    "strobe": (Strobe, False),
    "strobe without a gate": (partial(Strobe, gate=False), False),
    "strobe from the view": (partial(Strobe, from_view=True), False),
    "c_strobe": (CStrobe, True),
    "c_strobe ungrouped": (partial(CStrobe, grouped=False), True),
    "c_strobe from the view": (partial(CStrobe, from_view=True), True),
    "c_strobe in blocks": (partial(CStrobe, period=2), False),
}


@pytest.mark.parametrize("name", HELD)
def test_the_level_is_held_whatever_the_view_hides(name: str) -> None:
    make, complete = HELD[name]
    for seed in range(HISTORIES):
        world = played(make, seed)
        assert right(world, complete), f"seed {seed}: {world.sent}, {world.sources.states}"


@pytest.mark.parametrize("make", [AsPrinted, ConditionOnAll])
def test_line_16_on_projected_attributes_fails_on_them(make: Make) -> None:
    assert not all(right(played(make, seed), True) for seed in range(3000))


@pytest.mark.parametrize("make", [AsPrinted, CStrobe])
def test_line_16_as_printed_is_right_where_every_attribute_is_shown(make: Make) -> None:
    for seed in range(HISTORIES):
        world = played(make, seed, SHOWN)
        assert right(world, True), f"seed {seed}: {world.sent}, {world.sources.states}"
