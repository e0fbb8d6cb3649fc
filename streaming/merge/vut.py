"""The view update table (VUT) in runs: rows are transactions, columns are views (MVC 4.1).

A row of the paper's table is one transaction; here a row is a run of neighbours with the same REL, so
the table costs memory and time per run. Colours are not stored. Lists of one view arrive in order, so
a column is red from its top down to one number, `painted[x]`, and white below it:

* black: the view is not in the row's REL (or is suspended before it);
* white: the view is in REL, needs work, and the number lies below `painted[x]`;
* red: its list has come, or the cell is idle (an empty list, DESIGN 5);
* gray: the row is ready and waits for its batch; it has left the columns.

A column holds only rows that are not gray, in order: its first row is the only one that may be
painted gray next, which is line 2 of SPA in its stronger form ("red or white", PAPERS 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from streaming.messages import Rows

UNPAINTED = -1
"""`painted` of a column without any list; numbers start at 0."""


class Shape:
    """A REL set as column positions; equal sets of one machine share one object.

    Attributes:
        views: all columns of the row that are not black.
        busy: those of `views` that need a list; the others are idle.
    """

    __slots__ = ("busy", "views")

    def __init__(self, views: tuple[int, ...], busy: tuple[int, ...]) -> None:
        self.views = views
        self.busy = busy


class Row:
    """The transactions [first..last] of one shape that are not gray yet.

    Attributes:
        heads: in how many of its columns it is the first row.
    """

    __slots__ = ("first", "heads", "last", "shape")

    def __init__(self, first: int, last: int, shape: Shape) -> None:
        self.first = first
        self.last = last
        self.shape = shape
        self.heads = 0


class Span(NamedTuple):
    """The rows [first..last] of one shape."""

    first: int
    last: int
    shape: Shape


class WarehouseTransaction(NamedTuple):
    """WT: rows that are ready, ascending (MVC 4.2 line 4, PA line 7).

    Attributes:
        spans: the rows.
        together: all spans go in one warehouse transaction (some list covers several of their rows
            as one); otherwise each number is a warehouse transaction of its own, in this order.
    """

    spans: tuple[Span, ...]
    together: bool


@dataclass(slots=True)
class HeldList:
    """An action list that is kept until all of its rows are in a batch.

    Attributes:
        id: names it in parts, "view[first..last]".
        state: the last number whose cell it paints (the paper's `state`); None until its REL is here.
    """

    id: str
    first: int
    last: int
    complete: bool
    delta: Rows | None
    state: int | None = None


class VUT:
    """Columns by position; views are named only by the machine."""

    def __init__(self, width: int) -> None:
        self.columns: list[deque[Row]] = [deque() for _ in range(width)]
        self.white: list[deque[Row]] = [deque() for _ in range(width)]
        """Per column the rows that have a white cell in it."""
        self.painted: list[int] = [UNPAINTED] * width
        self.lists: list[deque[HeldList]] = [deque() for _ in range(width)]

    def add(self, first: int, last: int, shape: Shape) -> Row:
        """Allocates the row below all others (`first` is larger than every number in the table)."""
        row = Row(first, last, shape)
        columns, white, painted = self.columns, self.white, self.painted
        heads = 0
        for x in shape.views:
            column = columns[x]
            if not column:
                heads += 1
            column.append(row)
        row.heads = heads
        for x in shape.busy:
            if painted[x] < last:
                white[x].append(row)
        return row

    def paint(self, x: int, last: int) -> int | None:
        """Paints the column red down to `last`.

        Returns:
            the last number that was white until now, None when there was none.
        """
        state = None
        white = self.white[x]
        while white and white[0].first <= last:
            row = white[0]
            state = min(row.last, last)
            if row.last > last:
                break
            white.popleft()
        self.painted[x] = last
        return state

    def first_white(self, x: int) -> int | None:
        """The smallest number whose cell is white, None when the column has none."""
        white = self.white[x]
        return max(white[0].first, self.painted[x] + 1) if white else None

    def pop(self, row: Row) -> list[Row]:
        """Takes a row off the top of all its columns.

        Returns:
            the rows that are now the first of every column they stand in.
        """
        columns = self.columns
        freed = []
        for x in row.shape.views:
            column = columns[x]
            column.popleft()
            if column:
                below = column[0]
                below.heads += 1
                if below.heads == len(below.shape.views):
                    freed.append(below)
        row.first = row.last + 1
        return freed

    def rows(self) -> list[Row]:
        """The rows that are not gray, ascending."""
        unique = {id(row): row for column in self.columns for row in column}
        return sorted(unique.values(), key=lambda row: row.first)

    def clear_rows(self) -> None:
        """Empties the columns; lists and `painted` stay."""
        for column in (*self.columns, *self.white):
            column.clear()

    def list_at(self, x: int, number: int) -> HeldList | None:
        """The held list of the column that covers the number."""
        for held in self.lists[x]:
            if held.first <= number <= held.last:
                return held
        return None

    def cell(self, x: int, number: int, shape: Shape) -> tuple[str, int]:
        """(colour letter, state) of a cell of a row that is not gray; state 0 as in the paper's PA."""
        if x not in shape.views:
            return "b", 0
        if x not in shape.busy:
            return "r", number
        if number > self.painted[x]:
            return "w", 0
        held = self.list_at(x, number)
        whole = held is not None and not held.complete and held.state is not None
        return "r", held.state if whole and held and held.state else number

    def bands(self, row: Row) -> Iterator[tuple[int, int]]:
        """The row cut into the longest runs in which every column has one colour."""
        ends = {self.painted[x] for x in row.shape.busy}
        ends |= {held.last for x in row.shape.busy for held in self.lists[x]}
        first = row.first
        for last in sorted(end for end in ends if row.first <= end < row.last):
            yield first, last
            first = last + 1
        yield first, row.last

    def white_cells(self) -> int:
        """How many cells are white, counted by transaction."""
        return sum(
            row.last - max(row.first, self.painted[x] + 1) + 1
            for x, column in enumerate(self.white)
            for row in column
        )


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint ranges, ascending, with neighbours joined."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and result[-1][1] + 1 >= first:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result
