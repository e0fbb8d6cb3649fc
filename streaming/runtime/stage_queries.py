"""One Spark Structured Streaming query per stage: reads the stage's topics, runs its stepper.

The query starts at the offsets of the stage's last manifest, with a Spark checkpoint of its own that
lives no longer than the query: the chain of manifests is the truth (`step`), so nothing is lost with it.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Histogram
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.runtime.kafka import Broker
from streaming.runtime.kafka_clients import spark_options
from streaming.runtime.pulse import Pulse
from streaming.runtime.restarts import Restarts
from streaming.runtime.step import Stage, Stepper

_MESSAGES_PER_BATCH = 200
"""Of the pipeline's own topics; a message can be some megabytes."""
_SMALL_SHARE = 40
"""A topic is small while its lag is at most this part of a batch's limit."""
_MUCH = 50_000
"""Records that lie before a query from which it is worth to have code generated for reading them: 400,000
take 1.8 core-seconds with it and 2.5 without."""
_COLUMNS = ("topic", "partition", "offset", "value")


@dataclass
class StageQuery:
    """A running stage."""

    name: str
    stepper: Stepper
    query: StreamingQuery
    checkpoint: str
    given_up: threading.Event
    """Set once the query takes no batch any more."""

    def stop(self) -> None:
        """Stop the query (the batch under way ends first) and drop its checkpoint."""
        self.given_up.set()
        self.stepper.halt()
        self.query.stop()
        with self.stepper.lock:
            # Python's part of the last batch may outlive the query that called it.
            pass
        shutil.rmtree(self.checkpoint, ignore_errors=True)


@dataclass
class Running:
    """A stage, its query, its pulse where it has one, and what becomes of its failures."""

    stage: Stage
    topics: tuple[str, ...]
    headers: bool
    query: StageQuery
    pulse: Pulse | None = None
    restarts: Restarts = field(default_factory=Restarts)

    def stop(self) -> None:
        """For good: after the step under way, or without it where it waits for something outside."""
        if self.pulse is not None:
            self.pulse.end()
        self.query.stop()
        if self.pulse is not None:
            self.pulse.stop()


def start_query(
    spark: SparkSession,
    config: Config,
    broker: Broker,
    stepper: Stepper,
    topics: Sequence[str],
    failed: Callable[[str, BaseException], None],
    seconds: Histogram,
    *,
    headers: bool,
    begin: Mapping[str, int] | None = None,
) -> StageQuery:
    """Start a stage's query after what its manifests have consumed.

    Args:
        seconds: observes each batch, reading included.
        failed: told the stage's name and the error when a step raises.
        headers: whether the topics are the pipeline's own (messages with headers).
        begin: where to begin, by "topic:partition", a stage that does not read its topics whole.
    """
    name = stepper.stage.name
    consumed = {**(begin or {}), **stepper.offsets}

    limit = _MESSAGES_PER_BATCH if headers else config.limits.offsets_per_batch
    lags = broker.lags(topics, consumed)
    if sum(lags.values()) > _MUCH:
        spark = spark.newSession()

    def stream(names: Sequence[str]) -> DataFrame:
        starting = broker.starting_offsets(names, consumed)
        reader = (
            spark.readStream.format("kafka")
            .options(**spark_options(config))
            .option("subscribe", ",".join(names))
            .option("startingOffsets", json.dumps(starting))
            .option("maxOffsetsPerTrigger", str(limit))
            .option("includeHeaders", str(headers).lower())
        )
        return reader.load().select(*_COLUMNS, *(["headers"] if headers else []))

    small, large = _by_lag(lags, limit)
    source = functools.reduce(DataFrame.union, [stream(names) for names in (small, large) if names])

    given_up = threading.Event()

    def step(batch: DataFrame, _: int) -> None:
        if given_up.is_set():
            return
        try:
            with seconds.time():
                stepper.batch(batch.toArrow())
        except FrescoError as error:
            # Not raised: Spark would bury an error that says all itself under its trace. Spark takes
            # the batch for done, the chain of manifests does not, and this query takes no other.
            given_up.set()
            failed(name, error)
        except BaseException as error:
            if given_up.is_set():
                return  # stopped: Spark has cancelled what the batch was reading
            failed(name, error)
            raise

    checkpoint = tempfile.mkdtemp(prefix="fresco-checkpoint-")
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    query = (
        source.writeStream.foreachBatch(step)
        .queryName(name)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    return StageQuery(name, stepper, query, checkpoint, given_up)


def _by_lag(lags: Mapping[str, int], limit: int) -> tuple[list[str], list[str]]:
    """Topics with little to read, and those with a backlog: read by a source each.

    Spark shares a batch's limit out by what lies in each topic. Beside a large backlog, a topic of
    ten notifications would take as many batches as the backlog, and everything would wait for it.
    """
    small = sorted(topic for topic, lag in lags.items() if lag <= limit // _SMALL_SHARE)
    return small, sorted(set(lags) - set(small))
