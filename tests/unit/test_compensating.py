"""`compensating`: exact lists per number from answers at any state; truncates; what it remembers."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.algebra.bag import Bag, flat
from streaming.algebra.source_queries import Seen, SourceAnswer
from streaming.viewmanagers.asking.compensating import CompensatingManager
from tests.askedmanagers import ONE, TWO, message, played
from tests.askedsources import tables, view
from tests.strobeworld import Played

THREE = tables(x__r="a b", y__t="b c", z__u="c d")
CHAIN = view("SELECT r.a, u.d FROM x.r r JOIN y.t t ON r.b = t.b JOIN z.u u ON t.c = u.c", THREE)
ROWS = {"x.r": [(1, 2)], "y.t": [(2, 3)], "z.u": [(3, 4)]}


def exact_states(one: Played) -> None:
    """Each complete list, cut at any number, and each other list at its end, is a true state."""
    now: Bag = dict(one.sources.states[0])
    reached = 0
    for actions in one.lists:
        assert actions.first == reached + 1, "lists follow each other"
        rows = {} if actions.delta is None else one.operators.open(actions.delta)
        for number in range(actions.first, actions.last + 1):
            part = one.operators.between(rows, number, number)
            now = flat(one.operators.plus({(0, r): n for r, n in now.items()}, part))
            if actions.complete or number == actions.last:
                assert now == one.sources.states[number], f"at number {number}"
        reached = actions.last
    assert reached == one.sources.number


def answered(one: Played, source: str, rows: Iterable[tuple[int, ...]], state: Seen) -> None:
    """The source's oldest statement is answered with these rows, at this state."""
    found = next(s for s in one.statements if s.source == source)
    one.statements.remove(found)
    value = {(one.sources.number, row): 1 for row in rows}
    one.deliver(SourceAnswer("v", found.id, found.step, source, (value,), state))


def test_a_batch_is_one_complete_list_with_its_rows_number_by_number() -> None:
    one = played(CompensatingManager, TWO)
    commits = [
        one.sources.commit(("x.r", 1, (5, 2))),
        one.sources.commit(("y.t", 1, (2, 4)), ("x.r", -1, (1, 2))),
        one.sources.commit(("y.t", -1, (2, 3))),
        one.sources.commit(("x.r", 1, (1, 2))),
    ]
    one.deliver(message(one, *commits))
    assert len(one.queries) == 2, "one for each changed place"
    one.settle()
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [(1, 4, True)]
    exact_states(one)


def test_what_an_answer_saw_too_early_is_subtracted() -> None:
    one = played(CompensatingManager, TWO)
    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))
    one.settle()
    assert [rows for _, _, _, rows in one.sent] == [{(5, 3): 1}, {(5, 4): 1, (1, 4): 1}]
    exact_states(one)


def test_what_an_answer_missed_is_added_until_an_answer_has_seen_it() -> None:
    one = played(CompensatingManager, TWO)
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))
    one.settle()
    assert list(one.manager.recent.log["y"]) == [1], "y has not been asked"

    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))
    answered(one, "y", [(5, 2, 2, 3)], Seen(0))  # [2,4] is missing
    assert one.sent[-1] == (2, 2, True, {(5, 3): 1, (5, 4): 1})
    assert list(one.manager.recent.log["y"]) == [1], "it may be missed again"

    one.deliver(one.sources.commit(("x.r", 1, (6, 2))))
    one.settle()
    assert one.sent[-1] == (3, 3, True, {(6, 3): 1, (6, 4): 1})
    assert not one.manager.recent.log["y"], "every later snapshot has it"
    assert not one.operators.size(one.manager.recent.deltas[1])
    exact_states(one)


def test_of_two_queries_out_one_may_miss_what_the_other_has_seen() -> None:
    one = played(CompensatingManager, THREE, CHAIN, initial={"x.r": [(1, 2)], "z.u": [(3, 4)]})
    one.deliver(one.sources.commit(("y.t", 1, (2, 3))))
    one.settle()
    one.deliver(one.sources.commit(("x.r", 1, (5, 2)), ("z.u", 1, (3, 6))))
    assert [s.source for s in one.statements] == ["y", "y"]
    answered(one, "y", [(5, 2, 2, 3)], Seen(1))
    answered(one, "y", [], Seen(0))
    one.settle()
    exact_states(one)
    assert not one.manager.recent.log["y"]


def test_a_state_need_not_be_a_prefix() -> None:
    one = played(CompensatingManager, TWO)
    commits = [one.sources.commit(("y.t", 1, (2, c))) for c in (4, 5, 6)]
    one.deliver(message(one, *commits))
    one.settle()
    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))
    seen = [(5, 2, 2, c) for c in (3, 4, 6)]
    answered(one, "y", seen, Seen(3, frozenset({"y2"})))
    assert one.sent[-1][3] == {(5, c): 1 for c in (3, 4, 5, 6)}
    exact_states(one)


