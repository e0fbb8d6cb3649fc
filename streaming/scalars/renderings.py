"""SQL text of each function, for DuckDB and for Spark, from the call and its arguments' texts.

Spark's text is plain: its own semantics are the law. DuckDB's says explicitly where DuckDB would
differ: result types, decimal division (DuckDB: doubles), cuts towards zero, which characters TRIM
removes, which escape LIKE has, and upper and lower case outside ASCII. Both are written so that the
text's type is the call's type. DuckDB's never raises: it is NULL where Spark has no value, and `failure`
says which of those rows count.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Literal

from streaming.scalars import exact
from streaming.scalars.casts import duck_cast
from streaming.scalars.expression import Call, Lit
from streaming.scalars.letter_case import duck_lower, duck_upper
from streaming.scalars.types import (
    MAX_PRECISION,
    NULL,
    decimal_parts,
    duck_type,
    is_decimal,
    negatable,
    raw_decimal,
)

Dialect = Literal["duckdb", "spark"]
Rendering = Callable[[Call, Sequence[str]], str]


def literal(value: Lit, dialect: Dialect) -> str:
    """A constant with its type."""
    type_ = duck_type(value.type) if dialect == "duckdb" else value.type.upper()
    constant = value.value
    if constant is None:
        return "NULL" if value.type == NULL else f"CAST(NULL AS {type_})"
    if isinstance(constant, bool):
        return "TRUE" if constant else "FALSE"
    if value.type == "string":
        return _quoted(str(constant), dialect)
    if isinstance(constant, Decimal):
        return f"CAST('{constant:f}' AS {type_})"
    if isinstance(constant, datetime.datetime):
        zone = "+00:00" if value.type == "timestamp" else ""
        moment = constant.replace(tzinfo=None).isoformat(" ", "microseconds")
        return f"CAST('{moment}{zone}' AS {type_})"
    if isinstance(constant, datetime.date):
        return f"CAST('{constant.isoformat()}' AS {type_})"
    return f"CAST('{constant!r}' AS {type_})"


def _quoted(text: str, dialect: Dialect) -> str:
    if dialect == "duckdb":
        # DuckDB's parser takes no NUL, its texts do.
        parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
        return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# DuckDB -------------------------------------------------------------------------------------------


def _infix(operator: str) -> Rendering:
    return lambda call, args: "(" + f" {operator} ".join(args) + ")"


_WIDER = {"tinyint": "SMALLINT", "smallint": "INTEGER", "int": "BIGINT", "bigint": "HUGEINT"}
"""Where a sum or product of two of the type always fits."""


def _duck_arithmetic(operator: str) -> Rendering:
    """NULL where the type does not hold the result.

    DuckDB keeps a result of two decimals within 18 digits when both operands are.
    """

    def render(call: Call, args: Sequence[str]) -> str:
        left, right = args
        if call.type in _WIDER:
            wide = _WIDER[call.type]
            operation = f"CAST({left} AS {wide}) {operator} CAST({right} AS {wide})"
            return f"TRY_CAST({operation} AS {duck_type(call.type)})"
        parts, own = decimal_parts(call.type), decimal_parts(call.args[0].type)
        if parts and own and parts[0] > 18 >= own[0]:
            left = f"CAST({left} AS DECIMAL(19,{own[1]}))"
        result = f"CAST({left} {operator} {right} AS {duck_type(call.type)})"
        digits = raw_decimal(operator, call.args[0].type, call.args[1].type)[0] if parts else 0
        return f"TRY({result})" if digits > MAX_PRECISION else result

    return render


def _duck_divide(call: Call, args: Sequence[str]) -> str:
    """NULL where the divisor is 0."""
    left, right = args
    if not is_decimal(call.type):
        return f"({left} / nullif({right}, 0))"
    parts = decimal_parts(call.type)
    source, divisor = decimal_parts(call.args[0].type), decimal_parts(call.args[1].type)
    assert parts and source and divisor
    power = exact.duck_power(parts[1] - source[1] + divisor[1])
    numerator = f"({exact.duck_unscaled(left, call.args[0].type)} * {power})"
    denominator = exact.duck_unscaled(right, call.args[1].type)
    sign = f"CASE WHEN ({left} < 0) = ({right} < 0) THEN 1 ELSE -1 END"
    quotient = exact.duck_half_up(numerator, f"nullif({denominator}, 0)", sign)
    return exact.duck_scaled(quotient, call.type)


def _duck_remainder(call: Call, args: Sequence[str]) -> str:
    """NULL where the divisor is 0; in a wider type, as DuckDB divides the least integer by -1."""
    left, right = args
    wide = _WIDER.get(call.type)
    if wide is not None:
        left, right = f"CAST({left} AS {wide})", f"CAST({right} AS {wide})"
    return f"CAST({left} % nullif({right}, 0) AS {duck_type(call.type)})"


def _duck_sign(call: Call, text: str, operand: str) -> str:
    """-x and abs(x); NULL for the least integer and for decimals that Spark would round."""
    wide = _WIDER.get(call.type)
    if negatable(call.type) != call.type:
        operand = f"TRY_CAST({operand} AS {duck_type(negatable(call.type))})"
    if wide is None:
        return f"CAST({text.format(operand)} AS {duck_type(call.type)})"
    return f"TRY_CAST({text.format(f'CAST({operand} AS {wide})')} AS {duck_type(call.type)})"


def _case(call: Call, args: Sequence[str]) -> str:
    whens = " ".join(
        f"WHEN {when} THEN {then}" for when, then in zip(args[:-1:2], args[1:-1:2], strict=True)
    )
    return f"CASE {whens} ELSE {args[-1]} END"


def _in(call: Call, args: Sequence[str]) -> str:
    return f"({args[0]} IN ({', '.join(args[1:])}))"


def _function(name: str) -> Rendering:
    return lambda call, args: f"{name}({', '.join(args)})"


def _duck_length(call: Call, args: Sequence[str]) -> str:
    return f"CAST(length({args[0]}) AS INTEGER)"


def _substring(call: Call, args: Sequence[str]) -> str:
    """Spark takes start 0 for 1; with literals that is settled here, for both."""
    start = call.args[1]
    assert isinstance(start, Lit)
    return f"substring({', '.join((args[0], str(start.value or 1), *args[2:]))})"


DUCK: dict[str, Rendering] = {
    **{name: _infix(name) for name in ("=", "<", "<=", ">", ">=")},
    "<=>": _infix("IS NOT DISTINCT FROM"),
    "and": _infix("AND"),
    "or": _infix("OR"),
    "not": lambda call, args: f"(NOT {args[0]})",
    "isnull": lambda call, args: f"({args[0]} IS NULL)",
    **{name: _duck_arithmetic(name) for name in ("+", "-", "*")},
    "/": _duck_divide,
    "%": _duck_remainder,
    "neg": lambda call, args: _duck_sign(call, "-({})", args[0]),
    "abs": lambda call, args: _duck_sign(call, "abs({})", args[0]),
    "case": _case,
    "coalesce": _function("coalesce"),
    "in": _in,
    "like": lambda call, args: f"({args[0]} LIKE {args[1]})",
    "cast": lambda call, args: duck_cast(args[0], call.args[0].type, call.type),
    "concat": lambda call, args: f"CAST({' || '.join(args)} AS VARCHAR)",
    "upper": lambda call, args: duck_upper(args[0]),
    "lower": lambda call, args: duck_lower(args[0]),
    "trim": lambda call, args: f"trim({args[0]}, ' ')",
    "length": _duck_length,
    "substring": _substring,
}


def _spark_cast(call: Call, args: Sequence[str]) -> str:
    return f"CAST({args[0]} AS {call.type.upper()})"


def _spark_typed(operator: str) -> Rendering:
    return lambda call, args: f"CAST({args[0]} {operator} {args[1]} AS {call.type.upper()})"


def _spark_sign(function: str, cast: str) -> Rendering:
    """-x and abs(x) of what Spark neither rounds nor overflows at; else what `cast` does."""

    def render(call: Call, args: Sequence[str]) -> str:
        operand, type_ = args[0], call.type.upper()
        if call.type in _WIDER:
            return f"{cast}({function}(CAST({operand} AS DECIMAL(20,0))) AS {type_})"
        if negatable(call.type) != call.type:
            operand = f"{cast}({operand} AS {negatable(call.type).upper()})"
        return f"CAST({function}({operand}) AS {type_})"

    return render


SPARK: dict[str, Rendering] = {
    **DUCK,
    "<=>": _infix("<=>"),
    **{name: _spark_typed(name) for name in ("+", "-", "*", "/", "%")},
    "neg": _spark_sign("-", "CAST"),
    "abs": _spark_sign("abs", "CAST"),
    "cast": _spark_cast,
    "concat": _function("concat"),
    "upper": _function("upper"),
    "lower": _function("lower"),
    "trim": _function("trim"),
    "length": _function("length"),
}


def _spark_total(function: str) -> Rendering:
    return lambda call, args: f"CAST({function}({args[0]}, {args[1]}) AS {call.type.upper()})"


SPARK_TOTAL: dict[str, Rendering] = {
    **SPARK,
    "+": _spark_total("try_add"),
    "-": _spark_total("try_subtract"),
    "*": _spark_total("try_multiply"),
    "/": _spark_total("try_divide"),
    "%": _spark_total("try_mod"),
    "neg": _spark_sign("-", "TRY_CAST"),
    "abs": _spark_sign("abs", "TRY_CAST"),
    "cast": lambda call, args: f"TRY_CAST({args[0]} AS {call.type.upper()})",
}
"""Spark's text that is NULL where it would raise."""
