"""Views that join and leave: random histories, and the closure with the meaning of both (MVC 1.2).

Transaction n is row n.0; the row at which a view joins at n lies between n and n + 1.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from painting_as_printed import Closure
from painting_histories import GROUP, Event, rows, shuffle

from streaming.messages import ActionList, Rel, RelRun, ViewChange

NAMES = ("v1", "v2", "v3", "v4", "v5")


class ColumnClosure(Closure):
    """`Closure` with columns that open and close."""

    def __init__(self, views: tuple[str, ...]) -> None:
        super().__init__(views)
        self.views = list(NAMES)
        self.seen = -1
        self.joining: dict[float, str] = {}
        self.opened: set[tuple[str, int]] = set()
        self.dropped: dict[str, int] = {}
        self.waiting: list[ViewChange] = []

    def event(self, event: Event | ViewChange) -> None:
        """One message."""
        match event:
            case Rel():
                for run in event.runs:
                    for n in range(run.first, run.last + 1):
                        self.rel(n, run.views, run.idle)
                self.seen = event.last
                for change in [c for c in self.waiting if c.number == self.seen]:
                    self.waiting.remove(change)
                    self._open(change.view, change.number)
            case ActionList():
                if event.last > self.dropped.get(event.view, -1):
                    self.action(event.view, event.first, event.last, event.complete)
            case ViewChange(change="drop"):
                self._close(event.view, event.number)
            case ViewChange():
                if (event.view, event.number) in self.opened or event in self.waiting:
                    return
                if event.number == self.seen:
                    self._open(event.view, event.number)
                else:
                    self.waiting.append(event)
        self.step()

    def _open(self, view: str, number: int) -> None:
        row = join_row(view, number)
        self.opened.add((view, number))
        self.joining[row] = view
        self.rows = sorted([*self.rows, row])  # type: ignore[type-var, list-item]
        for x in self.views:
            self.colour[row, x] = "white" if x == view else "black"  # type: ignore[index]
            self.state[row, x] = row  # type: ignore[index, assignment]

    def _close(self, view: str, number: int) -> None:
        self.dropped[view] = number
        for row in self.rows:
            self.guard(row, view)  # type: ignore[arg-type]
            self.colour[row, view] = "black"  # type: ignore[index]
        self.rows = [row for row in self.rows if self.joining.get(row) != view]
        self.lists = [one for one in self.lists if one[0] != view or one[1] > number]

    def step(self) -> None:
        for view, first, last, complete in self.lists:
            row = join_row(view, last)
            if first == last and self.joining.get(row) == view:
                if row in self.rows:
                    self.colour[row, view] = "red"  # type: ignore[index]
                continue
            cells = [
                i
                for i in self.rows
                if first <= i <= last and i not in self.joining and self.colour[i, view] == "white"
            ]
            for i in cells:
                self.colour[i, view] = "red"
                self.state[i, view] = i if complete else max(cells)
        while groups := [g for g in map(self.closure, self.rows) if g]:
            group = min(groups, key=lambda g: (len(g), g))
            self.applied.append(group)
            self.rows = [i for i in self.rows if i not in group]

    def above(self, row: float, view: str) -> list[int]:
        """The rows that go before `row` because of `view`'s column, or because it joins."""
        joins = row in self.joining
        return [
            k
            for k in self.rows
            if k < row
            and (
                (joins and k not in self.joining)
                or (not joins and self.colour[k, view] in ("red", "white"))
            )
        ]


def join_row(view: str, number: int) -> float:
    """The row at which a view joins at a number."""
    return number + (1 + NAMES.index(view)) / 10


@dataclass
class Changing:
    """A history of a group whose views change."""

    views: tuple[str, ...]
    events: list[Event | ViewChange]
    last: int
    strong: bool
    members: dict[str, int] = field(default_factory=dict)
    """The views at the end, with the number of each one's last addition."""
    integrator: list[Event | ViewChange] = field(default_factory=list)
    managers: list[tuple[str, int, list[Event | ViewChange]]] = field(default_factory=list)
    """What each process sends; a view has a manager for each number at which it was added."""


class _Writer:
    """Draws a history cut by cut."""

    def __init__(self, seed: int, strong: bool) -> None:
        self.rng = random.Random(seed)
        self.strong = strong
        self.views = tuple(sorted(self.rng.sample(NAMES, self.rng.randint(0, 3))))
        self.members = dict.fromkeys(self.views, -1)
        self.dropped: dict[str, int] = {}
        self.integrator: list[Event | ViewChange] = []
        self.queues: list[list[Event | ViewChange]] = [self.integrator]
        self.managers: list[tuple[str, int, list[Event | ViewChange]]] = []
        self.sending = {view: self._manager(view, -1) for view in self.views}

    def _manager(self, view: str, number: int) -> list[Event | ViewChange]:
        queue: list[Event | ViewChange] = []
        self.queues.append(queue)
        self.managers.append((view, number, queue))
        return queue

    def write(self) -> Changing:
        first = 0
        for _ in range(self.rng.randint(2, 5)):
            last = first + self.rng.randint(0, 3)
            self._rel(first, last)
            self._changes(last)
            first = last + 1
        self._rel(first, first)
        events = shuffle(self.rng, self.queues)  # type: ignore[arg-type]
        return Changing(
            self.views,
            list(events),
            first,
            self.strong,
            dict(self.members),
            self.integrator,
            self.managers,
        )

    def _rel(self, first: int, last: int) -> None:
        runs = []
        for n in range(first, last + 1):
            named = tuple(view for view in sorted(self.members) if self.rng.random() < 0.55)
            idle = tuple(view for view in named if self.rng.random() < 0.2)
            runs.append(RelRun(first=n, last=n, views=named, idle=idle))
        self.integrator.append(Rel(group=GROUP, first=first, last=last, runs=tuple(runs)))
        for view in self.members:
            busy = [r.first for r in runs if view in r.views and view not in r.idle]
            while busy:
                size = self.rng.randint(1, len(busy))
                whole = self.strong and self.rng.random() < 0.5
                self._list(view, busy[0], busy[size - 1], not whole)
                busy = busy[size:]

    def _list(self, view: str, first: int, last: int, complete: bool) -> None:
        delta = rows(f"{view}-{first}")
        self.sending[view].append(
            ActionList(
                group=GROUP, view=view, first=first, last=last, complete=complete, delta=delta
            )
        )

    def _changes(self, number: int) -> None:
        for view in NAMES:
            if self.rng.random() > 0.35:
                continue
            if view in self.members:
                if self.members[view] == number:
                    continue
                self.integrator.append(self._change(view, number, "drop"))
                unsent = self.sending[view]
                del unsent[self.rng.randint(0, len(unsent)) :], self.members[view]
                self.dropped[view] = number
            elif number > self.dropped.get(view, -2) + 1:
                change = self._change(view, number, "add")
                self.integrator.append(change)
                self.sending[view] = self._manager(view, number)
                self.sending[view].append(change)
                self._list(view, number, number, True)
                self.members[view] = number

    def _change(self, view: str, number: int, change: str) -> ViewChange:
        manager = "strong" if self.strong else "complete"
        return ViewChange(
            group=GROUP,
            view=view,
            change=change,  # type: ignore[arg-type]
            number=number,
            manager=manager,  # type: ignore[arg-type]
        )


def changing(seed: int, strong: bool) -> Changing:
    """A history of up to 20 transactions in which up to five views come and go."""
    return _Writer(seed, strong).write()
