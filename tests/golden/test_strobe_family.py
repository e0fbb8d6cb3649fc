"""strobe-family Examples 0 and 2 to 6, with every intermediate state; Example 1 is `test_next_source`.

The examples number their updates, so U_i has number i here. The Strobe examples are the paper's
without a gate; what the gate makes of Example 2 is in `unit/test_strobe.py`.
The last steps of Examples 5 and 6 say key_delete*(MV, U_2) where line 6 has key_delete; here both
delete the same row.
"""

from __future__ import annotations

from functools import partial

import pytest

from streaming.algebra.tree import Relation
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.g_strobe import GStrobe
from streaming.viewmanagers.asking.naive import NaiveManager
from streaming.viewmanagers.asking.strobe import Strobe
from tests.askedsources import tables, view
from tests.strobeworld import Played, part_of

R = tables(x__r1="a b", y__r2="b c", z__r3="c d")
CHAIN = view(
    "SELECT r1.a, r1.b, r2.c, r3.d FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
    " JOIN z.r3 r3 ON r2.c = r3.c",
    R,
)
INITIAL = {"x.r1": [(1, 2)], "z.r3": [(3, 4)]}
U1 = ("y.r2", 1, (2, 3))
U2 = ("x.r1", -1, (1, 2))
ROW = {(1, 2, 3, 4): 1}

R4 = {**tables(x__r1="a b"), "y.r2": Relation("y.r2", R["y.r2"].schema, (1,))}
"""Example 4: A is the key of r1, C of r2."""
PAIR = view("SELECT r1.a, r1.b, r2.c FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b", R4)
INITIAL_4 = {"y.r2": [(3, 4), (3, 5)]}

UNGATED = partial(Strobe, gate=False)

restarts = pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted at each message"])


def insertion_is_asked_at_x_first(played: Played) -> None:
    """Q_1 = r1 join [2,3] join r3, and Q_1^1 = r1 join [2,3] to source x."""
    assert played.known() == [({1: {(2, 3): 1}}, (0, 2))]
    assert [one.source for one in played.statements] == ["x"]


def test_example_0_the_conventional_algorithm_ends_with_a_row_that_should_not_exist() -> None:
    def make(spec, operators, keys):  # type: ignore[no-untyped-def]
        return NaiveManager(spec, operators, deletions="view")

    played = Played(make, CHAIN, R, INITIAL)
    assert played.mv == {}

    played.deliver(played.sources.commit(U1))
    insertion_is_asked_at_x_first(played)

    played.deliver(played.evaluate("x"))
    assert [one.source for one in played.statements] == ["z"], "Q_1^2 = [1,2,3] join r3"

    played.deliver(played.sources.commit(U2))
    assert played.mv == {}
    assert played.sent == [], "the view is empty, so no action is taken"

    played.deliver(played.evaluate("z"))
    assert played.mv == ROW
    assert played.sources.contents() == {}, "the true view"


@restarts
def test_example_2_strobe_avoids_the_deletion_anomaly(restarts: bool) -> None:
    played = Played(UNGATED, CHAIN, R, INITIAL, restarts)
    assert (played.al, played.uqs, played.pending, played.mv) == ([], [], {}, {})

    played.deliver(played.sources.commit(U1))
    insertion_is_asked_at_x_first(played)
    assert (played.al, played.uqs, played.pending) == ([], [(1, 1, 0)], {1: []})

    played.deliver(played.evaluate("x"))
    assert [one.source for one in played.statements] == ["z"], "Q_1^2 = [1,2,3] join r3"
    assert (played.al, played.uqs, played.pending) == ([], [(1, 1, 0)], {1: []})

    played.deliver(played.sources.commit(U2))
    deletion = (0, {(1, 2): -1})
    assert played.pending == {1: [deletion]}
    assert played.al == [("key_delete", *deletion)]
    assert (played.uqs, played.mv, played.sent) == ([(1, 1, 0)], {}, [])

    played.deliver(played.evaluate("z"))
    assert (played.al, played.uqs, played.pending, played.mv) == ([], [], {}, {})
    assert played.sent == [(1, 2, False, {})]


@restarts
def test_example_3_strobe_passes_through_the_middle_of_a_transaction(restarts: bool) -> None:
    r1 = tables(x__r1="a b")
    played = Played(UNGATED, view("SELECT a, b FROM x.r1", r1), r1, {"x.r1": [(1, 2)]}, restarts)
    assert played.mv == {(1, 2): 1}

    played.deliver(played.sources.commit(("x.r1", -1, (1, 2))))
    assert played.mv == {}, "consistent with r1 neither before nor after T_1"

    played.deliver(played.sources.commit(("x.r1", 1, (3, 4))))
    assert played.mv == {(3, 4): 1}
    assert played.sent == [(1, 1, False, {(1, 2): -1}), (2, 2, False, {(3, 4): 1})]
    assert not played.queries, "a view over one relation asks nothing"


@restarts
def test_example_3_t_strobe_goes_straight_to_the_end_of_the_transaction(restarts: bool) -> None:
    r1 = tables(x__r1="a b")
    played = Played(UNGATED, view("SELECT a, b FROM x.r1", r1), r1, {"x.r1": [(1, 2)]}, restarts)
    played.deliver(played.sources.commit(("x.r1", -1, (1, 2)), ("x.r1", 1, (3, 4))))
    assert played.mv == {(3, 4): 1}
    assert played.sent == [(1, 1, False, {(1, 2): -1, (3, 4): 1})]


