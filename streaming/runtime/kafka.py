"""The pipeline's own topics: their names, how they are made and checked, and how messages travel.

Every topic between stages has one partition, so that each producer's messages stay in order; they
are few (about one per batch) and small. What comes out of them goes through an `inbox`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streaming.captured.source_topics import TopicFacts
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.messages import FORMAT_VERSION
from streaming.runtime.kafka_clients import client_options, unreachable
from streaming.runtime.step import Outgoing

log = logging.getLogger("fresco")

MAX_MESSAGE_BYTES = 8 << 20
CLOSE_SECONDS = 5.0
"""For what a client still wants to send; the step that sent it is repeated."""
NEWEST_SECONDS = 10.0
"""What has not come until then is not looked at."""
REACHED_MS = 2_000
"""Milliseconds in which a broker that is there answers."""


class Topics:
    """Names of a pipeline's topics (DESIGN 4)."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline

    def updates(self, group: str) -> str:
        return f"{self.pipeline}.updates.{group}"

    def rel(self, group: str) -> str:
        return f"{self.pipeline}.rel.{group}"

    def actions(self, group: str) -> str:
        return f"{self.pipeline}.actions.{group}"

    def of_group(self, group: str) -> tuple[str, str, str]:
        """All topics of one merge group."""
        return self.updates(group), self.rel(group), self.actions(group)


