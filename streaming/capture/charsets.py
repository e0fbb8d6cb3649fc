"""Text of every character set that a server has, as the server itself converts it.

A snapshot's texts are converted by the server; the log holds the octets as they are stored. What octets
mean in a character set is MariaDB's and MySQL's own affair: their latin1 is no latin1, and of several
sets Python knows none. So for each set that is no Unicode the server is asked once what each of its
characters is, and texts are read by that table.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from streaming.errors import FrescoError

Ask = Callable[[str], Iterable[tuple[Any, ...]]]
"""The rows of a statement; values as str, int, bytes or None."""
Decode = Callable[[bytes], str]
_UNICODE = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
_TWO = rb"[\x81-\xfe][\x00-\xff]|[\x00-\xff]"
_SHAPES = {
    "big5": _TWO,
    "euckr": _TWO,
    "gb2312": _TWO,
    "gbk": _TWO,
    "sjis": rb"[\x81-\x9f\xe0-\xfc][\x00-\xff]|[\x00-\xff]",
    "cp932": rb"[\x81-\x9f\xe0-\xfc][\x00-\xff]|[\x00-\xff]",
    "ujis": rb"\x8f[\x00-\xff]{2}|[\x8e\xa1-\xfe][\x00-\xff]|[\x00-\xff]",
    "eucjpms": rb"\x8f[\x00-\xff]{2}|[\x8e\xa1-\xfe][\x00-\xff]|[\x00-\xff]",
    "gb18030": rb"[\x81-\xfe][\x30-\x39][\x00-\xff]{2}|[\x81-\xfe][\x00-\xff]|[\x00-\xff]",
}
"""Where one character ends, of sets whose characters have several octets."""
_APPLICABLE = """SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'
 AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"""
_AT_ONCE = 1000
_DIGITS = " UNION ALL ".join(f"SELECT '{digit}' AS d" for digit in "0123456789ABCDEF")


class Charsets:
    """Decoders of a server's character sets, made as columns need them.

    Args:
        ask: puts a statement to the server.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._names: dict[int, str] = {}
        self._decoders: dict[str, Decode] = {}

    def decoder(self, collation: int, column: str) -> Decode:
        """How texts of a column with that collation are read.

        Raises:
            FrescoError: CAPTURE_TEXT, by this and by what it gives; SOURCE_UNREACHABLE.
        """
        if collation not in self._names:
            self._names = self._read_names()
        name = self._names.get(collation)
        if name is None:
            raise unreadable(column, f"has a collation that its server does not name ({collation})")
        if name not in self._decoders:
            self._decoders[name] = self._made(name)
        return partial(_decoded, self._decoders[name], name, column)

    def _read_names(self) -> dict[int, str]:
        """Collation -> its character set; newer MariaDBs number some in another table than others."""
        numbered = "SELECT id, character_set_name FROM information_schema."
        rows = list(self._ask(f"{numbered}collations"))
        if list(self._ask(_APPLICABLE)):
            rows += self._ask(f"{numbered}collation_character_set_applicability")
        return {int(number): str(name) for number, name in rows if number is not None}

    def _made(self, name: str) -> Decode:
        if name in _UNICODE:
            return lambda octets: octets.decode(_UNICODE[name])
        shape = _SHAPES.get(name)
        characters = self._characters(name, "a.d, b.d", "TRUE")
        if shape is None:
            table = "".join(characters.get(bytes([octet]), "\ufffe") for octet in range(256))
            return lambda octets: codecs.charmap_decode(octets, "strict", table)[0]
        characters |= self._characters(name, "a.d, b.d, c.d, d.d", "a.d >= '8'")
        if b"\\x8f" in shape:
            high = "a.d >= 'A' AND c.d >= 'A'"
            characters |= self._characters(name, "'8F', a.d, b.d, c.d, d.d", high)
        return partial(self._by_character, name, re.compile(shape, re.DOTALL), characters)

    def _by_character(
        self, name: str, shape: re.Pattern[bytes], characters: dict[bytes, str], octets: bytes
    ) -> str:
        """A text by its characters; the many of four octets are asked for as they come."""
        codes = shape.findall(octets)
        long = sorted({code for code in codes if len(code) == 4 and code not in characters})
        for begin in range(0, len(long), _AT_ONCE):
            some = long[begin : begin + _AT_ONCE]
            asked = (f"CONVERT(CONVERT(x'{one.hex()}' USING {name}) USING utf8mb4)" for one in some)
            (texts,) = self._ask(f"SELECT {', '.join(asked)}")
            characters |= {c: text for c, text in zip(some, texts, strict=True) if text is not None}
        return "".join([characters[code] for code in codes])

    def _characters(self, name: str, digits: str, where: str) -> dict[bytes, str]:
        """What the octets of these hexadecimal digits are in a character set, where they are text."""
        places = [place for place in "abcd" if f"{place}.d" in digits]
        query = (
            f"WITH digit AS ({_DIGITS}) SELECT CONCAT({digits}) AS code,"
            f" CONVERT(CONVERT(UNHEX(CONCAT({digits})) USING {name}) USING utf8mb4)"
            f" FROM {', '.join(f'digit {place}' for place in places)} WHERE {where}"
        )
        return {bytes.fromhex(code): text for code, text in self._ask(query) if text is not None}


def _decoded(decode: Decode, name: str, column: str, octets: bytes) -> str:
    try:
        return decode(octets)
    except (UnicodeError, KeyError):
        raise unreadable(column, f"is not text in {name}") from None


def unreadable(column: str, why: str) -> FrescoError:
    """A value that cannot be read as text."""
    return FrescoError(
        "CAPTURE_TEXT",
        f"a value of column {column} {why}",
        where=column,
        todo="convert the table: ALTER TABLE ... CONVERT TO CHARACTER SET utf8mb4",
    )
