"""PostgreSQL as a kind of source (`ask.source_kind`)."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.ask.postgres.pg_catalog import check_replica_identity, read_schemas
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.ask.postgres.pg_state import PgStateCodec
from streaming.ask.postgres.published import check_published
from streaming.ask.source_kind import Captor, SourceKind
from streaming.captured.checked import Checked
from streaming.captured.log_format import POSTGRES_LOG


def _require_whole_rows(captor: Captor) -> None:
    check_replica_identity(captor.connection, captor.source, captor.tables)


def _log_checks(captor: Captor) -> Iterable[Checked]:
    return check_published(captor.connection, captor.source, captor.tables, captor.publication)


POSTGRES = SourceKind(
    databases=("postgres",),
    schemes=(),
    connector="postgres",
    log=POSTGRES_LOG,
    whole_rows="ALTER TABLE ... REPLICA IDENTITY FULL on each table",
    read_schemas=read_schemas,
    captured_type=str,
    require_whole_rows=_require_whole_rows,
    log_checks=_log_checks,
    log_name="publication",
    log_rights=None,
    old_calendar=True,
    asked=PostgresSource,
    state=PgStateCodec(),
)
