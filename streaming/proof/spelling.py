"""How a proof writes a value: as Spark writes it, whatever Python can hold.

Python's dates end at the year 9999 and begin at 1; Spark's and the databases' do not (infinities come
as far years). Days and microseconds are counted here in the proleptic Gregorian calendar, as Spark does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Schema

_MICROS = 86_400_000_000
_TEMPORAL = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}


def spelled(column: pa.ChunkedArray | pa.Array, type_: str) -> list[Any]:
    """A column's values; a date or timestamp as Spark's text of it ("0044-03-15", "+10000-01-01")."""
    whole = _TEMPORAL.get(type_)
    if whole is None:
        return list(column.to_pylist())
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    write = _day if type_ == "date" else _moment
    return [
        None if value is None else write(value)
        for chunk in chunks
        for value in chunk.view(whole).to_pylist()
    ]


def spelled_rows(rows: pa.Table, schema: Schema) -> list[tuple[Any, ...]]:
    """A table's rows, its columns those of the schema by position."""
    columns = [spelled(rows.column(at), one.type) for at, one in enumerate(schema)]
    return list(zip(*columns, strict=True)) if columns else []


def _moment(micros: int) -> str:
    """Microseconds since 1970 as Spark's text, in UTC."""
    days, left = divmod(micros, _MICROS)
    seconds, fraction = divmod(left, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_day(days)} {clock}" + (f".{fraction:06}".rstrip("0") if fraction else "")


def _day(days: int) -> str:
    """Days since 1970 as Spark's text; year 0 is 1 BC."""
    era, day_of_era = divmod(days + 719_468, 146_097)  # eras of 400 years, from 0000-03-01
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months from March
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"
