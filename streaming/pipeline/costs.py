"""What an order of updates costs: one registry (RyCo) or one per group (PyCo) (ryco-pyco 5).

Messages: M_r, DU-ids from bases to registries; M_v, ordered DU-ids from registries to views. (M_d and
M_q, the updates themselves and queries, are the same for both.) Delay: from an update at a base until a
view shows it. In Fresco a registry is a merge group's numbering; a message is one number for one view.

How the paper is read where it is ambiguous or wrong:

* m_i counts all real group-bases of group i, also those that other groups read too: hence ">= k*m".
  f_i counts the updates from virtual bases, one for each update of each of their base-ancestors.
* "If the groups have no common real-bases, then there is the same amount of messages" (5.1, comparing
  M_r) needs that there are no virtual bases either, as the summary below it says. Smallest case: V1 over
  B, V2 over V1: two groups, B is a base of one only, and B's updates go to two registries.
* The inner sum of M_r's second case runs over j, not i.
* Definition 12 counts external bases of both kinds. Then V1 and V2 over one base B, two groups, would
  have levels 0 and 1 by the choice of who draws B inside, though B tells both registries at once. The
  delay j * t_t is that of updates which pass through other groups first, so virtual bases alone count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streaming.pipeline.pyco import ViewGraph

Group = frozenset[str]


@dataclass(frozen=True)
class Rates:
    """What is measured.

    Attributes:
        updates: k_j: base -> data updates in the time looked at; a base that lacks has none.
        transmission: t_t: between any two sites, in any unit of time.
        compute: t_v: view -> time to compute a delta.
        wait: t_w: view -> time that a delta waits before that.
    """

    updates: Mapping[str, float]
    transmission: float = 0.0
    compute: Mapping[str, float] = field(default_factory=dict)
    wait: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Costs:
    """The costs of one choice of groups.

    Attributes:
        registry: M_r.
        views: M_v.
        group_level: of each view's group (definition 12).
        delay: T_i of each view.
    """

    registry: float
    views: float
    group_level: Mapping[str, int]
    delay: Mapping[str, float]


def ryco(graph: ViewGraph, rates: Rates) -> Costs:
    """One registry for all: M_r = K, M_v = K * n (5.1, case 2)."""
    total = sum(_updates(rates, base) for base in graph.bases)
    delay = {view: _delay(graph, rates, view) for view in graph.views}
    return Costs(total, total * len(graph.views), dict.fromkeys(graph.views, 0), delay)


def pyco_costs(graph: ViewGraph, partition: Iterable[Group], rates: Rates) -> Costs:
    """A registry for each group: M_r = sum of r_i, M_v = sum of r_i * n_i (5.1, case 2).

    r_i = f_i + sum over j of k_ij are the updates that registry i orders.
    """
    groups = tuple(partition)
    ordered = {group: group_updates(graph, group, rates) for group in groups}
    of_view = {view: group for group in groups for view in group}
    levels = {view: 0 for view in graph.views}
    for view in sorted(graph.views, key=graph.level.__getitem__):
        levels[view] = _group_level(graph, of_view, of_view[view])
    return Costs(
        sum(ordered.values()),
        sum(count * len(group) for group, count in ordered.items()),
        levels,
        {v: _delay(graph, rates, v) + levels[v] * rates.transmission for v in graph.views},
    )


def group_updates(graph: ViewGraph, group: Group, rates: Rates) -> float:
    """f_i + sum over j of k_ij: the updates of a group's virtual and real bases."""
    return sum(
        _updates(rates, base)
        for gb in graph.group_bases(group)
        for base in graph.base_ancestors[gb]
    )


def formula_6(graph: ViewGraph, partition: Iterable[Group], rates: Rates) -> float:
    """Delta M = sum over i of n_i * (f_i + k*m_i - k*m): M_v of PyCo less M_v of RyCo.

    Never positive for a valid partition: its group-bases are independent, so no update is counted
    twice in a group, and f_i + k*m_i is at most k*m.
    """
    total = sum(_updates(rates, base) for base in graph.bases)
    return sum(len(group) * (group_updates(graph, group, rates) - total) for group in partition)


def _updates(rates: Rates, base: str) -> float:
    return rates.updates.get(base, 0)


def _delay(graph: ViewGraph, rates: Rates, view: str) -> float:
    """T_i = (i + 1) * t_t + sum of t_vk + sum of t_wk along the slowest way up to the view (5.2)."""

    def work(one: str) -> float:
        if one not in graph.vpl:
            return 0.0
        below = max((work(parent) for parent in graph.vpl[one]), default=0.0)
        return below + rates.compute.get(one, 0.0) + rates.wait.get(one, 0.0)

    return (graph.level[view] + 1) * rates.transmission + work(view)


def _group_level(
    graph: ViewGraph,
    of_view: Mapping[str, Group],
    group: Group,
    seen: frozenset[Group] = frozenset(),
) -> int:
    """Definition 12 over the virtual bases; groups that feed each other (`pyco`) count once."""
    seen |= {group}
    above = {of_view[base] for base in graph.group_bases(group) if base in of_view} - seen
    return max((_group_level(graph, of_view, other, seen) + 1 for other in above), default=0)
