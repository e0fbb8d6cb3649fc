"""The Simple Painting Algorithm over runs (MVC 4.2, Algorithm 1): all view managers are complete.

`process_rows` is the paper's ProcessRow. Its recursion is a queue here, and a run of rows is painted
gray prefix by prefix, because every row of a run waits for the same columns. It is prompt: a row
becomes ready only when a cell of it turns red or the row above it in a column leaves, and both call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from streaming.merge.vut import VUT, Row, Span, WarehouseTransaction


def process_rows(vut: VUT, rows: Iterable[Row]) -> list[WarehouseTransaction]:
    """Paints gray what can be painted, starting with `rows` and going on to what they set free.

    Returns:
        the warehouse transactions in an order in which they may be applied.
    """
    ready: list[WarehouseTransaction] = []
    painted = vut.painted
    queue = deque(rows)
    while queue:
        row = queue.popleft()
        shape = row.shape
        if row.heads < len(shape.views):  # Line 2: an earlier row is red or white in a column
            continue
        red = row.last
        for x in shape.busy:  # Line 1: down to where no cell is white
            if painted[x] < red:
                red = painted[x]
        if red < row.first:
            continue
        ready.append(WarehouseTransaction((Span(row.first, red, shape),), False))  # Lines 3 and 4
        if red < row.last:
            row.first = red + 1
        else:
            queue.extend(vut.pop(row))  # Lines 5 and 6
    return ready
