"""REL with the action lists (MVC 3.2): the managers forward it, the merge takes it from the first."""

from __future__ import annotations

import pytest
from merge_messages import add, al, drop, refused, rel, suspend, taken, told

from streaming.merge.batching import NONE
from streaming.merge.machine import MergeMachine
from streaming.merge.routing import RelRouting, RoutedMerge
from streaming.messages import ActionList, Rel, Updates, ViewChange
from streaming.viewmanagers.forwarding import Forwarding

REL_1 = rel(0, 1, (0, 1, "ab"))
REL_2 = rel(2, 3, (2, 3, "b"))


def carrying(sent: ActionList, *rels: Rel | ViewChange) -> ActionList:
    return sent.model_copy(update={"rel": rels})


def updates(*riding: Rel | ViewChange) -> Updates:
    """The updates with which the integrator sends these; the last is REL of them."""
    last = riding[-1]
    assert isinstance(last, Rel)
    return Updates(
        group="g", first=last.first, last=last.last, runs=last.runs, relations={}, rel=riding
    )


def routed(*messages: object) -> RoutedMerge:
    merge: RoutedMerge = told(RoutedMerge(MergeMachine("g", ("a", "b"), batching=NONE)), *messages)
    return merge


def test_the_first_list_that_carries_rel_brings_it_and_later_ones_bring_nothing_new() -> None:
    routing = RelRouting("g")
    a, b = al("a", 0, 1), al("b", 0, 1)
    assert routing.handle(carrying(b, REL_1)) == [REL_1, b]
    assert routing.handle(carrying(a, REL_1)) == [a]


def test_a_rel_that_comes_early_waits_for_the_one_before_it_and_its_list_does_not() -> None:
    routing = RelRouting("g")
    late = carrying(al("b", 2, 3), REL_2)
    assert routing.handle(late) == [al("b", 2, 3)]
    assert routing.handle(carrying(al("a", 0, 1), REL_1)) == [REL_1, REL_2, al("a", 0, 1)]


def test_a_drop_is_heard_once_and_between_the_rels_it_stands_between() -> None:
    gone = drop("a", 1)
    routing = RelRouting("g")
    assert routing.handle(carrying(al("b", 2, 3), gone, REL_2)) == [al("b", 2, 3)]
    assert routing.handle(REL_1) == [REL_1, gone, REL_2]
    assert routing.handle(gone) == []


def test_an_addition_is_handed_on_at_once_because_its_lists_follow() -> None:
    routing = RelRouting("g")
    assert routing.handle(add("c", 1)) == [add("c", 1)]


def test_the_routed_merge_commits_what_the_direct_one_does() -> None:
    merge = routed(carrying(al("b", 0, 1), REL_1), carrying(al("b", 2, 3), REL_2))
    assert taken(merge.merge) == []
    told(merge, carrying(al("a", 0, 1), REL_1))
    assert taken(merge.merge) == ["a0 b0", "a1 b1", "b2", "b3"]


BREACHES = {
    "another group": (rel(2, 3, (2, 3, "b"), group="h"), "merge of group 'g'"),
    "another group that rides": (
        carrying(al("a", 2, 3), rel(2, 3, (2, 3, "b"), group="h")),
        "merge of group 'g'",
    ),
    "an overlap": (
        carrying(al("a", 2, 3), rel(1, 3, (1, 3, "b"))),
        "overlaps what is known up to 1",
    ),
    "two that differ": (
        carrying(al("a", 6, 6), rel(6, 7, (6, 7, "ab"))),
        "another REL of .6..7. says something else",
    ),
    "a list the merge refuses": (carrying(al("a", 1, 3), REL_2), "must begin after number 1"),
    "a rel the merge refuses": (
        carrying(al("a", 2, 3), rel(2, 3, (2, 3, "z"))),
        "'z' is not in group",
    ),
    "a suspension the merge refuses": (suspend("a", 0), "not at `after`"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_raises_and_changes_neither_the_routing_nor_the_merge(breach: str) -> None:
    message, rule = BREACHES[breach]
    merge = routed(carrying(al("a", 0, 1), REL_1), rel(6, 7, (6, 7, "a")))
    refused(merge, message, rule, "Rel" if "rel the merge" in breach else "")


def test_a_manager_forwards_rel_with_its_first_list_of_those_numbers() -> None:
    manager = Forwarding("b", ("a", "b"))
    assert manager.heard(updates(REL_1)) == []
    assert manager.heard(updates(REL_2)) == []
    assert manager.sent(al("b", 0, 0)) == [carrying(al("b", 0, 0), REL_1)]
    assert manager.sent(al("b", 1, 1)) == [al("b", 1, 1)]
    assert manager.sent(al("b", 2, 3)) == [carrying(al("b", 2, 3), REL_2)]


def test_the_carrier_forwards_rel_by_itself_where_it_has_no_work() -> None:
    carrier, other = Forwarding("a", ("a", "b")), Forwarding("b", ("a", "b"))
    empty, idle = rel(0, 0, (0, 0, "")), rel(1, 1, (1, 1, "ab", "ab"))
    for each in (empty, idle, REL_2):
        assert carrier.heard(updates(each)) == [each]
    assert other.heard(updates(empty)) == [] and other.heard(updates(idle)) == []


def test_a_suspended_carrier_forwards_what_waits_for_its_list_and_goes_on_forwarding() -> None:
    carrier = Forwarding("a", ("a", "b"))
    assert carrier.heard(updates(REL_1)) == []
    assert carrier.sent(suspend("a", -1)) == [REL_1, suspend("a", -1)]
    later = rel(2, 2, (2, 2, "a"))
    assert carrier.heard(updates(later)) == [later]


def test_a_dropped_carrier_hands_over_to_the_view_that_has_been_longest_in_the_group() -> None:
    gone, come = drop("a", 1), add("aa", 1)
    first, second = Forwarding("a", ("a", "b")), Forwarding("b", ("a", "b"))
    third = Forwarding("aa", ("b", "aa"))
    assert first.heard(updates(REL_1)) == []
    assert [
        m.heard(updates(gone, come, rel(2, 2, (2, 2, "")))) for m in (first, second, third)
    ] == [
        [REL_1],
        [gone, come, rel(2, 2, (2, 2, ""))],
        [],
    ]


def test_what_a_manager_owes_survives_a_restart() -> None:
    manager, again = Forwarding("b", ("a", "b")), Forwarding("b", ("b",))
    manager.heard(updates(REL_1))
    again.restore(manager.snapshot())
    assert again.snapshot() == manager.snapshot()
    assert again.sent(al("b", 0, 1)) == [carrying(al("b", 0, 1), REL_1)]
