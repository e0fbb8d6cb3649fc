"""Upkeep between commits: fold small files, drop what is too old, delete files nobody can read.

It runs in the writer's own loop, under the writer's lock, one partition at a time and within a
time budget: on open Delta a compaction and a merge side by side make one of them fail. Its commits
change no row and repeat the metadata of the last epoch, so a reader finds the epoch in whatever
commit is newest. Checkpoints and the clean-up of expired log entries come with ordinary commits,
by the table's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from streaming.warehouse.changelog import CHANGES_STATS
from streaming.warehouse.data_files import SMALL, Action, delete_files, read_file, write_file
from streaming.warehouse.delta_table import Conflict, FileEntry, TableHandle, commit_properties
from streaming.warehouse.group_state import read_state, target_bytes, write_sorted
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.snapshot import KEPT_FROM, KEPT_SINCE


@dataclass(frozen=True)
class UpkeepOptions:
    """When upkeep acts.

    Attributes:
        small_files: fold a partition when it has this many small files.
        step_bytes: most bytes folded at once; the granularity of the time budget.
        numbered_bytes: a changelog or updates file below half of this is small.
        vacuum_s: seconds between two vacuums of a table.
    """

    small_files: int = 16
    step_bytes: int = 64 << 20
    numbered_bytes: int = 32 << 20
    vacuum_s: float = 3600.0


@dataclass(frozen=True)
class UpkeepDone:
    """What a round did: files folded away, files that came for them, files deleted by vacuum."""

    folded: int = 0
    written: int = 0
    vacuumed: int = 0

    def __add__(self, other: UpkeepDone) -> UpkeepDone:
        return UpkeepDone(
            self.folded + other.folded,
            self.written + other.written,
            self.vacuumed + other.vacuumed,
        )


class Upkeep:
    """Upkeep of one group's tables, and of numbered tables given beside them.

    Args:
        writer: the group's writer; its lock keeps upkeep and commits apart.
        numbered: more numbered tables of the same loop (`UpdatesWriter.table`).
        clock: seconds, growing; for the budget and the vacuum interval only.
    """

    def __init__(
        self,
        writer: GroupWriter | None,
        numbered: Sequence[TableHandle] = (),
        options: UpkeepOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._numbered = [*([writer.changes] if writer else []), *numbered]
        self._options = options or UpkeepOptions()
        self._clock = clock
        self._vacuumed: dict[str, float] = {}

    def run(self, budget_s: float) -> UpkeepDone:
        """One round within about `budget_s` seconds; a step that meets another commit is left."""
        end = self._clock() + budget_s
        done = UpkeepDone()
        if self._writer is not None:
            with self._writer.lock:
                done += self._fold_state(self._writer, end)
        for table in self._numbered:
            if self._writer is None:
                done += self._fold_numbered(table, end)
                continue
            with self._writer.lock:
                done += self._fold_numbered(table, end)
        for table in self._tables():
            done += self._vacuum(table, end)
        return done

    def _tables(self) -> list[TableHandle]:
        return [*([self._writer.state] if self._writer else []), *self._numbered]

    def _fold_state(self, writer: GroupWriter, end: float) -> UpkeepDone:
        writer.state.refresh()
        done = UpkeepDone()
        for name, view in sorted(writer.views.items()):
            files = writer.state.files(name)
            target = target_bytes(sum(one.size for one in files), writer.options.file_bytes)
            chosen = self._chosen(files, target // 2)
            if not chosen or self._clock() >= end:
                continue
            pieces = [read_state(writer.state.place, one, view) for one in chosen]
            rows = pa.concat_tables(pieces).sort_by("_id")
            actions = write_sorted(
                writer.state.place,
                view,
                rows,
                target,
                writer.index,
                data_change=False,
                compression=SMALL,
            )
            done += _replace(writer.state, chosen, actions, "view")
            for one in chosen:
                writer.index.forget(one.path)
        return done

    def _fold_numbered(self, table: TableHandle, end: float) -> UpkeepDone:
        table.refresh()
        done = UpkeepDone()
        for name in sorted({one.partition for one in table.files()}):
            files = sorted(table.files(name), key=lambda one: one.low.get("number") or 0)
            chosen = self._chosen(files, self._options.numbered_bytes // 2)
            if not chosen or self._clock() >= end:
                continue
            pieces = [read_file(table.place, one.path) for one in chosen]
            rows = pa.concat_tables(pieces, promote_options="permissive").sort_by("number")
            partition = (table.partition, name)
            action = write_file(table.place, rows, partition, CHANGES_STATS, data_change=False)
            done += _replace(table, chosen, [action], table.partition)
        return done

    def _chosen(self, files: Sequence[FileEntry], small: int) -> list[FileEntry]:
        """Small files to fold now: the first of them up to the bytes of one step."""
        found = [one for one in files if one.size < small]
        if len(found) < self._options.small_files:
            return []
        chosen: list[FileEntry] = []
        total = 0
        for one in found:
            total += one.size
            if total > self._options.step_bytes and len(chosen) > 1:
                break
            chosen.append(one)
        return chosen

    def _vacuum(self, table: TableHandle, end: float) -> UpkeepDone:
        now = self._clock()
        last = self._vacuumed.setdefault(table.place.uri, now)
        if now - last < self._options.vacuum_s or now >= end:
            return UpkeepDone()
        self._vacuumed[table.place.uri] = now
        if self._writer is None:
            return UpkeepDone(vacuumed=vacuum(table))
        with self._writer.lock:
            return UpkeepDone(vacuumed=vacuum(table))


def _replace(
    table: TableHandle, chosen: Sequence[FileEntry], written: Sequence[Action], column: str
) -> UpkeepDone:
    removals: list[Action] = [one.removal(column, data_change=False) for one in chosen]
    try:
        table.commit([*removals, *written], table.metadata())
    except Conflict:
        delete_files(table.place, written)
        table.refresh()
        return UpkeepDone()
    return UpkeepDone(len(chosen), len(written))


def vacuum(table: TableHandle, hours: int | None = None) -> int:
    """Delete files that no version younger than the retention reads; how many there were.

    Args:
        hours: a shorter retention than the table's, for tests and for `doctor`.
    """
    table.refresh()
    deleted = table.handle.vacuum(
        retention_hours=hours,
        dry_run=False,
        enforce_retention_duration=hours is None,
        commit_properties=commit_properties(table.metadata()),
        full=True,
    )
    table.refresh()
    return len(deleted)


def drop_below(table: TableHandle, bound: int, since_ms: int | None = None) -> int:
    """Drop whole files of a numbered table that hold only numbers below a bound; how many.

    The bound is first written into the table's properties, so that a reader who misses the rows is
    told why. Rows below the bound in files that also hold later ones stay until those go too.

    Args:
        since_ms: all numbers below the bound committed before this moment, where that is known.

    Raises Conflict when another commit came in between.
    """
    table.refresh()
    configuration = table.handle.metadata().configuration
    kept = int(configuration.get(KEPT_FROM, 0))
    old = [
        one
        for one in table.files()
        if (high := one.high.get("number")) is not None and high < bound
    ]
    if bound <= kept or not old:
        return 0
    metadata = table.metadata()
    properties = {KEPT_FROM: str(bound)}
    if since_ms is not None:
        properties[KEPT_SINCE] = str(max(since_ms, int(configuration.get(KEPT_SINCE, since_ms))))
    try:
        table.handle.alter.set_table_properties(
            properties,
            raise_if_not_exists=False,
            commit_properties=commit_properties(metadata),
        )
    except CommitFailedError as error:
        raise Conflict(str(error)) from error
    table.refresh()
    table.commit([one.removal(table.partition) for one in old], metadata)
    return len(old)
