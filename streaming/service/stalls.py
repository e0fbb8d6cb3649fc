"""What of a pipeline cannot go on, and why: the one place that says so.

It is worked out from what is durable (catalog, epochs, manifests, requests, records that cannot be used)
and from what the drivers said last (`heartbeat`). `fresco status`, `fresco view list`, `--json` and the
metrics all ask here, so a view is called maintained by all of them or by none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Gauge

from streaming.errors import FrescoError
from streaming.pipeline.catalog import PATH as CATALOG
from streaming.pipeline.catalog import Catalog, known_catalog
from streaming.readers import Warehouse
from streaming.runtime.fence import holders
from streaming.runtime.heartbeat import Stall, heard
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.runtime.snapshots import IntegratorState, MergingState, SessionsState, view_state
from streaming.runtime.stage_names import role_of, stage_name
from streaming.stages.stage_trouble import told_trouble
from streaming.viewchanges.requests import Requests
from streaming.viewmanagers.modes import MODES
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.decisions import bad_records, decisions
from streaming.warehouse.snapshot import open_group

PATIENCE = 30.0
"""Seconds after which a stage that has something to do and takes no step is told of."""
INTEGRATOR = "integrator"


@dataclass(frozen=True)
class Stalls:
    """What cannot go on in a pipeline.

    Attributes:
        service: in a few words, whether one runs.
        found: most general first.
        views: view -> the first of them that holds it up; only views that are held up, or suspended.
    """

    service: str
    found: tuple[Stall, ...]
    views: Mapping[str, Stall]

    def of_joining(self, view: str, group: str) -> Stall | None:
        """What holds up a view that is not there yet; None where nothing does."""
        own = ("pipeline", f"stage {INTEGRATOR}", f"stage merge:{group}", f"stage view:{view}")
        return next((one for one in self.found if one.what.partition("@")[0] in own), None)


def stalls(path: Path, now: float | None = None) -> Stalls:
    """What cannot go on in the pipeline whose warehouse is at `path`.

    Args:
        now: seconds since 1970.

    Raises:
        FrescoError: CATALOG_NONE, STATE_DAMAGED.
    """
    return Stalled(path).look(now)


class Stalled:
    """Looks at one warehouse again and again; its catalog is read when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[bytes, Catalog] | None = None

    def look(self, now: float | None = None) -> Stalls:
        """As `stalls`."""
        look = _Look(self._path, self._catalog(), time.time() if now is None else now)
        found, views = tuple(look.found()), dict[str, Stall]()
        for view in look.catalog.views:
            held = next((one for one in found if look.holds(one, view.name)), None)
            if held is not None:
                views[view.name] = held
        return Stalls(look.service, found, views)

    def _catalog(self) -> Catalog:
        file = self._path / CATALOG
        content = file.read_bytes() if file.exists() else b""
        if self._read is None or self._read[0] != content:
            self._read = content, known_catalog(self._path)
        return self._read[1]


class StallsShown:
    """The metric of what holds up each view, and why."""

    def __init__(self, warehouse: Path, gauge: Gauge) -> None:
        self._stalled, self._gauge = Stalled(warehouse), gauge
        self._shown = set[tuple[str, str]]()

    def __call__(self) -> None:
        """As things are now."""
        now = {(view, one.code) for view, one in self._stalled.look().views.items()}
        for labels in self._shown - now:
            self._gauge.remove(*labels)
        for labels in now:
            self._gauge.labels(*labels).set(1)
        self._shown = now


