"""Compensation: the answer at one source state from the answer at another (DESIGN 7).

A term is a product of known rows and relations, so it is linear in each relation it asks for. Let d be
what a source state S has more than the state P one wants, R(S) = R(P) + d, for each asked place. Then

    term(S) = sum over all sets X of asked places of term<X := d>, the other places at P

and term(P) is the answer at S minus the terms with X not empty. With one asked place there is one such
term and it knows all its places: compensation is local (SWEEP, ryco-pyco figure 9). With more, those
that still ask are *cross terms*, signed queries with at least one unknown place fewer, wanted at the
same P and compensated in turn; so at most as many rounds follow as places are asked (C-Strobe's bound,
strobe-family 7). S need not be a prefix of the source's log: only d matters, and d is made of the
deltas of the transactions in which S and P differ.

The same substitution gives Q<U> of the papers: with d what a transaction U changed,

    Q(before U) = sum over all X of (-1)^|X| Q<X := d>, the other places after U.

With one relation changed at one place that is Q(before) = Q(after) - Q<U>, as hacid-slides and
strobe-family write it; the sum is right for transactions over several relations and for self-joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from streaming.algebra.join_graph import adjacent, join_graph
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Places, Psj, finished, joined
from streaming.algebra.source_queries import Known, Term

V = TypeVar("V")


def compensate(
    operators: Operators[V],
    psj: Psj,
    term: Term[V],
    rows: V,
    differences: Mapping[int, V],
    finish: bool,
) -> tuple[V, tuple[Term[V], ...]]:
    """A term's answer at S made the answer at P.

    Args:
        rows: the answer at S.
        differences: place -> d, what S has more than P there (signed rows of the leaf); a place
            without one is the same in S and P.
        finish: whether `rows` has the view's outputs; else it is a partial over the term's places.

    Returns:
        what could be done locally, and the cross terms: their values at P are to be added to it.
    """
    cross: list[Term[V]] = []
    for size, other in substituted(operators, term, differences):
        if size < len(term.asked):
            cross.append(_signed(other, -other.sign))
        else:
            rows = operators.minus(rows, known_rows(operators, psj, other, finish))
    return rows, tuple(cross)


def substituted(
    operators: Operators[V], term: Term[V], deltas: Mapping[int, V]
) -> Iterator[tuple[int, Term[V]]]:
    """|X| and term<X := delta> for each set X of asked places with a delta, X not empty."""
    places = [p for p in term.asked if p in deltas and operators.size(deltas[p])]
    for size in range(1, len(places) + 1):
        for chosen in combinations(places, size):
            known = (*term.known, *(Known((p,), deltas[p]) for p in chosen))
            asked = tuple(p for p in term.asked if p not in chosen)
            yield size, Term(term.sign, known, asked)


def change_of_view(
    operators: Operators[V], psj: Psj, deltas: Mapping[int, V]
) -> tuple[Term[V], ...]:
    """V<U>: V after U minus V before U, asked at the state after U."""
    view: Term[V] = Term(1, (), psj.places)
    return tuple(
        term if size % 2 else _signed(term, -term.sign)
        for size, term in substituted(operators, view, deltas)
    )


def before(
    operators: Operators[V], terms: Sequence[Term[V]], deltas: Mapping[int, V]
) -> tuple[Term[V], ...]:
    """-Q<U>: what to add to Q, asked at the state after U, for its value before U."""
    return tuple(
        _signed(other, -other.sign) if size % 2 else other
        for term in terms
        for size, other in substituted(operators, term, deltas)
    )


def known_rows(operators: Operators[V], psj: Psj, term: Term[V], finish: bool) -> V:
    """The value of a term that asks for nothing; `finish`: with the view's outputs."""
    first, *others = term.known
    have, rows = first.places, first.rows
    while others:
        near = next_place(psj, have, tuple(p for known in others for p in known.places))
        at = next(i for i, known in enumerate(others) if near in known.places)
        known = others.pop(at)
        tree = joined(psj, have, known.places, base=False)
        rows = operators.evaluate(tree, {LEFT: rows, RIGHT: known.rows})
        have = tuple(sorted(have + known.places))
    if finish:
        rows = operators.evaluate(finished(psj), {LEFT: rows})
    return rows if term.sign > 0 else operators.minus(operators.minus(rows, rows), rows)


def next_place(psj: Psj, have: Places, remaining: Places) -> int:
    """The place to bring in next: a neighbour of those there, or the first where none is (a product)."""
    graph = join_graph(psj)
    near = (place for place in remaining if adjacent(graph, (place,), have))
    return next(near, remaining[0])


def _signed(term: Term[V], sign: int) -> Term[V]:
    return Term(sign, term.known, term.asked)