def test_a_state_that_parts_the_transactions_of_one_number_is_asked_again() -> None:
    one = played(CompensatingManager, TWO)
    y1, y2 = (one.sources.commit(("y.t", 1, (2, c))) for c in (4, 5))
    both = message(one, y1, y2)
    rows = one.operators.renumbered(one.operators.open(both.relations["y.t"]), 2)
    unit = both.model_copy(
        update={
            "relations": {"y.t": one.operators.pack(rows)},
            "logs": {"y": both.logs["y"].model_copy(update={"numbers": (2, 2)})},
        }
    )
    one.deliver(unit)
    one.settle()
    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))
    answered(one, "y", [(5, 2, 2, 3), (5, 2, 2, 5)], Seen(2, frozenset({"y1"})))
    (again,) = one.statements
    assert (again.id, again.source) == (3, "y")
    one.settle()
    assert one.sent[-1][3] == {(5, 3): 1, (5, 4): 1, (5, 5): 1}


def test_a_batch_costs_at_most_a_query_for_each_pair_of_places_whatever_its_size() -> None:
    for many in (1, 30):
        one = played(CompensatingManager, THREE, CHAIN, initial=ROWS)
        commits = [
            one.sources.commit(("x.r", 1, (i, 2)), ("y.t", 1, (2, 3)), ("z.u", 1, (3, i)))
            for i in range(many)
        ]
        one.deliver(message(one, *commits))
        one.settle()
        assert len(one.queries) == 3 * 2
        assert len(one.sent) == 1
        exact_states(one)


def test_a_chain_whose_rows_run_out_asks_no_further() -> None:
    one = played(CompensatingManager, THREE, CHAIN)
    one.deliver(one.sources.commit(("x.r", 1, (1, 9))))
    one.settle()
    assert [len(q.terms[0].known) for q in one.queries] == [1]
    assert one.sent == [(1, 1, True, {})]


def test_self_joins_and_views_over_one_relation() -> None:
    relations = {"s.r": ONE["s.r"]}
    tree = view("SELECT p.a, q.b FROM s.r p JOIN s.r q ON p.b = q.a", relations)
    one = played(CompensatingManager, relations, tree, initial={"s.r": [(1, 2)]})
    one.deliver(one.sources.commit(("s.r", 1, (2, 2))))
    one.deliver(one.sources.commit(("s.r", -1, (1, 2)), ("s.r", 1, (2, 1))))
    one.settle()
    exact_states(one)

    one = played(CompensatingManager, relations, view("SELECT a FROM s.r", relations))
    one.deliver(one.sources.commit(("s.r", 1, (2, 2))))
    assert not one.queries
    assert not one.operators.size(one.manager.recent.deltas[0]), "nothing is ever asked"
    exact_states(one)


# Truncates ----------------------------------------------------------------------------------------


def test_a_message_is_split_before_each_truncate_and_stays_complete() -> None:
    """r changes, is truncated, gets rows; only r changes before: no answer can have lost anything."""
    one = played(CompensatingManager, TWO)
    commits = [
        one.sources.commit(("x.r", 1, (5, 2))),
        one.sources.commit(("x.r", 1, (7, 2)), truncated="x.r"),
        one.sources.commit(("y.t", 1, (2, 4))),
    ]
    one.deliver(message(one, *commits))
    one.settle()
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [
        (1, 1, True),
        (2, 3, True),
    ]
    exact_states(one)


def test_rows_lost_to_a_truncate_make_one_list_up_to_it() -> None:
    one = played(CompensatingManager, TWO)
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))  # asks r
    one.deliver(one.sources.commit(("y.t", 1, (2, 5))))
    later = [
        one.sources.commit(("x.r", 1, (7, 2)), truncated="x.r"),
        one.sources.commit(("y.t", -1, (2, 3))),
    ]
    one.deliver(message(one, *later))
    one.settle()
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [
        (1, 3, False),
        (4, 4, True),
    ]
    exact_states(one)


def test_an_answer_before_the_truncate_loses_nothing() -> None:
    one = played(CompensatingManager, TWO)
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))
    before = one.evaluate("x")
    one.deliver(one.sources.commit(truncated="x.r"))
    one.deliver(before)
    one.settle()
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [
        (1, 1, True),
        (2, 2, True),
    ]
    exact_states(one)


def test_answers_to_what_was_dropped_are_accepted_and_ignored() -> None:
    one = played(CompensatingManager, THREE, CHAIN, initial={"x.r": [(1, 2)], "z.u": [(3, 4)]})
    one.deliver(one.sources.commit(("y.t", 1, (2, 3)), ("z.u", 1, (3, 5))))
    one.deliver(one.sources.commit(truncated="x.r"))
    slow = one.evaluate("y")
    one.deliver(one.evaluate("x"))  # after the truncate
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [(1, 2, False)]
    one.deliver(slow)
    assert not one.manager.uqs
    exact_states(one)
