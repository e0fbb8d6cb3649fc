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

A change of columns happens to the machine's saved state: its snapshot, by view names, is put into a
table with the other columns. Every rule is checked before:

    add    n is the last number seen, or later (then it waits for that cut); the view is not in the
           group, or suspended; a view that was dropped at d comes back at d + 2 or later
    drop   n is the last number seen; the view is in the group
    both   no REL message of other numbers crosses n; the second announcement of an addition is an echo

d + 2, so that no late word of the view's first manager can be taken for one of its second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.errors import ProtocolError
from streaming.merge.rows import GUARD, WarehouseTransaction
from streaming.merge.state import Ahead, load
from streaming.messages import ActionList, Suspend, ViewChange

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


def receive_change(machine: MergeMachine, change: ViewChange) -> list[WarehouseTransaction]:
    """Opens or closes a column.

    Raises:
        ProtocolError: a rule is broken.
    """
    if change.change == "drop":
        _check_drop(machine, change)
        return _drop(machine, change)
    said = [*machine.opened.get(change.view, ()), *_waiting(machine, change.view)]
    if change.number in said:
        return []
    _check_add(machine, change)
    if change.number > machine.seen:
        machine.ahead.append(Ahead(change, []))
        return []
    return _add(machine, change)


def blacken(saved: dict[str, Any], view: str, after: int) -> dict[int, int | None]:
    """Suspends a view in a saved state: its column is black below `after`.

    A row that counts nothing ends with its view.

    Returns:
        shape with the view -> the one without it, by position; None of a row that counts nothing.
    """
    saved["suspended"][view] = after
    _keep_order(saved, view)
    shapes = saved["shapes"]
    without: dict[int, int | None] = {}
    for at, (kind, names, idle) in enumerate(list(shapes)):
        if view in names:
            without[at] = len(shapes) if kind == "guarded" else None
            if kind == "guarded":
                shapes.append(
                    [kind, *([name for name in each if name != view] for each in (names, idle))]
                )
    saved["rows"] = _ended(saved["rows"], after, without)
    return without


def _ended(rows: list[list[int]], after: int, without: dict[int, int | None]) -> list[list[int]]:
    """Rows as [first, last, shape], cut below `after`, with the shapes there that lack the view."""
    found = []
    for first, last, at in rows:
        if first <= after or at not in without:
            found.append([first, min(last, after) if at in without else last, at])
        if last > after and (other := without.get(at)) is not None:
            found.append([max(first, after + 1), last, other])
    return found


def refuse(machine: MergeMachine, view: str, number: int) -> list[WarehouseTransaction]:
    """Suspends a view whose lists the warehouse cannot apply from `number` on; nothing of them is taken.

    Whatever has come of later numbers is forgotten, in rows that wait and in those that are ready, and
    what its manager still sends is not heard until the view joins again. A list that can only be applied
    whole goes whole.
    """
    saved = machine.snapshot()
    after = number - 1
    for held in reversed(saved["lists"][view]):
        if not held["complete"] and held["first"] <= after < held["last"]:
            after = held["first"] - 1
    kept = [held for held in saved["lists"][view] if held["first"] <= after]
    for held in kept:
        held["last"] = min(held["last"], after)
        held["state"] = min(held["state"], after)
    saved["lists"][view] = kept
    saved["painted"][view] = min(saved["painted"][view], after)
    saved["crossing"].pop(view, None)
    saved["refused"] = sorted({*saved["refused"], view})
    without = blacken(saved, view, after)
    for transaction in saved["ready"]:
        transaction[1] = _ended(transaction[1], after, without)
    saved["ready"] = [transaction for transaction in saved["ready"] if transaction[1]]
    ready = load(machine, saved)
    machine.submission.put(ready)
    return ready


def _keep_order(saved: dict[str, Any], view: str) -> None:
    """Guards what a saved state has of a view."""
    for shape in saved["shapes"]:
        if shape[0] == "counted" and view in shape[1]:
            shape[0] = "guarded"
    saved["guard"] = sorted({*saved["guard"], saved["latest"][view]} - {0})
    for submitted in saved["commits"]["submitted"]:
        if view in submitted[1]:
            submitted[1] = sorted({*submitted[1], GUARD})


def is_late(machine: MergeMachine, message: ActionList | Suspend) -> bool:
    """Whether a dropped view's manager sent it before it had heard of the drop."""
    last = message.last if isinstance(message, ActionList) else message.after
    return message.view in machine.dropped and last <= machine.dropped[message.view]


def early_for(machine: MergeMachine, message: ActionList | Suspend) -> Ahead | None:
    """The addition, waiting for its cut, whose manager sent the message."""
    first = message.first if isinstance(message, ActionList) else message.after + 1
    found = [
        ahead
        for ahead in machine.ahead
        if ahead.change.view == message.view and ahead.number <= first
    ]
    return max(found, key=lambda ahead: ahead.number, default=None)


def receive_early(machine: MergeMachine) -> list[WarehouseTransaction]:
    """What was held for the cut that has been reached.

    Raises:
        ProtocolError: a held message breaks a rule.
    """
    ready: list[WarehouseTransaction] = []
    for ahead in [ahead for ahead in machine.ahead if ahead.number == machine.seen]:
        machine.ahead = [one for one in machine.ahead if one.change != ahead.change]
        for message in (ahead.change, *ahead.held):
            ready += machine.receive(message)
    return ready


