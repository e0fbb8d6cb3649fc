"""One snapshot of a PostgreSQL database's tables as CSV files: for tables whose log cannot be read.

All tables in one REPEATABLE READ transaction, by COPY, block by block: nothing is held in memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from streaming.ask.postgres.pg_catalog import connected, split_name
from streaming.captured.captured_schema import CapturedRelation

_SETTINGS = """SET TIME ZONE 'UTC'; SET DateStyle = 'ISO'; SET bytea_output = 'hex';
SET extra_float_digits = 1; SET row_security = off"""


def dump_tables(
    dsn: str, source: str, relations: Sequence[CapturedRelation], folder: Path
) -> tuple[int, dict[str, tuple[Path, ...]]]:
    """When the snapshot was taken (ms since 1970), and by table the file with its rows.

    Raises:
        FrescoError: see `postgres.connected`.
    """
    files: dict[str, tuple[Path, ...]] = {}
    with connected(dsn, source) as connection:
        connection.execute(_SETTINGS.encode())
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        tables = [sql.Identifier(*split_name(one.counted_as)) for one in relations]
        locked = sql.SQL(", ").join(tables)  # a truncated table is empty to older snapshots too
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(locked))
        ms = int(time.time() * 1000)
        for one, table in zip(relations, tables, strict=True):
            name = one.relation.name.partition(".")[2]
            files[name] = (folder / f"{name}.csv",)
            _copy(connection, one, table, files[name][0])
        connection.execute("COMMIT")
    return ms, files


def _copy(
    connection: psycopg.Connection, one: CapturedRelation, table: sql.Identifier, file: Path
) -> None:
    columns = sql.SQL(", ").join(sql.Identifier(c.name) for c in one.relation.schema)
    query = sql.SQL(
        "COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, HEADER, NULL '', FORCE_QUOTE *)"
    ).format(columns, table)
    with file.open("wb") as out, connection.cursor() as cursor, cursor.copy(query) as copy:
        for block in copy:
            out.write(block)
