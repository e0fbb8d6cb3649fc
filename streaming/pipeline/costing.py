"""What each choice of merge groups costs, for `fresco plan` (ryco-pyco 5; DESIGN 5, Groups).

Messages and delays follow from how often each relation changes and how long a hop and a view's delta
take. All of it is measured where the pipeline has run: updates by the numbers that changed a relation
lately, per second of their commits; a view manager's work by what its last steps took; a hop by the time
from the integrator's manifest to the beginning of the step that took its numbers. What a view did before
it had joined, or while it is suspended, says nothing of either. The least of the views'
mean hops counts as transmission, what another view waits beyond it as waiting. Otherwise the rates are
those that the configuration declares, one update per second where it says nothing, and a hop is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pyarrow.compute as pc

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import load_catalog
from streaming.pipeline.configured_groups import form_groups
from streaming.pipeline.costs import Costs, Rates, pyco_costs, ryco
from streaming.pipeline.plan import Pipeline
from streaming.pipeline.pyco import ViewGraph, view_graph
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.runtime.snapshots import view_state
from streaming.runtime.stage_names import INTEGRATOR, stage_name
from streaming.scalars.expression import NUMBER
from streaming.warehouse.updates import UpdatesReader

LATELY = 10_000
"""Numbers that are looked at."""
ASSUMED_HOP = 0.25
"""Seconds of a hop where none has been measured."""
GROUPINGS: tuple[Literal["single", "disjoint", "atomic"], ...] = ("single", "disjoint", "atomic")


@dataclass(frozen=True)
class GroupingCost:
    """One choice.

    Attributes:
        groups: each one's views.
        ordered: M_r: numbers that reach the groups' registries, per second.
        told: M_v: numbers that reach view managers, per second.
        delay: view -> seconds from an update at a relation until the view shows it.
    """

    grouping: str
    groups: tuple[tuple[str, ...], ...]
    ordered: float
    told: float
    delay: Mapping[str, float]


@dataclass(frozen=True)
class PlanCosts:
    """All choices, and what they were worked out from.

    Attributes:
        measured: whether the pipeline's own steps have said it.
    """

    measured: bool
    rates: Rates
    choices: tuple[GroupingCost, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_costs(config: Config, pipeline: Pipeline) -> PlanCosts:
    """The costs of every choice of groups."""
    graph = view_graph({view.name: view.relations for view in pipeline.views})
    measured = measured_rates(config.warehouse, pipeline)
    rates = measured or declared_rates(config, graph)
    choices = []
    for grouping in GROUPINGS:
        found = form_groups(
            config, pipeline.views, pipeline.choices, pipeline.relations.keys(), grouping
        )
        groups = tuple(group.views for group in found)
        costs = _costs(graph, groups, rates)
        choices.append(GroupingCost(grouping, groups, costs.registry, costs.views, costs.delay))
    return PlanCosts(measured is not None, rates, tuple(choices))


def _costs(graph: ViewGraph, groups: tuple[tuple[str, ...], ...], rates: Rates) -> Costs:
    return (
        ryco(graph, rates) if len(groups) == 1 else pyco_costs(graph, map(frozenset, groups), rates)
    )


def declared_rates(config: Config, graph: ViewGraph) -> Rates:
    """What the configuration says."""
    return Rates({base: config.rates.get(base, 1.0) for base in graph.bases}, ASSUMED_HOP)


def measured_rates(warehouse: Path, pipeline: Pipeline) -> Rates | None:
    """What the pipeline's last steps say; None where there are none yet."""
    updates = _updates_per_second(warehouse, pipeline)
    if updates is None:
        return None
    hops, work = _steps(warehouse, pipeline)
    transmission = max(min(hops.values(), default=ASSUMED_HOP), 0.0)
    wait = {view: max(hop - transmission, 0.0) for view, hop in hops.items()}
    return Rates(updates, transmission, work, wait)


def _updates_per_second(warehouse: Path, pipeline: Pipeline) -> dict[str, float] | None:
    try:
        reader = UpdatesReader(str(warehouse))
    except FrescoError:
        return None
    newest = reader.last
    after = max(newest - LATELY, 0)
    times = pc.min_max(reader.transactions(after, newest)["committed_ms"]).as_py()
    if times["min"] is None or times["max"] <= times["min"]:
        return None
    seconds = (times["max"] - times["min"]) / 1000
    used = {base for choice in pipeline.choices.values() for base in choice.bases}
    return {
        name: pc.count_distinct(
            reader.updates(name, relation.schema, after, newest, columns=())[NUMBER]
        ).as_py()
        / seconds
        for name, relation in sorted(pipeline.relations.items())
        if name in used
    }


def _steps(warehouse: Path, pipeline: Pipeline) -> tuple[dict[str, float], dict[str, float]]:
    """View -> mean seconds of a hop, and view -> mean seconds of a step, from the manifests kept."""
    published = {
        int(manifest.writes["last"]): written
        for manifest, written in _manifests(warehouse, INTEGRATOR)
        if manifest.writes
    }
    requests = _requests(warehouse)
    hops, work = {}, {}
    for view in pipeline.views:
        stage = stage_name(view.name, requests.get(view.name, 0))
        steps = list(_maintaining(_manifests(warehouse, stage)))
        if took := [manifest.seconds for manifest, _, _ in steps if manifest.seconds]:
            work[view.name] = fmean(took)
        waited = [
            written - manifest.seconds - published[number]
            for manifest, written, moved in steps
            if moved and (number := _number(manifest)) in published
        ]
        if waited:
            hops[view.name] = max(fmean(waited), 0.0)
    return hops, work


def _requests(warehouse: Path) -> dict[str, int]:
    """View -> the request that brought it, of those that came to the running pipeline."""
    try:
        catalog = load_catalog(warehouse)
    except FileNotFoundError:
        return {}
    return {view: joined.request for view, joined in catalog.joined.items()}


def _maintaining(
    steps: Iterable[tuple[Manifest, float]],
) -> Iterator[tuple[Manifest, float, bool]]:
    """The steps that maintain a view, when each was written, and whether it was the first of its number.

    To load a view, to catch up and to join are no such steps, nor are those of a suspended one.
    """
    joins, before = False, -1
    for manifest, written in steps:
        joined, number = not joins, _number(manifest)
        state = view_state(manifest.snapshot)
        joins = state.waits
        known = before >= 0 or manifest.step == 1
        if joined and not joins and state.suspended is None:
            yield manifest, written, known and number > before
        before = number


def _number(manifest: Manifest) -> int:
    return view_state(manifest.snapshot).number


def _manifests(warehouse: Path, stage: str) -> list[tuple[Manifest, float]]:
    """A stage's manifests and when each was written, seconds since 1970."""
    folder = warehouse / "_state" / stage.replace(":", "-") / "manifests"
    return ManifestStore(folder).kept() if folder.is_dir() else []
