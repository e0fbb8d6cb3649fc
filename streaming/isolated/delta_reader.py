"""The rows of a delta table, read as those of its relation are (`pgreader`), with their signs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from streaming.ask.postgres.pg_filter import weaker
from streaming.ask.postgres.pg_reader import PgReader
from streaming.ask.postgres.pg_values import PgColumn, parsed
from streaming.ask.reduction import Input
from streaming.engines.duck.signed import Signed
from streaming.isolated.delta_tables import DeltaTable
from streaming.scalars.types import arrow_type, delta_schema

_MARKS = (PgColumn("", "_sign", "smallint", "int2"), PgColumn("", "_old", "int", "int4"))


class DeltaReader(PgReader):
    """Also reads delta tables."""

    def changes(
        self, delta: DeltaTable, columns: Sequence[PgColumn], one: Input, old: str
    ) -> tuple[Signed, Signed]:
        """A delta table's rows that pass the filters: of the transactions in `old`, and the others.

        They are signed: +1 an insertion, -1 a deletion. Columns that nobody reads are NULL.
        """
        refs = [
            f"(d._row).{sql.Identifier(column.name).as_string(self._connection)}"
            for column in columns
        ]
        read = sorted(one.used)
        wanted = [*_MARKS, *(columns[i] for i in read)]
        seen = sql.SQL("pg_visible_in_snapshot(d._tid, {}::pg_snapshot)::int4").format(
            sql.Literal(old)
        )
        cells = ["d._sign", seen.as_string(self._connection)]
        cells += [columns[i].selected(refs[i]) for i in read]
        named = ", ".join(f"{cell} AS v{i}" for i, cell in enumerate(cells))
        conditions = weaker(one.filters, columns, refs)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        name = delta.table_sql.as_string(self._connection)
        quoted = [f"v{i}" for i, column in enumerate(wanted) if column.quoted]
        options = "FORMAT csv, NULL '\\N'"
        options += f", FORCE_QUOTE ({', '.join(quoted)})" if quoted else ""
        self.statements += 1
        content = self._copied(f"COPY (SELECT {named} FROM {name} d{where}) TO STDOUT ({options})")
        signs, marks, *values = parsed(content, wanted)
        return _split(one, read, values, signs, marks)


def _split(
    one: Input,
    read: Sequence[int],
    values: Sequence[pa.ChunkedArray | pa.Array],
    signs: pa.ChunkedArray,
    marks: pa.ChunkedArray,
) -> tuple[Signed, Signed]:
    schema, count = delta_schema(one.schema), len(signs)
    found = dict(zip(read, values, strict=True))
    cells = [
        found[i] if i in found else pa.nulls(count, arrow_type(column.type))
        for i, column in enumerate(one.schema)
    ]
    numbers = pa.repeat(pa.scalar(0, pa.int64()), count)
    table = pa.Table.from_arrays([numbers, signs.cast(pa.int64()), *cells], schema=schema)
    old = pc.equal(marks, 1)
    return (
        Signed(schema, table.filter(old), net=False),
        Signed(schema, table.filter(pc.invert(old)), net=False),
    )
