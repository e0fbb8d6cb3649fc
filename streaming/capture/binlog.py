"""A server's log as transactions of row changes, read with `mysql-replication`.

The log's events become a few plain ones: `Begin`, `RowChange`, `Truncate`, `Ddl`, `Commit`, `Passed`.
MariaDB begins every transaction with its GTID, MySQL with a GTID and the word BEGIN; both end in a commit
event or in the word COMMIT, but for a DDL statement, which is a transaction by itself. What was rolled
back and stands in the log all the same is taken out (`undoing`).

The reader never reconnects by itself: what it had read of a transaction would be read twice. A lost
connection is an error, and the capture goes on from what it has published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pymysql
from pymysqlreplication.event import (
    GtidEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)

from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.ask.mariadb.mysql_url import MysqlUrl, asking, connect, is_lost, refused, said
from streaming.capture.cells import Decimals, Encode, log_encoders, log_kind, schema_text
from streaming.capture.charsets import Charsets
from streaming.capture.initial_scan import TableRows
from streaming.capture.log_events import (
    Begin,
    Commit,
    Ddl,
    Image,
    LogEvent,
    Passed,
    Refill,
    Rollback,
    RollbackTo,
    RowChange,
    Savepoint,
    Table,
    Truncate,
)
from streaming.capture.log_stream import LoggedRows, LoggedStatement, LogHeartbeat, LogStream
from streaming.capture.log_values import Row
from streaming.capture.moved_tables import TableAtPlace, dropped_columns, moved
from streaming.capture.rights import DENIED, lacking
from streaming.capture.rollbacks import Mark, kept_rows
from streaming.capture.row_versions import VersionedRows, versions_of
from streaming.capture.statements import (
    Statement,
    Words,
    makes_table,
    names_one_of,
    savepoint,
    statement_of,
    truncated,
    words_of,
)
from streaming.capture.table_map import LoggedColumn, TableMap, missing_names
from streaming.capture.written_tables import (
    WriterCatalog,
    folded,
    reached,
    read_catalog,
    sees_triggers,
)
from streaming.errors import FrescoError

log = logging.getLogger("fresco")

_STANDALONE, _PREPARED = 1, 64
"""Flags of MariaDB's GTID: a statement that is a transaction by itself; one that XA PREPARE ends."""
_LOST = (2006, 2013)
_PURGED = 1236
_UNFIT = ("FOREIGN", "REFERENCES", "ENGINE", "VERSIONING")
"""Words of statements after which a table may no longer be in the log with every change."""


@dataclass(frozen=True)
class _Known:
    """How the rows of a table are read as long as the log describes it by the same `columns`."""

    columns: tuple[LoggedColumn, ...]
    encoders: list[tuple[str, Encode]]
    schema: str
    versioned: VersionedRows | None


