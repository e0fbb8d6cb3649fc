"""One warehouse transaction: all views of a group in one Delta commit, exactly once (DESIGN 8, 9).

The steps, in this order, and why a crash between any two does no harm:

1. Net the deltas per `_id`, find the rows they change, and check that no multiplicity falls below
   zero. The changelog's files are written meanwhile; nothing names them before all has passed.
2. Append the changelog under (`fresco/<pipeline>/<group>/changes`, epoch).
3. Commit the group table under (`fresco/<pipeline>/<group>/state`, epoch): the commit point.
   Readers of the changelog go no further than this commit's covered numbers.

What the table says of its views (`standing`) is part of the commit, and of no changelog.

A repeat finds its epoch in the handle it would commit with, and does nothing. A writer that was
paused holds a stale handle: its commit conflicts, it reloads and decides again. A writer of an
older start sees the newer generation in the last commit and is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streaming.engines.duck_engine import duck_engine
from streaming.errors import FrescoError
from streaming.scalars.expression import NUMBER
from streaming.warehouse.changelog import CHANGES_STATS, check_delta, write_changes
from streaming.warehouse.data_files import Action, TableFolder, delete_files, now_ms
from streaming.warehouse.delta_table import (
    Conflict,
    FileEntry,
    TableHandle,
    ViewTable,
    changes_schema,
    contended,
    state_schema,
)
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_state import STATE_STATS, StateChange, plan_change, write_change
from streaming.warehouse.rewrite import IdIndex
from streaming.warehouse.standing import STANDING, StandingRows
from streaming.warehouse.table_options import WriterOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 8
OF_ITS_ROWS = (
    FrescoError,
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    duckdb.DataError,
    ArithmeticError,
)
"""What planning a view's change raises because of the rows it is given: the view's trouble alone."""


@dataclass(frozen=True)
class Committed:
    """What a commit came to.

    Attributes:
        repeated: the epoch was there already; nothing was done.
        writer: "delta-rs" or "spark".
        changes: rows appended to the changelog.
        rewritten: bytes of the files replaced.
        version: Delta version of the group table.
    """

    repeated: bool
    writer: str
    changes: int
    rewritten: int
    version: int


@dataclass(frozen=True)
class Planned:
    """A commit that is to come.

    Attributes:
        changes: view -> its changes, numbers included.
        drop: views whose rows leave the table in it.
        added: views whose column it brings.
    """

    epoch: int
    changes: Mapping[str, pa.Table]
    drop: Sequence[str] = ()
    added: Sequence[ViewTable] = ()


def _as_fresco(view: ViewTable, error: Exception) -> FrescoError:
    if isinstance(error, FrescoError):
        return error
    return FrescoError(
        "WAREHOUSE_ROWS",
        f"the table cannot take the view's rows: {error}",
        where=f"view {view.name}",
        todo="see the service's log, and report it with the view's SQL; "
        f"`fresco view resume {view.name}` tries again",
    )


class GroupWriter:
    """The one writer of a merge group's tables; safe to call from several threads."""

    def __init__(
        self,
        warehouse: str,
        pipeline: str,
        group: str,
        views: Sequence[ViewTable],
        options: WriterOptions | None = None,
    ) -> None:
        self.options = options or WriterOptions()
        self.group = group
        self.views = {view.name: view for view in (*views, STANDING)}
        self._standing = StandingRows()
        self.index = IdIndex()
        self._prepared: tuple[int, int, dict[str, StateChange]] | None = None
        """The table's version, an epoch and its plans by view, as `refused` has made them."""
        self.lock = threading.Lock()
        self._state_app = f"fresco/{pipeline}/{group}/state"
        self._changes_app = f"fresco/{pipeline}/{group}/changes"
        base = TableFolder.of(warehouse)
        self._warehouse = base
        self._duck = duck_engine()
        self._pool = ThreadPoolExecutor(self.options.threads, thread_name_prefix="warehouse")
        self.state = TableHandle.create(
            *(base.below(group), state_schema([*views, STANDING]), "view", STATE_STATS),
            self.options.table,
        )
        self.changes = TableHandle.create(
            base.below(f"{group}_changes"),
            changes_schema(views),
            "view",
            CHANGES_STATS,
            self.options.table,
        )
        self.before_commit: Callable[[str], None] = lambda table: None
        """Called with "changes" or "state" just before that commit: for scripted crashes."""
        self._ensure_columns(views)
        self._ensure_column(self.state, state_schema([STANDING]))

    def last(self) -> Epoch | None:
        """The newest epoch in the table."""
        self.state.refresh()
        return self.state.epoch()

    def add_view(self, view: ViewTable) -> ViewTable:
        """Give a view its column; its rows come with the next commit. Returns it with its column.

        The column comes in a commit of its own without rows, with the last epoch's metadata: no
        reader sees a difference. Where an earlier view of that name has left a column of other types,
        the new one's is named after the number at which it joins; so a repeat makes the same choice.

        Raises:
            FrescoError: WAREHOUSE_SCHEMA when such a column is in the way of a view of number 0.
        """
        with self.lock:
            try:
                self._ensure_columns([view])
            except FrescoError as error:
                if error.code != "WAREHOUSE_SCHEMA" or not view.since:
                    raise
                view = replace(view, column=f"{view.name}@{view.since}")
                self._ensure_columns([view])
            self.views[view.name] = view
            return view

    def forget_view(self, name: str) -> None:
        """A view that has been dropped: it is no longer the group's; its column stays, empty."""
        with self.lock:
            self.views.pop(name, None)

    def _ensure_columns(self, views: Sequence[ViewTable]) -> None:
        for table, schema in (
            (self.state, state_schema(views)),
            (self.changes, changes_schema(views)),
        ):
            self._ensure_column(table, schema)

    def _ensure_column(self, table: TableHandle, schema: pa.Schema) -> None:
        for _ in range(_ATTEMPTS):
            table.refresh()
            try:
                return table.add_columns(schema, table.metadata())
            except Conflict:
                continue
        raise contended("a view's columns", _ATTEMPTS, self.state.place)

    def commit(
        self,
        changes: Mapping[str, pa.Table],
        epoch: Epoch,
        *,
        drop: Sequence[str] = (),
        spark: Callable[[], SparkSession] | None = None,
    ) -> Committed:
        """Commit one warehouse transaction; without changes it only moves the numbers on.

        Args:
            changes: view -> its changes as a delta, numbers included.
            epoch: the metadata; its number must be the one after the last.
            drop: views whose rows leave the table in this commit; what `changes` has of such a view
                is its new content.
            spark: gives a session for changes that rewrite much.
        Raises:
            FrescoError: WAREHOUSE_NEGATIVE, WAREHOUSE_KEY, WAREHOUSE_SCHEMA, WAREHOUSE_FENCED,
                WAREHOUSE_EPOCH (a gap), WAREHOUSE_CONFLICT; nothing became visible.
        """
        deltas = {
            name: check_delta(self._view(name), delta)
            for name, delta in sorted(changes.items())
            if delta.num_rows
        }
        if epoch.written_ms is None:
            epoch = replace(epoch, written_ms=now_ms())
        with self.lock:
            for _ in range(_ATTEMPTS):
                try:
                    return self._attempt(deltas, epoch, drop, spark)
                except Conflict:
                    continue
        raise contended(f"epoch {epoch.epoch}", _ATTEMPTS, self.state.place)

    def refused(self, wanted: Sequence[Planned]) -> dict[str, tuple[int, FrescoError]]:
        """What of these changes the table cannot take: view -> the first number at which, and why.

        Nothing is written. Each of them comes after those before it; the answer is that of the first
        where any view is refused. What was planned for the first is used by its commit.

        """
        with self.lock:
            self.state.refresh()
            self._prepared = None
            before: dict[str, list[StateChange]] = {}
            for at, one in enumerate(wanted):
                for name in one.drop:
                    before.pop(name, None)
                dropped = {*one.drop, *(name for past in wanted[:at] for name in past.drop)}
                files = [file for file in self.state.files() if file.partition not in dropped]
                views = {**self.views, **{view.name: view for view in one.added}}
                plans: dict[str, StateChange] = {}
                found: dict[str, tuple[int, FrescoError]] = {}
                for name, delta in sorted(one.changes.items()):
                    if not delta.num_rows:
                        continue
                    view = views[name] if name in views else self._view(name)
                    past = before.get(name, ())
                    try:
                        plans[name] = self._plan(view, check_delta(view, delta), files, past)
                    except OF_ITS_ROWS as error:
                        first = self._first(view, delta, files, past)
                        found[name] = first, _as_fresco(view, error)
                if found:
                    return found
                if not at:
                    self._prepared = self.state.version, one.epoch, plans
                for name, plan in plans.items():
                    before.setdefault(name, []).append(plan)
            return {}

    def _plan(
        self,
        view: ViewTable,
        delta: pa.Table,
        files: Sequence[FileEntry],
        earlier: Sequence[StateChange] = (),
    ) -> StateChange:
        place, index = self.state.place, self.index
        return plan_change(place, view, delta, files, index, self._duck, earlier)

    def _first(
        self,
        view: ViewTable,
        delta: pa.Table,
        files: Sequence[FileEntry],
        earlier: Sequence[StateChange],
    ) -> int:
        """A number at which the view's rows, taken together so far, cannot be applied, and just before
        which they can."""
        numbers = pc.unique(delta.column(NUMBER)).sort().to_pylist()
        good, bad = -1, len(numbers) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            upto = delta.filter(pc.less_equal(delta.column(NUMBER), numbers[middle]))
            try:
                self._plan(view, check_delta(view, upto), files, earlier)
                good = middle
            except OF_ITS_ROWS:
                bad = middle
        return int(numbers[bad])

    def _view(self, name: str) -> ViewTable:
        if name not in self.views:
            raise FrescoError(
                "WAREHOUSE_SCHEMA",
                "the group has no such view",
                where=name,
                todo="add the view with `fresco view add FILE`",
            )
        return self.views[name]

    def _attempt(
        self,
        deltas: Mapping[str, pa.Table],
        epoch: Epoch,
        drop: Sequence[str],
        spark: Callable[[], SparkSession] | None,
    ) -> Committed:
        self.state.refresh()
        self.changes.refresh()
        if self.state.committed(self._state_app) >= epoch.epoch:
            return Committed(True, "delta-rs", 0, 0, self.state.version)
        self._check_epoch(epoch)
        told = self._standing.change(self.state, epoch, self.views.keys() - set(drop))
        plans = self._plan_and_append({**deltas, **told}, epoch, drop)
        rewritten = sum(plan.size for plan in plans)
        if spark is not None and rewritten > self.options.spark_bytes:
            self._merge_by_spark(spark(), plans, epoch, drop)
            writer = "spark"
        else:
            self._commit_state(plans, epoch, drop)
            writer = "delta-rs"
        self._standing.committed()
        rows = sum(delta.num_rows for delta in deltas.values())
        return Committed(False, writer, rows, rewritten, self.state.version)

    def _check_epoch(self, epoch: Epoch) -> None:
        last = self.state.epoch()
        if last is None:
            return
        if last.generation > epoch.generation:
            raise FrescoError(
                "WAREHOUSE_FENCED",
                f"start {last.generation} holds the pipeline; this is start {epoch.generation}",
                where=self.group,
                todo="stop this service: another one has taken over",
            )
        if epoch.epoch != last.epoch + 1:
            raise FrescoError(
                "WAREHOUSE_EPOCH",
                f"epoch {epoch.epoch} cannot follow epoch {last.epoch}",
                where=self.group,
                todo="the merge state is not that of this warehouse; restore both together",
            )

    def _plan_and_append(
        self, deltas: Mapping[str, pa.Table], epoch: Epoch, drop: Sequence[str]
    ) -> list[StateChange]:
        """Plan every view, write the changelog's files meanwhile, commit them when plans hold."""
        names = sorted(deltas, key=lambda name: -deltas[name].num_rows)
        files = [one for one in self.state.files() if one.partition not in drop]
        version, number, made = self._prepared or (-1, 0, {})
        if (version, number) != (self.state.version, epoch.epoch):
            made = {}
        self._prepared = None
        planned = [
            self._pool.submit(self._plan, self.views[name], deltas[name], files)
            for name in names
            if name not in made
        ]
        wanted = self.changes.committed(self._changes_app) < epoch.epoch
        written = [
            self._pool.submit(write_changes, self.changes.place, self.views[name], deltas[name])
            for name in (names if wanted else ())
            if name != STANDING.name
        ]
        actions = [future.result() for future in written]
        try:
            plans = [*made.values(), *(future.result() for future in planned)]
        except FrescoError:
            delete_files(self.changes.place, actions)
            raise
        if actions:
            self.before_commit("changes")
            self._commit(self.changes, actions, epoch, self._changes_app)
        return plans

    def _commit_state(
        self, plans: Sequence[StateChange], epoch: Epoch, drop: Sequence[str]
    ) -> None:
        place, size = self.state.place, self.options.file_bytes
        written = self._pool.map(lambda plan: write_change(place, plan, size, self.index), plans)
        actions: list[Action] = [action for actions in written for action in actions]
        for name in drop:
            actions += [one.removal("view") for one in self.state.files(name)]
        self.before_commit("state")
        self._commit(self.state, actions, epoch, self._state_app)

    def _commit(
        self, table: TableHandle, actions: Sequence[Action], epoch: Epoch, application: str
    ) -> None:
        try:
            table.commit(actions, epoch.to_json(), application, epoch.epoch)
        except Conflict:
            delete_files(table.place, actions)
            raise

    def _merge_by_spark(
        self,
        spark: SparkSession,
        plans: Sequence[StateChange],
        epoch: Epoch,
        drop: Sequence[str],
    ) -> None:
        from streaming.warehouse.spark_merge import merge_by_spark

        self.before_commit("state")
        views = list(self.views.values())
        merge_by_spark(
            spark, self._warehouse, self.state, views, plans, drop, epoch, self._state_app
        )
        self.state.refresh()
        if self.state.committed(self._state_app) < epoch.epoch:
            raise Conflict("Spark's commit is not in the log")

    def close(self) -> None:
        """Stop the pool's threads."""
        self._pool.shutdown()
        self._duck.close()
