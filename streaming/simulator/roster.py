"""Views that join the simulated group and leave it while it runs (painting-mvc 1.2; DESIGN 5).

At each cut the roster draws for each view whether it leaves or joins there. A view joins only where its
parents are, and leaves only where no child is left, one view always stays, and one that has left comes
back two numbers later at the earliest, or two blocks (`merge.changes`). Each time a view joins it gets
a manager of its own, at an address of its own, so that what is under way to or from an earlier one finds
that one or nobody.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.algebra.tree import relations
from streaming.merge.algorithms import Manager
from streaming.messages import ViewChange
from streaming.simulator.small_views import CaseCatalog, of_views

BEGAN = -1
"""Joined before number 0."""


@dataclass(frozen=True)
class Launch:
    """A manager that begins.

    Attributes:
        node: its address.
        number: of its view's initial state.
        parents: the addresses of the managers of the views it scans, each with the first number
            whose list it needs.
        views: the views that the group had before, those that came first first.
        said: what it says before its first list; None for those the group begins with.
    """

    node: str
    view: str
    number: int
    parents: Mapping[str, int]
    views: tuple[str, ...]
    said: ViewChange | None = None


@dataclass
class Roster:
    """Who is in the group.

    Args:
        catalog: all views that there can be.
        managers: what their managers send.
        rate: the probability of a change, for each view at each cut; 0 leaves the group as it is.

    Attributes:
        since: view -> the number at which it joined, -1 for those the group began with; those that
            came first first.
        left: view -> the number at which it last left.
    """

    group: str
    catalog: CaseCatalog
    managers: Mapping[str, Manager]
    rate: float
    rng: random.Random
    since: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._parents = {
            view.name: [name for name in relations(view.tree) if name in self.managers]
            for view in self.catalog.views
        }
        self._gap = 2 * max(manager.every or 1 for manager in self.managers.values())
        if not self.since:
            self._found()

    def _found(self) -> None:
        """The views that the group begins with: all, or some where it changes."""
        for view, parents in self._parents.items():
            stays = not self.rate or self.rng.random() < 0.6
            if stays and all(parent in self.since for parent in parents):
                self.since[view] = BEGAN
        if not self.since:
            self.since[next(iter(self._parents))] = BEGAN

    # Who is there ---------------------------------------------------------------------------------

    @property
    def views(self) -> tuple[str, ...]:
        """The views of the group, those that came first first."""
        return tuple(self.since)

    @property
    def present(self) -> CaseCatalog:
        """The catalog with the views of the group alone."""
        if len(self.since) == len(self.catalog.views):
            return self.catalog
        return of_views(self.catalog, tuple(sorted(self.since)))

    def node(self, view: str) -> str:
        """The address of a view's manager: "v", or "v+4" for one that joined at 4."""
        since = self.since[view]
        return view if since == BEGAN else f"{view}+{since}"

    def launch(self, change: ViewChange | str, views: tuple[str, ...]) -> Launch:
        """The manager of a view that joins, or (by name) that the group begins with.

        Args:
            views: the views that the group had before.
        """
        view, said = (change, None) if isinstance(change, str) else (change.view, change)
        since = self.since[view]
        number = max(since, 0)
        parents = {
            self.node(parent): number if self.since[parent] == since else number + 1
            for parent in self._parents[view]
        }
        return Launch(self.node(view), view, number, parents, views, said)

    def parents(self, view: str) -> list[str]:
        """The views that a view scans."""
        return self._parents[view]

    # Changes --------------------------------------------------------------------------------------

    def drawn(self, number: int) -> list[ViewChange]:
        """What changes at a cut, leavers first; children leave before and join after their parents."""
        if not self.rate:
            return []
        views = list(self._parents)
        picked = [view for view in views if self.rng.random() < self.rate]
        before = set(self.since)
        changes = [
            self._leaves(view, number)
            for view in reversed(picked)
            if view in before and len(self.since) > 1 and not self._has_children(view)
        ]
        changes += [
            self._joins(view, number)
            for view in picked
            if view not in before
            and number >= self.left.get(view, -self._gap) + self._gap
            and all(parent in self.since for parent in self._parents[view])
        ]
        return changes

    def _has_children(self, view: str) -> bool:
        return any(view in self._parents[child] for child in self.since)

    def _leaves(self, view: str, number: int) -> ViewChange:
        del self.since[view]
        self.left[view] = number
        return ViewChange(group=self.group, view=view, change="drop", number=number)

    def _joins(self, view: str, number: int) -> ViewChange:
        self.since[view] = number
        manager = self.managers[view]
        return ViewChange(
            group=self.group,
            view=view,
            change="add",
            number=number,
            manager=manager.sends,
            every=manager.every,
        )

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {"since": dict(self.since), "left": dict(self.left)}

    def restored(self, saved: Mapping[str, Any]) -> Roster:
        """A roster in the state that `snapshot` described."""
        return Roster(
            self.group,
            self.catalog,
            self.managers,
            self.rate,
            self.rng,
            dict(saved["since"]),
            dict(saved["left"]),
        )
