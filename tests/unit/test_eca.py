"""ECA beyond the slides: the gate, transactions, self-joins, three relations, truncates."""

from __future__ import annotations

from typing import Any

from streaming.algebra.bag import flat
from streaming.viewmanagers.asking.eca import EcaManager
from tests.askedmanagers import ONE, message, played
from tests.askedsources import tables, view
from tests.strobeworld import Played

THREE = tables(s__r="a b", s__t="b c", s__u="c d")
CHAIN = view("SELECT r.a, u.d FROM s.r r JOIN s.t t ON r.b = t.b JOIN s.u u ON t.c = u.c", THREE)
CHAIN_ROWS: dict[str, Any] = {"s.r": [(1, 2)], "s.t": [(2, 3)], "s.u": [(3, 4)]}


def eca(gate: bool = True, **how: Any) -> Played:
    return played(EcaManager, gate=gate, **how)


def true_states(one: Played) -> None:
    """Each list leads to the view's contents after the last number it covers."""
    now = one.sources.states[0]
    for _, last, _, rows in one.sent:
        now = one.operators.plus(*({(0, r): n for r, n in each.items()} for each in (now, rows)))
        now = flat(now)
        assert now == one.sources.states[last], f"after number {last}"


def test_the_gate_ends_a_list_at_each_cut_though_a_query_is_always_out() -> None:
    one = eca()
    for c in range(4, 8):  # the next update comes before the last one's answer
        one.deliver(one.sources.commit(("s.t", 1, (2, c))))
        if one.statements[1:]:
            one.deliver(one.evaluate("s"))
    one.settle()
    assert [(first, last) for first, last, _, _ in one.sent] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    true_states(one)


def test_without_the_gate_the_same_load_gives_one_list_at_its_end() -> None:
    one = eca(gate=False)
    for c in range(4, 8):
        one.deliver(one.sources.commit(("s.t", 1, (2, c))))
        if one.statements[1:]:
            one.deliver(one.evaluate("s"))
    assert one.sent == [], "starved"
    one.settle()
    assert [(first, last) for first, last, _, _ in one.sent] == [(1, 4)]
    true_states(one)


def test_an_update_at_the_gate_is_compensated_at_once_and_taken_up_later() -> None:
    one = eca(tree=CHAIN, relations=THREE, initial=CHAIN_ROWS)
    one.deliver(one.sources.commit(("s.r", 1, (5, 2))))
    one.deliver(one.sources.commit(("s.t", 1, (2, 6))))
    one.deliver(one.sources.commit(("s.u", 1, (6, 7))))
    assert [[(t.sign, t.asked) for t in q.terms] for q in one.queries] == [
        [(1, (1, 2))],  # Q1 = V<U1>
        [(-1, (2,))],  # - Q1<U2>
        [(-1, (1,)), (1, ())],  # - Q1<U3>, and + Q1<U2><U3>
    ]
    one.settle()
    assert [(first, last) for first, last, _, _ in one.sent] == [(1, 1), (2, 2), (3, 3)]
    true_states(one)
    assert [(t.sign, t.asked) for t in one.queries[3].terms] == [
        (1, (0, 2)),  # V<U2>
        (-1, (0,)),  # - V<U2><U3>: U3 waits at the gate, the source has it
    ]


def test_a_query_that_knows_all_its_places_is_not_sent() -> None:
    one = eca()
    one.deliver(one.sources.commit(("s.t", 1, (2, 4))))
    one.deliver(one.sources.commit(("s.r", 1, (5, 2))))
    assert len(one.queries) == 1, "- Q1<U2> = -[5,2] x [2,4] is known"
    assert flat(one.manager.collect) == {(5, 4): -1}
    one.settle()
    true_states(one)


def test_a_message_of_many_transactions_is_one_update_and_its_query_does_not_grow() -> None:
    sizes = []
    for many in (2, 20):
        one = eca(tree=CHAIN, relations=THREE, initial=CHAIN_ROWS)
        commits = []
        for i in range(many):
            commits.append(one.sources.commit(("s.r", 1, (i, 2)), ("s.t", 1, (2, 3))))
            commits.append(one.sources.commit(("s.u", 1, (3, i))))
        one.deliver(message(one, *commits))
        sizes.append(len(one.queries[0].terms))
        one.settle()
        assert [(first, last) for first, last, _, _ in one.sent] == [(1, 2 * many)]
        true_states(one)
    assert sizes == [7, 7], "one for each set of changed places but the empty one"


def test_a_self_join() -> None:
    relations = {"s.r": ONE["s.r"]}
    tree = view("SELECT p.a, q.b FROM s.r p JOIN s.r q ON p.b = q.a", relations)
    one = eca(tree=tree, relations=relations, initial={"s.r": [(1, 2)]})
    one.deliver(one.sources.commit(("s.r", 1, (2, 2))))
    one.deliver(one.sources.commit(("s.r", -1, (1, 2)), ("s.r", 1, (2, 1))))
    one.settle()
    true_states(one)
    assert one.mv == {(2, 2): 1, (2, 1): 1}


def test_a_truncate_alone_empties_the_view_without_a_query() -> None:
    one = eca()
    one.deliver(one.sources.commit(truncated="s.r"))
    assert not one.queries
    assert one.sent == [(1, 1, False, {(1, 3): -1})]


def test_rows_after_a_truncate_are_known_and_the_others_are_asked() -> None:
    one = eca()
    one.deliver(one.sources.commit(("s.r", 1, (7, 2)), ("s.t", 1, (2, 4)), truncated="s.r"))
    assert [(t.sign, t.asked) for t in one.queries[0].terms] == [(1, (1,))]
    one.deliver(one.sources.commit(("s.t", 1, (2, 5))))
    one.settle()
    assert [(first, last) for first, last, _, _ in one.sent] == [(1, 1), (2, 2)]
    true_states(one)


def test_a_truncate_at_the_gate_makes_one_list_across_the_cut() -> None:
    """The query of number 1 is evaluated after the truncate: r's rows are gone for good."""
    one = eca()
    one.deliver(one.sources.commit(("s.t", 1, (2, 4))))
    one.deliver(one.sources.commit(("s.r", 1, (8, 2))))
    one.deliver(one.sources.commit(("s.r", 1, (7, 2)), truncated="s.r"))
    one.deliver(one.sources.commit(("s.t", -1, (2, 3))))
    assert one.manager.uqs[1].terms == (), "void"
    one.settle()
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [
        (1, 3, False),
        (4, 4, False),
    ]
    true_states(one)
