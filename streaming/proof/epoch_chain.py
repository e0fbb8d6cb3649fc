"""What the epochs of a group say of themselves, each beside the one before it (DESIGN 8).

A reader trusts the commit metadata: which transactions are covered, how far the frontier is, where the
sources stand, which views are there and which are suspended. All of it follows from, or must go on from,
what the epoch before said; here it is checked, whatever the tables hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from streaming.warehouse.epoch import Epoch, Runs, merge_runs


def problems_of(group: str, epochs: Sequence[Epoch], last: int | None) -> list[str]:
    """What is wrong, a sentence each.

    Args:
        epochs: those that the log still tells of, ascending.
        last: the last number recorded in `_updates`; None when it is not known.
    """
    found = [one for epoch in epochs for one in _alone(epoch, last)]
    for before, after in pairwise(epochs):
        found += _after(before, after)
    return [f"group {group}: {one}" for one in found]


def _alone(epoch: Epoch, last: int | None) -> Iterator[str]:
    """What is wrong with an epoch by itself."""
    named, covered = f"epoch {epoch.epoch}", epoch.covered
    if merge_runs(covered) != tuple(covered) or any(a > b or a < 0 for a, b in covered):
        yield f"{named} covers {_runs(covered)}, which overlap or are out of order"
        return
    frontier = covered[0][1] if covered and covered[0][0] == 0 else -1
    if epoch.frontier != frontier:
        yield f"{named} says frontier {epoch.frontier}, and covers {_runs(covered)}"
    if last is not None and covered and covered[-1][1] > last:
        yield f"{named} covers {covered[-1][1]}, and updates are recorded up to {last} only"


def _after(before: Epoch, after: Epoch) -> Iterator[str]:
    """What does not go on from the epoch before."""
    named = f"epoch {after.epoch}"
    if after.epoch != before.epoch + 1:
        yield f"epoch {before.epoch} is followed by {after.epoch}"
        return
    lost = [run for run in before.covered if not _inside(run, after.covered)]
    if lost or after.frontier < before.frontier:
        yield f"{named} no longer covers {_runs(lost) or 'a prefix'} of epoch {before.epoch}"
    elif merge_runs(before.covered, after.added) != after.covered:
        told = f"{_runs(after.added)} to {_runs(before.covered)}"
        yield f"{named} says it adds {told}, and covers {_runs(after.covered)}"
    elif twice := [run for run in after.added if _meets(run, before.covered)]:
        yield f"{named} adds {_runs(twice)}, which epoch {before.epoch} has covered"
    for source, position in before.positions.items():
        now = after.positions.get(source)
        counts = position.isdigit() and now is not None and now.isdigit()
        if now is None or (counts and int(now) < int(position)):
            yield f"{named} has source {source} at {now}, after {position}"
    for view, number in before.suspended.items():
        if after.suspended.get(view, number) < number:
            yield f"{named} has view {view} suspended after {after.suspended[view]}, not {number}"
    for view, number in before.views.items():
        if after.views.get(view, number) < number:
            yield f"{named} has view {view} joined at {after.views[view]}, not {number}"


def _runs(runs: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{first}..{last}" for first, last in runs)


def _inside(run: tuple[int, int], runs: Runs) -> bool:
    return any(first <= run[0] and run[1] <= last for first, last in runs)


def _meets(run: tuple[int, int], runs: Runs) -> bool:
    return any(first <= run[1] and run[0] <= last for first, last in runs)
