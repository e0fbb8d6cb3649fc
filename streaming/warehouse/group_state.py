"""The group table's part of a commit: from a view's delta to the files that leave and come.

Planning reads and checks; writing writes. The numbers of copies a plan ends with are absolute, so
the same plan serves the writer in the driver and Spark's MERGE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import FrescoError
from streaming.scalars import written
from streaming.scalars.expression import column_name
from streaming.warehouse.changelog import fields_of, one_array, struct_column
from streaming.warehouse.data_files import QUICK, Action, TableFolder, read_file, write_file
from streaming.warehouse.delta_table import FileEntry, ViewTable, struct_field
from streaming.warehouse.net_changes import net_changes
from streaming.warehouse.rewrite import (
    IdIndex,
    Integers,
    Located,
    id_prefixes,
    locate,
    replaced,
)

STATE_STATS = ("_id",)
LARGEST_FILE = 64 << 20


@dataclass(frozen=True)
class StateChange:
    """One view's part of a commit.

    Attributes:
        fresh: `_id` (ascending), `_n`, struct: the changed rows as they will be; `_n` 0 when gone.
        located: where they are now.
        files: the view's files before the commit.
    """

    view: ViewTable
    fresh: pa.Table
    located: Located
    files: tuple[FileEntry, ...]

    @property
    def final(self) -> Integers:
        """Copies of each changed row after the commit."""
        copies: Integers = self.fresh.column("_n").to_numpy()
        return copies

    @property
    def size(self) -> int:
        """Bytes of the files that will be replaced."""
        return self.located.size


def plan_change(
    place: TableFolder,
    view: ViewTable,
    delta: pa.Table,
    files: Sequence[FileEntry],
    index: IdIndex,
    connection: duckdb.DuckDBPyConnection | None = None,
    earlier: Sequence[StateChange] = (),
) -> StateChange:
    """Net a view's delta, find the changed rows, check multiplicities.

    Args:
        earlier: the view's changes that come before this one and are not in the files yet; the plan is
            then good for its check alone.
    Raises:
        FrescoError: WAREHOUSE_NEGATIVE when a retraction has no row to take away;
            WAREHOUSE_KEY when two rows would share one key.
    """
    own = tuple(one for one in files if one.partition == view.name)
    net = net_changes(delta, len(view.schema), view.key, connection)
    ids = one_array(net.column("_id"))
    located = locate(place, own, ids, index)
    for change in earlier:
        at = pc.index_in(ids, value_set=one_array(change.fresh.column("_id")))
        known = at.is_valid().to_numpy(zero_copy_only=False)
        counts = located.existing.copy()
        counts[known] = change.final[at.drop_null().to_numpy()]
        located = replace(located, existing=counts)
    minus = net.column("minus").to_numpy()
    final = located.existing + net.column("plus").to_numpy() - minus
    rows = delta.take(net.column("row"))
    _check(view, rows, located.existing - minus, final)
    fresh = pa.table(
        {
            "_id": ids,
            "_n": pa.array(final, pa.int64()),
            view.struct: struct_column(view.label, view.schema, rows),
        }
    )
    return StateChange(view, fresh, located, own)


def _check(view: ViewTable, rows: pa.Table, left: Integers, final: Integers) -> None:
    failing = np.flatnonzero((left if view.key else final) < 0)
    if len(failing):
        at = int(failing[0])
        more = f", and {len(failing) - 1} other rows too often" if len(failing) > 1 else ""
        raise FrescoError(
            "WAREHOUSE_NEGATIVE",
            f"a row is taken away that the view does not have, {_named(view, rows, at)}{more}",
            where=f"view {view.name}",
            todo=f"a change was lost before this one; {_MENDED.format(view=view.name)}",
        )
    many = np.flatnonzero(final > 1) if view.key else np.empty(0, np.int64)
    if len(many):
        at = int(many[0])
        more = f", and {len(many) - 1} other keys too" if len(many) > 1 else ""
        raise FrescoError(
            "WAREHOUSE_KEY",
            f"{int(final[at])} rows would have one key, {_named(view, rows, at)}{more}",
            where=f"view {view.name}",
            todo=f"a delete was lost before that row came again; {_MENDED.format(view=view.name)}",
        )


_MENDED = (
    "`fresco verify --source` shows which rows of its relations are not the database's; take a "
    "snapshot of those tables again, then `fresco view resume {view}`"
)


def _named(view: ViewTable, rows: pa.Table, at: int) -> str:
    """A row by its key, or by all its columns, as `a=1, b='x'`."""
    positions = view.key or range(len(view.schema))
    values = (f"{view.schema[p].name}={_shown(rows.column(column_name(p))[at])}" for p in positions)
    return ", ".join(values)


def _shown(value: pa.Scalar) -> str:
    """A value for people."""
    text = repr(written.value(value))
    return text if len(text) <= 100 else f"{text[:100]}..."


def write_change(
    place: TableFolder, plan: StateChange, file_bytes: int, index: IdIndex
) -> list[Action]:
    """Write the files that replace what a plan changes; the actions for the commit.

    Args:
        file_bytes: smallest target size of a file; a view of at most this many bytes is rewritten
            whole, as one file, whenever it changes.
    """
    new = (plan.located.existing == 0) & (plan.final > 0)
    arrived = plan.fresh if new.all() else plan.fresh.filter(pa.array(new))
    total = sum(one.size for one in plan.files)
    target = target_bytes(total, file_bytes)
    if plan.files and total <= file_bytes:
        return _rewrite_whole(place, plan, arrived, target, index)
    actions: list[Action] = []
    for hit in plan.located.hits:
        rows = replaced(read_state(place, hit.entry, plan.view), hit, plan.final, plan.fresh)
        actions.append(hit.entry.removal("view"))
        actions += write_sorted(place, plan.view, rows, target, index)
        index.forget(hit.entry.path)
    return actions + write_sorted(place, plan.view, arrived, target, index)


def _rewrite_whole(
    place: TableFolder, plan: StateChange, arrived: pa.Table, target: int, index: IdIndex
) -> list[Action]:
    hits = {hit.entry.path: hit for hit in plan.located.hits}
    if not hits and not arrived.num_rows:
        return []
    pieces = [arrived]
    for entry in plan.files:
        rows = read_state(place, entry, plan.view)
        hit = hits.get(entry.path)
        pieces.append(replaced(rows, hit, plan.final, plan.fresh) if hit else rows)
        index.forget(entry.path)
    rows = pa.concat_tables(pieces).sort_by("_id")
    removals: list[Action] = [entry.removal("view") for entry in plan.files]
    return removals + write_sorted(place, plan.view, rows, target, index)


def target_bytes(view_bytes: int, smallest: int) -> int:
    """Target size of a view's files: about 256 files for a view, between the two limits.

    Small files make a change rewrite little; many files make the log long.
    """
    return min(max(smallest, view_bytes // 256), LARGEST_FILE)


def read_state(place: TableFolder, entry: FileEntry, view: ViewTable) -> pa.Table:
    """A file's rows as `_id`, `_n` and the view's struct, whoever wrote it."""
    rows = read_file(place, entry.path, ["_id", "_n", view.struct])
    schema = _file_schema(view)
    struct = schema.field(view.struct)
    held = fields_of(rows, struct.name)
    arrays = [
        one_array(held[inner.name]).cast(inner.type)
        if inner.name in held
        else pa.nulls(rows.num_rows, inner.type)
        for inner in struct.type
    ]
    values = pa.StructArray.from_arrays(arrays, fields=list(struct.type))
    return pa.table([rows.column("_id"), rows.column("_n"), values], schema=schema)


def _file_schema(view: ViewTable) -> pa.Schema:
    return pa.schema(
        [("_id", pa.string()), ("_n", pa.int64()), struct_field(view.label, view.schema)]
    )


def write_sorted(
    place: TableFolder,
    view: ViewTable,
    rows: pa.Table,
    target: int,
    index: IdIndex,
    data_change: bool = True,
    compression: str = QUICK,
) -> list[Action]:
    """Write rows sorted by `_id` as files of about `target` bytes, none when there are no rows."""
    rows = rows.cast(_file_schema(view))
    count = rows.num_rows
    pieces = max(1, round(rows.nbytes * 0.6 / target))
    step = -(-count // pieces) if count else 1
    actions: list[Action] = []
    for start in range(0, count, step):
        piece = rows.slice(start, step)
        action = write_file(
            place, piece, ("view", view.name), STATE_STATS, data_change, compression
        )
        index.remember(action.path, id_prefixes(one_array(piece.column("_id"))))
        actions.append(action)
    return actions
