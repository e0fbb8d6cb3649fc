"""Which warehouse transactions may be submitted while others have not committed (MVC 4.3).

WT_j depends on WT_i when j > i and both touch a view, or both have guarded rows (`rows`); dependent
ones must commit in the order in which they were submitted. The paper's three ways to see to it, each
also for batches (a BWT touches what its WTs touch, so batching makes dependencies that were not there):

* "sequential": the next one is submitted when the last one has committed;
* "dependent": one is submitted beside others unless it depends on one that has not committed, or on
  one that is itself held back;
* "declared": all are submitted with their dependencies, and who commits keeps to them.

A transaction in which a view joins depends on all before it, because the view's content reflects them.
All depend on the initial state, number 0, also those that touch no view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streaming.errors import ProtocolError
from streaming.merge.covered import Covered
from streaming.merge.vut_rows import GUARD, WarehouseTransaction, touched_columns

Discipline = Literal["declared", "sequential", "dependent"]
Ranges = tuple[tuple[int, int], ...]


class Submitted(NamedTuple):
    """What is kept of a BWT until it has committed: VS of it, the guard's column too, and its numbers."""

    views: frozenset[str]
    ranges: Ranges


@dataclass(frozen=True)
class CommitsState:
    """`Commits` as a value.

    Attributes:
        frontier, ahead: the numbers that are visible (`covered.Covered`).
    """

    submitted: Mapping[int, Submitted] = field(default_factory=dict)
    frontier: int = -1
    ahead: Ranges = ()


class Commits:
    """The BWTs that were submitted and have not committed; nothing of them under "declared"."""

    def __init__(self, group: str, discipline: Discipline) -> None:
        self.group = group
        self.discipline = discipline
        self.submitted: dict[int, Submitted] = {}
        self.covered = Covered()
        """The numbers that are visible: what has committed, in whichever order."""

    @property
    def holds_all(self) -> bool:
        """Nothing may be submitted now."""
        return self.discipline == "sequential" and bool(self.submitted)

    @property
    def busy(self) -> frozenset[str]:
        """The views of which something has not committed, and the guard if a guarded row has not."""
        return frozenset().union(*(one.views for one in self.submitted.values()))

    def submit(self, sequence: int, views: Iterable[str], ranges: Ranges) -> None:
        """A BWT goes to the warehouse."""
        if self.discipline != "declared":
            self.submitted[sequence] = Submitted(frozenset(views), ranges)

    def committed(self, sequence: int) -> None:
        """The warehouse has committed a BWT.

        Raises:
            ProtocolError: it was not submitted, has committed already, or no commit is waited for.
        """
        if sequence not in self.submitted:
            told = f"commit of {sequence} in group {self.group!r}"
            rule = f"of the submitted transactions {sorted(self.submitted)} have not committed"
            raise ProtocolError("merge", told, rule)
        for first, last in self.submitted.pop(sequence).ranges:
            self.covered.add(first, last)

    def state(self) -> CommitsState:
        """What must be remembered."""
        return CommitsState(dict(self.submitted), self.covered.frontier, tuple(self.covered.ahead))

    def load(self, state: CommitsState) -> None:
        """Takes over what was remembered."""
        self.submitted = dict(state.submitted)
        self.covered = Covered(state.frontier, state.ahead)


def is_initial(transaction: WarehouseTransaction) -> bool:
    """Whether it shows number 0."""
    return any(span.first == 0 and span.shape.counts for span in transaction.spans)


def parted(
    ready: Iterable[WarehouseTransaction], views: tuple[str, ...], commits: Commits
) -> tuple[deque[WarehouseTransaction], deque[WarehouseTransaction]]:
    """(what may be submitted beside what has not committed, what must wait), both in order.

    What waits holds back whatever depends on it in turn; so a transaction that goes ahead of it shares
    no column with it. The initial state holds back everything.
    """
    names = (*views, GUARD)
    held = set(commits.busy)
    open_numbers = [first for one in commits.submitted.values() for first, _ in one.ranges]
    unbegun = 0 in open_numbers
    free: deque[WarehouseTransaction] = deque()
    kept: deque[WarehouseTransaction] = deque()
    for transaction in ready:
        spans = transaction.spans
        touches = {names[x] for x in touched_columns(s.shape for s in spans)}
        joins = [span.first for span in spans if span.shape.joins]
        early = joins and min(open_numbers, default=max(joins) + 1) <= max(joins)
        if unbegun or touches & held or early:
            unbegun = unbegun or is_initial(transaction)
            kept.append(transaction)
            held |= touches
            open_numbers += [span.first for span in spans if span.shape.counts]
        else:
            free.append(transaction)
    return free, kept
