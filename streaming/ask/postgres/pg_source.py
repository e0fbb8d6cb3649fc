"""Answers of a PostgreSQL source (`asked`): REPEATABLE READ, and the snapshot says what it shows.

Keys go as arrays up to `ARRAY_LIMIT`, beyond that as a temporary table, which the planner has statistics
of (FACTS: 291 instead of 431 ms for 100,000 keys).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from streaming.algebra.source_queries import QueryPart, SourceState
from streaming.algebra.tree import relations as scanned
from streaming.ask.asked import TIMEOUT, AskedSource, RowReader
from streaming.ask.postgres.pg_reader import PgReader, as_sql
from streaming.ask.postgres.pg_session import Session
from streaming.ask.postgres.pg_values import columns_of
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed

ARRAY_LIMIT = 10_000
"""Keys up to which they go as arrays."""
T = TypeVar("T")


class PostgresSource(AskedSource):
    """Answers statements of one view manager to one PostgreSQL; belongs to the manager's thread.

    Args:
        dsn: a libpq connection string; a reader of the tables is enough.
        relations: the captured relations of this source.
        operators: the view manager's.
        timeout: seconds a statement may take.
        remembered: `durable` of an earlier run.
    """

    def __init__(
        self,
        name: str,
        dsn: str,
        relations: Sequence[CapturedRelation],
        operators: DuckOperators,
        *,
        timeout: float = TIMEOUT,
        array_limit: int = ARRAY_LIMIT,
        remembered: int = 0,
    ) -> None:
        self.session = Session(
            name, dsn, timeout=timeout, remembered=remembered, tables=as_sql(relations)
        )
        super().__init__(name, self.session, relations, columns_of, operators)
        self._marks = Session(name, dsn, timeout=timeout)
        self._array_limit = array_limit

    def close(self) -> None:
        super().close()
        self._marks.close()

    def mark(self) -> None:
        """See `Session.mark`."""
        self._marks.again(self._marks.mark)

    def _in_snapshot(
        self, parts: Sequence[QueryPart[Signed]], each: Callable[[RowReader], T]
    ) -> tuple[T, SourceState]:
        many = any(v.held > self._array_limit for part in parts for v in part.inputs.values())
        asked = {name for part in parts for name in scanned(part.tree) if name not in part.inputs}
        locked = as_sql([one for name, one in self._tables.items() if name in asked])
        with self.session.snapshot(writes=many, locked=locked) as (connection, state):
            reader = PgReader(
                connection, self._array_limit, writes=many and not self.session.pinned
            )
            made = each(reader)
        self.statements += reader.statements
        return made, state


__all__ = ["ARRAY_LIMIT", "TIMEOUT", "PostgresSource"]
