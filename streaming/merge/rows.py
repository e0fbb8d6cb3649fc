"""What the view update table is made of: rows in runs, their REL sets, and the cells that need lists.

Most rows stand for the transactions they count. Two kinds do not count any, because another row does:
the row at which an added view joins (`changes`), and the rows of a view that is passed through
(MVC 6.3), which wait for nothing but their own view's lists. Guarded rows
count, and have a cell in a column of their own, so that none of them overtakes another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streaming.messages import Rows

Kind = Literal["counted", "guarded", "passed", "joining"]
RelSet = tuple[tuple[str, ...], tuple[str, ...]]
"""(views, idle views)."""

UNPAINTED = -1
"""`painted` of a column without any list; numbers start at 0."""
UNLIMITED = 2**63 - 1
"""How far down a row without busy cells is red."""


class Shape:
    """A REL set as column positions; equal sets of one machine share one object.

    Attributes:
        views: all columns of the row that are not black.
        busy: those of `views` that need a list; the others are idle.
        counts: the row's numbers become visible with it.
        joins: the row at which an added view joins; every row down to its number goes before it.
        names: the views' names, for people.
        red: down to where its busy columns are all red, when `version` is the table's.
    """

    __slots__ = ("busy", "counts", "joins", "kind", "names", "red", "version", "views")

    def __init__(
        self,
        views: tuple[int, ...],
        busy: tuple[int, ...],
        kind: Kind = "counted",
        names: tuple[str, ...] = (),
    ) -> None:
        self.views = views
        self.busy = busy
        self.kind = kind
        self.names = names
        self.counts = kind in ("counted", "guarded")
        self.joins = kind == "joining"
        self.red = UNPAINTED
        self.version = -1


def touched_columns(shapes: Iterable[Shape], width: int) -> set[int]:
    """The columns of views that the shapes touch, of a table with `width` views."""
    return {x for shape in shapes for x in shape.views if x < width}


class Row:
    """The transactions [first..last] of one shape that are not gray yet.

    Attributes:
        blockers: rows right above it in its columns that are not gray.
        below: rows that it blocks.
    """

    __slots__ = ("below", "blockers", "first", "last", "shape")

    def __init__(self, first: int, last: int, shape: Shape) -> None:
        self.first = first
        self.last = last
        self.shape = shape
        self.blockers = 0
        self.below: list[Row] = []


class Span(NamedTuple):
    """The rows [first..last] of one shape."""

    first: int
    last: int
    shape: Shape


class Stuck(NamedTuple):
    """Why a column's first row cannot be applied: its closure has the white cell (number, x).

    Attributes:
        first: the row's first number then.
    """

    row: Row
    first: int
    x: int
    number: int


class Block:
    """The busy cells that one REL message brought, found again by number and column.

    Attributes:
        last: the message's last number, a cut.
        first: its first number; 0 when rows were put together anew.
    """

    def __init__(self, last: int, first: int = 0) -> None:
        self.first = first
        self.last = last
        self.shapes: dict[Shape, tuple[list[int], list[int]]] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """Rows, below all others."""
        shapes = self.shapes
        for first, last, shape in spans:
            runs = shapes.get(shape)
            if runs is None:
                shapes[shape] = ([first], [last])
            else:
                runs[0].append(first)
                runs[1].append(last)

    def first_busy(self, x: int, number: int) -> int | None:
        """The first busy cell of the column at or below `number`."""
        found = None
        for shape, (firsts, lasts) in self.shapes.items():
            if x in shape.busy and (at := bisect_left(lasts, number)) < len(lasts):
                cell = max(firsts[at], number)
                found = cell if found is None or cell < found else found
        return found

    def last_busy(self, x: int, first: int, last: int) -> int | None:
        """The last busy cell of the column in [first..last]."""
        found = None
        for shape, (firsts, lasts) in self.shapes.items():
            if x in shape.busy and (at := bisect_right(firsts, last) - 1) >= 0:
                cell = min(lasts[at], last)
                if cell >= first and (found is None or cell > found):
                    found = cell
        return found

    def busy_cells(self, x: int, number: int) -> int:
        """How many busy cells of the column lie at or below `number`."""
        return sum(
            max(0, last - max(first, number) + 1)
            for shape, runs in self.shapes.items()
            if x in shape.busy
            for first, last in zip(*runs, strict=True)
        )


class WarehouseTransaction(NamedTuple):
    """WT: rows that became ready (MVC 4.2 line 4, PA line 7).

    Attributes:
        spans: the rows, in the order in which they may be applied.
        together: all spans go in one warehouse transaction (some list covers several of their rows
            as one); otherwise each number is a warehouse transaction of its own.
    """

    spans: tuple[Span, ...]
    together: bool


@dataclass(slots=True)
class HeldList:
    """An action list that is kept until all of its rows are in a batch.

    Attributes:
        id: names it in parts, "view[first..last]".
        state: the last number whose cell it paints (the paper's `state`); None before its REL.
    """

    id: str
    first: int
    last: int
    complete: bool
    delta: Rows | None
    state: int | None = None
