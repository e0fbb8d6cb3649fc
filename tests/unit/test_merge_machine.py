"""The merge machine: its protocol, its batches, suspended views and what a commit is told."""

from __future__ import annotations

import pytest
from merge_messages import al, refused, rel, suspend, told

from streaming.errors import FrescoError
from streaming.merge.batching import GREEDY, NONE, ListPart, bound
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList


def merge_of(*messages: object, views: str = "ab", algorithm: str = "spa") -> MergeMachine:
    merge: MergeMachine = told(MergeMachine("g", tuple(views), algorithm), *messages)  # type: ignore[arg-type]
    return merge


BREACHES = {
    "a view of another group": (al("z", 0, 4), "view 'z' is not in group 'g'"),
    "a number from the past": (al("a", 1, 4), "must begin after number 1"),
    "a view not in REL": (al("b", 7, 9), "REL has 'b' at none of its numbers"),
    "a list over the cut": (al("a", 2, 12), "crosses the cut at 9"),
    "a list that skips a number": (al("a", 3, 4), "has no list for number 2"),
    "a list that ends before it begins": (al("a", 4, 2), "ends before it begins"),
    "a strong list under SPA": (al("a", 2, 4, complete=False), "complete view managers only"),
    "rows where the view is idle": (al("c", 8, 9), "REL has 'c' at none of its numbers"),
    "a second REL": (rel(9, 12, (9, 12, "a")), "a second REL for number 9"),
    "a REL after a gap": (rel(11, 12, (11, 12, "a")), "must go on at number 10"),
    "a gap between runs": (rel(10, 14, (10, 11, "a"), (13, 14, "b")), "go on at number 12"),
    "runs that end early": (rel(10, 14, (10, 11, "a")), "must end at number 14"),
    "an unknown view in REL": (rel(10, 14, (10, 14, "az")), "view 'z' is not in group"),
    "idle outside of REL": (rel(10, 14, (10, 14, "a", "b")), "idle ones among them"),
    "a message of another group": (rel(10, 14, (10, 14, "a"), group="h"), "merge of group 'g'"),
    "a suspension behind the lists": (suspend("a", 0), "end at 1, not at `after`"),
    "a suspension ahead of the lists": (suspend("a", 3), "end at 1, not at `after`"),
    "a suspension of nothing known": (suspend("z", 3), "view 'z' is not in group"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_raises_and_changes_nothing(breach: str) -> None:
    message, rule = BREACHES[breach]
    merge = merge_of(
        rel(0, 9, (0, 6, "ab"), (7, 8, "a"), (9, 9, "ac", "c")),
        al("a", 0, 1),
        al("b", 0, 6),
        views="abc",
    )
    refused(merge, message, rule)
    merge.handle(al("a", 2, 9))
    assert merge.take_batch() is not None
    assert merge.frontier == 9


@pytest.mark.parametrize(
    ("early", "rule"),
    [
        ([al("a", 0, 11)], r"list a\[0..11\] crosses the cut at 9"),
        ([al("a", 0, 3), al("a", 5, 9)], "'a' has no list for number 4"),
        ([al("a", 1, 9)], "'a' has no list for number 0"),
        ([al("a", 0, 3), al("a", 10, 12)], "'a' has no list for number 9"),
        ([al("b", 0, 9)], r"REL has the view at no number of b\[0..9\]"),
    ],
)
def test_a_list_before_its_rel_is_checked_when_the_rel_comes(
    early: list[ActionList], rule: str
) -> None:
    merge = merge_of(*early)
    refused(merge, rel(0, 9, (0, 9, "a")), rule)


def test_an_empty_list_over_idle_numbers_is_harmless_early_and_late() -> None:
    late = merge_of(rel(0, 9, (0, 9, "a", "a")), al("a", 0, 9, rows=0))
    early = merge_of(al("a", 0, 9, rows=0), rel(0, 9, (0, 9, "a", "a")))
    for merge in (late, early):
        batch = merge.take_batch()
        assert batch is not None
        assert (batch.parts, batch.frontier) == ((), 9)
        assert not any(merge.vut.lists)


def test_a_row_without_views_is_applied_at_once_and_only_moves_the_frontier() -> None:
    merge = merge_of(rel(0, 9, (0, 9, "")))
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.ranges, batch.parts, batch.frontier) == (((0, 9),), (), 9)
    assert merge.take_batch() is None


def test_idle_cells_keep_the_order_of_their_row() -> None:
    """PAPERS 1: open -> moving -> archived must not show in two selection views at once."""
    merge = merge_of(rel(0, 1, (0, 0, "ab"), (1, 1, "ab", "a")), al("b", 0, 1))
    assert merge.take_batch() is None
    merge.handle(al("a", 0, 0))
    batch = merge.take_batch()
    assert batch is not None and batch.frontier == 1


def test_a_run_is_applied_prefix_by_prefix() -> None:
    merge = merge_of(rel(0, 99, (0, 99, "ab")), al("a", 0, 59), al("b", 0, 19))
    batch = merge.take_batch()
    assert batch is not None
    assert batch.ranges == ((0, 19),)
    assert batch.parts == (ListPart("a", "a[0..59]", 0, 19), ListPart("b", "b[0..19]", 0, 19))
    merge.handle(al("b", 20, 79))
    batch = merge.take_batch()
    assert batch is not None
    assert batch.ranges == ((20, 59),)
    assert batch.parts == (ListPart("a", "a[0..59]", 20, 59), ListPart("b", "b[20..79]", 20, 59))
    assert batch.delta("b[20..79]").path == "b79"
    assert [held.id for held in merge.vut.lists[0]] == []
    assert [held.id for held in merge.vut.lists[1]] == ["b[20..79]"]


def test_a_batch_says_which_source_state_it_completes() -> None:
    merge = merge_of(
        rel(0, 0, (0, 0, "a")),
        al("a", 0, 0),
        rel(1, 4, (1, 4, "a"), positions={"north": "10"}, committed_ms=100),
        rel(5, 9, (5, 9, "b"), positions={"south": "20"}, committed_ms=90, released=("t1",)),
        al("b", 5, 9),
    )
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.frontier, batch.ahead) == (0, ((5, 9),))
    assert (batch.positions, batch.committed_ms, batch.released) == ({}, None, ("t1",))
    merge.handle(al("a", 1, 4))
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.frontier, batch.ahead, batch.released) == (9, (), ())
    assert (batch.positions, batch.committed_ms) == ({"north": "10", "south": "20"}, 100)


