"""The rows that a REL message makes, and what is left of them when a view is suspended (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streaming.merge.rows import Block, Kind, Row, Span
from streaming.messages import Rel, RelRun

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


def spans_of(machine: MergeMachine, rel: Rel) -> tuple[Block, list[Span]]:
    """The message's cells and rows; a view that is passed through has a row to itself."""
    through = machine.through
    block, spans = Block(rel.last, rel.first), []
    for run in _cut(machine.suspended, rel.runs) if machine.suspended else rel.runs:
        views, idle = run.views, run.idle
        kind: Kind = "guarded" if run.guarded else "counted"
        shape = machine.shapes[kind].get((views, idle)) or machine.shape(views, idle, kind)
        spans.append(Span(run.first, run.last, shape))
        for view in sorted(through.intersection(views)) if through else ():
            alone = machine.shape((view,), (view,) if view in idle else (), "passed")
            spans.append(Span(run.first, run.last, alone))
    block.add(spans)
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
    yield Span(max(row.first, after + 1), row.last, machine.shape(views, idle, row.shape.kind))


def _cut(suspended: Mapping[str, int], runs: tuple[RelRun, ...]) -> Iterator[RelRun]:
    """The runs, cut at each suspended view's last good number and without the view below it."""
    for run in runs:
        first = run.first
        ends = {after for after in suspended.values() if run.first <= after < run.last}
        for last in (*sorted(ends), run.last):
            black = [view for view, after in suspended.items() if after < first]
            yield RelRun.model_construct(
                first=first,
                last=last,
                views=tuple(view for view in run.views if view not in black),
                idle=tuple(view for view in run.idle if view not in black),
                guarded=run.guarded,
            )
            first = last + 1
