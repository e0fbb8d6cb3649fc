"""C-Strobe, C-TStrobe and the periodic form; and where the paper's C-Strobe is wrong."""

from __future__ import annotations

from functools import partial

import pytest

from streaming.algebra.bag import Numbered
from streaming.algebra.tree import Relation
from streaming.viewmanagers.asking.c_strobe import CStrobe
from tests.askedsources import tables, view
from tests.strobe_as_printed import AsPrinted, ConditionOnAll
from tests.strobeworld import Played, one_message

R = tables(x__r1="a b", y__r2="b c", z__r3="c d")
CHAIN = view(
    "SELECT r1.a, r1.b, r2.c, r3.d FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
    " JOIN z.r3 r3 ON r2.c = r3.c",
    R,
)
INITIAL = {"x.r1": [(1, 2)], "z.r3": [(3, 4)]}
ROW = {(1, 2, 3, 4): 1}

restarts = pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted at each message"])


# Line 16 ------------------------------------------------------------------------------------------

HIDDEN = {**tables(x__r="a b"), "y.s": Relation("y.s", R["y.r2"].schema, (1,))}
"""r(A,B) with key A, s(B,C) with key C."""
NARROW = view("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b", HIDDEN)
"""pi_{A,C}(r join s): the join attribute is not shown."""


def changed_while_asked(make: type[CStrobe[Numbered]], inserted: tuple[int, int]) -> Played:
    """U_1 = insert(s, ..); before Q_1 is answered, r's row [1,1] becomes [1,2] in two updates."""
    world = Played(make, NARROW, HIDDEN, {"x.r": [(1, 1)]})
    world.deliver(world.sources.commit(("y.s", 1, inserted)))
    world.deliver(world.sources.commit(("x.r", -1, (1, 1))))
    world.deliver(world.sources.commit(("x.r", 1, (1, 2))))
    world.settle()
    return world


def first_list(world: Played) -> dict[tuple[int, ...], int]:
    return world.sent[0][3]


def test_line_16_as_printed_keeps_a_row_that_should_not_exist() -> None:
    printed = changed_while_asked(AsPrinted, (2, 5))
    assert printed.sources.states[1] == {}
    assert first_list(printed) == {(1, 5): 1}, "the paper's rule skips U_3"
    assert first_list(changed_while_asked(CStrobe, (2, 5))) == {}


def test_a_condition_on_all_attributes_alone_loses_a_row() -> None:
    mended = changed_while_asked(ConditionOnAll, (1, 5))
    assert mended.sources.states[1] == {(1, 5): 1}
    assert first_list(mended) == {}, "key_delete* takes [1,5] for U_3's"
    assert first_list(changed_while_asked(CStrobe, (1, 5))) == {(1, 5): 1}


def test_line_16_keeps_what_a_deletion_of_the_same_row_precedes() -> None:
    world = Played(CStrobe, CHAIN, R, INITIAL)
    world.deliver(world.sources.commit(("y.r2", 1, (2, 3))))
    world.deliver(world.sources.commit(("x.r1", -1, (1, 2))))
    world.deliver(world.sources.commit(("x.r1", 1, (1, 2))))
    world.settle()
    assert [one[3] for one in world.sent] == [ROW, {(1, 2, 3, 4): -1}, ROW]


def test_delta_holds_two_rows_of_one_key_for_a_while() -> None:
    world = Played(CStrobe, CHAIN, R, {"x.r1": [(1, 2), (8, 2)], "z.r3": [(3, 4)]})
    world.deliver(world.sources.commit(("y.r2", 1, (2, 3))))
    world.deliver(world.evaluate("x"))
    world.deliver(world.sources.commit(("z.r3", -1, (3, 4)), ("z.r3", 1, (3, 5))))
    world.deliver(world.sources.commit(("x.r1", -1, (8, 2))))
    world.deliver(world.evaluate("z"))
    assert world.delta(1) == {(1, 2, 3, 5): 1, (8, 2, 3, 5): 1}, "of r3's new version"
    assert world.uqs == [(1, 2, 1), (1, 3, 1)]
    world.deliver(world.evaluate("x"))
    both = {(a, 2, 3, d): 1 for a in (1, 8) for d in (4, 5)}
    assert world.delta(1) == both, "A_{1,2,1} brings [1,2,3,4], and [8,2,3,4] is joined here"
    world.deliver(world.evaluate("z"))
    assert world.sent == [(1, 1, True, {(1, 2, 3, 4): 1, (8, 2, 3, 4): 1})]
    world.settle()
    assert world.mv == world.sources.contents() == {(1, 2, 3, 5): 1}


