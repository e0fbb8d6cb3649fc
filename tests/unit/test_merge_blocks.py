"""SPA by N for complete-N view managers (MVC 6.3): a row is a block of N transactions."""

from __future__ import annotations

import pytest
from merge_messages import add, al, drop, refused, rel, suspend, taken, told

from streaming.errors import FrescoError
from streaming.merge.batching import NONE, ListPart
from streaming.merge.blocks import Blocks
from streaming.merge.by_blocks import BlockMerge


def merge_of(*messages: object, views: str = "ab", every: int = 3) -> BlockMerge:
    merge: BlockMerge = told(BlockMerge("g", tuple(views), every, NONE), *messages)
    return merge


def block(view: str, first: int, last: int) -> object:
    """A complete-N manager's list: one for its block."""
    return al(view, first, last, complete=False)


def test_number_0_is_a_block_of_its_own() -> None:
    blocks = Blocks(3)
    assert [blocks.block_of(n) for n in range(-1, 8)] == [-1, 0, 1, 1, 1, 2, 2, 2, 3]
    assert [(blocks.first_of(k), blocks.last_of(k)) for k in (-1, 0, 1, 2)] == [
        (-1, -1),
        (0, 0),
        (1, 3),
        (4, 6),
    ]


def test_all_lists_of_n_transactions_are_applied_in_one_warehouse_transaction() -> None:
    merge = merge_of(rel(0, 6, (0, 0, "ab"), (1, 2, "a"), (3, 3, "b"), (4, 6, "ab")))
    told(merge, block("a", 0, 0), block("b", 0, 0))
    assert taken(merge) == ["a0 b0"]
    told(merge, block("a", 1, 2))
    assert taken(merge) == [], "b's list of the block is not there"
    assert [(r.first, r.last, r.colours) for r in merge.table()] == [(1, 3, "rw"), (4, 6, "ww")]
    told(merge, block("b", 3, 3), block("b", 4, 6))
    assert taken(merge) == ["a1-3 b1-3"]
    told(merge, block("a", 4, 6))
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.ranges, batch.frontier, merge.frontier) == (((4, 6),), 6, 6)
    assert batch.parts == (ListPart("a", "a[4..6]", 4, 6), ListPart("b", "b[4..6]", 4, 6))
    assert batch.delta("a[4..6]").path == "a6"


def test_a_block_without_a_view_overtakes_one_that_waits() -> None:
    merge = merge_of(rel(0, 6, (0, 0, ""), (1, 3, "a"), (4, 6, "b")), block("b", 4, 6))
    batches = list(iter(merge.take_batch, None))
    assert [batch.ranges for batch in batches] == [((0, 0),), ((4, 6),)]
    assert [(batch.frontier, batch.ahead) for batch in batches] == [(0, ()), (0, ((4, 6),))]


def test_a_view_is_idle_in_a_block_when_it_is_idle_at_all_of_its_numbers() -> None:
    merge = merge_of(
        rel(0, 6, (0, 0, ""), (1, 3, "ab", "b"), (4, 5, "ab", "b"), (6, 6, "ab")),
        block("a", 1, 3),
    )
    assert taken(merge) == ["", "a1-3"]
    told(merge, block("a", 4, 6))
    assert taken(merge) == []
    told(merge, block("b", 6, 6))
    assert taken(merge) == ["a4-6 b4-6"]


def test_a_rel_message_that_ends_inside_a_block_leaves_it_open() -> None:
    merge = merge_of(rel(0, 2, (0, 0, ""), (1, 2, "a"), positions={"s": "2"}, committed_ms=7))
    assert taken(merge) == [""]
    told(merge, block("a", 1, 3))
    assert taken(merge) == [], "number 3 may concern another view"
    told(merge, rel(3, 4, (3, 4, "a"), positions={"s": "4"}, committed_ms=5))
    batch = merge.take_batch()
    assert batch is not None
    assert (batch.ranges, batch.committed_ms) == (((1, 3),), 7)
    assert batch.positions == {"s": "2"}, "position 4 lies after number 4, which is not shown"
    told(merge, rel(5, 6, (5, 6, "a"), positions={"s": "6"}), block("a", 4, 6))
    batch = merge.take_batch()
    assert batch is not None and (batch.frontier, batch.positions) == (6, {"s": "6"})


def test_a_suspended_view_leaves_at_the_end_of_a_block() -> None:
    merge = merge_of(
        rel(0, 9, (0, 0, ""), (1, 9, "ab")),
        *(block("a", n, n + 2) for n in (1, 4, 7)),
        block("b", 1, 3),
        suspend("b", 3),
    )
    batches = list(iter(merge.take_batch, None))
    assert [batch.ranges for batch in batches] == [((0, 0),), ((1, 3),), ((4, 6),), ((7, 9),)]
    assert batches[-1].suspended == (("b", 3),)


