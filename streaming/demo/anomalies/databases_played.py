"""The databases that the anomalies happen in: real ones, written by sessions that commit when told to.

Each scenario makes its tables anew. A transaction is one of a session's, its changes are read back from
the database's log, and the sources' states are read from the tables: nothing is computed on the side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
from psycopg import sql

from streaming.algebra.bag import Bag, bag, evaluate
from streaming.algebra.tree import Relation, Tree
from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.captured.captured_schema import CapturedRelation
from streaming.demo.anomalies.shown import Shown
from streaming.demo.embedded.postgres_server import Postgres, create_databases
from streaming.demo.embedded.slot_log import SlotLog, SlotTransaction
from streaming.sql.parse import parse

Change = tuple[str, int, tuple[int, ...]]
"""A relation, +1 to insert or -1 to delete, and a row."""


class Databases:
    """Databases x, y, ... of one server with a scenario's tables.

    Args:
        tables: relation -> its columns ("a b"), all bigint; a star marks those of the key ("a* b").
        rows: what the tables hold at first.
    """

    def __init__(
        self,
        server: Postgres,
        tables: Mapping[str, str],
        rows: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        self.names = sorted({name.partition(".")[0] for name in tables})
        self.dsns = {name: server.dsn(name) for name in self.names}
        self._undo = ExitStack()
        create_databases(server.dsn("postgres"), self.names)
        self.captured: dict[str, list[CapturedRelation]] = {}
        self.logs: dict[str, SlotLog] = {}
        self._readers: dict[str, psycopg.Connection[Any]] = {}
        self.initial: dict[str, Bag] = {}
        for source in self.names:
            own = {n: text for n, text in tables.items() if n.startswith(f"{source}.")}
            self._make(source, own, rows)
        self.relations: dict[str, Relation] = {
            one.relation.name: one.relation for found in self.captured.values() for one in found
        }
        for source in self.names:
            own_relations = {n: r for n, r in self.relations.items() if n.startswith(f"{source}.")}
            log = SlotLog(self.dsns[source], source, own_relations)
            self._undo.callback(log.close)
            self.logs[source] = log
            self.initial |= {name: bag(found) for name, found in log.begin().items()}

    def _make(
        self, source: str, tables: Mapping[str, str], rows: Mapping[str, Sequence[tuple[int, ...]]]
    ) -> None:
        connection = psycopg.connect(self.dsns[source], autocommit=True)
        self._undo.callback(connection.close)
        self._readers[source] = connection
        for name, text in tables.items():
            table = sql.Identifier(name.partition(".")[2])
            columns = [(word.rstrip("*"), word.endswith("*")) for word in text.split()]
            key = [sql.Identifier(column) for column, marked in columns if marked]
            parts = [sql.SQL("{} bigint").format(sql.Identifier(column)) for column, _ in columns]
            if key:
                parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(key)))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            connection.execute(
                sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts))
            )
            for row in rows.get(name, ()):
                _insert(connection, table, row)
        wanted = {name.partition(".")[2]: f"public.{name.partition('.')[2]}" for name in tables}
        self.captured[source] = read_schemas(self.dsns[source], source, source, wanted)

    def view(self, text: str) -> Tree:
        """A view's SELECT over the tables."""
        return parse(text, self.relations)

    def session(self, source: str) -> psycopg.Connection[Any]:
        """A session that begins a transaction with its first statement, until `close`."""
        connection = psycopg.connect(self.dsns[source])
        self._undo.callback(connection.close)
        return connection

    def commit(self, *changes: Change) -> list[tuple[str, SlotTransaction]]:
        """One transaction at each database that the changes touch; what the logs say of them."""
        found = []
        for source in dict.fromkeys(name.partition(".")[0] for name, _, _ in changes):
            with psycopg.connect(self.dsns[source]) as session:
                for name, sign, row in changes:
                    if name.startswith(f"{source}."):
                        carry_out(session, name, sign, row)
            found += self.read_log(source)
        return found

    def read_log(self, source: str) -> list[tuple[str, SlotTransaction]]:
        """What a database's log says of the transactions that have committed since."""
        return [(source, one) for one in self.logs[source].more()]

    def state(self, views: Iterable[Tree]) -> Shown:
        """The views over the tables as they are now."""
        rows = {name: self._rows(name) for name in self.relations}
        return tuple(evaluate(tree, rows) for tree in views)

    def _rows(self, name: str) -> Bag:
        source, _, table = name.partition(".")
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        return bag(self._readers[source].execute(query).fetchall())

    def awaits_lock(self, source: str) -> Callable[[], bool]:
        """Whether a session of the database waits for a row that another one has locked."""

        def waits() -> bool:
            found = self._readers[source].execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return found.fetchone() != (0,)

        return waits

    def close(self) -> None:
        self._undo.close()


def carry_out(session: psycopg.Connection[Any], name: str, sign: int, row: tuple[int, ...]) -> None:
    """One change in a session's transaction."""
    table = sql.Identifier(name.partition(".")[2])
    if sign > 0:
        _insert(session, table, row)
        return
    found = session.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
    columns = [sql.Identifier(one.name) for one in found.description or ()]
    same = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(column) for column in columns)
    session.execute(sql.SQL("DELETE FROM {} WHERE {}").format(table, same), row)


def _insert(session: psycopg.Connection[Any], table: sql.Identifier, row: tuple[int, ...]) -> None:
    places = sql.SQL(", ").join([sql.Placeholder()] * len(row))
    session.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(table, places), row)
