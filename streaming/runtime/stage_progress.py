"""How far stages have come, read from their manifests: for staged files that several drivers share.

A staged file goes when everyone who reads it is past its numbers (`staging`). Readers in this process
say so themselves; those in other drivers have it in their last manifest. That may be one step behind,
never ahead: a view manager is past numbers once its manifest is durable, and the merge says in each
manifest what it had committed before that step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.runtime.manifests import ManifestStore
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


def view_progress(snapshot: Mapping[str, Any] | None, stage: str, start: int = 0) -> ViewProgress:
    """What the snapshot of a durable manifest says.

    Args:
        stage: `view:<name>`.
        start: the first number that it handles.
    """
    if snapshot is None:
        return ViewProgress(-1, start, False)
    number = int(snapshot["control"]["number"])
    suspended = snapshot["suspended"] is not None
    own = f"_staging/{stage.replace(':', '-')}/"
    others = [path for path in staged_paths(snapshot) if not path.startswith(own)]
    handled = min([number, *(last_of(path) - 1 for path in others)])
    needed = number + 1
    if "checkpoint" in snapshot:
        checkpoint = snapshot["checkpoint"]
        needed = int(checkpoint["number"]) + 1 if checkpoint else start
    elif "joining" in snapshot and snapshot["joining"]["joined"] is None:
        needed = 0  # one that asks, and is to come back with the relations as `_updates` has them
    return ViewProgress(handled, needed, suspended)


def staged_paths(value: Any) -> Iterator[str]:
    """Every staged path inside a snapshot's references to rows."""
    if isinstance(value, Mapping):
        if isinstance(path := value.get("path"), str) and "sha256" in value:
            yield path
        for item in value.values():
            yield from staged_paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from staged_paths(item)


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
        return view_progress(self._snapshot(stage), stage, start)

    def published(self, stage: str) -> int:
        """Every action list up to it is in a commit that is durable; -1 while there is none.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        snapshot = self._snapshot(stage)
        return -1 if snapshot is None else int(snapshot.get("published", -1))

    def _snapshot(self, stage: str) -> Mapping[str, Any] | None:
        now = time.monotonic()
        if stage not in self._looked or now - self._looked[stage] >= LOOK_SECONDS:
            self._looked[stage] = now
            store = ManifestStore(self._state / stage.replace(":", "-") / "manifests")
            latest = store.latest()
            self._seen[stage] = latest.snapshot if latest else None
        return self._seen[stage]


def refusal(merge: Mapping[str, Any] | None, view: str, stage: str) -> Mapping[str, str] | None:
    """Why the group's table could not take what this stage of a view sent; None where it could.

    Args:
        merge: what the group's merge has saved last.
    """
    if merge is None or stage not in merge.get("refused", {}).get(view, ()):
        return None
    error: Mapping[str, str] = merge["causes"][view]
    return error
