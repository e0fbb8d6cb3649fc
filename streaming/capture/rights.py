"""A right that a capture's user lacks: it does not come by itself, so nobody waits for it."""

from __future__ import annotations

import pymysql

from streaming.ask.mariadb.mysql_url import MysqlUrl, said
from streaming.errors import FrescoError

DENIED = (1142, 1143, 1227)
"""What the server says of a table, a column, and of anything else that needs a right."""


def lacking(error: pymysql.MySQLError, url: MysqlUrl, source: str) -> FrescoError:
    """CAPTURE_REFUSED with the server's words and the rights that are needed."""
    return FrescoError(
        "CAPTURE_REFUSED",
        f"source {source} refuses what a capture needs: {said(error, url)}",
        where=f"source {source}",
        todo="GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO its user (on MySQL SELECT,"
        " REPLICATION SLAVE, REPLICATION CLIENT, RELOAD)",
    )
