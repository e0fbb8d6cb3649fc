"""Values of a log's rows as the log's own description of their columns says, to the last digit.

The layouts are those of MySQL's and MariaDB's row events (log_event.cc, my_time.cc, decimal.cc). Each
column has a reader, which takes a value from a place in the event and says where it ends. What it gives
is the plain value of the column's kind: whole numbers for dates, moments, spans, ENUM and SET, octets for
text in whatever character set. A row's octets must be used up by its columns, or nothing is told.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.ask.mariadb.mysql_dates import day_number, moment_number
from streaming.capture.table_map import BLOB_COMPRESSED, VARCHAR_COMPRESSED, LoggedColumn, packed
from streaming.errors import FrescoError

Read = Callable[[bytes, int], tuple[Any, int]]
"""A value of the octets from a place on, and where it ends."""
Row = tuple[Any, ...]
_WHOLE = {T.TINY: 1, T.SHORT: 2, T.INT24: 3, T.LONG: 4, T.LONGLONG: 8}
_DIGITS = 9
"""Of a DECIMAL in four octets; `_OCTETS` has those of fewer."""
_OCTETS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MICROS = 1_000_000


def rows_of(
    data: bytes, at: int, columns: Sequence[LoggedColumn], updates: bool, where: str
) -> list[tuple[Row, Row | None]] | None:
    """The rows of an event: the values, or those before and after; None where they are not whole.

    Args:
        data: the event without its checksum; at: where its number of columns stands.

    Raises:
        FrescoError: CAPTURE_ROWS where the octets are not those of the columns.
    """
    count, at = packed(data, at)
    size = (count + 7) // 8
    present = data[at : at + size * (1 + updates)]
    at += len(present)
    for begin in range(0, len(present), size):
        if not all(present[begin + n // 8] >> n % 8 & 1 for n in range(count)):
            return None
    readers = [reader_of(column) for column in columns]
    found: list[tuple[Row, Row | None]] = []
    try:
        if count != len(columns):
            raise ValueError(f"{count} columns instead of {len(columns)}")
        while at < len(data):
            row, at = _row(data, at, size, readers)
            after = None
            if updates:
                after, at = _row(data, at, size, readers)
            found.append((row, after))
        if at != len(data):
            raise ValueError("the last row ends behind the event")
    except (ValueError, IndexError, struct.error, zlib.error, ArithmeticError) as error:
        raise FrescoError(
            "CAPTURE_ROWS",
            f"rows in the log are not what it says of their columns: {error}",
            where=where,
            todo="a column may be in the format of MariaDB 5.3:"
            " SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE ... FORCE; then capture under another"
            " prefix in a new pipeline, with a new snapshot",
        ) from error
    return found


def _row(data: bytes, at: int, size: int, readers: Sequence[Read]) -> tuple[Row, int]:
    """A row: which columns are NULL, and the values of the others."""
    nulls = int.from_bytes(data[at : at + size], "little")
    at += size
    values: list[Any] = []
    for read in readers:
        if nulls & 1:
            values.append(None)
        else:
            value, at = read(data, at)
            values.append(value)
        nulls >>= 1
    return tuple(values), at


def reader_of(column: LoggedColumn) -> Read:
    """How a column's values are read."""
    first, second = column.first, column.second
    if column.type in _WHOLE:
        return _whole(_WHOLE[column.type], signed=not column.unsigned)
    match column.type:
        case T.FLOAT:
            return _unpacked("<f")
        case T.DOUBLE:
            return _unpacked("<d")
        case T.YEAR:
            return _mapped(1, lambda value: value + 1900 if value else 0)
        case T.DATE | T.NEWDATE:
            return _mapped(3, lambda v: day_number(v >> 9, v >> 5 & 15, v & 31))
        case T.TIME:
            return _mapped(3, _old_span)
        case T.DATETIME:
            return _mapped(8, _old_moment)
        case T.TIMESTAMP:
            return _mapped(4, lambda value: value * _MICROS or None)
        case T.TIME2:
            return _parts(3, first, _span)
        case T.DATETIME2:
            return _parts(5, first, _moment)
        case T.TIMESTAMP2:
            return _parts(4, first, _instant)
        case T.NEWDECIMAL:
            return decimal_reader(first, second)
        case T.ENUM | T.SET:
            return _mapped(first, lambda value: value)
        case T.BIT:
            return _bits((first + 7) // 8)
        case T.VARCHAR | T.VAR_STRING | T.STRING:
            return _octets(1 if first < 256 else 2)
    if column.type == BLOB_COMPRESSED:
        return _inflated(_octets(first))
    if column.type == VARCHAR_COMPRESSED:
        return _inflated(_octets(1 if first < 256 else 2))
    return _octets(first)  # the kinds of BLOB, JSON, GEOMETRY and VECTOR among them


def _whole(size: int, signed: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        end = at + size
        return int.from_bytes(_taken(data, at, end), "little", signed=signed), end

    return read


def _taken(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise ValueError("a value ends behind the event")
    return data[at:end]


def _unpacked(form: str) -> Read:
    size = struct.calcsize(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        return struct.unpack_from(form, data, at)[0], at + size

    return read


def _mapped(size: int, meaning: Callable[[int], Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        return meaning(int.from_bytes(_taken(data, at, end), "little")), end

    return read


def _parts(size: int, decimals: int, meaning: Callable[[int], Any]) -> Read:
    """A number of 24 bits of microseconds behind the rest, the last decimals not written."""
    parts = (decimals + 1) // 2
    scale = 100 ** (3 - parts)
    bias = 1 << 8 * size - 1 if size != 4 else 0

    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size + parts
        stored = int.from_bytes(_taken(data, at, end), "big") - (bias << 8 * parts)
        # Negative as a whole, so the parts are cut off from the amount.
        sign, amount = (-1, -stored) if stored < 0 else (1, stored)
        whole, fraction = amount >> 8 * parts, amount & (1 << 8 * parts) - 1
        return meaning(sign * (whole << 24 | fraction * scale)), end

    return read


def _span(packed_: int) -> int:
    """Microseconds of a TIME: hours, minutes, seconds, and 24 bits of microseconds."""
    sign, value = (-1, -packed_) if packed_ < 0 else (1, packed_)
    whole = value >> 24
    seconds = ((whole >> 12 & 0x3FF) * 60 + (whole >> 6 & 63)) * 60 + (whole & 63)
    return sign * (seconds * _MICROS + (value & 0xFFFFFF))


def _moment(packed_: int) -> int | None:
    """A DATETIME: year * 13 + month, day, hour, minute, second, and 24 bits of microseconds."""
    whole = packed_ >> 24
    months = whole >> 22
    return moment_number(
        months // 13, months % 13, whole >> 17 & 31, whole >> 12 & 31, whole >> 6 & 63, whole & 63,
        packed_ & 0xFFFFFF,
    )  # fmt: skip


def _instant(packed_: int) -> int | None:
    """A TIMESTAMP: seconds since 1970; none at 0, which is how a date of zeros is written."""
    return ((packed_ >> 24) * _MICROS + (packed_ & 0xFFFFFF)) or None


def _old_span(value: int) -> int:
    """TIME as MariaDB before 10.1 writes it: hhmmss in three octets."""
    sign, value = (-1, (1 << 24) - value) if value >= 1 << 23 else (1, value)
    return sign * ((value // 10_000 * 60 + value // 100 % 100) * 60 + value % 100) * _MICROS


def _old_moment(value: int) -> int | None:
    """DATETIME as MariaDB before 10.1 writes it: YYYYMMDDhhmmss."""
    day, time = divmod(value, 1_000_000)
    return moment_number(
        day // 10_000, day // 100 % 100, day % 100, time // 10_000, time // 100 % 100, time % 100, 0
    )


def decimal_reader(precision: int, scale: int) -> Read:
    """DECIMAL(p,s): nine digits in four octets, fewer in fewer; a negative one is inverted."""
    before, after = divmod(precision - scale, _DIGITS), divmod(scale, _DIGITS)
    groups = [before[1]] * bool(before[1]) + [_DIGITS] * (before[0] + after[0])
    groups += [after[1]] * bool(after[1])
    size = sum(_OCTETS[digits] for digits in groups)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        end = at + size
        octets = bytearray(_taken(data, at, end))
        negative = not octets[0] & 0x80
        octets[0] ^= 0x80
        if negative:
            octets = bytearray(octet ^ 0xFF for octet in octets)
        unscaled = place = 0
        for digits in groups:
            width = _OCTETS[digits]
            unscaled = unscaled * 10**digits + int.from_bytes(octets[place : place + width], "big")
            place += width
        digits_ = tuple(map(int, str(unscaled)))
        return Decimal((int(negative), digits_, -scale)), end

    return read


def _bits(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        end = at + size
        return int.from_bytes(_taken(data, at, end), "big"), end

    return read


def _octets(size: int) -> Read:
    """Octets with their length before them."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        begin = at + size
        end = begin + int.from_bytes(_taken(data, at, begin), "little")
        return _taken(data, begin, end), end

    return read


def _inflated(octets: Read) -> Read:
    """A value of a COMPRESSED column (MariaDB's field_comp.cc)."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        stored, end = octets(data, at)
        if not stored:
            return stored, end
        if not stored[0]:  # too short to be compressed
            return stored[1:], end
        method, raw, width = stored[0] >> 4, bool(stored[0] & 8), stored[0] & 7
        if method != 8:
            raise ValueError(f"a value is compressed in a way that is not known here ({method})")
        length = int.from_bytes(stored[1 : 1 + width], "big")
        content = zlib.decompress(stored[1 + width :], -15 if raw else 15)
        if len(content) != length:
            raise ValueError("a compressed value has another length")
        return content, end

    return read