def test_nothing_is_shown_before_the_initial_state() -> None:
    merge = merge_of(rel(0, 0, (0, 0, "ab")), rel(1, 3, (1, 1, ""), (2, 2, "b"), (3, 3, "")))
    assert merge.waiting == 2
    assert merge.take_batch() is None
    again = merge_of()
    again.restore(merge.snapshot())
    for machine in (merge, again):
        machine.handle(al("b", 0, 0))
        machine.handle(al("b", 2, 2))
        assert machine.take_batch() is None
        machine.handle(al("a", 0, 0))
        batch = machine.take_batch()
        assert batch is not None
        assert (batch.ranges, batch.frontier) == (((0, 3),), 3)


def test_a_suspended_view_leaves_its_group_and_the_others_go_on() -> None:
    merge = merge_of(rel(0, 9, (0, 9, "ab")), al("a", 0, 9), al("b", 0, 3))
    merge.take_batch()
    ready = merge.handle(suspend("b", 3))
    assert [span[:2] for each in ready for span in each.spans] == [(4, 9)]
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.frontier, batch.suspended) == (9, (("b", 3),))
    assert [part.view for part in batch.parts] == ["a"]
    refused(merge, al("b", 4, 9), "view 'b' is suspended")
    refused(merge, suspend("b", 3), "suspended already")
    merge.handle(rel(10, 11, (10, 11, "ab")))
    assert [row.colours for row in merge.table()] == ["wb"]
    merge.handle(al("a", 10, 11))
    merge.take_batch()
    assert merge.frontier == 11


def test_a_view_suspended_before_its_rel_comes_is_black_below_its_last_good_number() -> None:
    merge = merge_of(al("b", 0, 3), suspend("b", 3), rel(0, 9, (0, 9, "ab")))
    assert [(row.first, row.last, row.colours) for row in merge.table()] == [
        (0, 3, "wr"),
        (4, 9, "wb"),
    ]


def test_a_rel_that_needs_a_list_from_a_suspended_view_is_refused() -> None:
    merge = merge_of(suspend("b", 3))
    refused(merge, rel(0, 9, (0, 9, "ab")), "'b' is suspended; no list for 0")


def test_batching_none_takes_each_transaction_by_itself() -> None:
    merge = MergeMachine("g", ("a",), batching=NONE)
    merge.handle(rel(0, 2, (0, 2, "a")))
    merge.handle(al("a", 0, 2))
    batches = list(iter(merge.take_batch, None))
    assert [batch.ranges for batch in batches] == [((0, 0),), ((1, 1),), ((2, 2),)]
    assert [batch.parts for batch in batches] == [
        (ListPart("a", "a[0..2]", number, number),) for number in range(3)
    ]


def test_a_bound_batch_waits_for_its_rows_or_its_age() -> None:
    merge = MergeMachine("g", ("a",), batching=bound(100, 50))
    merge.handle(rel(0, 299, (0, 299, "a")))
    merge.handle(al("a", 0, 29))
    assert merge.take_batch(now_ms=1_000) is None
    assert merge.take_batch(now_ms=1_049) is None
    batch = merge.take_batch(now_ms=1_050)
    assert batch is not None and batch.ranges == ((0, 29),)
    merge.handle(al("a", 30, 299))
    sizes = [merge.take_batch(now_ms=1_051) for _ in range(4)]
    assert [batch.ranges if batch else None for batch in sizes] == [
        ((30, 129),),
        ((130, 229),),
        None,
        None,
    ]


def test_a_bound_that_can_never_be_met_is_refused() -> None:
    with pytest.raises(FrescoError, match="MERGE_BATCHING"):
        bound(0, 10)


def test_pa_never_splits_what_goes_together() -> None:
    merge = MergeMachine("g", ("a", "b"), "pa", bound(2, 0))
    merge.handle(rel(0, 9, (0, 9, "ab")))
    merge.handle(al("a", 0, 7, complete=False))
    merge.handle(al("b", 0, 9))
    batch = merge.take_batch()
    assert batch is not None and batch.ranges == ((0, 7),)
    assert batch.parts == (ListPart("a", "a[0..7]", 0, 7), ListPart("b", "b[0..9]", 0, 7))


def test_a_snapshot_of_another_group_is_refused() -> None:
    saved = MergeMachine("g", ("a", "b"), batching=GREEDY).snapshot()
    with pytest.raises(FrescoError, match="MERGE_SNAPSHOT"):
        MergeMachine("g", ("a", "c")).restore(saved)
    with pytest.raises(FrescoError, match="MERGE_SNAPSHOT"):
        MergeMachine("g", ("a", "b"), "pa").restore(saved)
