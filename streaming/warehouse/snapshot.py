"""Rows of views at one state of a group: an epoch, or the state after any covered transaction.

A `GroupAtEpoch` fixes one Delta version of the group table and, when the number asked for is not exactly
that version's, the changes that lead from there to it. With C the covered numbers of the base
version,

    view at n  =  base  +  changes with number <= n outside C  -  changes with number > n inside C,

which holds for any base and for overtaken rows too; only the distance differs. Rows of the
changelog beyond every epoch (a commit that did not happen) are outside n's range by construction,
because n is at or below the frontier.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from streaming.errors import FrescoError
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name
from streaming.scalars.types import delta_schema
from streaming.warehouse.changelog import read_changes, within
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import TableHandle, ViewTable
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.epoch_log import EpochLog, VersionedEpoch
from streaming.warehouse.group_state import read_state
from streaming.warehouse.net_changes import net_changes

KEPT_FROM = "fresco.keptFrom"
"""Table property of a numbered table: numbers below it have been dropped."""
KEPT_SINCE = "fresco.keptSince"
"""Table property of `_updates`: what has been dropped committed before it (ms since 1970)."""


@dataclass(frozen=True)
class GroupAtEpoch:
    """One state of a group.

    Attributes:
        table: the group table at the base version.
        epoch: of the base version.
        number: the state is the one after this transaction.
        exact: the base version is that state; no changes are needed.
        newest: the group's newest epoch: what it says of suspended views holds for every state.
        changes: the changelog, when they are.
    """

    table: TableHandle
    epoch: Epoch
    number: int
    exact: bool
    newest: Epoch
    changes: TableHandle | None = None

    def behind(self, view: str) -> int | None:
        """The last good number of a view that this state shows as of then; None of all others."""
        after = self.newest.suspended.get(view, self.highest)
        return after if after < self.highest else None

    @property
    def highest(self) -> int:
        """The highest number that the state reflects; rows that have overtaken are among them."""
        covered = self.epoch.covered
        return covered[-1][1] if self.exact and covered else self.number

    def shows(self, view: ViewTable) -> bool:
        """Whether the base holds the view's rows; if not, all of it is in the changelog.

        Raises FrescoError READ_VIEW_NOT_THERE when the view is not part of this state.
        """
        shown = self.epoch.shows(view.name, view.since)
        if self.number < view.since or not (shown or self.changes is not None):
            raise FrescoError(
                "READ_VIEW_NOT_THERE",
                f"the view joined its group at transaction {view.since}, and this is the state after "
                f"{self.number} (epoch {self.epoch.epoch})",
                where=view.name,
                todo=f"read it at transaction {view.since} or later; `fresco view list` shows since when "
                "each view is there",
            )
        return shown

    def rows(self, view: ViewTable) -> pa.Table:
        """The view's rows: c0, c1, ..., and `_multiplicity` (>= 1); equal rows stand once.

        Raises FrescoError READ_EPOCH_EXPIRED when files of the base version are gone,
        READ_CHANGELOG when the changelog contradicts the base, and as `shows`.
        """
        shown = self.shows(view)
        base = _state_rows(self.table, view, shown)
        if (shown and self.exact) or self.changes is None:
            return base
        adjusted = _adjustments(self.changes, view, self, shown)
        if not adjusted.num_rows:
            return base
        numbered = base.add_column(0, NUMBER, pa.array([0] * base.num_rows, pa.int64()))
        kinds = adjusted.schema
        both = pa.concat_tables([numbered.select(kinds.names).cast(kinds), adjusted])
        net = net_changes(both, len(view.schema))
        if pc.max(net.column("minus")).as_py():
            raise FrescoError(
                "READ_CHANGELOG",
                f"the changelog does not lead to number {self.number}",
                where=view.name,
                todo="run `fresco verify`",
            )
        found = both.take(net.column("row")).drop_columns([NUMBER, MULTIPLICITY])
        return found.append_column(MULTIPLICITY, net.column("plus"))


def last_change(newest: Epoch, view: str, number: int) -> int:
    """The highest number up to `number` under which there are changes of the view.

    A suspended view that is just joining again has changes under a number that the epoch covers, and
    that belong to the next one.
    """
    return min(number, newest.suspended.get(view, number))


def _adjustments(
    changes: TableHandle, view: ViewTable, state: GroupAtEpoch, shown: bool
) -> pa.Table:
    """Rows to add to a state's base to get to the state after its number."""
    number, covered = state.number, state.epoch.covered if shown else ()
    highest = covered[-1][1] if covered else -1
    lowest = covered[0][1] if covered and covered[0][0] <= 0 else -1
    upto = last_change(state.newest, view.name, max(highest, number))
    found = read_changes(changes, view, min(lowest, number), upto)
    forward = within(within(found, ((0, number),)), covered, inside=False)
    backward = within(within(found, ((number + 1, max(highest, number + 1)),)), covered)
    flipped = pc.negate(backward.column(MULTIPLICITY))
    at = backward.schema.get_field_index(MULTIPLICITY)
    backward = backward.set_column(at, backward.schema.field(at), flipped)
    return pa.concat_tables([forward, backward])


def _state_rows(table: TableHandle, view: ViewTable, shown: bool) -> pa.Table:
    files = table.files(view.name) if shown else []
    try:
        with ThreadPoolExecutor(4) as pool:
            pieces = list(pool.map(lambda one: read_state(table.place, one, view), files))
    except FileNotFoundError as error:
        raise expired(table.place, f"a file of version {table.version} is gone") from error
    kinds = delta_schema(view.schema)
    names = [column_name(at) for at in range(len(view.schema))]
    if not pieces:
        empty = kinds.empty_table()
        return empty.select([*names, MULTIPLICITY])
    rows = pa.concat_tables(pieces)
    columns = dict(zip(names, rows.column(view.struct).flatten(), strict=True))
    return pa.table({**columns, MULTIPLICITY: rows.column("_n")})


