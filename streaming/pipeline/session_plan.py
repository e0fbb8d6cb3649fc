"""The part of a plan that needs no CDC: groups of `isolated` views (moro-sartori; DESIGN 5).

Sessions have numbers of their own, so the views they keep form groups of their own, beside those whose
transactions the integrator numbers: one for all of them, or with `grouping: disjoint` one for each set of
views that share relations. Their relations need no topic, no connector and no replica identity; where a
source is captured all the same, other views may use it too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streaming.algebra.psj import psj_of, source_of
from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import CapturedRelation
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import Catalog
from streaming.pipeline.merge_groups import Grouping, merge_groups
from streaming.pipeline.view_specs import ViewSpec
from streaming.viewmanagers.modes import MODES


@dataclass(frozen=True)
class SessionPlan:
    """The isolated views of a pipeline.

    Attributes:
        views: in the order of the files.
        groups: group -> its views' names, sorted.
        relations: those that the views use, by source.
    """

    views: tuple[ViewSpec, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: Mapping[str, tuple[CapturedRelation, ...]] = field(default_factory=dict)

    def views_of(self, group: str) -> tuple[ViewSpec, ...]:
        """The views of a group."""
        return tuple(view for view in self.views if view.name in self.groups[group])

    def relations_of(self, group: str) -> dict[str, tuple[CapturedRelation, ...]]:
        """By source, the relations that the views of a group use."""
        used = {name for view in self.views_of(group) for name in view.relations}
        found = {
            source: tuple(one for one in relations if one.relation.name in used)
            for source, relations in self.relations.items()
        }
        return {source: relations for source, relations in found.items() if relations}


def plan_sessions(
    config: Config, views: Sequence[ViewSpec], relations: Iterable[CapturedRelation]
) -> SessionPlan:
    """The plan of these views, all of them isolated.

    Args:
        relations: all that the configuration names.
    """
    if not views:
        return SessionPlan()
    bases = {view.name: frozenset(view.relations) for view in views}
    grouping: Grouping = "single" if config.grouping == "single" else "disjoint"
    found = merge_groups(bases, grouping, name=group_name(config))
    used = frozenset[str]().union(*bases.values())
    by_source: dict[str, tuple[CapturedRelation, ...]] = {}
    for one in relations:
        if one.relation.name in used:
            by_source[one.source] = (*by_source.get(one.source, ()), one)
    return SessionPlan(tuple(views), {one.name: one.views for one in found}, by_source)


def group_name(config: Config) -> str:
    """Of the one group, and how the others begin."""
    return f"{config.pipeline}_isolated"


def is_isolated(view: ViewSpec) -> bool:
    """Whether a view is kept by sessions."""
    return view.mode in MODES and MODES[view.mode].sessions


def without_isolated(catalog: Catalog) -> Catalog:
    """The catalog of the views whose transactions the integrator numbers."""
    kept = tuple(view for view in catalog.views if not is_isolated(view))
    names = {view.name for view in kept}
    groups = {group: views for group, views in catalog.groups.items() if names.intersection(views)}
    return replace(catalog, views=kept, groups=groups)


def refuse_isolated(catalog: Catalog, group: str) -> None:
    """Isolated views neither leave their group on request nor are brought back by one.

    Raises:
        FrescoError: VIEW_CHANGE_ISOLATED.
    """
    views = [view.name for view in catalog.views if view.name in catalog.groups.get(group, ())]
    if any(is_isolated(view) for view in catalog.views if view.name in views):
        raise FrescoError(
            "VIEW_CHANGE_ISOLATED",
            f"group {group} is kept by sessions, whose views are those of the first start",
            where=", ".join(views),
            todo="nothing for one that is suspended: it comes back when its cause is gone; for other"
            " views begin a new pipeline",
        )


def session_sources(
    config: Config, view: ViewSpec, relations: Mapping[str, Relation]
) -> tuple[str, ...]:
    """The sources of an isolated view, all of which can have delta tables.

    Raises:
        FrescoError: VIEW_SOURCE_UNASKABLE, VIEW_NOT_PSJ.
    """
    psj_of(view.tree)
    names = sorted({source_of(name) for name in view.relations if name in relations})
    for name in names:
        source = config.sources[name]
        if source.database != "postgres":
            raise FrescoError(
                "VIEW_SOURCE_UNASKABLE",
                f"mode isolated needs delta tables at source {name}, which are made in PostgreSQL only",
                todo="use USING replica or USING compensating for this view",
            )
        if source.secret() is None:
            raise FrescoError(
                "VIEW_SOURCE_UNASKABLE",
                f"mode isolated asks source {name}, which has no connection",
                todo=f"give sources.{name} a connection, or use USING replica",
            )
    return tuple(names)


def refuse_uncaptured(
    config: Config, mode: str, bases: Collection[str], isolated: Sequence[str]
) -> None:
    """Refuse a view that needs numbers of what has none.

    Args:
        isolated: the views among its parents that sessions keep.

    Raises:
        FrescoError: VIEW_SOURCE_UNCAPTURED, VIEW_PARENT.
    """
    if MODES[mode].sessions:
        return
    if isolated:
        raise FrescoError(
            "VIEW_PARENT",
            f"{', '.join(isolated)} is kept by sessions, whose numbers no other view shares",
            todo="define the view over the relations, or give its parent another mode",
        )
    for name in sorted({source_of(base) for base in bases}):
        if config.sources[name].capture == "none":
            raise FrescoError(
                "VIEW_SOURCE_UNCAPTURED",
                f"mode {mode} needs the log of source {name}, which is not captured",
                todo=f"use USING isolated, or capture the source and set sources.{name}.capture:"
                " debezium",
            )
