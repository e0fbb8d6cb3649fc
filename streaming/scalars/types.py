"""Types: Spark's are the law; here are their names elsewhere and Spark's rules for results.

A type is Spark's simple string ("decimal(18,2)"). The rules are those of Spark 4 in ANSI mode (its
default): `DecimalPrecision` and `AnsiTypeCoercion` in Spark's catalyst. `tests/spark` compares them
with Spark's own analyzer.
"""

from __future__ import annotations

import re

import pyarrow as pa

from streaming.errors import FrescoError
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name

MAX_PRECISION = 38
NEGATED_DIGITS = 34
INTEGRALS = ("tinyint", "smallint", "int", "bigint")
"""From the narrowest to the widest."""
FLOATS = ("float", "double")
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Precision of the decimal that holds every value of an integral type (Spark's `forType`)."""
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DUCK = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
    "decimal": "decimal(10,0)",
    "void": "void",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\((\d+)(?:,(\d+))?\)")
NULL = "void"
"""The type of a bare NULL, before it is coerced; no column has it."""


def simple_type(text: str) -> str:
    """Spark's simple string for a type as a user writes it ("DECIMAL(18, 2)", "LONG").

    Raises:
        FrescoError: SQL_TYPE_UNSUPPORTED.
    """
    plain = re.sub(r"\s+", "", text.lower())
    plain = _SYNONYMS.get(plain, plain)
    if plain in _ARROW:
        return plain
    match = _DECIMAL.fullmatch(plain)
    if match:
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return decimal(precision, scale)
    raise FrescoError(
        "SQL_TYPE_UNSUPPORTED",
        f"type {text!r} is not supported",
        todo=f"use one of {', '.join(_ARROW)}, decimal(p,s) with s <= p <= {MAX_PRECISION}",
    )


def decimal(precision: int, scale: int) -> str:
    """The simple string of a decimal."""
    return f"decimal({precision},{scale})"


def decimal_parts(type_: str) -> tuple[int, int] | None:
    """(precision, scale) of a decimal type, None of any other."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2] or 0)) if match else None


def precision_scale(type_: str) -> tuple[int, int]:
    """(precision, scale) of a decimal, or of the decimal that holds an integral type exactly."""
    return decimal_parts(type_) or (DIGITS[type_], 0)


def is_number(type_: str) -> bool:
    """Whether it is a type of numbers."""
    return type_ in INTEGRALS or type_ in FLOATS or is_decimal(type_)


def is_decimal(type_: str) -> bool:
    return type_.startswith("decimal(")


def is_numeric(type_: str) -> bool:
    return type_ in INTEGRALS or type_ in FLOATS or is_decimal(type_)


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of a column.

    Raises:
        FrescoError: SQL_TYPE_UNSUPPORTED.
    """
    parts = decimal_parts(type_)
    if parts:
        return pa.decimal128(*parts)
    return _ARROW[simple_type(type_)]


def duck_type(type_: str) -> str:
    """DuckDB's name of the type; a bare NULL is an INTEGER there, as DuckDB itself takes it.

    Raises:
        FrescoError: SQL_TYPE_UNSUPPORTED.
    """
    if type_ == NULL:
        return "INTEGER"
    if is_decimal(type_):
        return type_.upper()
    return _DUCK[simple_type(type_)]


def delta_schema(schema: Schema) -> pa.Schema:
    """Arrow schema of a delta: number, multiplicity (int64, not null), then c0..cN."""
    fields = [pa.field(NUMBER, pa.int64(), False), pa.field(MULTIPLICITY, pa.int64(), False)]
    for position, column in enumerate(schema):
        fields.append(pa.field(column_name(position), arrow_type(column.type)))
    return pa.schema(fields)


# Spark's result types -----------------------------------------------------------------------------


def adjusted(precision: int, scale: int) -> str:
    """Spark's `adjustPrecisionScale`: beyond 38 digits, scale is given up first, down to 6."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, 6)))


def bounded(precision: int, scale: int) -> str:
    """Spark's `bounded`: both cut at 38."""
    return decimal(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def negatable(type_: str) -> str:
    """The type whose values Spark negates exactly: it rounds others to 34 digits (Scala's BigDecimal)."""
    parts = decimal_parts(type_)
    if parts is None or parts[0] <= NEGATED_DIGITS:
        return type_
    return decimal(max(NEGATED_DIGITS, parts[1]), parts[1])


def raw_decimal(operator: str, left: str, right: str) -> tuple[int, int]:
    """Digits (precision, scale) of an exact decimal result, before Spark cuts them to 38.

    Args:
        operator: + - * / or %; the quotient's scale is Spark's, at least 6.
    """
    (p1, s1), (p2, s2) = precision_scale(left), precision_scale(right)
    scale = max(s1, s2)
    match operator:
        case "+" | "-":
            return max(p1 - s1, p2 - s2) + scale + 1, scale
        case "*":
            return p1 + p2 + 1, s1 + s2
        case "/":
            quotient = max(6, s1 + p2 + 1)
            return p1 - s1 + s2 + quotient, quotient
        case "%":
            return min(p1 - s1, p2 - s2) + scale, scale
    raise ValueError(operator)


def arithmetic_type(operator: str, left: str, right: str) -> str:
    """Result of a decimal operation in Spark (both sides decimal or integral)."""
    return adjusted(*raw_decimal(operator, left, right))


def wider_decimal(left: str, right: str) -> str:
    """The decimal both sides become when compared or united (Spark's `widerDecimalType`).

    Beyond 38 digits scale is given up, whole digits are kept (`boundedPreferIntegralDigits`).
    """
    (p1, s1), (p2, s2) = precision_scale(left), precision_scale(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    excess = max(0, precision - MAX_PRECISION)
    return decimal(precision - excess, max(0, scale - excess))


def common_type(left: str, right: str) -> str | None:
    """The type Spark brings two operands to; None where it refuses or a time zone decides."""
    if left == right:
        return left
    if NULL in (left, right):
        return right if left == NULL else left
    if is_numeric(left) and is_numeric(right):
        return _common_numeric(left, right)
    if {left, right} == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    return None


def _common_numeric(left: str, right: str) -> str:
    if is_decimal(left) or is_decimal(right):
        if left in FLOATS or right in FLOATS:
            return "double"
        return wider_decimal(left, right)
    if left in INTEGRALS and right in INTEGRALS:
        return max(left, right, key=INTEGRALS.index)
    return "double"


def sum_type(type_: str) -> str | None:
    """SUM's result: bigint, decimal(p+10,s) or double; None for what has no sum."""
    if type_ in INTEGRALS:
        return "bigint"
    if type_ in FLOATS:
        return "double"
    parts = decimal_parts(type_)
    return bounded(parts[0] + 10, parts[1]) if parts else None


def avg_type(type_: str) -> str | None:
    """AVG's result: decimal(p+4,s+4) or double; None for what has no average."""
    if type_ in INTEGRALS or type_ in FLOATS:
        return "double"
    parts = decimal_parts(type_)
    return bounded(parts[0] + 4, parts[1] + 4) if parts else None
