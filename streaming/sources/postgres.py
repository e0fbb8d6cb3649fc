"""What PostgreSQL's catalog says of captured tables: columns, types, primary key, replica identity."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from streaming.errors import FrescoError
from streaming.sources.schema import CapturedRelation, captured

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, at), pg_attribute a
WHERE i.indrelid = %s::regclass AND i.indisprimary
  AND a.attrelid = i.indrelid AND a.attnum = k.attnum
ORDER BY k.at
"""


def read_schemas(
    dsn: str, source: str, prefix: str, tables: Mapping[str, str]
) -> list[CapturedRelation]:
    """tables: name in views -> schema.table"""
    found = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, table in tables.items():
            columns = connection.execute(_COLUMNS, [table]).fetchall()
            key = [row[0] for row in connection.execute(_KEY, [table]).fetchall()]
            found.append(captured(f"{source}.{name}", f"{prefix}.{table}", columns, key=key,
                                  decimals="string"))
    return found


def check_replica_identity(dsn: str, tables: Mapping[str, str]) -> None:
    """Raises SOURCE_REPLICA_IDENTITY"""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in tables.values():
            row = connection.execute(
                "SELECT relreplident FROM pg_class WHERE oid = %s::regclass", [table]).fetchone()
            if row is None or row[0] not in (b"f", "f"):
                raise FrescoError(
                    "SOURCE_REPLICA_IDENTITY", f"{table} does not log full rows",
                    where=table, todo=f"ALTER TABLE {table} REPLICA IDENTITY FULL;")
