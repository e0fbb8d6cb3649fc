"""Which numbers are reflected, and what the REL messages below the frontier said (DESIGN 5)."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streaming.messages import Rel


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint ranges, ascending, with neighbours joined."""
    result: list[tuple[int, int]] = []
    begin, end = 0, -2
    for first, last in sorted(ranges):
        if first > end + 1:
            if end >= begin:
                result.append((begin, end))
            begin, end = first, last
        elif last > end:
            end = last
    if end >= begin:
        result.append((begin, end))
    return result


class Covered:
    """The numbers already reflected: everything up to `frontier`, and `ahead` of it some ranges."""

    def __init__(self, frontier: int = -1, ahead: Sequence[tuple[int, int]] = ()) -> None:
        self.frontier = frontier
        self.ahead = list(ahead)

    def add(self, first: int, last: int) -> None:
        """Adds a range of which nothing is covered yet."""
        ahead = self.ahead
        if first == self.frontier + 1:
            self.frontier = last
            done = 0
            while done < len(ahead) and ahead[done][0] == self.frontier + 1:
                self.frontier = ahead[done][1]
                done += 1
            del ahead[:done]
            return
        at = bisect_left(ahead, (first, last))
        if at < len(ahead) and ahead[at][0] == last + 1:
            last = ahead.pop(at)[1]
        if at and ahead[at - 1][1] == first - 1:
            ahead[at - 1] = (ahead[at - 1][0], last)
        else:
            ahead.insert(at, (first, last))


class OpenRel(NamedTuple):
    """What is kept of a REL message until the frontier has passed it."""

    last: int
    positions: dict[str, str]
    committed_ms: int | None


class RelLog:
    """The REL messages that are not wholly below the frontier, and what the last of those said."""

    def __init__(
        self,
        open_: Iterable[OpenRel] = (),
        closed: int = -1,
        positions: Mapping[str, str] | None = None,
        released: Iterable[tuple[int, tuple[str, ...]]] = (),
    ) -> None:
        self.open = deque(open_)
        self.cuts = deque(rel.last for rel in self.open)
        self.closed = closed
        """The cut of the last message below the frontier."""
        self.positions = dict(positions or {})
        self.released = deque(released)
        """(first number of the message, ids) not yet in a batch."""

    def add(self, rel: Rel) -> None:
        """Keeps the message's facts; its runs go into the table."""
        self.open.append(OpenRel(rel.last, rel.positions, rel.committed_ms))
        self.cuts.append(rel.last)
        if rel.released:
            self.released.append((rel.first, rel.released))

    def cut_after(self, number: int) -> int:
        """The first cut at or after a number that a REL has named."""
        if number <= self.closed:
            return self.closed
        return self.cuts[bisect_left(self.cuts, number)]

    def take_released(self, newest: int) -> tuple[str, ...]:
        """Ids not told yet, of messages that a batch up to `newest` begins to apply."""
        names: tuple[str, ...] = ()
        while self.released and self.released[0][0] <= newest:
            names += self.released.popleft()[1]
        return names

    def close(self, frontier: int) -> int | None:
        """Forgets the messages at or below the frontier; their newest commit time."""
        times = []
        while self.open and self.open[0].last <= frontier:
            rel = self.open.popleft()
            self.closed = self.cuts.popleft()
            self.positions = self.positions | rel.positions
            if rel.committed_ms is not None:
                times.append(rel.committed_ms)
        return max(times, default=None)
