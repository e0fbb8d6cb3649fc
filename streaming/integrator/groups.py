"""Merge groups: which views move together (MVC 6.1 and 6.2; DESIGN 5, Groups).

`single` puts all views in one group, so that every source transaction is whole at every reader.
`disjoint` splits them into the connected components of "shares a base relation"; `spans` keep relations
together that transactions update together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Group:
    """A merge group: its views and all base relations they use, both sorted."""

    name: str
    views: tuple[str, ...]
    relations: tuple[str, ...]


def merge_groups(
    views: Mapping[str, Iterable[str]],
    grouping: Literal["single", "disjoint"] = "single",
    spans: Sequence[Sequence[str]] = (),
    name: str = "main",
    apart: Collection[str] = (),
) -> tuple[Group, ...]:
    """The merge groups of a pipeline.

    Args:
        views: view -> base relations it uses, directly or through other views.
        grouping: see above.
        spans: sets of relations that stay in one group (`transactions_span`).
        name: of the single group; a disjoint one is called `<name>_<its first view>`.
        apart: views with a group each: convergent ones, which no other should wait for (MVC 6.3).
    """
    if alone := sorted(view for view in views if view in apart):
        rest = {view: used for view, used in views.items() if view not in apart}
        own = [Group(f"{name}_{v}", (v,), tuple(sorted(set(views[v])))) for v in alone]
        return (*(merge_groups(rest, grouping, spans, name) if rest else ()), *own)
    if grouping == "single":
        relations = sorted({r for used in views.values() for r in used})
        return (Group(name, tuple(sorted(views)), tuple(relations)),)
    parent: dict[str, str] = {}

    def root(item: str) -> str:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for together in [*views.values(), *spans]:
        names = sorted(together)
        for relation in names:
            parent[root(relation)] = root(names[0])
    members: dict[str, list[str]] = {}
    for view in sorted(views):
        used = sorted(views[view])
        members.setdefault(root(used[0]) if used else f" {view}", []).append(view)
    return tuple(
        Group(
            f"{name}_{inside[0]}",
            tuple(inside),
            tuple(sorted({r for view in inside for r in views[view]})),
        )
        for inside in members.values()
    )


def spanning(groups: Sequence[Group], relations: Iterable[str]) -> tuple[str, ...]:
    """The groups that a transaction on `relations` touches; more than one breaks G3 for it."""
    changed = set(relations)
    return tuple(group.name for group in groups if changed.intersection(group.relations))
