"""Drivers of different roles live side by side; a second holder of a role takes it over (DESIGN 4, 9)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.session_plan import SessionPlan
from streaming.runtime.fence import Fence, Holder, holders
from streaming.service.building import check_roles, roles_of

INTEGRATOR, VIEW, MERGE = "integrator", "view:balance", "merge:bank"


def test_drivers_of_different_roles_leave_each_other_alone(tmp_path: Path) -> None:
    fences = [Fence(tmp_path, {"host": role}, [role]) for role in (INTEGRATOR, VIEW, MERGE)]
    for fence in fences:
        fence.check()
        fence.check()
    assert [fence.generation for fence in fences] == [1, 2, 3]


def test_a_second_holder_of_a_role_fences_out_the_first_and_no_other(tmp_path: Path) -> None:
    merge = Fence(tmp_path, {"host": "alpha"}, [MERGE])
    rest = Fence(tmp_path, {"host": "beta"}, [INTEGRATOR, VIEW])
    Fence(tmp_path, {"host": "gamma"}, [VIEW, "view:other"])
    merge.check()
    with pytest.raises(FrescoError, match=r"SERVICE_FENCED: generation 2 .* generation 3.*gamma"):
        rest.check()
    Fence(tmp_path, {"host": "delta"}, [MERGE])
    with pytest.raises(FrescoError, match=r"SERVICE_FENCED: generation 1 .* generation 4.*delta"):
        merge.check()


@pytest.mark.parametrize("roles", [([], [VIEW]), ([VIEW], [])], ids=["then one", "then all"])
def test_a_driver_without_roles_plays_them_all(
    tmp_path: Path, roles: tuple[list[str], list[str]]
) -> None:
    first, second = (Fence(tmp_path, {}, each) for each in roles)
    second.check()
    with pytest.raises(FrescoError, match="SERVICE_FENCED"):
        first.check()


def test_a_stage_s_generations_rise_whoever_runs_it(tmp_path: Path) -> None:
    starts: list[list[str]] = [[], [VIEW], [MERGE], [VIEW], []]
    generations = [Fence(tmp_path, {}, roles).generation for roles in starts]
    assert all(before < after for before, after in pairwise(generations))


def test_holders_are_those_that_no_later_start_has_fenced_out(tmp_path: Path) -> None:
    Fence(tmp_path, {"host": "all"})
    Fence(tmp_path, {"host": "old"}, [VIEW])
    Fence(tmp_path, {"host": "merge"}, [MERGE])
    Fence(tmp_path, {"host": "new"}, [VIEW, INTEGRATOR])
    assert holders(tmp_path) == (
        Holder(3, (MERGE,), {"host": "merge"}),
        Holder(4, (INTEGRATOR, VIEW), {"host": "new"}),
    )
    Fence(tmp_path, {"host": "all again"})
    assert holders(tmp_path) == (Holder(5, (), {"host": "all again"}),)


def test_a_role_that_the_pipeline_has_not_is_refused_with_the_nearest_one() -> None:
    views, groups = [SimpleNamespace(name="balance")], {"bank": ("balance",)}
    pipeline: Any = SimpleNamespace(views=views, groups=groups, sessions=SessionPlan())
    assert roles_of(pipeline) == (INTEGRATOR, VIEW, MERGE)
    check_roles(pipeline, [MERGE, VIEW])
    with pytest.raises(FrescoError, match=r"SERVICE_ROLE.*'view:balanc'.*did you mean 'view:bal"):
        check_roles(pipeline, [INTEGRATOR, "view:balanc"])
    with pytest.raises(FrescoError, match=r"it has integrator, view:balance, merge:bank"):
        check_roles(pipeline, ["x"])
