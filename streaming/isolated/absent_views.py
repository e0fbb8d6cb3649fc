"""Which isolated views are left out of the sessions, why, and when they come back (DESIGN 11).

A view is suspended when a trigger of one of its relations is missing or switched off, or when its data
has no value somewhere. Every look at the sources tells what the triggers are; what they were at the
last one is kept (`deltawatch`), so that triggers put back, and a gap that nobody saw, are told from
triggers that were there all the time: the views over the relation are then computed anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError, about
from streaming.isolated.delta_query import Looked
from streaming.isolated.delta_watch import RelationObjects, broken
from streaming.isolated.isolated_manager import Isolated

log = logging.getLogger("fresco")

AGAIN = (5.0, 20.0, 100.0, 300.0)
"""Seconds after which a view without a value somewhere is tried again; the last for all that follow."""


class Absent:
    """The views of one group.

    Args:
        machine: told who leaves and who comes back.
        marks: by relation, what was seen of its triggers last.
        suspended: view -> {"after": its last good number, "error": the error}.
        broken: views that do not fit their relations: they stay away whatever the triggers are.

    Attributes:
        marks, suspended: as they are now, for the manifest.
    """

    def __init__(
        self,
        machine: Isolated[Signed],
        marks: Mapping[str, str] | None = None,
        suspended: Mapping[str, Mapping[str, Any]] | None = None,
        broken: Mapping[str, FrescoError] | None = None,
    ) -> None:
        self._machine, self._broken = machine, broken or {}
        self.marks: dict[str, str] = dict(marks or {})
        self.suspended: dict[str, dict[str, Any]] = {
            view: dict(note) for view, note in (suspended or {}).items()
        }
        self._tries: dict[str, int] = {}
        self._due: dict[str, float] = {}

    @property
    def told(self) -> dict[str, int]:
        """What a commit says: view -> its last good number."""
        return {view: note["after"] for view, note in sorted(self.suspended.items())}

    def relations(self, view: str) -> frozenset[str]:
        return frozenset(self._machine.psjs[view].relations)

    def look(self, looked: Mapping[str, Looked]) -> bool:
        """After each look at all sources, between sessions; whether anything has changed."""
        watched = {name: one for each in looked.values() for name, one in each.watched.items()}
        wrong = broken(watched, self.marks)
        before = (dict(self.marks), self.told, frozenset(self._machine.away))
        for view in self._machine.psjs:
            errors = [wrong[name] for name in sorted(self.relations(view)) if name in wrong]
            missing = [one for one in errors if one.code == "SOURCE_TRIGGER_MISSING"]
            if view in self._broken:
                self._suspend(view, self._broken[view])
            elif missing:
                self._suspend(view, missing[0])
            elif view in self._machine.away:
                self._return(view)
            elif errors:
                log.warning("view %s is computed anew: %s", view, errors[0])
                self._machine.renew(view)
        self._remember(watched)
        return before != (self.marks, self.told, frozenset(self._machine.away))

    def _remember(self, watched: Mapping[str, RelationObjects]) -> None:
        """The triggers as they are; of those that are missing nothing is known any more."""
        self.marks = {name: one.mark for name, one in watched.items() if not one.missing}

    def _suspend(self, view: str, error: FrescoError) -> None:
        if view in self._machine.away and self._told(view) == about(error.as_dict(), view):
            return
        log.error("view %s is suspended: %s", view, error)
        self._machine.leave(view)
        # Sessions since then, if any, were without it, or came to nothing.
        after = self.suspended.get(view, {"after": self._machine.number})["after"]
        self.suspended[view] = {"after": after, "error": about(error.as_dict(), view)}

    def _told(self, view: str) -> dict[str, str] | None:
        note = self.suspended.get(view)
        return None if note is None else note["error"]

    def fail(self, view: str, error: FrescoError) -> None:
        """A session found that the view has no value somewhere; it is tried again after a while."""
        tries = self._tries.get(view, 0)
        self._tries[view] = tries + 1
        self._due[view] = time.monotonic() + AGAIN[min(tries, len(AGAIN) - 1)]
        self._suspend(view, error)

    def _return(self, view: str) -> None:
        """Its triggers are there: the next session computes it anew."""
        if time.monotonic() < self._due.get(view, 0.0):
            return
        self._machine.renew(view)

    def rejoin(self) -> None:
        """A session has come to its lists: the views it computed are up to date again."""
        for view in self._machine.present:
            self._tries.pop(view, None)
            self._due.pop(view, None)
            if self.suspended.pop(view, None) is not None:
                log.warning("view %s goes on", view)
