"""Of a table with system versioning its present rows only, as a SELECT shows them (MariaDB).

The log has every version: a DELETE is an update that ends a row's time, an UPDATE is followed by an
insert of the row as it was, DELETE HISTORY deletes past rows. A row is present while its time has no end,
so each event is what it does to the present rows. Versioning by numbers of transactions is logged as
statements and refused at start (`mysqlcheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from streaming.capture.log_events import Image, Table
from streaming.capture.statements import Words, names_one_of
from streaming.capture.table_map import LoggedColumn
from streaming.errors import FrescoError

NO_END = ("2038-01-19T03:14:07.999999Z", "2106-02-07T06:28:15.999999Z")
"""The end of a row's time that has none: the last moment of a TIMESTAMP, until MariaDB 11.4 and since."""
IMPLICIT = ("row_start", "row_end")
"""Columns of a table that declares none; the last two in the log, and in no catalog."""
_VERSIONED = "SYSTEM VERSIONED"
_QUERY = """
SELECT t.table_type, c.column_name, c.generation_expression
FROM information_schema.tables t JOIN information_schema.columns c
ON c.table_schema = t.table_schema AND c.table_name = t.table_name
WHERE t.table_schema = %s AND t.table_name = %s
"""


@dataclass(frozen=True)
class SystemTime:
    """A table in the catalog.

    Attributes:
        end: the column that ends its rows' time; "" without versioning.
        columns: those that it declares.
    """

    end: str
    columns: frozenset[str]


@dataclass(frozen=True)
class VersionedRows:
    """How the present rows of an event are told: by `end`; `hidden` columns are not the table's own."""

    end: str
    hidden: tuple[str, ...]

    def present(self, op: str, before: Image | None, after: Image | None) -> Change | None:
        """What the change of a row does to the present ones; None where that is nothing."""
        was, stays = self._row(before), self._row(after)
        if was is None and stays is None:
            return None
        if was is None:
            return "c", None, stays
        return ("d", was, None) if stays is None else (op, was, stays)

    def _row(self, image: Image | None) -> Image | None:
        if image is None or image[self.end] not in NO_END:
            return None
        return {name: value for name, value in image.items() if name not in self.hidden}


Change = tuple[str, Image | None, Image | None]
"""Operation, row before, row after."""


def read_period(cursor: Any, table: Table) -> SystemTime:
    """A table as the catalog has it now."""
    cursor.execute(_QUERY, table)
    rows = [[_text(value) for value in row] for row in cursor.fetchall()]
    columns = frozenset(column for _, column, _ in rows)
    if not any(kind == _VERSIONED for kind, _, _ in rows):
        return SystemTime("", columns)
    ends = [column for _, column, said in rows if said == "ROW END"]
    return SystemTime(ends[0] if ends else IMPLICIT[1], columns)


class VersionedTables:
    """Which tables have system versioning at the log's place.

    A row's own columns tell it, with the catalog's word on whose they are. The catalog is that of the
    moment, and the log may be behind it: what cannot be told apart ends the capture.

    Args:
        read: asks the catalog.
    """

    def __init__(self, source: str, read: Callable[[Table], SystemTime]) -> None:
        self._source, self._read = source, read
        self._known: dict[Table, SystemTime] = {}
        self._strange: set[Table] = set()

    def of(self, table: Table, columns: Sequence[LoggedColumn]) -> VersionedRows | None:
        """How an event's present rows are told; None where all are.

        Raises:
            FrescoError: CAPTURE_VERSIONED.
        """
        names = [column.name for column in columns]
        moments = {
            one.name for one in columns if one.type == FIELD_TYPE.TIMESTAMP2 and one.first == 6
        }
        if table not in self._known:
            self._known[table] = self._read(table)
        period = self._known[table]
        implicit = tuple(names[-2:]) == IMPLICIT and moments >= set(IMPLICIT)
        if implicit and not period.end and IMPLICIT[1] not in period.columns:
            period = self._known[table] = self._read(table)
            if not period.end and IMPLICIT[1] not in period.columns:
                raise self._untold(table)
        if period.end and period.end in names:
            declared = period.end in period.columns
            return VersionedRows(period.end, () if declared else IMPLICIT)
        if moments - period.columns:
            self._strange.add(table)
        return None

    def altered(self, words: Words, database: str) -> None:
        """A statement may have altered tables: they are looked at again.

        Raises:
            FrescoError: CAPTURE_VERSIONED, rows before it were taken for present ones.
        """
        keys = [word.key for word in words]
        if "VERSIONING" in keys and "DROP" in keys and self._strange:
            table = names_one_of(words, frozenset(self._strange), database)
            if table is not None:
                raise self._untold(table)
        self._known.clear()

    def _untold(self, table: Table) -> FrescoError:
        return FrescoError(
            "CAPTURE_VERSIONED",
            f"whether rows of {'.'.join(table)} in the log are past ones is not known: its system"
            " versioning was taken away before the log was read so far",
            where=f"source {self._source}",
            todo="capture under another prefix in a new pipeline, with a new snapshot; let the capture"
            " run while system versioning is taken away",
        )


def versions_of(source: str, cursor: Callable[[], Any]) -> VersionedTables:
    """`VersionedTables` by a server's catalog.

    Args:
        cursor: a context with a cursor.
    """

    def read(table: Table) -> SystemTime:
        with cursor() as asked:
            return read_period(asked, table)

    return VersionedTables(source, read)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
