"""The view update table (VUT) in runs: rows are transactions, columns are views (MVC 4.1).

A row of the paper's table is one transaction; here a row is a run of neighbours with the same REL,
so the table costs memory and time per run. Colours are not stored. Lists of one view arrive in
order, so a column is red from its top down to one number, `painted[x]`, and white below it:

* black: the view is not in the row's REL (or is suspended before it);
* white: the view is in REL, needs work, and the number lies below `painted[x]`;
* red: its list has come, or the cell is idle (an empty list, DESIGN 5);
* gray: the row is ready and waits for its batch; it has left the columns.

Only the first row of all its columns may be painted gray next, which is line 2 of SPA in its
stronger form ("red or white", PAPERS 1). So a row counts its `blockers`, the rows right above it in
some column, and knows the rows it blocks; neighbours share most columns, so there are few of
either. PA looks at whole columns and keeps those instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from streaming.merge.vut_rows import (
    GONE,
    UNLIMITED,
    UNPAINTED,
    Block,
    HeldList,
    RelShape,
    Row,
    Stuck,
)


class VUT:
    """The table; columns by position, views are named only by the machine.

    Args:
        width: how many columns.
        whole_columns: keep each column's rows (PA) instead of counting blockers (SPA).
    """

    def __init__(self, width: int, whole_columns: bool = False) -> None:
        self.columns: list[deque[Row]] = [deque() for _ in range(width)]
        """Per column the rows that are not gray; only with `whole_columns`."""
        self.painted: list[int] = [UNPAINTED] * width
        self.lists: list[deque[HeldList]] = [deque() for _ in range(width)]
        self.due: list[deque[Block]] = [deque() for _ in range(width)]
        """Per column the blocks in which it has a white cell."""
        self.top: list[Row | None] = [None] * width
        """Per column the row that has no blockers and waits for a list."""
        self.version = 0
        """Grows with every list; tells whether a shape's `red` still holds."""
        self.stuck: list[Stuck | None] = [None] * width
        """Per column what its first row was last found to wait for; only with `whole_columns`."""
        self.joins: set[int] = set()
        """Columns whose view has not joined yet; only with `whole_columns`."""
        self._whole_columns = whole_columns
        self._bottom: list[Row] = [GONE] * width
        """Per column its last row."""
        self._rows: list[Row] = []
        self._gray = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Allocates rows below all others, ascending."""
        self._rows += rows
        if self._whole_columns:
            for row in rows:
                for x in row.shape.views:
                    self.columns[x].append(row)
                if row.shape.joins:
                    self.joins.update(row.shape.views)
            return
        bottom = self._bottom
        for row in rows:
            shape, blockers = row.shape, 0
            if shape.joins:
                row.blockers = self._block_by_all(row)
            for x in shape.views:
                below = bottom[x].below
                bottom[x] = row
                if below is not None and (not below or below[-1] is not row):
                    below.append(row)
                    blockers += 1
            row.blockers += blockers

    def _block_by_all(self, row: Row) -> int:
        """A joining row waits for each column's last row, unless that joins itself."""
        waits = [
            above.below
            for above in dict.fromkeys(self._bottom)
            if above.below is not None and not above.shape.joins
        ]
        for below in waits:
            below.append(row)
        return len(waits)

    def add_block(self, block: Block) -> None:
        """The cells of a REL message whose rows have been added."""
        for x in block.busy_columns():
            painted = self.painted[x]
            if painted < block.first or block.first_busy(x, painted + 1) is not None:
                self.due[x].append(block)

    def paint(self, x: int, last: int) -> int | None:
        """Paints the column red down to `last`.

        Returns:
            the last number that was white until now, None when there was none.
        """
        state = None
        due = self.due[x]
        while due and (busy := due[0].last_busy(x, self.painted[x] + 1, last)) is not None:
            state = busy
            if last < due[0].last and due[0].first_busy(x, busy + 1) is not None:
                break
            due.popleft()
        self.painted[x] = last
        self.version += 1
        return state

    def hold(self, x: int, held: HeldList) -> None:
        """Keeps a list of the column, below all others."""
        self.lists[x].append(held)

    def match(self, x: int, held: HeldList, state: int | None) -> None:
        """REL has named the numbers of a list that came before it; one that paints nothing goes."""
        held.state = state
        if state is None:
            self.lists[x].remove(held)

    def forget_lists(self, x: int, limit: int) -> None:
        """Drops the column's lists of which nothing is left below `limit`."""
        lists = self.lists[x]
        while lists and lists[0].state is not None and lists[0].state <= limit:
            lists.popleft()

    def load_column(self, x: int, painted: int, lists: Iterable[HeldList]) -> None:
        """Takes over what was remembered of a column; its rows come by `add`."""
        self.painted[x] = painted
        self.lists[x] = deque(replace(held) for held in lists)

    def red(self, shape: RelShape) -> int:
        """Down to which number the shape's busy columns are all red; it never goes back."""
        if shape.version != self.version:
            shape.version = self.version
            shape.red = min(map(self.painted.__getitem__, shape.busy), default=UNLIMITED)
        return shape.red

    def first_white(self, x: int) -> int | None:
        """The smallest number whose cell is white, None when the column has none."""
        due = self.due[x]
        return due[0].first_busy(x, self.painted[x] + 1) if due else None

    def leave(self, count: int) -> None:
        """So many rows have turned gray; forgets them now and then, for a flat memory."""
        self._gray += count
        if 2 * self._gray > len(self._rows):
            self._rows = [row for row in self._rows if row.first <= row.last]
            self._gray = 0

    def rows(self) -> list[Row]:
        """The rows that are not gray, ascending."""
        return [row for row in self._rows if row.first <= row.last]

    def list_at(self, x: int, number: int) -> HeldList | None:
        """The held list of the column that covers the number."""
        lists = self.lists[x]
        at = bisect_left(lists, number, key=lambda held: held.last)
        return lists[at] if at < len(lists) and lists[at].first <= number else None

    def state(self, x: int, number: int) -> int:
        """The paper's VUT[number, x].state of a red cell: the number its list leads to."""
        held = self.list_at(x, number)
        if held is None or held.complete or held.state is None:
            return number
        return held.state

    def cell(self, x: int, number: int, shape: RelShape) -> tuple[str, int]:
        """(colour letter, state) of a cell of a row that is not gray; the state is 0 if not red."""
        if x not in shape.views:
            return "b", 0
        if x not in shape.busy:
            return "r", number
        if number > self.painted[x]:
            return "w", 0
        return "r", self.state(x, number)

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
            block.busy_cells(x, self.painted[x] + 1)
            for x, blocks in enumerate(self.due)
            for block in blocks
        )
