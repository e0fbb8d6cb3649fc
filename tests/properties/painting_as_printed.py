"""Oracles for the merge, per transaction: SPA and PA as the paper prints them, and the closure.

`PrintedSpa` and `PrintedPa` follow Algorithms 1 and 2 line by line; `Closure` is the meaning of PA
(PAPERS 1). All take single events: a REL for one number, a list that paints given cells.
"""

from __future__ import annotations

from collections.abc import Iterable

Cell = tuple[int, str]
Group = tuple[int, ...]


class Printed:
    """What the two algorithms share: the VUT, WT and the arrival of a list before its REL."""

    def __init__(self, views: Iterable[str]) -> None:
        self.views = sorted(views)
        self.colour: dict[Cell, str] = {}
        self.state: dict[Cell, int] = {}
        self.rows: list[int] = []
        self.early: dict[int, list[str]] = {}
        self.applied: list[Group] = []

    def rel(self, i: int, views: Iterable[str]) -> None:
        self.rows.append(i)
        for x in self.views:
            self.colour[i, x] = "white" if x in views else "black"
            self.state[i, x] = 0
        if not set(views):
            self.process_row(i)
        for x in self.early.pop(i, []):
            self.process_action(i, x)

    def action(self, i: int, x: str) -> None:
        if i in self.rows or any(i in group for group in self.applied):
            self.process_action(i, x)
        else:
            self.early.setdefault(i, []).append(x)

    def next_red(self, i: int, x: str) -> int:
        return min((j for j in self.rows if j > i and self.colour[j, x] == "red"), default=0)

    def process_action(self, i: int, x: str) -> None:
        raise NotImplementedError

    def process_row(self, i: int) -> object:
        raise NotImplementedError


class PrintedSpa(Printed):
    """Algorithm 1. `strong`: line 2 with "red or white" above instead of "red"."""

    def __init__(self, views: Iterable[str], strong: bool) -> None:
        super().__init__(views)
        self.above = ("red", "white") if strong else ("red",)

    def process_action(self, i: int, x: str) -> None:
        self.colour[i, x] = "red"
        self.process_row(i)

    def process_row(self, i: int) -> None:
        colour = self.colour
        if any(colour[i, x] == "white" for x in self.views):  # Line 1
            return
        red = [x for x in self.views if colour[i, x] == "red"]
        if any(colour[j, x] in self.above for x in red for j in self.rows if j < i):  # Line 2
            return
        for x in red:  # Line 3
            colour[i, x] = "gray"
        self.applied.append((i,))  # Line 4
        self.rows.remove(i)  # Line 6, before line 5 so that the recursion does not meet row i
        for x in red:  # Line 5
            if following := self.next_red(i, x):
                self.process_row(following)


class PrintedPa(Printed):
    """Algorithm 2 with ApplyRows shared across the recursion, as printed."""

    def __init__(self, views: Iterable[str]) -> None:
        super().__init__(views)
        self.apply_rows: list[int] = []

    def process_action(self, i: int, x: str) -> None:
        for j in self.rows:
            if j <= i and self.colour[j, x] == "white":
                self.colour[j, x] = "red"
                self.state[j, x] = i
        self.apply_rows = []
        self.process_row(i)

    def process_row(self, i: int) -> bool:
        colour, state = self.colour, self.state
        if i in self.apply_rows:  # Line 1
            return True
        if i not in self.rows:
            return True
        if any(colour[i, x] == "white" for x in self.views):  # Line 2
            return False
        self.apply_rows.append(i)  # Line 3
        for x in self.views:  # Line 4
            if colour[i, x] == "red":
                for j in [j for j in self.rows if j < i and colour[j, x] == "red"]:
                    if not self.process_row(j):
                        return False
        for x in self.views:  # Line 5
            if state[i, x] > i and not self.process_row(state[i, x]):
                return False
        rows = sorted(self.apply_rows)
        gray = []
        for j in rows:  # Line 6
            for x in self.views:
                if colour[j, x] == "red":
                    colour[j, x] = "gray"
                    gray.append((j, x))
        if rows:  # an inner call may have applied and emptied ApplyRows already
            self.applied.append(tuple(rows))  # Line 7
        self.apply_rows = []  # Line 8
        self.rows = [j for j in self.rows if j not in rows]  # Line 10
        for j, x in gray:  # Line 9
            if following := self.next_red(j, x):
                self.process_row(following)
        return True


class Closure:
    """The rows that must go together, by their definition, looked for again after every event.

    Rows of a view whose column has ended, which keep it or have lost it, keep their order.
    """

    def __init__(self, views: Iterable[str]) -> None:
        self.views = sorted(views)
        self.colour: dict[Cell, str] = {}
        self.state: dict[Cell, int] = {}
        self.rows: list[int] = []
        self.lists: list[tuple[str, int, int, bool]] = []
        self.suspended: dict[str, int] = {}
        self.lost: set[int] = set()
        self.applied: list[Group] = []

    def rel(self, i: int, views: Iterable[str], idle: Iterable[str] = ()) -> None:
        self.rows.append(i)
        if not self.suspended.keys().isdisjoint(views):
            self.lost.add(i)
        for x in self.views:
            black = x not in views or i > self.suspended.get(x, i)
            self.colour[i, x] = "black" if black else "red" if x in idle else "white"
            self.state[i, x] = i

    def action(self, x: str, first: int, last: int, complete: bool) -> None:
        self.lists.append((x, first, last, complete))

    def suspend(self, x: str, after: int) -> None:
        self.suspended[x] = after
        for i in self.rows:
            self.guard(i, x)
            if i > after:
                self.colour[i, x] = "black"

    def guard(self, i: int, x: str) -> None:
        """What a column stood for is an order still when the column ends."""
        if self.colour[i, x] != "black":
            self.lost.add(i)

    def guarded(self, i: int) -> bool:
        return i in self.lost

    def step(self) -> None:
        """Paints what the lists allow and applies every closure without a white cell."""
        for x, first, last, complete in self.lists:
            cells = [i for i in self.rows if first <= i <= last and self.colour[i, x] == "white"]
            for i in cells:
                self.colour[i, x] = "red"
                self.state[i, x] = i if complete else max(cells)
        while groups := [g for g in map(self.closure, self.rows) if g]:
            group = min(groups, key=lambda g: (len(g), g))
            self.applied.append(group)
            self.rows = [i for i in self.rows if i not in group]

    def closure(self, i: int) -> Group | None:
        together, queue = {i}, [i]
        while queue:
            j = queue.pop()
            colours = {x: self.colour[j, x] for x in self.views}
            if "white" in colours.values():
                return None
            for x in (x for x in self.views if colours[x] == "red"):
                for k in (*self.above(j, x), self.state[j, x]):
                    if k not in together:
                        together.add(k)
                        queue.append(k)
            if self.guarded(j):
                before = {k for k in self.rows if k < j and self.guarded(k)} - together
                together |= before
                queue += before
        return tuple(sorted(together))

    def above(self, i: int, x: str) -> list[int]:
        """The earlier rows of a column."""
        return [k for k in self.rows if k < i and self.colour[k, x] in ("red", "white")]
