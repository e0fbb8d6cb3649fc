"""The VUT as the paper prints it: for tests, the console and `fresco status`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streaming.merge.vut import VUT
from streaming.merge.vut_rows import Span, WarehouseTransaction


class TableRow(NamedTuple):
    """Transactions [first..last] whose cells are alike.

    Attributes:
        colours: a letter per view in the columns' order: w, r, g or b.
        states: per view the number its list brings it to, 0 when there is no list (the paper's PA).
        lists: WT_i, the ids of the lists received for these rows.
    """

    first: int
    last: int
    colours: str
    states: tuple[int, ...]
    lists: tuple[str, ...]


def read_table(vut: VUT, queued: Iterable[WarehouseTransaction], width: int) -> list[TableRow]:
    """All rows that are not in a batch yet, ascending.

    Args:
        queued: what is ready: gray.
        width: how many columns are views'.
    """
    columns = range(width)
    rows = []
    for transaction in queued:
        for first, last, shape in transaction.spans:
            colours = "".join("g" if x in shape.views else "b" for x in columns)
            states = tuple(vut.state(x, last) if x in shape.views else 0 for x in columns)
            rows.append(TableRow(first, last, colours, states, ()))
    for row in vut.rows():
        for first, last in vut.bands(row):
            cells = [vut.cell(x, last, row.shape) for x in columns]
            held = [vut.list_at(x, last) for x in row.shape.busy if last <= vut.painted[x]]
            rows.append(
                TableRow(
                    first,
                    last,
                    "".join(colour for colour, _ in cells),
                    tuple(state for _, state in cells),
                    tuple(entry.id for entry in held if entry is not None),
                )
            )
    return sorted(rows)


def paint_rows(views: Sequence[str], rows: Sequence[TableRow]) -> str:
    """The rows of a table with these columns as text."""
    lines = [f"{'':>12}  " + " ".join(views)]
    for row in rows:
        numbers = f"{row.first}" if row.first == row.last else f"{row.first}..{row.last}"
        cells = " ".join(
            letter.center(len(view)) for letter, view in zip(row.colours, views, strict=True)
        )
        lines.append(f"{numbers:>12}  {cells}  {{{', '.join(row.lists)}}}")
    return "\n".join(line.rstrip() for line in lines)


def cells_by_colour(vut: VUT, queued: Iterable[WarehouseTransaction], width: int) -> dict[str, int]:
    """Cells of the table by colour, counted by transaction; a joining view's row is one."""
    ready = [span for transaction in queued for span in transaction.spans]
    waiting = [Span(row.first, row.last, row.shape) for row in vut.rows()]
    gray, coloured = _cells(ready, width), _cells(waiting, width)
    white = vut.white_cells()
    counted = [span for span in (*ready, *waiting) if span.shape.counts]
    total = width * sum(span.last - span.first + 1 for span in counted)
    return {
        "white": white,
        "red": coloured - white,
        "gray": gray,
        "black": max(0, total - coloured - gray),
    }


def _cells(spans: Sequence[Span], width: int) -> int:
    """How many cells of the rows are not black."""
    return sum(
        (last - first + 1) * len([x for x in shape.views if x < width])
        for first, last, shape in spans
    )
