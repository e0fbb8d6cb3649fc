"""Views whose SQL no longer fits their relations when a pipeline starts (DESIGN 11).

Somebody has dropped or retyped a column that a view reads. The view's file is what it was, so the
file is not wrong; the others' are not either. Such a view starts suspended at its last number, and says
why: its column is painted black, readers are told, and the others go on. It is dropped and added again,
over the table as it is then. A file that has changed as well is refused, and so is one whose relation is
not captured any more: that is the configuration's doing, not the database's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from streaming.algebra.scans import columns_read
from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout, loses
from streaming.errors import FrescoError
from streaming.pipeline.catalog import Catalog, tokens_of
from streaming.pipeline.view_file import Header
from streaming.pipeline.view_specs import ViewSpec


class BrokenViews:
    """Finds them while the view files are read.

    Args:
        stored: the catalog, None before the first start.
        layouts: the captured relations' columns, as they are now.
    """

    def __init__(self, stored: Catalog | None, layouts: Mapping[str, Layout]) -> None:
        self.errors: dict[str, FrescoError] = {}
        """View -> what is wrong with it."""
        self._stored, self._layouts = stored, layouts
        self._seen: dict[int, dict[str, Relation]] = {}
        self._newest = max((one.generation for one in layouts.values()), default=0)

    def as_of(self, header: Header) -> tuple[int, Mapping[str, Relation]]:
        """A view of before is planned over the columns of then, another over those of now."""
        before = self._before(header.name, header.query)
        generation = before.layout if before is not None else self._newest
        if generation not in self._seen:
            seen = {name: one.as_of(generation) for name, one in self._layouts.items()}
            self._seen[generation] = seen
        return generation, self._seen[generation]

    def instead(self, header: Header, error: FrescoError) -> ViewSpec | None:
        """The stored view of a file that no longer fits, None when the file itself is wrong."""
        found = self._before(header.name, header.query)
        if found is not None and all(base in self._layouts for base in self._bases(found)):
            self._note(header.name, error.what, error.where)
            return found
        return None

    def checked(self, views: Iterable[ViewSpec]) -> list[ViewSpec]:
        """The views, with the keys that their rows have; those that read a lost column are noted."""
        checked = []
        for view in views:
            before = self._before(view.name, view.sql)
            if before is not None and before.schema == view.schema:
                view = replace(view, key=before.key)
            if view.name not in self.errors and (
                gone := loses(self._layouts, columns_read(view.tree))
            ):
                self._note(view.name, "; ".join(gone), view.location)
            checked.append(view)
        return checked

    def _before(self, name: str, query: str) -> ViewSpec | None:
        """The stored view of the same SQL."""
        views = self._stored.views if self._stored is not None else ()
        found = next((one for one in views if one.name == name), None)
        return found if found is not None and tokens_of(found.sql) == tokens_of(query) else None

    def _bases(self, view: ViewSpec) -> set[str]:
        assert self._stored is not None
        views = {one.name: one for one in self._stored.views}
        found: set[str] = set()
        for name in view.relations:
            found |= self._bases(views[name]) if name in views else {name}
        return found

    def _note(self, view: str, what: str, where: str) -> None:
        self.errors[view] = FrescoError(
            "VIEW_COLUMN_CHANGED",
            f"the view no longer fits its relations: {what}",
            where=where,
            todo="write its SQL for the tables as they are now, `fresco view drop NAME` and "
            "`fresco view add FILE`; where the SQL is right as it is, drop the view and add it again;"
            " it begins with what the source holds",
        )
