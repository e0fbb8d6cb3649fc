"""RV: the whole view at refresh points, compensated to them; periods; truncates."""

from __future__ import annotations

from streaming.algebra.bag import flat
from streaming.algebra.source_queries import Answer, Seen
from streaming.viewmanagers.asking.recompute import RecomputeManager
from tests.askedmanagers import TWO, played
from tests.askedsources import tables, view
from tests.strobeworld import Played

THREE = tables(x__r="a b", y__t="b c", z__u="c d")
CHAIN = view("SELECT r.a, u.d FROM x.r r JOIN y.t t ON r.b = t.b JOIN z.u u ON t.c = u.c", THREE)
CHAIN_ROWS = {"x.r": [(1, 2)], "y.t": [(2, 3)], "z.u": [(3, 4)]}


def spans(one: Played) -> list[tuple[int, int, bool]]:
    return [(first, last, complete) for first, last, complete, _ in one.sent]


def true_states(one: Played) -> None:
    now = one.sources.states[0]
    for _, last, _, rows in one.sent:
        both = [{(0, row): n for row, n in each.items()} for each in (now, rows)]
        now = flat(one.operators.plus(*both))
        assert now == one.sources.states[last], f"after number {last}"


def test_new_minus_old_is_one_list() -> None:
    one = played(RecomputeManager, TWO)
    one.deliver(one.sources.commit(("x.r", 1, (5, 2)), ("y.t", -1, (2, 3)), ("y.t", 1, (2, 4))))
    one.settle()
    assert one.sent == [(1, 1, False, {(1, 3): -1, (1, 4): 1, (5, 4): 1})]


def test_updates_received_meanwhile_count_for_the_next_refresh() -> None:
    one = played(RecomputeManager, THREE, CHAIN, initial=CHAIN_ROWS)
    for number in range(1, 4):
        one.deliver(one.sources.commit(("x.r", 1, (number, 2)), ("y.t", 1, (2, 3))))
        one.deliver(one.evaluate(one.statements[0].source))
    one.settle()
    assert spans(one) == [(1, 1, False), (2, 2, False), (3, 3, False)]
    true_states(one)


def test_a_refresh_every_third_number() -> None:
    one = played(RecomputeManager, TWO, every=3)
    for number in range(1, 8):
        one.deliver(one.sources.commit(("x.r", 1, (number, 2))))
    one.settle()
    assert spans(one) == [(1, 3, False), (4, 6, False)]
    assert [len(p) for p in (one.manager.periods, one.manager.uqs)] == [1, 0], "7 waits"
    true_states(one)


def test_a_list_begins_at_work_and_crosses_no_cut_before_it() -> None:
    one = played(RecomputeManager, TWO, every=4)
    for _ in range(2):
        idle = one.sources.commit()
        nobody = tuple(run.model_copy(update={"views": ()}) for run in idle.runs)
        one.deliver(idle.model_copy(update={"runs": nobody, "cut": True}))
    work = one.sources.commit(("x.r", 1, (5, 2)))
    one.deliver(work.model_copy(update={"cut": False}))
    one.deliver(one.sources.commit())
    one.settle()
    (sent,) = one.lists
    assert (sent.first, sent.last, sent.across) == (3, 4, False)


def test_cross_terms_are_one_query_a_round_and_rounds_are_bounded() -> None:
    one = played(RecomputeManager, THREE, CHAIN, initial=CHAIN_ROWS)
    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))
    for number in range(40):  # something changes everywhere before every answer
        one.deliver(
            one.sources.commit(("x.r", 1, (number, 2)), ("y.t", 1, (2, 3)), ("z.u", 1, (3, number)))
        )
        if one.statements:
            one.deliver(one.evaluate(one.statements[0].source))
        if one.sent:
            break
    assert spans(one) == [(1, 1, False)]
    asked = [[len(t.asked) for t in q.terms] for q in one.queries[:3]]
    assert asked == [[3], [2, 2, 2, 1, 1, 1], [1] * len(one.queries[2].terms)]
    true_states(one)


def test_an_answer_whose_rows_ran_out_needs_no_state_of_the_other_sources() -> None:
    one = played(RecomputeManager, TWO)
    one.deliver(one.sources.commit(("x.r", -1, (1, 2))))
    (statement,) = one.statements
    assert statement.source == "x"
    one.settle()
    assert one.sent == [(1, 1, False, {(1, 3): -1})]


def test_a_state_that_misses_a_truncate_is_asked_again() -> None:
    one = played(RecomputeManager, TWO)
    one.deliver(one.sources.commit(("x.r", 1, (7, 2)), truncated="x.r"))
    stale = Answer("v", 1, {(0, (1, 3)): 1}, {"x": Seen(0), "y": Seen(0)})
    (again,) = one.manager.handle(stale)
    assert (again.id, again.terms) == (2, one.queries[0].terms)


def test_a_truncate_seen_too_early_moves_the_refresh_point() -> None:
    one = played(RecomputeManager, TWO)
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))
    one.deliver(one.sources.commit(("y.t", 1, (2, 5))))
    one.deliver(one.sources.commit(("x.r", 1, (7, 2)), truncated="x.r"))
    one.deliver(one.sources.commit(("y.t", 1, (2, 6))))
    one.settle()
    assert spans(one) == [(1, 3, False), (4, 4, False)]
    true_states(one)
