"""Dates and moments of MariaDB and MySQL as numbers: what the log holds and what a client is told, alike.

A server stores dates that are none: zeros in place of a month or a day, under some settings days beyond
a month's end. They have no number, which is NULL. The year 0 is one, without a leap day; what the server
itself computes of its first two months is a day off, so dates are read from their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

_FIRST = date(1970, 1, 1).toordinal()
_CYCLE = 146_097
"""Days of 400 years, after which the calendar repeats."""
_ZERO, _ONE, _LAST = -719_528, -719_162, 2_932_896
"""The first days of the years 0 and 1, and the last one of 9999."""
_NO_LEAP_DAY = -719_469
_MICROS = 1_000_000
_DAY = 86_400 * _MICROS


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01; None for a date that is none."""
    if not year and (month, day) == (2, 29):
        return None
    try:
        shift = 0 if year else _CYCLE
        return date(year or 400, month, day).toordinal() - shift - _FIRST
    except ValueError:
        return None


def date_text(number: int) -> str | None:
    """A day as the server writes it; None for one that it cannot have."""
    if number == _NO_LEAP_DAY:
        return None
    if _ZERO <= number < _ONE:
        return (date.fromordinal(number + _CYCLE + _FIRST).isoformat()).replace("0400", "0000", 1)
    if _ONE <= number <= _LAST:
        return date.fromordinal(number + _FIRST).isoformat()
    return None


def moment_text(number: int) -> str | None:
    """A moment as the server writes it; None for one that it cannot have."""
    days, micros = divmod(number, _DAY)
    day, (seconds, parts) = date_text(days), divmod(micros, _MICROS)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{parts:06d}"
    return None if day is None else f"{day} {clock}"


def moment_number(
    year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int
) -> int | None:
    """Microseconds since 1970-01-01 00:00 of the same clock; None for a date that is none."""
    days = day_number(year, month, day)
    if days is None:
        return None
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * _MICROS + micros


def date_of(text: str) -> int | None:
    """The number of a date as the server writes it."""
    return day_number(int(text[:4]), int(text[5:7]), int(text[8:10]))


def moment_of(text: str) -> int | None:
    """The number of a moment as the server writes it."""
    return moment_number(
        int(text[:4]), int(text[5:7]), int(text[8:10]), int(text[11:13]), int(text[14:16]),
        int(text[17:19]), int(text[20:].ljust(6, "0")),
    )  # fmt: skip


def span_of(text: str) -> int:
    """Microseconds of a TIME as the server writes it."""
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, parts = seconds.partition(".")
    micros = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    micros = micros * _MICROS + int(parts.ljust(6, "0"))
    return -micros if text.startswith("-") else micros


def numbers_of(texts: Sequence[str | None], moments: bool) -> tuple[np.ndarray, np.ndarray]:
    """`date_of` or `moment_of` of many texts: numbers, and where there is none."""
    known = np.array([text is not None for text in texts], dtype=bool)
    width = 26 if moments else 10
    filled = [(text or "0000-00-00 00:00:00").ljust(width, "0")[:width] for text in texts]
    digits = np.array([text.encode() for text in filled], dtype=f"S{width}")
    digits = digits.view(np.uint8).reshape(len(filled), width).astype(np.int64) - ord("0")

    def part(begin: int, end: int) -> np.ndarray:
        found = np.zeros(len(filled), np.int64)
        for at in range(begin, end):
            found = found * 10 + digits[:, at]
        return found

    year, month, day = part(0, 4), part(5, 7), part(8, 10)
    leap = (year > 0) & (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    sound = known & (day >= 1) & (day <= lengths[month] + (leap & (month == 2)))
    shifted = year - (month <= 2)  # years begin in March: a leap day is their last
    in_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    numbers = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + in_year - 719_468
    if moments:
        clock = (part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)
        numbers = numbers * _DAY + clock * _MICROS + part(20, 26)
    return numbers, ~sound