class Broker:
    """Administration: topics made and checked before a service starts; from any thread."""

    def __init__(self, config: Config) -> None:
        """Connect.

        Raises:
            FrescoError: KAFKA_UNREACHABLE, CONFIG_VALUE.
        """
        self.config = config
        self._lock = threading.RLock()  # a consumer serves a thread at a time
        try:
            self._admin = KafkaAdminClient(**client_options(config))
            self._consumer = KafkaConsumer(**client_options(config))
        except KafkaError as error:
            raise unreachable(config, error) from error

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def topics(self) -> set[str]:
        """Topics that exist now."""
        return set(self._admin.list_topics())

    def described(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Partitions and settings of those topics that exist."""
        there = sorted(set(names) & self.topics())
        if not there:
            return {}
        topics = {one["name"]: one for one in self._admin.describe_topics(there)}
        asked = [ConfigResource("TOPIC", name) for name in there]
        try:
            found = self._admin.describe_configs(asked, config_filter="all")
        except KafkaError as error:  # a user may read topics and not be allowed to see this
            log.warning("the settings of topics cannot be read: %s", error)
            found = {}
        settings: Mapping[str, Any] = next(iter(found.values()), {})
        return {
            name: TopicFacts(
                len(topics[name]["partitions"]),
                {key: str(value["value"]) for key, value in settings.get(name, {}).items()},
            )
            for name in there
        }

    def create(self, names: Iterable[str], *, own: bool) -> None:
        """Make topics that are missing: one partition; our own with stated retention."""
        missing = sorted(set(names) - self.topics())
        retention = str(self.config.kafka.retention_hours * 3_600_000)
        configs = (
            {
                "retention.ms": retention,
                "retention.bytes": "-1",
                "cleanup.policy": "delete",
                "max.message.bytes": str(MAX_MESSAGE_BYTES),
            }
            if own
            else {}
        )
        for name in missing:
            wanted = {
                name: {
                    "num_partitions": 1,
                    "configs": configs,
                    "replication_factor": self.config.kafka.replication,
                }
            }
            try:
                self._admin.create_topics(wanted, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                continue

    def require_source_topics(self, names: Iterable[str]) -> None:
        """Check that captured topics are there.

        Raises:
            FrescoError: KAFKA_TOPIC_MISSING with the command that makes them.
        """
        missing = sorted(set(names) - self.topics())
        if not missing:
            return
        if self.config.kafka.create_source_topics:
            self.create(missing, own=False)
            return
        raise FrescoError(
            "KAFKA_TOPIC_MISSING",
            f"captured topics do not exist: {', '.join(missing)}",
            where=self.config.kafka.bootstrap,
            todo="set kafka.create_source_topics: true (a table without events has no topic yet), "
            f"or run: kafka-topics.sh --create --partitions 1 --topic {missing[0]}",
        )

    def reach(self, topics: Sequence[str]) -> None:
        """Ask for one offset of the topics: who is about to ask for many is not held up by a broker away.

        Raises:
            kafka.errors.KafkaError: no answer has come within `REACHED_MS`.
        """
        with self._lock:
            self._consumer.end_offsets(self.partitions(topics)[:1], timeout_ms=REACHED_MS)

    def ends(self, names: Iterable[str]) -> dict[str, int]:
        """The next offset of each partition, by "topic:partition"."""
        with self._lock:
            ends = self._consumer.end_offsets(self.partitions(names))
        return {f"{one.topic}:{one.partition}": end for one, end in ends.items()}

    def claim(self, own: Sequence[str]) -> None:
        """Make the pipeline's topics that are missing; the others belong to this warehouse.

        A warehouse that begins is told from one where another driver has begun already by looking at
        the topics first: whoever has sent something has written a manifest before.

        Raises:
            FrescoError: KAFKA_TOPICS_USED. What another warehouse's stages have sent has the sequences
                that this one's will have: it would be taken for theirs.
        """
        self.create(own, own=True)
        with self._lock:
            ends = self._consumer.end_offsets(self.partitions(own))
        used = sorted({partition.topic for partition, end in ends.items() if end > 0})
        if used and not any((self.config.warehouse / "_state").glob("*/manifests/[0-9]*.json")):
            raise FrescoError(
                "KAFKA_TOPICS_USED",
                f"the warehouse is new, but topics hold messages: {', '.join(used)}",
                where=self.config.kafka.bootstrap,
                todo="delete these topics, or give the pipeline another name, or the warehouse "
                "that belongs to them",
            )

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of the topics."""
        with self._lock:
            return [
                TopicPartition(topic, number)
                for topic in sorted(topics)
                for number in sorted(self._consumer.partitions_for_topic(topic) or ())
            ]

    def _bounds(
        self, topics: Iterable[str]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The first offset and the next one of every partition."""
        with self._lock:
            partitions = self.partitions(topics)
            earliest = self._consumer.beginning_offsets(partitions)
            return earliest, self._consumer.end_offsets(partitions)

    def lags(self, topics: Iterable[str], consumed: Mapping[str, int]) -> dict[str, int]:
        """Records in each topic that are not consumed yet."""
        earliest, latest = self._bounds(topics)
        lags = dict.fromkeys(topics, 0)
        for partition, end in latest.items():
            key = f"{partition.topic}:{partition.partition}"
            lags[partition.topic] += end - consumed.get(key, earliest[partition])
        return lags

    def newest(self, topics: Iterable[str], count: int) -> dict[str, list[bytes]]:
        """The values of the last records of each partition, without tombstones."""
        found: dict[str, list[bytes]] = {}
        with self._lock:
            earliest, latest = self._bounds(topics)
            begin = {one: max(earliest[one], end - count) for one, end in latest.items()}
            wanted = [one for one, end in latest.items() if begin[one] < end]
            self._consumer.assign(wanted)
            for one in wanted:
                self._consumer.seek(one, begin[one])
            deadline = time.monotonic() + NEWEST_SECONDS
            while time.monotonic() < deadline and any(
                self._consumer.position(one) < latest[one] for one in wanted
            ):
                for partition, records in self._consumer.poll(timeout_ms=200).items():
                    values = [one.value for one in records if one.value is not None]
                    found.setdefault(partition.topic, []).extend(values)
            self._consumer.unsubscribe()
        return found

    def starting_offsets(
        self, topics: Iterable[str], consumed: Mapping[str, int]
    ) -> dict[str, dict[str, int]]:
        """Spark's `startingOffsets` after what is consumed; the earliest where nothing is.

        Raises:
            FrescoError: KAFKA_EXPIRED when a record not consumed yet has been deleted.
        """
        earliest, latest = self._bounds(topics)
        starting: dict[str, dict[str, int]] = {}
        for partition in latest:
            key = f"{partition.topic}:{partition.partition}"
            following = consumed.get(key)
            if following is not None and not earliest[partition] <= following <= latest[partition]:
                raise FrescoError(
                    "KAFKA_EXPIRED",
                    f"offset {following} is needed, the topic holds {earliest[partition]} to "
                    f"{latest[partition]}",
                    where=key,
                    todo="the topic was cut or made anew: restore it, or rebuild the pipeline in "
                    "an empty warehouse; use a longer retention",
                )
            offset = earliest[partition] if following is None else following
            starting.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return starting


class Publisher:
    """Sends a manifest's messages and waits until they are stored on all replicas."""

    def __init__(self, config: Config) -> None:
        self._pipeline = config.pipeline
        self._producer = KafkaProducer(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_request_size=MAX_MESSAGE_BYTES,
            **client_options(config),
        )

    def __call__(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        """Publish in order.

        Raises:
            kafka.errors.KafkaError: the broker did not take a message; the step is repeated.
        """
        waiting = [
            self._producer.send(
                message.topic,
                value=message.body.encode(),
                partition=0,
                headers=headers(self._pipeline, producer, generation, message),
            )
            for message in messages
        ]
        for future in waiting:
            future.get(timeout=60)

    def close(self) -> None:
        self._producer.close(timeout=CLOSE_SECONDS)


def headers(
    pipeline: str, producer: str, generation: int, message: Outgoing
) -> list[tuple[str, bytes]]:
    """Kafka headers of a message (DESIGN 10)."""
    fields = {
        "type": message.kind,
        "format": FORMAT_VERSION,
        "pipeline": pipeline,
        "producer": producer,
        "sequence": message.sequence,
        "generation": generation,
        "first": message.first,
        "last": message.last,
    }
    return [(key, str(value).encode()) for key, value in fields.items()]
