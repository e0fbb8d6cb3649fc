"""Views that join a merge group and leave it while it runs (MVC 1.2; DESIGN 5, Adding and dropping).

A view joins at a cut n. Its first list, [n..n], is its whole content in the state after T_n, so it
gets a row of its own right below row n (`rows.Kind` "joining"), which needs that list and has
every row down to n as an earlier one: the content reflects them all. Rows below it wait for it in its
own column only. So nobody is held back, and the first commit that shows the column shows the other
views at n, or further only by transactions that do not concern it.

Dropping closes the column at once: its cells turn black in every row that is not in a batch, its lists
are forgotten, and the next batch says so. What its manager had sent before it heard of it comes to
nothing. A suspended view comes back by joining again, and what is left of its old column is forgotten;
until then it is told as suspended.

Whatever takes a column away, or the end of one, leaves the order that the column stood for: all rows that
have the view are guarded from then on, those that keep it (down to where it is suspended) and those that
are ready or submitted too. Smallest history: T1 on q and r, T2 on q and s, a view over each of the
three; the one over q is suspended after T1, or is dropped, and only the guard keeps T2 behind T1.

Each function here makes one state of the machine out of another; `machine` checks the rules before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from streaming.merge.disciplines import Submitted
from streaming.merge.state import (
    Ahead,
    ColumnState,
    Joining,
    MergeState,
    NamedShape,
    NamedSpan,
    Ready,
)
from streaming.merge.vut_rows import GUARD
from streaming.messages import ViewChange

T = TypeVar("T")


def add(state: MergeState, change: ViewChange) -> MergeState:
    """The view joins at the last number seen; a suspended one comes back."""
    view, number = change.view, change.number
    shown = None
    if view in state.suspended:
        shown = _shown(state, view)
        state = _without(state, view)
    row = NamedSpan(number, number, NamedShape("joining", (view,), ()))
    column = ColumnState(painted=number - 1, latest=state.submission.sequence)
    return replace(
        state,
        refused=state.refused - {view},
        views=tuple(sorted({*state.views, view})),
        columns={**state.columns, view: column},
        rows=(*state.rows, row),
        joining={**state.joining, view: Joining(number, shown)},
        opened={**state.opened, view: (*state.opened.get(view, ()), number)},
        through=state.through | ({view} if change.manager == "convergent" else frozenset()),
        algorithm=state.algorithm if change.manager == "complete" else "pa",
    )


def drop(state: MergeState, change: ViewChange) -> MergeState:
    """The view's column closes; the next batch says so where the warehouse has it."""
    view, number = change.view, change.number
    joining, last = state.joining.get(view), state.columns[view].latest
    state = _without(state, view)
    submission = state.submission
    if joining is None or joining.shown is not None:
        closing = {**submission.closing, view: (number, last)}
        submission = replace(submission, closing=closing)
    return replace(
        state,
        dropped={**state.dropped, view: number},
        refused=state.refused - {view},
        submission=submission,
    )


def suspend(state: MergeState, view: str, after: int) -> MergeState:
    """The view's column is black below `after`, in the rows that wait."""
    state = _guarded(state, view)
    return replace(
        state,
        suspended={**state.suspended, view: after},
        rows=_ended(state.rows, view, after),
    )


def refuse(state: MergeState, view: str, number: int) -> MergeState:
    """Suspends a view whose lists the warehouse cannot apply from `number` on; nothing of them is taken.

    Whatever has come of later numbers is forgotten, in rows that wait and in those that are ready, and
    what its manager still sends is not heard until the view joins again. A list that can only be applied
    whole goes whole.
    """
    after, column = number - 1, state.columns[view]
    for held in reversed(column.lists):
        if not held.complete and held.first <= after < held.last:
            after = held.first - 1
    lists = tuple(
        replace(
            held,
            last=min(held.last, after),
            state=None if held.state is None else min(held.state, after),
        )
        for held in column.lists
        if held.first <= after
    )
    column = replace(column, lists=lists, painted=min(column.painted, after))
    state = suspend(state, view, after)
    return replace(
        state,
        columns={**state.columns, view: column},
        crossing=_but(state.crossing, view),
        refused=state.refused | {view},
        ready=_each_ready(state.ready, lambda spans: _ended(spans, view, after)),
    )


