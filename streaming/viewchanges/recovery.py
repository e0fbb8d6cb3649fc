"""Suspended views come back by themselves when their cause is gone (DESIGN 11).

Whether it is gone shows only when the view is computed anew, so that is tried: by a `resume` request
like any person's, whose load fails harmlessly while the cause is there. It is tried again only after
something has changed that could matter, and ever more rarely: a decision about a bad record, or new
updates of the relations where a row has no value or a retraction found none. A start tries once in any
case: what happened while nothing ran is not known. A column that was dropped or retyped does not come
back by itself: the view's SQL has to change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streaming.errors import FrescoError
from streaming.pipeline.catalog import ViewSpec
from streaming.viewchanges.requests import Requests
from streaming.warehouse.decisions import decisions
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")

WAITS = (5.0, 20.0, 60.0, 300.0)
"""Seconds between tries of one view; the last for all that follow."""
BY_DECISION = ("VIEW_INPUT_DAMAGED",)
"""Causes that a decision ends and nothing else."""
AWAY = "SOURCE_"
"""What the codes of a source that could not be asked begin with; only asking it again tells."""
AWAY_WAITS = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""`WAITS` of such a view: a try costs a connection, and a stage for a moment."""
STEADY = 600.0
"""Seconds after which a view that came back counts as one that stays."""
FALLS = (60.0, 300.0, 900.0)
"""Seconds before the first try of a view that did not stay; the last for all further times. Each time its
group has waited for it as long as its source's patience lasts."""
FOR_A_PERSON = ("VIEW_COLUMN_CHANGED",)


class Recovery:
    """Tries suspended views.

    Args:
        spec: a view's specification by name.
    """

    def __init__(
        self,
        warehouse: Path,
        requests: Requests,
        spec: Callable[[str], ViewSpec],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warehouse, self._requests, self._spec = warehouse, requests, spec
        self._clock = clock
        self._tried: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._seen: dict[str, object] = {}
        self._back: dict[str, float] = {}
        """View -> when it came back."""
        self._falls: dict[str, int] = {}
        self._began = False
        self._updates: UpdatesReader | None = None
        self._version, self._highs = -1, dict[str, int]()

    def look(
        self, suspended: Mapping[str, Mapping[str, str]], after: Mapping[str, int]
    ) -> list[str]:
        """Ask for the views that are worth a try; returns their names.

        Args:
            suspended: view -> why it is suspended, of those that a commit has told of.
            after: view -> its last good number. What came behind the next one may be what ends the
                cause, also where it came before anybody looked.
        """
        for view in self._tried.keys() - suspended.keys():
            del self._tried[view]
            self._next.pop(view, None)
            self._seen.pop(view, None)
            self._back[view] = self._clock()
        for view in suspended.keys() & self._back.keys():
            self._fell(view)
        asked = []
        for view, error in suspended.items():
            if error.get("code") in FOR_A_PERSON:
                continue
            away = str(error.get("code", "")).startswith(AWAY)
            if view not in self._seen and self._began and not away:
                self._seen[view] = self._cause(error, after[view] + 1)
            if self._clock() < self._next.get(view, 0.0):
                continue
            now = self._evidence(view, error, after[view] + 1)
            if now == self._seen.get(view):
                continue
            self._seen[view] = now
            if self._ask(view, AWAY_WAITS if away else WAITS):
                asked.append(view)
        self._began = True
        return asked

    def _fell(self, view: str) -> None:
        """It is suspended again: where it did not stay for long, the next try is not soon."""
        now = self._clock()
        stayed = now - self._back.pop(view) >= STEADY
        falls = self._falls[view] = 0 if stayed else self._falls.get(view, 0) + 1
        if falls:
            self._next[view] = now + FALLS[min(falls, len(FALLS)) - 1]

    def _cause(self, error: Mapping[str, str], number: int) -> object:
        """The evidence where nothing has come since the number at which a view stopped."""
        nobody: frozenset[str] = frozenset()
        return nobody if error.get("code") in BY_DECISION else (nobody, number)

    def _evidence(self, view: str, error: Mapping[str, str], number: int) -> object:
        """What has to be another than at the last try; `number` is where the view stopped."""
        if str(error.get("code", "")).startswith(AWAY):
            return object()
        decided = frozenset(decisions(self._warehouse))
        if error.get("code") in BY_DECISION:
            return decided
        relations, recorded = set(self._spec(view).relations), self._recorded()
        over_views = not relations <= recorded.keys()
        highs = [n for name, n in recorded.items() if over_views or name in relations]
        return decided, max((number, *highs))

    def _recorded(self) -> Mapping[str, int]:
        """Relation -> the highest number of its updates; the table is listed once for each version."""
        if self._updates is None:
            self._updates = UpdatesReader(str(self._warehouse))
        else:
            self._updates.refresh()
        if self._updates.table.version != self._version:
            highs: dict[str, int] = {}
            for one in self._updates.table.files():
                highs[one.partition] = max(
                    int(one.high.get("number") or 0), highs.get(one.partition, 0)
                )
            self._version, self._highs = self._updates.table.version, highs
        return self._highs

    def _ask(self, view: str, waits: Sequence[float]) -> bool:
        tries = self._tried[view] = self._tried.get(view, 0) + 1
        self._next[view] = self._clock() + waits[min(tries, len(waits)) - 1]
        try:
            request = self._requests.put("resume", view, by_itself=True)
        except FrescoError as error:
            log.debug("%s", error)
            return False
        log.info("view %s tries to come back (request %d)", view, request.number)
        return True
