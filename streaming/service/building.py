"""Builds a driver's stages of a planned pipeline: the integrator, one per view, one per group.

A role is a stage's name; a driver without roles runs all stages (DESIGN 4).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from functools import partial

from streaming.algebra.expanded import expanded
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.intake import Intake
from streaming.cdc.record_shapes import FirstRecords
from streaming.configuration.pipeline_config import Config
from streaming.engines.evaluator import Limits
from streaming.errors import FrescoError
from streaming.isolated.session_start import session_roles
from streaming.merge.algorithms import Manager, merge_of
from streaming.merge.batching import GREEDY, NONE, Batching, bound
from streaming.metrics import Metrics
from streaming.pipeline.plan import Pipeline
from streaming.runtime.kafka import Topics
from streaming.runtime.stage_progress import Elsewhere
from streaming.service.members import Member, Members
from streaming.service.old_date_search import looking
from streaming.service.stage_set import ManagerStage, Stages
from streaming.service.surroundings import unseen
from streaming.spark.spark_session import Session
from streaming.stages.asking_stage import Access, AskingStage
from streaming.stages.block_stage import BlockStage
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.evaluators import Evaluators
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.joining_stage import JoiningStage
from streaming.stages.merge_stage import MergeStage
from streaming.stages.overview_stage import OverviewStage
from streaming.stages.returning_stage import ReturningStage
from streaming.stages.span_watch import SpanWatch
from streaming.stages.view_stage import ViewStage
from streaming.viewchanges.announcements import refused_routing
from streaming.viewchanges.regrouping import Regrouping, table_of
from streaming.viewmanagers.base import ManagedView
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.initial import contents_of
from streaming.warehouse.retention import UpdatesRetention
from streaming.warehouse.table_options import WriterOptions
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep


def roles_of(pipeline: Pipeline) -> tuple[str, ...]:
    """Every role of a pipeline: its stages' names."""
    views = (f"view:{view.name}" for view in pipeline.views)
    merges = (f"merge:{group}" for group in pipeline.groups)
    numbered = (IntegratorStage.name, *views, *merges) if pipeline.views else ()
    return (*numbered, *session_roles(pipeline.sessions))


def check_roles(pipeline: Pipeline, roles: Collection[str]) -> None:
    """Every role is one of the pipeline's.

    Raises:
        FrescoError: SERVICE_ROLE.
    """
    known = roles_of(pipeline)
    for role in roles:
        if role not in known:
            near = difflib.get_close_matches(role, known, n=1)
            raise FrescoError(
                "SERVICE_ROLE",
                f"the pipeline has no stage '{role}'",
                where="--role",
                todo=f"did you mean '{near[0]}'?" if near else f"it has {', '.join(known)}",
            )


def build_stages(
    config: Config,
    pipeline: Pipeline,
    topics: Topics,
    metrics: Metrics,
    spark: Session,
    members: Members,
    roles: Collection[str] = (),
) -> Stages:
    """Make the stages of some roles, () for all, their tables included; nothing runs yet."""
    played = frozenset(roles or roles_of(pipeline))
    closers: list[Callable[[], object]] = []
    riding = topics.actions if config.rel == "with-actions" else None
    if riding is not None:
        members.refuse_open(refused_routing())
    integrator = None
    if IntegratorStage.name in played:
        integrator, close = _integrator_stage(config, pipeline, topics, metrics, members)
        closers.append(close)

    def make(member: Member) -> ManagerStage:
        plan = members.plan()
        if member.view in plan.broken and members.is_to_join(member):
            raise plan.broken[member.view]
        return _view_stage(config, plan, member, topics, metrics, spark)

    views = []
    for member in members.wanted().values():
        if f"view:{member.view}" in played:
            with members.refusing(member):
                views.append(make(member))
    merges = {}
    for group in pipeline.groups:
        if f"merge:{group}" in played:
            merges[group] = _merge_stage(config, pipeline, group, metrics, spark, members)
            closers.append(merges[group].writer.close)
    elsewhere = Elsewhere(config.warehouse)
    return Stages(
        integrator,
        views,
        merges,
        closers,
        pipeline.groups,
        pipeline.children,
        elsewhere,
        members,
        make,
        riding,
    )


