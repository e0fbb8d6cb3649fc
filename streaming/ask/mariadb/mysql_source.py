"""Answers of a MariaDB source (`asked`): a consistent snapshot, and the place in the log it stands at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from streaming.algebra.source_queries import QueryPart, SourceState
from streaming.ask.asked import TIMEOUT, AskedSource, RowReader
from streaming.ask.mariadb.mysql_reader import MysqlReader
from streaming.ask.mariadb.mysql_session import MysqlSession
from streaming.ask.mariadb.mysql_values import columns_of
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed

KEYS_LIMIT = 10_000
"""Keys above which reading the whole table is considered."""
T = TypeVar("T")


class MysqlSource(AskedSource):
    """Answers statements of one view manager to one MariaDB; belongs to the manager's thread.

    Args:
        connection: a mariadb:// URL; SELECT on the tables is enough.
        relations: the captured relations of this source.
        operators: the view manager's.
        timeout: seconds a statement may take.
        remembered: `durable` of an earlier run.
    """

    def __init__(
        self,
        name: str,
        connection: str,
        relations: Sequence[CapturedRelation],
        operators: DuckOperators,
        *,
        timeout: float = TIMEOUT,
        keys_limit: int = KEYS_LIMIT,
        remembered: int = 0,
    ) -> None:
        self.session = MysqlSession(name, connection, timeout=timeout, remembered=remembered)
        super().__init__(name, self.session, relations, columns_of, operators)
        self._keys_limit = keys_limit

    def mark(self) -> None:
        """See `MysqlSession.mark`."""
        self.session.mark()

    def _in_snapshot(
        self, parts: Sequence[QueryPart[Signed]], each: Callable[[RowReader], T]
    ) -> tuple[T, SourceState]:
        with self.session.snapshot() as (connection, state):
            reader = MysqlReader(connection, self._keys_limit)
            made = each(reader)
        self.statements += reader.statements
        return made, state