@restarts
def test_example_4_t_strobe_is_only_weakly_consistent_with_global_transactions(
    restarts: bool,
) -> None:
    played = Played(UNGATED, PAIR, R4, INITIAL_4, restarts)
    played.deliver(played.sources.commit(("x.r1", 1, (1, 3))))
    assert played.known() == [({0: {(1, 3): 1}}, (1,))], "Q_1 = [1,3] join r2"
    assert (played.al, played.uqs, played.mv) == ([], [(1, 1, 0)], {})

    t2 = played.sources.commit(("y.r2", -1, (3, 4)), ("x.r1", 1, (2, 3)))
    # U_2 has happened at y and waits for the rest of T_2.
    played.deliver(played.evaluate("y"))
    assert played.mv == {(1, 3, 5): 1}, "y after T_2, x before it"
    assert (played.al, played.uqs) == ([], [])

    played.deliver(t2)
    assert played.al == [("key_delete", 1, {(3, 4): -1})]
    assert played.known() == [({0: {(2, 3): 1}}, (1,))], "Q_2 = [2,3] join r2"
    assert (played.uqs, played.mv) == ([(2, 2, 0)], {(1, 3, 5): 1})

    played.deliver(played.evaluate("y"))
    assert played.mv == {(1, 3, 5): 1, (2, 3, 5): 1}
    assert played.sent == [(1, 1, False, {(1, 3, 5): 1}), (2, 2, False, {(2, 3, 5): 1})]
    assert (played.al, played.uqs) == ([], [])


@restarts
def test_example_4_g_strobe_waits_for_the_whole_global_transaction(restarts: bool) -> None:
    played = Played(partial(GStrobe, gate=False), PAIR, R4, INITIAL_4, restarts)
    played.deliver(played.sources.commit(("x.r1", 1, (1, 3))))
    assert (played.al, played.uqs, played.manager.tt) == ([], [(1, 1, 0)], {})

    u2 = part_of(played.sources.commit(("y.r2", -1, (3, 4))), "T2", 2)
    played.deliver(u2)
    assert played.manager.tt == {"T2": 1}, "one part of T_2 is still to come"
    assert played.pending == {1: [(1, {(3, 4): -1})]}
    assert played.al == [("key_delete", 1, {(3, 4): -1})]

    played.deliver(played.evaluate("y"))
    assert played.uqs == [], "condition 1 holds, condition 3 does not"
    assert (played.mv, played.sent) == ({}, [])
    assert played.al == [("key_delete", 1, {(3, 4): -1}), ("insert", -1, {(1, 3, 5): 1})]

    played.deliver(part_of(played.sources.commit(("x.r1", 1, (2, 3))), "T2", 2))
    assert played.manager.tt == {}
    assert (played.uqs, played.mv) == ([(3, 3, 0)], {})

    played.deliver(played.evaluate("y"))
    assert played.mv == {(1, 3, 5): 1, (2, 3, 5): 1}
    assert played.sent == [(1, 3, False, {(1, 3, 5): 1, (2, 3, 5): 1})]


@restarts
def test_example_5_c_strobe_when_the_deletion_comes_after_the_answer_of_x(restarts: bool) -> None:
    played = Played(CStrobe, CHAIN, R, INITIAL, restarts)
    assert played.mv == {}

    played.deliver(played.sources.commit(U1))
    insertion_is_asked_at_x_first(played)
    assert (played.uqs, played.delta(1), played.mv) == ([(1, 1, 0)], {}, {})

    played.deliver(played.evaluate("x"))
    assert [one.source for one in played.statements] == ["z"], "[1,2,3] join r3"
    assert (played.uqs, played.delta(1)) == ([(1, 1, 0)], {})

    played.deliver(played.sources.commit(U2))
    assert [one.numbers for one in played.manager.queue.held] == [(2,)], "saved in a queue"
    assert (played.uqs, played.delta(1), played.mv) == ([(1, 1, 0)], {}, {})

    played.deliver(played.evaluate("z"))
    assert played.delta(1) == ROW
    assert played.uqs == [(1, 2, 1)]
    assert played.known() == [({1: {(2, 3): 1}, 0: {(1, 2): 1}}, (2,))]
    assert [one.source for one in played.statements] == ["z"], "[1,2] join [2,3] join r3"
    assert (played.mv, played.sent) == ({}, [])

    played.deliver(played.evaluate("z"))
    # A_{1,2,1} is a duplicate in Delta; UQS is empty: step 6 and, with U_2, step 7.
    assert played.sent == [(1, 1, True, ROW), (2, 2, True, {(1, 2, 3, 4): -1})]
    assert (played.mv, played.uqs, played.manager.families) == ({}, [], {})
    assert played.sources.states == [{}, ROW, {}]


@restarts
def test_example_6_c_strobe_when_the_deletion_is_in_the_answer_of_x(restarts: bool) -> None:
    played = Played(CStrobe, CHAIN, R, INITIAL, restarts)
    played.deliver(played.sources.commit(U1))
    insertion_is_asked_at_x_first(played)

    played.deliver(played.sources.commit(U2))
    assert [one.numbers for one in played.manager.queue.held] == [(2,)], "saved in a queue"

    played.deliver(played.evaluate("x"))
    # A^1 is empty, which implies that A_{1,1,0} is.
    assert played.delta(1) == {}
    assert played.uqs == [(1, 2, 1)]
    assert played.known() == [({1: {(2, 3): 1}, 0: {(1, 2): 1}}, (2,))]
    assert [one.source for one in played.statements] == ["z"], "[1,2] join [2,3] join r3"
    assert (played.mv, played.sent) == ({}, [])

    played.deliver(played.evaluate("z"))
    assert played.sent == [(1, 1, True, ROW), (2, 2, True, {(1, 2, 3, 4): -1})]
    assert (played.mv, played.uqs, played.manager.families) == ({}, [], {})
    assert played.sources.states == [{}, ROW, {}]
