"""One connection to a PostgreSQL source: snapshots, errors with codes, and a reconnect.

A session does its work inside `with session.snapshot()`, one REPEATABLE READ transaction whose
`PgState` says exactly what it sees. When the connection turns out to be lost the caller repeats its work
once over a new one (`again`); a second loss is an error. No error text holds a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from streaming.ask.postgres.pg_catalog import connection_parts, without_password
from streaming.ask.postgres.pg_state import PgState
from streaming.ask.reconnecting import ConnectionLost, Reconnecting
from streaming.errors import FrescoError

_STATE = """SELECT pg_is_in_recovery(), pg_current_snapshot()::text,
CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0')::int8 END,
CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::int8 END"""
_SETTINGS = """SET TIME ZONE 'UTC'; SET DateStyle = 'ISO'; SET bytea_output = 'hex';
SET extra_float_digits = 1; SET standard_conforming_strings = on; SET jit = off;
SET statement_timeout = {timeout}; SET lock_timeout = 0"""
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "fresco",
}
"""Of the connection, where its string does not say otherwise: a dead network must be noticed."""
_CREDENTIALS = ("authentication", "password", "role", "pg_hba.conf", "user name")
_LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)


def _sound(connection: psycopg.Connection) -> bool:
    """Whether the connection is in a transaction that has not failed."""
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


class Session(Reconnecting):
    """The connection of one thread to one source.

    Args:
        source: the source's name.
        dsn: a libpq connection string.
        timeout: seconds a statement may take.
        remembered: an LSN that the source is known to have written durably, by an earlier run.
        tables: what may be asked at a pinned state, as SQL; see `snapshot`.
    """

    def __init__(
        self, source: str, dsn: str, *, timeout: float, remembered: int = 0, tables: str = ""
    ) -> None:
        super().__init__(source, timeout=timeout, remembered=remembered)
        self._dsn = dsn
        self._tables = tables
        self._connection: psycopg.Connection | None = None
        self._pinned: PgState | None = None
        self._last: tuple[str, int] | None = None
        """The last snapshot's text, and an LSN at or above all that it shows."""

    @property
    def pinned(self) -> bool:
        """Whether a state is kept open."""
        return self._pinned is not None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._pinned = self._last = None
        if connection is not None:
            connection.close()

    def _is_open(self) -> bool:
        return self._connection is not None

    # Snapshots ------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(
        self, *, writes: bool = False, locked: str = ""
    ) -> Iterator[tuple[psycopg.Connection, PgState]]:
        """A transaction that sees one state: the pinned one, or that of the moment.

        Args:
            writes: whether temporary tables are to be made; not in a pinned state.
            locked: tables, as SQL, to which no TRUNCATE comes between the snapshot and its end: a
                truncated table is empty to older snapshots as well.

        Raises:
            FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, SOURCE_BEHIND,
                SOURCE_STANDBY, SOURCE_QUERY_TIMEOUT, SOURCE_QUERY_REFUSED.
            Lost: the connection in use is gone.
        """
        connection = self._connected()
        try:
            if self._pinned is not None:
                yield connection, self._pinned
                return
            cursor = connection.cursor()
            access = "READ WRITE" if writes else "READ ONLY"
            lock = f"LOCK TABLE {locked} IN ACCESS SHARE MODE; " if locked else ""
            begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ {access}; {lock}{_STATE}"
            cursor.execute(begin.encode())
            while cursor.description is None:
                cursor.nextset()
            found = cursor.fetchone()
            assert found is not None
            yield connection, self._checked(*found)
            if self._pinned is None:
                connection.execute("COMMIT")
        except psycopg.Error as error:
            raise self._judged(error) from None
        finally:
            if self._pinned is None or not _sound(connection):
                self._settle(connection)

    def pin(self) -> PgState:
        """Keep the state of this moment open: what is asked from now on is answered at it.

        A state that the log has meanwhile got past can be compensated at once, or needs no
        compensation at all; one of the moment must wait for the log. It ends with `release`. A
        TRUNCATE waits until then, as it does for any transaction that has read the table.
        """
        self.release()
        with self.snapshot(locked=self._tables) as (_, state):
            self._pinned = state
        return state

    def release(self) -> None:
        """Answer at the state of the moment again."""
        self._pinned = None
        if self._connection is not None:
            self._settle(self._connection)

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """A transaction that writes, and is committed when the block ends without an error.

        Raises:
            FrescoError, Lost: as `snapshot`.
        """
        connection = self._connected()
        try:
            with connection.transaction():
                yield connection
        except psycopg.Error as error:
            raise self._judged(error) from None

    def mark(self) -> None:
        """Write an empty transaction into the log, so that the log gets past what was seen.

        A snapshot's `upto` covers transactions that no captured table is part of; the log tells
        of the next captured one only. Debezium delivers this one as BEGIN and END (FACTS).
        """
        connection = self._connected()
        try:
            connection.execute("SELECT pg_logical_emit_message(true, 'fresco', '')")
        except psycopg.Error as error:
            raise self._judged(error) from None

    def _settle(self, connection: psycopg.Connection) -> None:
        """End a transaction that did not come to its COMMIT."""
        self._pinned = None
        if connection.closed or self._connection is not connection:
            return
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                self.close()

    def _checked(
        self, standby: bool, snapshot: str, upto: int | None, flushed: int | None
    ) -> PgState:
        if standby or upto is None or flushed is None:
            raise FrescoError(
                "SOURCE_STANDBY",
                f"source {self.source} answers from a standby, whose snapshots do not name the"
                " transactions they show",
                where=f"source {self.source}",
                todo="connect to the primary (target_session_attrs=primary)",
            )
        if upto < self.durable:
            raise FrescoError(
                "SOURCE_BEHIND",
                f"source {self.source} is at log position {upto}, behind {self.durable}, which it had"
                " written before: it was restored, or failed over to a server that lacks the last"
                " transactions",
                where=f"source {self.source}",
                todo="bring back a server that has them, or snapshot the source and its views anew",
            )
        # What is flushed survives a crash of the server; what is only inserted may be lost rightly.
        self.durable = max(self.durable, flushed)
        if self._last is None or self._last[0] != snapshot:
            self._last = snapshot, upto
        # The same snapshot shows the same, so the lower bound holds too: nothing need be waited for
        # at a source where nothing happens, however far other work moves its log.
        return PgState.parsed(snapshot, self._last[1])

    # Connecting and errors ------------------------------------------------------------------------

    def _connected(self) -> psycopg.Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        known: dict[str, Any] = {**_DEFAULTS, **connection_parts(self._dsn, self.source)}
        try:
            connection = psycopg.connect(make_conninfo("", **known), autocommit=True)
            settings = _SETTINGS.format(timeout=max(1, int(self._timeout * 1000)))
            connection.execute(settings.encode())
        except psycopg.OperationalError as error:
            text = without_password(str(error), self._dsn)
            if any(word in text for word in _CREDENTIALS):
                raise self._refused(text) from None
            raise self._unreachable(text) from None
        except psycopg.Error as error:
            raise self._judged(error) from None
        self._connection = connection
        self.connects += 1
        return connection

    def _judged(self, error: psycopg.Error) -> Exception:
        """What an error of a statement means."""
        text = without_password(str(error), self._dsn)
        if isinstance(error, errors.QueryCanceled):
            return self._timed_out()
        broken = self._connection is None or self._connection.broken or self._connection.closed
        if broken or isinstance(error, _LOST):
            return ConnectionLost(text)
        return self._query_refused(text)

    def _refused(self, text: str) -> FrescoError:
        return FrescoError(
            "SOURCE_CREDENTIALS",
            f"source {self.source} refuses the user or its password: {text}",
            where=f"source {self.source}",
            todo="correct the user and the password in the source's connection",
        )
