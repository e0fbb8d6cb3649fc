"""Views whose SQL no longer fits their relations when a pipeline starts (DESIGN 11).

Somebody has dropped or retyped a column that a view reads. The view's file is what it was, so the
file is not wrong; the others' are not either. Such a view starts suspended at its last number, and says
why: its column is painted black, readers are told, and the others go on. It is dropped and added again,
over the table as it is then. A file that has changed as well is refused, and so is one whose relation is
not captured any more: that is the configuration's doing, not the database's.

The same stage takes the place of any view's stage that cannot go on, when it starts or later: its state
cannot be read, or it has failed too often (`whose`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.errors import FrescoError, about
from streaming.metrics import Metrics
from streaming.runtime.inbox import Inbox
from streaming.runtime.kafka import Topics
from streaming.runtime.manifests import Manifest
from streaming.runtime.snapshots import Reached, ReplicaState, ViewState, view_state
from streaming.runtime.stage_progress import ViewProgress, view_progress
from streaming.runtime.staging import Staging
from streaming.runtime.step import StepResult
from streaming.viewmanagers.base import ManagedView as Maintained
from streaming.viewmanagers.base import suspension

log = logging.getLogger("fresco")


class BrokenStage:
    """Stage `view:<name>` of such a view: it says once that the view is suspended, and listens.

    Args:
        name: the stage's.
    """

    def __init__(
        self,
        spec: Maintained,
        name: str,
        error: FrescoError,
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
    ) -> None:
        self.spec, self.name = spec, name
        self._error = FrescoError(**about(error.as_dict(), spec.view))
        self._topic, self._metrics = actions_topic, metrics
        self._staging = Staging(warehouse, name)
        self._inbox = Inbox()
        self._state: ViewState
        self._progress = ViewProgress(-1, spec.start, False)
        self._kept: frozenset[str] = frozenset()
        self.suspended: dict[str, str] | None = self._error.as_dict()

    @property
    def handled(self) -> int:
        """The last number of which staged updates are of no use any more."""
        return self._progress.handled

    @property
    def needed(self) -> int:
        """The first number that a restart would replay."""
        return self._progress.needed

    @property
    def left(self) -> bool:
        """Whether a durable manifest says that the view is suspended.

        Until then the next start may find the column again, and go on with the view.
        """
        return self._progress.suspended

    def topics(self, topics: Topics) -> tuple[str, ...]:
        """Those that it reads."""
        return (topics.updates(self.spec.group),)

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """As the view was left; where it never was, it has no number."""
        never = Reached(view=self.spec.view, number=self.spec.start - 1)
        self._state = view_state(snapshot) if snapshot else ReplicaState.of(control=never)
        self._inbox = Inbox(self._state.inbox)
        self._settle()

    def run(self, records: pa.Table) -> StepResult | None:
        """Suspend the view, unless it is; nothing is done for later numbers."""
        before = self._state.suspended
        if not records.num_rows and before is not None:
            return None
        if records.num_rows:
            self._inbox.take(records)
        control, sent = self._state.control, []
        if before is None:
            after = self._state.listed
            control = control.model_copy(update={"suspended_after": after})
            error = self._error.as_dict()
            sent = [(self._topic, suspension(self.spec, after, error))]
            log.error("view %s is suspended: %s", self.spec.view, self._error)
        now = {"inbox": self._inbox.snapshot(), "control": control}
        self._state = self._state.model_copy(
            update={**now, "suspended": before or self._error.as_dict()}
        )
        return StepResult(snapshot=self._state, messages=tuple(sent))

    def apply(self, manifest: Manifest) -> None:
        """Nothing to commit: a view manager only answers."""

    def applied(self, manifest: Manifest) -> None:
        """Tell the metrics."""
        self._state = view_state(manifest.snapshot)
        self._settle()
        self._metrics.suspended.labels(self.spec.view).set(1)

    def collect(self, passed: int) -> None:
        """Remove staged action lists that the merge has applied."""
        self._staging.collect(min(passed, self.handled), keep=self._kept)

    def _settle(self) -> None:
        self._progress = view_progress(self._state, self.name, self.spec.start)
        self._kept = frozenset(self._state.files)
        self.suspended = self._state.suspended or self._error.as_dict()
