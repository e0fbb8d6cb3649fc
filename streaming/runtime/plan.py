"""What a configuration amounts to, before anything runs: relations, views, merge groups, topics.

The plan is data; the service acts on it, `fresco plan` shows it, `doctor` checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.algebra.tree import Relation
from streaming.catalog import ViewSpec, load_views
from streaming.config import Config
from streaming.errors import FrescoError
from streaming.integrator.groups import merge_groups
from streaming.proof.databases import Database
from streaming.runtime.choosing import Choice, choose
from streaming.runtime.schemas import source_relations
from streaming.sources.schema import CapturedRelation, CapturedSource


@dataclass(frozen=True)
class Pipeline:
    """A checked pipeline.

    Attributes:
        groups: merge group -> its views' names, sorted.
        choices: view -> its manager.
    """

    name: str
    sources: tuple[CapturedSource, ...]
    captured: tuple[CapturedRelation, ...]
    views: tuple[ViewSpec, ...]
    groups: Mapping[str, tuple[str, ...]]
    choices: Mapping[str, Choice]

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
        return next(view for view in self.views if view.name == name)

    def group_of(self, view: str) -> str:
        """The merge group of a view."""
        return next(group for group, views in self.groups.items() if view in views)

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
            "groups": {group: list(views) for group, views in self.groups.items()},
            "views": [
                {
                    "name": view.name,
                    "level": view.level,
                    "mode": view.mode,
                    "manager": self.choices[view.name].mode,
                    "scenario": self.choices[view.name].scenario,
                    "gives": self.choices[view.name].gives.text,
                    "asks": list(self.choices[view.name].sources),
                    "group": self.group_of(view.name),
                    "relations": list(view.relations),
                    "key": None if view.key is None else [view.schema[at].name for at in view.key],
                    "columns": [[column.name, column.type] for column in view.schema],
                }
                for view in self.views
            ],
            "relations": [
                {
                    "name": one.relation.name,
                    "topic": one.topic,
                    "columns": [[column.name, column.type] for column in one.relation.schema],
                }
                for one in self.captured
            ],
            "topics": sorted(self.source_topics),
        }


def plan_pipeline(config: Config) -> Pipeline:
    """Read the relations' schemas, parse the views and form the merge groups.

    Raises:
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
            )
        )
        relations += source_relations(config, name)
    by_name = {one.relation.name: one.relation for one in relations}
    views = load_views(config.views, by_name)
    choices = {view.name: choose(config, view, by_name) for view in views}
    groups = merge_groups(
        {view.name: frozenset(view.relations) for view in views},
        config.grouping,
        config.transactions_span,
        config.pipeline,
    )
    return Pipeline(
        config.pipeline,
        tuple(sources),
        tuple(relations),
        tuple(views),
        {group.name: group.views for group in groups},
        choices,
    )


def databases(config: Config) -> dict[str, Database]:
    """How `verify --source` reads each source.

    Raises:
        FrescoError: VERIFY_SOURCE when a source has no connection.
    """
    found = {}
    for name, source in config.sources.items():
        connection = source.secret()
        if connection is None:
            raise FrescoError(
                "VERIFY_SOURCE",
                "the source has no connection to ask",
                where=f"sources.{name}",
                todo="give it a connection",
            )
        found[name] = Database(connection, source.tables)
    return found
