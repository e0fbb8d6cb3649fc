"""How far stages have come, read from their manifests: for staged files that several drivers share.

A staged file goes when everyone who reads it is past its numbers (`staging`). Readers in this process
say so themselves; those in other drivers have it in their last manifest. That may be one step behind,
never ahead: a view manager is past numbers once its manifest is durable, and the merge says in each
manifest what it had committed before that step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.runtime.manifests import ManifestStore
from streaming.runtime.snapshots import MergingState, ViewState, view_state
from streaming.runtime.staging import last_of

LOOK_SECONDS = 5.0
"""Other drivers' manifests are read no more often."""


@dataclass(frozen=True)
class ViewProgress:
    """A view manager's.

    Attributes:
        handled: staged updates whose numbers are all at or below it are of no use to it any more.
        needed: the first number that a restart would replay from `_updates`.
        suspended: it takes no more updates, for good.
    """

    handled: int
    needed: int
    suspended: bool


def view_progress(state: ViewState | None, stage: str, start: int = 0) -> ViewProgress:
    """What the state in a durable manifest says.

    Args:
        stage: `view:<name>`.
        start: the first number that it handles.
    """
    if state is None:
        return ViewProgress(-1, start, False)
    own = f"_staging/{stage.replace(':', '-')}/"
    others = [path for path in state.files if not path.startswith(own)]
    handled = min([state.number, *(last_of(path) - 1 for path in others)])
    return ViewProgress(handled, state.needed(start), state.suspended is not None)


class Elsewhere:
    """The stages that run in other drivers."""

    def __init__(self, warehouse: Path) -> None:
        self._state = warehouse / "_state"
        self._seen: dict[str, Mapping[str, Any] | None] = {}
        self._looked: dict[str, float] = {}

    def view(self, stage: str, start: int = 0) -> ViewProgress:
        """A view manager's progress.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        saved = self._snapshot(stage)
        return view_progress(None if saved is None else view_state(saved), stage, start)

    def published(self, stage: str) -> int:
        """Every action list up to it is in a commit that is durable; -1 while there is none.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        saved = self._snapshot(stage)
        return -1 if saved is None else MergingState.loaded(saved).published

    def _snapshot(self, stage: str) -> Mapping[str, Any] | None:
        now = time.monotonic()
        if stage not in self._looked or now - self._looked[stage] >= LOOK_SECONDS:
            self._looked[stage] = now
            store = ManifestStore(self._state / stage.replace(":", "-") / "manifests")
            latest = store.latest()
            self._seen[stage] = latest.snapshot if latest else None
        return self._seen[stage]
