"""Whether a table has been altered since the pipeline was planned: the catalogs are read now and then.

A database's log has no word for ALTER TABLE. What events can show (a field that comes or goes, a value
that does not fit) they show; that a column was dropped and made anew, or that what it held changed
with its type, only the catalog tells. So a thread of its own reads it, which no step waits for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.layout import Layout, grown
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.source_schemas import source_relations
from streaming.warehouse.described import layouts_of

log = logging.getLogger("fresco")

LOOK_SECONDS = 10.0
"""Between two looks at the catalogs, as long as nobody asks for one."""


class SchemaWatch:
    """Looks at the sources that can be asked.

    Args:
        layouts: the captured relations' columns as the pipeline runs over them.
        numbers: whether this driver numbers the transactions; another one follows what that has stored.
    """

    def __init__(
        self,
        config: Config,
        layouts: Mapping[str, Layout],
        numbers: bool = True,
        seconds: float = LOOK_SECONDS,
    ) -> None:
        self._config, self._layouts, self._seconds = config, layouts, seconds
        self._numbers = numbers
        self._sources = [
            name
            for name, source in config.sources.items()
            if source.secret() is not None and source.capture != "none"
        ]
        self._found: Sequence[CapturedRelation] = ()
        self._told: set[str] = set()
        self._asked, self._stopping = threading.Event(), False
        self._looked = not self._sources
        """Whether a look that was asked for is over."""
        self._thread = threading.Thread(target=self._run, name="schemas", daemon=True)
        if self._sources:
            self._thread.start()

    def ask(self) -> None:
        """Look at once."""
        self._asked.set()

    def found_nothing(self) -> bool:
        """Whether a look that was asked for is over and all is as it was; the next is to be asked for."""
        looked, self._looked = self._looked, not self._sources
        return looked and self._numbers and not self._found

    @property
    def altered(self) -> Sequence[CapturedRelation]:
        """All relations that could be read, once one of them is not what it was; none before."""
        return self._found

    def look(self) -> Sequence[CapturedRelation]:
        """The same, looked up now."""
        if not self._numbers:
            stored = layouts_of(self._config.warehouse)
            if all(stored.get(name) == one for name, one in self._layouts.items()):
                return ()
        found: list[CapturedRelation] = []
        for name in self._sources:
            try:
                found += source_relations(self._config, name)
            except FrescoError as error:
                away = error.code == "SOURCE_UNREACHABLE"  # that is told of by who needs it
                log.log(
                    logging.DEBUG if away or error.code in self._told else logging.WARNING,
                    "the columns of source %s cannot be looked at: %s",
                    name,
                    error,
                )
                self._told.add(error.code)
        found = [one for one in found if one.relation.name in self._layouts]
        if not self._numbers:
            return found
        mine = {one.relation.name: self._layouts[one.relation.name] for one in found}
        after = grown(mine, found, 0)
        changed = [name for name in mine if after[name].columns != mine[name].columns]
        if changed:
            log.warning("altered at the source, and looked at anew: %s", ", ".join(sorted(changed)))
        return found if changed else ()

    def stop(self) -> None:
        """No further look."""
        self._stopping = True
        self._asked.set()

    def _run(self) -> None:
        while not self._stopping and not self._found:
            asked = self._asked.wait(self._seconds)
            self._asked.clear()
            if self._stopping:
                return
            try:
                self._found = self.look()
            except Exception:
                log.exception("the tables' columns could not be looked at; that is tried again")
            self._looked = self._looked or asked
