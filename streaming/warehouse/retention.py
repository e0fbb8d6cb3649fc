"""How long `_updates` keeps what it recorded (DESIGN 5): whole files go, the oldest numbers first.

A number may go when it and all before it committed longer ago than the retention says, and nobody
needs it any more: no view manager would replay it after a restart, and every group has published
it. The number map tells the ages; its files are read from the oldest on, up to the first that holds
a transaction young enough to stay, so a round reads little more than it drops.
"""

from __future__ import annotations

import pyarrow.compute as pc

from streaming.warehouse.changelog import fields_of
from streaming.warehouse.data_files import read_file
from streaming.warehouse.delta_table import Conflict, FileEntry, TableHandle
from streaming.warehouse.names import physical_name
from streaming.warehouse.updates import TRANSACTIONS
from streaming.warehouse.upkeep import drop_below

EVERY_MS = 60_000
"""Between two rounds."""
_MAP = physical_name(TRANSACTIONS)


class UpdatesRetention:
    """Drops what is too old from `_updates`, in the integrator's loop.

    Args:
        table: of the `UpdatesWriter`.
        hours: since the commit of a transaction that may go.
    """

    def __init__(self, table: TableHandle, hours: int) -> None:
        self._table = table
        self._keep_ms = hours * 3_600_000
        self._next_ms = 0

    def run(self, now_ms: int, needed: int) -> int:
        """One round, at most one in `EVERY_MS`; returns how many files went.

        Args:
            needed: the first number that somebody still needs.
        """
        if now_ms < self._next_ms:
            return 0
        self._next_ms = now_ms + EVERY_MS
        before = now_ms - self._keep_ms
        self._table.refresh()
        try:
            return drop_below(self._table, min(needed, first_since(self._table, before)), before)
        except Conflict:
            return 0


def first_since(table: TableHandle, moment_ms: int) -> int:
    """The first number whose transaction committed at the moment or later; when there is none, the
    one after the last whose commit time is known (0 when none is)."""
    first: int | None = None
    last = -1
    for entry in sorted(table.files(TRANSACTIONS), key=_low):
        if first is not None and _low(entry) >= first:
            break
        rows = read_file(table.place, entry.path, ["number", f"{_MAP}.committed_ms"])
        times = fields_of(rows, _MAP)["committed_ms"]
        known = pc.max(rows.column("number").filter(pc.is_valid(times))).as_py()
        last = max(last, -1 if known is None else known)
        young = rows.column("number").filter(pc.greater_equal(times, moment_ms))
        found = pc.min(young).as_py()
        if found is not None:
            first = found if first is None else min(first, found)
    return last + 1 if first is None else first


def _low(entry: FileEntry) -> int:
    return int(entry.low.get("number") or 0)
