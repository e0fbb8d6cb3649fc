"""MySQL's binary JSON as the text that the server makes of it.

The layout is that of MySQL's json_binary.h: a value is a type and its content; objects and arrays begin
with how many members they have and how long they are, then of each key its place and length, then of each
member its type and its place, or itself where it is short. What JSON has no literal for (a decimal, a
date, octets) stands as it was stored, and is written as MySQL writes it.
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.capture.log_values import decimal_reader

_LITERALS = ("null", "true", "false")
_WHOLE = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_MOST_DIGITS = 15
_SHORT = (4, 5, 6)
_SHORT_IN_LARGE = (*_SHORT, 7, 8)


def json_text(data: bytes) -> str:
    """The text of a value; of no octets at all JSON's null, as the server reads it."""
    return _value(data[0], data, 1) if data else "null"


def _value(type_: int, data: bytes, at: int) -> str:
    """The value of a type whose content begins at a place."""
    match type_:
        case 0 | 1 | 2 | 3:
            return _members(data, at, large=type_ % 2 == 1, keyed=type_ < 2)
        case 4:
            return _LITERALS[data[at]]
        case 11:
            return _double(*struct.unpack_from("<d", data, at))
        case 12:
            length, at = _length(data, at)
            return _quoted(data[at : at + length].decode())
        case 15:
            length, begin = _length(data, at + 1)
            return _opaque(data[at], data[begin : begin + length])
    if type_ not in _WHOLE:
        raise ValueError(f"JSON of type {type_} is not known")
    return str(struct.unpack_from(_WHOLE[type_], data, at)[0])


def _members(data: bytes, base: int, large: bool, keyed: bool) -> str:
    """An object or an array; places count from its beginning."""
    number, size = ("<I", 4) if large else ("<H", 2)

    def read(at: int) -> int:
        return int(struct.unpack_from(number, data, at)[0])

    count = read(base)
    at = base + 2 * size
    keys = []
    if keyed:
        for _ in range(count):
            begin, length = base + read(at), struct.unpack_from("<H", data, at + size)[0]
            keys.append(_quoted(data[begin : begin + length].decode()))
            at += size + 2
    values = []
    for _ in range(count):
        inline = data[at] in (_SHORT_IN_LARGE if large else _SHORT)
        values.append(_value(data[at], data, at + 1 if inline else base + read(at + 1)))
        at += 1 + size
    if keyed:
        return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first."""
    length = shift = 0
    while True:
        octet, at = data[at], at + 1
        length |= (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            return length, at


def _quoted(text: str) -> str:
    """A string as MySQL writes it: control characters escaped, nothing else beyond ASCII."""
    return json.dumps(text, ensure_ascii=False)


def _double(value: float) -> str:
    """The shortest digits that mean the value, with an exponent from 10^15 on and below 10^-15."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent)  # as 0.DIGITS times ten to this power
    if value == 0 or -_MOST_DIGITS < point <= _MOST_DIGITS:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{point - 1}"


def _opaque(type_: int, content: bytes) -> str:
    match type_:
        case T.NEWDECIMAL:
            return f"{decimal_reader(content[0], content[1])(content, 2)[0]:f}"
        case T.DATE | T.DATETIME | T.TIMESTAMP | T.TIME:
            return _quoted(_moment(type_, *struct.unpack("<q", content)))
    return _quoted(f"base64:type{type_}:{base64.b64encode(content).decode()}")


def _moment(type_: int, stored: int) -> str:
    """MySQL's packed moment: year * 13 + month, day, hour, minute, second, 24 bits of microseconds."""
    sign, stored = ("-", -stored) if stored < 0 else ("", stored)
    micros, whole = stored & 0xFFFFFF, stored >> 24
    time: Any = f"{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    if type_ == T.TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02d}:{time}"
    days, months = whole >> 17 & 31, whole >> 22
    day = f"{months // 13:04d}-{months % 13:02d}-{days:02d}"
    return day if type_ == T.DATE else f"{day} {whole >> 12 & 31:02d}:{time}"
