"""Implicit casts: what Spark (ANSI) makes of operands of different types, written out as casts."""

from __future__ import annotations

from functools import reduce

from streaming.errors import FrescoError
from streaming.scalars.casts import cast
from streaming.scalars.expression import Lit, Scalar
from streaming.scalars.types import FLOATS, INTEGRALS, NULL, common_type, decimal, is_decimal

Args = tuple[Scalar, ...]


def types_differ(what: str, left: str, right: str) -> FrescoError:
    """The refusal of operands whose types do not go together (code SQL_TYPES)."""
    return FrescoError(
        "SQL_TYPES", f"{what}: {left} and {right}", todo="CAST one side to the other's type"
    )


def unified(args: Args, what: str) -> Args:
    """The arguments cast to their one common type, a text literal to the other side's type."""
    type_ = reduce(lambda seen, arg: _meet(seen, arg, what), args).type
    return tuple(cast(arg, type_) for arg in args)


def _meet(left: Scalar, right: Scalar, what: str) -> Scalar:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Lit) and one.type == "string" and other.type not in ("string", NULL):
            return Lit(None, _promoted(other.type))
    type_ = common_type(left.type, right.type)
    if type_ is None:
        raise types_differ(what, left.type, right.type)
    if type_ == left.type:
        return left
    return right if type_ == right.type else Lit(None, type_)


def _promoted(type_: str) -> str:
    """What Spark makes of a text beside a value of this type."""
    if type_ in INTEGRALS:
        return "bigint"
    return "double" if is_decimal(type_) or type_ in FLOATS else type_


def narrowed(args: Args) -> Args:
    """Integer literals beside a decimal become the narrowest decimal that holds them (Spark)."""
    if not any(is_decimal(arg.type) for arg in args):
        return args
    return tuple(_narrow(arg) for arg in args)


def _narrow(arg: Scalar) -> Scalar:
    if isinstance(arg, Lit) and arg.type in INTEGRALS and isinstance(arg.value, int):
        return cast(arg, decimal(len(str(abs(arg.value))), 0))
    return arg
