"""What a message must hold before the merge lets it change anything (the table in `machine`).

A REL message ends at a cut and no list crosses one (those of `crossing` wait until REL is past them).
So a list lies wholly in what REL has named, and is checked when it comes, or wholly beyond it, and is
checked when its REL comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from streaming.errors import ProtocolError
from streaming.merge import changes
from streaming.merge.rows import Block, HeldList
from streaming.messages import ActionList, Rel, Suspend

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


class Match(NamedTuple):
    """A list that came before its REL, and the last number it paints there (None: none)."""

    x: int
    held: HeldList
    state: int | None


def column_of(machine: MergeMachine, view: str, message: object) -> int:
    """The view's column.

    Raises:
        ProtocolError: the view is not in the group.
    """
    x = machine.column.get(view)
    if x is None:
        raise ProtocolError("merge", message, f"view {view!r} is not in group {machine.group!r}")
    return x


def check_runs(machine: MergeMachine, seen: int, rel: Rel) -> None:
    """REL goes on after `seen`; its runs follow each other and name views of the group.

    Raises:
        ProtocolError: it does not.
    """
    known = machine.shapes["counted"].keys() | machine.shapes["guarded"].keys()
    if rel.first <= seen:
        raise ProtocolError("merge", rel, f"a second REL for number {rel.first}")
    if rel.first != seen + 1:
        raise ProtocolError("merge", rel, f"REL must go on at number {seen + 1}")
    number = rel.first
    for run in rel.runs:
        if run.first != number or run.last < number:
            raise ProtocolError("merge", rel, f"the runs must go on at number {number}")
        number = run.last + 1
    for views, idle in {(run.views, run.idle) for run in rel.runs} - known:
        for view in views:
            column_of(machine, view, rel)
        if len(set(views)) < len(views) or not set(idle) <= set(views):
            raise ProtocolError("merge", rel, "views of a run are distinct, idle ones among them")
    if number != rel.last + 1 or not rel.runs:
        raise ProtocolError("merge", rel, f"the runs must end at number {rel.last}")


def check_rel(machine: MergeMachine, rel: Rel) -> None:
    """The runs are right, a cut is where a view joins, and no list is needed of a suspended view.

    Raises:
        ProtocolError: a rule is broken.
    """
    check_runs(machine, machine.seen, rel)
    if machine.ahead and rel.first <= changes.cut(machine) < rel.last:
        rule = f"a view joins at {changes.cut(machine)}, which must be a cut"
        raise ProtocolError("merge", rel, rule)
    for view, after in machine.suspended.items():
        white = max(machine.vut.painted[machine.column[view]] + 1, rel.first)
        for run in rel.runs if white <= after else ():
            busy = view in run.views and view not in run.idle
            if busy and max(run.first, white) <= min(run.last, after):
                rule = f"{view!r} is suspended; no list for {max(run.first, white)}"
                raise ProtocolError("merge", rel, rule)


def check_list(machine: MergeMachine, message: ActionList) -> int:
    """A list begins below its column's red part, skips no white cell, paints one, crosses no cut.

    An empty list over numbers at which the view was idle is harmless and passes.

    Returns:
        the column.

    Raises:
        ProtocolError: a rule is broken.
    """
    x = column_of(machine, message.view, message)
    view, first, last = message.view, message.first, message.last
    if view in machine.suspended:
        raise ProtocolError("merge", message, f"view {view!r} is suspended")
    if last < first:
        raise ProtocolError("merge", message, "a list ends before it begins")
    if first <= machine.vut.painted[x]:
        rule = f"a list for {view!r} must begin after number {machine.vut.painted[x]}"
        raise ProtocolError("merge", message, rule)
    if machine.algorithm == "spa" and not message.complete:
        raise ProtocolError("merge", message, "SPA takes lists of complete view managers only")
    joins = machine.joining.get(view)
    if joins is not None and first <= joins.number < last:
        rule = f"{view!r} joins with a list of number {joins.number} alone"
        raise ProtocolError("merge", message, rule)
    white = machine.vut.first_white(x)
    if white is not None and white < first:
        raise ProtocolError("merge", message, f"{view!r} has no list for number {white}")
    if first <= machine.seen:
        cut = machine.submission.rels.cut_after(first)
        if last > cut and not message.across:
            raise ProtocolError("merge", message, f"the list crosses the cut at {cut}")
        empty = message.delta is None or not message.delta.rows
        if (white is None or white > last) and not (empty and machine.passed[x] >= first):
            raise ProtocolError("merge", message, f"REL has {view!r} at none of its numbers")
    return x


def check_suspend(machine: MergeMachine, message: Suspend) -> int:
    """A view is suspended once, at the number where its lists end.

    Returns:
        the column.

    Raises:
        ProtocolError: a rule is broken.
    """
    x = column_of(machine, message.view, message)
    if message.view in machine.suspended:
        raise ProtocolError("merge", message, f"view {message.view!r} is suspended already")
    white = machine.vut.first_white(x)
    painted = machine.vut.painted[x]
    if message.after < painted or (white is not None and white <= message.after):
        rule = f"the lists of {message.view!r} end at {painted}, not at `after`"
        raise ProtocolError("merge", message, rule)
    return x


def match_early_lists(machine: MergeMachine, rel: Rel, blocks: Mapping[str, Block]) -> list[Match]:
    """Checks the lists that came before this REL against its rows, `blocks` by lane.

    Returns:
        each of them with the last number it paints.

    Raises:
        ProtocolError: one crosses the cut, skips a number, or is needed at none of its numbers.
    """
    matches: list[Match] = []
    nothing = Block(rel.last, rel.first)
    for x, view in enumerate(machine.views):
        painted = machine.vut.painted[x]
        if painted < rel.first:
            continue
        block = blocks.get(view if view in machine.through else "", nothing)
        idle = any(view in run.idle for run in rel.runs)
        unlisted = rel.first
        for held in (held for held in machine.vut.lists[x] if held.state is None):
            if held.first > rel.last:
                break
            if held.last > rel.last:
                raise ProtocolError("merge", rel, f"list {held.id} crosses the cut at {rel.last}")
            state = block.last_busy(x, held.first, held.last)
            if state is None and (not idle or (held.delta is not None and held.delta.rows)):
                raise ProtocolError("merge", rel, f"REL has the view at no number of {held.id}")
            missing = block.last_busy(x, unlisted, held.first - 1)
            if missing is not None:
                raise ProtocolError("merge", rel, f"{view!r} has no list for number {missing}")
            unlisted = held.last + 1
            matches.append(Match(x, held, state))
        missing = block.last_busy(x, unlisted, min(rel.last, painted))
        if missing is not None:
            raise ProtocolError("merge", rel, f"{view!r} has no list for number {missing}")
    return matches
