"""Numbered row changes as a delta: each row's old version at -1 and its new one at +1.

Updates that change nothing are dropped, so that such a transaction's REL is empty. A truncate empties
the relation, so the changes before it in its transaction are dropped and a control goes out under the
number; the changes after it stay. An unchanged TOAST value in the `c` of a key change is taken from
the `d` before it (`placeholder`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.placeholder import INLINE, doubt, narrow, octets
from streaming.cdc.records import BadRecord, fault
from streaming.cdc.unread_columns import PLACES, taints
from streaming.messages import Control
from streaming.scalars import written
from streaming.scalars.expression import MULTIPLICITY, NUMBER, column_name
from streaming.scalars.types import delta_schema

Query = Callable[[str, pa.Table], pa.Table]


@dataclass(frozen=True)
class RelationDelta:
    """A relation's changes.

    Attributes:
        rows: number, op, b0.., a0..; what is left of the decoded rows.
        delta: the same as signed rows, sorted by number.
        controls: its truncates, and the taints of columns that could not be read.
        doubtful: records of which nobody can tell whether a value changed (`placeholder`), by the number
            of their transaction; their rows are left out.
    """

    rows: pa.Table
    delta: pa.Table
    controls: tuple[Control, ...]
    doubtful: tuple[tuple[int, BadRecord], ...]


def numbered_changes(captured: CapturedRelation, rows: pa.Table, query: Query) -> RelationDelta:
    """The changes of one relation.

    Args:
        rows: as decoded, with `number` in front.
        query: runs SQL over a table named `rows`, keeping its order.
    """
    rows, controls = _truncated(captured, rows)
    controls += taints(captured, rows, [one.number for one in controls])
    rows, doubtful = _toasted(captured, rows)
    rows = _changing(captured, rows, query)
    return RelationDelta(rows, _delta(captured, rows), controls, doubtful)


def _truncated(captured: CapturedRelation, rows: pa.Table) -> tuple[pa.Table, tuple[Control, ...]]:
    truncate = pc.equal(rows["op"], "t")
    if not pc.any(truncate).as_py():
        return rows, ()
    cuts = rows.filter(truncate)
    at: dict[int, tuple[int, int]] = {}
    for number, position, order in zip(
        *(cuts[name].to_pylist() for name in ("number", "position", "total_order")), strict=True
    ):
        at[number] = max(at.get(number, (-1, -1)), (position, order or 0))
    rows = rows.filter(pc.invert(truncate))
    numbers = rows["number"].to_numpy()
    positions = rows["position"].to_numpy()
    orders = pc.fill_null(rows["total_order"], 0).to_numpy()
    keep = np.ones(len(numbers), bool)
    for number, (position, order) in at.items():
        after = (positions > position) | ((positions == position) & (orders > order))
        keep &= (numbers != number) | after
    name = captured.relation.name
    controls = tuple(
        Control(number=n, relation=name, kind="truncate", what=PLACES.get(at[n][0], ""))
        for n in sorted(at)
    )
    return rows.filter(pa.array(keep)), controls


def _toasted(
    captured: CapturedRelation, rows: pa.Table
) -> tuple[pa.Table, tuple[tuple[int, BadRecord], ...]]:
    """The rows with what a key change left unchanged; one that is no key change is an insert."""
    marked = np.flatnonzero(pc.is_valid(rows["toast"]).to_numpy())
    if not len(marked):
        return rows, ()
    deleted = rows.filter(pc.equal(rows["op"], "d"))
    columns = ("number", "position", "total_order")
    places = {
        place: index
        for index, place in enumerate(zip(*(deleted[c].to_pylist() for c in columns), strict=True))
    }
    values = {f"a{i}": rows[f"a{i}"].to_pylist() for i in _toasted_columns(rows, marked)}
    doubtful: dict[int, tuple[int, BadRecord]] = {}
    for index in marked.tolist():
        number, position, order = (rows[c][index].as_py() for c in columns)
        old = places.get((number, position, (order or 0) - 1))
        if old is None:
            continue
        for i in rows["toast"][index].as_py():
            before = deleted[f"b{i}"][old].as_py()
            if octets(before) <= INLINE or before == values[f"a{i}"][index]:
                continue
            if _narrow(captured, deleted, old):
                doubtful[index] = number, _doubtful(captured, rows.slice(index, 1))
            values[f"a{i}"][index] = before
    for name, column in values.items():
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(name)
        rows = rows.set_column(place, field, pa.array(column, field.type))
    if doubtful:
        keep = np.ones(rows.num_rows, bool)
        keep[list(doubtful)] = False
        rows = rows.filter(pa.array(keep))
    return rows, tuple(doubtful.values())


def _narrow(captured: CapturedRelation, deleted: pa.Table, at: int) -> bool:
    width = range(len(captured.relation.schema))
    return narrow(captured, {i: written.value(deleted[f"b{i}"][at]) for i in width})


def _doubtful(captured: CapturedRelation, row: pa.Table) -> BadRecord:
    partition, offset, transaction = (
        row[name][0].as_py() for name in ("partition", "offset", "transaction")
    )
    return fault(captured, partition, offset, transaction, doubt(captured))


def _toasted_columns(rows: pa.Table, marked: np.ndarray) -> list[int]:
    lists = rows["toast"].take(pa.array(marked)).to_pylist()
    return sorted({i for positions in lists for i in positions})


def _changing(captured: CapturedRelation, rows: pa.Table, query: Query) -> pa.Table:
    """Without the updates whose old and new versions are the same."""
    updates = pc.equal(rows["op"], "u")
    if not pc.any(updates).as_py():
        return rows
    differs = []
    for i, column in enumerate(captured.relation.schema):
        differs.append(f"b{i} IS DISTINCT FROM a{i}")
        if column.type in ("float", "double"):
            differs.append(f"coalesce(signbit(b{i}) <> signbit(a{i}), false)")
    changing = query(f"SELECT op <> 'u' OR {' OR '.join(differs)} AS changing FROM rows", rows)
    mask = changing["changing"]
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def _delta(captured: CapturedRelation, rows: pa.Table) -> pa.Table:
    schema = delta_schema(captured.relation.schema)
    width = len(captured.relation.schema)
    sides = []
    for sign, side, ops in ((-1, "b", ["u", "d"]), (1, "a", ["c", "u", "r"])):
        mask = pc.is_in(rows["op"], pa.array(ops))
        count = pc.sum(mask).as_py() or 0
        if not count:
            continue
        chosen = rows if count == rows.num_rows else rows.filter(mask)
        columns = [chosen["number"], pa.array(np.full(count, sign, np.int64))]
        columns += [chosen[f"{side}{i}"] for i in range(width)]
        names = [NUMBER, MULTIPLICITY, *(column_name(i) for i in range(width))]
        sides.append(pa.table(columns, names=names).cast(schema))
    if not sides:
        return schema.empty_table()
    table = pa.concat_tables(sides)
    numbers = table[NUMBER].to_numpy()
    if (np.diff(numbers) >= 0).all():
        return table
    return table.take(pa.array(np.argsort(numbers, kind="stable")))
