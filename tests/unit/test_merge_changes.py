"""Views that join a group and leave it while it runs (MVC 1.2; DESIGN 5)."""

from __future__ import annotations

import pytest
from merge_messages import add, al, drop, refused, rel, suspend, taken, told

from streaming.merge.batching import NONE
from streaming.merge.machine import MergeMachine

BOTH = pytest.mark.parametrize("algorithm", ["spa", "pa"])


def merge_of(*messages: object, views: str = "ab", algorithm: str = "spa") -> MergeMachine:
    machine = MergeMachine("g", tuple(views), algorithm, NONE)  # type: ignore[arg-type]
    merge: MergeMachine = told(machine, *messages)
    return merge


@BOTH
def test_a_view_joins_with_its_whole_content_when_the_others_have_come_so_far(
    algorithm: str,
) -> None:
    merge = merge_of(rel(0, 1, (0, 1, "ab")), al("a", 0, 1), algorithm=algorithm)
    told(merge, add("c", 1))
    assert [(r.first, r.last, r.colours) for r in merge.table()] == [
        (0, 1, "rwb"),
        (1, 1, "bbw"),
    ]
    told(merge, al("c", 1, 1))
    assert taken(merge) == [], "c's content reflects numbers 0 and 1, which b does not show"
    told(merge, al("b", 0, 1))
    batches = list(iter(merge.take_batch, None))
    assert [batch.ranges for batch in batches] == [((0, 0),), ((1, 1),), ()]
    assert [batch.added for batch in batches] == [(), (), (("c", 1),)]
    assert [part.list_id for part in batches[-1].parts] == ["c[1..1]"]
    assert batches[-1].depends_on == (2,)


@BOTH
def test_nobody_waits_for_a_view_that_joins_but_the_rows_that_concern_it(algorithm: str) -> None:
    merge = merge_of(rel(0, 0, (0, 0, "ab")), add("c", 0), algorithm=algorithm)
    told(merge, rel(1, 3, (1, 1, "ab"), (2, 2, "bc"), (3, 3, "a")))
    told(merge, al("a", 0, 0), al("a", 1, 3), al("b", 0, 0), al("b", 1, 2))
    assert taken(merge) == ["a0 b0", "a1 b1", "a2-3"]
    assert merge.settled == -1, "c's first list is not in a batch"
    told(merge, al("c", 0, 0), al("c", 2, 2))
    batches = list(iter(merge.take_batch, None))
    assert [batch.added for batch in batches] == [(("c", 0),), ()]
    assert (merge.frontier, merge.settled) == (3, 3)


def test_the_managers_word_may_come_before_the_integrators_and_its_lists_too() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "a")), add("c", 2), al("c", 2, 2), al("c", 3, 3))
    assert merge.views == ("a", "b")
    refused(merge, rel(1, 3, (1, 3, "a")), "a view joins at 2, which must be a cut")
    told(merge, rel(1, 2, (1, 2, "a")))
    assert merge.views == ("a", "b", "c")
    told(merge, add("c", 2), rel(3, 3, (3, 3, "c")), al("a", 0, 0), al("a", 1, 2))
    assert taken(merge) == ["a0", "a1", "a2", "c2", "c3"]


def test_what_was_held_for_a_cut_is_checked_there_and_changes_nothing_when_it_is_wrong() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "a")), add("c", 2), al("c", 2, 3))
    refused_rel = rel(1, 2, (1, 2, "a"))
    with pytest.raises(Exception, match="'c' joins with a list of number 2 alone"):
        merge.handle(refused_rel)
    assert (merge.seen, merge.views, len(merge.ahead)) == (0, ("a", "b"), 1)


@BOTH
def test_a_dropped_view_holds_nobody_back_from_then_on(algorithm: str) -> None:
    merge = merge_of(rel(0, 2, (0, 1, "ab"), (2, 2, "b")), al("a", 0, 1), algorithm=algorithm)
    assert taken(merge) == []
    ready = merge.handle(drop("b", 2))
    assert sorted(span[:2] for each in ready for span in each.spans) == [(0, 1), (2, 2)]
    batches = list(iter(merge.take_batch, None))
    assert [batch.dropped for batch in batches] == [(("b", 2),), (), ()]
    assert [part.view for batch in batches for part in batch.parts] == ["a", "a"]
    assert merge.frontier == 2
    told(merge, al("b", 0, 2))
    assert taken(merge) == [], "what b's manager had sent before it heard of it"
    refused(merge, al("b", 3, 3), "view 'b' is not in group 'g'")
    refused(merge, rel(3, 3, (3, 3, "b")), "view 'b' is not in group 'g'")


def test_a_drop_takes_the_view_out_of_rows_that_wait_for_their_batch() -> None:
    merge = merge_of(rel(0, 1, (0, 1, "ab")), al("a", 0, 1), al("b", 0, 1), drop("b", 1))
    batches = list(iter(merge.take_batch, None))
    assert [batch.dropped for batch in batches] == [(("b", 1),), ()]
    assert [part.view for batch in batches for part in batch.parts] == ["a", "a"]