class LogReader:
    """Reads the log from the beginning of a transaction on.

    Args:
        source: its name, for messages.
        tables: the captured ones.
        replica: an id of a replica that no other replica of the server has.
        folds: statements may write a table's name in another case than the catalog.
        lasting: captured tables whose engine knows no transactions.
        recheck: looks at the captured tables again after a statement that may have made them unfit.
    """

    def __init__(
        self,
        url: MysqlUrl,
        source: str,
        tables: frozenset[Table],
        start: LogPlace,
        decimals: Decimals,
        replica: int,
        folds: bool = False,
        lasting: frozenset[Table] = frozenset(),
        recheck: Callable[[], object] = lambda: None,
    ) -> None:
        self._url, self._source, self._tables, self._decimals = url, source, tables, decimals
        self._catalog: WriterCatalog | None = None
        self._blind = False
        self._lasting, self._replica = lasting, replica
        self._file = start.file
        self._begun = self._explicit = self._xa = False
        self._recheck = recheck
        self._nested = False
        self._versions = versions_of(source, lambda: asking(url, source))
        self._charsets = Charsets(self._asked)
        self._written_by: dict[Table, _Known] = {}
        self._written = {folded(one): one for one in tables} if folds else {}
        self._stream = LogStream(url, source, tables, start, replica)

    def close(self) -> None:
        """Leave the server; another thread's `events` ends with an error."""
        self._stream.close()

    def events(self) -> Iterator[LogEvent | None]:
        """The log's events, without end; None at a heartbeat, when there is nothing to read.

        Raises:
            FrescoError: SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, CAPTURE_REFUSED, CAPTURE_LOG_PURGED,
                CAPTURE_STATEMENT, CAPTURE_XA, CAPTURE_ROW_IMAGE, CAPTURE_TEXT, CAPTURE_TYPE,
                CAPTURE_ROWS, CAPTURE_EVENT, CAPTURE_INCIDENT, CAPTURE_VERSIONED; what `recheck` raises.
        """
        yield from kept_rows(self._read(), self._lasting, self._ahead)

    def _read(self) -> Iterator[LogEvent | Mark | None]:
        """All that the log says, what is rolled back included."""
        while True:
            try:
                event = self._stream.fetch()
            except (pymysql.MySQLError, OSError) as error:
                raise self._judged(error) from None
            if event is None:
                raise self._judged(pymysql.OperationalError(_LOST[1], "the server ended the log"))
            yield from self.told(event)

    def _ahead(self, begin: LogPlace) -> Iterator[LogEvent | Mark | None]:
        """The log from a place on, its rows left out, by another connection."""
        replica = self._replica ^ 0x80000000
        other = LogReader(self._url, self._source, frozenset(), begin, self._decimals, replica)
        try:
            yield from other._read()
        finally:
            other.close()

    def told(self, event: Any) -> Iterator[LogEvent | Mark | None]:
        """What an event of the stream means; without a GTID a transaction begins with its first word."""
        match event:
            case LogHeartbeat():
                yield None
                return
            case LoggedStatement():
                begin, end = LogPlace(self._file, event.begin), LogPlace(self._file, event.end)
                yield from self._query(event, begin, end)
                return
            case LoggedRows():
                yield from self._rows(event, LogPlace(self._file, event.begin))
                return
        end = LogPlace(self._file, event.packet.log_pos)
        begin = LogPlace(self._file, max(end.offset - event.packet.event_size, 0))
        seconds = event.timestamp
        match event:
            case RotateEvent():
                if event.next_binlog != self._file:
                    yield Passed(LogPlace(event.next_binlog, event.position))
                self._file = event.next_binlog
            case MariadbGtidListEvent() | MariadbBinLogCheckPointEvent():
                if end.offset:
                    yield Passed(end)
            case MariadbGtidEvent():
                self._begun, self._explicit = True, not event.flags & _STANDALONE
                self._xa = bool(event.flags & _PREPARED)
                yield Begin(begin, event.gtid, seconds)
            case GtidEvent():
                self._begun, self._explicit = True, False
                yield Begin(begin, event.gtid, seconds)
            case XidEvent() | XAPrepareEvent():
                yield self._commit(end, seconds)

    # Statements -----------------------------------------------------------------------------------

    def _query(
        self, event: LoggedStatement, begin: LogPlace, end: LogPlace
    ) -> Iterator[LogEvent | Mark]:
        seconds, words = event.timestamp, words_of(event.query, event.sql_mode)
        if words is None:
            raise self._refuses("CAPTURE_STATEMENT", "a statement that cannot be read", begin)
        match statement_of(words):
            case Statement.BEGIN:
                yield from self._beginning(begin, seconds)
                self._explicit = True
            case Statement.COMMIT:
                yield self._commit(end, seconds)
            case Statement.ROLLBACK:
                self._commit(end, seconds)
                yield Rollback(end, seconds)
            case Statement.SAVEPOINT:
                yield Savepoint(savepoint(words), begin)
            case Statement.ROLLBACK_TO:
                yield RollbackTo(savepoint(words), begin)
            case Statement.XA:
                yield from self._xa_word(words, begin, end, seconds)
            case Statement.CHANGE:
                self._check_change(event, words, begin)
                yield from self._beginning(begin, seconds)
                if not self._explicit:
                    yield self._commit(end, seconds)
            case Statement.OTHER:
                if any(word.key == "SELECT" for word in words) and makes_table(words):
                    self._check_change(event, words, begin)
                yield from self._other(event, words, begin, end)

    def _check_change(self, event: LoggedStatement, words: Words, begin: LogPlace) -> None:
        """A change logged as a statement ends the capture where it may change a captured table."""
        table = reached(words, event.schema, self._tables, self._read_catalog)
        if table is not None:
            what = f"a change of {'.'.join(table)} logged as a statement"
            raise self._refuses("CAPTURE_STATEMENT", what, begin)

    def _read_catalog(self) -> WriterCatalog:
        """Views, triggers and routines, read again after a statement that may have altered them."""
        if self._catalog is None:
            with asking(self._url, self._source) as cursor:
                self._catalog = read_catalog(cursor)
                if not self._blind and not sees_triggers(cursor):
                    self._blind = True
                    log.warning(
                        "source %s: sessions log statements, and the capture's user may not see all"
                        " triggers that these run: GRANT TRIGGER, EXECUTE ON *.* to it, or `fresco"
                        " verify --source` shows what they changed",
                        self._source,
                    )
        return self._catalog

    def _other(
        self, event: LoggedStatement, words: Words, begin: LogPlace, end: LogPlace
    ) -> Iterator[LogEvent]:
        seconds, server, database = event.timestamp, event.server, event.schema
        self._catalog = None
        self._written_by.clear()
        if names_one_of(words, self._tables, database):
            self._versions.altered(words, database)
            if any(word.key in _UNFIT for word in words):
                self._recheck()
        yield from self._beginning(begin, seconds)
        yield Ddl(database, event.query, begin, server, seconds)
        yield from self._moved(event, words, begin, end)
        emptied = truncated(words, database)
        if emptied is not None:
            emptied = self._own(emptied)
        if emptied in self._tables:
            yield Truncate(emptied, begin, server, seconds)
        if not self._explicit:
            yield self._commit(end, seconds)

    def _moved(
        self, event: LoggedStatement, words: Words, begin: LogPlace, end: LogPlace
    ) -> Iterator[LogEvent]:
        """The rows of captured tables that the statement has moved past the log."""
        named = moved(words, event.schema, sorted(self._tables), self._own)
        where = begin, event.server, event.timestamp
        for table in named.emptied:
            yield Truncate(table, *where)
        less = dropped_columns(words, event.schema, sorted(self._tables), self._own)
        if less is not None:
            yield from self._without(*less, begin, event.server, event.timestamp)
        for table in named.refilled:
            log.warning(
                "source %s: a statement moves rows without a word in the log, so %s is told anew: %s",
                self._source,
                ".".join(table),
                event.query[:200],
            )
            if self._nested:
                yield Refill(table, 0, True, *where)
                continue
            with self._connected() as connection:
                held = TableAtPlace(
                    connection, table, end, self._decimals, partial(self._changes, table)
                )
                yield Refill(table, held.count, table == named.refilled[-1], *where)
                for row, image in enumerate(held.images(self._source)):
                    yield RowChange(table, "c", None, image, begin, row, *where[1:], held.schema)

    def _without(
        self, table: Table, gone: frozenset[str], begin: LogPlace, server: int, seconds: int
    ) -> Iterator[LogEvent]:
        """A row as it is, without the columns that the statement dropped, so that an event tells it.

        Where a column of the name is added before any row changes, nobody else would.
        """
        if self._nested:
            return
        with self._connected() as connection:
            rows = TableRows(connection, table, self._decimals, without=gone)
            for image in rows.images(1) if rows.columns else ():
                yield RowChange(table, "u", image, image, begin, 0, server, seconds, rows.schema)

    def _own(self, table: Table) -> Table:
        """A table's name as the catalog spells it."""
        return self._written.get(folded(table), table)

    @contextmanager
    def _connected(self) -> Iterator[pymysql.connections.Connection]:
        try:
            with connect(self._url, self._source, conv=PLAIN) as connection:
                yield connection
        except pymysql.MySQLError as error:
            if is_lost(error):
                raise refused(error, self._url, self._source) from None
            raise lacking(error, self._url, self._source) from None

    def _changes(self, table: Table, since: LogPlace, until: LogPlace) -> Iterator[LogEvent]:
        """The log of a table, by another connection."""
        replica = self._replica ^ 0xC0000000
        tables, written = frozenset({table}), bool(self._written)
        other = LogReader(
            self._url, self._source, tables, since, self._decimals, replica, written, self._lasting
        )
        other._nested = True
        try:
            for event in other.events():
                if event is not None:
                    yield event
                if isinstance(event, Commit | Passed) and event.at >= until:
                    return
        finally:
            other.close()

    def _xa_word(
        self, words: Words, at: LogPlace, end: LogPlace, seconds: int
    ) -> Iterator[LogEvent]:
        """XA START to XA PREPARE is a transaction, which may hold no captured row; XA COMMIT and XA
        ROLLBACK of what was prepared are others, without rows."""
        yield from self._beginning(at, seconds)
        match [word.key for word in words[1:2]]:
            case ["START"] | ["BEGIN"]:
                self._explicit = self._xa = True
            case ["COMMIT"] | ["ROLLBACK"]:
                yield self._commit(end, seconds)

    def _beginning(self, at: LogPlace, seconds: int) -> Iterator[LogEvent]:
        """A MySQL without GTIDs says nothing before BEGIN or the statement itself."""
        if not self._begun:
            self._begun = True
            yield Begin(at, "", seconds)

    def _commit(self, end: LogPlace, seconds: int) -> Commit:
        self._begun = self._explicit = self._xa = False
        return Commit(end, seconds)

    # Rows -----------------------------------------------------------------------------------------

    def _rows(self, event: LoggedRows, begin: LogPlace) -> Iterator[LogEvent]:
        if self._xa:
            raise self._refuses("CAPTURE_XA", "a prepared (XA) transaction", begin)
        if event.partial:
            raise self._incomplete("hold whole values", "binlog_row_value_options", begin, "")
        if event.rows is None:
            raise self._incomplete("hold whole rows", "binlog_row_image", begin)
        if missing_names(event.described.columns):
            raise self._incomplete("name its columns", "binlog_row_metadata", begin)
        table = event.described.table
        known = self._known_of(event.described)
        for number, (first, second) in enumerate(event.rows):
            image = _image(known.encoders, first)
            before, after = (None, image) if event.op == "c" else (image, None)
            if second is not None:
                after = _image(known.encoders, second)
            change = event.op, before, after
            if known.versioned is not None:
                present = known.versioned.present(*change)
                if present is None:
                    continue
                change = present
            yield RowChange(
                table, *change, begin, number, event.server, event.timestamp, known.schema
            )

    def _known_of(self, described: TableMap) -> _Known:
        """By the log's own description of the table, which changes when the table does."""
        columns = described.columns
        known = self._written_by.get(described.table)
        if known is None or known.columns != columns:
            versioned = self._versions.of(described.table, columns)
            hidden = versioned.hidden if versioned is not None else ()
            kinds = [(one.name, log_kind(one)) for one in columns if one.name not in hidden]
            known = self._written_by[described.table] = _Known(
                columns,
                log_encoders(columns, self._decimals, self._charsets),
                schema_text(kinds, self._decimals),
                versioned,
            )
        return known

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        with asking(self._url, self._source) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    # Errors ---------------------------------------------------------------------------------------

    def _incomplete(
        self, lacks: str, setting: str, at: LogPlace, value: str = "FULL"
    ) -> FrescoError:
        return FrescoError(
            "CAPTURE_ROW_IMAGE",
            f"the log of source {self._source} does not {lacks}",
            where=f"source {self._source}, log {at}",
            todo=f"SET GLOBAL {setting} = '{value}', let no session set another value, and take a new"
            " snapshot under another prefix: what was logged before cannot be read",
        )

    def _judged(self, error: Exception) -> FrescoError:
        """What an error of the connection means."""
        code = error.args[0] if error.args else 0
        if code == _PURGED:
            return FrescoError(
                "CAPTURE_LOG_PURGED",
                f"source {self._source} does not have its log from {self._file} on any more:"
                f" {said(error, self._url)}",
                where=f"source {self._source}",
                todo="restore the log's files, or capture under another prefix in a new pipeline,"
                " with a new snapshot; keep the log longer (binlog_expire_logs_seconds)",
            )
        if code in DENIED:
            return lacking(error, self._url, self._source)
        return refused(error, self._url, self._source)

    def _refuses(self, code: str, what: str, at: LogPlace) -> FrescoError:
        todo = {
            "CAPTURE_XA": "commit without XA, or leave the tables out of the capture",
            "CAPTURE_STATEMENT": "let no session set binlog_format to another value than ROW, and"
            " take a new snapshot under another prefix",
        }
        return FrescoError(
            code,
            f"the log of source {self._source} holds {what}, which cannot be published as rows",
            where=f"source {self._source}, log {at}",
            todo=todo[code],
        )


def _image(encoders: list[tuple[str, Encode]], row: Row) -> Image:
    """A row's values as JSON."""
    return {
        name: None if value is None else encode(value)
        for (name, encode), value in zip(encoders, row, strict=True)
    }
