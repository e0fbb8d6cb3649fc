"""The changelog `<group>_changes`: every change of every view, under its number (DESIGN 8).

Append-only, written before the group table's commit, which is the commit point: a crash in between
leaves rows of numbers that no epoch covers yet. So readers take numbers only as the epoch they read
covers them, and the repeat of the epoch finds its rows already there and adds none.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.transaction import AddAction

from streaming.errors import FrescoError
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name
from streaming.scalars.types import delta_schema
from streaming.warehouse.data_files import QUICK, TableFolder, read_file, write_file
from streaming.warehouse.delta_table import FileEntry, TableHandle, ViewTable, struct_field
from streaming.warehouse.epoch import Runs
from streaming.warehouse.names import physical_name

CHANGES_STATS = ("number",)


def struct_column(view: str, schema: Schema, rows: pa.Table) -> pa.ChunkedArray:
    """The columns c0, c1, ... of `rows` as one struct column with the view's physical names.

    Chunk by chunk, so that nothing is copied.
    """
    kind = struct_field(view, schema).type
    values = rows.select([column_name(at) for at in range(len(schema))])
    chunks = [
        pa.StructArray.from_arrays(batch.columns, fields=list(kind))
        for batch in values.to_batches()
    ]
    return pa.chunked_array(chunks, type=kind)


def one_array(values: pa.ChunkedArray) -> pa.Array:
    """A column's chunks as one array, also when there are none."""
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def check_delta(view: ViewTable, delta: pa.Table) -> pa.Table:
    """The delta with exactly the view's delta schema.

    Raises FrescoError WAREHOUSE_SCHEMA when names or types differ.
    """
    wanted = delta_schema(view.schema)
    if delta.schema.equals(wanted):
        return delta
    try:
        if delta.schema.names != wanted.names:
            raise pa.ArrowInvalid(f"columns {delta.schema.names}, expected {wanted.names}")
        for have, want in zip(delta.schema, wanted, strict=True):
            if have.type != want.type:
                raise pa.ArrowInvalid(f"{have.name} is {have.type}, expected {want.type}")
        return delta.cast(wanted)
    except pa.ArrowInvalid as error:
        raise FrescoError(
            "WAREHOUSE_SCHEMA",
            f"the delta does not have the view's columns: {error}",
            where=view.name,
            todo="this is a defect in the view manager; report it",
        ) from error


def numbered_rows(name: str, schema: Schema, delta: pa.Table) -> pa.Table:
    """A delta of a view or relation as the rows of a numbered table: its values in one struct."""
    return pa.table(
        {
            "number": delta.column(NUMBER),
            "multiplicity": delta.column(MULTIPLICITY),
            physical_name(name): struct_column(name, schema, delta),
        }
    )


def write_changes(place: TableFolder, view: ViewTable, delta: pa.Table) -> AddAction:
    """One changelog file with all rows of a view's delta."""
    rows = numbered_rows(view.label, view.schema, delta)
    return write_file(place, rows, ("view", view.name), CHANGES_STATS, compression=QUICK)


def read_changes(table: TableHandle, view: ViewTable, after: int, upto: int) -> pa.Table:
    """The view's changes with after < number <= upto, as a delta (unsorted).

    Older ones than the view are those of an earlier view of its name.
    """
    first = max(after, view.since - 1)
    return read_numbered(table, view.name, view.schema, first, upto, struct=view.label)


def read_numbered(
    table: TableHandle,
    name: str,
    schema: Schema,
    after: int,
    upto: int,
    columns: Sequence[int] | None = None,
    struct: str | None = None,
) -> pa.Table:
    """Rows of one partition of a numbered table with after < number <= upto, as a delta.

    Args:
        columns: positions to read; the others are left out. All when None.
        struct: true name of the struct column, where it is not the partition's.
    """
    wanted = range(len(schema)) if columns is None else sorted(columns)
    target = pa.schema([delta_schema(schema).field(0), delta_schema(schema).field(1)])
    for at in wanted:
        target = target.append(delta_schema(schema).field(column_name(at)))
    pieces = [
        _numbered_rows(table.place, entry, struct or name, schema, target, (after, upto))
        for entry in table.files(name)
        if _overlaps(entry, after, upto)
    ]
    return pa.concat_tables(pieces) if pieces else target.empty_table()


def _overlaps(entry: FileEntry, after: int, upto: int) -> bool:
    low, high = entry.low.get("number"), entry.high.get("number")
    return (low is None or low <= upto) and (high is None or high > after)


def _numbered_rows(
    place: TableFolder,
    entry: FileEntry,
    name: str,
    schema: Schema,
    target: pa.Schema,
    bounds: tuple[int, int],
) -> pa.Table:
    field = struct_field(name, schema)
    inner = {column_name(at): one.name for at, one in enumerate(field.type)}
    wanted = {one for column in target.names[2:] for one in _widened(column, schema)}
    paths = [f"{field.name}.{inner[column]}" for column in inner if column in wanted]
    rows = read_file(place, entry.path, ["number", "multiplicity", *paths])
    number = ds.field("number")
    rows = rows.filter((number > bounds[0]) & (number <= bounds[1]))
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        NUMBER: rows.column("number"),
        MULTIPLICITY: rows.column("multiplicity"),
    }
    held = fields_of(rows, field.name)
    for column in target.names[2:]:
        kind = target.field(column).type
        found = [held[inner[one]] for one in _widened(column, schema) if inner[one] in held]
        cells = [one.cast(kind) for one in found] or [pa.nulls(rows.num_rows, kind)]
        columns[column] = cells[0] if len(cells) == 1 else pc.coalesce(*cells)
    return pa.table(columns, schema=target)


def _widened(column: str, schema: Schema) -> list[str]:
    """A column and the narrower ones that it goes on with, whose values are its own."""
    at: int | None = int(column.removeprefix("c"))
    found = []
    while at is not None:
        found.append(column_name(at))
        at = schema[at].before
    return found


def fields_of(rows: pa.Table, struct: str) -> dict[str, pa.ChunkedArray]:
    """The fields of a struct column by physical name; {} when the rows lack the column."""
    if struct not in rows.column_names:
        return {}
    values = rows.column(struct)
    names = [values.type.field(at).name for at in range(values.type.num_fields)]
    return dict(zip(names, values.flatten(), strict=True))


def within(delta: pa.Table, runs: Runs, inside: bool = True) -> pa.Table:
    """The rows whose number lies in one of the runs (or in none of them)."""
    number = ds.field(NUMBER)
    covered = ds.scalar(False)
    for first, last in runs:
        covered = covered | ((number >= first) & (number <= last))
    return delta.filter(covered if inside else ~covered)
