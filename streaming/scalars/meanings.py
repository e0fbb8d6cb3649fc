"""What each function means, in Python: the bag evaluator's side of the list (`functions`).

Values are None, bool, int, float, str, bytes, Decimal, date and datetime (aware for timestamp,
naive for timestamp_ntz). NULL is None, and only the functions that say so below give anything but
None for it.
Floats: NaN equals itself and is greater than every other, as in Spark and DuckDB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from streaming.scalars import exact, letter_case
from streaming.scalars.casts import convert, single
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.failure import DIVISORS, EAGER, tested
from streaming.scalars.types import is_decimal, negatable

Value = Any
NAN = math.nan
"""The one NaN that rows hold, so that equal rows are one key of a dict."""


def evaluate(scalar: Scalar, row: tuple[Value, ...]) -> Value:
    """The scalar's value at a row.

    Raises:
        FrescoError: VALUE_OVERFLOW, VALUE_DIVISION_BY_ZERO.
    """
    match scalar:
        case Col():
            return row[scalar.position]
        case Lit():
            return normal(scalar.value)
        case Call():
            if scalar.function in LAZY:
                return LAZY[scalar.function](scalar, row)
            args = scalar.args[::-1] if scalar.function in DIVISORS else scalar.args
            values = []
            for arg in args:
                values.append(evaluate(arg, row))
                if values[-1] is None and scalar.function not in EAGER:
                    return None
            values = values[::-1] if scalar.function in DIVISORS else values
            return normal(MEANINGS[scalar.function](scalar, values))


def passing(condition: Scalar | None) -> Callable[[tuple[Value, ...]], bool]:
    """Whether a row passes a condition of rows; it raises as `evaluate` does where the row reaches
    what fails."""
    parts = () if condition is None else tested(condition)
    return lambda row: all(evaluate(part, row) is True for part in parts)


def normal(value: Value) -> Value:
    """The value with one NaN; the zeros keep their signs and are equal, as in every engine."""
    return NAN if isinstance(value, float) and math.isnan(value) else value


def grouped(value: Value) -> Value:
    """The value as a key of groups shows it: Spark has one zero there."""
    return value + 0.0 if isinstance(value, float) else value


def _coalesce(call: Call, row: tuple[Value, ...]) -> Value:
    found = (evaluate(arg, row) for arg in call.args)
    return next((value for value in found if value is not None), None)


def _until(decides: bool) -> Callable[[Call, tuple[Value, ...]], Value]:
    """AND stops at FALSE, OR at TRUE; a NULL decides nothing."""

    def found(call: Call, row: tuple[Value, ...]) -> Value:
        unknown = False
        for arg in call.args:
            value = evaluate(arg, row)
            if value is decides:
                return decides
            unknown = unknown or value is None
        return None if unknown else not decides

    return found


def _in(call: Call, row: tuple[Value, ...]) -> bool | None:
    value = evaluate(call.args[0], row)
    if value is None:
        return None
    unknown = False
    for arg in call.args[1:]:
        item = evaluate(arg, row)
        if item is not None and compare(value, item) == 0:
            return True
        unknown = unknown or item is None
    return None if unknown else False


def _case(call: Call, row: tuple[Value, ...]) -> Value:
    for when, then in zip(call.args[:-1:2], call.args[1:-1:2], strict=True):
        if evaluate(when, row) is True:
            return evaluate(then, row)
    return evaluate(call.args[-1], row)


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; neither is None."""
    if isinstance(left, float) or isinstance(right, float):
        here, there = math.isnan(left), math.isnan(right)
        if here or there:
            return int(here) - int(there)
    return int(left > right) - int(left < right)


def _strict(meaning: Callable[..., Value]) -> Callable[[Call, Sequence[Value]], Value]:
    """NULL whenever an argument is NULL."""
    return lambda call, args: None if None in args else meaning(call, *args)


def _comparison(holds: Callable[[int], bool]) -> Callable[[Call, Sequence[Value]], Value]:
    return _strict(lambda call, left, right: holds(compare(left, right)))


def _same(call: Call, args: Sequence[Value]) -> bool:
    left, right = args
    if left is None or right is None:
        return left is right
    return compare(left, right) == 0


def _number(call: Call, value: Value) -> Value:
    """A result brought to the call's type: exact ones rounded once, floats to their width."""
    if call.type == "double":
        return float(value)
    if call.type == "float":
        return single(float(value))
    return exact.to_exact(value, call.type)


def _sign(call: Call, value: Value) -> Value:
    """What is exact in Spark too (`types.negatable`)."""
    number = _number(call, value)
    return exact.to_decimal(number, negatable(call.type)) if is_decimal(call.type) else number


def _exact(call: Call, value: Value) -> Value:
    return Fraction(value) if is_decimal(call.type) else value


def _arithmetic(operate: Callable[[Any, Any], Any]) -> Callable[[Call, Sequence[Value]], Value]:
    return _strict(
        lambda call, left, right: _number(call, operate(_exact(call, left), _exact(call, right)))
    )


def _divide(call: Call, left: Value, right: Value) -> Value:
    if right == 0:
        raise exact.division_by_zero()
    return _number(call, _exact(call, left) / _exact(call, right))


def _remainder(call: Call, left: Value, right: Value) -> Value:
    """The sign is the dividend's, as in SQL (Python's % takes the divisor's)."""
    if right == 0:
        raise exact.division_by_zero()
    if isinstance(left, float):
        return math.nan if math.isinf(left) else _number(call, math.fmod(left, right))
    rest = abs(Fraction(left)) % abs(Fraction(right))
    return _number(call, -rest if left < 0 else rest)


def _like(call: Call, text: str, pattern: str) -> bool:
    wild = {"%": ".*", "_": "."}
    expression = "".join(wild.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _substring(call: Call, text: str, start: int, length: int | None = None) -> str:
    first = max(start, 1) - 1
    return text[first:] if length is None else text[first : first + length]


def _cast(call: Call, args: Sequence[Value]) -> Value:
    return convert(args[0], call.args[0].type, call.type)


MEANINGS: dict[str, Callable[[Call, Sequence[Value]], Value]] = {
    "=": _comparison(lambda order: order == 0),
    "<": _comparison(lambda order: order < 0),
    "<=": _comparison(lambda order: order <= 0),
    ">": _comparison(lambda order: order > 0),
    ">=": _comparison(lambda order: order >= 0),
    "<=>": _same,
    "not": _strict(lambda call, value: not value),
    "isnull": lambda call, args: args[0] is None,
    "+": _arithmetic(lambda left, right: left + right),
    "-": _arithmetic(lambda left, right: left - right),
    "*": _arithmetic(lambda left, right: left * right),
    "/": _strict(_divide),
    "%": _strict(_remainder),
    "neg": _strict(lambda call, value: _sign(call, -_exact(call, value))),
    "abs": _strict(lambda call, value: _sign(call, abs(_exact(call, value)))),
    "like": _strict(_like),
    "cast": _cast,
    "concat": _strict(lambda call, *texts: "".join(texts)),
    "upper": _strict(lambda call, text: letter_case.upper(text)),
    "lower": _strict(lambda call, text: letter_case.lower(text)),
    "trim": _strict(lambda call, text: text.strip(" ")),
    "length": _strict(lambda call, text: len(text)),
    "substring": _strict(_substring),
}
"""Every function of `renderings.DUCK` but those of `LAZY`."""
LAZY: dict[str, Callable[[Call, tuple[Value, ...]], Value]] = {
    "and": _until(False),
    "or": _until(True),
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
}
"""Those that stop at what decides (see `failure`)."""
