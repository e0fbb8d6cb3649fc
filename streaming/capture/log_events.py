"""What a log is to the rest of a capture: transactions of row changes, as plain values (`binlog`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.ask.mariadb.mysql_state import LogPlace

Table = tuple[str, str]
"""Database and table."""
Image = Mapping[str, Any]
"""A row as JSON values by column name."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins at `at`."""

    at: LogPlace
    gtid: str
    seconds: int


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of a captured table: op c, u or d, and its place in the event at `at`.

    `schema` says how its values are written (`cells.schema_text`).
    """

    table: Table
    op: str
    before: Image | None
    after: Image | None
    at: LogPlace
    row: int
    server: int
    seconds: int
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Truncate:
    """A captured table was emptied."""

    table: Table
    at: LogPlace
    server: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Refill:
    """A captured table is told anew: it was emptied, and so many rows come after this one.

    `last`: no other table is told anew in the same transaction.
    """

    table: Table
    rows: int
    last: bool
    at: LogPlace
    server: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that may have altered tables."""

    database: str
    text: str
    at: LogPlace
    server: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction is whole; the next one begins at `at`."""

    at: LogPlace
    seconds: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A place that a part of the transaction may be rolled back to; names differ in more than case."""

    name: str
    at: LogPlace


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """What came since the savepoint was undone."""

    name: str
    at: LogPlace


@dataclass(frozen=True, slots=True)
class Rollback:
    """The transaction ends at `at`, undone."""

    at: LogPlace
    seconds: int


@dataclass(frozen=True, slots=True)
class Passed:
    """The log has got to `at` without a transaction: another file, or a word of the server's own."""

    at: LogPlace


LogEvent = Begin | RowChange | Truncate | Refill | Ddl | Commit | Passed
