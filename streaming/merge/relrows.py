"""The rows that a REL message makes, and what is left of them when a view is suspended (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streaming.merge.rows import Block, Row, Span
from streaming.messages import Rel, RelRun

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


def spans_of(machine: MergeMachine, rel: Rel) -> tuple[Block, list[Span]]:
    """The message's cells and rows; a view that is passed through has a row to itself."""
    shapes, through = machine.shapes["counted"], machine.through
    block, spans = Block(rel.last), []
    for first, last, views, idle in _runs(machine, rel.runs):
        shape = shapes.get((views, idle)) or machine.shape(views, idle)
        block.add(first, last, shape)
        spans.append(Span(first, last, shape))
        if not through:
            continue
        for view in sorted(through.intersection(views)):
            alone = machine.shape((view,), (view,) if view in idle else (), "passed")
            block.add(first, last, alone)
            spans.append(Span(first, last, alone))
    return block, spans


def blackened(machine: MergeMachine, row: Row, x: int, after: int) -> Iterator[Span]:
    """The row with column x black below `after`; a row that counts nothing ends with its view."""
    if x not in row.shape.views or row.last <= after:
        yield Span(row.first, row.last, row.shape)
        return
    if row.first <= after:
        yield Span(row.first, after, row.shape)
    if not row.shape.counts:
        return
    names = machine.views
    views = tuple(names[y] for y in row.shape.views if y != x and y < len(names))
    idle = tuple(view for view in views if machine.column[view] not in row.shape.busy)
    yield Span(max(row.first, after + 1), row.last, machine.shape(views, idle))


def _runs(
    machine: MergeMachine, runs: tuple[RelRun, ...]
) -> Iterator[tuple[int, int, tuple[str, ...], tuple[str, ...]]]:
    """The runs, cut at each suspended view's last good number and without the view below it."""
    suspended = machine.suspended
    if not suspended:
        for run in runs:
            yield run.first, run.last, run.views, run.idle
        return
    for run in runs:
        first = run.first
        ends = {after for after in suspended.values() if run.first <= after < run.last}
        for last in (*sorted(ends), run.last):
            black = [view for view, after in suspended.items() if after < first]
            views, idle = run.views, run.idle
            if black:
                views = tuple(view for view in views if view not in black)
                idle = tuple(view for view in idle if view not in black)
            yield first, last, views, idle
            first = last + 1
