"""The query processor: order of sources, statements, sums of terms, protocol (strobe-family 5)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from streaming.algebra.bag import Numbered, numbered
from streaming.algebra.psj import LEFT, Psj, psj_of
from streaming.algebra.source_queries import (
    Answer,
    Known,
    Query,
    Seen,
    SourceAnswer,
    SourceQuery,
    Term,
)
from streaming.ask.processor import QueryProcessor
from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import Sources, tables, view

RELATIONS = tables(x__r="a b", y__s="b c", x__t="c d", z__u="d e", y__w="e f")
CHAIN = (
    "SELECT r.a, s.c, t.d, u.e FROM x.r r JOIN y.s s ON r.b = s.b JOIN x.t t ON s.c = t.c"
    " JOIN z.u u ON t.d = u.d"
)
ONE = {(1, (1, 1)): 1}
"""A known row of any relation here."""
ROWS = {name: [(1, 1), (1, 2), (2, 1)] for name in RELATIONS}


class Asked:
    """A processor in front of sources whose contents do not change."""

    def __init__(self, sql: str, exact: bool = False, **statistics: int) -> None:
        self.spec = ManagedView("v", "g", view(sql, RELATIONS))
        self.sources = Sources(self.spec, ROWS)
        self.psj: Psj = psj_of(self.spec.tree)
        self.processor = QueryProcessor(
            self.psj,
            self.sources.operators,
            {name.replace("__", "."): rows for name, rows in statistics.items()},
            exact=exact,
        )
        self.sent: list[tuple[str, int]] = []
        """Source and number of parts of each statement."""

    def evaluate(self, *terms: Term[Numbered], finish: bool = True, seed: int = 0) -> Any:
        """The query's answer; outstanding statements are answered in a random order."""
        rng = random.Random(seed)
        query = Query("v", self.processor.last_query + 1, terms, finish)
        out = self.processor.handle(query)
        while not (out and isinstance(out[-1], Answer)):
            statement = out.pop(rng.randrange(len(out)))
            assert isinstance(statement, SourceQuery)
            self.sent.append((statement.source, len(statement.parts)))
            out += self.processor.handle(self.sources.answer(statement))
        (answer,) = out
        assert isinstance(answer, Answer)
        return answer

    def expected(self, *terms: Term[Numbered]) -> Numbered:
        """The same sum, all relations known, so everything is joined at home."""
        ops, total = self.sources.operators, dict[Any, int]()
        for term in terms:
            pieces = list(term.known)
            for place in term.asked:
                name = self.psj.relations[place]
                rows = {name: numbered(self.sources.rows[name])}
                pieces.append(Known((place,), ops.evaluate(self.psj.leaves[place], rows)))
            whole = Query("v", 1, (Term(term.sign, tuple(pieces), ()),))
            (answer,) = QueryProcessor(self.psj, ops).handle(whole)
            assert isinstance(answer, Answer)
            total = ops.plus(total, answer.rows)
        return total


def known(place: int, rows: Numbered = ONE) -> Known[Numbered]:
    return Known((place,), rows)


