"""The stages of a pipeline that run in one driver: what each may remove, who comes and who goes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streaming.merge.machine import MergeMachine
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.stage_progress import Elsewhere, ViewProgress
from streaming.runtime.step import Stage
from streaming.service.members import Member, Members
from streaming.stages.asking_stage import AskingStage
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.merge_stage import MergeStage
from streaming.stages.rel_riding import RidingStage
from streaming.stages.view_stage import ViewStage
from streaming.viewchanges.announcements import refused_routing
from streaming.viewchanges.recovery import Recovery
from streaming.warehouse.snapshot import suspended_views

log = logging.getLogger("fresco")

ManagerStage = ViewStage | AskingStage | BrokenStage
"""A view manager's."""


@dataclass
class Stages:
    """The stages of a pipeline that run in this driver.

    Attributes:
        merges: by group.
        groups: merge group -> its views, of the whole pipeline, as they were at the start.
        children: a view -> the views that scan it.
        elsewhere: what the other stages' manifests say.
        members: the views that there are now.
        make: a view manager's stage.
        actions: merge group -> the topic of its action lists, where REL rides on these.
    """

    integrator: IntegratorStage | None
    views: list[ManagerStage]
    merges: dict[str, MergeStage]
    closers: list[Callable[[], object]]
    groups: Mapping[str, tuple[str, ...]]
    children: Callable[[str], tuple[str, ...]]
    elsewhere: Elsewhere
    members: Members
    make: Callable[[Member], ManagerStage]
    actions: Callable[[str], str] | None = None
    recovery: Recovery | None = None

    def stepped(self, stage: Stage) -> Stage:
        """What takes the steps of a stage: the stage, and what it sends with REL on it."""
        view = next((one.spec for one in self.views if one is stage), None)
        if view is None or self.actions is None:
            return stage
        return RidingStage(stage, view.view, self.groups[view.group], self.actions(view.group))

    def recover(self) -> None:
        """Let suspended views try to come back whose cause may be gone."""
        members = self.members
        if self.actions is not None:
            members.refuse_open(refused_routing())
            return
        if self.recovery is None:
            self.recovery = Recovery(members.warehouse, members.requests, members.spec)
        stopped = {one.spec.view: one for one in self.views if one.suspended is not None}
        if stopped:  # one that no commit has shown yet leaves, and does not come back
            there = {view.name for view in members.catalog().views}
            stopped = {view: one for view, one in stopped.items() if view in there}
        told: dict[str, int] = {}
        for group in {one.spec.group for one in stopped.values()}:
            told |= self._suspended(group)
        self.recovery.look(
            {
                view: one.suspended
                for view, one in stopped.items()
                if one.suspended and view in told
            },
            told,
        )

    def _suspended(self, group: str) -> Mapping[str, int]:
        """The views that the group's merge knows to be suspended; none where it has blocks."""
        here = self.merges.get(group)
        if here is None:
            return suspended_views(self.members.warehouse, group)
        return here.machine.suspended if isinstance(here.machine, MergeMachine) else {}

    def join(self, member: Member) -> ManagerStage:
        """A view manager's stage more."""
        stage = self.make(member)
        self.views.append(stage)
        return stage

    def instead(self, stage: Stage, error: BaseException) -> BrokenStage | None:
        """What takes the place of a view's stage that cannot go on; None of any other stage's.

        Args:
            error: why; no view's own unless `of_its_view` says so, or it came too often.
        """
        if not isinstance(stage, ViewStage | AskingStage):
            return None
        own = of_its_view(error, stage.spec.view)
        found = None if own is None else stage.broken(own)
        if found is not None:
            log.error("view %s cannot go on", stage.spec.view, exc_info=error)
            self.views[self.views.index(stage)] = found
            if isinstance(stage, AskingStage):
                stage.close()
        return found

    def now(self, stage: Stage) -> Stage:
        """The stage, or what has taken its place."""
        return next((one for one in self.views if one.name == stage.name), stage)

    def leave(self, name: str) -> None:
        """A view manager's stage less; it has stopped."""
        for stage in [one for one in self.views if one.name == name]:
            self.views.remove(stage)
            if isinstance(stage, AskingStage):
                stage.close()

    def collect(self) -> None:
        """Remove staged files that every consumer has passed.

        A view that has left its group reads none of them any more: one that comes back has a stage of
        its own, which takes what it needs from `_updates` up to its cut, and of the messages only those
        after the cut. So where all have left, all may go that is in `_updates`; and what is numbered
        while a view is to come back stays, from its request on. The number is looked up before the
        requests are: what it covers was published before those that are not seen yet were made.
        """
        numbered = self.integrator.numbered if self.integrator is not None else -1
        wanted = set(self.members.wanted())
        for view in self.views:
            over = {f"view:{child}" for child in self.children(view.spec.view)}
            children = [self._progress(name) for name in over & wanted]
            read = [one.handled for one in children if not one.suspended]
            view.collect(min([self._published(view.spec.group), *read]))
        if self.integrator is None:
            return
        views = [self._progress(name) for name in sorted(wanted)]
        unpublished = [self._published(group) + 1 for group in self.groups]
        handled = [view.handled for view in views if not view.suspended]
        needed = [*(view.needed for view in views), *unpublished]
        self.integrator.collect(min([numbered, *handled]), min(needed, default=0))

    def _progress(self, name: str) -> ViewProgress:
        here = next((one for one in self.views if one.name == name), None)
        if here is None:
            return self.elsewhere.view(name)
        return ViewProgress(here.handled, here.needed, here.left)

    def _published(self, group: str) -> int:
        here = self.merges.get(group)
        return self.elsewhere.published(f"merge:{group}") if here is None else here.published

    def close(self) -> None:
        """Close writers."""
        for close in self.closers:
            close()
