"""Where a pipeline stands, read from its warehouse alone: no service needs to answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.runtime.step import Manifest, ManifestStore
from streaming.runtime.trouble import told_trouble


@dataclass(frozen=True)
class GroupStatus:
    """A merge group.

    Attributes:
        behind_s: seconds from the newest source commit reflected to the commit that published it.
        age_s: seconds since that commit.
        suspended: view -> its last good number.
    """

    group: str
    epoch: int
    frontier: int
    commits: int
    behind_s: float | None
    age_s: float | None
    suspended: Mapping[str, int]


@dataclass(frozen=True)
class StageStatus:
    """A stage's last step.

    Attributes:
        error: why a view manager is suspended.
        waits: which trouble of a source a view manager waits to pass.
        lacking: source -> its first transaction whose END counts rows that have not come.
    """

    stage: str
    step: int
    generation: int
    number: int | None
    error: Mapping[str, str] | None
    lacking: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PipelineStatus:
    """Groups and stages, and who started last.

    Attributes:
        bad_records: the errors of the records that cannot be used, by place.
    """

    holder: Mapping[str, Any]
    groups: tuple[GroupStatus, ...]
    stages: tuple[StageStatus, ...]
    bad_records: tuple[Mapping[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def pipeline_status(path: Path) -> PipelineStatus:
    """The status of the pipeline whose warehouse is at `path`.

    Raises:
        FrescoError: READ_NO_WAREHOUSE when there is none.
    """
    warehouse = Warehouse(path)
    groups = tuple(_group(warehouse, group) for group in warehouse.groups())
    stages = []
    for folder in sorted((path / "_state").glob("*/manifests")):
        latest = ManifestStore(folder).latest()
        if latest is not None:
            stages.append(_stage(latest, folder.parent))
    owners = sorted((path / "_state" / "generations").glob("[0-9]*.json"))
    holder = json.loads(owners[-1].read_text()) if owners else {}
    files = sorted((path / "_state" / "bad_records").glob("[!.]*.json"))
    bad = tuple(json.loads(file.read_text())["error"] for file in files)
    return PipelineStatus(holder, groups, tuple(stages), bad)


def _group(warehouse: Warehouse, group: str) -> GroupStatus:
    try:
        epochs = warehouse.epochs(group)
    except FrescoError as error:
        if error.code != "READ_NO_EPOCH":
            raise
        return GroupStatus(group, 0, -1, 0, None, None, {})
    last = epochs[-1]
    behind = age = None
    if last.written_ms is not None:
        age = time.time() - last.written_ms / 1000
        if last.committed_ms is not None:
            behind = (last.written_ms - last.committed_ms) / 1000
    return GroupStatus(
        group, last.epoch, last.frontier, last.epoch, behind, age, dict(last.suspended)
    )


def _stage(latest: Manifest, folder: Path) -> StageStatus:
    snapshot = latest.snapshot
    number = None
    if latest.stage == "integrator":
        number = latest.messages[-1].last if latest.messages else None
    elif latest.stage.startswith("view:"):
        number = snapshot["control"]["number"]
    return StageStatus(
        latest.stage,
        latest.step,
        latest.generation,
        number,
        snapshot.get("suspended") if latest.stage.startswith("view:") else None,
        snapshot.get("incomplete", {}),
        told_trouble(folder),
    )
