"""Scalar expressions over a row, whose columns are named by position; and the columns themselves.

Columns are named by position, so names that a user may choose freely (case, spaces, reserved words)
never meet an engine's rules; the names live in `Column.name` only. Types are Spark's, written as Spark's
simple strings ("decimal(18,2)"), because Spark's result types are the law (DESIGN 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

NUMBER = "_number"
"""Column of every delta: the transaction a row belongs to (int64)."""


MULTIPLICITY = "_multiplicity"
"""Column of every delta: +k or -k copies of the row (int64)."""


_T = TypeVar("_T")


def column_name(position: int) -> str:
    """Physical name of a delta's column: c0, c1, ..."""
    return f"c{position}"


def hashed_once(cls: type[_T]) -> type[_T]:
    """The frozen dataclass, whose hash is worked out once for each object.

    Trees and plans share their parts, and a hash that walks all of them takes 2^n steps for n joins.
    The hash is a process's own: nothing of this is pickled.
    """
    whole = cls.__hash__

    def __hash__(self: _T) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = whole(self)
        return int(found)

    cls.__hash__ = __hash__  # type: ignore[method-assign, assignment]
    return cls


@dataclass(frozen=True)
class Column:
    """A column's true name (any text) and its Spark type.

    Attributes:
        hidden: no SQL can name it: it stands there for views planned before (`captured.layout`).
        before: position of the narrower column whose values this one goes on with.
    """

    name: str
    type: str
    hidden: bool = False
    before: int | None = None


Schema = tuple[Column, ...]


@dataclass(frozen=True)
class Col:
    """The value of the input's column at `position` (from 0)."""

    position: int
    type: str


@dataclass(frozen=True)
class Lit:
    """A constant; `value` is None, bool, int, float, str, Decimal, date or datetime."""

    value: object
    type: str


@hashed_once
@dataclass(frozen=True)
class Call:
    """A function or operator on the list in `scalars.functions`, with Spark's result type."""

    function: str
    args: tuple[Scalar, ...]
    type: str

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """How many names an engine's text has of the value, and of whether it fails (`failure`).

        Shared arguments count as often as they are written, since text and walks copy them.
        """
        parts = [arg.sizes if isinstance(arg, Call) else (1, 0) for arg in self.args]
        values, failed = (sum(side) for side in zip(*parts, strict=True))
        own, written = _TEXTS.get(self.function, (1, 1))
        value = own + written * values
        can_fail = self.function in _FALLIBLE and self.type not in ("double", "float")
        if failed or can_fail:
            failed += values + (value if can_fail else 0)
            failed += len(parts) * parts[0][0] if self.function == "in" else 0
        return value, failed

    @property
    def weight(self) -> int:
        """The size of the whole text."""
        return sum(self.sizes)

    @cached_property
    def depth(self) -> int:
        """How many calls stand inside each other."""
        return 1 + max((arg.depth for arg in self.args if isinstance(arg, Call)), default=0)


Scalar = Col | Lit | Call


_TEXTS = {"/": (10, 6), "%": (5, 2), "upper": (110, 6), "lower": (10, 6)}
"""The size of a function's own text, and how often it names an argument at most, where that is more
than 1 (`renderings`)."""


_FALLIBLE = ("+", "-", "*", "/", "%", "neg", "abs", "cast", "upper", "lower")


def weight(scalar: Scalar) -> int:
    """See `Call.weight`; a column or a constant weighs 1."""
    return scalar.weight if isinstance(scalar, Call) else 1


def columns_used(scalar: Scalar) -> frozenset[int]:
    """The input positions a scalar reads."""
    match scalar:
        case Col():
            return frozenset((scalar.position,))
        case Lit():
            return frozenset()
        case Call():
            return frozenset().union(*(columns_used(arg) for arg in scalar.args))
