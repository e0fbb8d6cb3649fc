"""Rows of incomplete transactions are staged once; a restart and a paused driver leave them alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.cdc.intake import TRANSACTIONS, IntakeResult
from streaming.metrics import Metrics
from streaming.runtime.kafka import Topics
from streaming.runtime.step import Manifest
from streaming.stages.integrator_stage import IntegratorStage


class Holding:
    """An intake that holds the rows of one file, as its snapshot says."""

    def __init__(self) -> None:
        self.path: str | None = None

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.path = snapshot["held"]["path"]

    def snapshot(self) -> dict[str, Any]:
        return {"held": {"path": self.path}}

    def step(self, *_: Any) -> IntakeResult:
        """Nothing is numbered."""
        nothing: dict[str, Any] = dict(
            updates={}, controls=(), runs={}, positions={}, tainted={}, released=(), bad=()
        )
        none = TRANSACTIONS.empty_table()
        return IntakeResult(first=0, last=-1, transactions=none, committed_ms=None, **nothing)


class Recorded:
    """`_updates` that everything is in already."""

    table = None

    def recorded(self) -> int:
        return 1 << 60


def integrator(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> IntegratorStage:
    monkeypatch.setattr("streaming.stages.integrator_stage.Upkeep", lambda *_: None)
    return IntegratorStage(
        lambda *_: Holding(),  # type: ignore[arg-type, return-value]
        Recorded(),  # type: ignore[arg-type]
        Topics("bank"),
        {},
        Metrics(),
        warehouse,
    )


def manifest(path: str) -> Manifest:
    """A step that wrote nothing and holds the rows of a file."""
    return Manifest(
        stage="integrator",
        step=1,
        generation=1,
        offsets={},
        snapshot={"sequence": 0, "number": -1, "intake": {"held": {"path": path}}},
    )


def test_a_restart_keeps_the_rows_that_its_snapshot_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = integrator(tmp_path, monkeypatch)._hold(pa.table({"c0": [1]}))
    restarted = integrator(tmp_path, monkeypatch)
    restarted.restore(manifest(held).snapshot)
    restarted.applied(manifest(held))
    assert (tmp_path / held).exists()


def test_a_driver_that_wakes_late_does_not_remove_what_its_successor_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = integrator(tmp_path, monkeypatch), integrator(tmp_path, monkeypatch)
    before = old._hold(pa.table({"c0": [1]}))
    old.restore(manifest(before).snapshot)
    after = new._hold(pa.table({"c0": [2]}))
    old.applied(manifest(before))
    assert (tmp_path / after).exists()


def test_what_a_crash_left_without_a_manifest_goes_with_the_first_step_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that step a driver that was replaced may still write the manifest that names the file."""
    before = integrator(tmp_path, monkeypatch)
    kept, orphan = (before._hold(pa.table({"n": [n]})) for n in (1, 2))
    after = integrator(tmp_path, monkeypatch)
    after.restore(manifest(kept).snapshot)
    after.applied(manifest(kept))
    assert (tmp_path / orphan).exists()
    assert after.run(pa.table({})) is None
    later = after._hold(pa.table({"n": [3]}))
    after.applied(manifest(kept))
    assert not (tmp_path / orphan).exists()
    assert (tmp_path / kept).exists() and (tmp_path / later).exists()
