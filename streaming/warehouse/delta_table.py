"""Fresco's Delta tables: their schemas, how they are made, and a handle to read and commit.

The group table `<warehouse>/<group>` is partitioned by `view`: `_id`, `_n` and one struct column
per view. Its changelog `<group>_changes` has `number` and `multiplicity` in their place. The
updates table `_updates` has one struct column per relation. Struct columns have physical names
(`names`), and each field carries its true name as metadata.

Exactly once (DESIGN 9): delta-rs neither skips nor refuses a repeated (application, version) on a
fresh handle, and fails on a stale one. So `TableHandle.commit` asks `transaction_version` of the very
handle that commits; a conflict surfaces as `Conflict`, and the caller reloads and decides again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import RemoveAction

from streaming.errors import FrescoError
from streaming.scalars.expression import Schema
from streaming.scalars.types import arrow_type
from streaming.warehouse.data_files import Action, TableFolder, now_ms
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.names import TRUE_NAME, physical_name, physical_names
from streaming.warehouse.table_options import TableOptions

MARK = '{"fresco'
"""How Fresco's `userMetadata` begins."""


@dataclass(frozen=True)
class ViewTable:
    """What the warehouse knows of a view.

    Attributes:
        key: its key's positions; () when none.
        since: the number at which it joined its group; what its name stood for before is another's.
        column: true name of its struct column where an earlier view of its name has left a column of
            other types; "" for its own name.
    """

    name: str
    schema: Schema
    key: tuple[int, ...] = ()
    since: int = 0
    column: str = ""

    @property
    def label(self) -> str:
        """True name of the struct column of its rows."""
        return self.column or self.name

    @property
    def struct(self) -> str:
        """The struct column of its rows."""
        return physical_name(self.label)


class Conflict(Exception):
    """Another commit came first; reload and decide again."""


def contended(what: str, attempts: int, place: TableFolder) -> FrescoError:
    """WAREHOUSE_CONFLICT, of who has met a `Conflict` each time that it decided again."""
    return FrescoError(
        "WAREHOUSE_CONFLICT",
        f"{what} met another commit {attempts} times in a row",
        where=place.uri,
        todo="let nothing but one Fresco write to the warehouse",
    )


def struct_field(name: str, schema: Schema) -> pa.Field:
    """The struct column of a view or relation, with true names as metadata."""
    physical = physical_names([column.name for column in schema])
    fields = [
        pa.field(inner, arrow_type(column.type), metadata={TRUE_NAME: column.name})
        for inner, column in zip(physical, schema, strict=True)
    ]
    return pa.field(physical_name(name), pa.struct(fields), metadata={TRUE_NAME: name})


def state_schema(views: Sequence[ViewTable]) -> pa.Schema:
    """Schema of the group table."""
    head = [("view", pa.string()), ("_id", pa.string()), ("_n", pa.int64())]
    return pa.schema([*map(_plain, head), *(struct_field(one.label, one.schema) for one in views)])


def changes_schema(views: Sequence[ViewTable]) -> pa.Schema:
    """Schema of the group's changelog."""
    head = [("view", pa.string()), ("number", pa.int64()), ("multiplicity", pa.int64())]
    return pa.schema([*map(_plain, head), *(struct_field(one.label, one.schema) for one in views)])


def _lacks(have: pa.Schema, wanted: pa.Schema, where: str) -> bool:
    """Whether a column, or a field inside a struct column, is missing.

    Raises FrescoError WAREHOUSE_SCHEMA for one of another type.
    """
    missing = False
    for field in wanted:
        at = have.get_field_index(field.name)
        if at < 0 or not pa.types.is_struct(field.type):
            missing = missing or at < 0
            continue
        held = {inner.name: inner.type for inner in have.field(at).type}
        for inner in field.type:
            kind = held.get(inner.name)
            missing = missing or kind is None
            if kind not in (None, inner.type):
                raise FrescoError(
                    "WAREHOUSE_SCHEMA",
                    f"{field.name}.{inner.name} is {kind} in the table and would be {inner.type}",
                    where=where,
                    todo="use another name, or start a new warehouse",
                )
    return missing


def _plain(pair: tuple[str, pa.DataType]) -> pa.Field:
    return pa.field(*pair)


