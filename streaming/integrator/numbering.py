"""The order of a window of transactions from several sources, with global ones in it (DESIGN 6).

A global transaction has parts at several sources and gets one number. As long as the sources' logs
agree on the order of the global transactions, log order is kept: each source's log is walked until a
part, which waits for its siblings to come to the head of theirs. Where logs disagree, the transactions
of each knot (a strongly connected component of log order) are ordered anew by what they touch: only
transactions that share a (relation, key) keep their order, the others commute. What still forms a
cycle becomes one unit with one number.

Transactions are (source, ordinal); ordinals of one source are its log order. Local transactions are
handled as runs, except inside a knot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from streaming.integrator.knots import (
    Item,
    Keys,
    LocalRun,
    Member,
    NumberedUnit,
    strongly_connected,
    untie,
)


class Window(NamedTuple):
    """What is to be ordered.

    Attributes:
        logs: per source, its (first, last) ordinals.
        parts: global id -> its members, all inside the logs.
        skip: ordinals that have a number already.
    """

    logs: Mapping[str, tuple[int, int]]
    parts: Mapping[str, tuple[Member, ...]]
    skip: Mapping[str, frozenset[int]]


def components(parts: Mapping[str, Sequence[Member]]) -> list[NumberedUnit]:
    """Global transactions that share a part are one unit."""
    owner: dict[Member, int] = {}
    groups: dict[int, tuple[set[Member], set[str]]] = {}
    for number, (id_, members) in enumerate(sorted(parts.items())):
        together, ids = set(members), {id_}
        for group in {owner[m] for m in members if m in owner}:
            other_members, other_ids = groups.pop(group)
            together |= other_members
            ids |= other_ids
        groups[number] = (together, ids)
        for member in together:
            owner[member] = number
    return [NumberedUnit(tuple(sorted(m)), tuple(sorted(i))) for m, i in groups.values()]


def order(window: Window, keys: Keys) -> list[Item]:
    """The window's transactions in a serial order equivalent to every source's log.

    Returns:
        Runs and units; units of more than one global transaction are knots.
    """
    if not window.parts and not window.skip:
        return [
            LocalRun(source, first, last) for source, (first, last) in sorted(window.logs.items())
        ]
    units = components(window.parts)
    heads = _Heads(window, units)
    items = heads.walk()
    if heads.finished:
        return items
    for knot in heads.knots():
        if len(knot) == 1:
            items.append(knot[0])
        else:
            items += untie(knot, keys)
    return items


class _Heads:
    """The sources' logs, each walked as far as log order allows."""

    def __init__(self, window: Window, units: list[NumberedUnit]) -> None:
        self._units = units
        at: dict[str, list[tuple[int, int | None]]] = {source: [] for source in window.logs}
        for index, unit in enumerate(units):
            for source, ordinal in unit.members:
                at[source].append((ordinal, index))
        self._segments = {
            source: _segments(first, last, at[source], window.skip.get(source, frozenset()), source)
            for source, (first, last) in sorted(window.logs.items())
        }
        self._position = dict.fromkeys(self._segments, 0)

    @property
    def finished(self) -> bool:
        return all(self._position[s] == len(segs) for s, segs in self._segments.items())

    def walk(self) -> list[Item]:
        items: list[Item] = []
        missing = [len(unit.members) for unit in self._units]
        ready = list(self._segments)
        while ready:
            source = ready.pop(0)
            segments = self._segments[source]
            while self._position[source] < len(segments):
                segment = segments[self._position[source]]
                if isinstance(segment, LocalRun):
                    items.append(segment)
                    self._position[source] += 1
                    continue
                missing[segment] -= 1
                if missing[segment] > 0:
                    break
                unit = self._units[segment]
                items.append(unit)
                # Parts of one unit at one source may follow each other directly only.
                for other in dict.fromkeys(s for s, _ in unit.members):
                    self._position[other] += 1
                    if other != source:
                        ready.append(other)
        return items

    def knots(self) -> list[list[Item]]:
        """The rest, as strongly connected components of log order, first ones first."""
        nodes: dict[int | LocalRun, None] = {}
        edges: dict[int | LocalRun, list[int | LocalRun]] = {}
        for source, segments in self._segments.items():
            rest = segments[self._position[source] :]
            for node in rest:
                nodes.setdefault(node)
                edges.setdefault(node, [])
            for before, after in pairwise(rest):
                if before != after:
                    edges[before].append(after)
        rank = {node: place for place, node in enumerate(nodes)}
        graph = {rank[n]: [rank[m] for m in edges[n]] for n in nodes}
        names = list(nodes)
        return [
            [names[p] if isinstance(names[p], LocalRun) else self._units[names[p]] for p in knot]  # type: ignore[index, misc]
            for knot in strongly_connected(graph)
        ]


def _segments(
    first: int, last: int, parts: list[tuple[int, int | None]], skip: frozenset[int], source: str
) -> list[LocalRun | int]:
    """A source's log as runs of local transactions and indices of units."""
    breaks = sorted([*parts, *((ordinal, None) for ordinal in skip if first <= ordinal <= last)])
    segments: list[LocalRun | int] = []
    start = first
    for ordinal, unit in breaks:
        if ordinal > start:
            segments.append(LocalRun(source, start, ordinal - 1))
        if unit is not None:
            segments.append(unit)
        start = ordinal + 1
    if start <= last:
        segments.append(LocalRun(source, start, last))
    return segments
