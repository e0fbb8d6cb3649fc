"""Where the views of a pipeline stand, for `fresco view list`: catalog, newest commits, requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streaming.pipeline.catalog import Catalog, known_catalog
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.snapshots import MergingState, SessionsState, view_state
from streaming.runtime.stage_names import stage_name
from streaming.service.stalls import stalls
from streaming.viewchanges.requests import Requests, phase
from streaming.warehouse.snapshot import suspended_views


@dataclass(frozen=True)
class ViewStatus:
    """A view as `fresco view list` shows it.

    Attributes:
        view: its name.
        group: the merge group that it is in or is to join; "" while nothing says which.
        mode: as its file has it, not what was chosen for it; "" while nothing says which.
        since: the number at which it joined; 0 from the beginning, None while it has not.
        state: `maintained`, `waits` while something holds it up, `suspended`, or where a request to
            change it stands, a phrase; a view that is there has both, with "; " between them.
        after: a suspended view's last good number; None of another.
        request: the number of the open request; None where none is.
        error: code, what, where and todo of what holds it up, else of why its last request was refused,
            else of why it is suspended; None where nothing is so.
    """

    view: str
    group: str
    mode: str
    since: int | None
    state: str
    after: int | None = None
    request: int | None = None
    error: Mapping[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def view_states(warehouse: Path) -> list[ViewStatus]:
    """Every view of a pipeline, and those that are to join.

    Raises:
        FrescoError: CATALOG_NONE.
    """
    catalog, requests = known_catalog(warehouse), Requests(warehouse)
    known = stalls(warehouse)
    open_ = {one.view: one for one in requests.open()}
    found = []
    for view in catalog.views:
        group, joined = catalog.group_of(view.name), catalog.joined.get(view.name)
        after = suspended_views(warehouse, group).get(view.name)
        request = open_.pop(view.name, None)
        stall = known.views.get(view.name)
        state = "maintained" if stall is None else "waits"
        if after is not None or (stall is not None and stall.what == f"view {view.name}"):
            state, stall = "suspended", None
        if request is not None:
            state = f"{state}; {phase(requests, request)}"
        found.append(
            ViewStatus(
                view.name,
                group,
                view.mode,
                joined.since if joined else 0,
                state,
                after,
                request.number if request else None,
                (None if stall is None else stall.error)
                or _refusal(requests, view.name)
                or (
                    _cause(warehouse, catalog, view.name) if state.startswith("suspended") else None
                ),
            )
        )
    for name, request in sorted(open_.items()):
        entry = request.entry or {}
        state, number = phase(requests, request), request.number
        group, mode = entry.get("group", ""), entry.get("mode", "")
        stall = known.of_joining(name, group)
        error = None if stall is None else stall.error
        found.append(ViewStatus(name, group, mode, None, state, request=number, error=error))
    return found


def _refusal(requests: Requests, view: str) -> Mapping[str, str] | None:
    """Why the last request about the view was refused."""
    own = [one for one in requests.all() if one.view == view]
    told = requests.told(own[-1].number, "done") if own else None
    return told.get("error") if told else None


def _cause(warehouse: Path, catalog: Catalog, view: str) -> Mapping[str, str] | None:
    """Why a view is suspended, as its stage's last manifest says; None where that has gone on since.

    Where the table could not take its rows, its merge's says so.
    """
    joined, group = catalog.joined.get(view), catalog.group_of(view)
    own = stage_name(view, joined.request if joined else 0)
    stages = (own, f"isolated:{group}", f"merge:{group}")
    found = {stage: _snapshot(warehouse, stage) for stage in stages}
    if (saved := found[own]) is not None and (error := view_state(saved).suspended):
        return error
    if (saved := found[f"isolated:{group}"]) is not None:
        isolated: Mapping[str, Mapping[str, Any]] = SessionsState.loaded(saved).suspended or {}
        return isolated.get(view, {}).get("error")
    saved = found[f"merge:{group}"]
    return None if saved is None else MergingState.loaded(saved).refusal(view, own)


def _snapshot(warehouse: Path, stage: str) -> Mapping[str, Any] | None:
    """What a stage's last manifest has saved."""
    folder = warehouse / "_state" / stage.replace(":", "-") / "manifests"
    latest = ManifestStore(folder).latest() if folder.is_dir() else None
    return None if latest is None else latest.snapshot
