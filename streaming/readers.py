"""Read a warehouse by its path alone: every view of a group at one and the same source state.

    warehouse = Warehouse("/data/lake")
    warehouse.read("balance")                        # the newest epoch
    warehouse.read("balance", transaction=1234)      # as of a source transaction
    warehouse.sql("SELECT sum(total) FROM balance JOIN flow USING (account)", time=noon)

A read fixes one Delta version of the group's table before it reads anything, so no number of
views, and no writer, can make it see two states (G6). Views are described by the catalog in the
warehouse.

A suspended view stands still at its last good number. A read of a later state is refused with its
name (READ_SUSPENDED), unless it asks for suspended views as they are (`suspended_as_of=True`), and
then says which ones stand where.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout
from streaming.errors import FrescoError
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema
from streaming.warehouse import reader_query, snapshot
from streaming.warehouse.changelog import read_changes, within
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import TableHandle, ViewTable
from streaming.warehouse.described import Described, read_catalog
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.epoch_log import all_epochs
from streaming.warehouse.read_state import At, standing_still, state_at
from streaming.warehouse.snapshot import GroupAtEpoch
from streaming.warehouse.updates import UpdatesReader

STANDING_STILL = "fresco.suspended_as_of"
"""Key of the metadata of an answer to SQL over views that stand still."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Snapshot:
    """Several views at one state.

    Attributes:
        tables: view -> its rows with true names.
        number: the state is the one after this transaction.
        epoch: of the Delta version that was read.
        suspended: view -> its last good number, of those that stand still: they are read as of that
            number, since the reader has asked for it.
    """

    tables: Mapping[str, pa.Table]
    number: int
    epoch: Epoch
    suspended: Mapping[str, int]


