"""A pipeline whose views come and go, stepped by hand: the service's own wiring, without Kafka and Spark.

Requests, manifests, staged files, tables and catalog are real, and so is what builds the stages. Topics
are lists that outlive a driver. A driver can be killed wherever a message is published, a manifest or a
request's word is written, and before each commit of a table: `reach` is called there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
from pydantic import SecretStr

from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.captured.layout import grown
from streaming.captured.log_format import POSTGRES_LOG, LogFormat
from streaming.configuration.pipeline_config import Config, LimitsConfig
from streaming.configuration.source_config import SourceConfig
from streaming.metrics import Metrics
from streaming.pipeline.broken_views import BrokenViews
from streaming.pipeline.catalog import load_views
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.configured_groups import form_groups
from streaming.pipeline.plan import Pipeline, keep_layouts, layouts_now, replanned, stored_catalog
from streaming.runtime.kafka import Topics, headers
from streaming.runtime.pulse import NOTHING
from streaming.runtime.step import Fence, Manifest, ManifestStore, Outgoing, Stage, Stepper
from streaming.service.building import build_stages
from streaming.service.members import Members, settle_catalog
from streaming.stages.joining_stage import JoiningStage
from streaming.stages.returning_stage import ReturningStage
from streaming.viewchanges.requests import Requests
from tests.sourcelog import RECORDS, Record, SourceLog
from tests.sourcelog import Topics as Offsets

NAME = "shop"
COLUMNS = [("id", "int8"), ("account", "int4"), ("amount", "int8")]
VIEWS = {
    "totals": "SELECT account, SUM(amount) AS total, COUNT(*) AS n FROM north.entry GROUP BY account",
    "entries": "SELECT id, account, amount FROM north.entry",
}


def relations(
    columns: Sequence[tuple[str, str]] = COLUMNS, identities: Mapping[str, str] | None = None
) -> list[CapturedRelation]:
    known = {name: (type_, (identities or {}).get(name, "")) for name, type_ in columns}
    return [
        captured("north.entry", "north.public.entry", columns, key=["id"], known=known),
        captured(
            "north.other", "north.public.other", [("id", "int8"), ("words", "text")], key=["id"]
        ),
    ]


class Shop:
    """What outlives a driver: the source and its log, the topics, the warehouse."""

    def __init__(
        self,
        folder: Path,
        rel: Literal["direct", "with-actions"] = "direct",
        snapshot: bool = False,
        views: Mapping[str, str] = VIEWS,
        connection: str | None = None,
        **limits: int,
    ) -> None:
        """Args:
        views: by name its SELECT, or all that follows its name in its file.
        connection: of the source, for views that ask it.
        """
        self.folder = folder
        self.views = folder / "views"
        self.views.mkdir(parents=True)
        self.log, self._offsets = SourceLog("north"), Offsets()
        self.rows: dict[int, tuple[int, int]] = {}
        self.words: set[tuple[int, str]] = set()
        self.events: list[dict[str, Any]] = []
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.log_format: LogFormat = POSTGRES_LOG
        self.columns, self.identities = list(COLUMNS), dict[str, str]()
        self.shape: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row
        """What events say of an entry, whose table may have been altered."""
        tables = {"entry": "public.entry", "other": "public.other"}
        secret = None if connection is None else SecretStr(connection)
        self.config = Config(
            pipeline=NAME,
            warehouse=folder / "warehouse",
            views=self.views,
            sources={"north": SourceConfig(tables=tables, snapshot=snapshot, connection=secret)},
            limits=LimitsConfig(**limits),
            rel=rel,
        )
        for name, text in views.items():
            self.write(name, text)

    @property
    def warehouse(self) -> Path:
        return self.config.warehouse

    def write(self, name: str, text: str, folder: Path | None = None) -> Path:
        """A view's file."""
        file = (folder or self.views) / f"{name}.sql"
        text = f"AS {text}" if text.startswith("SELECT") else text
        file.write_text(f"CREATE MATERIALIZED VIEW {name} {text}\n")
        return file

    def put(self, id_: int, account: int, amount: int) -> None:
        """A transaction: one entry comes, or has other values."""
        before = self.rows.get(id_)
        self.rows[id_] = (account, amount)
        op = "c" if before is None else "u"
        self._commit(("entry", op, self._row(id_, before), self._row(id_, self.rows[id_])))

    def delete(self, id_: int) -> None:
        """A transaction: one entry goes."""
        self._commit(("entry", "d", self._row(id_, self.rows.pop(id_)), None))

    def truncate(self) -> None:
        """A transaction: all entries go at once."""
        self.rows.clear()
        self._commit(("entry", "t", None, None))

    def other(self, id_: int, words: str) -> None:
        """A transaction on the other relation."""
        self.words.add((id_, words))
        self._commit(("other", "c", None, {"id": id_, "words": words}))

    def spoiled(self) -> None:
        """A transaction whose only record cannot be read."""
        begin, row, end = self.log.commit([("entry", "c", None, self._row(99, (1, 1)))])
        self.publish([begin, (row[0], "{not json"), end])

    def publish(self, records: list[Record]) -> None:
        self.events += self._offsets.batch(records).to_pylist()

    def _commit(
        self, change: tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]
    ) -> None:
        self.publish(self.log.commit([change]))

    def _row(self, id_: int, values: tuple[int, int] | None) -> dict[str, Any] | None:
        if values is None:
            return None
        return self.shape({"id": id_, "account": values[0], "amount": values[1]})

    def captured(self) -> list[CapturedRelation]:
        """The tables as their database tells them now."""
        return relations(self.columns, self.identities)

    def altered(self, planned: Pipeline) -> Sequence[CapturedRelation]:
        """The captured relations, if one of them is not what it was."""
        found = self.captured()
        return found if grown(planned.layouts, found, 0) != dict(planned.layouts) else ()

    def planned(self) -> Pipeline:
        """What a start plans from the view files."""
        captured_ = self.captured()
        stored = stored_catalog(self.warehouse)
        layouts = layouts_now(self.config, stored.layouts if stored else {}, captured_)
        captured_ = [layouts[one.relation.name].captured(one) for one in captured_]
        by_name = {one.relation.name: one.relation for one in captured_}
        broken = BrokenViews(stored, layouts)
        views = broken.checked(load_views(self.views, by_name, broken.instead, broken.as_of))
        choices: dict[str, Choice] = {}
        for view in views:
            choices[view.name] = choose(self.config, view, by_name, choices)
        groups = form_groups(self.config, views, choices, by_name.keys())
        snapshot = self.config.sources["north"].snapshot
        sources = (CapturedSource("north", "north", snapshot=snapshot, log=self.log_format),)
        made = {group.name: group.views for group in groups}
        return Pipeline(
            NAME,
            sources,
            tuple(captured_),
            tuple(views),
            made,
            choices,
            broken=broken.errors,
            layouts=layouts,
        )


