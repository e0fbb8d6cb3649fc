"""Columns that events no longer carry, or carry in another type (DESIGN 11).

The database's log has no word for ALTER TABLE: a dropped or renamed column is a field that is not
there, a retyped one a value that does not fit. Such rows go on with NULL in the column, and the
number of the first of them is tainted for the column, so that the views that read it stop before it
and all others go on. One control for each column and batch says so: who still reads the column at a
later number reads its next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.records import BadRecord, Decoded, bad_record
from streaming.messages import PRINTS, RETOLD, Control

REPLACED = "a snapshot's rows take their place"
"""What a truncate says that is none of the source's."""
PLACES = {0: REPLACED, -1: RETOLD}
"""The position of such a truncate, which is no place in a log -> what it says."""


@dataclass(frozen=True)
class Unread:
    """The first row of a batch in which a column could not be read.

    Attributes:
        missing: the field is not there at all; otherwise its value does not fit.
        number: the row's, where it has one.
    """

    position: int
    missing: bool
    partition: int
    offset: int
    number: int = -1


def unread(rows: pa.Table) -> Iterator[Unread]:
    """The columns that could not be read in some row, each once for either reason.

    Args:
        rows: as decoded, with or without `number`; the first is that of the least number and place.
    """
    keys = [name for name in ("number", "partition", "offset") if name in rows.column_names]
    for name in ("missing", "unfit"):
        listed = rows[name]
        if listed.null_count == len(listed):
            continue
        chosen = rows.select([*keys, name]).filter(pc.is_valid(listed)).combine_chunks()
        order = np.lexsort([chosen[key].to_numpy() for key in reversed(keys)])
        chosen = chosen.take(pa.array(order)).combine_chunks()
        lists = chosen[name].chunk(0)
        row = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        for position, first in zip(*np.unique(values, return_index=True), strict=True):
            at = {key: chosen[key][row[first]].as_py() for key in keys}
            yield Unread(int(position), name == "missing", **at)


def taints(
    captured: CapturedRelation, rows: pa.Table, emptied: Sequence[int] = ()
) -> tuple[Control, ...]:
    """What a relation's numbered rows taint: one control for each column, and part of the batch.

    Args:
        emptied: numbers under which the relation is emptied first; the parts lie between them.
    """
    if all(rows[name].null_count == rows.num_rows for name in ("missing", "unfit")):
        return ()
    found: list[Control] = []
    part = np.searchsorted(np.array(sorted(emptied), np.int64), rows["number"].to_numpy(), "right")
    for at in np.unique(part):
        found += _part_taints(captured, rows.filter(pa.array(part == at)))
    return tuple(found)


def _part_taints(captured: CapturedRelation, rows: pa.Table) -> Iterator[Control]:
    found: dict[int, Unread] = {}
    for one in unread(rows):
        other = found.get(one.position)
        if other is None or one.number < other.number:
            found[one.position] = one
    added = _added(rows)
    gone = {one.position for one in unread(rows) if one.missing}
    for position, one in found.items():
        numbers = {number: adds for number, adds in added.get(position, {}).items() if adds}
        if position not in gone and not numbers:
            continue  # what came was gone within its own transaction
        yield Control(
            number=one.number,
            relation=captured.relation.name,
            kind="tainted",
            columns=(position,),
            adds=None if position in gone else sum(numbers.values()) % PRINTS,
            what=_said(captured, one),
            where=f"topic {captured.topic}, partition {one.partition}, offset {one.offset}",
        )


def _added(rows: pa.Table) -> dict[int, dict[int, int]]:
    """Column -> number -> what its rows add to the print of what cannot be read."""
    chosen = rows.filter(pc.is_valid(rows["unfit"]))
    added: dict[int, dict[int, int]] = {}
    columns = (chosen[name].to_pylist() for name in ("number", "unfit", "prints"))
    for number, positions, prints in zip(*columns, strict=True):
        for position, adds in zip(positions, prints or [1] * len(positions), strict=True):
            sums = added.setdefault(position, {})
            sums[number] = (sums.get(number, 0) + adds) % PRINTS
    return added


class SaidOnce:
    """What has been said of columns and fields, so that it is said once.

    Args:
        relations: what is captured, by name.
    """

    def __init__(self, relations: Mapping[str, CapturedRelation]) -> None:
        self._relations = relations
        self._columns: set[tuple[str, int, bool]] = set()
        self._fields = {
            name: frozenset(
                [column.name for column in one.relation.schema] + [left for left, _ in one.refused]
            )
            for name, one in relations.items()
        }

    def look(self, decoded: Decoded) -> tuple[Decoded, SaidOnce]:
        """A batch with what it is the first to show (`lost`, `notices`), and what is told then."""
        after = SaidOnce(self._relations)
        after._columns, after._fields = set(self._columns), dict(self._fields)
        lost, notices = [], []
        for name, rows in decoded.rows.items():
            for one in unread(rows):
                key = (name, one.position, one.missing)
                if key not in after._columns:
                    after._columns.add(key)
                    lost.append(_record(self._relations[name], one))
        for name, seen in decoded.fields.items():
            if new := seen - after._fields[name]:
                after._fields[name] |= new
                notices.append(_notice(name, new))
        return replace(decoded, lost=tuple(lost), notices=tuple(notices)), after


def _said(captured: CapturedRelation, one: Unread) -> str:
    column, name = captured.relation.schema[one.position], captured.relation.name
    if one.missing:
        return (
            f"column {column.name} of {name} is missing in the event: it was dropped or renamed at "
            "the source"
        )
    return (
        f"a value of column {column.name} of {name} cannot be read as {column.type} exactly "
        f"(the column was {captured.source_types[one.position]} at the source when this began)"
    )


def _record(captured: CapturedRelation, one: Unread) -> BadRecord:
    column, name = captured.relation.schema[one.position], captured.relation.name
    code, what = "SOURCE_VALUE_UNFIT", f"has a value of {column.name} that does not fit "
    what += f"{column.type} exactly ({captured.source_types[one.position]} when this began)"
    if one.missing:
        code, what = "SOURCE_FIELD_MISSING", f"lacks column {column.name} of {name}"
    return bad_record(
        captured.topic,
        one.partition,
        one.offset,
        code,
        what,
        todo="views that read the column stop here, the others go on; this is said once",
        source=captured.source,
        relation=name,
    )


def _notice(relation: str, fields: Collection[str]) -> str:
    names = ", ".join(sorted(fields))
    return (
        f"events of {relation} have fields that are not captured: {names}; views go on without "
        "them (a column that was added is captured from the next look at the database's catalog on)"
    )
