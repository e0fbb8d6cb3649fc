"""CAST: the conversions that give the same value in Spark, DuckDB and Python, and no others.

Literals are converted here once, when the view is read, so that no engine's parser of texts, dates
or numbers has a say in a view's result. Spark's rules are those of its ANSI mode: decimals round
half up, decimals to integers are cut towards zero, and what does not fit is an error.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from decimal import Decimal, InvalidOperation

from streaming.errors import FrescoError
from streaming.scalars import exact
from streaming.scalars.expression import Call, Lit, Scalar
from streaming.scalars.types import (
    DIGITS,
    INTEGRALS,
    NULL,
    decimal_parts,
    duck_type,
    is_decimal,
    precision_scale,
)

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)?"
)
_INTEGRAL = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPACE = " \t\n\r\f\v"


def cast(value: Scalar, type_: str) -> Scalar:
    """The value as `type_`: itself, a folded literal, or a Call("cast").

    Raises:
        FrescoError: SQL_FUNCTION_UNSUPPORTED for a conversion whose result engines disagree about,
            SQL_LITERAL for a literal that is not one of the type.
    """
    if value.type == type_:
        return value
    if isinstance(value, Lit):
        return Lit(literal(value, type_), type_)
    if not exists(value.type, type_):
        raise FrescoError(
            "SQL_FUNCTION_UNSUPPORTED",
            f"CAST of {value.type} to {type_} is not supported",
            todo="its result differs between engines or depends on a time zone; keep "
            f"the column as {value.type} in the view and convert it where it is read",
        )
    return Call("cast", (value,), type_)


def exists(source: str, target: str) -> bool:
    """Whether a column of type `source` can be cast to `target` with one meaning everywhere."""
    if source in (target, NULL):
        return True
    if source in INTEGRALS:
        if target == "float":
            return source != "bigint"
        return target in INTEGRALS or target in ("string", "double") or is_decimal(target)
    if is_decimal(source):
        return target in INTEGRALS or target in ("string", "double") or is_decimal(target)
    if source == "boolean":
        return target in INTEGRALS or target == "string"
    return (source, target) in {
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("timestamp_ntz", "date"),
    }


def injective(source: str, target: str) -> bool:
    """Whether the cast never maps two values to one, so that a key stays a key."""
    if source == target:
        return True
    if source in INTEGRALS and target in INTEGRALS:
        return INTEGRALS.index(source) <= INTEGRALS.index(target)
    widened = decimal_parts(target)
    if widened and (source in INTEGRALS or is_decimal(source)):
        digits = {"tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (19, 0)}
        precision, scale = decimal_parts(source) or digits[source]
        return widened[1] >= scale and widened[0] - widened[1] >= precision - scale
    return target == "string" and (source in INTEGRALS or source == "boolean" or is_decimal(source))


def literal(value: Lit, type_: str) -> object:
    """A literal's value in another type.

    Raises:
        FrescoError: SQL_LITERAL when there is none.
    """
    if value.value is None:
        return None
    try:
        return _literal(value.value, value.type, type_)
    except (ValueError, InvalidOperation, KeyError) as problem:
        raise FrescoError(
            "SQL_LITERAL",
            f"{value.value!r} is not a literal of type {type_}",
            todo="write dates as 2024-01-31, timestamps as 2024-01-31 12:00:00 (UTC), "
            "numbers with digits and a point",
        ) from problem


def _literal(value: object, source: str, type_: str) -> object:
    if isinstance(value, str):
        return _parsed(value.strip(_SPACE) if type_ != "string" else value, type_)
    if not exists(source, type_) and not (source == "double" and type_ == "float"):
        raise ValueError(type_)
    return convert(value, source, type_)


def _parsed(text: str, type_: str) -> object:
    if type_ == "string":
        return text
    if type_ in INTEGRALS and _INTEGRAL.fullmatch(text) and len(text) < 40:
        return exact.to_integral(int(text), type_)
    if is_decimal(type_) and _NUMBER.fullmatch(text):
        return exact.to_decimal(Decimal(text), type_)
    if type_ == "double" and _NUMBER.fullmatch(text):
        return float(text)
    if type_ == "boolean":
        return {"true": True, "false": False}[text.lower()]
    if type_ == "date" and _DATE.fullmatch(text):
        return datetime.date.fromisoformat(text)
    if type_ in ("timestamp", "timestamp_ntz"):
        moment = text + " 00:00:00" if _DATE.fullmatch(text) else text
        if _TIMESTAMP.fullmatch(moment):
            return _moment(datetime.datetime.fromisoformat(moment), type_)
    raise ValueError(text)


def _moment(moment: datetime.datetime, type_: str) -> datetime.datetime:
    if type_ == "timestamp_ntz":
        if moment.tzinfo is not None:
            raise ValueError("a zone in a timestamp without one")
        return moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=datetime.UTC)
    return moment.astimezone(datetime.UTC)


def convert(value: object, source: str, type_: str) -> object:
    """Python's meaning of CAST for the pairs of `exists`; None stays None.

    Raises:
        FrescoError: VALUE_OVERFLOW.
    """
    if value is None or source == type_:
        return value
    if type_ == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Decimal):
            return f"{exact.to_decimal(value, source):f}"
        return str(value)
    if type_ in INTEGRALS:
        assert isinstance(value, int | Decimal)
        return exact.to_integral(int(value), type_)
    if is_decimal(type_):
        assert isinstance(value, int | Decimal)
        return exact.to_decimal(value, type_)
    if type_ == "double":
        assert isinstance(value, int | float | Decimal)
        return float(value)
    if type_ == "float":
        assert isinstance(value, int | float)
        return single(value)
    if type_ == "date":
        assert isinstance(value, datetime.datetime)
        return value.date()
    assert isinstance(value, datetime.date)
    return datetime.datetime(value.year, value.month, value.day)


def single(value: float) -> float:
    """The nearest 32-bit float, as a Python float."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def can_fail(source: str, target: str) -> bool:
    """Whether some value of `source` has no `target`."""
    if target == source or NULL in (source, target):
        return False
    if source == "date":
        return target == "timestamp_ntz"
    if source in INTEGRALS and target in INTEGRALS:
        return INTEGRALS.index(source) > INTEGRALS.index(target)
    if is_decimal(source) and target in INTEGRALS:
        precision, scale = precision_scale(source)
        return precision - scale >= DIGITS[target] - (target == "bigint")
    if (source in INTEGRALS or is_decimal(source)) and is_decimal(target):
        (p1, s1), (p2, s2) = precision_scale(source), precision_scale(target)
        if source == "bigint":
            p1 -= 1
        return p1 - s1 + (s1 > s2) > p2 - s2
    return False


def duck_cast(value: str, source: str, type_: str) -> str:
    """DuckDB text of the cast, NULL where it has no value; DuckDB rounds decimals half away from zero
    as Spark does."""
    if is_decimal(source) and type_ in INTEGRALS:
        value = f"trunc({value})"
    parts = decimal_parts(source)
    if parts and type_ == "double" and parts[0] > 15:
        # DuckDB divides the unscaled value as a double; beyond 2^53 only the text is exact.
        return f"CAST(CAST({value} AS VARCHAR) AS DOUBLE)"
    return f"{'TRY_' if can_fail(source, type_) else ''}CAST({value} AS {duck_type(type_)})"
