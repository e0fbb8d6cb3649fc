"""Knots: transactions whose order the logs contradict, ordered by what they touch (DESIGN 6).

Only transactions of one source that share a (relation, key) must keep their order; the others commute.
What still forms a cycle becomes one unit with one number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


class LocalRun(NamedTuple):
    """Local transactions first..last of a source, in order, a number each."""

    source: str
    first: int
    last: int


@dataclass(frozen=True)
class NumberedUnit:
    """Transactions under one number: a global one, or a knot that cannot be untied."""

    members: tuple[Member, ...]
    globals: tuple[str, ...]


Item = LocalRun | NumberedUnit


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
    before, after = ordinal[:-1][next_to], ordinal[1:][next_to]
    sequence = np.lexsort((after, before))
    before, after = before[sequence], after[sequence]
    once = np.ones(len(before), bool)
    once[1:] = (before[1:] != before[:-1]) | (after[1:] != after[:-1])
    return before[once], after[once]


def untie(knot: list[Item], keys: Keys) -> list[Item]:
    """Order a knot by keys; transactions that still form a cycle become one unit."""
    node: dict[Member, int] = {}
    items: list[Item] = []
    for item in knot:
        if isinstance(item, NumberedUnit):
            node.update(dict.fromkeys(item.members, len(items)))
            items.append(item)
        else:
            for ordinal in range(item.first, item.last + 1):
                node[(item.source, ordinal)] = len(items)
                items.append(LocalRun(item.source, ordinal, ordinal))
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
        if isinstance(item, NumberedUnit):
            members += item.members
            ids += item.globals
        else:
            members.append((item.source, item.first))
    return NumberedUnit(tuple(sorted(members)), tuple(sorted(ids)))
