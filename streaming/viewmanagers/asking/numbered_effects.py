"""Rows under their numbers, and what later numbers did: compensation for many numbers at once.

Managers that ask work on several numbers together: one query for all of them, each row under the number
it belongs to (DESIGN 4). What the papers do to the answer for U_i with the updates that came after U_i
is then done for every i of the batch in one walk that halves the numbers: rows of the left half meet
the changes of the right half all at once, and each half goes on by itself. A batch of w numbers costs
log w passes over its rows instead of w.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from streaming.algebra.operators import Operators, Positions
from streaming.algebra.psj import LEFT
from streaming.algebra.tree import Project, Scan, Tree
from streaming.scalars.expression import Col, Schema

V = TypeVar("V")

Joining = Callable[[V, V], V]
"""Joins rows with changes that are all under number 0, so that the rows' numbers stay."""


def with_later(
    operators: Operators[V],
    rows: V,
    changes: V,
    first: int,
    last: int,
    join: Joining[V],
    own: bool = False,
) -> Iterator[V]:
    """The joins of the rows under each number with the changes under all greater ones, in pieces.

    Args:
        first, last: the numbers of both lie between.
        own: with the changes under the number itself, too.
    """
    ops = operators
    if not ops.size(rows) or not ops.size(changes):
        return
    if first == last:
        if own:
            yield join(rows, ops.renumbered(changes, 0))
        return
    middle = (first + last) // 2
    early, late = ops.between(rows, first, middle), ops.between(changes, middle + 1, last)
    if ops.size(early) and ops.size(late):
        yield join(early, ops.renumbered(late, 0))
    earlier = ops.between(changes, first, middle)
    yield from with_later(ops, early, earlier, first, middle, join, own)
    later = ops.between(rows, middle + 1, last)
    yield from with_later(ops, later, late, middle + 1, last, join, own)


def firsts(operators: Operators[V], changes: V, every: Positions, first: int, last: int) -> V:
    """For each row the first of its changes; the relation is keyed, so a row has their signs in turn.

    Args:
        every: all columns.
    """
    ops = operators
    back = ops.matching(ops.inserted(changes), every, ops.deleted(changes), every)
    if not ops.size(back):
        return changes
    often = ops.matching(changes, every, back, every)
    middle = (first + last) // 2
    early = firsts(ops, ops.between(often, first, middle), every, first, middle)
    late = firsts(ops, ops.between(often, middle + 1, last), every, middle + 1, last)
    return ops.plus(ops.minus(changes, often), early, _unless(ops, late, early, every))


@dataclass(frozen=True)
class Within:
    """Where rows hold a leaf's row.

    Attributes:
        rows, leaf: the schemas.
        at: the rows' columns that are the leaf's columns, in order.
        key: the leaf's key columns.
    """

    rows: Schema
    leaf: Schema
    at: Positions
    key: Positions


def not_yet(
    operators: Operators[V],
    rows: V,
    within: Within,
    changes: V,
    first: int,
    last: int,
    after: V,
) -> Iterator[V]:
    """The rows under each number that a later insertion has brought in, in pieces.

    They are made with a row of the leaf whose first change under a greater number is an insertion: it
    did not stand in the state just after their number.

    Args:
        changes: of the leaf, under the numbers [first..last].
        after: for each of the leaf's rows its first change after `last`.
    """
    ops, key = operators, within.key
    key_at, every = tuple(within.at[column] for column in key), tuple(range(len(key)))
    often = twice(
        ops,
        keys_under(ops, rows, within.rows, key_at),
        keys_under(ops, changes, within.leaf, key),
        keys_under(ops, after, within.leaf, key),
    )
    rows = ops.matching(rows, key_at, often, every)
    changes, after = (ops.matching(one, key, often, every) for one in (changes, after))
    yield from _not_yet(ops, rows, within.at, changes, first, last, after)


def _not_yet(
    operators: Operators[V],
    rows: V,
    at: Positions,
    changes: V,
    first: int,
    last: int,
    after: V,
) -> Iterator[V]:
    ops, leaf = operators, tuple(range(len(at)))
    touched = ops.plus(ops.inserted(changes), ops.inserted(after))
    rows = ops.matching(rows, at, touched, leaf)
    if not ops.size(rows):
        return
    after = ops.matching(after, leaf, rows, at)
    if first == last:
        yield ops.matching(rows, at, ops.inserted(after), leaf)
        return
    changes = ops.matching(changes, leaf, rows, at)
    middle = (first + last) // 2
    late = ops.between(changes, middle + 1, last)
    later = ops.between(rows, middle + 1, last)
    yield from _not_yet(ops, later, at, late, middle + 1, last, after)
    following = firsts(ops, late, leaf, middle + 1, last)
    after = ops.plus(following, _unless(ops, after, following, leaf))
    early, earlier = ops.between(changes, first, middle), ops.between(rows, first, middle)
    yield from _not_yet(ops, earlier, at, early, first, middle, after)


def _unless(operators: Operators[V], changes: V, others: V, every: Positions) -> V:
    """The changes of rows that the others do not change."""
    return operators.minus(changes, operators.matching(changes, every, others, every))


def keys_under(operators: Operators[V], rows: V, schema: Schema, at: Positions) -> V:
    """The key values of rows, inserted and deleted ones alike, once under each number.

    Args:
        schema: the rows'.
        at: the key's columns.
    """
    ops, gone = operators, operators.deleted(rows)
    alike = ops.minus(ops.minus(rows, gone), gone)
    return ops.distinct(ops.evaluate(_columns(schema, at), {LEFT: alike}))


def twice(operators: Operators[V], *rows: V) -> V:
    """The rows that stand in all of them together under more than one number; under 0.

    What concerns one number alone has nothing after it, and that is nearly everything: the walks above
    are for the rest.
    """
    ops = operators
    seen = ops.renumbered(ops.distinct(ops.plus(*rows)), 0)
    return ops.inserted(ops.minus(seen, ops.distinct(seen)))


@lru_cache(maxsize=1024)
def _columns(schema: Schema, at: Positions) -> Tree:
    columns = tuple(schema[i] for i in at)
    return Project(
        Scan(LEFT, schema), tuple(Col(i, c.type) for i, c in zip(at, columns, strict=True)), columns
    )


def under_ends(operators: Operators[V], rows: V, spans: tuple[tuple[int, int], ...]) -> V:
    """The rows of each span of numbers, net, under its last number; the spans ascend."""
    if len(spans) == 1:
        first, last = spans[0]
        return operators.renumbered(operators.between(rows, first, last), last)
    middle = len(spans) // 2
    halves = []
    for half in (spans[:middle], spans[middle:]):
        part = operators.between(rows, half[0][0], half[-1][1])
        if operators.size(part):
            halves.append(under_ends(operators, part, half))
    return operators.plus(*halves) if halves else operators.minus(rows, rows)
