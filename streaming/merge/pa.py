"""The Painting Algorithm over runs (MVC 5.1, Algorithm 2): some view manager is only strong.

PA as printed shares ApplyRows across its recursion and applies rows whose own checks are not
finished (PAPERS 1). This is its meaning: the rows that must go together with row i are the closure
of {i} under (a) every earlier row of a column in which the row is not black, and (b) the row named
by `state` in each red cell; they are applied iff none of them has a white cell.

The closure takes whole tops of columns, so it is one limit per column: rows down to there. The row at
which an added view joins has every row down to its number as an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from streaming.merge.vut import VUT
from streaming.merge.vut_rows import Row, Span, Stuck, WarehouseTransaction


class FoundClosure(NamedTuple):
    """A closure without a white cell.

    Attributes:
        limits: per column, the number down to which its rows go together.
        whole: a list covers several of the rows as one.
    """

    limits: dict[int, int]
    whole: bool


class White(NamedTuple):
    """A white cell of a closure; as long as it is white, the closure's rows cannot be applied."""

    x: int
    number: int


def process_columns(vut: VUT, columns: Iterable[int]) -> list[WarehouseTransaction]:
    """Paints gray what can be painted, beginning with the first row of each column.

    Of the closures that overlap the smallest goes first, so that what can go alone goes alone.

    Returns:
        the warehouse transactions in an order in which they may be applied.
    """
    ready: list[WarehouseTransaction] = []
    waiting = set(columns)
    while waiting := {x for x in waiting if vut.columns[x]}:
        x = min(waiting, key=lambda column: (vut.columns[column][0].first, column))
        found = _closure_of_top(vut, x)
        if found is None:
            waiting.discard(x)
            continue
        top = vut.columns[x][0]
        others = [y for y in found.limits if vut.columns[y] and vut.columns[y][0] is not top]
        inner = [_closure_of_top(vut, y) for y in others]
        limits, whole = min(
            (found, *(other for other in inner if other is not None)),
            key=lambda each: (len(each.limits), sum(each.limits.values())),
        )
        spans = _paint_gray(vut, limits)
        ready.append(WarehouseTransaction(spans, whole or len(spans) > 1))
        waiting |= limits.keys() | vut.joins
    return ready


def _closure_of_top(vut: VUT, x: int) -> FoundClosure | None:
    """The closure of a column's first row, None when it has a white cell.

    That cell is remembered: until it is painted the closure has it still, because rows of a closure
    can only leave with the cells they need.
    """
    row = vut.columns[x][0]
    stuck = vut.stuck[x]
    same = stuck is not None and stuck.row is row and stuck.first == row.first
    if stuck is not None and same and vut.painted[stuck.x] < stuck.number:
        return None
    number, whole = _seed(vut, row)
    found = closure(vut, row, number) if number >= row.first else _first_white(vut, row)
    if isinstance(found, White):
        vut.stuck[x] = Stuck(row, row.first, found.x, found.number)
        return None
    return FoundClosure(found, whole)


def closure(vut: VUT, row: Row, number: int) -> dict[int, int] | White:
    """The rows that go together with `number` of `row`: per column, the number down to which.

    Each column is walked once, from its top to its limit; the row at the limit is looked at again when
    the limit grows.
    """
    limits = dict.fromkeys(row.shape.views, number)
    walked: dict[int, int] = {}
    queue = list(limits)
    while queue:
        x = queue.pop()
        column = vut.columns[x]
        at = walked.get(x, 0)
        while at < len(column) and column[at].first <= limits[x]:
            above = column[at]
            last = min(above.last, limits[x])
            if x in above.shape.busy:
                if last > vut.painted[x]:
                    return White(x, max(above.first, vut.painted[x] + 1))
                limits[x] = max(limits[x], vut.state(x, last))  # (b)
                last = min(above.last, limits[x])
                if last > vut.painted[x]:
                    return White(x, max(above.first, vut.painted[x] + 1))
            columns = _counting(vut, last) if above.shape.joins else above.shape.views
            for y in columns:  # (a)
                if limits.get(y, -1) < last:
                    limits[y] = last
                    queue.append(y)
            if above.last > limits[x]:
                break
            at += 1
        walked[x] = at
    return limits


def _first_white(vut: VUT, row: Row) -> White:
    """A white cell of the row's first number."""
    x = min(row.shape.busy, key=lambda column: vut.painted[column])
    return White(x, row.first)


def _counting(vut: VUT, number: int) -> list[int]:
    """The columns with a row down to `number`, other views that join there aside (`changes`)."""
    return [
        y
        for y, column in enumerate(vut.columns)
        if any(not row.shape.joins for row in column if row.first <= number)
    ]


def _seed(vut: VUT, row: Row) -> tuple[int, bool]:
    """(the number to start from, whether a strong list covers it).

    A row outside strong lists starts with its longest prefix without one: its numbers share every
    condition, so they stand or fall together, but each is a transaction of its own.
    """
    number = row.last
    for x in row.shape.busy:
        number = min(number, vut.painted[x])
        for held in vut.lists[x]:
            if held.complete or held.last < row.first or held.first > number:
                continue
            if held.first <= row.first:
                return row.first, True
            number = min(number, held.first - 1)
    return number, False


def _paint_gray(vut: VUT, limits: dict[int, int]) -> tuple[Span, ...]:
    spans = []
    for x, limit in limits.items():
        column = vut.columns[x]
        while column and column[0].first <= limit:
            row = column[0]
            if row.last > limit:
                spans.append(Span(row.first, limit, row.shape))
                row.first = limit + 1
                break
            spans.append(Span(row.first, row.last, row.shape))
            for y in row.shape.views:
                vut.columns[y].remove(row)
            if row.shape.joins:
                vut.joins.discard(x)
            row.first = row.last + 1
            vut.leave(1)
    return tuple(sorted(spans, key=lambda span: span.first))