def _integrator_stage(
    config: Config, pipeline: Pipeline, topics: Topics, metrics: Metrics, members: Members
) -> tuple[IntegratorStage, Callable[[], object]]:
    """The integrator, and what closes it."""
    warehouse = config.warehouse
    updates = UpdatesWriter(str(warehouse), config.pipeline, list(pipeline.relations.values()))
    bases = pipeline.bases
    relations_of = {
        group: frozenset[str]().union(*(bases[view] for view in views))
        for group, views in pipeline.groups.items()
    }
    watched = config.grouping == "disjoint"
    spans = SpanWatch(config.on_span == "halt", metrics.spanning.inc) if watched else None

    def make_intake(files: HeldFiles) -> Intake:
        return Intake(
            pipeline.captured,
            pipeline.views,
            pipeline.groups,
            sources=pipeline.sources,
            files=files,
            timeout_ms=config.limits.global_timeout_ms,
            max_unit=config.limits.max_unit,
            apart=config.globals == "apart",
            contents=partial(contents_of, str(warehouse)),
            look=looking(config),
        )

    hours = config.retention.updates_hours
    retention = UpdatesRetention(updates.table, hours) if hours is not None else None
    rides = config.rel == "with-actions"
    stage = IntegratorStage(
        make_intake,
        updates,
        topics,
        relations_of,
        metrics,
        warehouse,
        retention,
        pipeline.asked(),
        spans,
        rides=rides,
        changes=None if rides else members.changes(),
        first=FirstRecords(unseen(config, pipeline)),
    )
    return stage, updates.close


def _view_stage(
    config: Config,
    pipeline: Pipeline,
    member: Member,
    topics: Topics,
    metrics: Metrics,
    spark: Session,
) -> ManagerStage:
    """The stage of a view's manager."""
    view, warehouse, group = pipeline.view(member.view), config.warehouse, member.group
    spec, choice = ManagedView(view.name, group, view.tree), pipeline.choices[view.name]
    if (error := pipeline.broken.get(view.name)) is not None:
        return BrokenStage(spec, member.stage, error, warehouse, topics.actions(group), metrics)
    if choice.asks:
        access = _access(config, pipeline)
        sources = {name: access[name] for name in choice.sources}
        given = choice, sources, warehouse, topics.actions(group), metrics
        if member.request is not None:
            return ReturningStage(spec, member.request, *given)
        return AskingStage(spec, *given)
    if member.request is not None:  # by itself, whatever its parents do
        trees = {one.name: one.tree for one in pipeline.views}
        spec = ManagedView(view.name, group, expanded(view.tree, trees))
    evaluators = Evaluators(
        spec.tree,
        spark,
        warehouse / "_state" / member.stage.replace(":", "-") / "spark",
        Limits(config.limits.driver_rows),
    )
    folds, actions = config.limits.checkpoint_batches, topics.actions(group)
    if member.request is not None:
        rest = folds, pipeline.relations, _access(config, pipeline), pipeline.layouts
        return JoiningStage(spec, member.request, evaluators, warehouse, actions, metrics, *rest)
    if choice.parents:
        groups = {name: pipeline.group_of(name) for name in choice.parents}
        return OverviewStage(spec, groups, evaluators, warehouse, actions, metrics, folds)
    if size := pipeline.block_size(group):
        return BlockStage(spec, size, evaluators, warehouse, actions, metrics, folds)
    return ViewStage(spec, evaluators, warehouse, actions, metrics, folds)


def _access(config: Config, pipeline: Pipeline) -> dict[str, Access]:
    """How the sources are asked that have a connection."""
    found = {}
    for name, source in config.sources.items():
        if (connection := source.secret()) is not None:
            found[name] = Access(
                connection, pipeline.captured_of(name), source.query_timeout, source.patience
            )
    return found


def _merge_stage(
    config: Config,
    pipeline: Pipeline,
    group: str,
    metrics: Metrics,
    spark: Session,
    members: Members,
) -> MergeStage:
    """The merge of a group with its tables' writer."""
    names, joined = pipeline.groups[group], members.catalog().joined
    tables = [table_of(view, joined.get(view.name)) for view in map(pipeline.view, names)]
    writer = GroupWriter(
        str(config.warehouse),
        config.pipeline,
        group,
        tables,
        WriterOptions(spark_bytes=config.limits.rewrite_bytes),
    )
    size = pipeline.block_size(group)
    managers = {
        name: Manager("complete-N", size) if size else pipeline.choices[name].manager
        for name in names
    }
    batching = _batching(config)
    return MergeStage(
        lambda: merge_of(group, managers, batching, config.order, config.submission),
        writer,
        Upkeep(writer),
        metrics,
        spark,
        config.warehouse,
        routed=config.rel == "with-actions",
        regrouping=Regrouping(group, names, writer, config.warehouse),
    )


def _batching(config: Config) -> Batching:
    match config.batching:
        case "greedy":
            return GREEDY
        case "none":
            return NONE
        case given:
            return bound(given.rows, given.age_ms)
