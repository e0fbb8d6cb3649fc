"""The rows that a REL message makes (DESIGN 5).

A row that names a suspended view is guarded, and so is one of views that are painted and views that are
passed through. Two rows may be in order because of a relation that only such a view reads; smallest
history: T1 on r and q, T2 on q and s, views over each of the three. Without the column of the view over
q nothing else keeps T2 behind T1. `changes` guards the rows that are there when a column closes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streaming.merge.rows import Kind, Row
from streaming.messages import Rel, RelRun

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


def rows_of(machine: MergeMachine, rel: Rel) -> list[Row]:
    """The message's rows; a view that is passed through has a row to itself."""
    through = machine.through
    rows = []
    for run in _cut(machine.suspended, rel.runs) if machine.suspended else rel.runs:
        first, last, views, idle = run.first, run.last, run.views, run.idle
        kind: Kind = "guarded" if run.guarded else "counted"
        shape = machine.shapes[kind].get((views, idle)) or machine.shape(views, idle, kind)
        rows.append(Row(first, last, shape))
        for view in sorted(through.intersection(views)) if through else ():
            alone = machine.shape((view,), (view,) if view in idle else (), "passed")
            rows.append(Row(first, last, alone))
    return rows


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
                guarded=run.guarded or any(view in run.views for view in suspended),
            )
            first = last + 1