def test_a_term_that_asks_nothing_is_evaluated_at_once() -> None:
    asked = Asked("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
    term = Term(-1, (known(0), known(1, {(2, (1, 5)): 1})), ())
    (answer,) = asked.processor.handle(Query("v", 1, (term,)))
    assert answer == Answer("v", 1, {(2, (1, 5)): -1}, {})


def test_signs_are_applied_and_terms_summed() -> None:
    asked = Asked("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
    terms = Term(1, (known(0),), (1,)), Term(-1, (known(0), known(1, {(2, (1, 2)): 1})), ())
    answer = asked.evaluate(*terms)
    assert answer.rows == {(1, (1, 1)): 1, (1, (1, 2)): 1, (2, (1, 2)): -1}
    assert asked.sent == [("y", 1)]
    assert answer.states == {"y": Seen(0)}


def test_a_partial_has_the_leaves_columns_in_the_order_of_places() -> None:
    asked = Asked(CHAIN)
    answer = asked.evaluate(Term(1, (known(2),), (1,)), finish=False)
    assert answer.rows == {(1, (1, 1, 1, 1)): 1, (1, (2, 1, 1, 1)): 1}


def test_neighbours_of_the_known_rows_come_first_then_smaller_relations_then_places() -> None:
    term = Term(1, (known(1),), (0, 2, 3))
    asked = Asked(CHAIN)
    asked.evaluate(term)
    assert asked.sent == [("x", 1), ("z", 1)], "r and t are both neighbours of s, and both at x"
    asked = Asked(CHAIN, z__u=1, x__t=5, y__s=7)
    asked.evaluate(Term(1, (known(0),), (1, 2, 3)))
    assert asked.sent == [("y", 1), ("x", 1), ("z", 1)], "u is small but no neighbour until t is in"
    asked = Asked("SELECT r.a, s.c, u.e FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.u u ON r.a = u.d")
    asked.evaluate(Term(1, (known(0),), (1, 2)))
    assert asked.sent == [("y", 1), ("z", 1)]
    asked = Asked(
        "SELECT r.a, s.c, u.e FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.u u ON r.a = u.d",
        y__s=100,
        z__u=10,
    )
    asked.evaluate(Term(1, (known(0),), (1, 2)))
    assert asked.sent == [("z", 1), ("y", 1)]


def test_neighbours_at_one_source_are_one_part_of_one_statement() -> None:
    asked = Asked("SELECT u.e, t.c, r.a FROM z.u u JOIN x.t t ON u.d = t.d JOIN x.r r ON t.c = r.b")
    term = Term(1, (known(0),), (1, 2))
    (statement,) = asked.processor.handle(Query("v", 1, (term,)))
    assert isinstance(statement, SourceQuery)
    assert len(statement.parts) == 1
    assert asked.evaluate(term).rows == asked.expected(term)


def test_known_rows_on_both_sides_of_a_relation_travel_with_one_statement() -> None:
    asked = Asked(CHAIN)
    term = Term(1, (known(0), known(2)), (1, 3))
    (statement,) = asked.processor.handle(Query("v", 1, (term,)))
    assert isinstance(statement, SourceQuery)
    assert statement.source == "y"
    assert sorted(statement.parts[0].inputs) == [LEFT, f"{LEFT}1"]
    assert asked.evaluate(term).rows == asked.expected(term)


def test_terms_that_turn_to_one_source_share_a_statement_and_others_go_side_by_side() -> None:
    asked = Asked(CHAIN)
    terms = (
        Term(1, (known(0),), (1, 2, 3)),
        Term(1, (known(2),), (0, 1, 3)),
        Term(-1, (known(1),), (0, 2, 3)),
    )
    out = asked.processor.handle(Query("v", 1, terms))
    assert [(s.source, s.step, len(s.parts)) for s in out] == [("x", 1, 1), ("y", 2, 2)]  # type: ignore[union-attr]
    for seed in range(4):
        assert asked.evaluate(*terms, seed=seed).rows == asked.expected(*terms)


def test_a_query_that_knows_nothing_begins_with_the_smallest_relation() -> None:
    asked = Asked(CHAIN, x__r=9, y__s=8, x__t=7, z__u=6)
    term: Term[Numbered] = Term(1, (), (0, 1, 2, 3))
    answer = asked.evaluate(term)
    assert asked.sent == [("z", 1), ("x", 1), ("y", 1), ("x", 1)]
    assert answer.rows == asked.expected(term)
    assert answer.rows, "the chain has rows"


def test_products_are_made_at_home_and_only_where_nothing_is_a_neighbour() -> None:
    asked = Asked("SELECT r.a, r.b, u.d, u.e FROM x.r r CROSS JOIN z.u u")
    term = Term(1, (known(0),), (1,))
    (statement,) = asked.processor.handle(Query("v", 1, (term,)))
    assert isinstance(statement, SourceQuery)
    assert statement.parts[0].inputs == {}, "u comes as it is, once"
    assert asked.evaluate(term).rows == asked.expected(term)


def test_a_condition_between_two_relations_makes_them_neighbours() -> None:
    asked = Asked("SELECT r.b, u.e FROM x.r r JOIN z.u u ON r.a < u.d")
    term = Term(1, (known(0),), (1,))
    (statement,) = asked.processor.handle(Query("v", 1, (term,)))
    assert isinstance(statement, SourceQuery)
    assert list(statement.parts[0].inputs) == [LEFT]
    assert asked.evaluate(term).rows == asked.expected(term) == {(1, (1, 1)): 1}


def test_a_term_whose_rows_run_out_asks_no_further_and_names_no_state_of_the_others() -> None:
    asked = Asked(CHAIN)
    answer = asked.evaluate(Term(1, (known(0, {(1, (9, 9)): 1}),), (1, 2, 3)))
    assert asked.sent == [("y", 1)]
    assert answer == Answer("v", 1, {}, {"y": Seen(0)})
    answer = asked.evaluate(Term(1, (known(0, {}),), (1, 2, 3)))
    assert asked.sent == [("y", 1)]
    assert answer == Answer("v", 2, {}, {})


def test_self_joins_ask_for_a_place_not_for_a_relation() -> None:
    asked = Asked("SELECT p.a, q.b FROM x.r p JOIN x.r q ON p.b = q.a")
    for place in (0, 1):
        term = Term(1, (known(place),), (1 - place,))
        assert asked.evaluate(term).rows == asked.expected(term)


ZIGZAG = (
    "SELECT r.a, w.f FROM x.r r JOIN y.s s ON r.b = s.b JOIN x.t t ON s.c = t.c"
    " JOIN z.u u ON t.d = u.d JOIN y.w w ON u.e = w.e"
)


def test_a_source_is_visited_again_when_more_of_it_has_come_within_reach() -> None:
    asked = Asked(ZIGZAG)
    term = Term(1, (known(0),), (1, 2, 3, 4))
    assert asked.evaluate(term).rows == asked.expected(term)
    assert asked.sent == [("y", 1), ("x", 1), ("z", 1), ("y", 1)]


def test_exact_visits_each_source_once_for_all_terms_together() -> None:
    asked = Asked(ZIGZAG, exact=True)
    terms = Term(1, (known(0),), (1, 2, 3, 4)), Term(-1, (known(3),), (0, 1, 2, 4))
    assert asked.evaluate(*terms).rows == asked.expected(*terms)
    assert asked.sent == [("y", 4), ("x", 2), ("z", 1)], "s and w of both terms in one snapshot"


def test_answers_of_several_queries_may_come_in_any_order() -> None:
    asked = Asked("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
    term = Term(1, (known(0),), (1,))
    (first,) = asked.processor.handle(Query("v", 1, (term,)))
    (second,) = asked.processor.handle(Query("v", 2, (replace(term, sign=-1),)))
    (late,) = asked.processor.handle(asked.sources.answer(second))  # type: ignore[arg-type]
    (early,) = asked.processor.handle(asked.sources.answer(first))  # type: ignore[arg-type]
    assert (late.id, early.id) == (2, 1)


def test_a_restored_processor_goes_on_where_the_saved_one_was() -> None:
    asked = Asked(ZIGZAG)
    terms = Term(1, (known(0),), (1, 2, 3, 4)), Term(-1, (known(3),), (0, 1, 2, 4))
    out: list[Any] = asked.processor.handle(Query("v", 1, terms))
    while isinstance(out[0], SourceQuery):
        saved = as_json(asked.processor.snapshot())
        before = asked.processor
        asked.processor = QueryProcessor(asked.psj, asked.sources.operators)
        asked.processor.restore(saved)
        assert asked.processor.under_way == before.under_way
        statement = out.pop(0)
        out += asked.processor.handle(asked.sources.answer(statement))
    assert out[0].rows == asked.expected(*terms)


TERM = Term(1, (known(0),), (1,))
ANSWER: SourceAnswer[Numbered] = SourceAnswer("v", 1, 1, "y", ({},), Seen(0))
BAD = [
    (Query("v", 1, (TERM,)), "id from the past"),
    (Query("v", 2, (), finish=False), "partial of no term"),
    (Query("v", 2, (replace(TERM, asked=()),)), "over the places"),
    (Query("v", 2, (TERM, Term(1, (known(0),), ())), finish=False), "over the places"),
    (Query("v", 2, (replace(TERM, asked=(0,)),), finish=False), "a place twice"),
    (Query("v", 2, (replace(TERM, asked=(7,)),), finish=False), "none of the view's"),
    (Query("v", 2, (replace(TERM, sign=2),)), "a sign"),
    (replace(ANSWER, id=2), "without a query"),
    (replace(ANSWER, view="w"), "without a query"),
    (replace(ANSWER, step=2), "without a statement"),
    (replace(ANSWER, source="x"), "went to y"),
    (replace(ANSWER, rows=()), "0 parts, the statement has 1"),
]


@pytest.mark.parametrize(("message", "rule"), BAD, ids=[rule for _, rule in BAD])
def test_a_message_out_of_its_protocol_changes_nothing(message: Any, rule: str) -> None:
    asked = Asked("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
    asked.processor.handle(Query("v", 1, (TERM,)))
    state = (asked.processor.last_query, dict(asked.processor.under_way))
    with pytest.raises(ProtocolError, match=rule) as raised:
        asked.processor.handle(message)
    assert raised.value.code == "PROTOCOL_QUERY_PROCESSOR"
    assert (asked.processor.last_query, asked.processor.under_way) == state
    assert isinstance(asked.processor.handle(ANSWER)[0], Answer), "the query can still be answered"


def test_an_answer_is_taken_once() -> None:
    asked = Asked("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
    asked.processor.handle(Query("v", 1, (TERM,)))
    asked.processor.handle(ANSWER)
    with pytest.raises(ProtocolError, match="without a query"):
        asked.processor.handle(ANSWER)
