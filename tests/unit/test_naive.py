"""IVMA's lists are one for each number, in order, whatever order the answers come in."""

from __future__ import annotations

import pytest

from streaming.viewmanagers.asking.naive import NaiveManager
from tests.askedmanagers import ONE, TWO, message, played
from tests.askedsources import view


def test_an_answer_that_overtakes_waits_for_the_number_before() -> None:
    one = played(NaiveManager, TWO)
    one.deliver(one.sources.commit(("x.r", 1, (5, 2))))  # asks y
    one.deliver(one.sources.commit(("y.t", 1, (2, 4))))  # asks x
    one.deliver(one.evaluate("x"))
    assert one.sent == []
    one.deliver(one.evaluate("y"))
    assert [(first, last, complete) for first, last, complete, _ in one.sent] == [
        (1, 1, True),
        (2, 2, True),
    ]
    assert one.mv != one.sources.contents(), "[5,4] is there twice: the anomaly"


def test_a_message_of_several_numbers_gets_a_list_for_each() -> None:
    one = played(NaiveManager)
    commits = [one.sources.commit(("s.t", 1, (2, c))) for c in (4, 5)]
    one.deliver(message(one, *commits))
    one.settle()
    assert one.sent == [(1, 1, True, {(1, 4): 1}), (2, 2, True, {(1, 5): 1})]


def test_a_transaction_over_two_relations_and_a_self_join_are_right_when_nothing_interferes() -> (
    None
):
    one = played(NaiveManager)
    one.deliver(one.sources.commit(("s.r", 1, (5, 6)), ("s.t", 1, (6, 7))))
    one.settle()
    assert one.mv == {(1, 3): 1, (5, 7): 1} == one.sources.contents()

    relations = {"s.r": ONE["s.r"]}
    tree = view("SELECT p.a, q.b FROM s.r p JOIN s.r q ON p.b = q.a", relations)
    one = played(NaiveManager, relations, tree, initial={"s.r": [(1, 2)]})
    one.deliver(one.sources.commit(("s.r", 1, (2, 2))))
    one.settle()
    assert one.mv == {(1, 2): 1, (2, 2): 1} == one.sources.contents()


def test_a_truncate_takes_out_what_the_view_has_when_its_turn_comes() -> None:
    one = played(NaiveManager)
    one.deliver(one.sources.commit(("s.t", 1, (2, 4))))
    late = one.evaluate("s")
    one.deliver(one.sources.commit(truncated="s.r"))
    assert one.sent == []
    one.deliver(late)
    assert one.sent == [(1, 1, True, {(1, 4): 1}), (2, 2, True, {(1, 3): -1, (1, 4): -1})]


@pytest.mark.parametrize("deletions", ["query", "view"])
def test_two_deletions_do_not_take_one_row_out_twice(deletions: str) -> None:
    one = played(NaiveManager, deletions=deletions)
    one.deliver(one.sources.commit(("s.r", -1, (1, 2)), ("s.t", -1, (2, 3))))
    one.settle()
    assert one.mv == {}
