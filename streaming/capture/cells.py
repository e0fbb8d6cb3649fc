"""Values of MariaDB's columns as Debezium's MySQL connector writes them in JSON.

A value comes from the log (as `mysql-replication` reads it) or from a snapshot's SELECT (as text of the
client protocol); both ways end in the same plain value of the column's kind, and from there the JSON is
made in one place. So a row looks alike in both, to the last digit.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Literal

import numpy as np
from pymysqlreplication.constants import FIELD_TYPE

from streaming.errors import FrescoError
from streaming.sources.mysqltypes import Kind, bits, datetimes, integer
from streaming.sources.retyped import SOURCE_TYPE

Decimals = Literal["precise", "string"]
Encode = Callable[[Any], Any]
"""A value of one column, not None, as JSON; None where the database has a date that is none."""

_EPOCH, _FIRST_DAY = datetime(1970, 1, 1), date(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_WRAP = 1 << 64
_EXACT = Context(prec=80)
"""More digits than a DECIMAL has; Python's own context would round to 28."""
_INTEGERS = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
}
_PLAIN = {
    FIELD_TYPE.FLOAT: Kind("float", "real"),
    FIELD_TYPE.DOUBLE: Kind("double", "double precision"),
    FIELD_TYPE.DATE: Kind("date", "date"),
    FIELD_TYPE.NEWDATE: Kind("date", "date"),
    FIELD_TYPE.ENUM: Kind("text", "text"),
    FIELD_TYPE.SET: Kind("text", "text"),
    FIELD_TYPE.JSON: Kind("text", "text"),
}
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
_ENCODINGS = {"utf8mb3": "utf8", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf32": "utf-32-be"}
"""Python's names of character sets that it knows under another name."""


@dataclass(frozen=True)
class Cell:
    """How one column's values are read and written.

    Attributes:
        selected: SQL of the value in a snapshot, a function of the column's quoted name.
        from_text: JSON of a value of that SQL as the client gets it.
        from_log: JSON of a value as the log's reader gives it.
    """

    selected: Callable[[str], str]
    from_text: Encode
    from_log: Encode


def cell(kind: Kind, decimals: Decimals) -> Cell:
    """The cell of a kind."""
    write = _writer(kind, decimals)
    selected, text, log = _READERS.get(kind.name, _READERS["other"])

    def from_text(value: Any) -> Any:
        return write(text(value))

    def from_log(value: Any) -> Any:
        return write(log(value))

    return Cell(selected, from_text, from_log)


def log_kind(column: Any) -> Kind:
    """The kind of a column as the log describes it (`pymysqlreplication.column.Column`)."""
    if column.type in _INTEGERS:
        return integer(_INTEGERS[column.type], bool(column.unsigned))
    match column.type:
        case FIELD_TYPE.NEWDECIMAL:
            scale = column.decimals
            return Kind("decimal", f"numeric({column.precision},{scale})", scale)
        case FIELD_TYPE.DATETIME | FIELD_TYPE.DATETIME2:
            return datetimes(getattr(column, "fsp", 0))
        case FIELD_TYPE.TIMESTAMP | FIELD_TYPE.TIMESTAMP2:
            return Kind("timestamp", "timestamptz", getattr(column, "fsp", 0))
        case FIELD_TYPE.TIME | FIELD_TYPE.TIME2:
            return Kind("time", "time", getattr(column, "fsp", 0))
        case FIELD_TYPE.BIT:
            return bits(column.bits)
        case FIELD_TYPE.STRING if column.collation_name == "binary":
            return Kind("bytes", "bytea", column.max_length)
    if column.type in _PLAIN:
        return _PLAIN[column.type]
    if column.type in (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB):
        binary = column.collation_name == "binary"
        return Kind("bytes", "bytea") if binary else Kind("text", "text")
    return Kind("other", "")


def log_encoders(columns: Sequence[Any], decimals: Decimals) -> dict[str, Encode]:
    """Column name -> JSON of its values in the log's rows."""
    found: dict[str, Encode] = {}
    for column in columns:
        encode = cell(log_kind(column), decimals).from_log
        if column.type == FIELD_TYPE.SET:
            encode = _set(list(column.set_values or ()))
        elif column.type in (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB):
            encode = _decoded(column, encode)
        found[column.name] = encode
    return found


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


def _set(names: list[str]) -> Encode:
    """A SET's members in the order of its type, as MariaDB writes them."""
    return lambda value: ",".join(name for name in names if name in value)


def _decoded(column: Any, encode: Encode) -> Encode:
    """Text that the log's reader left as bytes, because Python has another name for its charset."""
    if column.collation_name == "binary":
        return encode
    name = str(column.character_set_name)

    def text(value: Any) -> Any:
        if not isinstance(value, bytes):
            return encode(value)
        try:
            return encode(value.decode(_ENCODINGS.get(name, name)))
        except (LookupError, UnicodeDecodeError) as error:
            raise FrescoError(
                "CAPTURE_TEXT",
                f"a value of column {column.name} is not text in {name}",
                where=column.name,
                todo="convert the table: ALTER TABLE ... CONVERT TO CHARACTER SET utf8mb4",
            ) from error

    return text


# Readers ------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return value


def _days(value: date) -> int:
    return (value - _FIRST_DAY).days


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // _MICRO


def _span(value: timedelta) -> int:
    return value // _MICRO


def _json(value: Any) -> Any:
    """MySQL's JSON comes as objects, everything else as text."""
    return value if isinstance(value, str | bytes) else json.dumps(_texts(value))


def _texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_texts(name): _texts(one) for name, one in value.items()}
    return [_texts(one) for one in value] if isinstance(value, list) else value


def _since(ref: str) -> str:
    return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {ref})"


_READERS: dict[str, tuple[Callable[[str], str], Encode, Encode]] = {
    "int": (lambda ref: ref, int, _plain),
    "bigint unsigned": (lambda ref: ref, int, _plain),
    "decimal": (lambda ref: ref, Decimal, _plain),
    "float": (lambda ref: f"{ref} + 0e0", float, _plain),
    "double": (lambda ref: ref, float, _plain),
    "date": (lambda ref: f"DATEDIFF({ref}, '1970-01-01')", int, _days),
    "datetime": (_since, int, _micros),
    "timestamp": (_since, int, _micros),
    "time": (lambda ref: f"ROUND(TIME_TO_SEC({ref}) * 1000000)", lambda v: int(Decimal(v)), _span),
    "text": (lambda ref: ref, _plain, _json),
    "bytes": (lambda ref: ref, _plain, _plain),
    "bits": (lambda ref: f"{ref} + 0", int, lambda value: int(value, 2)),
    "flag": (lambda ref: f"{ref} + 0", int, lambda value: int(value, 2)),
    "other": (lambda ref: ref, _plain, _plain),
}
"""Kind -> SQL in a snapshot, its text as a plain value, the log's value as the same plain value."""


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
            return lambda value: float(str(np.float32(value)))
        case "datetime":
            return lambda value: value // 1000 if kind.size <= 3 else value
        case "timestamp":
            return _instant
        case "bytes":
            # Of no bytes at all the log's reader makes a text.
            return lambda value: _base64((value or b"").ljust(kind.size, b"\0"))
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


def _instant(micros: int) -> str | None:
    """A TIMESTAMP in UTC; MariaDB has none at 0, which is how it writes a date that is none."""
    if micros == 0:
        return None
    at = _EPOCH + timedelta(microseconds=micros)
    return f"{at.isoformat()}Z"
