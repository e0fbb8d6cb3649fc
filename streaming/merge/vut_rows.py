"""What the view update table is made of: rows in runs, their REL sets, and the cells that need lists.

Most rows stand for the transactions they count. Two kinds do not count any, because another row does:
the row at which an added view joins (`changes`), and the rows of a view that is passed through
(MVC 6.3), which wait for nothing but their own view's lists. Guarded rows
count, and have a cell in a column of their own, the guard, so that none of them overtakes another.
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

GUARD = "(guard)"
"""The guard's column among names of views."""
UNPAINTED = -1
"""`painted` of a column without any list; numbers start at 0."""
UNLIMITED = 2**63 - 1
"""How far down a row without busy cells is red."""


class RelShape:
    """A REL set as column positions; equal sets of one machine share one object.

    Attributes:
        views: all columns of the row that are not black.
        busy: those of `views` that need a list; the others are idle.
        counts: the row's numbers become visible with it.
        joins: the row at which an added view joins; every row down to its number goes before it.
        lane: "" when it counts, else the view to whose rows it belongs; rows of a lane do not overlap.
        names: the views' names, for people.
        red: down to where its busy columns are all red, when `version` is the table's.
    """

    __slots__ = ("busy", "counts", "joins", "kind", "lane", "names", "red", "version", "views")

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
        self.lane = "" if self.counts else "".join(names[:1])
        self.red = UNPAINTED
        self.version = -1


def touched_columns(shapes: Iterable[RelShape]) -> set[int]:
    """The columns that the shapes touch, the guard's included."""
    return {x for shape in shapes for x in shape.views}


class Row:
    """The transactions [first..last] of one shape that are not gray yet.

    Attributes:
        blockers: rows right above it in its columns that are not gray.
        below: rows that it blocks; None once it is gray and blocks nothing any more.
    """

    __slots__ = ("below", "blockers", "first", "last", "shape")

    def __init__(self, first: int, last: int, shape: RelShape) -> None:
        self.first = first
        self.last = last
        self.shape = shape
        self.blockers = 0
        self.below: list[Row] | None = []


GONE = Row(0, -1, RelShape((), ()))
"""A row that blocks nothing, for where there is none."""
GONE.below = None


class Span(NamedTuple):
    """The rows [first..last] of one shape."""

    first: int
    last: int
    shape: RelShape


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
    """Cells that one REL message brought, rows in order: busy ones are found by number and column.

    All rows are of one lane, so the first and the last numbers are sorted, both.

    A search begins at its number and looks at one row after the other. As a column is painted downwards,
    all searches of a column together look at each row a few times at most.

    Attributes:
        last: the message's last number, a cut.
        first: its first number; 0 when rows were put together anew.
    """

    __slots__ = ("_firsts", "_lasts", "_shapes", "first", "last")

    def __init__(self, last: int, first: int = 0) -> None:
        self.first = first
        self.last = last
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._shapes: list[RelShape] = []

    def add(self, rows: Iterable[Row]) -> None:
        """Rows as they come, below all others."""
        self._firsts += [row.first for row in rows]
        self._lasts += [row.last for row in rows]
        self._shapes += [row.shape for row in rows]

    def busy_columns(self) -> set[int]:
        """The columns with a busy cell."""
        return {x for shape in set(self._shapes) for x in shape.busy}

    def first_busy(self, x: int, number: int) -> int | None:
        """The first busy cell of the column at or below `number`."""
        for at in range(bisect_left(self._lasts, number), len(self._lasts)):
            if x in self._shapes[at].busy:
                return max(self._firsts[at], number)
        return None

    def last_busy(self, x: int, first: int, last: int) -> int | None:
        """The last busy cell of the column in [first..last]."""
        at = bisect_right(self._firsts, last) if first <= last else 0
        while at and self._lasts[at - 1] >= first:
            at -= 1
            if x in self._shapes[at].busy:
                return min(self._lasts[at], last)
        return None

    def busy_cells(self, x: int, number: int) -> int:
        """How many busy cells of the column lie at or below `number`."""
        return sum(
            max(0, last - max(first, number) + 1)
            for first, last, shape in zip(self._firsts, self._lasts, self._shapes, strict=True)
            if x in shape.busy
        )


def in_blocks(rows: Iterable[Row], last: int, first: int = 0) -> dict[str, Block]:
    """Rows of one cut, `last`, as a block for each lane."""
    lanes: dict[str, list[Row]] = {}
    for row in rows:
        lanes.setdefault(row.shape.lane, []).append(row)
    blocks = {}
    for lane, inside in lanes.items():
        blocks[lane] = Block(last, first)
        blocks[lane].add(inside)
    return blocks


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
