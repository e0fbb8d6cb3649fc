"""Where a pipeline stands, read from its warehouse alone: no service needs to answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.runtime.fence import Holder, holders
from streaming.runtime.heartbeat import Stall
from streaming.runtime.snapshots import IntegratorState, SessionsState, view_state
from streaming.runtime.step import Manifest, ManifestStore
from streaming.service.stalls import Stalls, stalls
from streaming.stages.stage_trouble import told_trouble
from streaming.viewchanges.requests import Requests, phase
from streaming.warehouse.decisions import bad_records, decisions


@dataclass(frozen=True)
class GroupStatus:
    """A merge group.

    Attributes:
        behind_s: seconds from the newest source commit reflected to the commit that published it.
        age_s: seconds since that commit.
        suspended: view -> its last good number.
        depends_on: the latest earlier epochs with which the newest one shares a view (MVC 4.3).
    """

    group: str
    epoch: int
    frontier: int
    commits: int
    behind_s: float | None
    age_s: float | None
    suspended: Mapping[str, int]
    depends_on: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageStatus:
    """A stage's last step.

    Attributes:
        error: why a view manager is suspended.
        waits: which trouble of a source a view manager waits to pass.
        spanned: transactions that changed relations of several merge groups.
        lacking: source -> its first transaction whose END counts rows that have not come.
    """

    stage: str
    step: int
    generation: int
    number: int | None
    error: Mapping[str, str] | None
    lacking: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] | None = None
    spanned: int = 0


@dataclass(frozen=True)
class PipelineStatus:
    """Groups and stages, and who started last.

    Attributes:
        drivers: who holds which stages.
        bad_records: the errors of the records that cannot be used, by place; where people have
            decided to go on without one, `skipped` says who and why.
        changes: requests about views that are under way: number, view, and where it stands.
        service: in a few words, whether one runs.
        stalls: all that cannot go on, the most general first: what, code, says, where and todo.
        views: view -> the code of what holds it up, or of why it is suspended.
    """

    holder: Mapping[str, Any]
    groups: tuple[GroupStatus, ...]
    stages: tuple[StageStatus, ...]
    bad_records: tuple[Mapping[str, str], ...] = ()
    drivers: tuple[Holder, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()
    service: str = ""
    stalls: tuple[Mapping[str, str], ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)

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
    drivers = holders(path / "_state" / "generations")
    holder = drivers[-1].owner if drivers else {}
    requests = Requests(path)
    changes = tuple(
        {"request": one.number, "view": one.view, "state": phase(requests, one)}
        for one in requests.open()
    )
    try:
        known = stalls(path)
    except FrescoError as error:  # a state that is damaged: all else is shown
        known = Stalls("", (Stall.of("pipeline", error),), {})
    return PipelineStatus(
        holder,
        groups,
        tuple(stages),
        _bad(path),
        drivers,
        changes,
        known.service,
        tuple(one.model_dump() for one in known.found),
        {view: one.code for view, one in known.views.items()},
    )


def _bad(path: Path) -> tuple[Mapping[str, str], ...]:
    decided = decisions(path)
    found = []
    for name, record in sorted(bad_records(path).items()):
        error = dict(record["error"])
        if (one := decided.get(name)) is not None:
            error["skipped"] = f"{one['by'].get('user')}: {one['reason']}"
        found.append(error)
    return tuple(found)


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
        group,
        last.epoch,
        last.frontier,
        last.epoch,
        behind,
        age,
        dict(last.suspended),
        last.dependencies,
    )


def _error(latest: Manifest) -> Mapping[str, str] | None:
    """Why a view manager is suspended; of a group of isolated views, the first that is."""
    if latest.stage.startswith("isolated:"):
        found = SessionsState.loaded(latest.snapshot).suspended
        if not found:
            return None
        view, note = min(found.items())
        return {**note["error"], "what": f"view {view}: {note['error']['what']}"}
    return view_state(latest.snapshot).suspended if latest.stage.startswith("view:") else None


def _stage(latest: Manifest, folder: Path) -> StageStatus:
    number, incomplete, spanned = None, dict[str, Any](), 0
    if latest.stage == "integrator":
        integrator = IntegratorState.loaded(latest.snapshot)
        number, spanned = integrator.number, integrator.spanned
        incomplete = integrator.incomplete
    elif latest.stage.startswith("view:"):
        number = view_state(latest.snapshot).number
    elif latest.stage.startswith("isolated:"):
        number = SessionsState.loaded(latest.snapshot).machine["number"]
    return StageStatus(
        latest.stage,
        latest.step,
        latest.generation,
        number,
        _error(latest),
        incomplete,
        told_trouble(folder),
        spanned,
    )
