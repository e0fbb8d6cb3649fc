"""Queries to the sources and their answers (strobe-family 5, hacid-slides, DESIGN 7).

A query is a signed sum of terms over one view in normal form. A term joins known rows with the
relations at the places it asks for: V<U> of the papers is a term that knows U and asks for the rest,
a compensating query Q<U> knows one place more. An answer says at which state of each source it was
computed. Queries and answers never leave the view manager's step (its manifest keeps the answers), so
these are plain values, not messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Places
from streaming.algebra.tree import Tree
from streaming.messages import Rows

V = TypeVar("V")


class SourceState(Protocol):
    """Which transactions of one source an answer has seen; not always a prefix of its log.

    Attributes:
        upto: commit position at or above that of every transaction seen.
    """

    @property
    def upto(self) -> int: ...

    def saw(self, transaction: str, position: int) -> bool:
        """Whether the answer reflects a transaction, by its id and its commit position."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A state named by positions: everything at or below `upto` but these transactions."""

    upto: int
    missing: frozenset[str] = frozenset()

    def saw(self, transaction: str, position: int) -> bool:
        return position <= self.upto and transaction not in self.missing


@dataclass(frozen=True, slots=True)
class Copied:
    """The state of copies of a source's relations (`ask.copies`): what the manager was handed.

    Attributes:
        position: every transaction at or below it is among them.
        beyond: ids of those above it.
        upto: the commit position of the last.
        whole: all of the source's relations that the view reads are copied. Else a later answer of
            the source itself need not have seen what this state has.
    """

    position: int
    beyond: frozenset[str]
    upto: int
    whole: bool

    def saw(self, transaction: str, position: int) -> bool:
        return position <= self.position or transaction in self.beyond


@dataclass(frozen=True, slots=True)
class Known(Generic[V]):
    """Rows that a term knows: a partial over `places`."""

    places: Places
    rows: V


@dataclass(frozen=True, slots=True)
class Term(Generic[V]):
    """`sign` times the join of the known rows with the relations at the places in `asked`.

    The known places and the asked ones are disjoint. Where they are not all of the view's places, the
    answer is a partial over those named.
    """

    sign: int
    known: tuple[Known[V], ...]
    asked: Places

    @property
    def places(self) -> Places:
        """All places of the answer, ascending."""
        return tuple(sorted([*self.asked, *[p for known in self.known for p in known.places]]))


@dataclass(frozen=True, slots=True)
class Query(Generic[V]):
    """What a view manager asks; `id` counts from 1 in each manager.

    Attributes:
        finish: the answer has the view's outputs; else it is a partial, and all terms are over the
            same places.
    """

    view: str
    id: int
    terms: tuple[Term[V], ...]
    finish: bool = True


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """The rows of a query, all under number 0 where nothing known carried another.

    Attributes:
        states: the state of each source at which its share was computed.
    """

    view: str
    id: int
    rows: V
    states: Mapping[str, SourceState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryPart(Generic[V]):
    """One expression for a source: a tree over its relations and the known rows by scan name."""

    tree: Tree
    inputs: Mapping[str, V]


@dataclass(frozen=True, slots=True)
class SourceQuery(Generic[V]):
    """A statement to one source; all parts are evaluated in one snapshot of it.

    Attributes:
        id: the query's; 0 where only the source's state is asked for.
        step: counts from 1 within the query; the FIFO adapter sends statements on under steps of its
            own, a repeat under a new one.
    """

    view: str
    id: int
    step: int
    source: str
    parts: tuple[QueryPart[V], ...]


@dataclass(frozen=True, slots=True)
class SourceAnswer(Generic[V]):
    """The rows of each part and the source's state that they were computed at."""

    view: str
    id: int
    step: int
    source: str
    rows: tuple[V, ...]
    state: SourceState


def query_note(operators: Operators[V], query: Query[V]) -> dict[str, Any]:
    """A query as JSON values; its known rows by reference."""
    return {
        "view": query.view,
        "id": query.id,
        "finish": query.finish,
        "terms": [
            {
                "sign": term.sign,
                "known": [[list(k.places), operators.pack(k.rows)] for k in term.known],
                "asked": list(term.asked),
            }
            for term in query.terms
        ],
    }


def query_back(operators: Operators[V], note: Mapping[str, Any]) -> Query[V]:
    """The query that `query_note` described."""
    terms = tuple(
        Term(
            t["sign"],
            tuple(Known(tuple(p), operators.open(Rows.model_validate(r))) for p, r in t["known"]),
            tuple(t["asked"]),
        )
        for t in note["terms"]
    )
    return Query(note["view"], note["id"], terms, note["finish"])
