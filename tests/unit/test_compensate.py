"""Compensation, pure: an answer at any state S, turned into the answer at P (DESIGN 7).

States are sets of transactions. Every cross term is answered at a state of its own and compensated in
turn; what comes out is compared with the term over the relations at P.
"""

from __future__ import annotations

import random

import pytest

from streaming.algebra.bag import Numbered
from streaming.algebra.compensate import (
    before,
    change_of_view,
    compensate,
    known_rows,
    next_place,
)
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Known, Term
from tests.askedsources import tables, view

OPS = NumberedBags()
R = tables(x__r1="a b", x__r2="b c", y__r3="c d")
VIEWS = {
    "chain": "SELECT r1.a, r3.d FROM x.r1 r1 JOIN x.r2 r2 ON r1.b = r2.b JOIN y.r3 r3 ON r2.c = r3.c",
    "star": "SELECT r1.a, r3.d FROM x.r2 r2 JOIN x.r1 r1 ON r1.b = r2.b JOIN y.r3 r3 ON r2.c = r3.c"
    " WHERE r1.a <= r3.d",
    "self-join": "SELECT p.a, q.b FROM x.r1 p JOIN x.r1 q ON p.b = q.a",
    "product": "SELECT r1.a, r3.d FROM x.r1 r1 CROSS JOIN y.r3 r3",
}
PSJ = {name: psj_of(view(sql, R)) for name, sql in VIEWS.items()}


def some(rng: random.Random, width: int, signed: bool = False) -> Numbered:
    rows: Numbered = {}
    for _ in range(rng.randint(0, 3)):
        row = tuple(rng.randint(0, 1) for _ in range(width))
        rows = OPS.plus(rows, {(0, row): rng.choice((1, -1)) if signed else 1})
    return rows


class History:
    """Each place's rows at the beginning, and what each of six transactions changes there."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.psj, self.rng = PSJ[name], rng
        places, widths = self.psj.places, [len(leaf.schema) for leaf in self.psj.leaves]
        self.initial = [some(rng, widths[p]) for p in places]
        self.deltas = [
            [some(rng, widths[p], signed=True) if rng.random() < 0.5 else {} for p in places]
            for _ in range(6)
        ]

    def state(self) -> frozenset[int]:
        return frozenset(t for t in range(6) if self.rng.random() < 0.5)

    def rows(self, place: int, state: frozenset[int]) -> Numbered:
        return OPS.plus(self.initial[place], *(self.deltas[t][place] for t in sorted(state)))

    def at(self, term: Term[Numbered], state: frozenset[int], finish: bool = True) -> Numbered:
        """The term's value."""
        known = (*term.known, *(Known((p,), self.rows(p, state)) for p in term.asked))
        return known_rows(OPS, self.psj, Term(term.sign, known, ()), finish)

    def difference(self, s: frozenset[int], p: frozenset[int]) -> dict[int, Numbered]:
        places = self.psj.places
        return {k: OPS.minus(self.rows(k, s), self.rows(k, p)) for k in places}


@pytest.mark.parametrize("name", VIEWS)
def test_an_answer_at_any_state_becomes_the_answer_at_the_one_wanted(name: str) -> None:
    for seed in range(150):
        history = History(name, random.Random(seed))
        term: Term[Numbered] = Term(1, (), history.psj.places)
        if seed % 2:
            first = Known((0,), history.deltas[0][0])
            term = Term(-1, (first,), history.psj.places[1:])
        wanted = history.state()
        total: Numbered = {}
        rounds, terms = 0, [term]
        while terms:
            rounds += 1
            following = []
            for one in terms:
                s = history.state()
                rows, cross = compensate(
                    OPS, history.psj, one, history.at(one, s), history.difference(s, wanted), True
                )
                assert all(len(other.asked) < len(one.asked) for other in cross)
                following += cross
                total = OPS.plus(total, rows)
            terms = following
        assert total == history.at(term, wanted), f"{name}, seed {seed}"
        assert rounds <= len(term.asked), f"{name}, seed {seed}: C-Strobe's bound"


@pytest.mark.parametrize("name", VIEWS)
def test_one_asked_place_is_compensated_locally(name: str) -> None:
    for seed in range(60):
        history = History(name, random.Random(seed))
        s, p = history.state(), history.state()
        last = history.psj.places[-1]
        known = tuple(Known((k,), history.deltas[0][k]) for k in history.psj.places[:-1])
        term = Term(1, known, (last,))
        rows, cross = compensate(
            OPS, history.psj, term, history.at(term, s, False), history.difference(s, p), False
        )
        assert not cross
        assert rows == history.at(term, p, False), f"{name}, seed {seed}"


@pytest.mark.parametrize("name", VIEWS)
def test_the_change_of_the_view_and_what_compensates_it_are_asked_after_the_update(
    name: str,
) -> None:
    for seed in range(100):
        history = History(name, random.Random(seed))
        old = history.state() - {5}
        new = old | {5}
        update = dict(enumerate(history.deltas[5]))
        whole: Term[Numbered] = Term(1, (), history.psj.places)
        change = [history.at(t, new) for t in change_of_view(OPS, history.psj, update)]
        truth = OPS.minus(history.at(whole, new), history.at(whole, old))
        assert OPS.plus({}, *change) == truth, f"{name}, seed {seed}: V<U>"

        query = Term(-1, (Known((0,), history.deltas[0][0]),), history.psj.places[1:])
        undone = [history.at(t, new) for t in before(OPS, [query], update)]
        truth = OPS.minus(history.at(query, old), history.at(query, new))
        assert OPS.plus({}, *undone) == truth, f"{name}, seed {seed}: -Q<U>"


def test_one_update_of_one_relation_gives_the_papers_terms() -> None:
    psj, u1, u2 = PSJ["chain"], {(0, (1, 2)): 1}, {(0, (2, 3)): -1}
    (q1,) = change_of_view(OPS, psj, {0: u1})
    assert q1 == Term(1, (Known((0,), u1),), (1, 2)), "V<U1>"
    assert before(OPS, [q1], {1: u2}) == (Term(-1, (Known((0,), u1), Known((1,), u2)), (2,)),), (
        "- Q1<U2>"
    )
    assert before(OPS, [q1], {0: u2}) == (), "Q1 does not ask for r1"
    assert change_of_view(OPS, psj, {0: {}}) == ()


def test_known_rows_are_joined_with_neighbours_first() -> None:
    chain, star = PSJ["chain"], PSJ["star"]
    assert next_place(chain, (0,), (2, 1)) == 1
    assert next_place(star, (1,), (0, 2)) == 0
    assert next_place(PSJ["product"], (0,), (1,)) == 1, "a product where there is no neighbour"
