"""Which state a read is of, and which views it may not show there.

A suspended view stands still at its last good number while its group goes on. Beside the others at a
later state its rows would make a state that no source ever had, so a read that touches it there is
refused by name, unless the reader asks for its last good state.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from streaming.errors import FrescoError
from streaming.warehouse import snapshot
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.moments import number_at
from streaming.warehouse.snapshot import GroupAtEpoch


class At(TypedDict, total=False):
    """Which state is read: at most one of epoch, transaction and time; the newest epoch when none.

    Attributes:
        epoch: a warehouse commit's.
        transaction: after this number.
        time: a datetime with zone, or milliseconds since 1970, of the sources' commits: after the
            longest prefix of transactions that all committed at or before it.
        suspended_as_of: a suspended view is read as of its last good number; else it is refused where
            the state is a later one.
    """

    epoch: int | None
    transaction: int | None
    time: datetime | int | None
    suspended_as_of: bool


def state_at(warehouse: TableFolder, group: str, at: At) -> GroupAtEpoch:
    """The state of a group that is asked for.

    Raises:
        FrescoError: READ_AT, READ_ABOVE_FRONTIER, READ_EPOCH_EXPIRED, READ_NO_EPOCH, READ_NOT_RECORDED.
        TypeError: a keyword that `At` has not.
    """
    if unknown := at.keys() - At.__annotations__:
        raise TypeError(f"unexpected keyword {min(unknown)}")
    epoch, transaction, time = at.get("epoch"), at.get("transaction"), at.get("time")
    if sum(one is not None for one in (epoch, transaction, time)) > 1:
        raise FrescoError("READ_AT", "give at most one of epoch, transaction and time")
    if epoch is not None:
        return snapshot.at_epoch(warehouse, group, epoch)
    if time is not None:
        transaction = number_at(warehouse, group, time)
    if transaction is not None:
        return snapshot.at_transaction(warehouse, group, transaction)
    return snapshot.at_latest(warehouse, group)


def standing_still(state: GroupAtEpoch, views: Sequence[ViewTable], as_of: bool) -> dict[str, int]:
    """View -> its last good number, of the suspended views that a read would show as of then.

    Args:
        as_of: the reader has asked for suspended views as of their last good number.
    Raises:
        FrescoError: READ_SUSPENDED, the reader has not; READ_VIEW_NO_STATE, a view was suspended before
            it had a state; READ_VIEW_NOT_THERE.
    """
    behind: dict[str, int] = {}
    for view in views:
        after = state.behind(view.name)
        if after is not None and after < view.since:
            raise FrescoError(
                "READ_VIEW_NO_STATE",
                f"the view was suspended before it had a first state{_cause(state, view.name)}",
                where=f"view {view.name}",
                todo=f"mend what is wrong, then `fresco view resume {view.name}`",
            )
        state.shows(view)
        if after is not None:
            behind[view.name] = after
    if behind and not as_of:
        stands = "; ".join(
            f"{name} stands at its last good transaction {after}{_cause(state, name)}"
            for name, after in behind.items()
        )
        raise FrescoError(
            "READ_SUSPENDED",
            f"{stands}. This read is of the state after transaction {state.highest}",
            where=f"suspended: {', '.join(behind)}",
            todo=f"read at transaction {min(behind.values())} or before, or ask for the last good state: "
            "--suspended-as-of (in Python, suspended_as_of=True)",
        )
    return behind


def _cause(state: GroupAtEpoch, view: str) -> str:
    error = state.newest.causes.get(view)
    return f" ({error['code']}: {error['what']})" if error else ""
