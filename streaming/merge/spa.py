"""The Simple Painting Algorithm over runs (MVC 4.2, Algorithm 1): all view managers are complete.

`process_rows` is the paper's ProcessRow. Its recursion is a queue here, and a run of rows is
painted gray prefix by prefix, because every row of a run waits for the same columns. It is prompt:
a row becomes ready only when a cell of it turns red or the row above it in a column leaves, and
both call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from streaming.merge.rows import Row, Span, WarehouseTransaction
from streaming.merge.vut import VUT


def process_rows(vut: VUT, rows: Iterable[Row]) -> list[WarehouseTransaction]:
    """Paints gray what can be painted, starting with `rows` and going on to what they set free.

    Returns:
        the ready rows in an order in which they may be applied, each number by itself.
    """
    ready: list[Span] = []
    version = vut.version
    queue = deque(rows)
    gray = 0
    while queue:
        row = queue.popleft()
        if row.blockers:  # Line 2: an earlier row is red or white in a column
            continue
        shape = row.shape
        red = shape.red if shape.version == version else vut.red(shape)
        if red < row.last:  # Line 1: a cell is white below `red`
            for x in shape.views:
                vut.top[x] = row
            if red >= row.first:
                ready.append(Span(row.first, red, shape))
                row.first = red + 1
            continue
        if row.first > row.last:
            continue
        ready.append(Span(row.first, row.last, shape))  # Lines 3 and 4
        row.first = row.last + 1
        gray += 1
        for below in row.below:  # Line 5
            below.blockers -= 1
            if not below.blockers:
                queue.append(below)
        row.below.clear()
    vut.leave(gray)  # Line 6
    return [WarehouseTransaction(tuple(ready), False)] if ready else []
