"""What the warehouse recorded: updates of relations from number 0 on, and rows of one epoch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import FrescoError
from streaming.warehouse.data_files import TableFolder, read_file
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.snapshot import GroupAtEpoch, at_epoch
from streaming.warehouse.updates import UpdatesReader

EVERYTHING = 1 << 62
GONE = ("READ_EPOCH_EXPIRED", "READ_NO_EPOCH")


def truncations(warehouse: str) -> dict[str, list[int]]:
    """Relation -> the numbers under which it was truncated.

    Raises:
        FrescoError: VERIFY_RETENTION when updates have been dropped; nothing can be rebuilt then.
    """
    reader = UpdatesReader(warehouse)
    if reader.kept_from > 0:
        raise FrescoError(
            "VERIFY_RETENTION",
            f"updates below number {reader.kept_from} are no longer recorded: nothing can be "
            "recomputed from them",
            where="_updates",
            todo="compare the views with the databases: `fresco verify --source`; a "
            "pipeline that is to be verified whole has no retention.updates_hours from its start",
        )
    found: dict[str, list[int]] = {}
    truncates = (one for one in reader.controls(-1, EVERYTHING) if one.kind == "truncate")
    for control in truncates:
        found.setdefault(control.relation, []).append(control.number)
    return found


def epoch_state(warehouse: str, group: str, epoch: int) -> GroupAtEpoch | None:
    """The group's table at an epoch; None when it is no longer there."""
    try:
        return at_epoch(TableFolder.of(warehouse), group, epoch)
    except FrescoError as error:
        if error.code in GONE:
            return None
        raise


def view_rows(state: GroupAtEpoch, view: ViewTable) -> pa.Table | None:
    """The view's rows in a state, c0.. and last how often; None when files are gone."""
    try:
        return state.rows(view)
    except FrescoError as error:
        if error.code in GONE:
            return None
        raise


def doubled_id(state: GroupAtEpoch, view: str) -> str | None:
    """An `_id` that stands twice in a view."""
    place, files = state.table.place, state.table.files(view)
    ids = [read_file(place, one.path, ["_id"]).column("_id") for one in files]
    counts = pc.value_counts(
        pa.chunked_array([part for one in ids for part in one.chunks], pa.string())
    )
    doubled = counts.filter(pc.greater(counts.field("counts"), 1))
    return str(doubled[0]["values"].as_py()) if len(doubled) else None
