"""The service: a driver's stages of a pipeline, all of them by default, watched until told to stop.

Start order: relations and their checks, topics, views against the catalog, the fence (the next
generation), then the stages, whose steppers repeat what a crash may have left half applied. A stage
that fails for a reason of its surroundings is started again from its last manifest, after waits that
grow (`restarts`), while the others go on; an error with a code, which a person must see to, stops the
service.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.isolated.session_start import only_sessions, start_sessions
from streaming.metrics import Metrics, MetricsServer
from streaming.pipeline.plan import Pipeline, keep_layouts, plan_pipeline, replanned
from streaming.runtime.error_owner import again_at_work
from streaming.runtime.fence import owner_here
from streaming.runtime.heartbeat import BrokerWatch, Heartbeat, Stall
from streaming.runtime.kafka import Broker, Publisher, Topics
from streaming.runtime.pulse import NOTHING, Pulse
from streaming.runtime.restarts import Restarts, first_line
from streaming.runtime.stage_names import role_of
from streaming.runtime.stage_queries import Running, StageQuery, start_query
from streaming.runtime.step import Fence, ManifestStore, Stage, Stepper
from streaming.service.building import build_stages, check_roles
from streaming.service.members import Members, settle_catalog
from streaming.service.origins import Origins
from streaming.service.schema_watch import SchemaWatch
from streaming.service.stage_set import ManagerStage
from streaming.service.stalls import StallsShown
from streaming.service.surroundings import (
    examined_dates,
    examined_records,
    examined_sources,
    examined_topics,
    refuse,
)
from streaming.spark.spark_session import StartingSession, ended_jvm
from streaming.stages.asking_stage import AskingStage
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.joining_stage import JoiningStage
from streaming.stages.merge_stage import MergeStage
from streaming.stages.returning_stage import ReturningStage
from streaming.stages.view_stage import ViewStage

log = logging.getLogger("fresco")

TICK_SECONDS = 1.0
JVM_ENDS_SECONDS = 2.0
"""Between the loss of its connections and its end as this process sees it."""
START_THREADS = 4
"""Stages that are started at a time."""


class Service:
    """A pipeline's stages in this process.

    Args:
        config: the pipeline.
        session: Spark's, which may have begun to start; one of its own without.
        jars: local jar files for a session of its own; None under spark-submit.
        roles: `integrator`, `view:<name>`, `merge:<group>`: the stages to run here; () for all.
        metrics_port: where /metrics answers, in place of the configured port.
    `starting`: a wish to stop may break off what is under way. `stopping`: set once it stops.
    """

    def __init__(
        self,
        config: Config,
        *,
        session: StartingSession | None = None,
        jars: list[str] | None = None,
        roles: Sequence[str] = (),
        metrics_port: int | None = None,
    ) -> None:
        self.config = config
        self.roles = tuple(dict.fromkeys(roles))
        self.metrics = Metrics()
        self._session = session
        self._jars = jars
        self._port = config.metrics.port if metrics_port is None else metrics_port
        self.starting, self.stopping = True, threading.Event()
        self._error: FrescoError | None = None
        self._failed: dict[str, BaseException] = {}
        self._watch = Restarts()
        """Of what is seen to between the stages' steps: staged files, requests."""
        self._running: dict[str, Running] = {}
        self._closers: list[Callable[[], object]] = []

    # Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; returns when all queries run.

        Raises:
            FrescoError: whatever must be put right first; nothing keeps running.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        self.starting = False

    def run(self) -> None:
        """Start, then watch until `stop` is called from another thread or a signal handler.

        Raises:
            FrescoError: the service cannot go on; every stage has been stopped.
        """
        self.start()
        try:
            while not self.stopping.wait(TICK_SECONDS):
                try:
                    self._tick()
                except Exception as error:
                    if (ended := ended_jvm(JVM_ENDS_SECONDS)) is None:
                        raise
                    raise ended from error
                if self._error is not None:
                    raise self._error
        finally:
            self.stop()

    def request_stop(self) -> None:
        """Let `run` return after the batches under way; safe in a signal handler."""
        self.stopping.set()

    def stop(self) -> None:
        """Stop the queries, then everything they use; may be called twice."""
        self.starting = False
        self.stopping.set()
        self._closers += [running.stop for running in reversed(self._running.values())]
        self._running.clear()
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as error:
                log.debug("a part did not close cleanly", exc_info=error)

    # Start ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        config = self.config
        self._spark = self._session or StartingSession(config, jars=self._jars)
        self._closers.append(self._spark.stop)
        config.warehouse.mkdir(parents=True, exist_ok=True)
        pipeline = plan_pipeline(config)
        check_roles(pipeline, self.roles)
        address = self._serve_metrics()
        topics = Topics(config.pipeline)
        if over_kafka := not only_sessions(pipeline, self.roles):
            self._broker = Broker(config)
            self._closers.append(self._broker.close)
            self._prepare_topics(pipeline, topics)
        settle_catalog(config.warehouse, pipeline)
        members = Members(config, pipeline)
        pipeline = members.plan()
        # Not before: a start that is refused must not stop the one that holds the pipeline.
        folder = config.warehouse / "_state" / "generations"
        self.fence = Fence(folder, owner_here(address), self.roles)
        played = ", ".join(self.roles) or "all stages"
        log.info("generation %d of pipeline %s: %s", self.fence.generation, config.pipeline, played)
        if self._numbers:
            keep_layouts(config.warehouse, pipeline.layouts)
        self._begin_to_beat(over_kafka)
        give_up = partial(setattr, self, "_error")
        loops = start_sessions(config, pipeline, self.fence, self.metrics, give_up, self.roles)
        self._closers += [loop.stop for loop in loops]
        if not over_kafka:
            return
        self._publisher = Publisher(config)
        self._closers.append(self._publisher.close)
        self._closers += [lambda: self._schemas.stop(), lambda: self._stages.close()]
        self._run_over(pipeline, members)

    def _run_over(self, pipeline: Pipeline, members: Members) -> None:
        """Make the stages of a pipeline and start them."""
        topics = Topics(self.config.pipeline)
        self._pipeline = pipeline
        self._stages = build_stages(
            self.config, pipeline, topics, self.metrics, self._spark, members, self.roles
        )
        self._schemas = SchemaWatch(self.config, pipeline.layouts, self._numbers)
        self._start_stages(pipeline, topics)

    def _follow_tables(self) -> None:
        """Tables that were altered: the stages go on over their columns of now, as after a start."""
        members = self._stages.members
        if (wanted := members.newest_asked) > members.generation:
            if self._schemas.found_nothing():
                members.settle(wanted)
            else:
                self._schemas.ask()
        relations = self._schemas.altered
        if not relations:
            return
        for running in reversed(list(self._running.values())):
            running.stop()
        self._running.clear()
        self._failed.clear()
        self._stages.close()
        pipeline = replanned(self.config, self._pipeline, relations, self._numbers)
        members = Members(self.config, pipeline)
        self._run_over(members.plan(), members)

    def _begin_to_beat(self, over_kafka: bool) -> None:
        """Say that this driver lives and what it waits for; show it all in the metrics, too."""
        broker = BrokerWatch(self.config.kafka.bootstrap) if over_kafka else None

        def seen() -> list[Stall]:
            waits = [
                (n, one.restarts) for n, one in list(self._running.items()) if one.restarts.waits
            ]
            found = broker.stalls() if broker is not None else []
            found += [Stall.of(f"stage {name}", one.waiting(name)) for name, one in waits]
            stages = getattr(self, "_stages", None)
            integrator = stages.integrator if stages is not None else None
            return found + (integrator.stalls if integrator is not None else [])

        shown = StallsShown(self.config.warehouse, self.metrics.stalled)
        beat = Heartbeat(self.config.warehouse, self.fence.generation, self.roles, seen, said=shown)
        self._closers.append(lambda: beat.stop(_reason(sys.exc_info()[1] or self._error)))

    @property
    def _numbers(self) -> bool:
        """Whether the transactions are numbered here."""
        return not self.roles or IntegratorStage.name in self.roles

    def _prepare_topics(self, pipeline: Pipeline, topics: Topics) -> None:
        """The captured topics are there, the pipeline's own are made and belong to this warehouse."""
        if self._numbers:
            self._broker.require_source_topics(pipeline.source_topics)
            origins = Origins(self.config, pipeline)
            topics_found = [
                *examined_topics(pipeline, self._broker),
                *examined_records(self.config, pipeline, self._broker),
            ]
            sources_found = examined_sources(self.config, pipeline, self._broker.topics())
            dates_found = examined_dates(self.config, pipeline)
            refuse((*topics_found, *origins.checks, *sources_found, *dates_found))
            origins.keep()
        for group in pipeline.groups:
            self._broker.claim(topics.of_group(group))

    def _start_stages(self, pipeline: Pipeline, topics: Topics) -> None:
        """Side by side; their states are restored while Spark's JVM still starts."""
        reads: list[tuple[Stage, tuple[str, ...], bool]] = [
            (stage, (topics.rel(group), topics.actions(group)), True)
            for group, stage in self._stages.merges.items()
        ]
        reads += [(view, view.topics(topics), True) for view in self._stages.views]
        if (integrator := self._stages.integrator) is not None:
            reads.append((integrator, tuple(sorted(pipeline.source_topics)), False))
        with ThreadPoolExecutor(START_THREADS, "start") as pool:
            steppers = list(pool.map(self._restored, [stage for stage, _, _ in reads]))
            reads = [(self._stages.now(one), names, headers) for one, names, headers in reads]
            list(pool.map(self._run_stage, *zip(*reads, strict=True), steppers))
        for stage, _, _ in reads:
            self._give_pulse(stage)

    def _run_view(self, view: ManagerStage) -> None:
        self._run_stage(view, view.topics(Topics(self.config.pipeline)), True)
        self._give_pulse(self._stages.now(view))

    def _begin(self, view: ManagerStage) -> None:
        """Run a stage more, which is none where it cannot begin."""
        try:
            self._run_view(view)
        except BaseException:
            self._stages.leave(view.name)
            raise

    def _give_pulse(self, stage: Stage) -> None:
        """Steps without messages, for a stage that waits for what no message brings."""
        if not (
            isinstance(stage, AskingStage | JoiningStage | BrokenStage)
            or (isinstance(stage, MergeStage) and self.config.holds_back)
        ):
            return
        failed = partial(self._note_failure, stage.name)
        self._running[stage.name].pulse = Pulse(partial(self._stepper, stage.name), failed)

    def _run_stage(
        self, stage: Stage, topics: tuple[str, ...], headers: bool, stepper: Stepper | None = None
    ) -> None:
        query = self._query(stage, topics, headers, stepper)
        self._running[stage.name] = Running(self._stages.now(stage), topics, headers, query)
        log.info("stage %s runs", stage.name)

    def _restored(self, stage: Stage) -> Stepper:
        """A stage at its last manifest; where a view's cannot be restored, what takes its place."""
        try:
            return self._at_last(stage)
        except Exception as error:
            instead = self._stages.instead(stage, error)
            if instead is None:
                raise
            return self._at_last(instead)

    def _at_last(self, stage: Stage) -> Stepper:
        folder = self.config.warehouse / "_state" / stage.name.replace(":", "-") / "manifests"
        return Stepper(
            self._stages.stepped(stage), ManifestStore(folder), self.fence, self._publisher
        )

    def _query(
        self, stage: Stage, topics: tuple[str, ...], headers: bool, stepper: Stepper | None = None
    ) -> StageQuery:
        stepper = stepper or self._restored(stage)
        stage = self._stages.now(stage)
        if isinstance(stage, JoiningStage | ReturningStage) and stepper.last is None:
            stage.begin = self._broker.ends(topics)
        return start_query(
            self._spark(),
            self.config,
            self._broker,
            stepper,
            topics,
            self._note_failure,
            self.metrics.batch_seconds.labels(role_of(stage.name)),
            headers=headers,
            begin=stage.begin if isinstance(stage, JoiningStage | ReturningStage) else None,
        )

    def _stepper(self, name: str) -> Stepper | None:
        """The stepper of a stage that runs now."""
        running = self._running.get(name)
        if running is None or running.query.given_up.is_set():
            return None
        return running.query.stepper

    def _serve_metrics(self) -> str:
        """Serve /metrics; returns its address."""
        server: MetricsServer = self.metrics.serve(self.config.metrics.host, self._port)
        self._closers.append(server.close)
        address = f"http://{self.config.metrics.host}:{server.port}/metrics"
        log.info("metrics on %s", address)
        return address

    # Watch ----------------------------------------------------------------------------------------

    def _note_failure(self, name: str, error: BaseException) -> None:
        self._failed[name] = error

    def _tick(self) -> None:
        """Restart what has failed, let timeouts pass, remove what nobody needs any more."""
        self._error = self._error or ended_jvm()
        for name, running in list(self._running.items()):
            if self.stopping.is_set():
                return
            waits = running.restarts.waits
            if name in self._failed or not (waits or running.query.query.isActive):
                self._give_pause(name, running)
            if self._error is None and running.restarts.due:
                self._revive(name, running)
        if self._error is not None or not self._running:
            return
        self._tick_integrator()
        if self._watch.waits and not self._watch.due:
            return
        try:
            self._stages.collect()
            self._end_refused()
            self._follow_requests()
            self._follow_tables()
        except FrescoError as error:
            self._error = error
        except Exception as error:
            if self._watch.failed() is None:
                self._error = self._watch.gave_up("the watch over the stages", error)
            log.exception("staged files or requests could not be seen to; that is tried again")
        else:
            self._watch.started()

    def _tick_integrator(self) -> None:
        """What no event brings: global transactions that time out, decisions about bad records."""
        self._give_step(IntegratorStage.name)

    def _end_refused(self) -> None:
        """Let the stages end whose rows the merge could not take, though nothing comes for them."""
        for view in self._stages.views:
            if isinstance(view, ViewStage) and view.is_refused:
                self._give_step(view.name)

    def _give_step(self, name: str) -> None:
        """A step without messages, of a stage that runs here."""
        stepper = self._stepper(name)
        if stepper is None:
            return
        try:
            stepper.batch(NOTHING)
        except Exception as error:
            self._note_failure(name, error)

    def _follow_requests(self) -> None:
        """Start the stages of views that are to join, stop those of views that are gone."""
        members = self._stages.members
        self._stages.recover()
        if not members.moved():
            return
        wanted = members.wanted()
        for name in [one for one in self._running if one.startswith("view:")]:
            if name not in wanted:
                self._running.pop(name).stop()
                self._failed.pop(name, None)
                self._stages.leave(name)
                log.info("stage %s has ended", name)
        for name, member in wanted.items():
            if name not in self._running and (
                not self.roles or f"view:{member.view}" in self.roles
            ):
                with members.refusing(member):
                    self._begin(self._stages.join(member))
        members.tidy(wanted, self.roles)
        members.followed()

    def _give_pause(self, name: str, running: Running) -> None:
        """Stop a failed stage until it is due again; the error may be for a person, or once too many."""
        error = self._failed.pop(name, None) or running.query.query.exception()
        running.query.stop()
        if self._give_up(running, error):
            return
        if isinstance(error, FrescoError):
            self._error = error
            return
        if self._fails_again(running, error):
            return
        wait = running.restarts.failed(error)
        if wait is None:
            failed = running.restarts.gave_up(name, error)
            if not self._give_up(running, failed):
                self._error = failed
            return
        log.warning("stage %s failed and starts again in %g s: %s", name, wait, first_line(error))

    def _fails_again(self, running: Running, error: BaseException | None) -> bool:
        """Suspend a view whose own work has raised the same twice at one step; no other stage fails."""
        stepper = running.query.stepper
        if error is None or stepper.at_work is not error:
            return False
        others = any(one.restarts.waits for one in self._running.values() if one is not running)
        step = stepper.last.step if stepper.last else 0
        if not running.restarts.repeated(error, step) or others or self._failed:
            return False
        view = getattr(running.stage, "spec", None)
        own = None if view is None else again_at_work(error, view.view)
        return own is not None and self._give_up(running, own)

    def _give_up(self, running: Running, error: BaseException | None) -> bool:
        """Suspend the view whose stage cannot go on; False where it is not that view's trouble alone."""
        instead = None if error is None else self._stages.instead(running.stage, error)
        if instead is None:
            return False
        running.stage, running.restarts = instead, Restarts()
        running.restarts.failed(error)  # due at once
        if running.pulse is None:
            self._give_pulse(instead)
        return True

    def _revive(self, name: str, running: Running) -> None:
        """Start a stage again that has waited for it."""
        try:
            self._broker.reach(running.topics)
            running.query = self._query(running.stage, running.topics, running.headers)
            running.stage = self._stages.now(running.stage)
        except FrescoError as fatal:
            self._error = fatal
        except Exception as again:
            self._note_failure(name, again)
        else:
            running.restarts.started()


def _reason(error: BaseException | None) -> str:
    """Why a driver ends, in a word."""
    if error is None:
        return "it was told to stop"
    return error.code if isinstance(error, FrescoError) else type(error).__name__
