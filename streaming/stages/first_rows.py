"""The rows that a view begins with: out of `_updates` where it tells them whole, else out of the sources.

It does not where its beginning has been dropped, nor of a column that is captured only since the table
was altered, or could not be read for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from streaming.algebra.psj import source_of
from streaming.algebra.scans import columns_read
from streaming.algebra.tree import Relation, Tree
from streaming.captured.layout import Layout, loses, unrecorded
from streaming.errors import FrescoError
from streaming.scalars.expression import Schema
from streaming.stages.asking_stage import Access
from streaming.stages.dialogue import is_trouble
from streaming.stages.source_load import SourceLoad, cannot_be_asked, needs
from streaming.viewmanagers.taint import refuse_controls
from streaming.warehouse.initial import relations_at, taints
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")


class FirstRows:
    """Of one view.

    Args:
        schemas: its relations, as its SQL was planned over them.
        relations: as they are captured now.
        access: how those of its sources are asked that can be.
        layouts: all columns that the relations have had.
    """

    def __init__(
        self,
        warehouse: Path,
        view: str,
        tree: Tree,
        schemas: Mapping[str, Schema],
        relations: Mapping[str, Relation],
        access: Mapping[str, Access],
        layouts: Mapping[str, Layout] | None = None,
    ) -> None:
        self._warehouse, self._view, self._schemas = warehouse, view, schemas
        self._reads = columns_read(tree)
        self._relations, self._access, self._layouts = relations, access, layouts or {}
        self._sources: SourceLoad | None = None
        self._why: dict[str, str] = {}
        """Relation -> why `_updates` cannot tell what it holds."""

    def take(self, reader: UpdatesReader) -> tuple[int, dict[str, pa.Table]] | None:
        """A number and the relations after it; None while a source is in trouble, or behind.

        Raises:
            ViewError: VIEW_INPUT_DAMAGED, VIEW_COLUMN_CHANGED: what the view reads is not recorded whole.
            FrescoError: VIEW_COLUMN_CHANGED, VIEW_INITIAL_ROWS, VIEW_RELATION_UNCAPTURED.
        """
        self._check_captured()
        number = max(reader.last, 0)
        if reader.kept_from > 0 and len(self._why) < len(self._schemas):
            self.close()  # the retention has come meanwhile: all of it is the sources' now
        if self._sources is None:
            self._why = self._lacking(reader, number)
        rows: dict[str, pa.Table] = {}
        if self._why:
            found = self._from_sources(reader)
            if found is None:
                return None
            number, rows = found
        rest = {name: schema for name, schema in self._schemas.items() if name not in self._why}
        reads = {name: self._reads[name] for name in rest if name in self._reads}
        refuse_controls(reads, taints(self._warehouse, reader, rest, -1, number))
        return number, {**rows, **relations_at(reader, rest, number)}

    def close(self) -> None:
        """Leave the sources."""
        if self._sources is not None:
            self._sources.close()
            self._sources = None

    def _lacking(self, reader: UpdatesReader, number: int) -> dict[str, str]:
        """The relations that the recorded updates do not tell, and why.

        What one holds after it was emptied is told by what came then.
        """
        if reader.kept_from > 0:
            why = f"updates below number {reader.kept_from} have been dropped (retention)"
            return dict.fromkeys(self._schemas, why)
        emptied = {
            one.relation: one.number
            for one in reader.controls(-1, number)
            if one.kind == "truncate"
        }
        found: dict[str, str] = {}
        for name, at in unrecorded(self._layouts, self._reads, emptied):
            column = self._layouts[name].columns[at]
            found[name] = (
                f"column {column.name} of {name} is recorded from number {column.first} on"
            )
        for one in taints(self._warehouse, reader, self._schemas, -1, number):
            concerned = not self._reads.get(one.relation, frozenset()).isdisjoint(one.columns)
            asked = source_of(one.relation) in self._access
            if concerned and asked and one.adds is None:  # a value that does not fit is there, too
                found.setdefault(one.relation, one.what)
        return found

    def _from_sources(self, reader: UpdatesReader) -> tuple[int, dict[str, pa.Table]] | None:
        if self._sources is None:
            wanted = {name: self._schemas[name] for name in self._why}
            if missing := sorted(needs(wanted) - self._access.keys()):
                why = next(one for name, one in self._why.items() if source_of(name) in missing)
                raise cannot_be_asked(missing, why)
            access = {name: self._access[name] for name in needs(wanted)}
            self._sources = SourceLoad(self._warehouse, access, wanted, self._reads)
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
        gone = loses(self._layouts, self._reads)
        for name, positions in self._reads.items():
            now = self._relations[name].schema
            for position in sorted(positions):
                column = self._schemas[name][position]
                if position >= len(now) or now[position].type != column.type:
                    gone.append(f"column {column.name} of {name} is no longer {column.type}")
        if gone:
            raise FrescoError(
                "VIEW_COLUMN_CHANGED",
                f"the view no longer fits its relations: {'; '.join(gone)}",
                where=f"view {self._view}",
                todo="write the view's SQL for the table as it is now, drop the view and add it; it"
                " begins with what the source holds",
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