def arrived(state: MergeState, number: int) -> tuple[MergeState, tuple[Ahead, ...]]:
    """The state without the additions that wait for a cut, and those."""
    here = tuple(ahead for ahead in state.ahead if ahead.number == number)
    return replace(state, ahead=tuple(a for a in state.ahead if a.number != number)), here


def _ended(spans: Iterable[NamedSpan], view: str, after: int) -> tuple[NamedSpan, ...]:
    """Rows, without the view below `after`; one that counts nothing ends there."""
    found = []
    for first, last, shape in spans:
        has = view in shape.views
        if first <= after or not has:
            found.append(NamedSpan(first, min(last, after) if has else last, shape))
        if has and last > after and shape.kind == "guarded":
            found.append(NamedSpan(max(first, after + 1), last, shape.without(view)))
    return tuple(found)


def _guarded(state: MergeState, view: str) -> MergeState:
    """What a state has of a view, guarded."""

    def guarded(spans: Iterable[NamedSpan]) -> tuple[NamedSpan, ...]:
        return tuple(
            NamedSpan(first, last, shape._replace(kind="guarded"))
            if shape.kind == "counted" and view in shape.views
            else NamedSpan(first, last, shape)
            for first, last, shape in spans
        )

    submission = state.submission
    submitted = {
        sequence: Submitted(one.views | {GUARD}, one.ranges) if view in one.views else one
        for sequence, one in submission.commits.submitted.items()
    }
    guard = tuple(sorted({*submission.guard, state.columns[view].latest} - {0}))
    commits = replace(submission.commits, submitted=submitted)
    return replace(
        state,
        rows=guarded(state.rows),
        ready=_each_ready(state.ready, guarded),
        submission=replace(submission, guard=guard, commits=commits),
    )


def _without(state: MergeState, view: str) -> MergeState:
    """The state without a view's column."""
    state = _guarded(state, view)

    def left(spans: Iterable[NamedSpan]) -> tuple[NamedSpan, ...]:
        shaped = [span._replace(shape=span.shape.without(view)) for span in spans]
        return tuple(
            span
            for span in shaped
            if span.shape.views or span.shape.kind not in ("passed", "joining")
        )

    return replace(
        state,
        views=tuple(name for name in state.views if name != view),
        through=state.through - {view},
        columns=_but(state.columns, view),
        suspended=_but(state.suspended, view),
        joining=_but(state.joining, view),
        crossing=_but(state.crossing, view),
        rows=left(state.rows),
        ready=_each_ready(state.ready, left),
    )


def _shown(state: MergeState, view: str) -> int | None:
    """What the warehouse shows of a suspended view once the rest of its column is forgotten."""
    if view in state.joining:
        return state.joining[view].shown
    alone = view in state.through
    left = [
        first
        for spans in (state.rows, *(ready.spans for ready in state.ready))
        for first, _, shape in spans
        if view in shape.views and (shape.kind == "passed") == alone
    ]
    return min([state.suspended[view], *(first - 1 for first in left)])


def _each_ready(
    ready: Iterable[Ready], change: Callable[[Iterable[NamedSpan]], tuple[NamedSpan, ...]]
) -> tuple[Ready, ...]:
    """The transactions of which something is left."""
    changed = (Ready(together, change(spans)) for together, spans in ready)
    return tuple(one for one in changed if one.spans)


def _but(by_view: Mapping[str, T], view: str) -> dict[str, T]:
    return {name: value for name, value in by_view.items() if name != view}
