"""Values as people and programs see them, whatever Python can hold.

Python's dates end at the year 9999 and begin at 1, its times end before 24:00, its moments have no
nanoseconds; Arrow's, Spark's and the databases' do not. So days and moments are never made Python's:
they are counted here in the proleptic Gregorian calendar, as Spark and the databases count, and written
as Spark writes them (`-0043-03-15`, `+10000-01-01`, moments with a zone in UTC). PostgreSQL's infinities,
which come as a day and a moment farther than any that it has, are written as their words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_DAYS = {2147483647: "infinity", -2147483647: "-infinity"}
"""The days that stand for a date's infinities, everywhere behind the decoding; DuckDB's too."""
_WORDS = {
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
    9223372036854775807: "infinity",
    -9223372036854775807: "-infinity",
}
"""The same of moments: microseconds since 1970, as Debezium sends them of a `timestamp`; DuckDB's own."""
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400


def values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values as Python's, days, moments and times of day as texts, inside of others too."""
    kind = column.type
    write = _writer(kind)
    if write is not None:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [
            None if value is None else write(value)
            for chunk in chunks
            for value in chunk.view(whole).to_pylist()
        ]
    if not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        return list(column.to_pylist())
    return [value(scalar) for scalar in column]


def value(scalar: pa.Scalar) -> Any:
    """One value, as in `values`."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if (write := _writer(kind)) is not None:
        return write(scalar.value)
    if pa.types.is_dictionary(kind):
        return value(scalar.dictionary[scalar.index.as_py()])
    if pa.types.is_map(kind):
        return [(value(one["key"]), value(one["value"])) for one in scalar.values]
    if isinstance(scalar, pa.ListScalar):  # of every kind of list
        return [value(one) for one in scalar.values]
    if pa.types.is_struct(kind):
        return {name: value(scalar[at]) for at, name in enumerate(kind.names)}
    if pa.types.is_union(kind):
        return value(scalar.value)
    return scalar.as_py()


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """A table's rows of such values; two of its columns may have one name."""
    columns = [values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def in_json(given: Any) -> Any:
    """A value of `values` as JSON has it: floats that are no numbers as Debezium writes them, the
    rest that JSON has not as text.
    """
    if isinstance(given, float) and not math.isfinite(given):
        return "NaN" if math.isnan(given) else "Infinity" if given > 0 else "-Infinity"
    if isinstance(given, dict):
        return {name: in_json(one) for name, one in given.items()}
    if isinstance(given, list | tuple):
        return [in_json(one) for one in given]
    return given if given is None or isinstance(given, bool | int | float | str) else str(given)


def _writer(kind: pa.DataType) -> Callable[[int], str] | None:
    """How the whole numbers of a type are written; None of a type that Python holds."""
    if pa.types.is_date32(kind):
        return day
    if pa.types.is_date64(kind):
        return lambda ms: day(ms // (1000 * _DAY))
    if pa.types.is_timestamp(kind):
        unit, zone = kind.unit, "" if kind.tz is None else "+00:00"
        return lambda units: moment(units, unit, zone)
    if pa.types.is_time(kind):
        unit = kind.unit
        return lambda units: _clock(units, unit)
    return None


def moment(units: int, unit: str = "us", zone: str = "") -> str:
    """Units since 1970 as Spark's text, in UTC."""
    if unit == "us" and units in _WORDS:
        return _WORDS[units]
    days, left = divmod(units, _DAY * _PER_SECOND[unit])
    return f"{day(days)} {_clock(left, unit)}{zone}"


def _clock(units: int, unit: str) -> str:
    seconds, fraction = divmod(units, _PER_SECOND[unit])
    digits = len(str(_PER_SECOND[unit])) - 1
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return clock + (f".{fraction:0{digits}}".rstrip("0") if fraction else "")


def day(days: int) -> str:
    """Days since 1970 as Spark's text; year 0 is 1 BC."""
    if days in _DAYS:
        return _DAYS[days]
    era, day_of_era = divmod(days + 719_468, 146_097)  # eras of 400 years, from 0000-03-01
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months from March
    day_of_month = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day_of_month:02}"
