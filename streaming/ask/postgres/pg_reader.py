"""The rows of one relation that can matter, out of one snapshot of PostgreSQL.

One statement per relation: its columns that are read, the conditions it is known to need (`pgfilter`)
and the keys it is restricted to. Up to a limit keys go as arrays, whose length the planner sees, so a
few keys use the relation's index; beyond it as a temporary table with statistics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import psycopg
from psycopg import sql

from streaming.ask.postgres.pg_catalog import split_name
from streaming.ask.postgres.pg_filter import weaker
from streaming.ask.postgres.pg_values import PgColumn, converted, parsed
from streaming.ask.reduction import Input
from streaming.ask.restriction import FEW, Keys, signed_rows
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.signed import Signed
from streaming.scalars.expression import column_name


class PgReader:
    """Fetches rows within one snapshot.

    Args:
        limit: keys up to which they go as arrays.
        writes: whether temporary tables may be made.
    """

    def __init__(self, connection: psycopg.Connection, limit: int, *, writes: bool) -> None:
        self._connection = connection
        self._limit = limit
        self._writes = writes
        self.statements = 0

    def covers(self, captured: CapturedRelation, keys: Keys) -> bool:
        """Whether so many keys are wanted that the whole table is as quickly read."""
        if keys.values.num_rows <= self._limit:
            return False
        table = _table(captured).as_string(self._connection)
        found = self._connection.execute(
            "SELECT reltuples FROM pg_class WHERE oid = %s::regclass", (table,)
        ).fetchone()
        return found is not None and 0 <= found[0] < 2 * keys.values.num_rows

    def read(
        self,
        captured: CapturedRelation,
        columns: Sequence[PgColumn],
        one: Input,
        restricted: Sequence[Keys],
    ) -> Signed:
        """A relation's rows that pass the filters and have one of the keys of each restriction."""
        names = [sql.Identifier(column.name).as_string(self._connection) for column in columns]
        refs = [f"r.{name}" for name in names]
        conditions = weaker(one.filters, columns, refs)
        for number, keys in enumerate(restricted):
            conditions.append(self._restriction(number, keys, columns, refs))
        read = sorted(one.used)
        wanted = [columns[i] for i in read]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rest = f"FROM {self._name(captured)} r{where}"
        self.statements += 1
        if any(keys.values.num_rows <= FEW for keys in restricted):
            cells = [column.as_text(refs[i]) for i, column in zip(read, wanted, strict=True)]
            rows = self._connection.execute(f"SELECT {', '.join(cells)} {rest}".encode()).fetchall()
            return signed_rows(one, read, converted(rows, wanted), len(rows))
        cells = [
            f"{column.selected(refs[i])} AS {column_name(i)}"
            for i, column in zip(read, wanted, strict=True)
        ]
        # Without a column to read, one is written all the same: rows are counted by lines.
        query = f"SELECT {', '.join(cells) or '1 AS c0'} {rest}"
        quoted = [column_name(i) for i in read if columns[i].quoted]
        options = "FORMAT csv, NULL '\\N'"
        if quoted:
            options += f", FORCE_QUOTE ({', '.join(quoted)})"
        content = self._copied(f"COPY ({query}) TO STDOUT ({options})")
        arrays = parsed(content, wanted)
        return signed_rows(one, read, arrays, len(arrays[0]) if read else content.count(b"\n"))

    def _name(self, captured: CapturedRelation) -> str:
        return _table(captured).as_string(self._connection)

    def _copied(self, statement: str) -> bytes:
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            return b"".join(copy)

    def _restriction(
        self, number: int, keys: Keys, columns: Sequence[PgColumn], refs: Sequence[str]
    ) -> str:
        """The relation's columns are among the keys."""
        made = [columns[i].key for i in keys.columns]
        types = [key[0] for key in made if key is not None]
        values = [key[1].format(f"k.v{i}") for i, key in enumerate(made) if key is not None]
        texts = [
            key[2](keys.values.column(i).combine_chunks())
            for i, key in enumerate(made)
            if key is not None
        ]
        rows = [row for row in zip(*texts, strict=True) if None not in row]
        if self._writes and len(rows) > self._limit:
            table = self._temporary(number, types, rows)
        else:
            arrays = [
                "'{" + ",".join(str(row[i]) for row in rows).replace("'", "''") + "}'"
                for i in range(len(types))
            ]
            listed = ", ".join(f"{a}::{t}[]" for a, t in zip(arrays, types, strict=True))
            named = ", ".join(f"v{i}" for i in range(len(types)))
            table = f"unnest({listed}) AS k({named})"
        wanted = ", ".join(refs[i] for i in keys.columns)
        return f"({wanted}) IN (SELECT {', '.join(values)} FROM {table})"

    def _temporary(
        self, number: int, types: Sequence[str], rows: Sequence[tuple[str | None, ...]]
    ) -> str:
        """The keys in a table that lasts as long as the transaction."""
        name = f"fresco_keys{self.statements}_{number}"
        named = ", ".join(f"v{i} {type_}" for i, type_ in enumerate(types))
        self._connection.execute(f"CREATE TEMP TABLE {name} ({named}) ON COMMIT DROP".encode())
        content = "\n".join("\t".join(_line(value) for value in row) for row in rows)
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
            copy.write(content)
        self._connection.execute(f"ANALYZE {name}".encode())
        return f"{name} k"


_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _line(element: str | None) -> str:
    """An array's element as COPY's text."""
    assert element is not None
    if element.startswith('"'):
        element = re.sub(r"\\(.)", r"\1", element[1:-1], flags=re.DOTALL)
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], element)


def as_sql(captured: Iterable[CapturedRelation]) -> str:
    """The tables' names as a statement lists them."""
    return ", ".join(_table(one).as_string() for one in captured)


def _table(captured: CapturedRelation) -> sql.Identifier:
    return sql.Identifier(*split_name(captured.counted_as))