class Driver:
    """One start of the service over a shop.

    Args:
        reach: called with the name of each moment; may raise (`stepworld.Crash`).
        roles: the stages that it runs; () for all.
    """

    def __init__(
        self,
        shop: Shop,
        reach: Callable[[str], None] = lambda moment: None,
        roles: tuple[str, ...] = (),
    ) -> None:
        self._roles = roles
        self.recovers = True
        """Whether suspended views try to come back by themselves."""
        self.shop, self._reach = shop, reach
        self._at: dict[tuple[str, str], int] = {}
        self.fence: Fence | None = None
        planned = shop.planned()
        settle_catalog(shop.warehouse, planned)
        keep_layouts(shop.warehouse, planned.layouts)
        self.topics, self.metrics = Topics(NAME), Metrics()
        self._over(planned)

    def _over(self, planned: Pipeline) -> None:
        """Stages over a pipeline as it is now."""
        shop = self.shop
        self.planned, self.members = planned, Members(shop.config, planned)
        folder = shop.warehouse / "_state" / "generations"
        self.fence = self.fence or Fence(folder, {"process": "a test"}, self._roles)
        self.stages = build_stages(
            shop.config,
            self.members.plan(),
            self.topics,
            self.metrics,
            cast(Any, None),
            self.members,
            self._roles,
        )
        for merge in self.stages.merges.values():
            merge.writer.before_commit = lambda table: self._reach(f"commit of {table}")
        self.steppers: dict[str, Stepper] = {}
        for stage in self._all_stages():
            self._run(stage)
        if (integrator := self.stages.integrator) is not None:
            self._run(integrator)
            self._source = _Reader(shop, self.steppers[integrator.name])

    def look(self) -> None:
        """As the service looks at its sources' catalogs."""
        if found := self.shop.altered(self.planned):
            self._at.clear()
            self.stages.close()
            self._over(replanned(self.shop.config, self.planned, found))

    def close(self) -> None:
        self.stages.close()

    # Moves ----------------------------------------------------------------------------------------

    def step(self, name: str) -> None:
        """One stage over what has come for it, and a tick; what fails is seen to as the service does."""
        if name == "integrator":
            self.steppers[name].batch(self._source.take())
            return
        try:
            self._step(name)
        except Exception as error:
            self._at = {place: at for place, at in self._at.items() if place[0] != name}
            (stage,) = (one for one in self._all_stages() if one.name == name)
            instead = self.stages.instead(stage, error)
            if instead is None:
                raise
            self._run(instead)
            self._step(name)

    def _all_stages(self) -> tuple[Stage, ...]:
        return (*self.stages.merges.values(), *self.stages.views)

    def _step(self, name: str) -> None:
        stepper = self.steppers[name]
        records: list[dict[str, Any]] = []
        for topic in self._reads(name):
            start = max(self._at.get((name, topic), 0), stepper.offsets.get(f"{topic}:0", 0))
            found = self.shop.records.get(topic, [])
            records += found[start:]
            self._at[name, topic] = len(found)
        stepper.batch(pa.Table.from_pylist(records) if records else NOTHING)

    def views(self) -> list[str]:
        """The view managers' stages that run."""
        return [name for name in self.steppers if name.startswith("view:")]

    def round(self, number: bool = True) -> None:
        """What a second of the service does, in the order of the data."""
        if number and "integrator" in self.steppers:
            self.step("integrator")
        for name in self.views():
            self.step(name)
        if f"merge:{NAME}" in self.steppers:
            self.step(f"merge:{NAME}")
        self.stages.collect()
        self.follow()

    def follow(self) -> None:
        """As the service follows requests."""
        if self.recovers:
            self.stages.recover()
        if not self.members.moved():
            return
        wanted = self.members.wanted()
        for name in self.views():
            if name not in wanted:
                del self.steppers[name]
                self.stages.leave(name)
        for name, member in wanted.items():
            if name not in self.steppers and (
                not self._roles or f"view:{member.view}" in self._roles
            ):
                with self.members.refusing(member):
                    self._run(self.stages.join(member))
        self.members.tidy(wanted, self._roles)
        self.members.followed()

    def settle(self, rounds: int = 12) -> None:
        """Rounds until no request is open."""
        requests = Requests(self.shop.warehouse)
        for _ in range(rounds):
            self.round()
            if not requests.open():
                return
        raise AssertionError(f"still open: {requests.open()}")

    # Parts ----------------------------------------------------------------------------------------

    def _run(self, stage: Stage) -> None:
        folder = self.shop.warehouse / "_state" / stage.name.replace(":", "-") / "manifests"
        store = _Store(folder, self._reach)
        assert self.fence is not None
        try:
            stepper = Stepper(self.stages.stepped(stage), store, self.fence, self._publish)
        except Exception as error:
            instead = self.stages.instead(stage, error)
            if instead is None:
                raise
            stage = instead
            stepper = Stepper(self.stages.stepped(stage), store, self.fence, self._publish)
        if isinstance(stage, JoiningStage | ReturningStage):
            if stepper.last is None:
                ends = {t: len(self.shop.records.get(t, [])) for t in stage.topics(self.topics)}
                stage.begin = {f"{topic}:0": end for topic, end in ends.items()}
            for topic in stage.topics(self.topics):
                self._at[stage.name, topic] = stage.begin[f"{topic}:0"]
        self.steppers[stage.name] = stepper

    def _reads(self, name: str) -> tuple[str, ...]:
        if name.startswith("merge:"):
            return self.topics.rel(NAME), self.topics.actions(NAME)
        (stage,) = (one for one in self.stages.views if one.name == name)
        return stage.topics(self.topics)

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        for message in messages:
            self._reach(f"{message.kind} of {producer}")
            records = self.shop.records.setdefault(message.topic, [])
            fields = headers(NAME, producer, generation, message)
            records.append(
                {
                    "topic": message.topic,
                    "partition": 0,
                    "offset": len(records),
                    "value": message.body.encode(),
                    "headers": [{"key": key, "value": value} for key, value in fields],
                }
            )
        self._reach(f"published by {producer}")


class _Store(ManifestStore):
    def __init__(self, folder: Path, reach: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._reach = reach

    def put(self, manifest: Manifest) -> None:
        self._reach(f"manifest of {manifest.stage}")
        super().put(manifest)
        self._reach(f"after the manifest of {manifest.stage}")


class _Reader:
    """The captured topics, from where the integrator's manifests have come to."""

    def __init__(self, shop: Shop, stepper: Stepper) -> None:
        self._shop = shop
        done = stepper.offsets
        self._at = sum(one["offset"] < done.get(f"{one['topic']}:0", 0) for one in shop.events)

    def take(self) -> pa.Table:
        found = self._shop.events[self._at :]
        self._at = len(self._shop.events)
        return pa.Table.from_pylist(found, schema=RECORDS)
