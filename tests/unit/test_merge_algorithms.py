"""The merge by the weakest view manager of a group (MVC 6.3, DESIGN 5), and what passes through."""

from __future__ import annotations

import pytest
from merge_messages import al, refused, rel, suspend, taken, told

from streaming.errors import FrescoError
from streaming.merge.algorithms import Algorithm, Manager, algorithm_for, merge_of
from streaming.merge.batching import NONE
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.machine import MergeMachine
from streaming.pipeline.merge_groups import groups_apart

COMPLETE, STRONG, CONVERGENT = Manager(), Manager("strong"), Manager("convergent")
BY_3, BY_4 = Manager("complete-N", 3), Manager("complete-N", 4)


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        ((COMPLETE, COMPLETE), Algorithm("spa")),
        ((), Algorithm("spa")),
        ((COMPLETE, STRONG), Algorithm("pa")),
        ((STRONG,), Algorithm("pa")),
        ((BY_3, BY_3), Algorithm("spa", every=3)),
        ((BY_3, BY_4), Algorithm("pa")),
        ((BY_3, COMPLETE), Algorithm("pa")),
        ((BY_3, STRONG), Algorithm("pa")),
        ((CONVERGENT,), Algorithm("pa")),
        ((COMPLETE, CONVERGENT), Algorithm("pa", through=("b",))),
        ((CONVERGENT, STRONG, CONVERGENT), Algorithm("pa", through=("a", "c"))),
    ],
)
def test_the_weakest_manager_chooses(managers: tuple[Manager, ...], expected: Algorithm) -> None:
    assert algorithm_for(dict(zip("abc", managers, strict=False))) == expected


def test_the_machine_is_made_to_fit() -> None:
    assert isinstance(merge_of("g", {"a": BY_3}), BlockMerge)
    machine = merge_of("g", {"a": COMPLETE, "b": CONVERGENT})
    assert isinstance(machine, MergeMachine)
    assert (machine.algorithm, machine.through) == ("pa", {"b"})


def test_a_complete_n_manager_without_n_is_refused() -> None:
    with pytest.raises(FrescoError, match="MERGE_ALGORITHM"):
        algorithm_for({"a": Manager("complete-N")})


def test_spa_passes_nothing_through() -> None:
    with pytest.raises(FrescoError, match="MERGE_ALGORITHM"):
        MergeMachine("g", ("a",), "spa", through=("a",))


def test_convergent_views_get_a_group_each() -> None:
    groups = groups_apart({"b": ["s", "r"], "a": ["r"]}, "main")
    assert [(group.name, group.views, group.relations) for group in groups] == [
        ("main_a", ("a",), ("r",)),
        ("main_b", ("b",), ("r", "s")),
    ]


def mixed(*messages: object) -> MergeMachine:
    """Views a (complete), b (strong) and c, which is passed through."""
    managers = {"a": COMPLETE, "b": STRONG, "c": CONVERGENT}
    merge: MergeMachine = told(merge_of("g", managers, NONE), *messages)
    return merge


def test_a_convergent_list_is_applied_as_it_comes_and_its_row_does_not_wait_for_it() -> None:
    merge = mixed(rel(0, 9, (0, 9, "abc")), al("c", 0, 5, complete=False))
    assert taken(merge) == ["c0-5"]
    assert (merge.frontier, merge.settled) == (-1, -1)
    told(merge, al("a", 0, 9), al("b", 0, 3, complete=False))
    assert taken(merge) == ["a0-3 b0-3"]
    told(merge, al("b", 4, 9, complete=False))
    assert taken(merge) == ["a4-9 b4-9"]
    assert (merge.frontier, merge.settled) == (9, 5), "c's last list is still to come"
    told(merge, al("c", 6, 9, complete=False))
    batch = merge.take_batch()
    assert batch is not None and (batch.ranges, batch.frontier) == ((), 9)
    assert (merge.frontier, merge.settled) == (9, 9)


def test_a_complete_managers_list_counts_as_one_list_per_number_beside_a_strong_one() -> None:
    merge = mixed(rel(0, 3, (0, 0, "ab"), (1, 3, "a")), al("a", 0, 3))
    told(merge, al("b", 0, 0, complete=False))
    assert taken(merge) == ["a0 b0", "a1", "a2", "a3"]


def test_a_suspended_convergent_view_holds_nobody_back_either() -> None:
    merge = mixed(rel(0, 1, (0, 1, "ac")), al("c", 0, 0), suspend("c", 0), al("a", 0, 1))
    assert taken(merge) == ["c0", "a0", "a1"]
    assert merge.settled == 1
    told(merge, rel(2, 2, (2, 2, "ac")), al("a", 2, 2))
    assert taken(merge) == ["a2"]


def test_a_breach_by_a_convergent_view_is_a_breach() -> None:
    merge = mixed(rel(0, 9, (0, 4, "abc"), (5, 9, "a")), al("c", 0, 1))
    refused(merge, al("c", 1, 3), "must begin after number 1")
    refused(merge, al("c", 3, 4), "has no list for number 2")
    refused(merge, al("c", 2, 12), "crosses the cut at 9")
