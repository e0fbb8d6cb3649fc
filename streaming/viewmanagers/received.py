"""What a message must hold before a mediator lets it change anything (ryco-pyco 3.2; MVC 3.3).

Parents' lists may overtake the numbering. So a list is checked against REL where UMQ has its numbers
already, and otherwise when they come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streaming.errors import ProtocolError
from streaming.messages import ActionList, Suspend, Updates
from streaming.viewmanagers.base import Progress, check_updates, works
from streaming.viewmanagers.ordered import Ordered, Range, ordered, within

if TYPE_CHECKING:
    from streaming.viewmanagers.mediator import Mediator


def broken(message: object, rule: str) -> ProtocolError:
    return ProtocolError("mediator", message, rule)


def check_umq(mediator: Mediator[Any], updates: Updates) -> Ordered:
    """The next message of the numbering, as an entry of UMQ.

    Raises:
        ProtocolError: see `Mediator.handle`.
    """
    spec, parents = mediator.spec, mediator.parents
    at = mediator.umq[-1].updates.last if mediator.umq else mediator.number
    check_updates(spec, Progress(at, mediator.suspended_after), updates)
    brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"
    for run in updates.runs:
        for parent in parents:
            if works(run, parent) and not works(run, spec.view):
                raise broken(
                    brief,
                    f"REL asks {parent} for work at {run.first} and not its child {spec.view}",
                )
    entry = ordered(updates, spec.view, parents, spec.start)
    for parent in parents:
        heard = min(mediator.heard[parent], updates.last)
        lists = mediator.rmq[parent]
        covered = [(one.first, one.last) for one in lists]
        lacking = _first_outside(within(entry.awaited[parent], updates.first, heard), covered)
        if lacking is not None:
            raise broken(brief, f"{parent} has sent no list for number {lacking}")
        for one in lists:
            if updates.first <= one.last <= updates.last and _brings(one):
                before = mediator.awaited(parent, one.first, one.last)
                if not before and not within(entry.awaited[parent], one.first, one.last):
                    raise broken(brief, f"REL has {parent} at none of {one.first}..{one.last}")
    return entry


def _brings(one: ActionList) -> bool:
    return one.delta is not None and one.delta.rows > 0


def _first_outside(ranges: Iterable[Range], covered: list[Range]) -> int | None:
    """The first number of the ranges that no covered range has; both ascend."""
    for first, last in ranges:
        for a, b in covered:
            if a <= first <= b:
                first = b + 1
        if first <= last:
            return first
    return None


def check_list(mediator: Mediator[Any], message: ActionList) -> None:
    """The next list of a parent.

    Raises:
        ProtocolError: see `Mediator.handle`.
    """
    _check_parent(mediator, message)
    parent, first, last = message.view, message.first, message.last
    heard = mediator.heard[parent]
    if last < first:
        raise broken(message, "a list ends before it begins")
    if first <= heard:
        raise broken(message, f"numbers from the past; {parent} has sent its lists up to {heard}")
    lacking = mediator.awaited(parent, heard + 1, first - 1)
    if lacking:
        raise broken(message, f"{parent} has sent no list for number {lacking[0][0]}")
    at = mediator.umq[-1].updates.last if mediator.umq else mediator.number
    if last <= at and _brings(message) and not mediator.awaited(parent, first, last):
        raise broken(message, f"REL has {parent} at none of its numbers")


def check_suspend(mediator: Mediator[Any], message: Suspend) -> None:
    """A parent is suspended once, at the number where its lists end.

    Raises:
        ProtocolError: see `Mediator.handle`.
    """
    _check_parent(mediator, message)
    heard = mediator.heard[message.view]
    if message.after < heard:
        raise broken(message, f"{message.view} has sent lists up to {heard}")
    lacking = mediator.awaited(message.view, heard + 1, message.after)
    if lacking:
        raise broken(message, f"{message.view} has sent no list for number {lacking[0][0]}")


def _check_parent(mediator: Mediator[Any], message: ActionList | Suspend) -> None:
    spec, group = mediator.spec, mediator.parents.get(message.view)
    if group is None:
        raise broken(message, f"{message.view} is no parent of {spec.view}")
    if message.group != group:
        raise broken(message, f"{message.view} belongs to group {group}")
    if mediator.suspended_after is not None:
        raise broken(message, f"{spec.view} is suspended after number {mediator.suspended_after}")
    if message.view in mediator.ended:
        raise broken(message, f"{message.view} is suspended")