# Compensating queries -----------------------------------------------------------------------------

STAR = tables(w__h="k a b c", x__r="a p", y__s="b q", z__t="c u")
STAR_VIEW = view(
    "SELECT h.k, r.a, r.p, s.b, s.q, t.c, t.u FROM w.h h JOIN x.r r ON h.a = r.a"
    " JOIN y.s s ON h.b = s.b JOIN z.t t ON h.c = t.c",
    STAR,
)
TWO = [(1, 1), (2, 2)]


def deletions_everywhere(grouped: bool) -> Played:
    world = Played(
        partial(CStrobe, grouped=grouped),
        STAR_VIEW,
        STAR,
        dict.fromkeys(("x.r", "y.s", "z.t"), TWO),
    )
    world.deliver(world.sources.commit(("w.h", 1, (7, 1, 1, 1)), ("w.h", 1, (8, 2, 2, 2))))
    for row in TWO:
        for name in ("x.r", "y.s", "z.t"):
            world.deliver(world.sources.commit((name, -1, row)))
    world.settle()
    for n, (_, last, _, rows) in enumerate(world.sent, start=1):
        assert (last, n) == (n, last)
        before, after = world.sources.states[n - 1 : n + 1]
        assert world.operators.plus(_flat(before), _flat(rows)) == _flat(after)
    return world


def _flat(rows: dict[tuple[int, ...], int]) -> Numbered:
    return {(0, row): count for row, count in rows.items()}


def test_grouped_compensating_queries_are_more_than_the_paper_s_bound() -> None:
    """(n-1)! = 6 for n = 4, and nine are sent: three, and two for the answer to each of them."""
    world = deletions_everywhere(grouped=True)
    assert len(world.queries) == 1 + 3 + 6
    assert [len(query.terms[0].asked) for query in world.queries] == [3, 2, 2, 2, 1, 1, 1, 1, 1, 1]


def test_without_grouping_there_is_one_for_each_combination_of_deletions() -> None:
    world = deletions_everywhere(grouped=False)
    assert len(world.queries) == 1 + 6 + 12


@restarts
def test_two_deletions_of_one_transaction_are_combined_once(restarts: bool) -> None:
    world = Played(CStrobe, CHAIN, R, INITIAL, restarts)
    world.deliver(world.sources.commit(("y.r2", 1, (2, 3))))
    world.deliver(world.sources.commit(("x.r1", -1, (1, 2)), ("z.r3", -1, (3, 4))))
    world.settle()
    assert [one[3] for one in world.sent] == [ROW, {(1, 2, 3, 4): -1}]
    assert len(world.queries) == 3, "Q_{1,2,1} and Q_{1,2,2}; both together are joined here"


# C-TStrobe ----------------------------------------------------------------------------------------


@restarts
def test_a_transaction_over_several_relations_is_one_list(restarts: bool) -> None:
    world = Played(CStrobe, CHAIN, R, {**INITIAL, "y.r2": [(2, 3)]}, restarts)
    world.deliver(
        world.sources.commit(
            ("x.r1", -1, (1, 2)), ("x.r1", 1, (9, 2)), ("z.r3", -1, (3, 4)), ("z.r3", 1, (3, 5))
        )
    )
    assert len(world.queries) == 1
    late = world.sources.commit(("y.r2", -1, (2, 3)), ("y.r2", 1, (2, 8)))
    world.deliver(late)
    world.settle()
    assert world.sent[0] == (1, 1, True, {(1, 2, 3, 4): -1, (9, 2, 3, 5): 1})
    assert world.sent[1] == (2, 2, True, {(9, 2, 3, 5): -1})


def test_two_keys_that_change_places_in_one_transaction() -> None:
    initial = {"x.r1": [(1, 2), (5, 6)], "y.r2": [(2, 3)], "z.r3": [(3, 4)]}
    world = Played(CStrobe, CHAIN, R, initial)
    swap = [("x.r1", -1, (1, 2)), ("x.r1", -1, (5, 6)), ("x.r1", 1, (5, 2)), ("x.r1", 1, (1, 6))]
    world.deliver(world.sources.commit(*swap))
    world.settle()
    assert world.sent == [(1, 1, True, {(1, 2, 3, 4): -1, (5, 2, 3, 4): 1})]


