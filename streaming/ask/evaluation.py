"""source_evaluate of one query as far as it has come, and its form in snapshots (strobe-family 5).

A statement that is out is written as the pieces and places it was made of; the tree and the known rows
follow from these, so a snapshot holds no expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Places
from streaming.algebra.source_queries import Known, SourceState
from streaming.ask.state_codec import StateCodec
from streaming.ask.working import Portion, Working
from streaming.messages import Rows

V = TypeVar("V")

Share = tuple[int, tuple[Portion, ...]]
"""A term, by its index in the query, and what of it is in a statement."""


@dataclass(frozen=True)
class Sent:
    """A statement whose answer has not come."""

    source: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Evaluation(Generic[V]):
    """source_evaluate of one query, as far as it has come.

    Attributes:
        places: of every term's answer.
        working: WQ of each term that is not evaluated yet, by index.
        total: the signed sum of the terms that are.
        step: the last statement's.
        sent: the statements out, by step.
        states: of each source asked so far, the last.
    """

    view: str
    id: int
    finish: bool
    places: Places
    working: Mapping[int, Working[V]]
    total: V
    step: int
    sent: Mapping[int, Sent]
    states: Mapping[str, SourceState]


def evaluation_note(
    operators: Operators[V], codec: StateCodec, one: Evaluation[V]
) -> dict[str, Any]:
    """An evaluation as JSON values; relations by reference."""
    return {
        "view": one.view,
        "id": one.id,
        "finish": one.finish,
        "places": list(one.places),
        "working": [
            {
                "index": index,
                "sign": left.sign,
                "pieces": [[list(k.places), operators.pack(k.rows)] for k in left.pieces],
                "asked": list(left.asked),
            }
            for index, left in one.working.items()
        ],
        "total": operators.pack(one.total),
        "step": one.step,
        "sent": [
            {"step": step, "source": sent.source, "shares": _shares_note(sent)}
            for step, sent in one.sent.items()
        ],
        "states": {source: codec.note(state) for source, state in one.states.items()},
    }


def _shares_note(sent: Sent) -> list[Any]:
    return [
        [index, [[[list(piece) for piece in p.pieces], list(p.asked)] for p in portions]]
        for index, portions in sent.shares
    ]


def evaluation_back(
    operators: Operators[V], codec: StateCodec, note: Mapping[str, Any]
) -> Evaluation[V]:
    """The evaluation that `evaluation_note` described."""

    def rows(reference: Any) -> V:
        return operators.open(Rows.model_validate(reference))

    working = {
        left["index"]: Working(
            left["sign"],
            tuple(Known(tuple(places), rows(reference)) for places, reference in left["pieces"]),
            tuple(left["asked"]),
        )
        for left in note["working"]
    }
    return Evaluation(
        note["view"],
        note["id"],
        note["finish"],
        tuple(note["places"]),
        working,
        rows(note["total"]),
        note["step"],
        {one["step"]: Sent(one["source"], _shares_back(one["shares"])) for one in note["sent"]},
        {source: codec.back(state) for source, state in note["states"].items()},
    )


def _shares_back(note: list[Any]) -> tuple[Share, ...]:
    return tuple(
        (index, tuple(Portion(tuple(map(tuple, p)), tuple(asked)) for p, asked in portions))
        for index, portions in note
    )
