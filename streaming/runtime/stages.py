"""Builds the stages of a planned pipeline in one driver: the integrator, one per view, one per group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from streaming.algebra.evaluator import Limits
from streaming.catalog import ViewSpec as Specified
from streaming.config import Config
from streaming.merge.algorithms import Manager, merge_of
from streaming.merge.batching import GREEDY, NONE
from streaming.metrics import Metrics
from streaming.runtime.asking import AskingStage
from streaming.runtime.evaluators import Evaluators
from streaming.runtime.integrating import IntegratorStage
from streaming.runtime.kafka import Topics
from streaming.runtime.maintaining import ViewStage
from streaming.runtime.merging import MergeStage
from streaming.runtime.plan import Pipeline
from streaming.sources.held import HeldFiles
from streaming.sources.intake import Intake
from streaming.viewmanagers.base import ViewSpec
from streaming.warehouse.options import WriterOptions
from streaming.warehouse.retention import UpdatesRetention
from streaming.warehouse.table import ViewTable
from streaming.warehouse.updates import UpdatesWriter
from streaming.warehouse.upkeep import Upkeep
from streaming.warehouse.writer import GroupWriter


@dataclass
class Stages:
    """All stages of a pipeline."""

    integrator: IntegratorStage
    views: list[ViewStage | AskingStage]
    merges: dict[str, MergeStage]
    closers: list[Callable[[], object]]

    def collect(self) -> None:
        """Remove staged files that every consumer has passed."""
        handled = [view.handled for view in self.views if view.suspended is None]
        self.integrator.collect(min(handled, default=-1), self._needed())
        for view in self.views:
            view.collect(self.merges[view.spec.group].published)

    def _needed(self) -> int:
        """The first number that a view manager would replay or that a group has not published."""
        replayed = [view.needed for view in self.views]
        unpublished = [merge.published + 1 for merge in self.merges.values()]
        return min([*replayed, *unpublished], default=0)

    def close(self) -> None:
        """Close writers."""
        for close in self.closers:
            close()


def build_stages(
    config: Config, pipeline: Pipeline, topics: Topics, metrics: Metrics, spark: SparkSession
) -> Stages:
    """Make every stage, their tables included; nothing runs yet."""
    warehouse = config.warehouse
    updates = UpdatesWriter(str(warehouse), config.pipeline, list(pipeline.relations.values()))
    relations_of = {
        group: frozenset(name for view in views for name in pipeline.view(view).relations)
        for group, views in pipeline.groups.items()
    }

    def make_intake(files: HeldFiles) -> Intake:
        return Intake(
            pipeline.captured,
            pipeline.views,
            pipeline.groups,
            sources=pipeline.sources,
            files=files,
            timeout_ms=config.limits.global_timeout_ms,
            max_unit=config.limits.max_unit,
        )

    hours = config.retention.updates_hours
    retention = UpdatesRetention(updates.table, hours) if hours is not None else None
    integrator = IntegratorStage(
        make_intake, updates, topics, relations_of, metrics, warehouse, retention, pipeline.asked()
    )

    views = [_view_stage(config, pipeline, view, topics, metrics, spark) for view in pipeline.views]
    merges = {}
    closers: list[Callable[[], object]] = [updates.close]
    closers += [view.close for view in views if isinstance(view, AskingStage)]
    for group, names in pipeline.groups.items():
        tables = [
            ViewTable(view.name, view.schema, view.key or ()) for view in map(pipeline.view, names)
        ]
        writer = GroupWriter(
            str(warehouse),
            config.pipeline,
            group,
            tables,
            WriterOptions(spark_bytes=config.limits.rewrite_bytes),
        )
        closers.append(writer.close)
        managers = {name: pipeline.choices[name].manager for name in names}
        merges[group] = _merge_stage(config, group, managers, writer, metrics, spark)
    return Stages(integrator, views, merges, closers)


def _view_stage(
    config: Config,
    pipeline: Pipeline,
    view: Specified,
    topics: Topics,
    metrics: Metrics,
    spark: SparkSession,
) -> ViewStage | AskingStage:
    """The stage of a view's manager."""
    warehouse, group = config.warehouse, pipeline.group_of(view.name)
    spec, choice = ViewSpec(view.name, group, view.tree), pipeline.choices[view.name]
    if choice.asks:
        connections = {
            name: (config.sources[name].secret() or "", pipeline.captured_of(name))
            for name in choice.sources
        }
        return AskingStage(spec, choice, connections, warehouse, topics.actions(group), metrics)
    return ViewStage(
        spec,
        Evaluators(
            view.tree,
            spark,
            warehouse / "_state" / f"view-{view.name}" / "spark",
            Limits(config.limits.driver_rows),
        ),
        warehouse,
        topics.actions(group),
        metrics,
        config.limits.checkpoint_batches,
    )


def _merge_stage(
    config: Config,
    group: str,
    managers: Mapping[str, Manager],
    writer: GroupWriter,
    metrics: Metrics,
    spark: SparkSession,
) -> MergeStage:
    batching = NONE if config.batching == "none" else GREEDY
    return MergeStage(
        lambda: merge_of(group, managers, batching),
        writer,
        Upkeep(writer),
        metrics,
        spark,
        config.warehouse,
    )
