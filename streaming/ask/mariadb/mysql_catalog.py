"""MariaDB's catalog: the schemas of captured tables (DESIGN 6); `mysqlcheck` judges what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from streaming.ask.mariadb.mysql_types import kind_of
from streaming.ask.mariadb.mysql_url import MysqlUrl, asking, parse_url
from streaming.ask.postgres.pg_catalog import topic_name
from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.errors import FrescoError

_COLUMNS = """
SELECT table_schema, table_name, column_name, column_type, generation_expression, character_set_name
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.key_column_usage
WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY'
ORDER BY ordinal_position
"""
_LASTING = """
SELECT t.table_schema, t.table_name FROM information_schema.tables t
JOIN information_schema.engines e ON e.engine = t.engine WHERE e.transactions = 'NO'
AND t.table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
"""


def split_table(table: str, url: MysqlUrl, source: str) -> tuple[str, str]:
    """(database, table) of "bank.entry", or of "entry" in the connection's database.

    Raises:
        FrescoError: SOURCE_TABLE_MISSING when neither names a database.
    """
    database, dot, name = table.partition(".")
    if dot:
        return database, name
    if url.database:
        return url.database, table
    raise _missing(table, source, "which is in no database")


def read_schemas(
    connection: str,
    source: str,
    prefix: str,
    tables: Mapping[str, str],
    decimals: Literal["precise", "string"] = "precise",
) -> list[CapturedRelation]:
    """The captured relations of one server, from its catalog; see `postgres.read_schemas`.

    Args:
        connection: a mariadb:// or mysql:// URL.
        tables: name in views -> "database.table".

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, SOURCE_TABLE_MISSING,
            SOURCE_NO_COLUMNS.
    """
    url = parse_url(connection, source)
    relations = []
    with asking(url, source) as cursor:
        for name, table in tables.items():
            place = split_table(table, url, source)
            cursor.execute(_COLUMNS, place)
            # Some servers take names in any case; the log has them in the catalog's.
            rows = [row[2:] for row in cursor.fetchall() if row[:2] == place]
            columns = [(str(column), _text(type_)) for column, type_, *_ in rows]
            known = {
                str(column): (_native(type_, letters), "") for column, type_, _, letters in rows
            }
            if not columns:
                raise _missing(table, source, "which is not there, or not to be seen by its user")
            cursor.execute(_KEY, place)
            # Of system versioning, the end of a row's time is a part of the key: present rows have none.
            within = {str(column) for column, _, said, _ in rows if _text(said) != "ROW END"}
            key = [str(column) for (column,) in cursor.fetchall() if column in within]
            full = ".".join(place)
            relations.append(
                captured(
                    f"{source}.{name}",
                    topic_name(prefix, full),
                    [(column, kind_of(type_).captured) for column, type_ in columns],
                    key=key,
                    collection=full,
                    decimals=decimals,
                    known=known,
                )
            )
    return relations


def folds_case(connection: str, source: str) -> bool:
    """Whether names of tables that differ in case only are one there (lower_case_table_names)."""
    with asking(parse_url(connection, source), source) as cursor:
        cursor.execute("SELECT @@global.lower_case_table_names")
        return int(cursor.fetchone()[0]) > 0


def without_transactions(connection: str, source: str) -> frozenset[tuple[str, str]]:
    """(database, table) of those whose engine cannot roll back, as MyISAM and Aria."""
    with asking(parse_url(connection, source), source) as cursor:
        cursor.execute(_LASTING)
        return frozenset((_text(database), _text(table)) for database, table in cursor.fetchall())


def _native(type_: object, letters: object) -> str:
    """A column's type with what its letters are stored in, which an ALTER may change by itself."""
    return _text(type_) if letters is None else f"{_text(type_)} character set {_text(letters)}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _missing(table: str, source: str, why: str) -> FrescoError:
    return FrescoError(
        "SOURCE_TABLE_MISSING",
        f"source {source} has no table {table}, {why}",
        where=f"source {source}",
        todo="correct the table's name in the configuration (database.table, case counts)",
    )
