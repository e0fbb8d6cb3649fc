"""Rows that came in several messages, cut to a range of numbers, for a mediator (`mediator`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from streaming.algebra.operators import Operators
from streaming.messages import Rows

V = TypeVar("V")


@dataclass(frozen=True)
class Piece:
    """Rows with numbers in [first..last].

    Attributes:
        at_once: they all belong to `last`, whatever numbers they carry.
    """

    rows: Rows
    first: int
    last: int
    at_once: bool = False


def gathered(
    operators: Operators[V], pieces: Sequence[Piece], first: int, last: int, one: bool
) -> Rows | None:
    """The rows of [first..last]; a reference as it came where one fits.

    Args:
        one: whether all rows become rows of `last`.

    Returns:
        None where there are none.
    """
    near = [p for p in pieces if p.rows.rows and p.first <= last and first <= p.last]
    if len(near) == 1 and not one and not near[0].at_once:
        (piece,) = near
        if first <= piece.first and piece.last <= last:
            return piece.rows
    values = []
    for piece in near:
        value = operators.open(piece.rows)
        if piece.at_once:
            value = operators.renumbered(value, piece.last)
        values.append(operators.between(value, first, last))
    if not values:
        return None
    total = operators.plus(*values)
    total = operators.renumbered(total, last) if one else total
    return operators.pack(total) if operators.size(total) else None
