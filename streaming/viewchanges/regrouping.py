"""The merge stage's part of adding and dropping views: columns, rows, the catalog (DESIGN 5).

A batch that adds a view carries its whole content; the commit that applies the batch shows it. The
view's column is made just before, in a commit without rows, which no reader sees. A batch that drops a
view, or brings a suspended one back, takes the rows that the table has of it out in the same commit.

The catalog follows the commit, and the request's `done` follows the catalog. Both are worked out from
the machine's state and not from the batch, so a start after a crash between any two of them does what
is left: `settle` may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.merge.batching import BatchedTransaction
from streaming.merge.machine import MergeMachine
from streaming.pipeline.catalog import (
    Catalog,
    Joined,
    ViewSpec,
    catalog_held,
    load_catalog,
    replace_catalog,
    spec_of,
)
from streaming.viewchanges.requests import Request, Requests
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter


class Regrouping:
    """Views that come to one group and leave it.

    Args:
        views: the group's at the first start.
    """

    def __init__(
        self, group: str, views: tuple[str, ...], writer: GroupWriter, warehouse: Path
    ) -> None:
        self._group, self._writer, self._warehouse = group, writer, warehouse
        self._requests = Requests(warehouse)
        self._founded = dict.fromkeys(views, 0)
        self.shown: dict[str, int] = {}
        """View -> the number at which it joined, of those that the last batch taken shows."""
        self._settled: Mapping[str, int] | None = None
        self.restore(None)

    def restore(self, snapshot: Mapping[str, int] | None) -> None:
        """Back to what a manifest says; None: the beginning."""
        self.shown = dict(self._founded if snapshot is None else snapshot)
        self._settled = None

    def snapshot(self) -> dict[str, int]:
        """The state as JSON values."""
        return dict(self.shown)

    def describe(self, batch: BatchedTransaction) -> dict[str, Any]:
        """What a batch changes, for the manifest: `added`, `drop` and, once it is applied, `views`."""
        again = [view for view, _ in batch.added if view in self.shown]
        gone = [view for view, _ in batch.dropped]
        for view in gone:
            self.shown.pop(view, None)
        self.shown.update(batch.added)
        return {"added": dict(batch.added), "drop": [*gone, *again], "views": dict(self.shown)}

    def tables(self, batch: Mapping[str, Any]) -> list[ViewTable]:
        """The views that a batch adds, as the writer will know them."""
        found = []
        for view, number in batch["added"].items():
            request = self._requests.joining(view)
            if request is not None:
                spec = self._spec(request, load_catalog(self._warehouse))
                found.append(table_of(spec, Joined(number, request.number)))
        return found

    def open(self, batch: Mapping[str, Any]) -> None:
        """Make the columns of the views that a batch adds, before it is committed."""
        for table in self.tables(batch):
            self._writer.add_view(table)

    def settle(self, machine: MergeMachine, causes: Mapping[str, Mapping[str, str]]) -> None:
        """Let catalog and requests say what has been committed; all batches taken are.

        Args:
            causes: view -> why it was suspended last.
        """
        if self._settled != self.shown:
            with catalog_held(self._warehouse):
                self._settle_views(machine.dropped)
            self._settled = dict(self.shown)
        for request in self._requests.open():
            cut = (self._requests.told(request.number, "announced") or {}).get("cut")
            if cut is None:
                continue
            if self._is_over(machine, request, cut):
                self._requests.say(request.number, "done", cut=cut)
            elif (
                request.joins
                and {request.view} <= machine.suspended.keys() & machine.joining.keys()
            ):
                self._end_unseen(request, causes.get(request.view, {}))

    def _settle_views(self, dropped: Mapping[str, int]) -> None:
        stored = catalog = load_catalog(self._warehouse)
        for view in catalog.groups.get(self._group, ()):
            if view not in self.shown:
                catalog = catalog.without_view(view, dropped.get(view))
                self._writer.forget_view(view)
        for view, since in self.shown.items():
            joined = catalog.joined.get(view)
            request = self._requests.joining(view)
            if since == (joined.since if joined else 0) or request is None:
                continue
            spec = self._spec(request, stored)
            table = self._writer.add_view(table_of(spec, Joined(since, request.number)))
            catalog = catalog.with_view(
                spec, self._group, Joined(since, request.number, table.column)
            )
        if catalog != stored:
            replace_catalog(self._warehouse, catalog)

    def _is_over(self, machine: MergeMachine, request: Request, cut: int) -> bool:
        """Whether what was announced at the cut has been committed, or can no longer be."""
        view = request.view
        if machine.dropped.get(view, -1) >= cut:
            return view not in machine.submission.dropped
        return request.joins and self.shown.get(view) == cut

    def _end_unseen(self, request: Request, cause: Mapping[str, str]) -> None:
        """A view that was suspended before any commit has shown it: a new one leaves again."""
        if request.change == "add":
            with suppress(
                FrescoError
            ):  # VIEW_CHANGE_PENDING: a start repeats what a crash cut short
                self._requests.put("drop", request.view, by_itself=True)
        error = FrescoError(
            "VIEW_SUSPENDED",
            "the view was suspended as it joined, so no commit shows it"
            + (f": {cause['what']}" if cause else ""),
            where=f"view {request.view}",
            todo=cause.get("todo")
            or "see the service's log for what is wrong with it; ask again when that is mended",
        )
        self._requests.say(request.number, "done", error=error.as_dict())

    def _spec(self, request: Request, catalog: Catalog) -> ViewSpec:
        """The view that joins: as the request has it, or as it was before it was suspended."""
        if request.entry is None:
            return next(view for view in catalog.views if view.name == request.view)
        known = catalog.known(request.entry.get("layout", 0))
        return spec_of(request.entry, known, f"request {request.number}")


def table_of(view: ViewSpec, joined: Joined | None = None) -> ViewTable:
    """What the warehouse's writer needs to know of a view."""
    since, column = (joined.since, joined.column) if joined else (0, "")
    return ViewTable(view.name, view.schema, view.key or (), since, column)
