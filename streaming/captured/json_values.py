"""One column's JSON values as typed values: SQL for DuckDB first, then a finish in Arrow.

DuckDB reads every field of an event as text in one pass over the JSON; here that text is cast by
the column's database type. A cast gives NULL where the text does not fit, so a value is wrong
exactly when the text is there and the value is not. What DuckDB's types would change is finished
in Arrow from the integers that carry it: days and microseconds (DuckDB has infinities of its own),
and decimals that come as base64 of an unscaled integer, whose 16 bytes are Arrow's own form of a
decimal once reversed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, SourceType, source_type
from streaming.scalars.types import arrow_type, decimal_parts, is_decimal

INFINITE_DAYS = {
    2147483647: (-622191234, -622191233, -2147472692),
    -2147483647: (-625821272, -625821271, -2147472691),
}
"""A `date` infinity overflows in Debezium: in the stream, and otherwise in a snapshot, a day later where
the worker's JVM is east of Greenwich (seen with 3.6.1 from UTC-12 to UTC+14). All forms become one day,
the one DuckDB prints as infinity; none is a day that PostgreSQL has."""
DAYS = (-2440588, 2145042905)
"""The days PostgreSQL has, from 1970 on: from 4714 BC to the year 5874897."""
INFINITE_MICROS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""What Debezium sends for the infinities of a `timestamp`; `timestamptz` sends the words."""
MICROS = (-210866803200000000, (1 << 63) - 2)
"""The moments that PostgreSQL has and 64 bits hold, microseconds from 1970 on. Its last ones, from the
year 294247 on, are beyond: Debezium makes of them the last number there is, or one below the first."""


@dataclass(frozen=True)
class Cast:
    """How one column is read.

    Attributes:
        columns: SQL of the values to select, each a function of the text's name; more than one
            where a decimal may come in several forms.
        finish: those columns as one Arrow array of the column's Spark type; where the array is null
            and the text is not, the value does not fit.
    """

    columns: tuple[str, ...]
    finish: Callable[[tuple[pa.Array, ...]], pa.Array]


def _plain(spark: str) -> Callable[[tuple[pa.Array, ...]], pa.Array]:
    wanted = arrow_type(spark)

    def finish(parts: tuple[pa.Array, ...]) -> pa.Array:
        array = parts[0]
        if array.type == wanted:
            return array
        if pa.types.is_temporal(wanted):
            return array.view(wanted)
        return array.cast(wanted)

    return finish


def _base64(text: str) -> str:
    return f"TRY(from_base64({text}))"


def _unscaled(text: str) -> str:
    """16 bytes, big-endian, of a base64 two's complement integer; NULL when it has more."""
    octets = _base64(text)
    sign = f"CASE WHEN hex({octets})[1] >= '8' THEN 'F' ELSE '0' END"
    padded = f"unhex(lpad(hex({octets}), 32, {sign}))"
    return f"CASE WHEN octet_length({octets}) BETWEEN 1 AND 16 THEN {padded} END"


def exact_digits(text: str, precision: int, scale: int) -> str:
    """A decimal written out, only where that keeps every digit."""
    return (
        f"CASE WHEN NOT contains({text}, '.') OR "
        f"length(rtrim({text}, '0')) - strpos({text}, '.') <= {scale} "
        f"THEN TRY_CAST({text} AS DECIMAL({precision},{scale})) END"
    )


def _from_octets(octets: pa.Array, scale: int) -> pa.Array:
    """Decimal(38, scale) from 16-byte big-endian integers; |value| < 10^38 is checked by the
    caller.
    """
    valid = pc.is_valid(octets)
    filled = pc.fill_null(octets, b"\0" * 16).cast(pa.binary(16))
    start = filled.offset * 16
    joined = np.frombuffer(filled.buffers()[1], dtype=np.uint8)[start : start + 16 * len(filled)]
    reversed_ = np.ascontiguousarray(joined.reshape(-1, 16)[:, ::-1])
    array = pa.Array.from_buffers(
        pa.decimal128(38, scale), len(octets), [None, pa.py_buffer(reversed_)]
    )
    bound = pa.scalar(10**38 - 1, pa.decimal128(38, 0))
    units = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(octets), [None, pa.py_buffer(reversed_)]
    )
    inside = pc.and_(pc.less_equal(units, bound), pc.greater_equal(units, pc.negate(bound)))
    return pc.if_else(pc.and_(valid, inside), array, pa.scalar(None, array.type))


