"""What the relations of a view held at one number, from `_updates`: a view that joins begins there.

As long as nothing has been dropped from `_updates`, its rows up to a number add up to every relation as
it was after that number, exactly, whatever the source holds by then. A truncate empties the relation
before the rows of its own number. What a relation could not be told from some number on (a taint) the
rows cannot tell either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck_engine import duck_engine
from streaming.errors import FrescoError
from streaming.messages import PRINTS, RETOLD, Control
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name
from streaming.scalars.types import delta_schema
from streaming.warehouse.decisions import standing
from streaming.warehouse.names import position_of
from streaming.warehouse.net_changes import net_changes
from streaming.warehouse.updates import LostColumn, UpdatesReader


def folded(rows: pa.Table, schema: Schema, number: int) -> pa.Table:
    """What the rows of a delta add up to, each row once, all under one number."""
    with duck_engine() as connection:
        net = net_changes(rows, len(schema), (), connection)
    copies = net.column("plus").to_numpy() - net.column("minus").to_numpy()
    found = rows.take(net.column("row"))
    wanted = delta_schema(schema)
    values = {name: found.column(name) for name in wanted.names}
    values[NUMBER] = pa.array(np.full(len(copies), number, np.int64))
    values[MULTIPLICITY] = pa.array(copies, pa.int64())
    return pa.table([values[name] for name in wanted.names], names=wanted.names).cast(wanted)


def relations_at(
    reader: UpdatesReader,
    schemas: Mapping[str, Schema],
    number: int,
    without: frozenset[int] = frozenset(),
) -> dict[str, pa.Table]:
    """Relation -> its rows in the state after `number`, as a delta under `number`.

    Args:
        without: positions of columns that are to be NULL.

    Raises:
        FrescoError: VIEW_INITIAL_ROWS, `_updates` no longer has everything from number 0 on.
    """
    if schemas and reader.kept_from > 0:
        raise dropped(reader)
    emptied: dict[str, int] = {}
    for control in reader.controls(-1, number):
        if control.kind == "truncate":
            emptied[control.relation] = control.number
    found = {}
    for name, schema in schemas.items():
        rows = reader.updates(name, schema, emptied.get(name, 0) - 1, number)
        found[name] = folded(nulled(rows, without), schema, number)
    return found


def nulled(rows: pa.Table, positions: Iterable[int]) -> pa.Table:
    """A delta with NULL in some of its columns."""
    for position in positions:
        at = rows.schema.get_field_index(column_name(position))
        field = rows.schema.field(at)
        rows = rows.set_column(at, field, pa.nulls(rows.num_rows, field.type))
    return rows


def contents_of(warehouse: str, captured: CapturedRelation, number: int) -> pa.Table:
    """A relation's rows in the state after `number`, for a snapshot of it that is taken again.

    Raises:
        FrescoError: SOURCE_SNAPSHOT_REPEATED, `_updates` no longer has everything.
    """
    relation, reader = captured.relation, UpdatesReader(warehouse)
    if reader.kept_from > 0:
        raise FrescoError(
            "SOURCE_SNAPSHOT_REPEATED",
            f"a second snapshot of {relation.name} cannot be compared with the recorded updates: "
            f"those below number {reader.kept_from} have been dropped (retention)",
            where=f"topic {captured.topic}",
            todo="`fresco view resume NAME` for each of its views, which then begin with what the "
            "source has; or go on "
            "with what the log has told: `fresco skip TOPIC PARTITION OFFSET --reason WHY`",
        )
    schemas = {relation.name: relation.schema}
    return relations_at(reader, schemas, number, captured.lost)[relation.name]


def dropped(reader: UpdatesReader) -> FrescoError:
    """The error of a view whose first rows `_updates` no longer has."""
    return FrescoError(
        "VIEW_INITIAL_ROWS",
        f"the initial rows cannot be had from the recorded updates: those below number "
        f"{reader.kept_from} have been dropped (retention)",
        where="_updates",
        todo="use USING replica, which reads them from the sources; or begin another pipeline",
    )


def emptied_by_source(controls: Iterable[Control], retold: bool = False) -> dict[str, list[int]]:
    """Relation -> the numbers under which its source emptied it: what came before is gone then.

    A snapshot that takes the place of what was told keeps what later events have told, records that
    could not be read among them: it ends no taint of whole records.

    Args:
        retold: with the numbers of such snapshots after which no row has a value from before.
    """
    found: dict[str, list[int]] = {}
    for one in controls:
        if one.kind == "truncate" and (not one.what or (retold and one.what == RETOLD)):
            found.setdefault(one.relation, []).append(one.number)
    return found


def still_lost(
    taints: Iterable[LostColumn], emptied: Mapping[str, Sequence[int]]
) -> list[LostColumn]:
    """Of each column the first taint since it was last whole; of those that are not whole in the end.

    Args:
        taints: in order of their numbers, each the sum over a whole batch, or a part of one up to where
            the relation is emptied.
        emptied: relation -> the numbers under which its source emptied it.
    """
    first: dict[tuple[str, str], LostColumn] = {}
    total: dict[tuple[str, str], int | None] = {}
    for one in taints:
        key = one.relation, one.column
        if key in first and any(
            first[key].number < n <= one.number for n in emptied.get(key[0], ())
        ):
            del first[key]
        if key not in first:
            first[key], total[key] = one, 0
        before = total[key]
        total[key] = None if before is None or one.adds is None else (before + one.adds) % PRINTS
        if one.adds is None:
            first[key] = replace(first[key], adds=None)
        if total[key] == 0:
            del first[key]
    return [
        one
        for (relation, _), one in first.items()
        if not any(one.number < number for number in emptied.get(relation, ()))
    ]


def taints(
    warehouse: Path, reader: UpdatesReader, schemas: Mapping[str, Schema], after: int, upto: int
) -> tuple[Control, ...]:
    """What these relations lack after `upto` of what came in after < number <= upto: whole records, or
    columns by position.

    Without what people have decided to go on without (`decisions`), and without what is gone again:
    values that have been corrected, and all that came before the source emptied the relation, or before
    a snapshot told all values anew.
    """
    controls = reader.controls(after, upto)
    emptied = emptied_by_source(controls)
    whole = [
        one
        for one in controls
        if one.kind == "tainted"
        and one.relation in schemas
        and one.number >= max(emptied.get(one.relation, (0,)))
    ]
    columns = []
    told = emptied_by_source(controls, retold=True)
    for one in still_lost(reader.lost_columns(after, upto), told):
        names = [column.name for column in schemas.get(one.relation, ())]
        if (at := position_of(one.column, names)) is not None:
            said = f"column {names[at]} of {one.relation} cannot be read"
            columns.append(
                Control(
                    number=one.number,
                    relation=one.relation,
                    kind="tainted",
                    columns=(at,),
                    adds=one.adds,
                    what=f"{said} from transaction {one.number} on"
                    + (f": {one.what}" if one.what else ""),
                    where="_updates",
                )
            )
    found = standing(warehouse, reader, (*whole, *columns))
    return tuple(sorted(found, key=lambda one: one.number))
