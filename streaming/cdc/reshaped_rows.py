"""Rows held over a restart after which their relation has other columns (DESIGN 6).

A start reads the relations' columns anew, while rows that wait were decoded for the columns of before.
A layout only grows (`layout`), so columns are where they were; of other columns than those of before,
they are found again by name and type. One that was not decoded then is missing in those rows, just as if
their events had not named it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.held_rows import HeldFiles, HeldRows
from streaming.cdc.row_query import row_schema
from streaming.scalars.expression import Column

Columns = Mapping[str, Sequence[Sequence[str]]]
"""Relation -> (name, Spark type) of its columns, for JSON."""


def columns_of(captured: Mapping[str, CapturedRelation]) -> Columns:
    """What a snapshot says of the relations its rows are of."""
    return {
        name: [[column.name, column.type] for column in one.relation.schema]
        for name, one in captured.items()
    }


def refitted(
    held: Mapping[str, list[dict[str, Any]]],
    columns: Columns,
    captured: Mapping[str, CapturedRelation],
    files: HeldFiles | None,
) -> dict[str, list[dict[str, Any]]]:
    """A snapshot's notes of held rows (`HeldRows.snapshot`), for the relations as they are now.

    Args:
        columns: those the rows were decoded for.
    """
    now = columns_of(captured)
    result = dict(held)
    for name, notes in held.items():
        if name in now and name in columns and list(map(list, columns[name])) != now[name]:
            old = tuple(Column(column, type_) for column, type_ in columns[name])
            before = CapturedRelation(Relation(name, old), "", "", ())
            rows = HeldRows(row_schema(before), None, files).restore(notes).read()
            fitted = HeldRows(row_schema(captured[name])).plus(_refit(rows, old, captured[name]))
            result[name] = fitted.snapshot()[1]
    return result


def _refit(rows: pa.Table, old: Sequence[Column], captured: CapturedRelation) -> pa.Table:
    schema = row_schema(captured)
    now = [Column(one.name, one.type) for one in captured.relation.schema]
    found = {column: position for position, column in enumerate(old)}
    place = {found[column]: position for position, column in enumerate(now) if column in found}
    if now[: len(old)] == list(old):
        place = {position: position for position in range(len(old))}
    new = [p for p in range(len(captured.relation.schema)) if p not in place.values()]
    columns = {name: rows[name] for name in rows.column_names if not name[1:].isdigit()}
    pairs = zip(rows["unfit"].to_pylist(), rows["prints"].to_pylist(), strict=True)
    prints = [dict(zip(unfit or (), printed or (), strict=True)) for unfit, printed in pairs]
    for name in ("toast", "missing", "unfit"):
        moved = [_moved(positions, place) for positions in rows[name].to_pylist()]
        columns[name] = pa.array(moved, schema.field(name).type)
    back = {new: old for old, new in place.items()}
    told = zip(columns["unfit"].to_pylist(), prints, strict=True)
    kept = [None if unfit is None else [its[back[p]] for p in unfit] for unfit, its in told]
    columns["prints"] = pa.array(kept, schema.field("prints").type)
    if new:
        lists = zip(columns["missing"].to_pylist(), rows["op"].to_pylist(), strict=True)
        lacking = [had if op == "t" else sorted([*(had or ()), *new]) for had, op in lists]
        columns["missing"] = pa.array(lacking, schema.field("missing").type)
    for side in "ba":
        for before, position in place.items():
            columns[f"{side}{position}"] = rows[f"{side}{before}"]
        for position in new:
            kind = schema.field(f"{side}{position}").type
            columns[f"{side}{position}"] = pa.nulls(rows.num_rows, kind)
    return pa.table([columns[field.name] for field in schema], schema=schema)


def _moved(positions: list[int] | None, place: Mapping[int, int]) -> list[int] | None:
    """Positions in a list of before, without the columns that are gone."""
    return sorted(place[p] for p in positions or () if p in place) or None
