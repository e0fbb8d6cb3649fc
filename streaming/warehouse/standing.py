"""How each view of a group stands, as rows of the group's own table, for readers of other engines.

They see rows and no commit metadata, so a suspended view's frozen rows look to them like any other's. The
table therefore holds one view more, `fresco_views`, which every commit keeps right in itself: whoever
reads it beside the views in one query sees it of the same epoch. It is no view of the pipeline: it has no
SQL, is not in the catalog and not in the changelog, and is written only when what it says changes.

    view, state ("maintained" or "suspended"), last_good (NULL while it is maintained: it moves with its
    group), code and reason (of the error)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.warehouse.changelog import fields_of
from streaming.warehouse.delta_table import TableHandle, ViewTable
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_state import read_state
from streaming.warehouse.names import physical_names

STANDING = ViewTable(
    "fresco_views",
    (
        Column("view", "string"),
        Column("state", "string"),
        Column("last_good", "bigint"),
        Column("code", "string"),
        Column("reason", "string"),
    ),
    (0,),
)
"""Its name is refused for a view of the pipeline (`viewfile`)."""

Standing = frozenset[tuple[str, str, int | None, str | None, str | None]]


def standing(epoch: Epoch, views: Iterable[str]) -> Standing:
    """The rows at an epoch.

    Args:
        views: of the group, where the epoch does not say.
    """
    rows: list[Any] = []
    for view in sorted({*(epoch.views or views), *epoch.suspended} - {STANDING.name}):
        if view in epoch.suspended:
            error = epoch.causes.get(view, {})
            cause = (error.get("code"), error.get("what"))
            rows.append((view, "suspended", epoch.suspended[view], *cause))
        else:
            rows.append((view, "maintained", None, None, None))
    return frozenset(rows)


class StandingRows:
    """The rows in one group's table, kept from commit to commit."""

    def __init__(self) -> None:
        self._rows: Standing | None = None
        self._next: Standing = frozenset()

    def change(self, table: TableHandle, epoch: Epoch, views: Iterable[str]) -> dict[str, pa.Table]:
        """What the commit of an epoch changes, as deltas; {} when the table says it already."""
        before = standing_in(table) if self._rows is None else self._rows
        self._rows, self._next = None, standing(epoch, views)
        return {} if before == self._next else {STANDING.name: _delta(before, self._next, epoch)}

    def committed(self) -> None:
        """The last change is in the table; where this is not said, the table is read again."""
        self._rows = self._next


def standing_in(table: TableHandle) -> Standing:
    """The rows that a version of the table has; none in one of an older Fresco."""
    found: list[Any] = []
    names = physical_names([column.name for column in STANDING.schema])
    for entry in table.files(STANDING.name):
        held = fields_of(read_state(table.place, entry, STANDING), STANDING.struct)
        found += zip(*(held[name].to_pylist() for name in names), strict=True)
    return frozenset(found)


def _delta(before: Standing, after: Standing, epoch: Epoch) -> pa.Table:
    signed = [(-1, row) for row in before - after] + [(1, row) for row in after - before]
    rows = [(epoch.frontier, sign, *row) for sign, row in signed]
    schema = delta_schema(STANDING.schema)
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)