class Warehouse:
    """A warehouse folder; every call reads the newest log, nothing is kept open."""

    def __init__(self, path: str | Path) -> None:
        self._place = TableFolder.of(path)

    @property
    def _catalog(self) -> Described:
        return read_catalog(self._place)

    def views(self) -> list[str]:
        """Names of the views, sorted."""
        return sorted(self._catalog.views)

    def spec(self, view: str) -> Mapping[str, Any]:
        """The catalog's entry: name, group, schema, key, sql, relations, level and mode.

        Raises FrescoError READ_UNKNOWN_VIEW.
        """
        return self._catalog.entries[self._known(view)]

    def table(self, view: str) -> ViewTable:
        """What the warehouse's tables hold of a view. Raises FrescoError READ_UNKNOWN_VIEW."""
        return self._catalog.views[self._known(view)]

    def relations(self) -> list[Relation]:
        """The captured relations, sorted by name."""
        found = self._catalog.relations
        return [found[name] for name in sorted(found)]

    def layouts(self) -> Mapping[str, Layout]:
        """All columns that the captured relations have had, by relation."""
        return self._catalog.layouts

    def groups(self) -> list[str]:
        """Names of the merge groups, sorted."""
        return sorted(set(self._catalog.groups.values()))

    def epochs(self, group: str) -> list[Epoch]:
        """The epochs the group's log still tells of, ascending. READ_NO_EPOCH before the first."""
        table, _ = snapshot.open_group(self._place, group)
        return [one.epoch for one in all_epochs(table.place, table.version)]

    def read(
        self,
        view: str,
        expanded: bool = True,
        **at: Unpack[At],
    ) -> pa.Table:
        """A view's rows with its true column names, unordered.

        Args:
            expanded: a row of multiplicity k stands k times; otherwise once, with k in `_n`.
            at: which state (`At`).
        Returns:
            The schema's metadata holds fresco.epoch, fresco.number, fresco.version, and
            fresco.suspended_after when the view is suspended and read as of that number.
        Raises:
            FrescoError: READ_UNKNOWN_VIEW, READ_VIEW_DROPPED, READ_VIEW_NOT_THERE, READ_SUSPENDED,
                READ_VIEW_NO_STATE, READ_ABOVE_FRONTIER, READ_EPOCH_EXPIRED, READ_NO_EPOCH,
                READ_NOT_RECORDED, READ_AT.
        """
        name = self._known(view)
        state, _ = self._state([name], at)
        return self._table(state, name, expanded)

    def snapshot(
        self,
        views: Sequence[str],
        **at: Unpack[At],
    ) -> Snapshot:
        """Several views of one group at one state.

        Raises FrescoError as `read`, and READ_GROUPS when the views are in different groups.
        """
        names = [self._known(view) for view in views]
        state, behind = self._state(names, at)
        tables = {name: self._table(state, name, True) for name in names}
        return Snapshot(tables, state.number, state.epoch, behind)

    def sql(
        self,
        statement: str,
        **at: Unpack[At],
    ) -> pa.Table:
        """Run one SELECT (DuckDB's dialect) over the views of one group at one state.

        Where suspended views stand still, the schema's metadata holds fresco.suspended_as_of: JSON,
        view -> its last good number.

        Raises FrescoError as `snapshot`, and READ_SQL for anything but one SELECT over views.
        """
        used = [self._known(name) for name in reader_query.tables(statement)]
        if not used:
            return reader_query.run(statement, {})
        found = self.snapshot(used, **at)
        answer = reader_query.run(statement, found.tables)
        if not found.suspended:
            return answer
        return answer.replace_schema_metadata({STANDING_STILL: json.dumps(dict(found.suspended))})

    def changes(
        self,
        view: str,
        after: int = -1,
        upto: int | None = None,
        suspended_as_of: bool = False,
    ) -> pa.Table:
        """A view's changes with after < number <= upto (the frontier when None), true names.

        Columns `_number`, `_multiplicity`, then the view's; those of a suspended view end at its last
        good number. Raises FrescoError as `read`.
        """
        name = self._known(view)
        group = self._catalog.groups[name]
        group_table, newest = snapshot.open_group(self._place, group)
        last = newest.frontier if upto is None else upto
        if last > newest.frontier:
            raise FrescoError(
                "READ_ABOVE_FRONTIER",
                f"transaction {last} is above the frontier {newest.frontier}",
                where=name,
                todo="wait until the frontier has reached it",
            )
        described = self._catalog.views[name]
        table = TableHandle.open(self._place.below(f"{group}_changes"), "view")
        if table is None:
            raise snapshot.expired(self._place, "there is no changelog")
        state = GroupAtEpoch(group_table, newest, last, False, newest, table)
        standing_still(state, [described], as_of=suspended_as_of)
        found = read_changes(table, described, after, snapshot.last_change(newest, name, last))
        return _named(within(found, newest.covered), described.schema)

    def updates(self, relation: str, after: int = -1, upto: int | None = None) -> pa.Table:
        """A relation's recorded updates with after < number <= upto (all when None), true names.

        What the retention has dropped is not among them.

        Raises FrescoError READ_UNKNOWN_RELATION, READ_NO_WAREHOUSE.
        """
        known = self._catalog.relations
        if relation not in known:
            raise _unknown("READ_UNKNOWN_RELATION", "relation", relation, known)
        reader = UpdatesReader(self._place.uri)
        last = (1 << 62) if upto is None else upto
        schema = known[relation].schema
        return _named(reader.updates(relation, schema, after, last), schema)

    def spark(
        self,
        spark: SparkSession,
        view: str,
        **at: Unpack[At],
    ) -> DataFrame:
        """A view as a Spark DataFrame with true column names. Raises FrescoError as `read`."""
        from streaming.warehouse import spark_read

        name = self._known(view)
        state, _ = self._state([name], at)
        return spark_read.frame(spark, state, self._catalog.views[name])

    def register(
        self,
        spark: SparkSession,
        views: Sequence[str] | None = None,
        **at: Unpack[At],
    ) -> int:
        """Make temporary views of one group's views, all at one state; returns its number.

        Raises FrescoError as `snapshot`.
        """
        from streaming.warehouse import spark_read

        names = self.views() if views is None else [self._known(view) for view in views]
        state, _ = self._state(names, at)
        frames = {name: spark_read.frame(spark, state, self._catalog.views[name]) for name in names}
        for name, frame in frames.items():
            frame.createOrReplaceTempView(f"`{name}`" if not name.isidentifier() else name)
        return state.number

    def _known(self, view: str) -> str:
        views = self._catalog.views
        if view in views:
            return view
        alike = [name for name in views if name.casefold() == view.casefold()]
        if len(alike) == 1:
            return alike[0]
        if (last := self._catalog.dropped.get(view)) is not None:
            raise FrescoError(
                "READ_VIEW_DROPPED",
                f"the view was dropped after transaction {last}; what it held before went with it",
                where=f"view {view}",
                todo=f"read one of {', '.join(sorted(views))}, or add it again: `fresco view add FILE`"
                " (its states begin where it joins)",
            )
        raise _unknown("READ_UNKNOWN_VIEW", "view", view, views)

    def _one_group(self, names: Sequence[str]) -> str:
        groups = sorted({self._catalog.groups[name] for name in names})
        if len(groups) != 1:
            raise FrescoError(
                "READ_GROUPS",
                f"the views are in {len(groups)} groups, which move independently: "
                + ", ".join(groups),
                where=", ".join(names),
                todo="read one group at a time, or put the views into one group",
            )
        return groups[0]

    def _state(self, names: Sequence[str], at: At) -> tuple[GroupAtEpoch, dict[str, int]]:
        """The state that views of one group are read at, and those that stand still below it."""
        state = state_at(self._place, self._one_group(names), at)
        views = [self._catalog.views[name] for name in names]
        return state, standing_still(state, views, at.get("suspended_as_of", False))

    def _table(self, state: GroupAtEpoch, name: str, expanded: bool) -> pa.Table:
        view = self._catalog.views[name]
        rows = state.rows(view)
        copies = rows.column(MULTIPLICITY).to_numpy()
        found = rows.drop_columns([MULTIPLICITY]).rename_columns(snapshot.names_of(view.schema))
        if expanded and np.any(copies != 1):
            found = found.take(pa.array(np.repeat(np.arange(len(copies)), copies)))
        if not expanded:
            found = found.append_column("_n", rows.column(MULTIPLICITY))
        return found.replace_schema_metadata(_metadata(state, view))


def _metadata(state: GroupAtEpoch, view: ViewTable) -> dict[str, str]:
    facts = {
        "fresco.epoch": str(state.epoch.epoch),
        "fresco.number": str(state.number),
        "fresco.version": str(state.table.version),
    }
    if (after := state.behind(view.name)) is not None:
        facts["fresco.suspended_after"] = str(after)
    return facts


def _named(delta: pa.Table, schema: Schema) -> pa.Table:
    return delta.rename_columns([NUMBER, MULTIPLICITY, *snapshot.names_of(schema)])


def _unknown(code: str, kind: str, name: str, known: Mapping[str, Any]) -> FrescoError:
    close = difflib.get_close_matches(name, known, 1, 0.3) or sorted(known)[:1]
    advice = f"did you mean {close[0]}?" if close else f"the warehouse has no {kind}s"
    return FrescoError(code, f"there is no {kind} {name}", todo=advice)
