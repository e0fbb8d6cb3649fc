"""The DuckDB that a proof runs in: settings, identifiers, prints of rows, and where it stands.

Every relation that SQL can name is a view over a table of all times, cut at the number in the
one-row table `NOW`. So the proof moves from number to number by one update, nothing is folded or
copied, and the plans of prepared statements stay.

A bag's *print* is its count of rows and the sum over them of the MD5 of the row's text, as two
sums of 64 bits each. Equal bags have equal prints, in any order. The text tells different rows
apart (wide decimals too, some of which DuckDB's own `hash` confuses: 0.00 and -0.01), so two
different bags have the same print only when the MD5s of the rows they differ in happen to cancel
out: odds of 2^-128 for each comparison, 10^-29 in a proof of a billion. Sums add up: the print of
a folded changelog is the running sum of its changes' prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from streaming.engines.duck_engine import duck_engine
from streaming.scalars.expression import Column, Schema, column_name
from streaming.scalars.types import duck_type

SMALL_ROWS = 1_000_000
"""Up to so many rows in all, one thread does the same with less: no hand-over between threads."""
NOW = "(SELECT number FROM __now)"
"""SQL: the number at which the relations stand."""

FREE_TEXTS = ("string", "binary")
"""Types whose texts may hold a separator."""

MOMENTS = ("timestamp", "timestamp_ntz")

Print = tuple[int, int, int]
"""Count, upper sum, lower sum."""


def open_engine() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that keeps Spark's session zone and reaches no files."""
    connection = duck_engine()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("CREATE TEMP TABLE __now AS SELECT CAST(-1 AS BIGINT) AS number")
    return connection


def spare_threads(connection: duckdb.DuckDBPyConnection, rows: int) -> None:
    """One thread while there are few rows."""
    if rows <= SMALL_ROWS:
        connection.execute("SET threads = 1")


def stand_at(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    """From here on the relations are what they were after `number`."""
    connection.execute("UPDATE __now SET number = ?", [number])


def quoted(name: str) -> str:
    """An identifier with any characters."""
    return '"' + name.replace('"', '""') + '"'


def columns_of(schema: Schema) -> list[str]:
    """c0, c1, ... of a schema."""
    return [column_name(position) for position in range(len(schema))]


def typed_columns(schema: Schema) -> str:
    """SQL: c0, c1, ... in the schema's types."""
    return ", ".join(
        f"CAST({column} AS {duck_type(one.type)}) AS {column}"
        for column, one in zip(columns_of(schema), schema, strict=True)
    )


def print_of(rows: str, schema: Schema, times: str = "1", by: str = "") -> str:
    """SQL: the print of a table or subquery of c0.., as three columns.

    Args:
        times: how often each row stands, an expression.
        by: a column to group by, which then goes first.
    """
    text = f"concat_ws('|', {', '.join(map(_text, columns_of(schema), schema))})"
    key, group = (f"{by}, ", f" GROUP BY {by} ORDER BY {by}") if by else ("", "")
    hashed = f"SELECT {key}CAST({times} AS HUGEINT) AS times, md5_number({text}) AS md5 FROM {rows}"
    sums = ", ".join(
        f"coalesce(sum(times * CAST({half} AS HUGEINT)), 0)"
        for half in ("md5 >> 64", "md5 & 18446744073709551615")
    )
    return f"SELECT {key}CAST(coalesce(sum(times), 0) AS BIGINT), {sums} FROM ({hashed}){group}"


def _text(column: str, kind: Column) -> str:
    """SQL: a value's text, no separator in it, or behind its length; no value's is "N".

    A moment's is its count of microseconds: DuckDB cannot write those of the farthest years.
    """
    if kind.type in FREE_TEXTS:
        return (
            f"coalesce(strlen(CAST({column} AS VARCHAR)) || ':' || CAST({column} AS VARCHAR), 'N')"
        )
    if kind.type in MOMENTS:
        return (
            f"CASE WHEN isinf({column}) THEN CAST({column} AS VARCHAR) "
            f"ELSE coalesce(CAST(epoch_us({column}) AS VARCHAR), 'N') END"
        )
    return f"coalesce(CAST({column} AS VARCHAR), 'N')"


def as_print(row: Sequence[Any]) -> Print:
    """A fetched row of `print_of`."""
    return int(row[0]), int(row[1]), int(row[2])
