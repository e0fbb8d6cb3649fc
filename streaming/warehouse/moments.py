"""From a moment to a transaction number, by the sources' commit times.

The state as of a moment is the one after the longest prefix of numbers that all committed at or
before it. Epochs carry the newest commit time they cover, which bounds the search: below the last
epoch that is old enough everything qualifies, and only the number map of the next epoch is read.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow.compute as pc

from streaming.errors import FrescoError
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.epoch_log import EpochLog
from streaming.warehouse.snapshot import expired, open_group
from streaming.warehouse.updates import UpdatesReader


def number_at(warehouse: TableFolder, group: str, time: datetime | int) -> int:
    """The last transaction of the state as of a moment; at least 0, the initial state.

    Args:
        time: a datetime with a zone, or milliseconds since 1970.
    Raises:
        FrescoError: READ_AT for a datetime without zone, READ_NO_EPOCH; READ_EPOCH_EXPIRED when
            the commit times that would tell have been dropped.
    """
    moment = _milliseconds(time)
    table, newest = open_group(warehouse, group)
    if _old_enough(newest, moment):
        return newest.frontier
    log = EpochLog(table.place, table.version)
    before = log.last_where(lambda one: _old_enough(one, moment))
    low = before.epoch.frontier if before else 0
    if newest.sessions:
        return low  # one state an epoch; the number map tells nothing of them
    after = log.next_after(before)
    high = after.epoch.frontier if after else newest.frontier
    reader = UpdatesReader(warehouse.uri)
    if moment < reader.kept_since and max(low, 0) + 1 < reader.kept_from:
        raise expired(table.place, f"commit times before transaction {reader.kept_from} are gone")
    found = reader.transactions(max(low, 0), high)
    late = found.filter(pc.greater(found.column("committed_ms"), moment)).column("number")
    return max(0, int(np.min(late.to_numpy())) - 1) if len(late) else max(0, high)


def _old_enough(epoch: Epoch, moment: int) -> bool:
    return epoch.committed_ms is None or epoch.committed_ms <= moment


def _milliseconds(time: datetime | int) -> int:
    if not isinstance(time, datetime):
        return int(time)
    if time.tzinfo is None:
        raise FrescoError("READ_AT", f"{time} has no time zone", todo="give a zone, such as UTC")
    return int(time.timestamp() * 1000)
