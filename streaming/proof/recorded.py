"""What the warehouse recorded: updates of relations from number 0 on, and rows of one epoch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.snapshot import KEPT_FROM
from streaming.warehouse.updates import UpdatesReader

EVERYTHING = 1 << 62


def truncations(warehouse: str) -> dict[str, list[int]]:
    """Relation -> the numbers under which it was truncated.

    Raises:
        FrescoError: VERIFY_RETENTION when updates have been dropped; nothing can be rebuilt then.
    """
    reader = UpdatesReader(warehouse)
    configuration = reader.table.handle.metadata().configuration
    kept = int(configuration.get(KEPT_FROM, 0))
    if kept > 0:
        raise FrescoError(
            "VERIFY_RETENTION",
            f"updates below number {kept} are no longer recorded",
            where="_updates",
            todo="raise `retention` in the configuration, or use `fresco verify --source`",
        )
    found: dict[str, list[int]] = {}
    for control in reader.controls(-1, EVERYTHING):
        found.setdefault(control.relation, []).append(control.number)
    return found


def epoch_rows(warehouse: Warehouse, view: str, epoch: int) -> pa.Table | None:
    """The view's rows at an epoch with `_n` last; None when its files are no longer there."""
    try:
        return warehouse.read(view, epoch=epoch, expanded=False)
    except FrescoError as error:
        if error.code in ("READ_EPOCH_EXPIRED", "READ_NO_EPOCH"):
            return None
        raise


def doubled_id(warehouse: str, group: str, view: str, version: int) -> str | None:
    """An `_id` that stands twice in a view at a version of the group's table."""
    table = DeltaTable(f"{warehouse}/{group}", version=version)
    dataset = table.to_pyarrow_dataset(partitions=[("view", "=", view)])
    counts = pc.value_counts(dataset.to_table(columns=["_id"]).column("_id"))
    doubled = counts.filter(pc.greater(counts.field("counts"), 1))
    return str(doubled[0]["values"].as_py()) if len(doubled) else None
