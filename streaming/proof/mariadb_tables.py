"""A MariaDB's own rows, for `fresco verify --source`: all tables in one snapshot, in Spark's types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import pyarrow as pa
import pymysql

from streaming.algebra.tree import Relation
from streaming.ask.mariadb.mysql_catalog import split_table
from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_state import quoted
from streaming.ask.mariadb.mysql_url import bound_locks, connect, is_locked, locked, parse_url, said
from streaming.ask.mariadb.mysql_values import MysqlColumn
from streaming.errors import FrescoError
from streaming.proof.proof_engine import columns_of
from streaming.scalars.types import arrow_type


class Readable(Protocol):
    """A database's URL, and its tables by their names in views."""

    @property
    def connection(self) -> str: ...
    @property
    def tables(self) -> Mapping[str, str]: ...


def read_tables(
    source: str,
    database: Readable,
    relations: Collection[Relation],
    lost: Mapping[str, Collection[int]],
) -> dict[str, pa.Table]:
    """Relation -> its rows, named as `proof.proof_engine` names columns; NULL in the lost ones.

    Raises:
        FrescoError: VERIFY_SOURCE; SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, SOURCE_TABLE_LOCKED,
            SOURCE_VALUE_UNFIT.
    """
    url = parse_url(database.connection, source)
    found = {}
    with connect(url, source, conv=PLAIN) as connection:
        try:
            with connection.cursor() as cursor:
                bound_locks(cursor)
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            for relation in relations:
                name = relation.name.partition(".")[2]
                place = split_table(database.tables[name], url, source)
                found[relation.name] = _rows(connection, place, relation, lost[relation.name])
        except pymysql.MySQLError as error:
            if is_locked(error):
                raise locked(source) from None
            raise FrescoError(
                "VERIFY_SOURCE",
                f"the database cannot be read: {said(error, url)}",
                where=source,
                todo="check the connection and the right to SELECT",
            ) from None
    return found


def _rows(
    connection: pymysql.connections.Connection,
    place: tuple[str, str],
    relation: Relation,
    lost: Collection[int],
) -> pa.Table:
    columns = [MysqlColumn(relation.name, one.name, one.type) for one in relation.schema]
    cells = ", ".join(
        "NULL" if at in lost else column.selected(quoted(column.name))
        for at, column in enumerate(columns)
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {cells} FROM {quoted(place[0])}.{quoted(place[1])}")
        rows = cursor.fetchall()
    texts = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [
        pa.nulls(len(rows), arrow_type(column.spark)) if at in lost else column.read(values)
        for at, (column, values) in enumerate(zip(columns, texts, strict=True))
    ]
    return pa.table(arrays, names=columns_of(relation.schema))
