"""PyCo on random graphs, against all partitions of small ones (ryco-pyco, theorems 2 and 3)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

import pytest

from streaming.pipeline.costs import Rates, formula_6, pyco_costs, ryco
from streaming.pipeline.merge_groups import merge_groups, spanning
from streaming.pipeline.pyco import ViewGraph, pyco, view_graph


def some_graph(rng: random.Random, views: int, bases: int) -> ViewGraph:
    """Views over one to three earlier names each."""
    known = [f"B{i}" for i in range(1, bases + 1)]
    vpl = {}
    for i in range(1, views + 1):
        vpl[f"V{i}"] = rng.sample(known, min(len(known), rng.choice((1, 1, 2, 2, 3))))
        known.append(f"V{i}")
    return view_graph(vpl)


def partitions(views: tuple[str, ...]) -> Iterator[list[frozenset[str]]]:
    """All of them."""
    if not views:
        yield []
        return
    for rest in partitions(views[1:]):
        yield [frozenset(views[:1]), *rest]
        for i, group in enumerate(rest):
            yield [*rest[:i], group | {views[0]}, *rest[i + 1 :]]


@lru_cache(maxsize=16)
def all_partitions(views: tuple[str, ...]) -> list[frozenset[frozenset[str]]]:
    return [frozenset(partition) for partition in partitions(views)]


@pytest.mark.parametrize("seed", range(8))
def test_the_partition_is_valid_and_the_only_one_with_the_most_groups(seed: int) -> None:
    for history in range(40):
        rng = random.Random(f"{seed} {history}")
        graph = some_graph(rng, views=rng.randrange(1, 7), bases=rng.randrange(1, 5))
        found = pyco(graph)
        where = f"seed {seed} {history}: {dict(graph.vpl)}"
        assert sorted(view for group in found for view in group) == sorted(graph.views), where
        valid = [p for p in all_partitions(graph.views) if all(map(graph.valid, p))]
        most = max(map(len, valid))
        assert [p for p in valid if len(p) == most] == [frozenset(found)], where
        for partition in valid:
            finer = {view: group for group in found for view in group}
            assert all(finer[view] <= group for group in partition for view in group), where


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_work_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    graph = some_graph(rng, views=12, bases=5)
    first = pyco(graph)
    for _ in range(5):
        order = list(graph.views)
        rng.shuffle(order)
        assert set(pyco(graph, order=order)) == set(first), f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_formula_6_is_never_positive_and_is_the_difference_of_m_v(seed: int) -> None:
    rng = random.Random(seed)
    graph = some_graph(rng, views=9, bases=5)
    rates = Rates({base: rng.randrange(100) for base in graph.bases}, rng.random())
    whole = ryco(graph, rates)
    for partition in (pyco(graph), (frozenset(graph.views),)):
        parts, saved = pyco_costs(graph, partition, rates), formula_6(graph, partition, rates)
        assert saved <= 0, f"seed {seed}"
        assert saved == parts.views - whole.views, f"seed {seed}"
        for view in graph.views:
            later = parts.group_level[view] * rates.transmission
            assert parts.delay[view] == pytest.approx(whole.delay[view] + later), f"seed {seed}"
    assert pyco_costs(graph, (frozenset(graph.views),), rates).registry == whole.registry


@pytest.mark.parametrize("seed", range(40))
def test_spans_stay_together_in_the_least_valid_groups(seed: int) -> None:
    rng = random.Random(seed)
    graph = some_graph(rng, views=6, bases=4)
    span = rng.sample(graph.bases, min(2, len(graph.bases)))
    used = {view: graph.base_ancestors[view] for view in graph.views}
    groups = merge_groups(used, "atomic", [span], scans=graph.vpl)
    found = frozenset(frozenset(group.views) for group in groups)
    together = {view for view in graph.views if used[view] & set(span)}
    possible = [
        p
        for p in all_partitions(graph.views)
        if all(map(graph.valid, p)) and any(together <= group for group in p)
    ]
    assert found in possible, f"seed {seed}"
    assert len(found) == max(map(len, possible)), f"seed {seed}"
    assert len(spanning(groups, span)) == 1, f"seed {seed}"
    for group in groups:
        assert set(group.virtual_bases) == graph.group_bases(group.views) & set(graph.views)
