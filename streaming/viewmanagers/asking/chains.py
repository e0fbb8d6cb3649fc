"""A chain: known rows to which the other places are brought in, one after the other (DESIGN 7).

SWEEP's left and right pass (ryco-pyco figure 9) with numbers: it begins with known rows at some places
and ends with rows over all of them. A step asks for one place; its answer, at whatever state S, is made
the answer at P locally: rows x R(P) = rows x R(S) - rows x d. Where the chain wants the place *after*
the batch, the batch's own delta is added in the same local join, each pair under the larger number.
A chain whose rows run out ends without asking further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from streaming.algebra.compensate import next_place
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Places, Psj, joined
from streaming.algebra.source_queries import Known, Term
from streaming.messages import Rows

V = TypeVar("V")


@dataclass(frozen=True)
class Chain(Generic[V]):
    """How far it has come.

    Attributes:
        have: the places of `rows`.
        whole: of a place to come: all its rows at every number of the batch; nothing to ask.
        more: of a place to come: what to add to its state P, with numbers.
    """

    have: Places
    rows: V
    whole: Mapping[int, V]
    more: Mapping[int, V]


def step(operators: Operators[V], psj: Psj, chain: Chain[V]) -> tuple[Chain[V], int | None]:
    """The chain after all that can be done locally, and the place to ask for, None at its end."""
    while operators.size(chain.rows):
        remaining = tuple(p for p in psj.places if p not in chain.have)
        if not remaining:
            break
        place = next_place(psj, chain.have, remaining)
        if place not in chain.whole:
            return chain, place
        joined_here = _joined(operators, psj, chain, place, chain.whole[place])
        chain = brought_in(chain, place, joined_here)
    return chain, None


def question(chain: Chain[V], place: int) -> Term[V]:
    """What the chain asks for a place."""
    return Term(1, (Known(chain.have, chain.rows),), (place,))


def answered(
    operators: Operators[V], psj: Psj, chain: Chain[V], place: int, rows: V, surplus: V
) -> Chain[V]:
    """The chain with the place brought in.

    Args:
        rows: the answer at S.
        surplus: R(S) - R(P), under number 0.
    """
    correction = operators.minus(
        chain.more.get(place, operators.empty(psj.leaves[place].schema)), surplus
    )
    if operators.size(correction):
        rows = operators.plus(rows, _joined(operators, psj, chain, place, correction))
    return brought_in(chain, place, rows)


def brought_in(chain: Chain[V], place: int, rows: V) -> Chain[V]:
    return replace(chain, have=tuple(sorted((*chain.have, place))), rows=rows)


def _joined(operators: Operators[V], psj: Psj, chain: Chain[V], place: int, other: V) -> V:
    tree = joined(psj, chain.have, (place,), base=False)
    return operators.evaluate(tree, {LEFT: chain.rows, RIGHT: other})


def chain_note(operators: Operators[V], chain: Chain[V]) -> dict[str, Any]:
    """A chain as JSON values; its rows by reference."""
    return {
        "have": list(chain.have),
        "rows": operators.pack(chain.rows),
        "whole": [[p, operators.pack(v)] for p, v in chain.whole.items()],
        "more": [[p, operators.pack(v)] for p, v in chain.more.items()],
    }


def chain_back(operators: Operators[V], note: Mapping[str, Any]) -> Chain[V]:
    """The chain that `chain_note` described."""

    def opened(pairs: list[Any]) -> dict[int, V]:
        return {p: operators.open(Rows.model_validate(rows)) for p, rows in pairs}

    rows = operators.open(Rows.model_validate(note["rows"]))
    return Chain(tuple(note["have"]), rows, opened(note["whole"]), opened(note["more"]))
