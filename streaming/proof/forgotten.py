"""Recorded updates of a relation one of whose columns could no longer be read from some number on.

It was told so by a row (a taint), or by the database's catalog at a start (`captured.layout`).

From that number on the column is NULL in every row (`cdc.unread_columns`), in retractions of older rows
too, whose insertions had a value. The relation as the views that go on see it has forgotten the
column by then: under the first such number each row that stands is exchanged for itself with NULL.
The views that read the column have stopped before that number and see its values up to there.
Values that have been corrected since were NULL for a while, in insertions and retractions alike: nothing
is forgotten then, and the views that read them are not judged where they stood still.
A relation that lacks whole records from a number on is not told from there until its source emptied it:
all its views stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streaming.algebra.tree import Relation
from streaming.captured.layout import Kept
from streaming.engines.duck_engine import duck_engine
from streaming.scalars.expression import column_name
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.decisions import standing
from streaming.warehouse.described import read_catalog
from streaming.warehouse.initial import emptied_by_source, still_lost
from streaming.warehouse.names import position_of
from streaming.warehouse.updates import UpdatesReader

_EVERYTHING = 1 << 62


class Forgotten:
    """What a pipeline's relations have lost, and since which number.

    Args:
        warehouse: where `_updates` is.
    """

    def __init__(self, warehouse: str) -> None:
        reader = UpdatesReader(warehouse)
        controls = reader.controls(-1, _EVERYTHING)
        self._emptied = emptied_by_source(controls)
        self._layouts = read_catalog(TableFolder.of(warehouse)).layouts
        self._columns: dict[str, dict[str, int]] = {}
        for one in still_lost(
            reader.lost_columns(-1, _EVERYTHING), emptied_by_source(controls, retold=True)
        ):
            self._columns.setdefault(one.relation, {})[one.column] = one.number
        self._damaged: dict[str, list[int]] = {}
        taints = [one for one in controls if one.kind == "tainted"]
        for control in standing(Path(warehouse), reader, taints):
            self._damaged.setdefault(control.relation, []).append(control.number)

    def columns(self, relation: Relation) -> Mapping[int, int]:
        """Positions of the lost columns, and the first number without each."""
        names = [one.name for one in relation.schema]
        found = {at: one.last for at, one in self._kept(relation) if one.last is not None}
        for label, number in self._columns.get(relation.name, {}).items():
            if (at := position_of(label, names)) is not None:
                found[at] = min(number, found.get(at, number))
        return found

    def sound(self, relation: Relation, rows: pa.Table) -> pa.Table:
        """The updates without those from where records are lacking until the relation was emptied."""
        for damaged in self._damaged.get(relation.name, ()):
            ends = [n for n in self._emptied.get(relation.name, ()) if n > damaged]
            sound = pc.less(rows.column(0), damaged)
            if ends:
                sound = pc.or_(sound, pc.greater_equal(rows.column(0), min(ends)))
            rows = rows.filter(sound)
        return rows

    def exchanged(
        self, relation: Relation, rows: pa.Table, truncated: Sequence[int] = ()
    ) -> pa.Table:
        """The updates with the lost columns forgotten.

        Args:
            rows: number, multiplicity and the relation's columns, by position, in any order.
            truncated: the numbers under which the relation is emptied first.
        """
        rows = self._with_unknown(relation, rows, truncated)
        lost = self.columns(relation)
        if not lost:
            return rows
        names = [column_name(position) for position in range(len(relation.schema))]
        given = rows.rename_columns(["n", "m", *names])
        with duck_engine() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            for position, number in sorted(lost.items(), key=lambda one: one[1]):
                base = max((n for n in truncated if n <= number), default=-1)
                given = _forget(engine, given, position, number, base)
        return given.rename_columns(rows.column_names).cast(rows.schema)

    def _with_unknown(
        self, relation: Relation, rows: pa.Table, truncated: Sequence[int]
    ) -> pa.Table:
        """With NULL in columns that are recorded since the table was altered, up to where all is told.

        What the rows of before hold in them is known to the source alone, and a retraction says it.
        """
        for at, one in self._kept(relation):
            if not one.first:
                continue
            told = min((number for number in truncated if number >= one.first), default=_EVERYTHING)
            values = rows.column(2 + at)
            known = pc.greater_equal(rows.column(0), told)
            nothing = pa.scalar(None, values.type)
            field = rows.schema.field(2 + at)
            rows = rows.set_column(2 + at, field, pc.if_else(known, values, nothing))
        return rows

    def _kept(self, relation: Relation) -> list[tuple[int, Kept]]:
        layout = self._layouts.get(relation.name)
        return list(enumerate(layout.columns)) if layout is not None else []


def _forget(
    engine: duckdb.DuckDBPyConnection, given: pa.Table, position: int, number: int, base: int
) -> pa.Table:
    """With one column NULL from `number` on; rows of numbers below `base` do not stand by then."""
    columns = given.column_names[2:]
    lost, values = columns[position], ", ".join(columns)
    null = f"* REPLACE (NULL AS {lost})"
    engine.register("given", given)
    try:
        return engine.execute(
            f"WITH standing AS (SELECT {number}::BIGINT AS n, sum(m)::BIGINT AS m, {values} "
            f"FROM given WHERE n >= {base} AND n < {number} AND {lost} IS NOT NULL "
            f"GROUP BY {values} HAVING sum(m) <> 0) "
            f"SELECT * FROM given WHERE n < {number} "
            f"UNION ALL SELECT {null} FROM given WHERE n >= {number} "
            f"UNION ALL SELECT * REPLACE (-m AS m) FROM standing "
            f"UNION ALL SELECT {null} FROM standing"
        ).to_arrow_table()
    finally:
        engine.unregister("given")
