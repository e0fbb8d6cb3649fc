"""MariaDB and MySQL as a kind of source (`ask.source_kind`)."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.ask.mariadb.mysql_catalog import read_schemas
from streaming.ask.mariadb.mysql_check import check_rights, check_server, require
from streaming.ask.mariadb.mysql_source import MysqlSource
from streaming.ask.mariadb.mysql_types import kind_of
from streaming.ask.mariadb.mysql_url import SCHEMES
from streaming.ask.source_kind import Captor, SourceKind
from streaming.ask.state_codec import SeenCodec
from streaming.captured.checked import Checked
from streaming.captured.log_format import LogFormat


def log_place(file: str, offset: str) -> str:
    """SQL: a file of a log, by the number at its end, and an offset in it, as one number."""
    return (
        f"(TRY_CAST(regexp_extract({file}, '[.]([0-9]+)$', 1) AS BIGINT) * 4294967296"
        f" + TRY_CAST({offset} AS BIGINT))"
    )


_BEGAN = log_place("regexp_extract(e.id, 'file=(.*),pos=', 1)", "regexp_extract(e.id, '[0-9]+$')")
MYSQL_LOG = LogFormat(
    place={"file": "VARCHAR", "pos": "VARCHAR"},
    position=log_place("e.source.file", "e.source.pos"),
    transaction="{id}",
    end={"end": {"file": "VARCHAR", "pos": "VARCHAR"}},
    # A transaction's last byte, where END says where it ends.
    end_position=f"""coalesce({log_place('e."end".file', 'e."end".pos')} - 1, {_BEGAN})""",
    whole_rows="SET GLOBAL binlog_row_image = 'FULL'",
    marks_unchanged=False,
)
"""An id is `file=<name>,pos=<offset>`."""


def _captured_type(text: str) -> str:
    return kind_of(text).captured


def _require_whole_rows(captor: Captor) -> None:
    require(captor.source, list(_log_checks(captor)))


def _log_checks(captor: Captor) -> Iterable[Checked]:
    return check_server(captor.connection, captor.source, captor.tables, captor.ours)


MARIADB = SourceKind(
    databases=("mariadb", "mysql"),
    schemes=SCHEMES,
    connector="mysql",
    log=MYSQL_LOG,
    whole_rows="SET GLOBAL binlog_row_image = 'FULL'",
    read_schemas=read_schemas,
    captured_type=_captured_type,
    require_whole_rows=_require_whole_rows,
    log_checks=_log_checks,
    log_name="log",
    log_rights=check_rights,
    old_calendar=False,
    asked=MysqlSource,
    state=SeenCodec(),
)