def test_a_drop_is_told_although_nothing_else_is_ready() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0))
    assert taken(merge) == ["a0 b0"]
    told(merge, drop("b", 0))
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.ranges, batch.parts, batch.dropped) == ((), (), (("b", 0),))
    assert batch.depends_on == (1,)
    assert merge.take_batch() is None


def test_a_view_comes_back_under_its_name() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0), drop("b", 0))
    told(merge, rel(1, 1, (1, 1, "a")))
    refused(merge, add("b", 1), "'b' was dropped at 0 and comes back too soon")
    told(merge, rel(2, 2, (2, 2, "a")), add("b", 2), al("b", 0, 0), al("b", 2, 2))
    told(merge, rel(3, 3, (3, 3, "ab")), al("b", 3, 3))
    assert taken(merge) == ["a0"]
    told(merge, al("a", 1, 1), al("a", 2, 2), al("a", 3, 3))
    assert taken(merge) == ["a1", "a2", "b2", "a3 b3"]


def test_a_suspended_view_comes_back_and_is_told_as_suspended_until_then() -> None:
    merge = merge_of(rel(0, 1, (0, 1, "ab")), al("b", 0, 0), al("a", 0, 1), suspend("b", 0))
    assert taken(merge) == ["a0 b0", "a1"]
    told(merge, add("b", 1), rel(2, 3, (2, 2, "a"), (3, 3, "ab")), al("a", 2, 3))
    batch = merge.take_batch()
    assert batch is not None and batch.suspended == (("b", 0),)
    told(merge, al("b", 1, 1), al("b", 3, 3))
    batches = list(iter(merge.take_batch, None))
    assert [(b.added, b.suspended) for b in batches] == [((("b", 1),), ()), ((), ())]


def test_a_view_that_fails_before_it_has_joined_is_not_shown_at_all() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "a")), add("c", 0), suspend("c", -1), al("a", 0, 0))
    batch = merge.take_batch()
    assert batch is not None and (batch.suspended, batch.added) == ((), ())
    told(merge, rel(1, 1, (1, 1, "ac")), al("a", 1, 1), drop("c", 1))
    batches = list(iter(merge.take_batch, None))
    assert [batch.dropped for batch in batches] == [()]
    assert merge.settled == 1


def test_a_strong_view_turns_spa_into_pa() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "a")), add("c", 0, "strong"))
    assert merge.algorithm == "pa"
    told(merge, rel(1, 2, (1, 2, "ac")), al("c", 0, 0), al("c", 1, 2, complete=False))
    told(merge, al("a", 0, 0), al("a", 1, 2))
    assert taken(merge) == ["a0", "c0", "a1-2 c1-2"]
    fresh = MergeMachine("g", ("a", "b"), "spa", NONE)
    fresh.restore(merge.snapshot())
    assert (fresh.views, fresh.algorithm) == (("a", "b", "c"), "pa")
    later = MergeMachine("g", ("a", "b", "c"), "pa", NONE)
    later.restore(merge.snapshot())
    assert later.snapshot() == fresh.snapshot()


def test_a_convergent_view_joins_and_is_passed_through() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "a")), add("c", 0, "convergent"), al("a", 0, 0))
    told(merge, al("c", 0, 0), rel(1, 2, (1, 2, "ac")), al("c", 1, 2, complete=False))
    assert taken(merge) == ["a0", "c0", "c1-2"]
    told(merge, al("a", 1, 2))
    assert taken(merge) == ["a1", "a2"]


BREACHES = {
    "a join in the past": (add("c", 8), "joins at the last cut, 9, or a later one"),
    "a join before number 0": (add("c", -1), "joins at the last cut"),
    "a join of a view that is there": (add("a", 9), "view 'a' is in the group already"),
    "a second cut for a join": (add("d", 11), "'d' is to join at 12 already"),
    "a join of a complete-N manager": (add("c", 9, "complete-N", 3), "a group of their own"),
    "a drop in the past": (drop("a", 8), "dropped at the last cut, 9"),
    "a drop ahead": (drop("a", 10), "dropped at the last cut, 9"),
    "a drop of nothing known": (drop("z", 9), "view 'z' is not in group"),
    "a drop of a view to come": (drop("d", 9), "view 'd' is not in group"),
    "a first list of more": (al("e", 9, 10), "'e' joins with a list of number 9 alone"),
    "a list before the first": (al("e", 10, 10), "'e' has no list for number 9"),
    "a list from before the join": (al("e", 8, 9), "must begin after number 8"),
    "a list of a view to come": (al("d", 11, 11), "view 'd' is not in group"),
}


@BOTH
@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_raises_and_changes_nothing(breach: str, algorithm: str) -> None:
    message, rule = BREACHES[breach]
    merge = merge_of(rel(0, 9, (0, 9, "ab")), add("d", 12), add("e", 9), algorithm=algorithm)
    refused(merge, message, rule)
