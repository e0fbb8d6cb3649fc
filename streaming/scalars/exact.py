"""Exact decimal arithmetic, in Python and as DuckDB text, with Spark's rounding (HALF_UP) and
overflow.

Spark computes decimals exactly and rounds once, half away from zero, to the result's scale. DuckDB
divides decimals as doubles, so division, averages and truncation go through integers here: a
decimal's unscaled value is a HUGEINT, and `//` and `%` on HUGEINT are exact and raise when 128 bits
do not suffice.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from streaming.errors import FrescoError
from streaming.scalars.types import BITS, INTEGRALS, decimal_parts

_CONTEXT = Context(prec=200)


def overflow(what: object, type_: str) -> FrescoError:
    """The error for a value that its type cannot hold (Spark's ANSI mode raises there too)."""
    return FrescoError(
        "VALUE_OVERFLOW",
        f"{what} does not fit into {type_}",
        todo="cast an operand to a wider type in the view's SQL",
    )


def division_by_zero() -> FrescoError:
    return FrescoError(
        "VALUE_DIVISION_BY_ZERO",
        "division by zero",
        todo="guard it in the view's SQL: CASE WHEN divisor <> 0 THEN ... END",
    )


def to_decimal(value: Fraction | Decimal | int, type_: str) -> Decimal:
    """The value rounded half up to the type's scale.

    Raises:
        FrescoError: VALUE_OVERFLOW.
    """
    parts = decimal_parts(type_)
    assert parts is not None
    precision, scale = parts
    exact = Fraction(value) * 10**scale
    units = half_up(abs(exact.numerator), exact.denominator)
    if units >= 10**precision:
        raise overflow(value, type_)
    return Decimal(-units if exact < 0 else units).scaleb(-scale, _CONTEXT)


def half_up(numerator: int, denominator: int) -> int:
    """Quotient of two integers >= 0, rounded half up."""
    return (2 * numerator + denominator) // (2 * denominator)


def to_integral(value: int, type_: str) -> int:
    """The value itself when the integral type holds it.

    Raises:
        FrescoError: VALUE_OVERFLOW.
    """
    limit = 1 << (BITS[type_] - 1)
    if not -limit <= value < limit:
        raise overflow(value, type_)
    return value


def to_exact(value: Fraction | Decimal | int, type_: str) -> Decimal | int:
    """`to_integral` or `to_decimal`, as the type asks."""
    if type_ in INTEGRALS:
        return to_integral(int(value), type_)
    return to_decimal(value, type_)


def average(total: int | Decimal, count: int, type_: str) -> Decimal | float | None:
    """SUM / COUNT as Spark's AVG: a decimal rounded once, or doubles divided; None for none."""
    if count == 0:
        return None
    if decimal_parts(type_):
        return to_decimal(Fraction(total) / count, type_)
    return float(total) / float(count)


# DuckDB text --------------------------------------------------------------------------------------


def duck_unscaled(value: str, type_: str) -> str:
    """A decimal's unscaled value as HUGEINT (12.34 of scale 2 is 1234)."""
    parts = decimal_parts(type_)
    if parts is None or parts[1] == 0:
        return f"CAST({value} AS HUGEINT)"
    precision, scale = parts
    if precision + scale <= 38:
        if precision <= 18:
            value = f"CAST({value} AS DECIMAL(19,{scale}))"
        return f"CAST({value} * CAST(1{'0' * scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"
    return f"CAST(replace(CAST({value} AS VARCHAR), '.', '') AS HUGEINT)"


def duck_scaled(units: str, type_: str) -> str:
    """The decimal of the unscaled value `units` (HUGEINT); DuckDB raises when it does not fit."""
    parts = decimal_parts(type_)
    assert parts is not None
    precision, scale = parts
    if scale == 0:
        return f"CAST({units} AS DECIMAL({precision},0))"
    step = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({scale},{scale}))"
    return f"CAST(CAST({units} AS DECIMAL(38,0)) * {step} AS DECIMAL({precision},{scale}))"


