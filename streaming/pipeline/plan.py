"""What a configuration amounts to, before anything runs: relations, views, merge groups, topics.

The plan is data; the service acts on it, `fresco plan` shows it, `doctor` checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming.algebra.tree import Relation
from streaming.ask.source_kinds import kind_of_source
from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.captured.layout import Layout, grown
from streaming.captured.source_topics import check_names
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.broken_views import BrokenViews
from streaming.pipeline.catalog import (
    Catalog,
    ViewSpec,
    catalog_held,
    load_catalog,
    load_views,
    replace_catalog,
)
from streaming.pipeline.choosing import Choice
from streaming.pipeline.configured_groups import block_size, form_groups
from streaming.pipeline.refusals import choose_all
from streaming.pipeline.session_plan import (
    SessionPlan,
    is_isolated,
    plan_sessions,
    without_isolated,
)
from streaming.pipeline.source_schemas import source_relations
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.snapshots import IntegratorState


@dataclass(frozen=True)
class Pipeline:
    """A checked pipeline.

    Attributes:
        views, groups: those whose transactions the integrator numbers; of a merge group the views'
            names, sorted.
        choices: view -> its manager, isolated ones included.
        sessions: the isolated views, which have groups of their own.
        broken: views that no longer fit their relations, as they were stored.
        layouts: captured relation -> all columns that it has had.
    """

    name: str
    sources: tuple[CapturedSource, ...]
    captured: tuple[CapturedRelation, ...]
    views: tuple[ViewSpec, ...]
    groups: Mapping[str, tuple[str, ...]]
    choices: Mapping[str, Choice]
    sessions: SessionPlan = field(default_factory=SessionPlan)
    broken: Mapping[str, FrescoError] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def every_view(self) -> tuple[ViewSpec, ...]:
        """All views, isolated ones last."""
        return (*self.views, *self.sessions.views)

    @property
    def every_group(self) -> dict[str, tuple[str, ...]]:
        """All groups, those of isolated views last."""
        return {**self.groups, **self.sessions.groups}

    @property
    def every_relation(self) -> dict[str, Relation]:
        """The captured relations, and those of isolated views."""
        apart = (one.relation for found in self.sessions.relations.values() for one in found)
        return {**self.relations, **{relation.name: relation for relation in apart}}

    @property
    def generation(self) -> int:
        """Of the columns that its relations have had (`captured.layout`)."""
        return max((one.generation for one in self.layouts.values()), default=0)

    @property
    def relations(self) -> dict[str, Relation]:
        """Every captured relation by name."""
        return {one.relation.name: one.relation for one in self.captured}

    @property
    def source_topics(self) -> frozenset[str]:
        """All topics the integrator reads."""
        topics = {one.topic for one in self.captured}
        for source in self.sources:
            if source.transactions == "metadata":
                topics.add(source.transaction_topic)
            if source.snapshot:
                topics.add(source.notification_topic)
        return frozenset(topics)

    def view(self, name: str) -> ViewSpec:
        """A view by name."""
        return next(view for view in self.every_view if view.name == name)

    def group_of(self, view: str) -> str:
        """The merge group of a view."""
        return next(group for group, views in self.every_group.items() if view in views)

    @property
    def bases(self) -> dict[str, frozenset[str]]:
        """View -> the captured relations it uses, directly or through other views."""
        return {view: frozenset(choice.bases) for view, choice in self.choices.items()}

    def children(self, view: str) -> tuple[str, ...]:
        """The views that scan a view."""
        return tuple(one.name for one in self.views if view in one.relations)

    def block_size(self, group: str) -> int | None:
        """N of a group whose merge works by blocks of N numbers."""
        views = [self.view(name) for name in self.groups[group]]
        over = any(self.choices[view.name].parents for view in views)
        return None if over else block_size(views, self.children)

    def captured_of(self, source: str) -> tuple[CapturedRelation, ...]:
        """The captured relations of a source."""
        return tuple(one for one in self.captured if one.source == source)

    def asked(self) -> dict[str, frozenset[str]]:
        """Merge group -> the sources that its view managers ask; only groups that ask any."""
        found = {
            group: frozenset(name for view in views for name in self.choices[view].sources)
            for group, views in self.groups.items()
        }
        return {group: sources for group, sources in found.items() if sources}

    def as_dict(self) -> dict[str, Any]:
        """For `fresco plan --json`."""
        return {
            "pipeline": self.name,
            "groups": {group: list(views) for group, views in self.every_group.items()},
            "views": [
                {
                    "name": view.name,
                    "level": view.level,
                    "mode": view.mode,
                    "manager": self.choices[view.name].mode,
                    "scenario": self.choices[view.name].scenario,
                    "gives": self.choices[view.name].gives.text,
                    "asks": list(self.choices[view.name].sources),
                    "parents": list(self.choices[view.name].parents),
                    "group": self.group_of(view.name),
                    "relations": list(view.relations),
                    "key": None if view.key is None else [view.schema[at].name for at in view.key],
                    "columns": [[column.name, column.type] for column in view.schema],
                }
                for view in self.every_view
            ],
            "relations": [
                {
                    "name": one.relation.name,
                    "topic": one.topic,
                    "columns": [[c.name, c.type] for c in one.relation.schema if not c.hidden],
                    "left_out": [list(column) for column in one.refused],
                }
                for one in self.captured
            ],
            "topics": sorted(self.source_topics),
        }


def plan_pipeline(config: Config) -> Pipeline:
    """Read the relations' schemas, parse the views and form the merge groups.

    Raises:
        Refused: views that cannot be maintained as their files ask, all of them.
        FrescoError: a source that cannot be read, a relation without full row images, or whatever
            is wrong with a view file.
    """
    sources, relations = [], []
    for name, source in config.sources.items():
        sources.append(
            CapturedSource(
                name=name,
                prefix=config.prefix(name),
                snapshot=source.snapshot,
                transactions=source.transactions,
                log=kind_of_source(name, source).log,
                notifications=config.notifications(name),
            )
        )
        relations += source_relations(config, name)
    captured = {name for name, source in config.sources.items() if source.capture != "none"}
    check_names(
        [one for one in sources if one.name in captured],
        [one for one in relations if one.source in captured],
    )
    stored = stored_catalog(config.warehouse)
    known = stored.layouts if stored is not None else {}
    layouts = layouts_now(config, known, [r for r in relations if r.source in captured])
    relations = [
        layouts[name].captured(one) if (name := one.relation.name) in layouts else one
        for one in relations
    ]
    by_name = {one.relation.name: one.relation for one in relations}
    broken = BrokenViews(stored, layouts)
    views = broken.checked(load_views(config.views, by_name, broken.instead, broken.as_of))
    choices = choose_all(config, views, by_name)
    isolated = [view for view in views if is_isolated(view)]
    numbered = [view for view in views if not is_isolated(view)]
    groups = form_groups(config, numbered, choices, by_name.keys())
    return Pipeline(
        config.pipeline,
        tuple(one for one in sources if one.name in captured),
        tuple(one for one in relations if one.source in captured),
        tuple(numbered),
        {group.name: group.views for group in groups},
        choices,
        plan_sessions(config, isolated, relations),
        broken.errors,
        layouts,
    )


def replanned(
    config: Config,
    pipeline: Pipeline,
    relations: Sequence[CapturedRelation],
    numbers: bool = True,
) -> Pipeline:
    """A running pipeline over its relations as their databases have them now: stored, and planned anew.

    Its views are those of the catalog; nobody reads view files while it runs.

    Args:
        numbers: whether this driver numbers the transactions, and stores what it decodes them by.
    """
    stored = load_catalog(config.warehouse)
    if numbers:
        keep_layouts(config.warehouse, layouts_now(config, stored.layouts, relations))
        stored = load_catalog(config.warehouse)
    layouts = {name: stored.layouts[name] for name in pipeline.layouts}
    now = {one.relation.name: one for one in relations}
    captured = [
        layouts[one.relation.name].captured(now.get(one.relation.name, one))
        for one in pipeline.captured
    ]
    broken = BrokenViews(stored, layouts)
    views = broken.checked(without_isolated(stored).views)
    return replace(
        pipeline,
        captured=tuple(captured),
        views=tuple(views),
        broken=broken.errors,
        layouts=layouts,
    )


def keep_layouts(warehouse: Path, layouts: Mapping[str, Layout]) -> None:
    """Store what relations have become; the caller holds the pipeline and numbers its transactions."""
    with catalog_held(warehouse):
        stored = load_catalog(warehouse)
        known = {**stored.layouts, **layouts}
        if known != dict(stored.layouts):
            relations = {name: one.newest for name, one in known.items()}
            replace_catalog(warehouse, replace(stored, layouts=known, relations=relations))


def stored_catalog(warehouse: Path) -> Catalog | None:
    """The catalog, None before the first start."""
    try:
        return load_catalog(warehouse)
    except FileNotFoundError:
        return None


def layouts_now(
    config: Config, known: Mapping[str, Layout], relations: Sequence[CapturedRelation]
) -> dict[str, Layout]:
    """The layouts of captured relations, grown by what their databases have now.

    Args:
        known: those that are stored.
    """
    whole = [name for name, source in config.sources.items() if source.snapshots is not None]
    names = [one.relation.name for one in relations]
    mine = {name: known[name] for name in names if name in known}
    found = grown(mine, relations, 0, whole)
    if any(found[name] != one for name, one in mine.items()):
        folder = config.warehouse / "_state" / "integrator" / "manifests"
        last = ManifestStore(folder).latest() if folder.exists() else None
        number = IntegratorState.loaded(last.snapshot).number + 1 if last is not None else 0
        found = grown(mine, relations, number, whole)
    return found
