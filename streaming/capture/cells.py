"""Values of MariaDB's columns as Debezium's MySQL connector writes them in JSON.

A value comes from the log (as `logvalues` reads it) or from a snapshot's SELECT (as text of the client
protocol); both ways end in the same plain value of the column's kind, and from there the JSON is
made in one place. So a row looks alike in both, to the last digit.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Literal

import numpy as np
from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.ask.mariadb.mysql_dates import date_of, moment_of, span_of
from streaming.ask.mariadb.mysql_types import Kind, bits, datetimes, integer
from streaming.capture.charsets import Charsets
from streaming.capture.json_binary import json_text
from streaming.capture.table_map import BINARY, BLOB_COMPRESSED, VARCHAR_COMPRESSED, LoggedColumn
from streaming.captured.retyped import SOURCE_TYPE

Decimals = Literal["precise", "string"]
Encode = Callable[[Any], Any]
"""A value of one column, not None, as JSON; None where the database has a date that is none."""

_EPOCH = datetime(1970, 1, 1)
_WRAP = 1 << 64
_EXACT = Context(prec=80)
"""More digits than a DECIMAL has; Python's own context would round to 28."""
_INTEGERS = {
    T.TINY: "tinyint",
    T.SHORT: "smallint",
    T.INT24: "mediumint",
    T.LONG: "int",
    T.LONGLONG: "bigint",
    T.YEAR: "year",
}
_PLAIN = {
    T.FLOAT: Kind("float", "real"),
    T.DOUBLE: Kind("double", "double precision"),
    T.DATE: Kind("date", "date"),
    T.NEWDATE: Kind("date", "date"),
    T.ENUM: Kind("text", "text"),
    T.SET: Kind("text", "text"),
    T.JSON: Kind("text", "text"),
}
_STRINGS = (T.STRING, T.VAR_STRING, T.VARCHAR, T.BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED)
_CONNECT = {
    "float": ("float", ""),
    "double": ("double", ""),
    "date": ("int32", "io.debezium.time.Date"),
    "datetime": ("int64", "io.debezium.time.MicroTimestamp"),
    "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "bytes": ("bytes", ""),
    "flag": ("boolean", ""),
}
"""Type and name in Connect's schema; a string elsewhere."""


@dataclass(frozen=True)
class Cell:
    """How one column's values are read and written.

    Attributes:
        selected: SQL of the value in a snapshot, a function of the column's quoted name.
        from_text: JSON of a value of that SQL as the client gets it.
        from_log: JSON of a value as `logvalues` reads it, text decoded.
    """

    selected: Callable[[str], str]
    from_text: Encode
    from_log: Encode


def cell(kind: Kind, decimals: Decimals) -> Cell:
    """The cell of a kind."""
    write = _writer(kind, decimals)
    selected, read = _READERS.get(kind.name, (_itself, _plain))

    def from_text(value: Any) -> Any:
        plain = read(value)
        return None if plain is None else write(plain)

    return Cell(selected, from_text, write)


def log_kind(column: LoggedColumn) -> Kind:
    """The kind of a column as the log describes it."""
    if column.type in _INTEGERS:
        return integer(_INTEGERS[column.type], column.unsigned)
    match column.type:
        case T.NEWDECIMAL:
            return Kind("decimal", f"numeric({column.first},{column.second})", column.second)
        case T.DATETIME | T.DATETIME2:
            return datetimes(column.first)
        case T.TIMESTAMP | T.TIMESTAMP2:
            return Kind("timestamp", "timestamptz", column.first)
        case T.TIME | T.TIME2:
            return Kind("time", "time", column.first)
        case T.BIT:
            return bits(column.first)
    if column.type in _PLAIN:
        return _PLAIN[column.type]
    if column.type in _STRINGS:
        if column.collation != BINARY:
            return Kind("text", "text")
        return Kind("bytes", "bytea", column.first if column.type == T.STRING else 0)
    return Kind("other", "")


def log_encoders(
    columns: Sequence[LoggedColumn], decimals: Decimals, charsets: Charsets
) -> list[tuple[str, Encode]]:
    """Column name and JSON of its values in the log's rows.

    Raises:
        FrescoError: CAPTURE_TEXT where a character set is not known; so do the encoders.
    """
    found = []
    for column in columns:
        encode = cell(log_kind(column), decimals).from_log
        if column.type == T.JSON:
            encode = json_text
        elif column.type in (T.ENUM, T.SET):
            decode = charsets.decoder(column.collation, column.name)
            labels = [decode(label) for label in column.labels]
            encode = _member(labels) if column.type == T.ENUM else _members(labels)
        elif column.type in _STRINGS and column.collation != BINARY:
            encode = charsets.decoder(column.collation, column.name)
        found.append((column.name, encode))
    return found