def _rescaled(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same numbers in another decimal type; null where that would change one."""
    scale = array.type.scale
    step = wanted.scale - scale
    whole = wanted.precision - wanted.scale
    wide = array.cast(pa.decimal256(76, scale))
    if whole + scale < 38:
        limit = pa.scalar(Decimal(10) ** whole, wide.type)
        fits = pc.and_(pc.less(wide, limit), pc.greater(wide, pc.negate(limit)))
        wide = pc.if_else(fits, wide, pa.scalar(None, wide.type))
    moved = wide.cast(pa.decimal256(76, wanted.scale), safe=step >= 0)
    if step < 0:
        same = pc.equal(moved.cast(wide.type), wide)
        moved = pc.if_else(same, moved, pa.scalar(None, moved.type))
    return moved.cast(wanted)


def _decimal(spark: str, scale: int) -> Callable[[tuple[pa.Array, ...]], pa.Array]:
    wanted = arrow_type(spark)

    def finish(parts: tuple[pa.Array, ...]) -> pa.Array:
        written, octets = parts
        if octets.null_count == len(octets):
            return written
        return pc.coalesce(written, _rescaled(_from_octets(octets, scale), wanted))

    return finish


def _variable(spark: str) -> Callable[[tuple[pa.Array, ...]], pa.Array]:
    wanted = arrow_type(spark)

    def finish(parts: tuple[pa.Array, ...]) -> pa.Array:
        written, octets, scales = parts
        result = written
        for scale in pc.unique(scales.drop_null()).to_pylist():
            if 0 <= scale <= 38:
                nothing = pa.scalar(None, octets.type)
                chosen = pc.if_else(pc.equal(scales, scale), octets, nothing)
                result = pc.coalesce(result, _rescaled(_from_octets(chosen, scale), wanted))
        return result

    return finish


def _timestamp_columns(text: str, parts: SourceType) -> str:
    if parts.base.startswith("timestamptz") or parts.base.endswith("with time zone"):
        words = " ".join(f"WHEN '{word}' THEN {at}" for word, at in INFINITE_MICROS.items())
        moment = f"epoch_us(TRY_CAST(ltrim({text}, '+') AS TIMESTAMPTZ))"
        return f"CASE {text} {words} ELSE {moment} END"
    micros = f"TRY_CAST({text} AS BIGINT)"
    if parts.arguments and parts.arguments[0] <= 3:
        micros = f"TRY({micros} * 1000)"
    return (
        f"CASE WHEN {micros} BETWEEN {MICROS[0]} AND {MICROS[1]} "
        f"OR {micros} = {INFINITE_MICROS['-infinity']} "
        f"THEN {micros} END"
    )


def _days(text: str) -> str:
    days = f"TRY_CAST({text} AS INTEGER)"
    cases = " ".join(
        f"WHEN {form} THEN {day}" for day, forms in INFINITE_DAYS.items() for form in (day, *forms)
    )
    least, most = DAYS
    finite = f"CASE WHEN {days} BETWEEN {least} AND {most} THEN {days} END"
    return f"CASE {days} {cases} ELSE {finite} END"


def _unsigned(text: str) -> str:
    """A BIGINT UNSIGNED, which Debezium writes as the signed number of the same 64 bits."""
    signed = f"CAST(TRY_CAST({text} AS BIGINT) AS HUGEINT)"
    wrapped = f"{signed} + CASE WHEN {signed} < 0 THEN 18446744073709551616 ELSE 0 END"
    return f"CASE WHEN NOT contains({text}, '.') THEN CAST({wrapped} AS DECIMAL(20,0)) END"


def _big_endian(size: int) -> Callable[[tuple[pa.Array, ...]], pa.Array]:
    """A BIT(n), which comes with its lowest byte first, as the database shows it."""

    def finish(parts: tuple[pa.Array, ...]) -> pa.Array:
        values = [
            None if value is None or len(value) > size else value[::-1].rjust(size, b"\0")
            for value in parts[0].to_pylist()
        ]
        return pa.array(values, pa.binary())

    return finish


_INTEGERS = {"smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}


def cast(text: str, spark: str, database: str, decimals: str) -> Cast:
    """How to read a column of type `spark` (`database` at the source) from the SQL name `text`."""
    parts = source_type(database)
    plain = _plain(spark)
    if spark in _INTEGERS:
        # A cast from text rounds, so a retyped column's 1.5 must be caught before.
        whole = (
            f"CASE WHEN NOT contains({text}, '.') THEN TRY_CAST({text} AS {_INTEGERS[spark]}) END"
        )
        return Cast((whole,), plain)
    if parts.base == "bigint unsigned":
        return Cast((_unsigned(text),), plain)
    if parts.base == "bits":
        return Cast((_base64(text),), _big_endian((parts.arguments[0] + 7) // 8))
    if is_decimal(spark) and not parts.arguments:
        precision, scale = decimal_parts(spark) or (38, 18)
        written = f"CASE WHEN {text}[1] <> '{{' THEN {exact_digits(text, precision, scale)} END"
        octets = f"CASE WHEN {text}[1] = '{{' THEN {_unscaled(f'({text} ->> $$$.value$$)')} END"
        scales = f"CASE WHEN {text}[1] = '{{' THEN TRY_CAST({text} ->> $$$.scale$$ AS INTEGER) END"
        return Cast((written, octets, scales), _variable(spark))
    if is_decimal(spark):
        precision, scale = decimal_parts(spark) or (38, 0)
        if decimals == "string":
            return Cast((exact_digits(text, precision, scale),), plain)
        if scale == 0:
            return Cast(("NULL", _unscaled(text)), _decimal_only(spark))
        written = f"CASE WHEN contains({text}, '.') THEN {exact_digits(text, precision, scale)} END"
        octets = f"CASE WHEN NOT contains({text}, '.') THEN {_unscaled(text)} END"
        return Cast((written, octets), _decimal(spark, scale))
    match spark:
        case "float" | "double":
            return Cast((f"TRY_CAST({text} AS {spark.upper()})",), plain)
        case "boolean":
            return Cast((f"CASE {text} WHEN 'true' THEN true WHEN 'false' THEN false END",), plain)
        case "string":
            return Cast((text,), plain)
        case "binary":
            return Cast((_base64(text),), plain)
        case "date":
            return Cast((_days(text),), plain)
    return Cast((_timestamp_columns(text, parts),), plain)


def _decimal_only(spark: str) -> Callable[[tuple[pa.Array, ...]], pa.Array]:
    wanted = arrow_type(spark)
    return lambda parts: _rescaled(_from_octets(parts[1], 0), wanted)


def casts(captured: CapturedRelation, prefix: str) -> tuple[Cast, ...]:
    """The casts of all columns, whose texts are named `<prefix>0`, `<prefix>1`, ..."""
    pairs = zip(captured.relation.schema, captured.source_types, strict=True)
    return tuple(
        cast(f"{prefix}{position}", column.type, database, captured.decimals)
        for position, (column, database) in enumerate(pairs)
    )