class _Look:
    """One look at a warehouse."""

    def __init__(self, path: Path, catalog: Catalog, now: float) -> None:
        self._path, self.catalog, self._now = path, catalog, now
        self._manifests: dict[str, Manifest | None] = {}
        self._drivers = holders(path / "_state" / "generations")
        beats = [heard(path, one.generation) for one in self._drivers]
        self._beats = [one for one in beats if one is not None]
        self._lives = [one for one in self._beats if one.lives(int(now * 1000))]
        self._isolated = {one.name for one in self.catalog.views if MODES[one.mode].sessions}
        self._above = {one.name: one.relations for one in self.catalog.views}

    @property
    def service(self) -> str:
        """Whether one runs."""
        if self._lives:
            return "runs"
        if not self._beats:
            return "has not been seen" if self._drivers else "has never run"
        last = max(self._beats, key=lambda one: one.at_ms)
        ago = self._now - last.at_ms / 1000
        if last.ended:
            return f"ended {ago:.0f} s ago: {last.ended}"
        return (
            f"was killed (process {last.process})" if last.killed else f"is silent for {ago:.0f} s"
        )

    def found(self) -> Iterator[Stall]:
        """Everything that holds something up, the most general first."""
        yield from self._unmanned()
        for beat in self._lives:
            yield from beat.stalls
        yield from self._without_transactions()
        yield from self._troubles()
        yield from self._suspended()
        yield from self._idle()
        for group in self.catalog.groups:
            if not self._published(group):
                yield Stall(
                    what=f"group {group}",
                    code="VIEW_NOT_PUBLISHED",
                    says="nothing has been published yet",
                    where=f"group {group}",
                    todo="see what else `fresco status` names; a first start loads the initial snapshots",
                )

    def holds(self, one: Stall, view: str) -> bool:
        """Whether it holds up the view."""
        kind, _, name = one.what.partition(" ")
        group, bases = self.catalog.group_of(view), self._bases(view)
        numbered = view not in self._isolated
        match kind:
            case "pipeline":
                return True
            case "source":
                return numbered and any(base.partition(".")[0] == name for base in bases)
            case "relation":
                return numbered and name in bases
            case "view":
                return name == view
            case "group":
                return name == group
        role = role_of(name)
        if role == INTEGRATOR:
            return numbered
        of, _, rest = role.partition(":")
        return rest == group if of in ("merge", "isolated") else rest in self.catalog.groups[group]

    def _bases(self, view: str) -> frozenset[str]:
        """The relations below a view."""
        found = frozenset[str]()
        for name in self._above[view]:
            found |= self._bases(name) if name in self._above else {name}
        return found

    # Who runs -------------------------------------------------------------------------------------

    def _unmanned(self) -> Iterator[Stall]:
        """Stages that nobody runs: all of them, or those of a driver that has ended."""
        if not self._lives:
            yield Stall(
                what="pipeline",
                code="SERVICE_NOT_RUNNING",
                says=f"no service keeps the views: it {self.service}",
                where=str(self._path),
                todo="start it: `fresco run`; it goes on where it was",
            )
            return
        played = [one.roles for one in self._lives]
        if () in played:
            return
        for role in self._roles():
            if not any(role in roles for roles in played):
                yield Stall(
                    what=f"stage {role}",
                    code="STAGE_NOT_RUNNING",
                    says=f"no driver runs {role}",
                    where=role,
                    todo=f"start one: `fresco run --role {role}`",
                )

    def _roles(self) -> Iterator[str]:
        numbered = [one.name for one in self.catalog.views if one.name not in self._isolated]
        if numbered:
            yield INTEGRATOR
        for group, views in self.catalog.groups.items():
            yield f"isolated:{group}" if set(views) <= self._isolated else f"merge:{group}"
        yield from (f"view:{view}" for view in numbered)

    # What is not well -----------------------------------------------------------------------------

    def _without_transactions(self) -> Iterator[Stall]:
        """Relations of which an event says no transaction, so that it has no place among the numbers."""
        decided, told = decisions(self._path), set[str]()
        for name, bad in sorted(bad_records(self._path).items()):
            relation = bad.get("relation")
            if bad["error"]["code"] != "SOURCE_TRANSACTION_MISSING" or name in decided:
                continue
            if relation is None or relation in told:
                continue
            told.add(relation)
            error = bad["error"]
            yield Stall(
                what=f"relation {relation}",
                code=error["code"],
                says=f"{error['what']} ({relation}), so it has no number",
                where=error["where"],
                todo=error["todo"],
            )

    def _troubles(self) -> Iterator[Stall]:
        """Stages that wait for a source that they ask."""
        for folder in sorted((self._path / "_state").glob("*/trouble.json")):
            told = told_trouble(folder.parent)
            if told is not None:
                stage = folder.parent.name.replace("-", ":", 1)
                yield _stall(f"stage {stage}", told)

    def _suspended(self) -> Iterator[Stall]:
        """View managers that have stopped at something; the merge may not have been told yet."""
        requests = Requests(self._path)
        coming = {one.view for one in requests.open() if one.joins}
        for view in self.catalog.views:
            joined = self.catalog.joined.get(view.name)
            stage = stage_name(view.name, joined.request if joined else 0)
            latest = self._latest(stage)
            error = view_state(latest.snapshot).suspended if latest is not None else None
            merge = self._latest(f"merge:{self.catalog.group_of(view.name)}")
            if merge is not None:
                error = error or MergingState.loaded(merge.snapshot).refusal(view.name, stage)
            if error and view.name not in coming:
                yield _stall(f"view {view.name}", error)
        for group in self.catalog.groups:
            latest = self._latest(f"isolated:{group}")
            absent = SessionsState.loaded(latest.snapshot).suspended if latest else None
            for name, note in (absent or {}).items():
                yield _stall(f"view {name}", note["error"])

    def _idle(self) -> Iterator[Stall]:
        """Stages that have taken no step although something has come for them."""
        numbered = self._latest(INTEGRATOR)
        if numbered is None:
            return
        last = IntegratorState.loaded(numbered.snapshot).number
        for view in self.catalog.views:
            joined = self.catalog.joined.get(view.name)
            stage = stage_name(view.name, joined.request if joined else 0)
            latest = self._latest(stage)
            state = None if latest is None else view_state(latest.snapshot)
            if state is not None and state.suspended:
                continue
            reached = -1 if state is None else state.number
            if view.name in self._isolated or reached >= last:
                continue
            waited = self._now - max(self._came(reached), self._written(stage))
            if waited >= PATIENCE:
                yield _no_step(stage, waited, f"numbers {reached + 1} to {last}")
        for group, views in self.catalog.groups.items():
            sent = [self._sent(view) for view in views if view not in self._isolated]
            stage = f"merge:{group}"
            waited = self._now - max(sent, default=self._now)
            if waited >= PATIENCE and max(sent) > self._written(stage):
                yield _no_step(stage, waited, "action lists")

    def _came(self, reached: int) -> float:
        """When the first number above was given, or later, seconds since 1970."""
        kept = ManifestStore(self._folder(INTEGRATOR)).kept()
        return min(at for one, at in kept if IntegratorState.loaded(one.snapshot).number > reached)

    def _sent(self, view: str) -> float:
        """When a view manager has sent its last message to the merge, or 0."""
        joined = self.catalog.joined.get(view)
        stage = stage_name(view, joined.request if joined else 0)
        latest = self._latest(stage)
        return self._written(stage) if latest is not None and latest.messages else 0.0

    def _published(self, group: str) -> bool:
        try:
            open_group(TableFolder.of(self._path), group)
        except FrescoError as error:
            if error.code != "READ_NO_EPOCH":
                raise
            return False
        return True

    # Manifests ------------------------------------------------------------------------------------

    def _folder(self, stage: str) -> Path:
        return self._path / "_state" / stage.replace(":", "-") / "manifests"

    def _latest(self, stage: str) -> Manifest | None:
        if stage not in self._manifests:
            folder = self._folder(stage)
            self._manifests[stage] = ManifestStore(folder).latest() if folder.is_dir() else None
        return self._manifests[stage]

    def _written(self, stage: str) -> float:
        """When its last manifest was, seconds since 1970; 0 where it has none."""
        return max(
            (one.stat().st_mtime for one in self._folder(stage).glob("[0-9]*.json")), default=0.0
        )


def _stall(what: str, error: Mapping[str, str]) -> Stall:
    return Stall(
        what=what,
        code=error["code"],
        says=error["what"],
        where=error.get("where", ""),
        todo=error.get("todo", ""),
    )


def _no_step(stage: str, seconds: float, lie: str) -> Stall:
    return Stall(
        what=f"stage {stage}",
        code="STAGE_NO_STEP",
        says=f"{stage} has taken no step for {seconds:.0f} s, and {lie} wait for it",
        where=stage,
        todo="see what else `fresco status` names, and the log; a large step may take this long",
    )


def reached(warehouse: Path) -> str:
    """What the views of a warehouse show, in words."""
    shown = []
    try:
        opened = Warehouse(warehouse)
        for group in opened.groups():
            last = opened.epochs(group)[-1]
            shown.append(f"{group} shows everything up to {last.frontier} (epoch {last.epoch})")
    except FrescoError as error:
        if not error.code.startswith("READ_NO_"):
            shown.append(str(error))
    return "; ".join(shown) or "nothing is published yet"
