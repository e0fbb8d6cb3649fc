"""Which places of a view can be joined with which: the graph that `next_source` walks (strobe-family 5).

Two places are neighbours when something that must hold names columns of exactly these two: rows known
at one of them then tell which rows of the other are wanted, so the other need not be shipped whole. A
condition over three places or more says nothing until all but one are known, so it makes no edge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from streaming.algebra.psj import Psj
from streaming.scalars.expression import columns_used

JoinGraph = Mapping[int, frozenset[int]]
"""Place -> its neighbours."""


@lru_cache(maxsize=1024)
def join_graph(psj: Psj) -> JoinGraph:
    """The neighbours of every place of a view."""
    edges: dict[int, set[int]] = {place: set() for place in psj.places}
    pairs = [frozenset(map(psj.place_at, pair)) for pair in psj.on]
    pairs += [frozenset(map(psj.place_at, columns_used(c))) for c in psj.conditions]
    for pair in pairs:
        if len(pair) == 2:
            a, b = pair
            edges[a].add(b)
            edges[b].add(a)
    return {place: frozenset(near) for place, near in edges.items()}


def adjacent(graph: JoinGraph, some: Collection[int], others: Collection[int]) -> bool:
    """Whether a place of `some` is a neighbour of a place of `others`."""
    return any(not graph[place].isdisjoint(others) for place in some)
