"""REL that rides on action lists: what stands between a view manager's stage and its steps (MVC 3.2).

With `rel: with-actions` the integrator sends REL to the view managers only (`Updates.rel`), and they pass
it on to the merge with their lists (`viewmanagers.forwarding`). That needs nothing of a manager's stage:
this one reads the same messages beside it and adds to what it sends. Both are in one manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streaming.errors import FrescoError
from streaming.messages import ActionList, Suspend, Updates, ViewChange
from streaming.runtime.inbox import Inbox
from streaming.runtime.manifests import Manifest
from streaming.runtime.snapshots import Riding, ViewState, view_state
from streaming.runtime.step import Halting, Stage, StepResult
from streaming.viewmanagers.forwarding import Forwarding

INTEGRATOR = "integrator"
"""The producer that is listened to."""
KEY = "forwarding"
"""Of this stage's part of a snapshot."""


class RidingStage:
    """A view manager's stage whose lists bring REL along.

    Args:
        stage: the manager's own.
        view: its view.
        views: the group's views.
        actions: the topic that takes REL on.
    """

    def __init__(self, stage: Stage, view: str, views: tuple[str, ...], actions: str) -> None:
        self.name = stage.name
        self._stage, self._view, self._views = stage, view, views
        self._actions = actions
        self._forwarding, self._inbox = Forwarding(view, views), Inbox()

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Both as the manifest has them."""
        kept = view_state(snapshot).forwarding if snapshot else None
        refuse_rerouted(self.name, snapshot is None or kept is not None, True)
        self._stage.restore(snapshot)
        self._forwarding = Forwarding(self._view, self._views)
        self._inbox = Inbox(kept.inbox if kept else None)
        if kept:
            self._forwarding.restore(kept.rel)

    def run(self, records: pa.Table) -> StepResult | None:
        """What the stage sends, with REL on it, and REL by itself where it must not wait for a list."""
        result = self._stage.run(records)
        if result is None:
            return None
        out: list[tuple[str, Any]] = []
        heard = self._inbox.take(records, {INTEGRATOR}) if records.num_rows else []
        for message in heard:
            if isinstance(message, Updates):
                out += ((self._actions, one) for one in self._forwarding.heard(message))
            elif isinstance(message, ViewChange):
                out += ((self._actions, one) for one in self._forwarding.changed(message))
        for topic, message in result.messages:
            if topic == self._actions and isinstance(message, ActionList | Suspend):
                out += ((topic, one) for one in self._forwarding.sent(message))
            else:
                out.append((topic, message))
        kept = Riding(inbox=self._inbox.snapshot(), rel=self._forwarding.snapshot())
        assert isinstance(result.snapshot, ViewState)
        state = result.snapshot.model_copy(update={"forwarding": kept})
        return StepResult(snapshot=state, messages=tuple(out), writes=result.writes)

    def apply(self, manifest: Manifest) -> None:
        """The stage's."""
        self._stage.apply(manifest)

    def applied(self, manifest: Manifest) -> None:
        """The stage's."""
        self._stage.applied(manifest)

    def halt(self) -> None:
        """Let a step that waits for something outside end."""
        if isinstance(self._stage, Halting):
            self._stage.halt()


def refuse_rerouted(stage: str, rode: bool, rides: bool) -> None:
    """REL takes one way for as long as there is a pipeline: what is under way says nothing of another.

    Args:
        rode: in the stage's last manifest; rides: now.

    Raises:
        FrescoError: MERGE_SNAPSHOT.
    """
    if rode != rides:
        before = "with-actions" if rode else "direct"
        raise FrescoError(
            "MERGE_SNAPSHOT",
            f"the pipeline was begun with rel: {before}",
            where=stage,
            todo=f"set rel back to {before}, or begin a pipeline in a new warehouse",
        )
