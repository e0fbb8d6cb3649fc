"""The state of a MariaDB source that an answer was computed at: a place in its log (FACTS, exactness).

START TRANSACTION WITH CONSISTENT SNAPSHOT in REPEATABLE READ sees exactly the transactions that end at
or before the place which `binlog_snapshot_file` and `binlog_snapshot_position` name then. The one
exception is a log that has just gone on to a new file: the status may name the new file's beginning
while the last commits of the old one are still to be seen (`SnapshotTaker`).

A MySQL has no such status: there all tables are locked for the moment in which the snapshot is begun and
the place is read (DESIGN 7).

A place is ordered by the number of its file and its offset; both fit in one number of 64 bits, which is
also how an event's place is read from the log (`rowquery`). A transaction's position is where it begins,
or the last byte of it where its END says where it ends: either way it was seen exactly when its position
is below the snapshot's place.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

import pymysql

from streaming.algebra.source_queries import Seen
from streaming.errors import FrescoError

_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_STATUS = "SHOW STATUS LIKE 'binlog_snapshot_%'"
STILL_SECONDS = 1.0
"""So long must the place at a file's beginning stand still: no commit takes longer from log to table."""
_RETAKE_SECONDS = 0.01
_LOCK_TIMEOUT, _LOCK_ATTEMPTS, _LOCK_PAUSE = 1205, 15, 0.5
"""The server's word for it, and seconds in which writers go on, at most, between two attempts."""


@total_ordering
@dataclass(frozen=True)
class LogPlace:
    """Where an event begins or ends."""

    file: str
    offset: int

    @property
    def number(self) -> int:
        """File and offset in one number that only grows."""
        return (int(self.file.rpartition(".")[2]) << 32) | self.offset

    def __lt__(self, other: LogPlace) -> bool:
        return self.number < other.number

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @property
    def state(self) -> Seen:
        """Everything that ends at or before this place, and nothing else."""
        return Seen(self.number - 1)


def place(file: Any, offset: Any) -> LogPlace:
    """A place as the server says it.

    Raises:
        FrescoError: SOURCE_LOG_NAME when the file's name has no number.
    """
    if not re.fullmatch(r".+\.\d+", str(file)):
        raise FrescoError(
            "SOURCE_LOG_NAME",
            f"the server's log file {file!r} has no number",
            todo="set log_bin in the server's configuration; it must be a MariaDB or MySQL with a log",
        )
    return LogPlace(str(file), int(offset))


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"


class SnapshotTaker:
    """Begins snapshots of one server, and says at which place each stands.

    At the beginning of a file a place counts once it has stood still for `STILL_SECONDS`: by then the
    old file's commits are to be seen, and they are in every later snapshot too.
    """

    def __init__(self) -> None:
        self._first: LogPlace | None = None
        self._since = 0.0

    def take(self, connection: pymysql.connections.Connection) -> LogPlace:
        """Begin a transaction that sees one state; the isolation level was set before.

        Raises:
            pymysql.MySQLError: the connection's.
            FrescoError: SOURCE_LOG_NAME.
        """
        if not is_mariadb(connection):
            return _locked_snapshot(connection)
        while True:
            with connection.cursor() as cursor:
                cursor.execute(_BEGIN)
                at = _snapshot_place(cursor)
                if _has_commit(cursor, at) or self._still(at):
                    return at
                cursor.execute("ROLLBACK")
            time.sleep(_RETAKE_SECONDS)

    def _still(self, at: LogPlace) -> bool:
        if at != self._first:
            self._first, self._since = at, time.monotonic()
        return time.monotonic() - self._since > STILL_SECONDS


def _locked_snapshot(connection: pymysql.connections.Connection) -> LogPlace:
    """A MySQL's: nothing commits between the snapshot's beginning and the reading of its place.

    The lock waits for a statement that waits for a row, and may hold up the one that would let it go: so
    it is given up after a second, and tried again.

    Raises:
        pymysql.MySQLError: that of the last attempt.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1")
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                break
            except pymysql.OperationalError as error:
                if error.args[0] != _LOCK_TIMEOUT or attempt == _LOCK_ATTEMPTS - 1:
                    raise
                time.sleep(random.uniform(0, _LOCK_PAUSE))
        try:
            cursor.execute(_BEGIN)
            return current_place(connection)
        finally:
            cursor.execute("UNLOCK TABLES")


def current_place(connection: pymysql.connections.Connection) -> LogPlace:
    """Where the log ends now."""
    with connection.cursor() as cursor:
        try:
            cursor.execute("SHOW MASTER STATUS")
        except pymysql.ProgrammingError:  # MySQL has another name for it since 8.4
            cursor.execute("SHOW BINARY LOG STATUS")
        row = cursor.fetchone()
    return place(row[0], row[1]) if row else place("", 0)


def is_mariadb(connection: pymysql.connections.Connection) -> bool:
    """Whether it is one, else a MySQL."""
    return "mariadb" in connection.get_server_info().lower()


def _snapshot_place(cursor: Any) -> LogPlace:
    cursor.execute(_STATUS)
    said = {str(name).lower(): value for name, value in cursor.fetchall()}
    return place(said.get("binlog_snapshot_file", ""), said.get("binlog_snapshot_position", 0))


def _has_commit(cursor: Any, at: LogPlace) -> bool:
    """Whether the file has a commit at or before the place."""
    cursor.execute(
        "SELECT BINLOG_GTID_POS(%s, %s), BINLOG_GTID_POS(%s, 4)", (at.file, at.offset, at.file)
    )
    here, beginning = cursor.fetchone()
    return bool(here != beginning)