def expired(place: TableFolder, what: str) -> FrescoError:
    """READ_EPOCH_EXPIRED with what is missing."""
    return FrescoError(
        "READ_EPOCH_EXPIRED",
        what,
        where=place.uri,
        todo='read a later state; see "How long things are kept" in docs/operations.md',
    )


def open_group(
    warehouse: TableFolder, group: str, version: int | None = None
) -> tuple[TableHandle, Epoch]:
    """The group's table and its epoch.

    Raises FrescoError READ_NO_EPOCH before the first commit.
    """
    table = TableHandle.open(warehouse.below(group), "view", version)
    epoch = table.epoch() if table else None
    if table is None or epoch is None:
        raise FrescoError(
            "READ_NO_EPOCH",
            "the group has no epoch yet",
            where=f"{warehouse.uri}/{group}",
            todo="wait for the first commit: every source's snapshot must be complete",
        )
    return table, epoch


def at_latest(warehouse: TableFolder, group: str) -> GroupAtEpoch:
    """The newest epoch."""
    table, epoch = open_group(warehouse, group)
    return GroupAtEpoch(table, epoch, epoch.frontier, True, epoch)


def at_epoch(warehouse: TableFolder, group: str, number: int) -> GroupAtEpoch:
    """A given epoch. Raises FrescoError READ_EPOCH_EXPIRED, READ_NO_EPOCH."""
    table, newest = open_group(warehouse, group)
    if number > newest.epoch or number < 1:
        raise FrescoError(
            "READ_NO_EPOCH",
            f"there is no epoch {number}; the newest is {newest.epoch}",
            where=table.place.uri,
        )
    found = EpochLog(table.place, table.version).last_where(lambda one: one.epoch <= number)
    if found is None or found.epoch.epoch != number:
        raise expired(table.place, f"epoch {number} is no longer in the log")
    opened = _at_version(table, found)
    if opened is None:
        raise expired(table.place, f"files of epoch {number} are gone")
    return GroupAtEpoch(opened, found.epoch, found.epoch.frontier, True, newest)


def at_transaction(warehouse: TableFolder, group: str, number: int) -> GroupAtEpoch:
    """The state after transaction `number`: the nearest epoch, and the changes from there.

    From the nearest epoch before it forward; when that one's files are gone, from the newest back.

    Raises:
        FrescoError: READ_ABOVE_FRONTIER; READ_NOT_RECORDED inside a commit of a view that is not
            maintained completely; READ_EPOCH_EXPIRED.
    """
    table, newest = open_group(warehouse, group)
    if not 0 <= number <= newest.frontier:
        raise FrescoError(
            "READ_ABOVE_FRONTIER",
            f"transaction {number} is not in 0..{newest.frontier}",
            where=table.place.uri,
            todo="wait until the frontier has reached it",
        )
    if number == newest.frontier and newest.is_prefix:
        return GroupAtEpoch(table, newest, number, True, newest)
    log = EpochLog(table.place, table.version)
    before = log.last_where(lambda one: one.frontier <= number)
    exact = before is not None and before.epoch.frontier == number and before.epoch.is_prefix
    after = log.next_after(before)
    if not exact and after is not None and not after.epoch.complete:
        low = before.epoch.frontier if before else -1
        raise FrescoError(
            "READ_NOT_RECORDED",
            f"no state is recorded between {low} and {after.epoch.frontier}",
            where=table.place.uri,
            todo="read at one of the two, or make every view of the group COMPLETE",
        )
    base = _at_version(table, before) if before else None
    # A view that joined in a later epoch, at a number that this one covers, is all in the changelog.
    alone = base is not None and exact and not any(newest.views.values())
    changes = None if alone else TableHandle.open(warehouse.below(f"{group}_changes"), "view")
    if base is not None and before is not None:
        return GroupAtEpoch(base, before.epoch, number, exact, newest, changes)
    kept = int((changes.handle.metadata().configuration if changes else {}).get(KEPT_FROM, 0))
    if changes is None or number + 1 < kept:
        raise expired(table.place, f"changes after transaction {number} have been dropped")
    return GroupAtEpoch(table, newest, number, False, newest, changes)


def _at_version(table: TableHandle, found: VersionedEpoch) -> TableHandle | None:
    """The table at an older version; None when its log or one of its files is gone."""
    if found.version == table.version:
        return table
    try:
        opened = TableHandle.open(table.place, "view", found.version)
    except Exception:  # delta-rs has no one class for a version that it cannot build
        return None
    if opened is None:
        return None
    paths = [opened.place.path(unquote(one.path)) for one in opened.files()]
    infos = opened.place.filesystem.get_file_info(paths)
    return None if any(info.type == pafs.FileType.NotFound for info in infos) else opened


def names_of(schema: Schema) -> list[str]:
    """True names of a schema's columns."""
    return [column.name for column in schema]


def suspended_views(warehouse: Path, group: str) -> Mapping[str, int]:
    """Suspended views of a group and their last good numbers, as the newest commit says."""
    try:
        return open_group(TableFolder.of(warehouse), group)[1].suspended
    except FrescoError as error:
        if error.code != "READ_NO_EPOCH":
            raise
        return {}
