"""PostgreSQL's catalog: the schemas of captured tables, and whether the log holds whole rows.

Debezium says a row's old version in full only under REPLICA IDENTITY FULL; with the default, updates
come without it and deletes with the key alone (FACTS). So the identity is read at start, and a table
with another one is refused with the statement that fixes it (DESIGN 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.captured.checked import table_locked
from streaming.captured.source_origin import Origin
from streaming.errors import FrescoError

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', a.attnum,
  concat_ws(' ', a.xmin, (
    SELECT md5(string_agg(c.relfilenode::text, ',' ORDER BY c.oid)) FROM pg_class c
    WHERE c.oid IN (WITH RECURSIVE stored(oid) AS (
      SELECT a.attrelid UNION ALL SELECT p.oid FROM pg_inherits i JOIN stored ON i.inhparent = stored.oid
      JOIN pg_class p ON p.oid = i.inhrelid AND p.relispartition) SELECT oid FROM stored)
  ), CASE WHEN a.atthasmissing THEN '-' END)
FROM pg_attribute a
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_TOASTS = """
WITH RECURSIVE stored(oid) AS (
  SELECT %s::oid UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN stored ON i.inhparent = stored.oid)
SELECT min(coalesce((
  SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'toast_tuple_target'
), 2032)) FROM pg_class c JOIN stored ON stored.oid = c.oid
"""
_KEY = """
SELECT a.attname
FROM pg_index i
JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) ON true
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisprimary
ORDER BY k.place
"""
_TABLE = """
SELECT c.oid, c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_IDENTITIES = """
SELECT n.nspname, c.relname, c.relreplident
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %s OR (c.relkind IN ('r', 'p') AND c.oid IN (SELECT relid FROM pg_partition_tree(%s)))
ORDER BY c.oid <> %s, 1, 2
"""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
LOCK_SECONDS = 10
"""How long a question waits for a table that another session has locked."""
_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")


def split_name(table: str) -> tuple[str, str]:
    """(schema, table) of "public.entry"; the table may itself hold dots, the schema may not."""
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else ("public", table)


def topic_name(prefix: str, table: str) -> str:
    """The topic Debezium gives a table: characters Kafka does not allow become underscores."""
    return _TOPIC.sub("_", f"{prefix}.{table}")


def _table(connection: psycopg.Connection, source: str, table: str) -> int:
    """The table's oid."""
    found = connection.execute(_TABLE, split_name(table)).fetchone()
    if found is None:
        raise FrescoError(
            "SOURCE_TABLE_MISSING",
            f"source {source} has no table {table}",
            where=f"source {source}",
            todo="correct the table's name in the configuration (schema.table, case counts)",
        )
    oid, kind = int(found[0]), char(found[1])
    if kind not in ("r", "p"):
        raise FrescoError(
            "SOURCE_TABLE_KIND",
            f"{table} is {_KINDS.get(kind, 'no table')}: its rows are in no log of this database",
            where=f"source {source}",
            todo="capture the tables that its rows are stored in, and write the view over them",
        )
    return oid


def char(value: str | bytes) -> str:
    """PostgreSQL's one-byte "char" comes as bytes or text."""
    return value.decode() if isinstance(value, bytes) else value


def read_schemas(
    dsn: str,
    source: str,
    prefix: str,
    tables: Mapping[str, str],
    decimals: Literal["precise", "string"] = "precise",
) -> list[CapturedRelation]:
    """The captured relations of one database, from its catalog.

    Args:
        dsn: a libpq connection string.
        source: the source's name.
        prefix: the connector's topic prefix.
        tables: name in views -> "schema.table".
        decimals: the connector's `decimal.handling.mode`.

    Raises:
        FrescoError: see `connected`; SOURCE_TABLE_MISSING, SOURCE_TABLE_KIND,
            SOURCE_NO_COLUMNS.
    """
    relations = []
    with connected(dsn, source) as connection:
        # So that a type of a user's, whatever its name, is written with its schema, and only such a one.
        connection.execute("SET search_path = pg_catalog")
        for name, table in tables.items():
            full = ".".join(split_name(table))
            oid = _table(connection, source, table)
            columns = connection.execute(_COLUMNS, (oid,)).fetchall()
            key = [row[0] for row in connection.execute(_KEY, (oid,)).fetchall()]
            toasts = connection.execute(_TOASTS, (oid,)).fetchone()
            relation = captured(
                f"{source}.{name}",
                topic_name(prefix, full),
                [
                    (column, f"{type_} generated" if generated else type_)
                    for column, type_, generated, *_ in columns
                ],
                key=key,
                collection=full,
                decimals=decimals,
                known={name: (type_, f"{oid}.{at}") for name, type_, _, at, _ in columns},
            )
            made = {row[0]: row[4] for row in columns}
            relations.append(
                replace(
                    relation,
                    toasts_from=int(toasts[0]) if toasts else 0,
                    made=tuple(made[column.name] for column in relation.relation.schema),
                )
            )
    return relations


