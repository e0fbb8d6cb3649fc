"""Strobe and T-Strobe beyond the paper's examples: the gate, transactions, truncates, MV's own rows."""

from __future__ import annotations

from functools import partial

import pytest

from streaming.algebra.source_queries import Query
from streaming.viewmanagers.asking.strobe import Strobe
from tests.askedsources import tables, view
from tests.strobeworld import Played, one_message

R = tables(x__r="a b", y__s="b c")
JOIN = view("SELECT r.a, r.b, s.c FROM x.r r JOIN y.s s ON r.b = s.b", R)
UNGATED = partial(Strobe, gate=False)

restarts = pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted at each message"])


def played(make=Strobe, restarts: bool = False, r=(), s=()) -> Played:  # type: ignore[no-untyped-def]
    return Played(make, JOIN, R, {"x.r": r, "y.s": s}, restarts)


# The gate -----------------------------------------------------------------------------------------


@restarts
def test_the_gate_compensates_for_what_it_holds(restarts: bool) -> None:
    """The smallest history of the module's docstring."""
    world = played(restarts=restarts, r=[(1, 2)])
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.deliver(world.sources.commit(("x.r", -1, (1, 2))))
    assert world.pending == {1: []}, "the deletion is held, not processed"
    world.deliver(world.evaluate("x"))
    assert world.sent == [(1, 1, False, {(1, 2, 3): 1}), (2, 2, False, {(1, 2, 3): -1})]
    assert len(world.queries) == 1, "with both rows known the compensating query is joined here"


@restarts
def test_the_gate_takes_away_what_a_held_insertion_brought_in(restarts: bool) -> None:
    world = played(restarts=restarts)
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.deliver(world.sources.commit(("x.r", 1, (1, 2))))
    world.deliver(world.evaluate("x"))
    assert world.sent == [(1, 1, False, {})]
    assert world.uqs == [(2, 2, 0)], "the gate has let the second message in"
    world.settle()
    assert world.sent[1:] == [(2, 2, False, {(1, 2, 3): 1})]


def test_under_steady_load_the_gate_sends_a_list_at_every_cut_and_the_paper_s_strobe_none() -> None:
    gated, paper = played(), played(UNGATED)
    for world in (gated, paper):
        world.deliver(world.sources.commit(("y.s", 1, (0, 0))))
        for n in range(1, 9):
            world.deliver(world.sources.commit(("y.s", 1, (n, 0))))
            world.deliver(world.evaluate("x"))
    assert [(first, last) for first, last, _, _ in gated.sent] == [(n, n) for n in range(1, 9)]
    assert paper.sent == []
    paper.settle()
    assert paper.sent == [(1, 9, False, {})]


def test_no_list_crosses_a_cut_and_within_a_message_uqs_decides() -> None:
    world = played(r=[(1, 2), (5, 6)], s=[(2, 3)])
    commits = [
        world.sources.commit(("x.r", -1, (1, 2))),
        world.sources.commit(("y.s", 1, (6, 7))),
        world.sources.commit(("x.r", -1, (5, 6))),
    ]
    world.deliver(one_message(world.operators, *commits))
    assert world.sent == [(1, 1, False, {(1, 2, 3): -1})]
    world.deliver(world.sources.commit(("x.r", 1, (8, 6))))
    world.settle()
    assert [one[:2] for one in world.sent] == [(1, 1), (2, 3), (4, 4)]
    assert world.mv == world.sources.contents() == {(8, 6, 7): 1}


def test_the_gate_stays_open_when_no_query_is_open() -> None:
    world = played(r=[(1, 2)], s=[(2, 3)])
    world.deliver(world.sources.commit(("x.r", -1, (1, 2))))
    assert world.sent == [(1, 1, False, {(1, 2, 3): -1})]
    assert not world.manager.queue.held


# Transactions -------------------------------------------------------------------------------------


@restarts
def test_a_modification_is_a_deletion_and_an_insertion_at_once(restarts: bool) -> None:
    world = played(restarts=restarts, r=[(1, 2)], s=[(2, 3), (4, 5)])
    world.deliver(world.sources.commit(("x.r", -1, (1, 2)), ("x.r", 1, (1, 4))))
    assert world.al == [("key_delete", 0, {(1, 2): -1})]
    assert world.known() == [({0: {(1, 4): 1}}, (1,))]
    world.settle()
    assert world.sent == [(1, 1, False, {(1, 2, 3): -1, (1, 4, 5): 1})]


def test_one_query_asks_for_all_insertions_of_a_transaction() -> None:
    world = played(r=[(1, 2)], s=[(4, 5)])
    world.deliver(world.sources.commit(("y.s", 1, (2, 3)), ("x.r", 1, (7, 2)), ("x.r", 1, (8, 4))))
    assert len(world.queries) == 1
    assert world.known() == [
        ({0: {(7, 2): 1, (8, 4): 1}}, (1,)),
        ({1: {(2, 3): 1}}, (0,)),
    ]
    world.settle()
    assert world.mv == {(1, 2, 3): 1, (7, 2, 3): 1, (8, 4, 5): 1}, "[7,2,3] came twice"


