"""Where a MariaDB or MySQL server is: `mariadb://user:password@host:port/database` and its connection.

The scheme tells a source's kind wherever only its connection is at hand, so nothing else has to say
which driver answers. No error text holds a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from streaming.captured.checked import table_locked
from streaming.errors import FrescoError

SCHEMES = ("mariadb", "mysql")
_PORT = 3306
_CREDENTIALS = (1044, 1045, 1698)
"""Errors that refuse the user: no right to the database, wrong password, no such way to log in."""

_LOCKED = 1205
LOCK_SECONDS = 10
"""How long a question waits for a table that another session has locked."""
_LOST = (1053, 1412, 1927, 2006, 2013, 2055)
"""Shutdown, a table altered since the snapshot, killed, gone, lost."""


@dataclass(frozen=True)
class MysqlUrl:
    """A server, a user, and the database that unqualified table names are of."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    ssl_ca: str = ""

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.host}:{self.port}"


def parse_url(url: str, source: str) -> MysqlUrl:
    """The parts of a URL; `?ssl_ca=FILE` makes the connection check the server's certificate.

    Raises:
        FrescoError: SOURCE_CONNECTION.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:
        parts, port = None, 0
    options = parse_qs(parts.query) if parts else {}
    if parts is None or not parts.hostname or not parts.username or set(options) - {"ssl_ca"}:
        raise FrescoError(
            "SOURCE_CONNECTION",
            f"the connection of source {source} cannot be read",
            where=f"source {source}",
            todo="write mariadb://user:password@host:port/database, special characters as %XX",
        )
    return MysqlUrl(
        parts.hostname,
        port,
        unquote(parts.username),
        unquote(parts.password or ""),
        unquote(parts.path.lstrip("/")),
        options.get("ssl_ca", [""])[0],
    )


def arguments(url: MysqlUrl, **more: Any) -> dict[str, Any]:
    """Keyword arguments of `pymysql.connect`; everything in UTC and utf8mb4, values as they are sent.

    The server's own sql_mode would pad a CHAR, or read a quoted name as a text.
    """
    chosen: dict[str, Any] = {
        "host": url.host,
        "port": url.port,
        "user": url.user,
        "password": url.password,
        "database": url.database or None,
        "charset": "utf8mb4",
        "connect_timeout": 10,
        "autocommit": True,
        "client_flag": CLIENT.MULTI_STATEMENTS,
        "init_command": "SET time_zone = '+00:00', sql_mode = ''",
        "local_infile": False,
    }
    if url.ssl_ca:
        chosen["ssl"] = {"ca": url.ssl_ca}
    return chosen | more


def connect(url: MysqlUrl, source: str, **more: Any) -> pymysql.connections.Connection:
    """A connection.

    Raises:
        FrescoError: SOURCE_CREDENTIALS, SOURCE_UNREACHABLE.
    """
    try:
        return pymysql.connect(**arguments(url, **more))
    except (pymysql.MySQLError, OSError) as error:  # a file of certificates may not be there
        raise refused(error, url, source) from None


@contextmanager
def asking(url: MysqlUrl, source: str) -> Iterator[Any]:
    """A cursor for a moment; whatever the server says against it has a code.

    Not even a question to the catalog waits for ever: it too may need a lock of the table it is about.

    Raises:
        FrescoError: SOURCE_CREDENTIALS, SOURCE_UNREACHABLE, SOURCE_TABLE_LOCKED, SOURCE_QUERY_REFUSED.
    """
    with connect(url, source) as connected, connected.cursor() as cursor:
        try:
            bound_locks(cursor)
            yield cursor
        except pymysql.MySQLError as error:
            if is_locked(error):
                raise locked(source) from None
            if is_lost(error):
                raise refused(error, url, source) from None
            raise FrescoError(
                "SOURCE_QUERY_REFUSED",
                f"source {source} refuses to be read: {said(error, url)}",
                where=f"source {source}",
                todo="the tables and columns must be there, and the user needs SELECT on them",
            ) from None


def bound_locks(cursor: Any) -> None:
    """Let no statement of the session wait for a locked table for ever."""
    cursor.execute(f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}")


def is_locked(error: Exception) -> bool:
    """Whether a statement has waited for a lock as long as it may."""
    return bool(error.args) and error.args[0] == _LOCKED


def locked(source: str) -> FrescoError:
    """The error of such a statement."""
    return table_locked(source, LOCK_SECONDS, "SHOW FULL PROCESSLIST")


def is_lost(error: Exception) -> bool:
    """Whether the connection in use is gone, or of no use any more, and a new one may do."""
    code = error.args[0] if error.args else 0
    return code in _LOST or isinstance(error, pymysql.InterfaceError)


def said(error: Exception, url: MysqlUrl) -> str:
    """An error's text in one line, without the password."""
    text = " ".join(str(error.args[-1] if error.args else error).split())
    return text.replace(url.password, "***") if url.password else text


def refused(error: Exception, url: MysqlUrl, source: str) -> FrescoError:
    """What a failed attempt to connect means."""
    code = error.args[0] if error.args else 0
    if code in _CREDENTIALS:
        return FrescoError(
            "SOURCE_CREDENTIALS",
            f"source {source} refuses the user or its password: {said(error, url)}",
            where=f"source {source}",
            todo="correct the user and the password in the source's connection",
        )
    return FrescoError(
        "SOURCE_UNREACHABLE",
        f"source {source} cannot be asked: {said(error, url)}",
        where=f"source {source}",
        todo="check the address and that the server is up; the views that ask it wait, the"
        " others go on",
    )
