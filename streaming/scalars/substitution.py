"""Taking scalars apart and putting them together over other columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from streaming.scalars.casts import cast
from streaming.scalars.expression import Call, Col, Lit, Scalar


def conjuncts(condition: Scalar | None) -> list[Scalar]:
    """The conditions that AND puts together."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def conjunction(parts: Iterable[Scalar]) -> Scalar | None:
    """One condition of several; None of none."""
    listed = list(parts)
    if not listed:
        return None
    return chained(lambda left, right: Call("and", (left, right), "boolean"), listed)


def chained(joined: Callable[[Scalar, Scalar], Scalar], parts: Sequence[Scalar]) -> Scalar:
    """Parts put together by an associative operator, in their order.

    Few of them as they are written, from the left; of many each half for itself, since walks and the
    engines' parsers go as deep as a tree is.
    """
    if len(parts) <= _FROM_THE_LEFT:
        return reduce(joined, parts)
    middle = len(parts) // 2
    return joined(chained(joined, parts[:middle]), chained(joined, parts[middle:]))


_FROM_THE_LEFT = 16


def substituted(scalar: Scalar, values: Sequence[Scalar]) -> Scalar:
    """The scalar over the columns that `values` are made of, value i in place of column i."""
    match scalar:
        case Col():
            return values[scalar.position]
        case Lit():
            return scalar
        case Call():
            return _rebuilt(scalar, tuple(substituted(arg, values) for arg in scalar.args))


def moved(scalar: Scalar, places: Mapping[int, int]) -> Scalar:
    """The scalar over columns that have moved: column i is now at `places[i]`."""
    match scalar:
        case Col():
            return Col(places[scalar.position], scalar.type)
        case Lit():
            return scalar
        case Call():
            return _rebuilt(scalar, tuple(moved(arg, places) for arg in scalar.args))


def _rebuilt(call: Call, args: tuple[Scalar, ...]) -> Scalar:
    """The call with other arguments; the cast of a literal becomes a literal."""
    if call.function == "cast" and isinstance(args[0], Lit):
        return cast(args[0], call.type)
    return replace(call, args=args)