def test_what_the_view_knows_is_not_asked_but_for_what_the_transaction_deletes() -> None:
    initial = {"x.r1": [(1, 2), (5, 6)], "y.r2": [(2, 3), (6, 3)], "z.r3": [(3, 4)]}
    world = Played(partial(CStrobe, from_view=True), CHAIN, R, initial)
    world.deliver(world.sources.commit(("x.r1", 1, (7, 2))))
    assert world.sent == [(1, 1, True, {(7, 2, 3, 4): 1})]
    assert not world.queries
    world.deliver(
        world.sources.commit(("x.r1", 1, (8, 6)), ("y.r2", -1, (6, 3)), ("y.r2", 1, (6, 1)))
    )
    assert world.known() == [({0: {(8, 6): 1}}, (1, 2)), ({1: {(6, 1): 1}}, (0, 2))]
    world.settle()
    assert world.mv == world.sources.contents()


# Periodic -----------------------------------------------------------------------------------------


@restarts
def test_blocks_of_k_numbers_are_aligned_and_end_at_cuts(restarts: bool) -> None:
    world = Played(partial(CStrobe, period=3), CHAIN, R, INITIAL, restarts)
    commits = [world.sources.commit(("x.r1", 1, (n, 2))) for n in range(10, 18)]
    world.deliver(one_message(world.operators, *commits[:5]))
    world.deliver(one_message(world.operators, *commits[5:]))
    world.settle()
    assert [one[:3] for one in world.sent] == [
        (1, 3, False),
        (4, 5, False),
        (6, 6, False),
        (7, 8, False),
    ]


def test_a_block_shows_its_end_and_nothing_between() -> None:
    world = Played(partial(CStrobe, period=2), CHAIN, R, {**INITIAL, "y.r2": [(2, 3)]})
    first = world.sources.commit(("x.r1", -1, (1, 2)))
    second = world.sources.commit(("x.r1", 1, (1, 2)))
    world.deliver(one_message(world.operators, first, second))
    assert world.sent == [(1, 2, False, {})]
    assert not world.queries


def test_a_block_has_one_number_or_more() -> None:
    with pytest.raises(ValueError, match="one number or more"):
        Played(partial(CStrobe, period=0), CHAIN, R, INITIAL)


# Truncates ----------------------------------------------------------------------------------------


@restarts
def test_a_truncate_in_its_turn_is_one_complete_list(restarts: bool) -> None:
    initial = {"x.r1": [(1, 2), (5, 2)], "y.r2": [(2, 3)], "z.r3": [(3, 4)]}
    world = Played(CStrobe, CHAIN, R, initial, restarts)
    world.deliver(world.sources.commit(("x.r1", 1, (1, 2)), truncated="x.r1"))
    world.settle()
    assert world.sent == [(1, 1, True, {(5, 2, 3, 4): -1})]


@restarts
def test_a_held_truncate_that_a_query_asks_for_makes_one_list_that_is_not_complete(
    restarts: bool,
) -> None:
    world = Played(CStrobe, CHAIN, R, INITIAL, restarts)
    world.deliver(world.sources.commit(("y.r2", 1, (2, 3))))
    early = world.evaluate("x")
    world.deliver(world.sources.commit(("z.r3", 1, (6, 7))))
    world.deliver(world.sources.commit(("x.r1", 1, (9, 2)), truncated="x.r1"))
    assert world.uqs == [(3, 3, 0)]
    world.deliver(early)
    world.settle()
    assert world.sent == [(1, 3, False, {(9, 2, 3, 4): 1})]
    assert world.mv == world.sources.contents()
    assert not world.manager.uqs


def test_numbers_before_a_truncate_that_need_no_query_keep_their_lists() -> None:
    initial = {"x.r1": [(1, 2), (5, 2)], "y.r2": [(2, 3)], "z.r3": [(3, 4)]}
    world = Played(CStrobe, CHAIN, R, initial)
    deletion = world.sources.commit(("x.r1", -1, (1, 2)))
    truncate = world.sources.commit(truncated="x.r1")
    world.deliver(one_message(world.operators, deletion, truncate))
    assert world.sent == [(1, 1, True, {(1, 2, 3, 4): -1}), (2, 2, True, {(5, 2, 3, 4): -1})]


@restarts
def test_a_row_that_comes_back_after_a_held_truncate_stood_there_before(restarts: bool) -> None:
    """No query asks for the truncated relation, so the numbers before keep their lists."""
    world = Played(CStrobe, CHAIN, R, {"y.r2": [(2, 3)], "z.r3": [(3, 4)]}, restarts)
    world.deliver(world.sources.commit(("x.r1", 1, (1, 2))))
    world.deliver(world.sources.commit(truncated="x.r1"))
    world.deliver(world.sources.commit(("x.r1", 1, (1, 2))))
    world.settle()
    assert [one[2:] for one in world.sent] == [(True, ROW), (True, {(1, 2, 3, 4): -1}), (True, ROW)]
