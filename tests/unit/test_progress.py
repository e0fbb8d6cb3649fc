"""What the manifests of stages in other drivers say of staged files (DESIGN 9)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.runtime import stage_progress
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.runtime.snapshots import view_state
from streaming.runtime.stage_progress import Elsewhere, ViewProgress, view_progress
from streaming.service.building import Stages

CONTROL = {"control": {"number": 40}, "suspended": None}


def put(warehouse: Path, stage: str, step: int, snapshot: dict[str, Any]) -> None:
    folder = warehouse / "_state" / stage.replace(":", "-") / "manifests"
    ManifestStore(folder).put(
        Manifest(stage=stage, step=step, generation=1, offsets={}, snapshot=snapshot)
    )


def reference(stage: str, last: int) -> dict[str, Any]:
    path = f"_staging/{stage}/{last:015d}-ab12.parquet"
    return {"rows": 5, "ipc": None, "path": path, "sha256": "x"}


def folded(number: int) -> dict[str, Any]:
    """A checkpoint."""
    return {"number": number, "leaves": 0, "files": []}


def progress(saved: dict[str, Any], start: int = 0) -> ViewProgress:
    return view_progress(view_state(saved), "view:a", start)


def test_a_replica_needs_what_came_after_its_checkpoint() -> None:
    assert progress({**CONTROL, "checkpoint": folded(31)}) == ViewProgress(40, 32, False)
    assert progress({**CONTROL, "checkpoint": None}, 7).needed == 7


def test_a_manager_that_asks_needs_the_staged_updates_that_its_machines_hold() -> None:
    """Its own staged rows are another matter: it keeps those itself."""
    machines = {
        "adapter": [{"held": reference("integrator", 38)}],
        "mirror": reference("view-a", 9),
    }
    assert progress({**CONTROL, "machines": machines}) == ViewProgress(37, 41, False)
    assert progress({**CONTROL, "machines": {}}) == ViewProgress(40, 41, False)


def test_a_stage_without_a_manifest_has_passed_nothing(tmp_path: Path) -> None:
    elsewhere = Elsewhere(tmp_path)
    assert elsewhere.view("view:a") == ViewProgress(-1, 0, False)
    assert elsewhere.published("merge:g") == -1


class Collected:
    """An integrator that notes what it is told to collect."""

    told: tuple[int, int] | None = None
    numbered = 60

    def collect(self, passed: int, needed: int) -> None:
        self.told = (passed, needed)


def test_the_integrator_collects_by_the_slowest_stage_of_any_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_progress, "LOOK_SECONDS", 0.0)
    integrator: Any = Collected()
    groups = {"g": ("a", "b", "c")}
    members: Any = SimpleNamespace(wanted=lambda: [f"view:{view}" for view in groups["g"]])
    nothing: Any = None
    elsewhere = Elsewhere(tmp_path)
    stages = Stages(integrator, [], {}, [], groups, lambda _: (), elsewhere, members, nothing)
    for view, number in (("a", 40), ("b", 30), ("c", 5)):
        suspended = {"code": "X"} if view == "c" else None
        control = {"control": {"number": number}, "suspended": suspended}
        put(
            tmp_path,
            f"view:{view}",
            1,
            {**control, "checkpoint": folded(20)},
        )
    stages.collect()
    assert integrator.told == (30, 0), "the merge has published nothing"
    put(tmp_path, "merge:g", 1, {"published": 12})
    stages.collect()
    assert integrator.told == (30, 13)
    put(tmp_path, "merge:g", 2, {"published": 29})
    put(tmp_path, "view:b", 2, {**CONTROL, "checkpoint": folded(33)})
    stages.collect()
    assert integrator.told == (40, 21)
    for view, number in (("a", 40), ("b", 40)):
        snapshot = {"control": {"number": number}, "suspended": {"code": "X"}}
        put(
            tmp_path,
            f"view:{view}",
            3,
            {**snapshot, "checkpoint": folded(33)},
        )
    stages.collect()
    assert integrator.told == (60, 21), "all have left: what is in `_updates` is enough"


def test_a_state_of_a_later_version_is_refused_and_one_of_before_is_read() -> None:
    before = view_state({**CONTROL, "machines": {"mirror": reference("view-a", 9)}})
    assert before.files == (reference("view-a", 9)["path"],) and before.version == 2
    assert view_state(before.dumped()) == before
    with pytest.raises(FrescoError, match="STATE_NEWER"):
        view_state({**before.dumped(), "version": 3})
