"""Rows of a log by their octets: what their columns say, or a refusal before anything is told."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import pytest
from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.ask.mariadb.mysql_dates import date_of, date_text, moment_of, moment_text, numbers_of
from streaming.capture.json_binary import json_text
from streaming.capture.log_values import decimal_reader, reader_of, rows_of
from streaming.capture.table_map import LoggedColumn, packed, read_table_map
from streaming.errors import FrescoError


def read(column: LoggedColumn, octets: bytes) -> Any:
    """A value whose octets are all used."""
    value, end = reader_of(column)(octets, 0)
    assert end == len(octets)
    return value


@pytest.mark.parametrize(
    ("column", "octets", "value"),
    [
        (LoggedColumn("a", T.TINY, unsigned=True), "ff", 255),
        (LoggedColumn("a", T.INT24), "ffff7f", 8388607),
        (LoggedColumn("a", T.INT24), "000080", -8388608),
        (LoggedColumn("a", T.YEAR), "00", 0),
        (LoggedColumn("a", T.YEAR), "ff", 2155),
        (LoggedColumn("a", T.TIME2, 1), "7ffffff6", -100_000),
        (LoggedColumn("a", T.TIME2, 3), "7fffffec78", -500_000),
        (LoggedColumn("a", T.TIME2, 6), "800000000001", 1),
        (LoggedColumn("a", T.BIT, 9), "0101", 257),
        (LoggedColumn("a", T.VARCHAR, 255), "0161", b"a"),
        (LoggedColumn("a", T.VARCHAR, 256), "010061", b"a"),
    ],
)
def test_values_are_read_by_their_column(column: LoggedColumn, octets: str, value: Any) -> None:
    assert read(column, bytes.fromhex(octets)) == value


def packed_decimal(unscaled: int, precision: int, scale: int) -> bytes:
    """As a server packs it: groups of nine digits from the point on, both ways."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    digits = str(abs(unscaled)).rjust(precision, "0")
    before, after = digits[: precision - scale], digits[precision - scale :]
    head = len(before) % 9
    groups = [before[:head]] + [before[at : at + 9] for at in range(head, len(before), 9)]
    groups += [after[at : at + 9] for at in range(0, len(after), 9)]
    octets = bytearray(b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g))
    octets[0] |= 0x80
    return bytes(o ^ 0xFF for o in octets) if unscaled < 0 else bytes(octets)


def test_decimals_of_every_precision_and_scale() -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    for precision in range(1, 39):
        for scale in range(min(precision, 30) + 1):
            for unscaled in (10**precision - 1, 1, 0, chance.randrange(10**precision)):
                for sign in (1, -1):
                    value = Decimal(f"{sign * unscaled}e-{scale}")
                    octets = packed_decimal(sign * unscaled, precision, scale)
                    assert decimal_reader(precision, scale)(octets, 0) == (value, len(octets))


def test_days_and_moments_have_one_number_each_way() -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    days = [-719_528, -719_162, 2_932_896, -719_470, -719_468] + [
        chance.randint(-719_162, 2_932_896) for _ in range(2000)
    ]
    texts = [date_text(day) for day in days]
    assert [date_of(text or "") for text in texts] == days
    numbers, nothing = numbers_of(texts, moments=False)
    assert numbers.tolist() == days and not nothing.any()
    moments = [day * 86_400_000_000 + chance.randrange(86_400_000_000) for day in days]
    told = [moment_text(moment) for moment in moments]
    assert [moment_of(text or "") for text in told] == moments
    numbers, nothing = numbers_of(told, moments=True)
    assert numbers.tolist() == moments and not nothing.any()
    assert [date_text(day) for day in (-719_529, -719_469, 2_932_897)] == [None] * 3
    none = ["0000-00-00", "2024-02-30", "2023-02-29", "0000-02-29", "2024-13-01", None]
    assert numbers_of(none[:4] + none[5:], moments=False)[1].all()
    assert [date_of(text) for text in none if text] == [None] * 5


COLUMNS = (LoggedColumn("a", T.LONG), LoggedColumn("b", T.VARCHAR, 9))


def event(rows: bytes, present: int = 3) -> bytes:
    return bytes([2, present]) + rows


def test_rows_that_are_not_what_the_log_says_of_them_are_refused() -> None:
    row = b"\0" + struct.pack("<i", 7) + b"\x01x"
    assert rows_of(event(row * 2), 0, COLUMNS, False, "here") == [((7, b"x"), None)] * 2
    assert rows_of(event(row, present=1), 0, COLUMNS, False, "here") is None
    for wrong in (row[:-1], row + b"\0", row + b"\0\x01", bytes([3]) + b"\0" * 9):
        with pytest.raises(FrescoError, match="CAPTURE_ROWS"):
            rows_of(event(wrong), 0, COLUMNS, False, "here")
    with pytest.raises(FrescoError, match=r"CAPTURE_ROWS.*3 columns instead of 2"):
        rows_of(bytes([3, 7]) + row, 0, COLUMNS, False, "here")


def test_a_type_that_is_not_known_is_refused_by_its_column() -> None:
    body = bytes(8) + b"\x04bank\0" + b"\x05entry\0" + bytes([2, 3, 99]) + b"\0" + b"\0"
    assert read_table_map(body, frozenset(), True)[1].columns == ()
    with pytest.raises(FrescoError, match=r"CAPTURE_TYPE.*column 2 of bank\.entry.*\(99\)"):
        read_table_map(body, frozenset({("bank", "entry")}), True)


def test_numbers_of_the_protocol_have_four_lengths() -> None:
    for octets, number in (
        ("fa", 250),
        ("fc0102", 513),
        ("fd010000", 1),
        ("fe" + "01" * 8, 0x0101010101010101),
    ):
        assert packed(bytes.fromhex(octets), 0) == (number, len(octets) // 2)


def test_json_of_no_octets_is_null_and_a_type_that_is_not_known_is_no_value() -> None:
    assert json_text(b"") == "null"
    with pytest.raises(ValueError, match="type 13"):
        json_text(b"\x0d\0")
