"""Which expressions can fail at a row, and which rows reach one that does: one law for every engine.

Some expressions have no value at some rows: a divisor of 0, a result that its type cannot hold. Spark
raises there (ANSI mode), but only where it evaluates them, and so does every engine here:

* **Within an expression** evaluation is Spark's, left to right and lazy. AND stops at FALSE and OR at
  TRUE, but not at NULL. CASE, IF and NULLIF evaluate the branch that is taken, COALESCE stops at the
  first value. IN stops at the first that is equal, and after a NULL on its left. Any other function whose
  result is NULL when an argument is stops at the first NULL; `/` and `%` look at the divisor first. `<=>`
  and CONCAT evaluate all.
* **Conditions of rows** (WHERE, ON, HAVING): first those that cannot fail, then those that can, as
  written; one that is not true ends it. Spark gives no order there: its optimizer moves them. A
  condition that can fail is never moved below a join, a grouping or EXCEPT ALL, where it would meet rows
  that do not get as far as it (`normal`), and no source is asked to test it.
* **What a SELECT computes** counts where a row gets there; what nobody reads is not computed. Over a join
  it is computed for pairs, also where a subquery below wrote it, unless it is joined on.
* An error belongs to the number of the row that brings it.

So which rows fail is a property of the view's tree, not of who computes it. Python evaluates so
(`meanings`). DuckDB computes whole columns and moves conditions, so its text never fails by itself: each
expression is text of a value that is NULL where there is none, and text that says where that is
(`duck_text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from streaming.scalars import renderings
from streaming.scalars.casts import can_fail
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.substitution import conjuncts
from streaming.scalars.types import (
    FLOATS,
    INTEGRALS,
    MAX_PRECISION,
    duck_type,
    negatable,
    raw_decimal,
)

EAGER = ("<=>", "isnull", "concat")
"""Functions that evaluate all arguments, besides those with rules of their own."""
DIVISORS = ("/", "%")
"""Functions that evaluate their second argument first."""
UNFIT = "a result that does not fit its type"
_NATIVE = ("+", "-", "*", "cast")
REASONS = dict.fromkeys(DIVISORS, "division by zero") | dict.fromkeys(
    ("upper", "lower"), "VALUE_LETTERCASE: a letter whose other case depends on the engine"
)
"""Why a function has no value; the others: `UNFIT`."""


def fails(scalar: Scalar) -> bool:
    """Whether the expression has no value at some rows."""
    if not isinstance(scalar, Call):
        return False
    return _can_fail(scalar) or any(fails(arg) for arg in scalar.args)


def _can_fail(call: Call) -> bool:
    """Whether the function itself can, given its arguments."""
    first = call.args[0].type
    match call.function:
        case "+" | "-" | "*":
            if first in INTEGRALS:
                return True
            types = (first, call.args[1].type)
            return first not in FLOATS and raw_decimal(call.function, *types)[0] > MAX_PRECISION
        case "/" | "%":
            divisor = call.args[1]
            return not (isinstance(divisor, Lit) and divisor.value not in (None, 0))
        case "neg" | "abs":
            return first in INTEGRALS or negatable(first) != first
        case "cast":
            return can_fail(first, call.type)
        case "upper" | "lower":
            return True
    return False


@lru_cache(maxsize=1024)
def tested(condition: Scalar) -> tuple[Scalar, ...]:
    """What a row is tested for, in order: what cannot fail, then what can."""
    return tuple(sorted(conjuncts(condition), key=fails))


# DuckDB text --------------------------------------------------------------------------------------


def duck_text(scalar: Scalar, columns: Sequence[str]) -> tuple[str, str | None]:
    """Text of the value (NULL where it fails) and of whether it fails (None: never). Neither raises."""
    match scalar:
        case Col():
            return columns[scalar.position], None
        case Lit():
            return renderings.literal(scalar, "duckdb"), None
    texts = [duck_text(arg, columns) for arg in _operands(scalar)]
    value = renderings.DUCK[scalar.function](scalar, [text for text, _ in texts])
    return value, _failed(scalar, texts, value)


def duck_native(scalar: Scalar, columns: Sequence[str]) -> str | None:
    """Text that DuckDB itself raises at, where its order decides nothing; None of other expressions.

    At most the argument that is evaluated first can fail, and the function is one that raises in DuckDB
    where it fails here. Sums and products are so, and their text computes each value once. A comparison
    is not: `i - 10 = 10` becomes `i = 20` there. Nor is a sum with NULL, which is not computed.
    """
    if not isinstance(scalar, Call):
        return duck_text(scalar, columns)[0]
    first, *others = scalar.args
    if scalar.function not in _NATIVE or not all(map(_is_plain, others)):
        return None
    text = duck_native(first, columns)
    if text is None:
        return None
    args = [text, *(duck_text(arg, columns)[0] for arg in others)]
    if scalar.type in INTEGRALS and scalar.function in "+-*":
        return f"CAST({args[0]} {scalar.function} {args[1]} AS {duck_type(scalar.type)})"
    return None if _can_fail(scalar) else renderings.DUCK[scalar.function](scalar, args)


def _is_plain(scalar: Scalar) -> bool:
    """A column or a value: what no engine can find to be NULL before it looks at rows."""
    return isinstance(scalar, Col) or (isinstance(scalar, Lit) and scalar.value is not None)


def duck_raising(scalar: Scalar, columns: Sequence[str]) -> str:
    """Text of the value that raises at a row where it fails."""
    native = duck_native(scalar, columns) if fails(scalar) else None
    if native is not None:
        return native
    value, failed = duck_text(scalar, columns)
    if failed is None:
        return value
    return f"CASE WHEN {failed} THEN {_error(scalar)} ELSE {value} END"


def duck_holds(condition: Scalar, columns: Sequence[str]) -> str:
    """Text of whether a row passes; it raises at a row that reaches a condition that fails."""
    safe: list[str] = []
    cases: list[str] = []
    for part in tested(condition):
        value, failed = duck_text(part, columns)
        if failed is None:
            safe.append(value)
            continue
        if not cases and safe:
            cases.append(f"WHEN ({' AND '.join(safe)}) IS NOT TRUE THEN FALSE")
        cases.append(f"WHEN {failed} THEN {_error(part)}")
        cases.append(f"WHEN ({value}) IS NOT TRUE THEN FALSE")
    if cases:
        safe.append(f"CASE {' '.join(cases)} ELSE TRUE END")
    return " AND ".join(safe)


def _error(scalar: Scalar) -> str:
    """What raises where a row reaches it; it tells of what the expression has that can fail."""
    reasons = dict[str, None]()
    left = [scalar]
    while left:
        node = left.pop()
        if isinstance(node, Call):
            left += node.args[::-1]
            if _can_fail(node):
                reasons[REASONS.get(node.function, UNFIT)] = None
    return f"CAST(error('{' or '.join(reasons)}') AS {duck_type(scalar.type)})"


def _operands(call: Call) -> list[Scalar]:
    """The arguments; those of a chain of ANDs or of ORs as of one."""
    if call.function not in ("and", "or"):
        return list(call.args)
    found, left = list[Scalar](), [*call.args[::-1]]
    while left:
        arg = left.pop()
        if isinstance(arg, Call) and arg.function == call.function:
            left += arg.args[::-1]
        else:
            found.append(arg)
    return found


def _failed(call: Call, texts: list[tuple[str, str | None]], value: str) -> str | None:
    """Whether the call fails: the steps of its evaluation up to the first that decides."""
    steps: list[tuple[str, str]] = []

    def step(failed: str | None, stop: str | None = None) -> None:
        if failed is not None:
            steps.append((failed, "TRUE"))
        if stop is not None:
            steps.append((stop, "FALSE"))

    match call.function:
        case "and" | "or":
            for text, failed in texts:
                step(failed, f"NOT ({text})" if call.function == "and" else text)
        case "coalesce":
            for text, failed in texts:
                step(failed, f"{text} IS NOT NULL")
        case "case":
            for (when, failed), (_, then) in zip(texts[:-1:2], texts[1:-1:2], strict=True):
                step(failed)
                steps.append((when, then or "FALSE"))
            step(texts[-1][1])
        case "in":
            (sought, failed), *items = texts
            step(failed, f"{sought} IS NULL")
            for text, failed in items:
                step(failed, f"{sought} = {text}")
        case _:
            order = texts[::-1] if call.function in DIVISORS else texts
            for text, failed in order:
                step(failed, None if call.function in EAGER else f"{text} IS NULL")
            if _can_fail(call):
                steps.append((f"{value} IS NULL", "TRUE"))
    while steps and steps[-1][1] == "FALSE":
        steps.pop()
    if not steps:
        return None
    if len(steps) == 1 and steps[0][1] == "TRUE":
        return steps[0][0]
    cases = " ".join(f"WHEN {test} THEN {found}" for test, found in steps)
    return f"(CASE {cases} ELSE FALSE END)"
