"""The log's transactions as Debezium's messages, resumable after any event (DESIGN 6 and 9).

Transactions are published in the log's order. BEGIN is written before a transaction's first captured
row, END after its last; those without captured rows are left out, but before a pause an empty one says
how far the log has got. `progress` says at any moment how far everything handed out so far has come;
published in one Kafka transaction with it, nothing is lost or doubled whatever is killed. A restart
inside a transaction reads it again from its beginning and hands out what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture.envelope import (
    CapturedTable,
    Envelope,
    Message,
    RowOrigin,
    key_changed,
    place_of,
    transaction_id,
)
from streaming.capture.log_events import (
    Begin,
    Commit,
    Ddl,
    LogEvent,
    Passed,
    Refill,
    RowChange,
    Truncate,
)
from streaming.capture.log_events import Table as TableName
from streaming.capture.position import PublishedPosition


@dataclass
class _Open:
    """The transaction under way: its events so far, by collection, those published before included, and
    what is said of its statements once it is whole."""

    begin: Begin
    order: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    statements: list[Message] = field(default_factory=list)

    @property
    def id(self) -> str:
        return transaction_id(self.begin.at)


class LogPublisher:
    """Turns log events into messages.

    Args:
        tables: the captured ones, by database and name.
        progress: where to go on; the log is read from `progress.at`.
    """

    def __init__(
        self,
        envelope: Envelope,
        tables: Mapping[TableName, CapturedTable],
        progress: PublishedPosition,
    ) -> None:
        self._envelope, self._tables = envelope, tables
        self._progress = progress
        self._skip = progress.events
        self._open: _Open | None = None
        self._quiet: LogPlace | None = None
        self.transactions = 0
        self.events = 0
        self.newest_ms = 0

    @property
    def progress(self) -> PublishedPosition:
        """How far everything handed out has come."""
        if self._open is None:
            return self._progress
        return self._progress.moved(self._progress.at, max(self._open.order, self._skip))

    def handle(self, event: LogEvent) -> Iterator[Message]:
        """The messages of one event of the log."""
        match event:
            case Begin():
                self._open = _Open(event)
            case RowChange():
                yield from self._row(event)
            case Truncate():
                origin = self._origin(event.at, 0, event.server, event.seconds)
                yield from self._event(self._tables[event.table], "t", None, None, origin)
            case Refill():
                yield from self._refill(event)
            case Ddl():
                origin = self._origin(event.at, 0, event.server, event.seconds)
                said = self._envelope.ddl(event.database, event.text, origin)
                self._transaction().statements.append(said)
            case Commit():
                yield from self._commit(event)
            case Passed():
                self._progress = self._progress.moved(event.at)
                self._quiet = event.at

    def pause(self) -> Iterator[Message]:
        """Before the log is waited for: that it has got so far, where the last row does not tell."""
        if self._quiet is not None and self._open is None:
            quiet, self._quiet = self._quiet, None
            yield from self._envelope.passed(quiet, self.newest_ms or int(time.time() * 1000))

    def _row(self, change: RowChange) -> Iterator[Message]:
        table = self._tables[change.table]
        origin = self._origin(change.at, change.row, change.server, change.seconds)
        before, after = change.before, change.after
        if before is not None and after is not None and key_changed(table.key, before, after):
            yield from self._event(table, "d", before, None, origin, change.schema)
            yield from self._event(table, "c", None, after, origin, change.schema)
        else:
            yield from self._event(table, change.op, before, after, origin, change.schema)

    def _refill(self, event: Refill) -> Iterator[Message]:
        """Of a table that was broken off in the middle of its rows, which come in any order, all is told
        again, in the same transaction: a TRUNCATE takes back what is before it."""
        transaction, table = self._transaction(), self._tables[event.table]
        told = self._skip - transaction.order
        if told > 0 and (event.last or told <= event.rows):
            transaction.order += told
            transaction.counts[table.collection] = (
                transaction.counts.get(table.collection, 0) + told
            )
        origin = self._origin(event.at, 0, event.server, event.seconds)
        yield from self._event(table, "t", None, None, origin)

    def _event(
        self,
        table: CapturedTable,
        op: str,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
        origin: RowOrigin,
        schema: str = "",
    ) -> Iterator[Message]:
        transaction = self._transaction()
        transaction.order += 1
        count = transaction.counts.get(table.collection, 0) + 1
        transaction.counts[table.collection] = count
        if transaction.order <= self._skip:
            return
        self._skip = 0
        self.events += 1
        if transaction.order == 1:
            yield self._envelope.begin(transaction.id, origin.ms)
        block = place_of(transaction.id, transaction.order, count)
        yield self._envelope.change(table, op, before, after, origin, block, schema)
        if op == "d" and before is not None:
            yield self._envelope.tombstone(table, before)

    def _commit(self, commit: Commit) -> Iterator[Message]:
        transaction = self._transaction()
        self._open, self._skip, self._quiet = None, 0, None
        self._progress = self._progress.moved(commit.at, 0, transaction.begin.gtid)
        self.newest_ms = commit.seconds * 1000
        yield from transaction.statements
        if not transaction.order:
            self._quiet = commit.at
            return
        self.transactions += 1
        yield self._envelope.end(transaction.id, self.newest_ms, transaction.counts, commit.at)

    def _transaction(self) -> _Open:
        if self._open is None:
            raise RuntimeError("the log has a row outside of a transaction")
        return self._open

    def _origin(self, at: LogPlace, row: int, server: int, seconds: int) -> RowOrigin:
        gtid = self._open.begin.gtid if self._open is not None else ""
        return RowOrigin(at, row, server, seconds * 1000, gtid)
