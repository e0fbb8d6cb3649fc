"""Which parts serve a source, told by its connection: PostgreSQL's, or MariaDB's and MySQL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming.algebra.source_queries import Seen, SourceState
from streaming.ask.asked import TIMEOUT, AskedSource
from streaming.ask.mariadb.mysql_source import MysqlSource
from streaming.ask.mariadb.mysql_url import is_mysql
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.ask.postgres.pg_state import PgStateCodec
from streaming.ask.state_codec import SeenCodec
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators


def asked_source(
    name: str,
    connection: str,
    relations: Sequence[CapturedRelation],
    operators: DuckOperators,
    *,
    timeout: float = TIMEOUT,
    remembered: int = 0,
) -> AskedSource:
    """What answers a view manager's statements to a source.

    Args:
        timeout: seconds a statement may take.
        remembered: `durable` of an earlier run.

    Raises:
        FrescoError: SOURCE_CONNECTION.
    """
    kind = MysqlSource if is_mysql(connection) else PostgresSource
    return kind(name, connection, relations, operators, timeout=timeout, remembered=remembered)


class StatesCodec:
    """States of all kinds of sources inside machines' snapshots; see `ask.state_codec.StateCodec`.

    A PostgreSQL snapshot has four parts, a place in a log two.
    """

    def __init__(self) -> None:
        self._snapshots, self._places = PgStateCodec(), SeenCodec()

    def note(self, state: SourceState) -> Any:
        codec = self._places if isinstance(state, Seen) else self._snapshots
        return codec.note(state)

    def back(self, note: Any) -> SourceState:
        codec = self._places if len(note) == 2 else self._snapshots
        return codec.back(note)
