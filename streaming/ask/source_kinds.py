"""The kinds of sources: PostgreSQL, and MariaDB with MySQL. Another one is an entry here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from streaming.algebra.source_queries import Seen, SourceState
from streaming.ask.asked import TIMEOUT, AskedSource
from streaming.ask.mariadb.mariadb_kind import MARIADB
from streaming.ask.postgres.postgres_kind import POSTGRES
from streaming.ask.source_kind import SourceKind
from streaming.captured.captured_schema import CapturedRelation
from streaming.configuration.source_config import SourceConfig
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.errors import FrescoError

KINDS: list[SourceKind] = [POSTGRES, MARIADB]


def kind_of_source(name: str, source: SourceConfig) -> SourceKind:
    """The kind that a configuration says of the source of that name.

    Raises:
        FrescoError: CONFIG_VALUE.
    """
    database = source.database
    known = {name: kind for kind in KINDS for name in kind.databases}
    if database not in known:
        near = difflib.get_close_matches(database, known, n=1)
        raise FrescoError(
            "CONFIG_VALUE",
            f"there is no kind of database '{database}'",
            where=f"sources.{name}.database",
            todo=f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}",
        )
    return known[database]


def kind_of_connection(connection: str) -> SourceKind:
    """The kind that a connection's URL is of; what no other kind has is PostgreSQL's."""
    scheme = connection.partition("://")[0].lower()
    return next((kind for kind in KINDS if scheme in kind.schemes), POSTGRES)


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
    made = kind_of_connection(connection).asked
    return made(name, connection, relations, operators, timeout=timeout, remembered=remembered)


class StatesCodec:
    """States of all kinds of sources inside machines' snapshots; see `ask.state_codec.StateCodec`.

    A PostgreSQL snapshot has four parts, a place in a log two.
    """

    def __init__(self) -> None:
        self._snapshots, self._places = POSTGRES.state, MARIADB.state

    def note(self, state: SourceState) -> Any:
        codec = self._places if isinstance(state, Seen) else self._snapshots
        return codec.note(state)

    def back(self, note: Any) -> SourceState:
        codec = self._places if len(note) == 2 else self._snapshots
        return codec.back(note)