def test_insert_then_delete_of_a_key_cancels_and_delete_then_insert_does_not() -> None:
    world = played(r=[(1, 2)], s=[(2, 3)])
    world.deliver(world.sources.commit(("x.r", 1, (5, 2)), ("x.r", -1, (5, 2))))
    assert (world.queries, world.sent) == ([], [(1, 1, False, {})])
    world.deliver(world.sources.commit(("x.r", -1, (1, 2)), ("x.r", 1, (1, 9))))
    assert world.al == [("key_delete", 0, {(1, 2): -1})]
    assert len(world.queries) == 1


def test_an_answer_that_two_insertions_share_is_added_once() -> None:
    world = played(UNGATED)
    world.deliver(world.sources.commit(("x.r", 1, (1, 2))))
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.settle()
    assert world.sent == [(1, 2, False, {(1, 2, 3): 1})]


def test_a_key_that_changes_leaves_no_row_under_the_old_one() -> None:
    world = played(UNGATED, r=[(1, 2)], s=[(2, 3)])
    world.deliver(world.sources.commit(("y.s", -1, (2, 3)), ("y.s", 1, (2, 4))))
    world.deliver(world.sources.commit(("x.r", -1, (1, 2)), ("x.r", 1, (6, 2))))
    world.settle()
    assert world.sent == [(1, 2, False, {(1, 2, 3): -1, (6, 2, 4): 1})]


def test_numbers_that_need_no_work_get_no_list() -> None:
    world = played(r=[(1, 2)])
    message = world.sources.commit(("x.r", 1, (3, 4)))
    run = message.runs[0].model_copy(update={"idle": ("v",)})
    world.deliver(message.model_copy(update={"runs": (run,)}))
    assert (world.sent, world.queries) == ([], [])


# Truncates ----------------------------------------------------------------------------------------


@restarts
def test_a_truncate_empties_the_view_and_later_rows_of_its_number_stay(restarts: bool) -> None:
    world = played(restarts=restarts, r=[(1, 2), (4, 2)], s=[(2, 3)])
    world.deliver(world.sources.commit(("x.r", 1, (1, 2)), truncated="x.r"))
    assert world.al == [("clear", -1, {})]
    world.settle()
    assert world.sent == [(1, 1, False, {(4, 2, 3): -1})]


@restarts
def test_a_truncate_voids_answers_under_way(restarts: bool) -> None:
    world = played(UNGATED, restarts, r=[(1, 2)])
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    late = world.evaluate("x")
    world.deliver(world.sources.commit(truncated="x.r"))
    assert world.sent == [(1, 2, False, {})], "nothing is waited for"
    world.deliver(late)
    assert world.sent == [(1, 2, False, {})]
    assert not world.manager.uqs


@restarts
def test_a_held_truncate_that_an_open_query_asks_for_takes_the_list_across_the_cut(
    restarts: bool,
) -> None:
    world = played(restarts=restarts, r=[(1, 2)])
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.deliver(world.sources.commit(("y.s", 1, (7, 8))))
    world.deliver(world.sources.commit(("x.r", 1, (4, 2)), truncated="x.r"))
    assert world.uqs == [(3, 3, 0)], "the second number's query is not even sent"
    assert [query.id for query in world.queries] == [1, 3]
    world.settle()
    assert world.sent == [(1, 3, False, {(4, 2, 3): 1})]
    assert world.mv == world.sources.contents()


def test_a_held_truncate_that_no_open_query_asks_for_waits_for_the_cut() -> None:
    world = played(r=[(1, 2)])
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.deliver(world.sources.commit(truncated="y.s"))
    world.settle()
    assert world.sent == [(1, 1, False, {(1, 2, 3): 1}), (2, 2, False, {(1, 2, 3): -1})]


# Rows that MV knows -------------------------------------------------------------------------------


FROM_VIEW = partial(Strobe, from_view=True)


def test_no_query_is_sent_for_a_tuple_whose_partners_the_view_shows() -> None:
    """strobe-family 9: MV has [1,2,3], B is a key of s; insert(r, [4,2]) adds exactly [4,2,3]."""
    world = played(FROM_VIEW, r=[(1, 2)], s=[(2, 3), (5, 6)])
    world.deliver(world.sources.commit(("x.r", 1, (4, 2)), ("x.r", 1, (7, 5))))
    assert world.known() == [({0: {(7, 5): 1}}, (1,))], "of s' row 5 the view knows nothing"
    world.settle()
    assert world.sent == [(1, 1, False, {(4, 2, 3): 1, (7, 5, 6): 1})]


@restarts
def test_a_row_that_was_deleted_since_is_not_taken_from_the_view(restarts: bool) -> None:
    world = played(partial(FROM_VIEW, gate=False), restarts, r=[(1, 2)], s=[(2, 3), (5, 6)])
    world.deliver(world.sources.commit(("x.r", 1, (7, 5))))
    world.deliver(world.sources.commit(("y.s", -1, (2, 3)), ("y.s", 1, (2, 9))))
    world.deliver(world.sources.commit(("x.r", 1, (4, 2))))
    assert len(world.queries) == 3
    world.settle()
    assert world.mv == world.sources.contents()


def test_queries_are_asked_unprojected() -> None:
    world = played()
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    (query,) = world.queries
    assert isinstance(query, Query)
    assert not query.finish
