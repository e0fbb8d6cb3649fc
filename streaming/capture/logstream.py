"""A server's log event by event, each of a type that is known (FACTS, MariaDB; MySQL's and MariaDB's
replication protocol).

`mysql-replication` decodes tables and rows. Around it stands what it does not do: every type of event
is decoded, known to change no row, or ends the capture by its name; compressed events are unpacked;
whether events carry a checksum is taken from the log's file, not from the server's setting of the
moment; and a statement is read with the sql_mode and the character set of the session that wrote it.

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
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from streaming.capture.logevents import Table
from streaming.errors import FrescoError
from streaming.sources.mysqlstate import Place
from streaming.sources.mysqlurl import MysqlUrl, arguments

HEARTBEAT_SECONDS = 5
"""The server proves that it lives; without a word for twice as long the connection counts as lost."""
_HEADER = struct.Struct("<xIBIIIH")
"""Of an event as it is sent: OK, time, type, server, size, where it ends, flags."""
_CRC32, _CRC_BYTES, _IGNORABLE = 1, 4, 0x80
_QUERY, _EXECUTE_LOAD, _INCIDENT, _PAYLOAD = 2, 18, 26, 40
_COMPRESSED = {165: 2, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""MariaDB's compressed types (log_bin_compress), and what each is when unpacked."""
_UPDATES = (24, 31)
_V2 = (30, 31, 32)
_DECODED = {
    4: RotateEvent,
    15: FormatDescriptionEvent,
    16: XidEvent,
    19: TableMapEvent,
    23: WriteRowsEvent,
    24: UpdateRowsEvent,
    25: DeleteRowsEvent,
    27: HeartbeatLogEvent,
    30: WriteRowsEvent,
    31: UpdateRowsEvent,
    32: DeleteRowsEvent,
    33: GtidEvent,
    38: XAPrepareEvent,
    39: PartialUpdateRowsEvent,
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
_NAMED = {140: ", a COMPRESSED text", 141: ", a COMPRESSED text", 242: ", VECTOR"}
_HEARTBEATS = (27, 41)
_TYPES = frozenset((*range(1, 6), *range(7, 14), *range(15, 20), 245, 246, 252, 254, 255))
"""Types of columns that the library reads; of another one it misreads the columns that follow."""


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
        self, url: MysqlUrl, source: str, tables: Iterable[Table], start: Place, replica: int
    ) -> None:
        self._url, self._source, self._start, self._replica = url, source, start, replica
        self._schemas = sorted({database for database, _ in tables})
        self._names = sorted({table for _, table in tables})
        self._file = start.file
        self._connection: Any = None
        self._checksum = True
        self._version: tuple[int, ...] = (0, 0, 0)
        self._headers: Any = None
        self._tables: dict[int, Any] = {}

    def close(self) -> None:
        """Leave the server; another thread's `fetch` ends with an error."""
        if self._connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                self._connection.close()

    def fetch(self) -> Any | None:
        """The next event: the library's, a `LoggedStatement` or a `LogHeartbeat`; None at the log's end.

        Raises:
            pymysql.MySQLError: the connection's.
            FrescoError: CAPTURE_EVENT, CAPTURE_INCIDENT, CAPTURE_TYPE.
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
        dbms = "mariadb" if "mariadb" in connection.get_server_info().lower() else "mysql"
        connection._get_dbms = lambda: dbms
        request = struct.pack("<BIHI", COM_BINLOG_DUMP, self._start.offset, 0, self._replica)
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
        if kind in _COMPRESSED:
            data, kind = unpacked(data, self._checksum), _COMPRESSED[kind]
        if kind in (_QUERY, _EXECUTE_LOAD):
            return self._statement(data, kind, size)
        if kind not in _DECODED:
            if kind in _HARMLESS or (flags & _IGNORABLE and kind not in (_INCIDENT, _PAYLOAD)):
                return None
            raise self._unknown(data, kind)
        if kind == 15:  # a file begins: it says how its events are made
            self._checksum = data[-_CRC_BYTES - 1] == _CRC32
            self._tables.clear()
        if kind == 19:
            self._check_types(data)
        if kind == 19 and not self._checksum:
            # The library takes the last bytes of a table's description for a checksum in any case.
            data += b"\0" * _CRC_BYTES
        event = self._decoded(data, kind)
        if event is None:
            return None
        event.packet.event_size = size  # before it was unpacked
        match event:
            case FormatDescriptionEvent():
                self._version, self._headers = event.mysql_version, event.post_header_len
                return None
            case TableMapEvent():
                self._tables[event.table_id] = event.get_table()
                return None
            case RotateEvent():
                self._file = event.next_binlog
        return event

    def _check_types(self, data: bytes) -> None:
        """Refuse a captured table that has a column of a type which the library cannot read."""
        at = _HEADER.size + 8
        schema, at = data[at + 1 : at + 1 + data[at]], at + 2 + data[at]
        table, at = data[at + 1 : at + 1 + data[at]], at + 2 + data[at]
        if schema.decode() not in self._schemas or table.decode() not in self._names:
            return
        columns, at = _packed(data, at)
        for number, type_ in enumerate(data[at : at + columns], 1):
            if type_ not in _TYPES:
                raise FrescoError(
                    "CAPTURE_TYPE",
                    f"column {number} of {schema.decode()}.{table.decode()} has a type that is not known"
                    f" in a log ({type_}{_NAMED.get(type_, '')})",
                    where=f"source {self._source}, log file {self._file}",
                    todo="give the column another type (without COMPRESSED), or leave the table out of"
                    " the capture, and capture under another prefix in a new pipeline",
                )

    def _decoded(self, data: bytes, kind: int) -> Any | None:
        return BinLogPacketWrapper(
            MysqlPacket(data, "utf8"),
            self._tables,
            self._connection,
            self._version,
            self._checksum,
            (_DECODED[kind],),
            self._names,
            None,
            self._schemas,
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
        body = data[_HEADER.size : len(data) - (_CRC_BYTES if self._checksum else 0)]
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
        at = Place(self._file, max(end - size, 0))
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
        columns, at = _packed(data, at)
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


def _packed(data: bytes, at: int) -> tuple[int, int]:
    """A number of the protocol's variable length, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
