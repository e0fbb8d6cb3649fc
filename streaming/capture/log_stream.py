"""A server's log event by event, each of a type that is known (FACTS, MariaDB; MySQL's and MariaDB's
replication protocol).

`mysql-replication` decodes what frames transactions. Around it stands what it does not do: every type of
event is decoded, known to change no row, or ends the capture by its name; compressed events are unpacked;
whether events carry a checksum is taken from the log's file, not from the server's setting of the
moment; a statement is read with the sql_mode and the character set of the session that wrote it; and
rows are read by the log's description of their table, to the last digit (`tablemap`, `logvalues`).

The stream never reconnects: what it had read of a transaction would be read twice.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.charset import charset_by_id
from pymysql.constants.COMMAND import COM_BINLOG_DUMP
from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants import BINLOG
from pymysqlreplication.event import (
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.packet import BinLogPacketWrapper

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.ask.mariadb.mysql_url import MysqlUrl, arguments
from streaming.capture.log_events import Table
from streaming.capture.log_values import Row, rows_of
from streaming.capture.table_map import TableMap, packed, read_table_map
from streaming.errors import FrescoError

HEARTBEAT_SECONDS = 5
"""The server proves that it lives; without a word for twice as long the connection counts as lost."""
_HEADER = struct.Struct("<xIBIIIH")
"""Of an event as it is sent: OK, time, type, server, size, where it ends, flags."""
_CRC32, _CRC_BYTES, _IGNORABLE, _ARTIFICIAL = 1, 4, 0x80, 0x20
_ANNOTATED = 2
"""The server is asked to leave nothing out, so that what it does not number can be."""
_END = 14
"""Where in the header it stands."""
_QUERY, _ROTATE, _DESCRIPTION, _EXECUTE_LOAD = 2, 4, 15, 18
_TABLE_MAP, _INCIDENT, _PAYLOAD = 19, 26, 40
_ROWS = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d", 39: "u"}
_PARTIAL = 39
"""MySQL's rows with parts of JSON values in them."""
_COMPRESSED = {165: 2, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""MariaDB's compressed types (log_bin_compress), and what each is when unpacked."""
_UPDATES = (24, 31)
_V2 = (30, 31, 32)
_DECODED = {
    4: RotateEvent,
    15: FormatDescriptionEvent,
    16: XidEvent,
    27: HeartbeatLogEvent,
    33: GtidEvent,
    38: XAPrepareEvent,
    161: MariadbBinLogCheckPointEvent,
    162: MariadbGtidEvent,
    163: MariadbGtidListEvent,
}
"""Types that the library decodes."""
_HARMLESS = {
    3: "STOP",
    5: "INTVAR",  # 5, 13 and 14 say values to the statement after them, which is looked at
    9: "APPEND_BLOCK",  # 9, 11 and 17 carry the file of a LOAD DATA, which is a statement itself
    11: "DELETE_FILE",
    13: "RAND",
    14: "USER_VAR",
    17: "BEGIN_LOAD_QUERY",
    28: "IGNORABLE",
    29: "ROWS_QUERY",
    34: "ANONYMOUS_GTID",
    35: "PREVIOUS_GTIDS",
    36: "TRANSACTION_CONTEXT",
    37: "VIEW_CHANGE",
    41: "HEARTBEAT_V2",
    42: "GTID_TAGGED",  # the transaction begins with its first word, as without a GTID
    160: "ANNOTATE_ROWS",
    164: "START_ENCRYPTION",  # the server decrypts what it sends
}
"""Types that change no row."""
_HEARTBEATS = (27, 41)


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement as its session wrote it.

    Attributes:
        begin, end: its place in the file.
        schema: the session's database.
        sql_mode: the session's, 0 where the log does not say.
    """

    begin: int
    end: int
    server: int
    timestamp: int
    schema: str
    query: str
    sql_mode: int = 0


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """Rows of a captured table.

    Attributes:
        begin, end: its place in the file.
        op: "c", "u" or "d".
        described: the table.
        rows: the values, or those before and after, as `logvalues` reads them; None where the log does
            not hold whole rows.
        partial: JSON values are written in part.
    """

    begin: int
    end: int
    server: int
    timestamp: int
    op: str
    described: TableMap
    rows: list[tuple[Row, Row | None]] | None
    partial: bool = False


class LogHeartbeat:
    """The server lives and has nothing more to say."""


class LogStream:
    """Reads from a place on that is the beginning of a transaction.

    Args:
        source: its name, for messages.
        tables: those of which rows are decoded.
        replica: an id of a replica that no other replica of the server has.
    """

    def __init__(
        self, url: MysqlUrl, source: str, tables: Iterable[Table], start: LogPlace, replica: int
    ) -> None:
        self._url, self._source, self._start, self._replica = url, source, start, replica
        self._wanted = frozenset(tables)
        self._file, self._end = start.file, start.offset
        self._connection: Any = None
        self._checksum = True
        self._version: tuple[int, ...] = (0, 0, 0)
        self._headers: Any = None
        self._mariadb = False
        self._tables: dict[int, TableMap] = {}

    def close(self) -> None:
        """Leave the server; another thread's `fetch` ends with an error."""
        if self._connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                self._connection.close()

    def fetch(self) -> Any | None:
        """The next event: the library's or one of those above; None at the log's end.

        Raises:
            pymysql.MySQLError: the connection's.
            FrescoError: CAPTURE_EVENT, CAPTURE_INCIDENT, CAPTURE_TYPE, CAPTURE_ROWS.
        """
        if self._connection is None:
            self._connection = self._dumping()
        while True:
            packet = self._connection._read_packet()
            if packet.is_eof_packet():
                return None
            event = self.event(packet.get_all_data())
            if event is not None:
                return event

    def _dumping(self) -> Any:
        """A connection on which the server sends its log, with the checksums that its files have."""
        settings = arguments(self._url, read_timeout=2 * HEARTBEAT_SECONDS + 5)
        connection = pymysql.connect(**settings)
        with connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = 'CRC32', @mariadb_slave_capability = 4")
            cursor.execute("SET @source_binlog_checksum = 'CRC32'")
            cursor.execute(f"SET @master_heartbeat_period = {HEARTBEAT_SECONDS * 10**9}")
        self._mariadb = "mariadb" in connection.get_server_info().lower()
        connection._get_dbms = lambda: "mariadb" if self._mariadb else "mysql"
        flags = _ANNOTATED if self._mariadb else 0
        request = struct.pack("<BIHI", COM_BINLOG_DUMP, self._start.offset, flags, self._replica)
        request += self._start.file.encode()
        connection._write_bytes(struct.pack("<I", len(request)) + request)
        connection._next_seq_id = 1
        return connection

    # Events ---------------------------------------------------------------------------------------

    def event(self, data: bytes) -> Any | None:
        """What an event as it is sent means; None for one that says nothing."""
        _, kind, _, size, _, flags = _HEADER.unpack_from(data)
        if kind in _HEARTBEATS:
            return LogHeartbeat()
        data = self._placed(data, kind, size, flags)
        if kind in _COMPRESSED:
            data, kind = unpacked(data, self._checksum), _COMPRESSED[kind]
        if kind in (_QUERY, _EXECUTE_LOAD):
            return self._statement(data, kind, size)
        if kind == _TABLE_MAP:
            number, described = read_table_map(self._body(data), self._wanted, self._mariadb)
            self._tables[number] = described
            return None
        if kind in _ROWS:
            return self._rows(data, kind, size)
        if kind not in _DECODED:
            if kind in _HARMLESS or (flags & _IGNORABLE and kind not in (_INCIDENT, _PAYLOAD)):
                return None
            raise self._unknown(data, kind)
        if kind == _DESCRIPTION:  # a file begins: it says how its events are made
            self._checksum = data[-_CRC_BYTES - 1] == _CRC32
            self._tables.clear()
        event = self._decoded(data, kind)
        if event is None:
            return None
        event.packet.event_size = size  # before it was unpacked
        match event:
            case FormatDescriptionEvent():
                self._version, self._headers = event.mysql_version, event.post_header_len
                return None
            case RotateEvent():
                self._file, self._end = event.next_binlog, event.position
        return event

    def _placed(self, data: bytes, kind: int, size: int, flags: int) -> bytes:
        """The event with the place where it ends, which newer MariaDBs leave out inside transactions."""
        (end,) = struct.unpack_from("<I", data, _END)
        if end:
            self._end = end
        elif kind not in (_ROTATE, _DESCRIPTION) and not flags & _ARTIFICIAL:
            self._end += size
            return data[:_END] + struct.pack("<I", self._end) + data[_END + 4 :]
        return data

    def _body(self, data: bytes) -> bytes:
        """An event without its header and its checksum."""
        return data[_HEADER.size : len(data) - (_CRC_BYTES if self._checksum else 0)]

    def _rows(self, data: bytes, kind: int, size: int) -> LoggedRows | None:
        """The rows of a captured table."""
        seconds, _, server, _, end, _ = _HEADER.unpack_from(data)
        body = self._body(data)
        described = self._tables.get(int.from_bytes(body[:6], "little"))
        if described is None or not described.columns:
            return None
        begin, op = max(end - size, 0), _ROWS[kind]
        if kind == _PARTIAL:
            return LoggedRows(begin, end, server, seconds, op, described, None, partial=True)
        at = 8
        if kind in _V2:
            at += struct.unpack_from("<H", body, at)[0]
        where = f"source {self._source}, log {LogPlace(self._file, begin)}"
        rows = rows_of(body, at, described.columns, op == "u", where)
        return LoggedRows(begin, end, server, seconds, op, described, rows)

    def _decoded(self, data: bytes, kind: int) -> Any | None:
        return BinLogPacketWrapper(
            MysqlPacket(data, "utf8"),
            {},
            self._connection,
            self._version,
            self._checksum,
            (_DECODED[kind],),
            None,
            None,
            None,
            None,
            False,
            False,
            False,
            True,
            False,
            False,
            self._headers,
        ).event

    def _statement(self, data: bytes, kind: int, size: int) -> LoggedStatement:
        """A statement with its session's settings, which stand in front of it."""
        seconds, _, server, _, end, _ = _HEADER.unpack_from(data)
        body = self._body(data)
        _, _, length, _, known = struct.unpack_from("<IIBHH", body)
        at = 13 if kind == _QUERY else 26
        sql_mode, charset = _session(body[at : at + known])
        at += known
        schema = body[at : at + length].decode("utf-8", "replace")
        text = self._text(body[at + length + 1 :], charset)
        return LoggedStatement(max(end - size, 0), end, server, seconds, schema, text, sql_mode)

    def _text(self, octets: bytes, charset: int) -> str:
        """Letters in the session's character set; names beyond it stand out as they are."""
        try:
            name = charset_by_id(charset).encoding if charset else "utf8"
            return octets.decode(name)
        except (KeyError, LookupError, UnicodeDecodeError):
            return octets.decode("utf-8", "surrogateescape")

    def _unknown(self, data: bytes, kind: int) -> FrescoError:
        _, _, _, size, end, _ = _HEADER.unpack_from(data)
        at = LogPlace(self._file, max(end - size, 0))
        if kind == _INCIDENT:
            return FrescoError(
                "CAPTURE_INCIDENT",
                f"the server of source {self._source} says that changes are missing in its log",
                where=f"source {self._source}, log {at}",
                todo="capture under another prefix in a new pipeline, with a new snapshot",
            )
        todo = "report the server's version, and capture under another prefix in a new pipeline"
        if kind == _PAYLOAD:
            todo = (
                "SET GLOBAL binlog_transaction_compression = OFF, let no session set it, and capture"
                " under another prefix in a new pipeline, with a new snapshot"
            )
        return FrescoError(
            "CAPTURE_EVENT",
            f"the log of source {self._source} holds an event of type {kind}"
            + (" (a compressed transaction)" if kind == _PAYLOAD else "")
            + ", which is not known here and may change rows",
            where=f"source {self._source}, log {at}",
            todo=todo,
        )


def _session(known: bytes) -> tuple[int, int]:
    """A session's sql_mode and its client's collation; 0 for what is not said.

    The settings come in this order; the ones after them are of no use here.
    """
    sql_mode = collation = at = 0
    while at < len(known):
        key, at = known[at], at + 1
        if key == 0:  # flags
            at += 4
        elif key == 1:
            (sql_mode,) = struct.unpack_from("<Q", known, at)
            at += 8
        elif key == 6:  # catalog
            at += 1 + known[at]
        elif key == 3:  # auto_increment
            at += 4
        elif key == 4:
            (collation,) = struct.unpack_from("<H", known, at)
            break
        else:
            break
    return sql_mode, collation


def unpacked(data: bytes, checksum: bool) -> bytes:
    """A compressed event as the one it was made of; its size is the new one, its checksum is 0.

    What comes before the rows, or the statement, is not compressed (MariaDB's log_event.cc).
    """
    seconds, kind, server, _, end, flags = _HEADER.unpack_from(data)
    kind, at = _COMPRESSED[kind], _HEADER.size
    if kind == BINLOG.QUERY_EVENT:
        _, _, length, _, known = struct.unpack_from("<IIBHH", data, at)
        at += 13 + known + length + 1
    else:
        at += 8
        if kind in _V2:
            at += struct.unpack_from("<H", data, at)[0]
        columns, at = packed(data, at)
        at += (columns + 7) // 8 * (2 if kind in _UPDATES else 1)
    head, length = data[at], data[at] & 7
    if head & 0x70 or not head & 0x80:
        raise FrescoError(
            "CAPTURE_EVENT",
            f"the log holds an event compressed in a way that is not known here ({head:#x})",
            where=f"log, the event that ends at {end}",
            todo="SET GLOBAL log_bin_compress = OFF, and capture under another prefix in a new pipeline",
        )
    size = int.from_bytes(data[at + 1 : at + 1 + length], "big")
    until = len(data) - (_CRC_BYTES if checksum else 0)
    content = zlib.decompress(data[at + 1 + length : until], bufsize=size)
    body = data[_HEADER.size : at] + content + (b"\0" * _CRC_BYTES if checksum else b"")
    whole = _HEADER.size - 1 + len(body)
    return b"\0" + _HEADER.pack(seconds, kind, server, whole, end, flags)[1:] + body