class TableHandle:
    """One Delta table at one version; `refresh` moves it to the newest."""

    def __init__(self, place: TableFolder, handle: DeltaTable, partition: str) -> None:
        self.place = place
        self.handle = handle
        self.partition = partition

    @staticmethod
    def open(place: TableFolder, partition: str, version: int | None = None) -> TableHandle | None:
        """The table at `place`, newest unless a version is given; None when there is none."""
        try:
            return TableHandle(place, DeltaTable(place.uri, version=version), partition)
        except TableNotFoundError:
            return None

    @staticmethod
    def create(
        place: TableFolder,
        schema: pa.Schema,
        partition: str,
        stats: Sequence[str],
        options: TableOptions,
    ) -> TableHandle:
        """Make the table, or open it when another start has made it first."""
        handle = DeltaTable.create(
            place.uri,
            schema,
            mode="ignore",
            partition_by=[partition],
            configuration={
                "delta.dataSkippingStatsColumns": ",".join(stats),
                "delta.checkpointInterval": str(options.checkpoint_interval),
                "delta.logRetentionDuration": f"interval {options.log_retention_hours} hours",
                "delta.deletedFileRetentionDuration": (
                    f"interval {options.deleted_file_retention_hours} hours"
                ),
            },
        )
        return TableHandle(place, handle, partition)

    @property
    def version(self) -> int:
        """The Delta version this handle is at."""
        version: int = self.handle.version()
        return version

    def refresh(self) -> None:
        """Move to the newest version."""
        self.handle.update_incremental()

    def committed(self, application: str) -> int:
        """The application's last committed version in this handle's snapshot; -1 when none."""
        version = self.handle.transaction_version(application)
        return -1 if version is None else version

    def metadata(self) -> str | None:
        """`userMetadata` of the newest commit at or before this version that has Fresco's."""
        for version in range(self.version, -1, -1):
            text = commit_info(self.place, version).get("userMetadata")
            if text is not None and text.startswith(MARK):
                return str(text)
        return None

    def epoch(self) -> Epoch | None:
        """The epoch this version is at; None before the first."""
        return Epoch.from_json(self.metadata())

    def commit(
        self,
        actions: Sequence[Action],
        metadata: str | None = None,
        application: str | None = None,
        version: int | None = None,
    ) -> None:
        """Commit actions on exactly this handle's snapshot and move to the result.

        Raises:
            Conflict: another commit came in between; nothing was committed.
        """
        transactions = [Transaction(application, version)] if application else None
        try:
            self.handle.create_write_transaction(
                list(actions),
                "append",
                self.handle.schema(),
                [self.partition],
                commit_properties=commit_properties(metadata, transactions),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        self.refresh()

    def add_columns(self, schema: pa.Schema, metadata: str | None) -> None:
        """Add the columns of `schema`, and the fields inside its structs, that the table lacks.

        A commit without rows, just before the one that fills them; it carries the last metadata.

        Raises:
            Conflict: another commit came in between.
            FrescoError: WAREHOUSE_SCHEMA when a column of that name has another type.
        """
        have = pa.schema(self.handle.schema().to_arrow())
        if not _lacks(have, schema, self.place.uri):
            return
        try:
            write_deltalake(
                self.handle,
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                commit_properties=commit_properties(metadata),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        self.refresh()

    def files(self, value: str | None = None) -> list[FileEntry]:
        """The data files of this version, of one partition value or of all, in no order."""
        adds = pa.table(self.handle.get_add_actions(flatten=True))
        names = adds.column_names
        if f"partition.{self.partition}" not in names:
            return []
        lows = sorted(name for name in names if name.startswith("min."))
        rows = adds.to_pylist()
        found = [_entry(row, self.partition, lows) for row in rows]
        return [one for one in found if value is None or one.partition == value]


@dataclass(frozen=True)
class FileEntry:
    """A data file in the log: path, bytes, rows (None when unknown), statistics by column."""

    path: str
    size: int
    partition: str
    rows: int | None
    low: Mapping[str, Any]
    high: Mapping[str, Any]

    def removal(self, column: str, data_change: bool = True) -> RemoveAction:
        """The action that takes this file out of the table partitioned by `column`."""
        partition = {column: self.partition}
        return RemoveAction(self.path, data_change, now_ms(), self.size, partition)


def _entry(row: Mapping[str, Any], partition: str, lows: Sequence[str]) -> FileEntry:
    names = [name.removeprefix("min.") for name in lows]
    return FileEntry(
        row["path"],
        row["size_bytes"],
        row[f"partition.{partition}"],
        row.get("num_records"),
        {name: row[f"min.{name}"] for name in names},
        {name: row.get(f"max.{name}") for name in names},
    )


def commit_properties(
    metadata: str | None, transactions: list[Transaction] | None = None
) -> CommitProperties:
    """Commit properties with `userMetadata`; a conflict is never retried behind our back."""
    return CommitProperties(
        custom_metadata={"userMetadata": metadata} if metadata else None,
        max_commit_retries=0 if transactions else None,
        app_transactions=transactions,
    )


def commit_info(place: TableFolder, version: int) -> dict[str, Any]:
    """`commitInfo` of one version's log entry; {} when it has none or has expired."""
    path = place.path(f"_delta_log/{version:020d}.json")
    try:
        with place.filesystem.open_input_stream(path) as stream:
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        if line.startswith(b'{"commitInfo"'):
            info: dict[str, Any] = json.loads(line)["commitInfo"]
            return info
    return {}
