"""The rows that a view begins with: out of `_updates` while it is whole, else out of the sources."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from streaming.algebra.scans import columns_read
from streaming.algebra.tree import Relation, Schema, Tree
from streaming.errors import FrescoError
from streaming.runtime.asking import Access
from streaming.runtime.dialogue import is_trouble
from streaming.runtime.sourceload import SourceLoad, cannot_be_asked, needs
from streaming.viewmanagers.tainted import refuse_controls
from streaming.warehouse.initial import relations_at, taints
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")


class FirstRows:
    """Of one view.

    Args:
        schemas: its relations, as its SQL was planned over them.
        relations: as they are captured now.
        access: how those of its sources are asked that can be.
    """

    def __init__(
        self,
        warehouse: Path,
        view: str,
        tree: Tree,
        schemas: Mapping[str, Schema],
        relations: Mapping[str, Relation],
        access: Mapping[str, Access],
    ) -> None:
        self._warehouse, self._view, self._schemas = warehouse, view, schemas
        self._reads = columns_read(tree)
        self._relations, self._access = relations, access
        self._sources: SourceLoad | None = None

    def take(self, reader: UpdatesReader) -> tuple[int, dict[str, pa.Table]] | None:
        """A number and the relations after it; None while a source is in trouble, or behind.

        Raises:
            ViewError: VIEW_INPUT_DAMAGED, VIEW_COLUMN_CHANGED: what the view reads is not recorded whole.
            FrescoError: VIEW_COLUMN_CHANGED, VIEW_INITIAL_ROWS, VIEW_RELATION_UNCAPTURED.
        """
        self._check_captured()
        if reader.kept_from > 0:
            return self._from_sources(reader)
        number = max(reader.last, 0)
        refuse_controls(self._reads, taints(self._warehouse, reader, self._schemas, -1, number))
        return number, relations_at(reader, self._schemas, number)

    def close(self) -> None:
        """Leave the sources."""
        if self._sources is not None:
            self._sources.close()
            self._sources = None

    def _from_sources(self, reader: UpdatesReader) -> tuple[int, dict[str, pa.Table]] | None:
        if self._sources is None:
            if missing := sorted(needs(self._schemas) - self._access.keys()):
                raise cannot_be_asked(missing, reader.kept_from)
            access = {name: self._access[name] for name in needs(self._schemas)}
            self._sources = SourceLoad(self._warehouse, access, self._schemas)
        try:
            found = self._sources.relations_at(reader)
        except FrescoError as error:
            if not is_trouble(error):
                raise
            log.warning("view %s waits: %s", self._view, error)
            return None
        if found is not None:
            self.close()
        return found

    def _check_captured(self) -> None:
        """Every column that the view reads is captured, as the type that it was."""
        refuse_uncaptured(self._view, self._schemas, self._relations)
        for name, positions in self._reads.items():
            now = {one.name: one.type for one in self._relations[name].schema}
            for position in sorted(positions):
                column = self._schemas[name][position]
                if now.get(column.name) != column.type:
                    raise FrescoError(
                        "VIEW_COLUMN_CHANGED",
                        f"column {column.name} of {name} is no longer captured as {column.type}",
                        where=f"view {self._view}",
                        todo="write the view's SQL for the table as it is now, drop the view and add it",
                    )


def refuse_uncaptured(view: str, reads: Iterable[str], captured: Container[str]) -> None:
    """Every relation that the view reads is captured.

    Raises:
        FrescoError: VIEW_RELATION_UNCAPTURED.
    """
    missing = sorted(name for name in reads if name not in captured)
    if missing:
        raise FrescoError(
            "VIEW_RELATION_UNCAPTURED",
            f"the view reads what is no longer captured: {', '.join(missing)}",
            where=f"view {view}",
            todo="put it back under `sources: ... tables:` in the configuration and start again; or "
            f"`fresco view drop {view}`",
        )
