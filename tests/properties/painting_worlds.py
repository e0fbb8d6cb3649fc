"""Random histories of a merge group, made from base facts: which relations each transaction changes.

A view is over relations; REL follows from that by the integrator's own rules (`relevance.runs`). Views
are added, dropped, suspended and brought back at any time, by managers of every kind; their messages and
the integrator's come in any order that keeps each sender's own, lists across cuts and echoes included.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from painting_histories import GROUP, rows

from streaming.algebra.scans import ScanNeed
from streaming.integrator.relevance import BatchChanges, ViewNeed, runs
from streaming.merge.algorithms import Manager, merge_of
from streaming.merge.batching import GREEDY, Batching
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import Event, MergeMachine
from streaming.messages import ActionList, Rel, RelRun, Suspend, ViewChange

NAMES = ("v1", "v2", "v3", "v4", "v5")
RELATIONS = "pqrstu"
KINDS = ("spa", "pa", "through", "blocks")


@dataclass(eq=False)
class Column:
    """A view from when it is added at `number` (-1: from the beginning) to its end.

    Attributes:
        after: where it is suspended; None when it is not.
        expected: the lists with rows that it sends before any end.
    """

    view: str
    number: int
    relations: frozenset[str]
    manager: Manager
    queue: list[Sent] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    after: int | None = None
    closed: bool = False
    sent: int = -1

    @property
    def orders(self) -> bool:
        """Its manager promises an order."""
        return self.manager.sends != "convergent"


@dataclass(eq=False)
class Sent:
    """A message, who sent it, and messages that come before it, whoever sent those."""

    event: Event
    column: Column | None = None
    after: tuple[Sent, ...] = ()


@dataclass
class World:
    """A history.

    Attributes:
        relations: what each transaction changes.
        named: per transaction the columns that use one of these relations.
        every: N of a group of complete-N managers.
    """

    seed: int
    kind: str
    founders: dict[str, Manager]
    columns: list[Column]
    relations: dict[int, frozenset[str]]
    named: dict[int, list[Column]]
    events: list[Sent]
    every: int | None

    def machine(
        self,
        batching: Batching = GREEDY,
        order: str = "overtake",
        discipline: Discipline = "declared",
    ) -> MergeMachine | BlockMerge:
        """A new machine for it."""
        return merge_of(GROUP, self.founders, batching, order, discipline)  # type: ignore[arg-type]

    @property
    def last(self) -> int:
        return max(self.relations)

    def before(self) -> dict[int, set[int]]:
        """Per transaction those that every serial schedule has before it: they share a relation, or
        others between them do."""
        before: dict[int, set[int]] = {0: set()}
        for j in range(1, self.last + 1):
            direct = {i for i in range(1, j) if self.relations[i] & self.relations[j]}
            before[j] = {0} | direct.union(*(before[i] for i in direct))
        return before


class _Writer:
    """Draws a world cut by cut."""

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = random.Random(f"{seed} {kind}")
        self.seed, self.kind = seed, kind
        self.every = self.rng.randint(1, 3) if kind == "blocks" else None
        self.columns: list[Column] = []
        self.members: dict[str, Column] = {}
        self.dropped: dict[str, int] = {}
        self.relations: dict[int, frozenset[str]] = {0: frozenset()}
        self.named: dict[int, list[Column]] = {}
        self.integrator: list[Sent] = []
        few = 0 if kind in ("spa", "pa") else 1
        for view in self.rng.sample(NAMES, self.rng.randint(few, 4)):
            self._column(view, -1)
        if kind == "pa" and self.columns:
            self.columns[0].manager = Manager("strong")
        self.founders = {column.view: column.manager for column in self.columns}

    def _column(self, view: str, number: int) -> Column:
        relations = frozenset(self.rng.sample(RELATIONS, self.rng.choice((1, 1, 2))))
        column = Column(view, number, relations, self._manager())
        self.columns.append(column)
        self.members[view] = column
        return column

    def _manager(self) -> Manager:
        match self.kind:
            case "blocks":
                return Manager("complete-N", self.every)
            case "spa":
                return Manager()
            case "pa":
                return Manager(self.rng.choice(("complete", "strong")))
        return Manager(self.rng.choice(("complete", "strong", "convergent", "convergent")))

    def write(self) -> World:
        first = 0
        for _ in range(self.rng.randint(2, 6)):
            last = first + self.rng.randint(0, 3)
            self._rel(first, last)
            self._lists(last)
            if self.every is None or last % self.every == 0:
                self._changes(last)
            first = last + 1
        last = first if self.every is None else -(-first // self.every) * self.every
        self._rel(first, last)
        self._lists(last, whole=True)
        queues = [self.integrator, *(column.queue for column in self.columns)]
        return World(
            self.seed,
            self.kind,
            self.founders,
            self.columns,
            self.relations,
            self.named,
            _shuffled(self.rng, queues),
            self.every,
        )

    def _rel(self, first: int, last: int) -> None:
        for n in range(max(first, 1), last + 1):
            size = self.rng.choice((0, 1, 1, 2, 2, 3))
            self.relations[n] = frozenset(self.rng.sample(RELATIONS, size))
        members = [self.members[view] for view in sorted(self.members)]
        if first == 0:
            self.named[0] = members
            for column in members:
                column.busy.append(0)
        entries = [RelRun(first=0, last=0, views=tuple(sorted(self.members)))] if not first else []
        entries += self._runs(max(first, 1), last)
        for run in entries if last else ():
            for n in range(max(run.first, 1), run.last + 1):
                uses = [c for c in members if c.relations & self.relations[n]]
                assert {c.view for c in uses} <= set(run.views), "REL leaves a view out"
                self.named[n] = [self.members[view] for view in run.views]
                for view in set(run.views) - set(run.idle):
                    self.members[view].busy.append(n)
        released = tuple(f"x{last}" for _ in range(2) if self.rng.random() < 0.1)
        rel = Rel(
            group=GROUP,
            first=first,
            last=last,
            runs=tuple(entries),
            positions={self.rng.choice("xy"): str(last)},
            committed_ms=self.rng.choice((None, last)),
            released=released,
        )
        self.integrator.append(Sent(rel))

    def _runs(self, first: int, last: int) -> tuple[RelRun, ...]:
        numbers = range(first, last + 1)
        changed = {r: np.array([r in self.relations[n] for n in numbers], bool) for r in RELATIONS}
        needs, work = {}, {}
        for at, (view, column) in enumerate(self.members.items()):
            scans = tuple(ScanNeed(r, (), frozenset({at}), ()) for r in sorted(column.relations))
            needs[view] = ViewNeed(view, scans, (), column.relations)
            for scan in scans:
                seen = np.array([self.rng.random() < 0.8 for _ in numbers], bool)
                work[scan] = changed[scan.relation] & seen
        return runs(BatchChanges(first, last, changed, work), needs, sorted(self.members))

    def _lists(self, last: int, whole: bool = False) -> None:
        """What the managers send when they have heard of the numbers up to `last`."""
        for column in self.members.values():
            strong = column.manager.sends in ("strong", "convergent")
            if strong and not whole and self.rng.random() < 0.15:
                continue  # its next list may cross this cut
            if self.every is not None:
                self._block_lists(column, last)
                continue
            cuts = [sent.event.last for sent in self.integrator if isinstance(sent.event, Rel)]
            while column.busy and column.after is None:
                size = self.rng.randint(1, len(column.busy))
                cut = min(cut for cut in cuts if cut >= column.busy[0])
                crosses = strong and column.busy[size - 1] > cut
                if not crosses:
                    size = len([n for n in column.busy[:size] if n <= cut])
                inside, column.busy = column.busy[:size], column.busy[size:]
                self._list(column, inside[0], inside[-1], crosses)
            self._suspend(column, last)

    def _block_lists(self, column: Column, last: int) -> None:
        assert self.every is not None
        while column.busy and column.after is None:
            k = -(-column.busy[0] // self.every)
            begin = (k - 1) * self.every + 1 if k else 0
            end = k * self.every
            if end > last:
                break
            inside = [n for n in column.busy if n <= end]
            column.busy = column.busy[len(inside) :]
            first = self.rng.randint(max(begin, column.number + 1), inside[0])
            self._list(column, first, self.rng.randint(inside[-1], end), False)
        if not column.busy:
            self._suspend(column, last)

    def _list(self, column: Column, first: int, last: int, crosses: bool) -> None:
        complete = column.manager.sends == "complete" or (
            not crosses and first == last and self.rng.random() < 0.5
        )
        name = f"{column.view}-{column.number}-{first}"
        message = ActionList(
            group=GROUP,
            view=column.view,
            first=first,
            last=last,
            complete=complete,
            across=crosses,
            delta=rows(name) if self.rng.random() < 0.9 else None,
        )
        column.sent = last
        column.queue.append(Sent(message, column))

    def _suspend(self, column: Column, last: int) -> None:
        if column.after is not None or self.rng.random() > 0.12:
            return
        lists = [s for s in column.queue if isinstance(s.event, ActionList)]
        if lists and self.rng.random() < 0.7:
            gone = self.rng.choice(lists)  # it fails at this list
            column.queue = column.queue[: column.queue.index(gone)]
            assert isinstance(gone.event, ActionList)
            after = gone.event.first - 1
            ends = [s.event.last for s in column.queue if isinstance(s.event, ActionList)]
            after = self.rng.randint(max([*ends, column.number - 1, -1]), after)
        else:
            after = max(last, column.sent)
        column.after, column.busy = after, []
        message = Suspend(group=GROUP, view=column.view, after=after, error={"code": "X"})
        column.queue.append(Sent(message, column))

    def _changes(self, number: int) -> None:
        for view in NAMES:
            column = self.members.get(view)
            chance = self.rng.random()
            if column is not None and column.number == number:
                continue
            if column is not None and column.after is not None and chance < 0.4:
                self._open(view, number, self._told(column))
            elif column is not None and chance < 0.25:
                self.integrator.append(Sent(self._change(column, number, "drop")))
                del self.members[view]
                self.dropped[view], column.closed = number, True
                if column.after is None:
                    del column.queue[self.rng.randint(0, len(column.queue)) :]
            elif column is None and number > self._soonest(view) and chance < 0.3:
                self._open(view, number)

    def _soonest(self, view: str) -> int:
        last = self.dropped.get(view, -2)
        return -(-(last + 1) // self.every) * self.every if self.every else last + 1

    def _told(self, column: Column) -> tuple[Sent, ...]:
        """What the merge has heard when it tells that a view is suspended: the REL of its lists too."""
        ends = [s.event.last for s in column.queue if isinstance(s.event, ActionList)]
        known = max([*ends, column.number])
        rels = [s for s in self.integrator if isinstance(s.event, Rel) and s.event.last >= known]
        opened = [s for s in self.integrator if s.column is column]
        return (column.queue[-1], rels[0], *opened)

    def _open(self, view: str, number: int, back: tuple[Sent, ...] = ()) -> None:
        if back:
            self.members[view].closed = True
        column = self._column(view, number)
        change = self._change(column, number, "add")
        first = Sent(change, column, back)
        self.integrator.append(first)
        echo = Sent(change, column, back)
        column.queue.append(echo)
        self._list(column, number, number, False)

    def _change(self, column: Column, number: int, change: str) -> ViewChange:
        return ViewChange(
            group=GROUP,
            view=column.view,
            change=change,  # type: ignore[arg-type]
            number=number,
            manager=column.manager.sends,
            every=column.manager.every,
        )


def _shuffled(rng: random.Random, queues: list[list[Sent]]) -> list[Sent]:
    """An arrival order that keeps each sender's own order."""
    queues = [list(queue) for queue in queues if queue]
    events: list[Sent] = []
    while queues:
        ready = [q for q in queues if all(one in events for one in q[0].after)]
        events.append(rng.choice(ready).pop(0))
        queues = [queue for queue in queues if queue]
    return events


def world(seed: int, kind: str) -> World:
    """A history of up to 28 transactions in which up to five views come and go."""
    return _Writer(seed, kind).write()
