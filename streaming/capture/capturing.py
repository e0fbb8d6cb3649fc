"""`fresco capture`: one source's snapshot, then its log, published as Debezium publishes (DESIGN 6).

A thread reads the log; this one turns it into messages and commits them together with how far they
reach, whenever the log has nothing more to read, or enough has come. When the server or Kafka is away the
capture begins again from what is committed, until it is told to stop.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import pymysql

from streaming.ask.mariadb.mysql_catalog import (
    folds_case,
    read_schemas,
    split_table,
    without_transactions,
)
from streaming.ask.mariadb.mysql_check import check_server, require
from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_state import current_place
from streaming.ask.mariadb.mysql_url import (
    MysqlUrl,
    connect,
    is_locked,
    is_lost,
    locked,
    parse_url,
    refused,
    said,
)
from streaming.ask.postgres.pg_catalog import topic_name
from streaming.ask.source_kinds import kind_of_source
from streaming.capture.binlog import LogReader
from streaming.capture.capture_status import Status, streaming_status
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.initial_scan import InitialScan, ScanProgress, begin, gtid_at
from streaming.capture.kafka_writer import Writer
from streaming.capture.log_events import LogEvent
from streaming.capture.log_inbox import LogInbox
from streaming.capture.position import PublishedPosition
from streaming.capture.publishing import LogPublisher
from streaming.capture.rights import lacking
from streaming.captured.checked import Checked, warn
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError

log = logging.getLogger("fresco")

EVENTS = 5000
"""Messages of a Kafka transaction, about."""
_POLL_SECONDS = 0.1
WAITS = (0.5, 1.0, 2.0, 5.0)
PASSING = ("SOURCE_UNREACHABLE", "SOURCE_TABLE_LOCKED", "KAFKA_UNREACHABLE")


class Capture:
    """The capture of one source.

    Args:
        tell: is given the status now and then.

    Raises:
        FrescoError: CAPTURE_SOURCE when the source is not a MariaDB or MySQL with a connection.
    """

    def __init__(self, config: Config, source: str, tell: Callable[[Status], None]) -> None:
        self._config, self._source, self._tell = config, source, tell
        self._connection = _connection(config, source)
        self._url: MysqlUrl = parse_url(self._connection, source)
        self._envelope = Envelope(config.prefix(source), config.notifications(source))
        self._decimals = config.sources[source].decimals
        self._stop = threading.Event()
        self._told = 0.0
        # An id of ours among the server's replicas, the same at every start.
        name = f"fresco-{config.prefix(source)}".encode()
        self._replica = (zlib.crc32(name) & 0x3FFFFFFF) | 0x40000000

    def request_stop(self) -> None:
        """End soon; from any thread or a signal."""
        self._stop.set()

    def run(self) -> None:
        """Capture until told to stop.

        Raises:
            FrescoError: what a person must look at; what may pass is waited for once the capture
                has run.
        """
        attempts = 0
        ran = False
        while not self._stop.is_set():
            try:
                self._run()
                return
            except FrescoError as error:
                ran = ran or self._told > 0
                if error.code not in PASSING or not ran:
                    raise
                self._tell(Status("waiting", "", error=str(error)))
                self._stop.wait(WAITS[min(attempts, len(WAITS) - 1)])
                attempts += 1

    def _run(self) -> None:
        doubtful = self._check()
        if not self._told:
            warn(doubtful)
        tables = self._tables()
        topics = [table.topic for table in tables.values()]
        topics += [self._envelope.transaction_topic, self._envelope.prefix]
        if self._config.sources[self._source].snapshot:
            topics.append(self._envelope.notification_topic)
        writer = Writer(self._config, self._envelope.prefix, topics)
        try:
            progress = writer.progress()
            if progress is None or progress.snapshot == "running":
                progress = self._begun(writer, tables, progress)
            else:
                self._check_same_log(progress)
            if progress is not None:
                self._stream(writer, tables, progress)
        except FrescoError as error:
            if error.code == "SOURCE_UNREACHABLE":
                # The server cuts a replica off for another of its id, too: a second capture of ours.
                # Who has been fenced ends; begun anew, it would take over again, and so would the other.
                writer.confirm()
            raise
        finally:
            writer.close()

    def _check(self) -> list[Checked]:
        """Refuse a server or a table whose changes are not all in the log; what is only doubtful.

        Raises:
            FrescoError: the code of one of `mysqlcheck.RULES`.
        """
        tables = self._config.sources[self._source].tables.values()
        found = check_server(self._connection, self._source, list(tables), ours=True)
        require(self._source, found)
        return [one for one in found if one.level == "warning"]

    def _tables(self) -> dict[tuple[str, str], CapturedTable]:
        prefix, source = self._envelope.prefix, self._config.sources[self._source]
        found = {}
        relations = read_schemas(self._connection, self._source, prefix, source.tables)
        for one, table in zip(relations, source.tables.values(), strict=True):
            place = split_table(table, self._url, self._source)
            key = tuple(one.relation.schema[at].name for at in one.relation.key)
            found[place] = CapturedTable(*place, topic_name(prefix, ".".join(place)), key)
        return found

    def _connect(self) -> pymysql.connections.Connection:
        return connect(self._url, self._source, conv=PLAIN)

    # Beginning ------------------------------------------------------------------------------------

    def _begun(
        self,
        writer: Writer,
        tables: dict[tuple[str, str], CapturedTable],
        before: PublishedPosition | None,
    ) -> PublishedPosition | None:
        """The progress to go on from: after a snapshot, or from now on. None when told to stop."""
        try:
            with self._connect() as connection:
                server = _server_id(connection)
                if not self._config.sources[self._source].snapshot:
                    at = current_place(connection)
                    self._check_nothing_prepared()
                    progress = PublishedPosition(at, 0, gtid_at(connection, at) or "", server)
                    writer.send(self._envelope.passed(at, int(time.time() * 1000)))
                    writer.commit(progress)
                    return progress
                self._check_nothing_prepared()
                at = begin(connection)
                self._check_nothing_prepared()
                attempt = before.attempts + 1 if before is not None and before.at == at else 0
                gtid = gtid_at(connection, at) or ""
                progress = PublishedPosition(at, 0, gtid, server, "running", attempt)
                snapshot = InitialScan(connection, at, server, attempt, self._decimals)
                return self._snapshot(writer, list(tables.values()), snapshot, progress)
        except pymysql.MySQLError as error:
            raise self._failed(error) from None

    def _check_nothing_prepared(self) -> None:
        """Refuse to begin behind a prepared transaction: its rows are neither in the snapshot nor in
        the log that comes, which will hold its XA COMMIT only."""
        with self._connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute("XA RECOVER")
            except pymysql.OperationalError as error:
                log.warning(
                    "source %s: whether transactions are prepared cannot be seen: %s",
                    self._source,
                    said(error, self._url),
                )
                return
            prepared = len(cursor.fetchall())
        if prepared:
            raise FrescoError(
                "CAPTURE_XA",
                f"source {self._source} has {prepared} prepared (XA) transactions, which a capture that"
                " begins now would not see",
                where=f"source {self._source}",
                todo="end them (XA RECOVER; XA COMMIT or XA ROLLBACK) and begin the capture again",
            )

    def _snapshot(
        self,
        writer: Writer,
        tables: list[CapturedTable],
        snapshot: InitialScan,
        progress: PublishedPosition,
    ) -> PublishedPosition | None:
        envelope, id_ = self._envelope, str(uuid.uuid4())
        total = 0

        def note(type_: str, **data: str) -> None:
            writer.send([envelope.notification(id_, type_, int(time.time() * 1000), **data)])

        note("STARTED")
        writer.commit(progress)
        every = ", ".join(table.collection for table in tables)
        for table in tables:
            note(
                "IN_PROGRESS",
                data_collections=every,
                current_collection_in_progress=table.collection,
            )
            scan, waiting = ScanProgress(table), 0
            for message in snapshot.rows(envelope, table, scan):
                waiting += writer.send([message])
                if waiting >= EVENTS:
                    writer.commit(progress)
                    waiting = 0
                    self._say(Status("snapshot", str(progress.at), rows=total + scan.rows))
                    if self._stop.is_set():
                        return None
            total += scan.rows
            note(
                "TABLE_SCAN_COMPLETED",
                scanned_collection=table.collection,
                total_rows_scanned=str(scan.rows),
                status="SUCCEEDED",
            )
        note("COMPLETED")
        writer.send(envelope.passed(progress.at, int(time.time() * 1000)))
        progress = replace(progress, snapshot="done", attempts=0)
        writer.commit(progress)
        self._say(Status("snapshot", str(progress.at), rows=total), now=True)
        return progress

    def _check_same_log(self, progress: PublishedPosition) -> None:
        """Refuse to go on in another server's log."""
        with self._connect() as connection:
            try:
                gtids = gtid_at(connection, progress.at)
                server = _server_id(connection)
            except pymysql.MySQLError as error:
                raise self._failed(error) from None
        # A server that cannot say (a MySQL, or a file that is gone) is at least another by its id.
        unknown = gtids is None or not progress.gtid
        same = unknown or set(progress.gtid.split(",")) <= set((gtids or "").split(","))
        if server != progress.server or not same:
            raise FrescoError(
                "CAPTURE_LOG_CHANGED",
                f"source {self._source} has another log: at {progress.at} stood"
                f" {progress.gtid or 'no known transaction'} of server {progress.server}, now"
                f" {gtids or 'no known transaction'} of server {server}",
                where=f"source {self._source}",
                todo="connect to the server captured so far, or capture under another prefix in a"
                " new pipeline, with a new snapshot",
            )

    # Streaming ------------------------------------------------------------------------------------

    def _stream(
        self,
        writer: Writer,
        tables: dict[tuple[str, str], CapturedTable],
        progress: PublishedPosition,
    ) -> None:
        publisher = LogPublisher(self._envelope, tables, progress)
        reader = LogReader(
            self._url,
            self._source,
            frozenset(tables),
            progress.at,
            self._decimals,
            self._replica,
            folds_case(self._connection, self._source),
            without_transactions(self._connection, self._source),
            self._check,
        )
        inbox = LogInbox(reader)
        self._say(streaming_status(publisher), now=True)
        try:
            while not self._stop.is_set():
                self._batch(writer, publisher, inbox.take(_POLL_SECONDS))
        finally:
            inbox.close()

    def _batch(self, writer: Writer, publisher: LogPublisher, events: Iterable[LogEvent]) -> None:
        """What the log has now, in as many Kafka transactions as it needs."""
        before, sent = publisher.progress, 0
        for event in events:
            sent += writer.send(publisher.handle(event))
            if sent >= EVENTS:
                writer.commit(publisher.progress)
                before, sent = publisher.progress, 0
                self._say(streaming_status(publisher))
        sent += writer.send(publisher.pause())
        if sent or publisher.progress != before:
            writer.commit(publisher.progress)
        self._say(streaming_status(publisher))

    def _say(self, status: Status, now: bool = False) -> None:
        if now or time.monotonic() - self._told > 1:
            self._told = time.monotonic()
            self._tell(status)

    def _failed(self, error: pymysql.MySQLError) -> FrescoError:
        """What ended a snapshot: the server went away, which is waited for, or a right is missing."""
        if is_locked(error):
            return locked(self._source)
        if is_lost(error):
            return refused(error, self._url, self._source)
        return lacking(error, self._url, self._source)


def _server_id(connection: pymysql.connections.Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.server_id")
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def _connection(config: Config, source: str) -> str:
    """The URL of a source that can be captured."""
    if source not in config.sources:
        raise FrescoError(
            "CAPTURE_SOURCE",
            f"there is no source {source}",
            where="sources",
            todo=f"name one of {', '.join(config.sources)}",
        )
    connection = config.sources[source].secret()
    kind = kind_of_source(source, config.sources[source])
    if kind.log_rights is None or connection is None:
        raise FrescoError(
            "CAPTURE_SOURCE",
            f"source {source} is not a MariaDB or MySQL with a connection",
            where=f"sources.{source}",
            todo="set database: mariadb and a connection (mariadb://user:password@host:port/database);"
            " PostgreSQL is captured by Debezium",
        )
    return connection
