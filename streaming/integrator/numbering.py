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

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Member = tuple[str, int]
"""A local transaction: source and ordinal."""


@dataclass(frozen=True)
class Touched:
    """Which transactions touch which keys, as parallel arrays; `key` codes (relation, key)."""

    ordinal: np.ndarray
    key: np.ndarray


Keys = Callable[[str, int, int], Touched]
"""(source, first ordinal, last ordinal) -> what they touch; asked only for knots."""


@dataclass(frozen=True)
class Run:
    """Local transactions first..last of a source, in order, a number each."""

    source: str
    first: int
    last: int


@dataclass(frozen=True)
class Unit:
    """Transactions under one number: a global one, or a knot that cannot be untied."""

    members: tuple[Member, ...]
    globals: tuple[str, ...]


Item = Run | Unit


@dataclass(frozen=True)
class Window:
    """What is to be ordered.

    Attributes:
        logs: per source, its (first, last) ordinals.
        parts: global id -> its members, all inside the logs.
        skip: ordinals that have a number already.
    """

    logs: Mapping[str, tuple[int, int]]
    parts: Mapping[str, tuple[Member, ...]]
    skip: Mapping[str, frozenset[int]]


def components(parts: Mapping[str, Sequence[Member]]) -> list[Unit]:
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
    return [Unit(tuple(sorted(m)), tuple(sorted(i))) for m, i in groups.values()]


def order(window: Window, keys: Keys) -> list[Item]:
    """The window's transactions in a serial order equivalent to every source's log.

    Returns:
        Runs and units; units of more than one global transaction are knots.
    """
    units = components(window.parts)
    heads = _Heads(window, units)
    items = heads.walk()
    if heads.finished:
        return items
    for knot in heads.knots():
        if len(knot) == 1:
            items.append(knot[0])
        else:
            items += _untie(knot, keys)
    return items


class _Heads:
    """The sources' logs, each walked as far as log order allows."""

    def __init__(self, window: Window, units: list[Unit]) -> None:
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
                if isinstance(segment, Run):
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
        nodes: dict[int | Run, None] = {}
        edges: dict[int | Run, list[int | Run]] = {}
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
            [names[p] if isinstance(names[p], Run) else self._units[names[p]] for p in knot]  # type: ignore[index, misc]
            for knot in strongly_connected(graph)
        ]


def _segments(
    first: int, last: int, parts: list[tuple[int, int | None]], skip: frozenset[int], source: str
) -> list[Run | int]:
    """A source's log as runs of local transactions and indices of units."""
    breaks = sorted([*parts, *((ordinal, None) for ordinal in skip if first <= ordinal <= last)])
    segments: list[Run | int] = []
    start = first
    for ordinal, unit in breaks:
        if ordinal > start:
            segments.append(Run(source, start, ordinal - 1))
        if unit is not None:
            segments.append(unit)
        start = ordinal + 1
    if start <= last:
        segments.append(Run(source, start, last))
    return segments


def strongly_connected(graph: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Tarjan's components, each sorted, in topological order; iterative, so depth has no limit."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in number:
                    number[successor] = low[successor] = len(number)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph[successor])))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], number[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(sorted(component))
    return found[::-1]


def conflicts(touched: Touched) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (earlier, later) of transactions of one source that touch a key one after the other."""
    if not len(touched.key):
        return touched.ordinal, touched.ordinal
    sequence = np.lexsort((touched.ordinal, touched.key))
    key, ordinal = touched.key[sequence], touched.ordinal[sequence]
    next_to = (key[1:] == key[:-1]) & (ordinal[1:] != ordinal[:-1])
    pairs = np.unique(np.stack([ordinal[:-1][next_to], ordinal[1:][next_to]], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _untie(knot: list[Item], keys: Keys) -> list[Item]:
    """Order a knot by keys; transactions that still form a cycle become one unit."""
    node: dict[Member, int] = {}
    items: list[Item] = []
    for item in knot:
        if isinstance(item, Unit):
            node.update(dict.fromkeys(item.members, len(items)))
            items.append(item)
        else:
            for ordinal in range(item.first, item.last + 1):
                node[(item.source, ordinal)] = len(items)
                items.append(Run(item.source, ordinal, ordinal))
    graph: dict[int, list[int]] = {index: [] for index in range(len(items))}
    for source in sorted({source for source, _ in node}):
        ordinals = [ordinal for s, ordinal in node if s == source]
        touched = keys(source, min(ordinals), max(ordinals))
        mine = np.isin(touched.ordinal, np.array(ordinals))
        befores, afters = conflicts(Touched(touched.ordinal[mine], touched.key[mine]))
        for before, after in zip(befores.tolist(), afters.tolist(), strict=True):
            a, b = node[(source, before)], node[(source, after)]
            if a != b:
                graph[a].append(b)
    return _topological(items, strongly_connected(graph), graph)


def _topological(
    items: list[Item], knots: list[list[int]], graph: Mapping[int, list[int]]
) -> list[Item]:
    """Components in topological order, the earliest in the logs first among the free ones."""
    owner = {index: number for number, knot in enumerate(knots) for index in knot}
    waiting = [0] * len(knots)
    after: list[set[int]] = [set() for _ in knots]
    for index, successors in graph.items():
        for successor in successors:
            a, b = owner[index], owner[successor]
            if a != b and b not in after[a]:
                after[a].add(b)
                waiting[b] += 1
    free = [(min(knots[n]), n) for n in range(len(knots)) if not waiting[n]]
    heapq.heapify(free)
    result: list[Item] = []
    while free:
        _, number = heapq.heappop(free)
        result.append(_merged([items[index] for index in knots[number]]))
        for successor in after[number]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(free, (min(knots[successor]), successor))
    return result


def _merged(items: list[Item]) -> Item:
    if len(items) == 1:
        return items[0]
    members: list[Member] = []
    ids: list[str] = []
    for item in items:
        if isinstance(item, Unit):
            members += item.members
            ids += item.globals
        else:
            members.append((item.source, item.first))
    return Unit(tuple(sorted(members)), tuple(sorted(ids)))
