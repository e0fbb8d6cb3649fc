"""The scalar functions that mean the same in Spark, in DuckDB and in Python; no other is accepted.

This file holds the typing rules (Spark's, with its implicit casts made explicit); `renderings` has
each function's text for DuckDB and Spark, `meanings` its value in Python for the bag evaluator.
What is left out is left out on purpose: where engines differ in rounding, overflow, Unicode or time
zones, a view would depend on who computed it. Property tests compare the three.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from streaming.errors import FrescoError
from streaming.scalars.casts import cast
from streaming.scalars.coercion import Args, narrowed, types_differ, unified
from streaming.scalars.expression import Call, Lit, Scalar
from streaming.scalars.types import (
    DIGITS,
    FLOATS,
    INTEGRALS,
    MAX_PRECISION,
    NULL,
    adjusted,
    arithmetic_type,
    decimal,
    decimal_parts,
    is_decimal,
    is_numeric,
    raw_decimal,
)

Typing = Callable[[Args], Scalar]


def call(name: str, *args: Scalar) -> Scalar:
    """The typed expression, its arguments cast as Spark casts them.

    Raises:
        FrescoError: SQL_FUNCTION_UNSUPPORTED for a function or argument types off the list,
            SQL_TYPES for operands that Spark refuses too.
    """
    if name not in TYPING:
        raise unsupported(name)
    return TYPING[name](args)


def unsupported(name: str) -> FrescoError:
    """The refusal of a function that is not on the list, with the nearest that is."""
    if name.lower() in OTHER_AGGREGATES:
        return FrescoError(
            "SQL_UNSUPPORTED",
            f"aggregate {name.upper()} is not supported",
            todo="the aggregates of a view are SUM, COUNT and AVG; "
            "compute others where the view is read",
        )
    near = difflib.get_close_matches(name.lower(), NAMES, 1)
    hint = f"nearest: {near[0].upper()}; " if near else ""
    return FrescoError(
        "SQL_FUNCTION_UNSUPPORTED",
        f"function {name.upper()} is not on the list of functions proven equal in all engines",
        todo=f"{hint}compute it where the view is read, or use one of "
        + ", ".join(n.upper() for n in NAMES),
    )


# Typing rules -------------------------------------------------------------------------------------


def _comparison(name: str) -> Typing:
    return lambda args: Call(name, unified(narrowed(args), f"comparison {name}"), "boolean")


def _arithmetic(operator: str) -> Typing:
    def typed(args: Args) -> Scalar:
        left, right = _numbers(operator, args)
        if not is_decimal(left.type):
            return Call(operator, (left, right), left.type)
        type_ = arithmetic_type(operator, left.type, right.type)
        _exactly(operator, left.type, right.type, type_)
        return Call(operator, (left, right), type_)

    return typed


def _numbers(operator: str, args: Args) -> tuple[Scalar, Scalar]:
    """Both sides of an arithmetic operator: one type, or decimals and integrals as they are."""
    left, right = narrowed(args)
    if "string" in (left.type, right.type) or NULL in (left.type, right.type):
        left, right = unified((left, right), f"operator {operator}")
    if not (is_numeric(left.type) and is_numeric(right.type)):
        raise types_differ(f"operator {operator}", left.type, right.type)
    if operator == "/" and not (is_decimal(left.type) or is_decimal(right.type)):
        return cast(left, "double"), cast(right, "double")
    if is_decimal(left.type) != is_decimal(right.type):
        if left.type in FLOATS or right.type in FLOATS:
            return cast(left, "double"), cast(right, "double")
        return _as_decimal(left), _as_decimal(right)
    if is_decimal(left.type):
        return left, right
    left, right = unified((left, right), f"operator {operator}")
    return left, right


def _as_decimal(arg: Scalar) -> Scalar:
    return arg if is_decimal(arg.type) else cast(arg, decimal(DIGITS[arg.type], 0))


def _exactly(operator: str, left: str, right: str, type_: str) -> None:
    """Refuses what needs more than 38 digits on the way to the one rounding."""
    precision, scale = raw_decimal(operator, left, right)
    parts = decimal_parts(type_)
    assert parts is not None
    if operator == "/":
        fits = precision - scale + parts[1] <= MAX_PRECISION
    elif operator == "%":
        digits, places = raw_decimal("+", left, right)
        fits = digits - 1 <= MAX_PRECISION and places == parts[1]
    else:
        fits = scale == parts[1]
    if not fits:
        raise FrescoError(
            "SQL_FUNCTION_UNSUPPORTED",
            f"{left} {operator} {right} needs more than {MAX_PRECISION} digits",
            todo="CAST an operand to a smaller decimal",
        )


def _logical(name: str) -> Typing:
    def typed(args: Args) -> Scalar:
        return Call(name, tuple(_boolean(arg, name) for arg in args), "boolean")

    return typed


def _boolean(arg: Scalar, what: str) -> Scalar:
    if arg.type not in ("boolean", NULL):
        raise types_differ(f"operator {what.upper()}", arg.type, "boolean")
    return cast(arg, "boolean")


def _number_to_same(name: str) -> Typing:
    def typed(args: Args) -> Scalar:
        if not is_numeric(args[0].type):
            raise types_differ(name.upper(), args[0].type, "a number")
        return Call(name, args, args[0].type)

    return typed


def _case(args: Args) -> Scalar:
    """WHEN, THEN, WHEN, THEN, ..., ELSE: conditions at even places, the last one is ELSE."""
    values = unified((*args[1:-1:2], args[-1]), "CASE")
    whens = args[:-1:2]
    for when in whens:
        if when.type != "boolean":
            raise types_differ("CASE WHEN", when.type, "boolean")
    pairs = tuple(arg for pair in zip(whens, values, strict=False) for arg in pair)
    return Call("case", (*pairs, values[-1]), values[-1].type)


def _coalesce(args: Args) -> Scalar:
    values = unified(args, "COALESCE")
    return Call("coalesce", values, values[0].type)


def _strings(name: str, type_: str = "string") -> Typing:
    def typed(args: Args) -> Scalar:
        return Call(name, tuple(_string(arg, name) for arg in args), type_)

    return typed


def _string(arg: Scalar, what: str) -> Scalar:
    if arg.type not in ("string", NULL) and what != "concat":
        raise types_differ(what.upper(), arg.type, "string")
    return cast(arg, "string")


def _like(args: Args) -> Scalar:
    pattern = args[1]
    if not isinstance(pattern, Lit) or not isinstance(pattern.value, str) or "\\" in pattern.value:
        raise FrescoError(
            "SQL_FUNCTION_UNSUPPORTED",
            "LIKE with a pattern that is not a text literal, or with an escape in it",
            todo="write the pattern as a literal with % and _ only",
        )
    return Call("like", (_string(args[0], "like"), pattern), "boolean")


def _substring(args: Args) -> Scalar:
    bounds = args[1:]
    whole = all(isinstance(b, Lit) and isinstance(b.value, int) and b.value >= 0 for b in bounds)
    if not whole or len(args) not in (2, 3):
        raise FrescoError(
            "SQL_FUNCTION_UNSUPPORTED",
            "SUBSTRING with a start or length that is not a literal >= 0",
            todo="write SUBSTRING(text, start, length) with literals, start from 1",
        )
    text = _string(args[0], "substring")
    return Call("substring", (text, *(cast(b, "int") for b in bounds)), "string")


def _round(args: Args) -> Scalar:
    places = args[1] if len(args) == 2 else Lit(0, "int")
    parts = decimal_parts(args[0].type)
    known = (
        isinstance(places, Lit)
        and places.type in INTEGRALS
        and isinstance(places.value, int)
        and places.value >= 0
    )
    if len(args) > 2 or not known or not (parts or args[0].type in INTEGRALS):
        raise FrescoError(
            "SQL_FUNCTION_UNSUPPORTED",
            f"ROUND of {args[0].type} or to places that are not a literal >= 0",
            todo="CAST to a decimal and round that",
        )
    if parts is None:
        return args[0]
    assert isinstance(places, Lit) and isinstance(places.value, int)
    scale = min(parts[1], places.value)
    precision = min(parts[0] - parts[1] + 1 + scale, 38)
    return Call("cast", (args[0],), adjusted(precision, scale))


def _nullif(args: Args) -> Scalar:
    left, right = args
    return call("case", call("=", left, right), Lit(None, left.type), left)


def _negation(name: str) -> Typing:
    return lambda args: call("not", call(name, *args))


def _between(args: Args) -> Scalar:
    value, low, high = args
    return call("and", call(">=", value, low), call("<=", value, high))


def _renamed(name: str) -> Typing:
    return lambda args: call(name, *args)


TYPING: dict[str, Typing] = {
    **{name: _comparison(name) for name in ("=", "<", "<=", ">", ">=", "<=>")},
    **{name: _arithmetic(name) for name in ("+", "-", "*", "/", "%")},
    **{name: _logical(name) for name in ("and", "or", "not")},
    "<>": _negation("="),
    "isnull": lambda args: Call("isnull", args, "boolean"),
    "isnotnull": _negation("isnull"),
    "isdistinct": _negation("<=>"),
    "neg": _number_to_same("neg"),
    "abs": _number_to_same("abs"),
    "case": _case,
    "if": _renamed("case"),
    "coalesce": _coalesce,
    "nvl": _renamed("coalesce"),
    "ifnull": _renamed("coalesce"),
    "nullif": _nullif,
    "in": lambda args: Call("in", unified(narrowed(args), "IN"), "boolean"),
    "between": _between,
    "like": _like,
    "concat": _strings("concat"),
    "upper": _strings("upper"),
    "lower": _strings("lower"),
    "trim": _strings("trim"),
    "length": _strings("length", "int"),
    "substring": _substring,
    "round": _round,
}
"""From the function's name to its typing rule. A rule may be made of others (<> is NOT =), so the
functions that occur in trees are fewer: those of `renderings.DUCK`."""

CALLS: dict[str, tuple[str, int, int]] = {
    "abs": ("abs", 1, 1),
    "char_length": ("length", 1, 1),
    "character_length": ("length", 1, 1),
    "coalesce": ("coalesce", 1, 255),
    "concat": ("concat", 1, 255),
    "if": ("if", 3, 3),
    "ifnull": ("ifnull", 2, 2),
    "isnotnull": ("isnotnull", 1, 1),
    "isnull": ("isnull", 1, 1),
    "lcase": ("lower", 1, 1),
    "len": ("length", 1, 1),
    "length": ("length", 1, 1),
    "lower": ("lower", 1, 1),
    "mod": ("%", 2, 2),
    "nullif": ("nullif", 2, 2),
    "nvl": ("nvl", 2, 2),
    "round": ("round", 1, 2),
    "substr": ("substring", 2, 3),
    "substring": ("substring", 2, 3),
    "trim": ("trim", 1, 1),
    "ucase": ("upper", 1, 1),
    "upper": ("upper", 1, 1),
}
"""What a view may call, by the name that is written: the typing rule and how few and how many
arguments it takes."""
AGGREGATES = {"avg": "avg", "count": "count", "mean": "avg", "sum": "sum"}
"""The aggregates a view may call, by the name that is written."""
_OTHERS = """
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg bit_and bit_or bit_xor
    bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max max_by median
    min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg
    skewness some std stddev stddev_pop stddev_samp string_agg try_avg try_sum var_pop var_samp variance
"""
OTHER_AGGREGATES = frozenset(_OTHERS.split())
"""Spark's other aggregates."""
NAMES = tuple(sorted((*CALLS, *AGGREGATES)))