def _member(labels: list[str]) -> Encode:
    """An ENUM's value by its number; what is none of them is ''."""
    return lambda number: labels[number - 1] if number else ""


def _members(labels: list[str]) -> Encode:
    """A SET's members in the order of its type, as the server writes them."""
    return lambda bits: ",".join(label for at, label in enumerate(labels) if bits >> at & 1)


def schema_text(kinds: Iterable[tuple[str, Kind]], decimals: Decimals) -> str:
    """The schema part of events whose rows have these columns, as Kafka Connect writes it.

    The same JSON means different things under different types, and a reader knows the type of the
    moment in which it looked at the catalog; this is the type that the value was written by.
    """
    fields = [{"field": name, **_field(kind, decimals)} for name, kind in kinds]
    row = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    return json.dumps({"type": "struct", "fields": [row]}, separators=(",", ":"))


def _field(kind: Kind, decimals: Decimals) -> dict[str, Any]:
    """How Connect names the values of a kind."""
    match kind.name:
        case "int" if kind.captured == "bigint":
            return {"type": "int64", "parameters": {SOURCE_TYPE: "BIGINT"}}
        case "int":
            return {"type": {"smallint": "int16"}.get(kind.captured, "int32")}
        case "bigint unsigned":
            return {"type": "int64", "parameters": {SOURCE_TYPE: "BIGINT UNSIGNED"}}
        case "decimal" if decimals == "precise":
            name = "org.apache.kafka.connect.data.Decimal"
            return {"type": "bytes", "name": name, "parameters": {"scale": str(kind.size)}}
        case "bits":
            name = "io.debezium.data.Bits"
            return {"type": "bytes", "name": name, "parameters": {"length": str(kind.size)}}
        case "datetime" if kind.size <= 3:
            return {"type": "int64", "name": "io.debezium.time.Timestamp"}
    type_, name = _CONNECT.get(kind.name, ("string", ""))
    return {"type": type_, "name": name} if name else {"type": type_}


# Readers ------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return value


def _itself(ref: str) -> str:
    return ref


def _number(ref: str) -> str:
    """Bits as a number."""
    return f"{ref} + 0"


def _exact(ref: str) -> str:
    """All digits of a number, whatever its column shows."""
    return f"{ref} * 1e0"


_READERS: dict[str, tuple[Callable[[str], str], Encode]] = {
    "int": (_itself, int),
    "bigint unsigned": (_itself, int),
    "decimal": (_itself, Decimal),
    "float": (_exact, float),
    "double": (_exact, float),
    "date": (_itself, date_of),
    "datetime": (_itself, moment_of),
    "timestamp": (_itself, moment_of),
    "time": (_itself, span_of),
    "bits": (_number, int),
    "flag": (_number, int),
}
"""Kind -> SQL in a snapshot, and its text as a plain value, None for a date that is none."""


# Writers ------------------------------------------------------------------------------------------


def _writer(kind: Kind, decimals: Decimals) -> Encode:
    match kind.name:
        case "bigint unsigned":
            return lambda value: value if value < _WRAP // 2 else value - _WRAP
        case "decimal" if decimals == "string":
            return lambda value: f"{value:.{kind.size}f}"
        case "decimal":
            return lambda value: _base64(_octets(int(value.scaleb(kind.size, _EXACT))))
        case "float":
            return lambda value: float(str(np.float32(value))) + 0.0
        case "double":
            return lambda value: (
                value + 0.0
            )  # a zero's sign is in the log, but no client is told it
        case "datetime":
            return lambda value: value // 1000 if kind.size <= 3 else value
        case "timestamp":
            return _instant
        case "bytes":
            # The log leaves out the zeros at the end of a BINARY(n).
            return lambda value: _base64(value.ljust(kind.size, b"\0"))
        case "bits":
            size = (kind.size + 7) // 8
            return lambda value: _base64(value.to_bytes(size, "little"))
        case "flag":
            return bool
        case "other":
            return lambda value: _base64(value) if isinstance(value, bytes) else str(value)
    return _plain


def _octets(unscaled: int) -> bytes:
    """Two's complement, big-endian, as short as it can be."""
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _instant(micros: int) -> str:
    """A TIMESTAMP in UTC."""
    return f"{(_EPOCH + timedelta(microseconds=micros)).isoformat()}Z"