def _waiting(machine: MergeMachine, view: str) -> list[int]:
    """The cuts at which additions of the view wait."""
    return [ahead.number for ahead in machine.ahead if ahead.change.view == view]


def cut(machine: MergeMachine) -> int:
    """The first number at which an addition waits, which must be a cut."""
    return min(ahead.number for ahead in machine.ahead)


def told_suspended(machine: MergeMachine) -> tuple[tuple[str, int], ...]:
    """(view, last good number) for views that the warehouse shows and that do not go on."""
    told = {view: after for view, after in machine.suspended.items() if view not in machine.joining}
    for view, joining in machine.joining.items():
        if joining.shown is not None:
            told[view] = joining.shown
    return tuple(sorted(told.items()))


def _check_add(machine: MergeMachine, change: ViewChange) -> None:
    view, number = change.view, change.number
    if change.manager == "complete-N":
        rule = "complete-N managers have a group of their own with one N (MVC 6.3)"
        raise ProtocolError("merge", change, rule)
    if number < max(machine.seen, 0):
        rule = f"a view joins at the last cut, {machine.seen}, or a later one"
        raise ProtocolError("merge", change, rule)
    if near := [other for other in _waiting(machine, view) if abs(other - number) < 2]:
        raise ProtocolError("merge", change, f"{view!r} is to join at {near[0]} already")
    if number <= machine.dropped.get(view, -2) + 1:
        rule = f"{view!r} was dropped at {machine.dropped[view]} and comes back too soon"
        raise ProtocolError("merge", change, rule)
    if number > machine.seen:
        return
    if view in machine.column and view not in machine.suspended:
        raise ProtocolError("merge", change, f"view {view!r} is in the group already")


def _check_drop(machine: MergeMachine, change: ViewChange) -> None:
    if change.view not in machine.column:
        rule = f"view {change.view!r} is not in group {machine.group!r}"
        raise ProtocolError("merge", change, rule)
    if change.number != machine.seen:
        rule = f"a view is dropped at the last cut, {machine.seen}"
        raise ProtocolError("merge", change, rule)


def _add(machine: MergeMachine, change: ViewChange) -> list[WarehouseTransaction]:
    view, number = change.view, change.number
    saved = machine.snapshot()
    shown = None
    saved["refused"] = [name for name in saved["refused"] if name != view]
    if view in machine.suspended:
        shown = _shown(machine, view)
        _without(saved, view)
    saved["views"] = sorted({*machine.views, view})
    saved["painted"][view] = number - 1
    saved["latest"][view] = saved["sequence"]
    saved["shapes"].append(["joining", [view], []])
    saved["rows"].append([number, number, len(saved["shapes"]) - 1])
    saved["joining"][view] = [number, shown]
    saved["opened"].setdefault(view, []).append(number)
    if change.manager == "convergent":
        saved["through"] = sorted({*machine.through, view})
    if change.manager != "complete":
        saved["algorithm"] = "pa"
    return load(machine, saved)


def _shown(machine: MergeMachine, view: str) -> int | None:
    """What the warehouse shows of a suspended view once the rest of its column is forgotten."""
    if view in machine.joining:
        return machine.joining[view].shown
    x = machine.column[view]
    left = [row.first for row in machine.vut.rows() if x in row.shape.views]
    for transaction in machine.submission.ready:
        left += [span.first for span in transaction.spans if x in span.shape.views]
    return min([machine.suspended[view], *(first - 1 for first in left)])


def _drop(machine: MergeMachine, change: ViewChange) -> list[WarehouseTransaction]:
    view = change.view
    joining = machine.joining.get(view)
    last = machine.submission.latest[machine.column[view]]
    saved = machine.snapshot()
    _without(saved, view)
    saved["dropped"][view] = change.number
    saved["refused"] = [name for name in saved["refused"] if name != view]
    ready = load(machine, saved)
    if joining is None or joining.shown is not None:
        machine.submission.dropped[view] = (change.number, last)
    return ready


def _without(saved: dict[str, Any], view: str) -> None:
    """Takes a view's column out of a saved state."""
    _keep_order(saved, view)
    for by_view in (
        "painted",
        "passed",
        "lists",
        "taken",
        "latest",
        "suspended",
        "joining",
        "crossing",
    ):
        saved[by_view].pop(view, None)
    saved["views"] = [name for name in saved["views"] if name != view]
    saved["through"] = [name for name in saved["through"] if name != view]
    for shape in saved["shapes"]:
        shape[1:] = [[name for name in names if name != view] for names in shape[1:]]
    gone = {
        at
        for at, (kind, views, _) in enumerate(saved["shapes"])
        if kind in ("passed", "joining") and not views
    }
    saved["rows"] = [row for row in saved["rows"] if row[2] not in gone]
    for transaction in saved["ready"]:
        transaction[1] = [span for span in transaction[1] if span[2] not in gone]
    saved["ready"] = [transaction for transaction in saved["ready"] if transaction[1]]