def check_replica_identity(dsn: str, source: str, tables: Sequence[str]) -> None:
    """Refuse tables whose log does not hold whole old rows, their partitions among them.

    Args:
        tables: "schema.table" of each captured table.

    Raises:
        FrescoError: SOURCE_REPLICA_IDENTITY with the statements that fix it; see `connected`;
            SOURCE_TABLE_MISSING, SOURCE_TABLE_KIND.
    """
    wrong = []
    with connected(dsn, source) as connection:
        for table in tables:
            oid = _table(connection, source, table)
            for schema, name, identity in connection.execute(_IDENTITIES, (oid,) * 3).fetchall():
                if char(identity) != "f":
                    statement = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL;").format(
                        sql.Identifier(schema, name)
                    )
                    wrong.append((f"{schema}.{name}", statement.as_string(connection)))
    if wrong:
        names = ", ".join(table for table, _ in wrong)
        raise FrescoError(
            "SOURCE_REPLICA_IDENTITY",
            f"the log of source {source} does not hold whole old rows of {names}",
            where=f"source {source}",
            todo="run: " + " ".join(statement for _, statement in wrong),
        )


@contextmanager
def connected(dsn: str, source: str) -> Iterator[psycopg.Connection]:
    """A connection for a moment, in autocommit. All its errors have codes, and no text has the password.

    Not even a question to the catalog waits for ever: it too may need a lock of the table it is about.

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_TABLE_LOCKED, SOURCE_QUERY_REFUSED.
    """
    known: dict[str, Any] = {"connect_timeout": 10, **connection_parts(dsn, source)}
    try:
        connection = psycopg.connect(make_conninfo("", **known), autocommit=True)
    except psycopg.Error as error:
        raise FrescoError(
            "SOURCE_UNREACHABLE",
            f"cannot connect to source {source}: {without_password(str(error), dsn)}",
            where=f"source {source}",
            todo="check the address, the user and its password, and that the server is up",
        ) from None
    try:
        with connection:
            connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            yield connection
    except psycopg.errors.LockNotAvailable:
        holders = "SELECT pid, query FROM pg_stat_activity WHERE state <> 'idle'"
        raise table_locked(source, LOCK_SECONDS, holders) from None
    except psycopg.Error as error:
        passing = isinstance(error, psycopg.OperationalError)
        if passing and not isinstance(error, psycopg.errors.QueryCanceled):
            raise FrescoError(
                "SOURCE_UNREACHABLE",
                f"source {source} went away while it was read: {without_password(str(error), dsn)}",
                where=f"source {source}",
                todo="see that the server is up",
            ) from None
        raise FrescoError(
            "SOURCE_QUERY_REFUSED",
            f"source {source} refuses to be read: {without_password(str(error), dsn)}",
            where=f"source {source}",
            todo="the tables and columns must be there, and the user needs SELECT on them",
        ) from None


def connection_parts(dsn: str, source: str) -> dict[str, Any]:
    """The parts of a connection string, whose own error would repeat what stands in it.

    Raises:
        FrescoError: SOURCE_CONNECTION.
    """
    try:
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        raise FrescoError(
            "SOURCE_CONNECTION",
            f"the connection of source {source} cannot be read",
            where=f"source {source}",
            todo="write postgresql://user:password@host:port/database, special characters as %XX",
        ) from None


def without_password(text: str, dsn: str) -> str:
    """An error's text in one line."""
    try:
        password = conninfo_to_dict(dsn).get("password")
    except psycopg.Error:
        password = None
    text = " ".join(text.split())
    return text.replace(str(password), "***") if password else text


_ORIGIN = """
SELECT system_identifier::text,
  CASE WHEN NOT pg_is_in_recovery() THEN
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END,
  CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_lsn() - '0/0')::bigint END
FROM pg_control_system()
"""


def read_origin(dsn: str, source: str) -> Origin | None:
    """The server as it is now; None where the user may not ask.

    Raises:
        FrescoError: SOURCE_UNREACHABLE, SOURCE_CONNECTION.
    """
    try:
        with connected(dsn, source) as connection:
            row = connection.execute(_ORIGIN).fetchone()
    except FrescoError as error:
        if error.code != "SOURCE_QUERY_REFUSED":
            raise
        return None
    return None if row is None else Origin(row[0], row[1], row[2])
