"""`<warehouse>/_updates`: every numbered update, the number map, and controls, in one Delta table.

Partitioned by `relation`: `number`, `multiplicity`, one struct column per relation, and two
partitions of Fresco's own: `_transactions` (number <-> source, transaction, position, commit time)
and `_controls` (truncations and taints). What the integrator learned in one step is appended in one
commit under (`fresco/<pipeline>/updates`, sequence), so a repeated step adds nothing. View managers
replay from here after a restart; `verify` recomputes from here; what is older than the retention is
dropped (`retention`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.scalars.expression import NUMBER, Column, Schema
from streaming.scalars.types import delta_schema
from streaming.warehouse.changelog import check_delta, numbered_rows, read_numbered
from streaming.warehouse.data_files import QUICK, Action, TableFolder, delete_files, write_file
from streaming.warehouse.delta_table import (
    Conflict,
    TableHandle,
    ViewTable,
    commit_info,
    contended,
    struct_field,
)
from streaming.warehouse.epoch_log import versions
from streaming.warehouse.names import distinct_names
from streaming.warehouse.snapshot import KEPT_FROM, KEPT_SINCE
from streaming.warehouse.table_options import TableOptions

FOLDER = "_updates"
TRANSACTIONS = "_transactions"
CONTROLS = "_controls"
UPDATES_STATS = ("number",)
TRANSACTIONS_SCHEMA: Schema = (
    Column("source", "string"),
    Column("transaction", "string"),
    Column("position", "string"),
    Column("committed_ms", "bigint"),
)
CONTROLS_SCHEMA: Schema = (
    Column("relation", "string"),
    Column("kind", "string"),
    Column("columns", "string"),
    Column("what", "string"),
    Column("place", "string"),
    Column("adds", "bigint"),
)
"""`columns` is a JSON list of names (`names.distinct_names` of the relation's columns)."""
_ATTEMPTS = 8


def updates_schema(relations: Sequence[Relation]) -> pa.Schema:
    """Schema of the updates table for these relations."""
    head = [
        pa.field("relation", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("multiplicity", pa.int64()),
        struct_field(TRANSACTIONS, TRANSACTIONS_SCHEMA),
        struct_field(CONTROLS, CONTROLS_SCHEMA),
    ]
    return pa.schema([*head, *(struct_field(one.name, one.schema) for one in relations)])


class UpdatesWriter:
    """The integrator's writer of `_updates`."""

    def __init__(
        self,
        warehouse: str,
        pipeline: str,
        relations: Sequence[Relation],
        options: TableOptions | None = None,
    ) -> None:
        self._app = f"fresco/{pipeline}/updates"
        self._relations: dict[str, Relation] = {}
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="updates")
        self.table = TableHandle.create(
            TableFolder.of(warehouse).below(FOLDER),
            updates_schema(relations),
            "relation",
            UPDATES_STATS,
            options or TableOptions(log_retention_hours=1, deleted_file_retention_hours=1),
        )
        self.add_relations(relations)

    def add_relations(self, relations: Sequence[Relation]) -> None:
        """Let the schema hold these relations too, or new columns at the end of known ones.

        Raises FrescoError WAREHOUSE_SCHEMA when a column's type has changed, WAREHOUSE_CONFLICT.
        """
        for _ in range(_ATTEMPTS):
            try:
                self.table.refresh()
                self.table.add_columns(updates_schema(relations), None)
                break
            except Conflict:
                continue
        else:
            raise contended("new columns", _ATTEMPTS, self.table.place)
        self._relations.update({one.name: one for one in relations})

    def recorded(self) -> int:
        """The sequence of the last step appended; 0 or less before the first."""
        self.table.refresh()
        return self.table.committed(self._app)

    def append(
        self,
        sequence: int,
        updates: Mapping[str, pa.Table],
        transactions: pa.Table | None = None,
        controls: Sequence[Control] = (),
        last: int | None = None,
    ) -> bool:
        """Append one step's updates; False when the sequence is there already.

        Args:
            sequence: the step's, 1, 2, ...
            updates: relation -> its updates as a delta.
            transactions: number, source, transaction, position, committed_ms.
            last: the step's last number, for the commit's metadata.
        Raises:
            FrescoError: WAREHOUSE_SCHEMA, WAREHOUSE_CONFLICT.
        """
        rows = {name: self._file_rows(name, delta) for name, delta in updates.items()}
        if transactions is not None:
            rows[TRANSACTIONS] = _transaction_rows(transactions)
        if controls:
            rows[CONTROLS] = self._control_rows(controls)
        for _ in range(_ATTEMPTS):
            self.table.refresh()
            if self.table.committed(self._app) >= sequence:
                return False
            actions = self._write(rows)
            metadata = json.dumps({"fresco_updates": sequence, "last": last})
            try:
                self.table.commit(actions, metadata, self._app, sequence)
                return True
            except Conflict:
                delete_files(self.table.place, actions)
        raise contended(f"step {sequence}", _ATTEMPTS, self.table.place)

    def _file_rows(self, name: str, delta: pa.Table) -> pa.Table:
        if name not in self._relations:
            raise FrescoError("WAREHOUSE_SCHEMA", "no such relation in _updates", where=name)
        schema = self._relations[name].schema
        for field in list(delta_schema(schema))[delta.num_columns :]:
            # A step of before the relation got the column, which a start repeats.
            delta = delta.append_column(field, pa.nulls(delta.num_rows, field.type))
        return numbered_rows(name, schema, check_delta(ViewTable(name, schema), delta))

    def _control_rows(self, controls: Sequence[Control]) -> pa.Table:
        struct = struct_field(CONTROLS, CONTROLS_SCHEMA)
        values = [
            {
                "relation": one.relation,
                "kind": one.kind,
                "columns": self._column_names(one) if one.columns else None,
                "what": one.what,
                "place": one.where,
                "adds": one.adds,
            }
            for one in controls
        ]
        return pa.table(
            {
                "number": pa.array([one.number for one in controls], pa.int64()),
                "multiplicity": pa.array([1] * len(controls), pa.int64()),
                struct.name: pa.array(values, struct.type),
            }
        )

    def _column_names(self, control: Control) -> str:
        names = distinct_names([one.name for one in self._relations[control.relation].schema])
        return json.dumps([names[position] for position in control.columns])

    def _write(self, rows: Mapping[str, pa.Table]) -> list[Action]:
        place = self.table.place

        def one(item: tuple[str, pa.Table]) -> Action:
            return write_file(
                place, item[1], ("relation", item[0]), UPDATES_STATS, compression=QUICK
            )

        return list(self._pool.map(one, [item for item in rows.items() if item[1].num_rows]))

    def close(self) -> None:
        """Stop the pool's threads."""
        self._pool.shutdown()


def _transaction_rows(transactions: pa.Table) -> pa.Table:
    struct = struct_field(TRANSACTIONS, TRANSACTIONS_SCHEMA)
    arrays = [
        transactions.column(inner.name).cast(inner.type).combine_chunks() for inner in struct.type
    ]
    return pa.table(
        {
            "number": transactions.column("number").cast(pa.int64()),
            "multiplicity": pa.array([1] * transactions.num_rows, pa.int64()),
            struct.name: pa.StructArray.from_arrays(arrays, fields=list(struct.type)),
        }
    )


@dataclass(frozen=True)
class LostColumn:
    """A taint of one column, named as it was then (`messages.Control`)."""

    number: int
    relation: str
    column: str
    adds: int | None
    what: str = ""


class UpdatesReader:
    """Reads `_updates` at one version; `refresh` moves to the newest."""

    def __init__(self, warehouse: str) -> None:
        table = TableHandle.open(TableFolder.of(warehouse).below(FOLDER), "relation")
        if table is None:
            raise FrescoError(
                "READ_NO_WAREHOUSE",
                "there is no _updates table",
                where=str(warehouse),
                todo="give the folder that the pipeline's `warehouse` setting names",
            )
        self.table = table

    def refresh(self) -> None:
        """Move to the newest version."""
        self.table.refresh()

    @property
    def last(self) -> int:
        """The highest number of which something is recorded; -1 before the first."""
        highs = [entry.high.get("number") for entry in self.table.files()]
        return max((int(high) for high in highs if high is not None), default=-1)

    @property
    def numbered(self) -> int | None:
        """The last number of the newest step; None when no commit that is still told of says it.

        It may be above `last`: a transaction may change nothing that is captured.
        """
        place = self.table.place
        for version in reversed([one for one in versions(place) if one <= self.table.version]):
            said = json.loads(commit_info(place, version).get("userMetadata") or "null")
            if isinstance(said, dict) and said.get("last") is not None:
                return int(said["last"])
        return None

    @property
    def kept_from(self) -> int:
        """The first number that is recorded whole; 0 while nothing has been dropped."""
        return int(self.table.handle.metadata().configuration.get(KEPT_FROM, 0))

    def records(self, relation: str) -> bool:
        """Whether updates of the relation are recorded, or would be if there were any."""
        held = {field.name for field in self.table.handle.schema().fields}
        return struct_field(relation, ()).name in held

    @property
    def kept_since(self) -> int:
        """What has been dropped committed before this moment (ms since 1970)."""
        return int(self.table.handle.metadata().configuration.get(KEPT_SINCE, 0))

    def updates(
        self,
        name: str,
        schema: Schema,
        after: int,
        upto: int,
        columns: Sequence[int] | None = None,
    ) -> pa.Table:
        """A relation's updates with after < number <= upto, as a delta (unsorted).

        Args:
            schema: the relation's; columns it has and old files lack are null.
            columns: positions to read, all when None; the others are left out.
        """
        return read_numbered(self.table, name, schema, after, upto, columns)

    def transactions(self, after: int, upto: int) -> pa.Table:
        """The number map: number, source, transaction, position, committed_ms; unsorted."""
        found = read_numbered(self.table, TRANSACTIONS, TRANSACTIONS_SCHEMA, after, upto)
        names = ["number", "_m", *(column.name for column in TRANSACTIONS_SCHEMA)]
        return found.rename_columns(names).drop_columns(["_m"])

    def controls(self, after: int, upto: int) -> list[Control]:
        """The controls of whole relations with after < number <= upto, in order."""
        return [
            Control.model_validate(
                {
                    "number": row[NUMBER],
                    "relation": row["c0"],
                    "kind": row["c1"],
                    "what": row["c3"] or "",
                    "where": row["c4"] or "",
                }
            )
            for row in self._control_rows(after, upto)
            if row["c2"] is None
        ]

    def lost_columns(self, after: int, upto: int) -> list[LostColumn]:
        """Taints of columns with after < number <= upto, in order."""
        return [
            LostColumn(row[NUMBER], row["c0"], column, row["c5"], row["c3"] or "")
            for row in self._control_rows(after, upto)
            if row["c2"] is not None
            for column in json.loads(row["c2"])
        ]

    def _control_rows(self, after: int, upto: int) -> list[dict[str, Any]]:
        found = read_numbered(self.table, CONTROLS, CONTROLS_SCHEMA, after, upto)
        return sorted(found.to_pylist(), key=lambda row: int(row[NUMBER]))
