"""The contract of every view manager (painting-mvc 3.3).

A manager receives the numbered updates of its merge group in order and answers with the view's
action lists in the same order. A list is sent for every number whose REL has the view, also when it
is empty: the merge waits for it. A manager says nothing about numbers whose REL has not its view.

A manager raises before it changes state. `handle` computes and keeps the batch as *proposed*; only
`advance`, called when the manifest that carries the answer is durable, makes it part of the state;
`discard` forgets it. So a step may be repeated until its manifest exists, and nothing of it lasts
before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streaming.algebra.tree import Tree
from streaming.errors import ProtocolError, about
from streaming.messages import RelRun, Rows, Suspend, Updates


@dataclass(frozen=True)
class ManagedView:
    """What a manager needs to know of its view.

    Attributes:
        start: the number of the view's initial state; 0 unless it was added to a running pipeline.
    """

    view: str
    group: str
    tree: Tree
    start: int = 0


@dataclass(frozen=True)
class Codec:
    """How rows get into messages and out of them (`streaming.packed_rows`), given by the runtime.

    Attributes:
        pack: a delta to a reference.
        open: a reference to a table, or to a Parquet file to be read column by column.
    """

    pack: Callable[[pa.Table], Rows]
    open: Callable[[Rows], pa.Table | Path]


@dataclass(frozen=True)
class ManagerProgress:
    """How far a manager has come: the last number handled and applied.

    Attributes:
        suspended_after: the last good number of a suspended view, None while it goes on.
    """

    number: int
    suspended_after: int | None = None


def check_updates(spec: ManagedView, progress: ManagerProgress, updates: Updates) -> None:
    """Raise unless the message is the next one of this group.

    Raises:
        ProtocolError: another group; numbers from the past; a gap; runs that do not cover the
            message's numbers in order; a view that goes on although it is suspended.
    """

    def broken(rule: str) -> ProtocolError:
        brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"
        return ProtocolError("view_manager", brief, f"view {spec.view}: {rule}")

    if updates.group != spec.group:
        raise broken(f"this manager belongs to group {spec.group}")
    if progress.suspended_after is not None:
        raise broken(f"suspended after number {progress.suspended_after}")
    if updates.first <= progress.number:
        raise broken(f"numbers from the past; {progress.number} is already applied")
    if updates.first != progress.number + 1:
        raise broken(f"a gap: number {progress.number + 1} is missing")
    expected = updates.first
    for run in updates.runs:
        if run.first != expected or run.last < run.first:
            raise broken(f"runs must cover the numbers in order; expected {expected}")
        expected = run.last + 1
    if expected != updates.last + 1:
        raise broken(f"runs end at {expected - 1}")
    if any(not updates.first <= c.number <= updates.last for c in updates.controls):
        raise broken("a control outside of the message's numbers")


def works(run: RelRun, view: str) -> bool:
    """Whether the run asks for work on the view: in REL and not idle."""
    return view in run.views and view not in run.idle


def suspension(spec: ManagedView, after: int, error: dict[str, str]) -> Suspend:
    """The message of a view that stops after its last good number."""
    return Suspend(group=spec.group, view=spec.view, after=after, error=about(error, spec.view))
