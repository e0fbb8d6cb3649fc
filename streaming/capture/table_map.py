"""How a log describes a table before its rows: names, types, character sets and labels of the columns.

The layout is that of MySQL's and MariaDB's TABLE_MAP event. Beside the types stand blocks of optional
metadata (binlog_row_metadata=FULL), each with its number and its length; a block that is not needed is
passed over. Of a type that is not known the length of its description is not known either, so a table
that has one cannot be read: it is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.capture.log_events import Table
from streaming.errors import FrescoError

BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR = 140, 141, 242
"""MariaDB's COMPRESSED columns, and MySQL's VECTOR."""
BINARY = 63
"""The collation of octets that are no text."""
_WIDTHS = {
    **dict.fromkeys((T.TINY, T.SHORT, T.LONG, T.NULL, T.TIMESTAMP, T.LONGLONG, T.INT24), 0),
    **dict.fromkeys((T.DATE, T.TIME, T.DATETIME, T.YEAR, T.NEWDATE), 0),
    **dict.fromkeys((T.FLOAT, T.DOUBLE, T.TIMESTAMP2, T.DATETIME2, T.TIME2), 1),
    **dict.fromkeys((T.BLOB, T.GEOMETRY, T.JSON, BLOB_COMPRESSED, VECTOR), 1),
    **dict.fromkeys((T.VARCHAR, T.VAR_STRING, T.STRING, T.BIT, T.NEWDECIMAL), 2),
    VARCHAR_COMPRESSED: 2,
}
"""Octets of a type's description."""
_NUMBERS = (T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.NEWDECIMAL, T.FLOAT, T.DOUBLE)
_TEXTS = (T.STRING, T.VAR_STRING, T.VARCHAR, T.BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED)
_LABELLED = (T.ENUM, T.SET)
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SET_LABELS, _ENUM_LABELS = range(1, 7)
_LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS = 10, 11


@dataclass(frozen=True)
class LoggedColumn:
    """A column as the log describes it.

    Attributes:
        name: "" where the log does not say it.
        type: of the values in rows.
        first, second: what the type says beside its number: a length, digits and scale, bits.
        collation: the number of its collation, 0 where it has none.
        labels: of an ENUM or a SET, in its character set.
    """

    name: str
    type: int
    first: int = 0
    second: int = 0
    unsigned: bool = False
    collation: int = 0
    labels: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class TableMap:
    """A table; the columns are empty where nobody wants its rows."""

    table: Table
    columns: tuple[LoggedColumn, ...] = ()


def read_table_map(body: bytes, wanted: frozenset[Table], mariadb: bool) -> tuple[int, TableMap]:
    """The number that rows call the table by, and its description.

    Args:
        body: the event without its header and checksum.

    Raises:
        FrescoError: CAPTURE_TYPE.
    """
    number = int.from_bytes(body[:6], "little")
    schema, at = _name(body, 8)
    name, at = _name(body, at)
    table = schema.decode(), name.decode()
    if table not in wanted:
        return number, TableMap(table)
    count, at = packed(body, at)
    types = body[at : at + count]
    length, at = packed(body, at + count)
    described = list(_described(types, body[at : at + length], table))
    at += length + (count + 7) // 8
    blocks = dict(_blocks(body, at))
    return number, TableMap(table, _columns(described, blocks, mariadb))


def _name(body: bytes, at: int) -> tuple[bytes, int]:
    """A name with its length before it and a zero behind it."""
    end = at + 1 + body[at]
    return body[at + 1 : end], end + 1


def _described(types: bytes, said: bytes, table: Table) -> Iterator[tuple[int, int, int]]:
    """Of each column the type of its values, and what is said of it."""
    at = 0
    for position, type_ in enumerate(types, 1):
        width = _WIDTHS.get(type_)
        if width is None:
            raise FrescoError(
                "CAPTURE_TYPE",
                f"column {position} of {'.'.join(table)} has a type that is not known in a log"
                f" ({type_})",
                where=".".join(table),
                todo="give the column another type, or leave the table out of the capture, and capture"
                " under another prefix in a new pipeline",
            )
        first, second = (*said[at : at + width], 0, 0)[:2]
        at += width
        if type_ in (T.VARCHAR, VARCHAR_COMPRESSED):
            first, second = first | second << 8, 0
        elif type_ in (T.STRING, T.VAR_STRING):
            if first in _LABELLED:
                type_, first, second = first, second, 0
            else:  # two bits of the length stand beside the type
                first, second = ((first & 0x30) ^ 0x30) << 4 | second, 0
        elif type_ == T.BIT:
            first, second = first + 8 * second, 0
        yield type_, first, second


def _blocks(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        length, at = packed(body, at + 1)
        yield kind, body[at : at + length]
        at += length


def _columns(
    described: list[tuple[int, int, int]], blocks: dict[int, bytes], mariadb: bool
) -> tuple[LoggedColumn, ...]:
    count = len(described)
    types = [type_ for type_, _, _ in described]
    names = [name.decode() for name in _strings(blocks.get(_NAMES, b""))] or [""] * count
    unsigned, collations = [False] * count, [0] * count
    labels: list[tuple[bytes, ...]] = [()] * count
    signs = blocks.get(_SIGNS, b"")
    for nth, at in enumerate(at for at in range(count) if types[at] in _NUMBERS):
        unsigned[at] = bool(signs and signs[nth // 8] & 0x80 >> nth % 8)
    texts = (*_TEXTS, T.GEOMETRY) if mariadb else _TEXTS
    for wanted, default, every in (
        (texts, _DEFAULT_CHARSET, _CHARSETS),
        (_LABELLED, _LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS),
    ):
        places = [at for at in range(count) if types[at] in wanted]
        for at, collation in zip(
            places, _collations(blocks, default, every, len(places)), strict=True
        ):
            collations[at] = collation
    for type_, block in ((T.SET, _SET_LABELS), (T.ENUM, _ENUM_LABELS)):
        lists = _label_lists(blocks.get(block, b""))
        for at, found in zip(
            (at for at in range(count) if types[at] == type_), lists, strict=False
        ):
            labels[at] = found
    return tuple(
        LoggedColumn(names[at], *described[at], unsigned[at], collations[at], labels[at])
        for at in range(count)
    )


def _collations(blocks: dict[int, bytes], default: int, every: int, count: int) -> list[int]:
    """One for each column: all of them, or a usual one and where another stands."""
    if every in blocks:
        return _numbers(blocks[every])
    usual, *others = _numbers(blocks.get(default, b"")) or [0]
    found = [usual] * count
    for nth, collation in zip(others[::2], others[1::2], strict=True):
        found[nth] = collation
    return found


def _numbers(block: bytes) -> list[int]:
    found, at = [], 0
    while at < len(block):
        number, at = packed(block, at)
        found.append(number)
    return found


def _strings(block: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(block):
        length, at = packed(block, at)
        found.append(block[at : at + length])
        at += length
    return found


def _label_lists(block: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(block):
        count, at = packed(block, at)
        labels = []
        for _ in range(count):
            length, at = packed(block, at)
            labels.append(block[at : at + length])
            at += length
        found.append(tuple(labels))
    return found


def packed(data: bytes, at: int) -> tuple[int, int]:
    """A number of the protocol's variable length, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def missing_names(columns: tuple[LoggedColumn, ...]) -> bool:
    """Whether the log says no names: binlog_row_metadata is not FULL."""
    return any(not column.name for column in columns)
