"""Starts the groups of isolated views of a driver: their tables, their stages and their loops."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.isolated.delta_tables import home_of
from streaming.isolated.isolated_stage import IsolatedStage
from streaming.isolated.session_group import SessionGroup
from streaming.isolated.session_loop import SessionLoop
from streaming.metrics import Metrics
from streaming.pipeline.plan import Pipeline
from streaming.pipeline.session_plan import SessionPlan
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stepper
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import WriterOptions
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep


def session_roles(plan: SessionPlan) -> tuple[str, ...]:
    """The names of the groups' stages."""
    return tuple(f"isolated:{group}" for group in plan.groups)


def only_sessions(pipeline: Pipeline, roles: Collection[str]) -> bool:
    """Whether a driver of these roles, () for all, has nothing to do with Kafka and Spark."""
    if not roles:
        return not pipeline.views
    return set(roles) <= set(session_roles(pipeline.sessions))


def start_sessions(
    config: Config,
    pipeline: Pipeline,
    fence: Fence,
    metrics: Metrics,
    failed: Callable[[FrescoError], None],
    roles: Collection[str] = (),
) -> list[SessionLoop]:
    """Start the groups of some roles, () for all; each runs in a thread of its own.

    No loop begins before every group can: one that cannot leaves nothing behind that runs.

    Args:
        failed: told the error when a group cannot go on.

    Raises:
        FrescoError: a group cannot start.
    """
    if not pipeline.views:
        # No integrator makes it; readers look into it all the same.
        UpdatesWriter(str(config.warehouse), config.pipeline, []).close()
    with ExitStack() as undo:
        ready = []
        for group in pipeline.sessions.groups:
            if roles and f"isolated:{group}" not in roles:
                continue
            stage = _stage(config, pipeline, group, metrics, undo)
            store = ManifestStore(_state(config, stage) / "manifests")
            ready.append((stage, Stepper(stage, store, fence, _nothing_to_send)))
        loops = []
        for stage, stepper in ready:
            connections = stage.group.connections.values()
            loop = SessionLoop(
                stage,
                stepper,
                [(dsn, home_of(config.pipeline)) for dsn, _ in connections],
                config.limits.session_ms / 1000,
                failed,
                metrics,
                _state(config, stage),
            )
            undo.callback(loop.stop)
            loops.append(loop)
        undo.pop_all()
    return loops


def _state(config: Config, stage: IsolatedStage) -> Path:
    return config.warehouse / "_state" / stage.name.replace(":", "-")


def _stage(
    config: Config, pipeline: Pipeline, group: str, metrics: Metrics, undo: ExitStack
) -> IsolatedStage:
    """A group's stage; `undo` takes what closes it."""
    plan = pipeline.sessions
    views = plan.views_of(group)
    tables = [ViewTable(view.name, view.schema, view.key or ()) for view in views]
    options = WriterOptions(spark_bytes=config.limits.rewrite_bytes)
    writer = GroupWriter(str(config.warehouse), config.pipeline, group, tables, options)
    undo.callback(writer.close)
    connections = {
        source: (config.sources[source].secret() or "", relations)
        for source, relations in plan.relations_of(group).items()
    }
    trees = {view.name: view.tree for view in views}
    broken = {name: error for name, error in pipeline.broken.items() if name in trees}
    session_group = SessionGroup(config.pipeline, group, trees, tables, connections, broken)
    stage = IsolatedStage(session_group, writer, Upkeep(writer), metrics, config.warehouse)
    undo.callback(stage.close)
    return stage


def _nothing_to_send(producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
    """Sessions send no messages."""
