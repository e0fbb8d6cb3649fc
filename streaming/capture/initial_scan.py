"""An initial snapshot of the captured tables, at an exact place in the log (`mysqlstate`; DESIGN 6)."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.cursors import SSCursor

from streaming.ask.mariadb.mysql_state import LogPlace, SnapshotTaker, is_mariadb, quoted
from streaming.ask.mariadb.mysql_types import kind_of
from streaming.capture.cells import Decimals, cell, schema_text
from streaming.capture.envelope import CapturedTable, Envelope, Message, RowOrigin

_COLUMNS = """
SELECT column_name, column_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""


@dataclass
class ScanProgress:
    """A table's rows are being read: so many so far."""

    table: CapturedTable
    rows: int = 0


class InitialScan:
    """All rows of the captured tables at one place.

    Args:
        connection: inside the snapshot's transaction.
        at: the place it stands at.
        attempt: how many snapshots at this place were broken off before.
    """

    def __init__(
        self,
        connection: pymysql.connections.Connection,
        at: LogPlace,
        server: int,
        attempt: int,
        decimals: Decimals,
    ) -> None:
        self._connection, self._decimals = connection, decimals
        # Readers tell attempts apart by their place, and drop what is left of an older one.
        shown = LogPlace(at.file, at.offset + attempt)
        self._origin = RowOrigin(shown, 0, server, int(time.time() * 1000), snapshot="true")

    def rows(
        self, envelope: Envelope, table: CapturedTable, scan: ScanProgress
    ) -> Iterator[Message]:
        """The events of a table's rows; `scan` counts them."""
        rows = TableRows(self._connection, (table.database, table.name), self._decimals)
        for image in rows.images():
            scan.rows += 1
            yield envelope.change(table, "r", None, image, self._origin, None, rows.schema)


class TableRows:
    """A table's rows as a snapshot's connection sees them.

    Attributes:
        name: of the table, quoted.
        columns: their names and types; none where the table is not there.
        schema: how the values are written (`cells.schema_text`).
    """

    def __init__(
        self,
        connection: pymysql.connections.Connection,
        table: tuple[str, str],
        decimals: Decimals,
        without: Container[str] = (),
    ) -> None:
        """Args:
        without: columns that are left out.
        """
        self._connection = connection
        self.name = ".".join(quoted(part) for part in table)
        with connection.cursor() as cursor:
            cursor.execute(_COLUMNS, table)
            found = [(str(name), _text(type_)) for name, type_ in cursor.fetchall()]
        self.columns = [(name, type_) for name, type_ in found if name not in without]
        kinds = [(name, kind_of(type_)) for name, type_ in self.columns]
        self._cells = [cell(kind, decimals) for _, kind in kinds]
        self.schema = schema_text(kinds, decimals)

    def images(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows as JSON values by column name, so many at most."""
        names = [name for name, _ in self.columns]
        wanted = ", ".join(
            one.selected(quoted(name)) for one, name in zip(self._cells, names, strict=True)
        )
        readers = [one.from_text for one in self._cells]
        with self._connection.cursor(SSCursor) as cursor:
            limit = "" if most is None else f" LIMIT {most}"
            cursor.execute(f"SELECT {wanted} FROM {self.name}{limit}")
            for values in cursor:
                yield {
                    name: None if value is None else read(value)
                    for name, read, value in zip(names, readers, values, strict=True)
                }


def begin(connection: pymysql.connections.Connection) -> LogPlace:
    """Begin a consistent snapshot, and say its place in the log.

    Raises:
        pymysql.MySQLError: the connection's, a right that is missing among them.
        FrescoError: SOURCE_LOG_NAME.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return SnapshotTaker().take(connection)


def gtid_at(connection: pymysql.connections.Connection, at: LogPlace) -> str | None:
    """The last transaction before a place, of each domain; None where the server cannot say."""
    if not is_mariadb(connection):
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (at.file, at.offset))
        row = cursor.fetchone()
    return None if row is None or row[0] is None else _text(row[0])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
