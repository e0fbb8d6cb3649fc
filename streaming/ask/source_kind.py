"""A kind of source: everything that depends on which database it is stands in one object.

Adding another database means a folder beside `postgres/` and `mariadb/` with such an object, and an
entry in `source_kinds`. What Debezium's connectors have in common is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from streaming.ask.asked import AskedSource
from streaming.ask.state_codec import StateCodec
from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.checked import Checked
from streaming.captured.log_format import LogFormat


@dataclass(frozen=True)
class Captor:
    """A captured database, as far as it can be asked whether its log holds everything.

    Attributes:
        connection: the URL of a reader of its catalog.
        source: its name, for messages.
        tables: the captured ones as the database names them.
        publication: what the connector reads, where its settings are known.
        ours: whether `fresco capture` captures it; None where nobody knows yet.
    """

    connection: str
    source: str
    tables: Sequence[str]
    publication: str | None = None
    ours: bool | None = None


class ReadSchemas(Protocol):
    """The captured relations of one database, from its catalog: (connection, source, topic prefix,
    name in views -> table, the connector's `decimal.handling.mode`)."""

    def __call__(
        self,
        connection: str,
        source: str,
        prefix: str,
        tables: Mapping[str, str],
        decimals: Literal["precise", "string"],
        /,
    ) -> list[CapturedRelation]: ...


@dataclass(frozen=True)
class SourceKind:
    """A kind of source.

    Attributes:
        databases: what `sources.S.database` says of it.
        schemes: of its connections' URLs; () is whatever no other kind has.
        connector: Debezium's connector of it, by which its settings are judged.
        log: how its connector's events are decoded.
        whole_rows: what has to be run so that events carry whole rows, where no connection can tell.
        read_schemas: types and tables from the catalog.
        captured_type: the database type by which values of a configured column are decoded.
        require_whole_rows: raises where the log does not hold whole rows.
        log_checks: what is found of a log or publication; raises FrescoError where it cannot be asked.
        log_name: what `log_checks` looks at.
        log_rights: whether `fresco capture` may read the log; None where it captures no such source.
        old_calendar: whether its connector's snapshots may tell old days as other days.
        asked: makes what answers view managers, as `source_kinds.asked_source` calls it.
        state: the codec of the states that answers are computed at.
    """

    databases: tuple[str, ...]
    schemes: tuple[str, ...]
    connector: Literal["postgres", "mysql"]
    log: LogFormat
    whole_rows: str
    read_schemas: ReadSchemas
    captured_type: Callable[[str], str]
    require_whole_rows: Callable[[Captor], None]
    log_checks: Callable[[Captor], Iterable[Checked]]
    log_name: str
    log_rights: Callable[[str, str], Checked] | None
    old_calendar: bool
    asked: Callable[..., AskedSource]
    state: StateCodec
