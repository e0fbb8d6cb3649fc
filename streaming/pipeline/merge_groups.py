"""Merge groups: which views move together (MVC 6.1 and 6.2; DESIGN 5, Groups).

`single` puts all views in one group, so that every source transaction is whole at every reader.
`disjoint` splits them into the connected components of "shares a base relation". `atomic` splits further,
into PyCo's atomic groups (ryco-pyco 4): each view is at one state of each of its bases, but groups that
read the same base may show different ones. `spans` keep relations together that transactions update
together. Views over views inherit what they are made of, so only `atomic` parts a view from its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streaming.pipeline.pyco import pyco, view_graph

Grouping = Literal["single", "disjoint", "atomic"]


@dataclass(frozen=True)
class Group:
    """A merge group: its views and all base relations they use, both sorted.

    Attributes:
        virtual_bases: views of other groups that its views scan: their lists come from there, and its
            updates' REL must name them too.
    """

    name: str
    views: tuple[str, ...]
    relations: tuple[str, ...]
    virtual_bases: tuple[str, ...] = ()


def merge_groups(
    views: Mapping[str, Iterable[str]],
    grouping: Grouping = "single",
    spans: Sequence[Sequence[str]] = (),
    name: str = "main",
    scans: Mapping[str, Iterable[str]] | None = None,
) -> tuple[Group, ...]:
    """The merge groups of a pipeline.

    Args:
        views: view -> base relations it uses, directly or through other views.
        grouping: see above.
        spans: sets of relations that stay in one group (`transactions_span`).
        name: of the single group; another is called `<name>_<its first view>`.
        scans: for `atomic`, view -> the relations and views that it scans itself; by default `views`.
    """
    used = {view: frozenset(found) for view, found in views.items()}
    if grouping == "single":
        relations = sorted({r for found in used.values() for r in found})
        return (Group(name, tuple(sorted(used)), tuple(relations)),)
    scanned = used if scans is None else scans
    graph = view_graph({view: sorted(scanned[view]) for view in sorted(used)})
    parts: Iterable[Iterable[str]]
    if grouping == "disjoint":
        parts = _components(used, spans)
    else:
        parts = pyco(graph, [[v for v in used if used[v] & set(span)] for span in spans])
    return tuple(
        Group(
            f"{name}_{min(part)}",
            tuple(sorted(part)),
            tuple(sorted({r for view in part for r in used[view]})),
            tuple(sorted(graph.group_bases(part) & used.keys())),
        )
        for part in sorted(map(frozenset, parts), key=min)
    )


def _components(
    used: Mapping[str, frozenset[str]], spans: Sequence[Sequence[str]]
) -> Iterable[Iterable[str]]:
    """The connected components of "shares a base relation"."""
    parent: dict[str, str] = {}

    def root(item: str) -> str:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for together in [*used.values(), *spans]:
        names = sorted(together)
        for relation in names:
            parent[root(relation)] = root(names[0])
    members: dict[str, list[str]] = {}
    for view, found in used.items():
        members.setdefault(root(min(found)) if found else f" {view}", []).append(view)
    return members.values()


def groups_apart(views: Mapping[str, Iterable[str]], name: str = "main") -> tuple[Group, ...]:
    """A group for each view: convergent ones, which no other view should wait for (MVC 6.3)."""
    return tuple(
        Group(f"{name}_{view}", (view,), tuple(sorted(set(used))))
        for view, used in sorted(views.items())
    )


def spanning(groups: Sequence[Group], relations: Iterable[str]) -> tuple[str, ...]:
    """The groups that a transaction on `relations` touches; more than one breaks G3 for it."""
    changed = set(relations)
    return tuple(group.name for group in groups if changed.intersection(group.relations))
