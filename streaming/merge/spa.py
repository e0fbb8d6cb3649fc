"""The Simple Painting Algorithm over runs (MVC 4.2, Algorithm 1): all view managers are complete.

`process_rows` is the paper's ProcessRow. Its recursion is a queue here, and a run of rows is
painted gray prefix by prefix, because every row of a run waits for the same columns. It is prompt:
a row becomes ready only when a cell of it turns red or the row above it in a column leaves, and
both call it.
"""

from __future__ import annotations

from collections.abc import Iterable

from streaming.merge.vut import VUT
from streaming.merge.vut_rows import Row, Span, WarehouseTransaction


def process_rows(vut: VUT, rows: Iterable[Row]) -> list[WarehouseTransaction]:
    """Paints gray what can be painted, starting with `rows` and going on to what they set free.

    Returns:
        the ready rows in an order in which they may be applied, each number by itself.
    """
    ready: list[Span] = []
    gray = 0
    # Line 2 fails for the others: an earlier row is red or white in a column.
    free = [row for row in rows if not row.blockers and row.below is not None]
    for row in free:  # grows
        shape, last = row.shape, row.last
        if shape.red < last and (red := vut.red(shape)) < last:  # Line 1: white cells below `red`
            for x in shape.views:
                vut.top[x] = row
            if red >= row.first:
                ready.append(Span(row.first, red, shape))
                row.first = red + 1
            continue
        ready.append(Span(row.first, last, shape))  # Lines 3 and 4
        row.first = last + 1
        gray += 1
        below, row.below = row.below or (), None
        for other in below:  # Line 5
            other.blockers -= 1
            if not other.blockers:
                free.append(other)
    vut.leave(gray)  # Line 6
    return [WarehouseTransaction(tuple(ready), False)] if ready else []