def duck_half_up(numerator: str, denominator: str, sign: str) -> str:
    """Quotient of two HUGEINTs (denominator not 0) rounded half away from zero.

    Args:
        sign: text whose sign is the quotient's (1 or -1), used where the rounding moves it.
    """
    rest = f"abs({numerator} % {denominator})"
    moved = f"{rest} >= abs({denominator}) - {rest}"
    return f"({numerator} // {denominator} + CASE WHEN {moved} THEN {sign} ELSE 0 END)"


def duck_power(exponent: int) -> str:
    """10 to the exponent (0..38) as HUGEINT."""
    return f"CAST(1{'0' * exponent} AS HUGEINT)"


def duck_average(total: str, count: str, total_type: str, type_: str) -> str:
    """AVG from its running total and count (BIGINT); NULL where the count is 0.

    The quotient is taken digit group by digit group (whole units first, then the added digits of
    the remainder), so no intermediate value exceeds what the result itself needs.

    Args:
        total_type: type of `total`, SUM's type (or HUGEINT text for integrals: any integral type).
        type_: AVG's type.
    """
    parts = decimal_parts(type_)
    if parts is None:
        return (
            f"CASE WHEN {count} = 0 THEN NULL "
            f"ELSE CAST({total} AS DOUBLE) / CAST({count} AS DOUBLE) END"
        )
    source = decimal_parts(total_type)
    assert source is not None
    power = duck_power(parts[1] - source[1])
    units, divisor = duck_unscaled(total, total_type), f"CAST({count} AS HUGEINT)"
    sign = f"CASE WHEN {total} < 0 THEN -1 ELSE 1 END"
    rest = duck_half_up(f"({units} % {divisor} * {power})", divisor, sign)
    quotient = f"{units} // {divisor} * {power} + {rest}"
    return f"CASE WHEN {count} = 0 THEN NULL ELSE {duck_scaled(quotient, type_)} END"


# Spark text ---------------------------------------------------------------------------------------


def spark_average(total: str, count: str, total_type: str, type_: str) -> str:
    """The same in Spark from a running total and count (BIGINT).

    Spark rounds a decimal quotient to a scale of its own, which rounded again would not be HALF_UP;
    so both quotients taken here are exact ones, of (dividend - remainder).

    Args:
        total_type: SUM's type. Averages of more than 32 digits raise an overflow error here.
    """
    parts, source = decimal_parts(type_), decimal_parts(total_type)
    if parts is None or source is None:
        return f"CASE WHEN {count} = 0 THEN NULL ELSE CAST({total} AS DOUBLE) / {count} END"

    def whole(text: str) -> str:
        return f"CAST({text} AS DECIMAL(38,0))"

    def digits(exponent: int) -> str:
        return f"CAST('1{'0' * exponent}' AS DECIMAL({exponent + 1},0))"

    units = whole(f"replace(CAST({total} AS STRING), '.', '')")
    divisor = f"CAST({count} AS DECIMAL(19,0))"
    rest = whole(f"{whole(f'{units} % {divisor}')} * {digits(parts[1] - source[1])}")
    added = whole(f"({rest} - {rest} % {divisor}) / {divisor}")
    left = f"abs({rest} % {divisor})"
    moved = f"CASE WHEN {left} * 2 < {divisor} THEN 0 WHEN {total} < 0 THEN -1 ELSE 1 END"
    quotient = whole(f"({units} - {units} % {divisor}) / {divisor}")
    result = f"{whole(f'{quotient} * {digits(parts[1] - source[1])}')} + {added} + {moved}"
    scaled = f"CAST(concat(CAST({whole(result)} AS STRING), 'E-{parts[1]}') AS {type_.upper()})"
    return f"CASE WHEN {count} = 0 THEN NULL ELSE {scaled} END"
