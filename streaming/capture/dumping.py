"""One snapshot of a PostgreSQL database's tables as CSV files: for tables whose log cannot be read.

All tables in one REPEATABLE READ transaction, by COPY, block by block: nothing is held in memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from streaming.errors import FrescoError
from streaming.sources.postgres import split_name
from streaming.sources.schema import CapturedRelation

_SETTINGS = """SET TIME ZONE 'UTC'; SET DateStyle = 'ISO'; SET bytea_output = 'hex';
SET extra_float_digits = 1; SET row_security = off"""


def dump_tables(
    dsn: str, source: str, relations: Sequence[CapturedRelation], folder: Path
) -> tuple[int, dict[str, tuple[Path, ...]]]:
    """When the snapshot was taken (ms since 1970), and by table the file with its rows.

    Raises:
        FrescoError: SOURCE_UNREACHABLE, SOURCE_QUERY_REFUSED.
    """
    files: dict[str, tuple[Path, ...]] = {}
    try:
        connection = psycopg.connect(dsn, autocommit=True, connect_timeout=10)
    except psycopg.Error as error:
        raise FrescoError(
            "SOURCE_UNREACHABLE",
            f"cannot connect to source {source}: {type(error).__name__}",
            where=f"source {source}",
            todo="check the address, the user and its password, and that the server is up",
        ) from None
    try:
        with connection:
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
    except psycopg.Error as error:
        raise FrescoError(
            "SOURCE_QUERY_REFUSED",
            f"source {source} refuses to be read: {' '.join(str(error).split())}",
            where=f"source {source}",
            todo="the tables and columns must be there, and the user needs SELECT on them",
        ) from None
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
