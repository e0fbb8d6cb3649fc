"""A table of a real MariaDB that is altered while views are kept over it: `alteredpostgres` for MariaDB.

What `fresco capture` reads of the log and publishes is what the views get.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pymysql
from alteredpostgres import AlteredTable, as_compared
from askedmariadb import log_end, log_of

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_catalog import read_schemas
from streaming.ask.mariadb.mysql_url import arguments, parse_url
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.log_events import Commit, RowChange
from streaming.capture.position import PublishedPosition
from streaming.capture.publishing import LogPublisher
from streaming.captured.captured_schema import CapturedRelation
from streaming.demo.embedded.mariadb_server import Mariadb
from tests.changingviews import Shop


class AlteredMariadbTable(AlteredTable):
    """The table `entry` of the database `shop`."""

    def __init__(
        self, folder: Path, server: Mariadb, columns: Mapping[str, str], views: Mapping[str, str]
    ) -> None:
        Shop.__init__(self, folder, views=views, connection=server.url("shop"))
        source = self.config.sources["north"]
        source = source.model_copy(
            update={"tables": {"entry": "shop.entry"}, "database": "mariadb"}
        )
        self.config = self.config.model_copy(update={"sources": {"north": source}})
        self.log_format, self.dsn, self.texts = MYSQL_LOG, server.url("shop"), dict(views)
        known = arguments(parse_url(self.dsn, "shop"))
        self._asked = pymysql.connect(**{**known, "autocommit": True})
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        self.run(
            "SET sql_mode = ''",
            "DROP TABLE IF EXISTS shop.entry",
            f"CREATE TABLE shop.entry ({listed}, PRIMARY KEY (id)) CHARACTER SET utf8mb4",
            "CREATE TABLE IF NOT EXISTS shop.done (n INT)",
        )
        at = log_end(server)
        self._reader = log_of(server, at, "entry", "done")
        self._events = self._reader.events()
        tables = {
            ("shop", "entry"): CapturedTable("shop", "entry", "north.shop.entry", ("id",)),
            ("shop", "done"): CapturedTable("shop", "done", "north.shop.done", ()),
        }
        self._publisher = LogPublisher(Envelope("north", "notes"), tables, PublishedPosition(at))

    def run(self, *statements: str) -> None:
        with self._asked.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def close(self) -> None:
        self._reader.close()
        self._asked.close()

    def captured(self) -> list[CapturedRelation]:
        return read_schemas(self.dsn, "north", "north", {"entry": "shop.entry"})

    def pull(self) -> None:
        self.run("INSERT INTO shop.done VALUES (1)")
        done, wanted = False, ("north.shop.entry", "north.transaction")
        for event in self._events:
            if event is None:
                continue
            done = done or (isinstance(event, RowChange) and event.table[1] == "done")
            messages = list(self._publisher.handle(event))
            self.publish([(m[0], m[2].decode()) for m in messages if m[0] in wanted and m[2]])
            if done and isinstance(event, Commit):
                return
        raise AssertionError("the log has ended")

    def truth(self, view: str) -> list[tuple[object, ...]]:
        with self._asked.cursor() as cursor:
            cursor.execute(self.texts[view].replace("north.entry", "shop.entry"))
            return as_compared(cursor.fetchall())
