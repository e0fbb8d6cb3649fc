"""MariaDB's catalog: the schemas of captured tables, and whether the log holds whole rows.

A row's old version is in the log in full under binlog_format=ROW with binlog_row_image=FULL only, and
binlog_row_metadata=FULL puts each table's column names and types beside its rows, so that they are read
right whatever the table has become since. All three are read at start and refused with the statement
that fixes them (DESIGN 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pymysql

from streaming.errors import FrescoError
from streaming.sources.mysqltypes import kind_of
from streaming.sources.mysqlurl import MysqlUrl, asking, parse_url, said
from streaming.sources.postgres import topic_name
from streaming.sources.schema import CapturedRelation, captured

_COLUMNS = """
SELECT table_schema, table_name, column_name, column_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
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
WANTED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_transaction_compression": "OFF",
}
_MYSQL_ONLY = ("binlog_row_value_options", "binlog_transaction_compression")
"""What only some servers have, and nobody needs: parts of JSON values, and compressed transactions."""


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
            columns = [
                (str(column), _text(type_))
                for database, name_, column, type_ in cursor.fetchall()
                if (database, name_) == place
            ]
            if not columns:
                raise _missing(table, source, "which is not there, or not to be seen by its user")
            cursor.execute(_KEY, place)
            key = [str(column) for (column,) in cursor.fetchall()]
            full = ".".join(place)
            relations.append(
                captured(
                    f"{source}.{name}",
                    topic_name(prefix, full),
                    [(column, kind_of(type_).captured) for column, type_ in columns],
                    key=key,
                    collection=full,
                    decimals=decimals,
                )
            )
    return relations


def check_log(connection: str, source: str) -> None:
    """Refuse a server whose log does not hold whole rows.

    Raises:
        FrescoError: SOURCE_ROW_IMAGE with the statements that fix it; SOURCE_UNREACHABLE,
            SOURCE_CREDENTIALS.
    """
    wrong = wrong_settings(connection, source)
    if not wrong:
        return
    found = ", ".join(f"{name} is {value}" for name, value in wrong.items())
    statements = " ".join(
        f"SET GLOBAL {name} = '{WANTED[name]}';" for name in wrong if name != "log_bin"
    )
    todo = "set log_bin in the server's configuration and restart it" if "log_bin" in wrong else ""
    if statements:
        todo += f"{'; ' if todo else ''}run: {statements} (and in the server's configuration)"
    raise FrescoError(
        "SOURCE_ROW_IMAGE",
        f"the log of source {source} does not hold whole rows: {found}",
        where=f"source {source}",
        todo=todo,
    )


def wrong_settings(connection: str, source: str) -> dict[str, str]:
    """Settings of the log that are not as they must be, with their values."""
    url = parse_url(connection, source)
    names = ", ".join(f"'{name}'" for name in WANTED)
    with asking(url, source) as cursor:
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        found = {str(name).lower(): str(value).upper() for name, value in cursor.fetchall()}
    return {
        name: found.get(name, "not known there")
        for name, wanted in WANTED.items()
        if found.get(name) != wanted and (name in found or name not in _MYSQL_ONLY)
    }


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


def replication_rights(connection: str, source: str) -> str | None:
    """What the user lacks to read the log, None when it can be read.

    Raises:
        FrescoError: SOURCE_UNREACHABLE, SOURCE_CREDENTIALS.
    """
    url = parse_url(connection, source)
    with asking(url, source) as cursor:
        try:
            cursor.execute("SHOW GRANTS")
            grants = " ".join(str(row[0]).upper() for row in cursor.fetchall())
        except pymysql.MySQLError as error:
            return said(error, url)
    if "REPLICATION SLAVE" in grants or "ALL PRIVILEGES ON *.*" in grants:
        return None
    return "the user has no REPLICATION SLAVE"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _missing(table: str, source: str, why: str) -> FrescoError:
    return FrescoError(
        "SOURCE_TABLE_MISSING",
        f"source {source} has no table {table}, {why}",
        where=f"source {source}",
        todo="correct the table's name in the configuration (database.table, case counts)",
    )
