"""Merge groups of views over views, under each grouping."""

from __future__ import annotations

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.merge_groups import Group, merge_groups, spanning

SCANS = {
    "v1": ["x.r", "y.s"],
    "v2": ["v1", "z.t"],
    "v3": ["v1", "x.r"],
    "v4": ["z.u"],
}
USED = {"v1": ["x.r", "y.s"], "v2": ["x.r", "y.s", "z.t"], "v3": ["x.r", "y.s"], "v4": ["z.u"]}
"""Base relations, through parents too."""


def test_single_and_disjoint_keep_a_view_with_its_parents() -> None:
    (one,) = merge_groups(USED, "single", scans=SCANS)
    assert (one.views, one.virtual_bases) == (("v1", "v2", "v3", "v4"), ())
    first, second = merge_groups(USED, "disjoint", scans=SCANS)
    assert first == Group("main_v1", ("v1", "v2", "v3"), ("x.r", "y.s", "z.t"))
    assert second == Group("main_v4", ("v4",), ("z.u",))


def test_atomic_groups_part_a_view_from_a_parent_that_is_its_only_way_to_its_bases() -> None:
    groups = merge_groups(USED, "atomic", scans=SCANS)
    assert groups == (
        Group("main_v1", ("v1", "v3"), ("x.r", "y.s")),
        Group("main_v2", ("v2",), ("x.r", "y.s", "z.t"), ("v1",)),
        Group("main_v4", ("v4",), ("z.u",)),
    )
    assert spanning(groups, ["x.r"]) == ("main_v1", "main_v2"), "both show it, each in its time"
    assert spanning(groups, ["z.u"]) == ("main_v4",)


def test_atomic_groups_are_no_finer_than_declared_spans() -> None:
    groups = merge_groups(USED, "atomic", [["z.t", "z.u"]], scans=SCANS)
    assert [group.views for group in groups] == [("v1", "v3"), ("v2", "v4")]
    assert spanning(groups, ["z.t", "z.u"]) == ("main_v2",)


def test_atomic_groups_of_views_over_relations_are_single_views() -> None:
    groups = merge_groups({"v1": ["x.r"], "v2": ["x.r", "y.s"]}, "atomic", name="bank")
    assert [(group.name, group.views) for group in groups] == [
        ("bank_v1", ("v1",)),
        ("bank_v2", ("v2",)),
    ]


def test_views_in_a_circle_are_refused() -> None:
    with pytest.raises(FrescoError, match="a -> b -> a") as error:
        merge_groups({"a": [], "b": []}, "atomic", scans={"a": ["b"], "b": ["a"]})
    assert error.value.code == "VIEW_CYCLE"
