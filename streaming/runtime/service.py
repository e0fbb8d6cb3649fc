"""The service: every stage of a pipeline in one driver, watched until it is told to stop.

Start order: relations and their checks, topics, views against the catalog, the fence (the next
generation), then the stages, whose steppers repeat what a crash may have left half applied. A stage
that fails for a reason of its surroundings is started again from its last manifest; an error with a
code, which a person must see to, stops the service.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streaming.catalog import save_catalog
from streaming.config import Config
from streaming.errors import FrescoError
from streaming.metrics import Metrics, MetricsServer
from streaming.runtime.asking import AskingStage
from streaming.runtime.integrating import IntegratorStage
from streaming.runtime.kafka import Broker, Publisher, Topics
from streaming.runtime.plan import Pipeline, plan_pipeline
from streaming.runtime.pulse import NOTHING, Pulse
from streaming.runtime.queries import StageQuery, start_query
from streaming.runtime.session import spark_session
from streaming.runtime.stages import build_stages
from streaming.runtime.step import Fence, ManifestStore, Stage, Stepper

log = logging.getLogger("fresco")

TICK_SECONDS = 1.0
MAX_RESTARTS = 5
RESTART_WINDOW_SECONDS = 600.0


@dataclass
class Running:
    """A stage, its query and when it failed lately."""

    stage: Stage
    topics: tuple[str, ...]
    headers: bool
    query: StageQuery
    failures: list[float] = field(default_factory=list)


class Service:
    """A pipeline's stages in this process.

    Args:
        config: the pipeline.
        jars: local jar files for Spark; None under spark-submit.
    """

    def __init__(self, config: Config, *, jars: list[str] | None = None) -> None:
        self.config = config
        self.metrics = Metrics()
        self._jars = jars
        self._stopping = threading.Event()
        self._error: FrescoError | None = None
        self._failed: dict[str, BaseException] = {}
        self._running: dict[str, Running] = {}
        self._closers: list[Callable[[], object]] = []
        self._pulses: list[Pulse] = []

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

    def run(self) -> None:
        """Start, then watch until `stop` is called from another thread or a signal handler.

        Raises:
            FrescoError: the service cannot go on; every stage has been stopped.
        """
        self.start()
        try:
            while not self._stopping.wait(TICK_SECONDS):
                self._tick()
                if self._error is not None:
                    raise self._error
        finally:
            self.stop()

    def request_stop(self) -> None:
        """Let `run` return after the batches under way; safe in a signal handler."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop the queries, then everything they use; may be called twice."""
        self._stopping.set()
        for pulse in self._pulses:
            pulse.stop()
        self._pulses.clear()
        for running in self._running.values():
            running.query.stop()
        self._running.clear()
        while self._closers:
            try:
                self._closers.pop()()
            except Exception:
                log.exception("a part did not close cleanly")

    # Start ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        config = self.config
        config.warehouse.mkdir(parents=True, exist_ok=True)
        pipeline = plan_pipeline(config)
        self._serve_metrics()
        self._broker = Broker(config)
        self._closers.append(self._broker.close)
        topics = Topics(config.pipeline)
        self._broker.require_source_topics(pipeline.source_topics)
        begins = not any((config.warehouse / "_state").glob("*/manifests/[0-9]*.json"))
        for group in pipeline.groups:
            self._broker.create(topics.of_group(group), own=True)
            if begins:
                self._broker.require_unused(topics.of_group(group))
        save_catalog(config.warehouse, pipeline.views, pipeline.groups, pipeline.relations)
        # Not before: a start that is refused must not stop the one that holds the pipeline.
        self.fence = Fence(config.warehouse / "_state" / "generations", _owner())
        log.info("generation %d of pipeline %s", self.fence.generation, config.pipeline)
        self._spark = spark_session(config, jars=self._jars)
        self._closers.append(self._spark.stop)
        self._publisher = Publisher(config)
        self._closers.append(self._publisher.close)
        self._stages = build_stages(config, pipeline, topics, self.metrics, self._spark)
        self._closers.append(self._stages.close)
        self._start_stages(pipeline, topics)

    def _start_stages(self, pipeline: Pipeline, topics: Topics) -> None:
        """Consumers first, so that nothing waits for them."""
        for group, stage in self._stages.merges.items():
            self._run_stage(stage, (topics.rel(group), topics.actions(group)), True)
        for view in self._stages.views:
            self._run_stage(view, (topics.updates(view.spec.group),), True)
            if isinstance(view, AskingStage):
                self._pulses.append(Pulse(partial(self._stepper, view.name)))
        self._run_stage(self._stages.integrator, tuple(sorted(pipeline.source_topics)), False)

    def _run_stage(self, stage: Stage, topics: tuple[str, ...], headers: bool) -> None:
        query = self._query(stage, topics, headers)
        self._running[stage.name] = Running(stage, topics, headers, query)
        log.info("stage %s runs", stage.name)

    def _query(self, stage: Stage, topics: tuple[str, ...], headers: bool) -> StageQuery:
        folder = self.config.warehouse / "_state" / stage.name.replace(":", "-") / "manifests"
        stepper = Stepper(stage, ManifestStore(folder), self.fence, self._publisher)
        return start_query(
            self._spark,
            self.config,
            self._broker,
            stepper,
            topics,
            self._note_failure,
            self.metrics.batch_seconds.labels(stage.name),
            headers=headers,
        )

    def _stepper(self, name: str) -> Stepper | None:
        """The stepper of a stage that runs now."""
        running = self._running.get(name)
        if running is None or running.query.given_up.is_set():
            return None
        return running.query.stepper

    def _serve_metrics(self) -> None:
        server: MetricsServer = self.metrics.serve(
            self.config.metrics.host, self.config.metrics.port
        )
        self._closers.append(server.close)
        log.info("metrics on http://%s:%d/metrics", self.config.metrics.host, server.port)

    # Watch ----------------------------------------------------------------------------------------

    def _note_failure(self, name: str, error: BaseException) -> None:
        self._failed[name] = error

    def _tick(self) -> None:
        """Restart what has failed, let timeouts pass, remove what nobody needs any more."""
        for name, running in list(self._running.items()):
            if name in self._failed or not running.query.query.isActive:
                self._revive(name, running)
        integrator = self._running.get(IntegratorStage.name)
        if self._error is not None or integrator is None:
            return
        try:
            integrator.query.stepper.batch(NOTHING)
            self._stages.collect()
        except FrescoError as error:
            self._error = error
        except Exception as error:
            self._note_failure(IntegratorStage.name, error)
            self._revive(IntegratorStage.name, integrator)

    def _revive(self, name: str, running: Running) -> None:
        """Start a failed stage again, unless the error is for a person or it fails too often."""
        error = self._failed.pop(name, None) or running.query.query.exception()
        running.query.stop()
        if isinstance(error, FrescoError):
            self._error = error
            return
        now = time.monotonic()
        running.failures = [at for at in running.failures if now - at < RESTART_WINDOW_SECONDS]
        running.failures.append(now)
        if len(running.failures) > MAX_RESTARTS:
            self._error = FrescoError(
                "STAGE_FAILED",
                f"failed {len(running.failures)} times: {error}",
                where=name,
                todo="see the log for the first failure; nothing is lost, start again when mended",
            )
            return
        log.warning("stage %s failed and starts again: %s", name, error)
        try:
            running.query = self._query(running.stage, running.topics, running.headers)
        except FrescoError as fatal:
            self._error = fatal
        except Exception as again:
            self._note_failure(name, again)


def _owner() -> dict[str, object]:
    """Who holds the pipeline, for those fenced out."""
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
