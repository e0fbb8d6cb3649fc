"""One connection to a MariaDB source: snapshots, errors with codes, and a reconnect.

What `pgsession` is for PostgreSQL. A session does its work inside `with session.snapshot()`, one
transaction of a consistent snapshot whose place in the log says exactly what it sees. No error text
holds a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
from pymysql.converters import conversions

from streaming.algebra.source_queries import Seen
from streaming.ask.mariadb.mysql_state import SnapshotTaker
from streaming.ask.mariadb.mysql_url import connect, is_lost, parse_url, said
from streaming.ask.reconnecting import ConnectionLost, Reconnecting
from streaming.errors import FrescoError

_SETTINGS = ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",)
PLAIN = {kind: encode for kind, encode in conversions.items() if not isinstance(kind, int)}
"""Converters of parameters only: every value comes as the text or the bytes the server sent."""
_TIMEOUTS = (1205, 1969, 3024)
"""Waited for a lock, for a statement of MariaDB's, of MySQL's."""
_NO_LOCK = 1227
_SECONDS_MORE = 10


class MysqlSession(Reconnecting):
    """The connection of one thread to one source.

    Args:
        source: the source's name.
        connection: a mariadb:// URL.
        timeout: seconds a statement may take.
        remembered: a place's number that the source is known to have been at, by an earlier run.
    """

    def __init__(
        self, source: str, connection: str, *, timeout: float, remembered: int = 0
    ) -> None:
        super().__init__(source, timeout=timeout, remembered=remembered)
        self._url = parse_url(connection, source)
        self._connection: pymysql.connections.Connection | None = None
        self._pinned: Seen | None = None
        self._taker = SnapshotTaker()

    @property
    def pinned(self) -> bool:
        """Whether a state is kept open."""
        return self._pinned is not None

    @property
    def database(self) -> str:
        """Of tables that name none."""
        return self._url.database

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._pinned = None
        if connection is not None:
            with suppress(pymysql.MySQLError):
                connection.close()

    def _is_open(self) -> bool:
        return self._connection is not None

    @contextmanager
    def snapshot(self) -> Iterator[tuple[pymysql.connections.Connection, Seen]]:
        """A transaction that sees one state: the pinned one, or that of the moment.

        Raises:
            FrescoError: SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, SOURCE_BEHIND, SOURCE_LOG_NAME,
                SOURCE_QUERY_TIMEOUT, SOURCE_QUERY_REFUSED.
            Lost: the connection in use is gone.
        """
        connection = self._connected()
        sound = False
        try:
            if self._pinned is not None:
                yield connection, self._pinned
            else:
                yield connection, self._taken(connection)
            sound = True
        except pymysql.MySQLError as error:
            raise self._judged(error) from None
        finally:
            if self._pinned is None or not sound:
                self.release()

    def pin(self) -> Seen:
        """Keep the state of this moment open; see `pgsession.Session.pin`."""
        self.release()
        connection = self._connected()
        try:
            self._pinned = self._taken(connection)
        except pymysql.MySQLError as error:
            raise self._judged(error) from None
        return self._pinned

    def release(self) -> None:
        """Answer at the state of the moment again."""
        self._pinned = None
        if self._connection is not None:
            try:
                self._connection.rollback()
            except pymysql.MySQLError:
                self.close()

    def mark(self) -> None:
        """Nothing: the log says where each transaction ends, so it gets past what was seen by itself.

        Under a connector that does not say so the next transaction of a captured table does it, or
        Debezium's heartbeat.action.query.
        """

    def _taken(self, connection: pymysql.connections.Connection) -> Seen:
        at = self._taker.take(connection)
        if at.number < self.durable:
            raise FrescoError(
                "SOURCE_BEHIND",
                f"source {self.source} is at {at} of its log, behind where it had been before: it was"
                " restored, or its log was reset",
                where=f"source {self.source}",
                todo="bring back a server that has them, or snapshot the source and its views anew",
            )
        self.durable = at.number
        return at.state

    def _connected(self) -> pymysql.connections.Connection:
        if self._connection is not None:
            return self._connection
        seconds = self._timeout + _SECONDS_MORE
        connection = connect(self._url, self.source, conv=PLAIN, read_timeout=seconds)
        try:
            with connection.cursor() as cursor:
                for setting in _SETTINGS:
                    cursor.execute(setting)
                limit = f"max_statement_time = {max(self._timeout, 0.001):g}"
                if "mariadb" not in connection.get_server_info().lower():
                    limit = f"max_execution_time = {max(int(self._timeout * 1000), 1)}"
                cursor.execute(f"SET SESSION {limit}")
        except pymysql.MySQLError as error:
            connection.close()
            raise self._judged(error) from None
        self._connection = connection
        self.connects += 1
        return connection

    def _judged(self, error: pymysql.MySQLError) -> Exception:
        """What an error of a statement means."""
        code: Any = error.args[0] if error.args else 0
        text = said(error, self._url)
        if code in _TIMEOUTS:
            return self._timed_out()
        if is_lost(error):
            return ConnectionLost(text)
        if code == _NO_LOCK:
            self.close()  # rights count for connections that are made after they were granted
            return FrescoError(
                "SOURCE_QUERY_REFUSED",
                f"source {self.source} does not let its user say at which place of the log it answers:"
                f" {text}",
                where=f"source {self.source}",
                todo="GRANT RELOAD, REPLICATION CLIENT ON *.* TO its user (a MariaDB needs neither)",
            )
        return self._query_refused(text)