def test_a_view_joins_and_leaves_at_the_end_of_a_block() -> None:
    merge = merge_of(rel(0, 3, (0, 0, ""), (1, 3, "ab")), add("c", 3, "complete-N", 3))
    told(merge, block("c", 3, 3), block("a", 1, 3), block("b", 1, 3))
    batches = list(iter(merge.take_batch, None))
    assert [batch.added for batch in batches] == [(), (), (("c", 3),)]
    assert batches[-1].parts == (ListPart("c", "c[1..3]", 1, 3),)
    told(merge, drop("b", 3), rel(4, 6, (4, 6, "ac")), block("a", 4, 6), block("c", 4, 6))
    batches = list(iter(merge.take_batch, None))
    assert [batch.dropped for batch in batches] == [(("b", 3),)]
    assert merge.frontier == 6


BREACHES = {
    "a list over two blocks": (block("a", 4, 7), "lies in one block of 3"),
    "a list that ends before it begins": (block("a", 6, 4), "lies in one block of 3"),
    "a list that leaves a number out": (block("a", 4, 5), "lacks numbers of its block: 4..6"),
    "a second list for a block": (block("a", 1, 3), "must begin after number 1"),
    "a block left out": (block("a", 7, 9), "'a' has no list for number 2"),
    "a list where REL has not the view": (block("b", 7, 9), "REL has 'b' at none"),
    "an unknown view": (block("z", 4, 6), "'z' is not in group"),
    "a second REL": (rel(9, 10, (9, 10, "a")), "a second REL for number 9"),
    "a REL after a gap": (rel(12, 13, (12, 13, "a")), "must go on at number 11"),
    "a gap between runs": (rel(11, 15, (11, 12, "a"), (14, 15, "a")), "go on at number 13"),
    "an unknown view in REL": (rel(11, 12, (11, 12, "z")), "'z' is not in group"),
    "another group's REL": (rel(11, 12, (11, 12, "a"), group="h"), "merge of group 'g'"),
    "a suspension behind the lists": (suspend("a", 2), "not at `after`"),
    "a suspension ahead of the lists": (suspend("a", 9), "not at `after`"),
    "a join inside a block": (add("c", 10, "complete-N", 3), "no block of 3 ends there"),
    "a join in the past": (add("c", 9, "complete-N", 3), "numbers up to 10 have been seen"),
    "a join with another N": (add("c", 12, "complete-N", 4), "complete-3"),
    "a join of another kind": (add("c", 12, "strong"), "complete-3"),
    "a drop in the past": (drop("a", 9), "numbers up to 10 have been seen"),
    "a drop of nothing known": (drop("z", 12), "last cut, 10"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_raises_and_changes_nothing(breach: str) -> None:
    message, rule = BREACHES[breach]
    merge = merge_of(
        rel(0, 10, (0, 0, ""), (1, 6, "ab"), (7, 10, "a")),
        block("a", 1, 3),
        block("b", 1, 3),
        block("b", 4, 6),
    )
    refused(merge, message, rule)


def test_a_list_before_its_rel_is_checked_when_the_block_is_whole() -> None:
    merge = merge_of(rel(0, 2, (0, 0, ""), (1, 2, "a")), block("a", 1, 2))
    refused(merge, rel(3, 3, (3, 3, "a")), r"a\[1..2\] lacks numbers of its block: 1..3")


def test_a_snapshot_of_other_blocks_is_refused() -> None:
    with pytest.raises(FrescoError, match="MERGE_SNAPSHOT"):
        BlockMerge("g", ("a",), 4).restore(BlockMerge("g", ("a",), 3).snapshot())


@pytest.mark.parametrize("late", [False, True], ids=["list-first", "rel-first"])
def test_a_view_that_comes_back_is_not_asked_for_the_work_of_its_suspended_column(
    late: bool,
) -> None:
    """REL names a suspended view still; its new manager's first list may overtake REL."""
    merge = merge_of(rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0), every=2)
    assert taken(merge) == ["a0 b0"]
    told(merge, suspend("a", 0), add("a", 2, "complete-N", 2))
    messages = [al("a", 2, 2), rel(1, 2, (1, 1, "ab"), (2, 2, "b"))]
    told(merge, *(reversed(messages) if late else messages), al("b", 1, 2))
    assert taken(merge) == ["b1-2", "a1-2"]
