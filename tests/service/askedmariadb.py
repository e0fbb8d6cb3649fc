"""A real MariaDB as tests ask it: the relations of its database `shop`, and a source over them."""

from __future__ import annotations

import random
from typing import Any

from streaming.ask.mariadb.mysql_catalog import read_schemas, without_transactions
from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_source import MysqlSource
from streaming.ask.mariadb.mysql_state import LogPlace, current_place
from streaming.ask.mariadb.mysql_url import connect, parse_url
from streaming.capture.binlog import LogReader
from streaming.capture.log_events import Commit, RowChange
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.engines.duck.duck_operators import DuckOperators


def captured(server: Mariadb, *tables: str) -> list[Any]:
    return read_schemas(server.url("shop"), "shop", "shop", {one: f"shop.{one}" for one in tables})


def source(server: Mariadb, ops: DuckOperators, *tables: str) -> MysqlSource:
    return MysqlSource("shop", server.url("shop"), captured(server, *tables), ops)


def log_end(server: Mariadb) -> LogPlace:
    """Where the log ends now."""
    with connect(parse_url(server.url("shop"), "shop"), "shop", conv=PLAIN) as connection:
        return current_place(connection)


def log_files(server: Mariadb) -> list[str]:
    """The files of the log, oldest first."""
    with (
        connect(parse_url(server.url("shop"), "shop"), "shop") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW BINARY LOGS")
        return [row[0] for row in cursor.fetchall()]


def log_of(server: Mariadb, start: Any, *tables: str, url: str = "") -> LogReader:
    """The log of captured tables from a place on, read as another user where a URL is given."""
    wanted = frozenset(("shop", table) for table in tables)
    known = parse_url(url or server.url("shop"), "shop")
    replica = random.randrange(1000, 2**30)
    lasting = without_transactions(server.url("shop"), "shop")
    return LogReader(known, "shop", wanted, start, "precise", replica, lasting=lasting)


def until_rows(reader: LogReader, count: int) -> list[Any]:
    """Events of the log until so many rows, and their transaction's end, have come."""
    found: list[Any] = []
    try:
        for event in reader.events():
            found += [event] if event is not None else []
            rows = sum(isinstance(one, RowChange) for one in found)
            if rows >= count and isinstance(event, Commit):
                break
    finally:
        reader.close()
    return found
