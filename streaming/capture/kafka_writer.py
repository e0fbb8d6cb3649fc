"""Messages and how far they reach, in one Kafka transaction (DESIGN 9).

The producer's transactional id is the source's, so a second capture of the same source fences the first,
whose open transaction is aborted. The progress is a record of the topic `<prefix>.capture`, committed
together with the messages it speaks of: readers of committed records see both or neither, and a capture
that is killed at any moment goes on exactly after what they see.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streaming.capture.envelope import Message
from streaming.capture.position import PublishedPosition, progress_from_json
from streaming.captured.source_topics import capture_topic
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.runtime.kafka_clients import client_options, unreachable

MAX_RECORD_BYTES = 32 << 20
_READ_SECONDS = 30.0
_WINDOW = 1000
"""Records of the state topic that are looked at first; the newest one is among the last."""
_TIMEOUT = 60.0
_FENCED = (Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)


class Writer:
    """The one producer of a source's topics.

    Args:
        topics: all topics that will be written, made here when they are missing.
    """

    def __init__(self, config: Config, prefix: str, topics: Iterable[str]) -> None:
        """Connect, make the topics, and fence an earlier capture.

        Raises:
            FrescoError: KAFKA_UNREACHABLE.
        """
        self._config, self._prefix = config, prefix
        self._state = capture_topic(prefix)
        self._open = False
        self._committed: PublishedPosition | None = None
        try:
            self._make(topics)
        except KafkaError as error:
            raise unreachable(config, error) from error
        options = {key: value.get_secret_value() for key, value in config.kafka.options.items()}
        self._producer = Producer(
            {
                **options,
                "bootstrap.servers": config.kafka.bootstrap,
                "transactional.id": f"fresco-capture-{prefix}",
                "transaction.timeout.ms": int(_TIMEOUT * 1000),
                "linger.ms": 5,
                "message.max.bytes": MAX_RECORD_BYTES,
                "queue.buffering.max.kbytes": 4 * MAX_RECORD_BYTES // 1024,
            },
            logger=logging.getLogger("librdkafka"),
        )
        try:
            self._producer.init_transactions(_TIMEOUT)
        except KafkaException as error:
            raise self._judged(error) from error

    def _make(self, topics: Iterable[str]) -> None:
        admin = KafkaAdminClient(**client_options(self._config))
        try:
            there = set(admin.list_topics())
            for topic in (*topics, self._state):
                if topic in there:
                    continue
                configs = {"max.message.bytes": str(MAX_RECORD_BYTES)}
                if topic == self._state:
                    configs |= {"cleanup.policy": "compact", "retention.ms": "-1"}
                wanted = {
                    "num_partitions": 1,
                    "replication_factor": self._config.kafka.replication,
                    "configs": configs,
                }
                try:
                    admin.create_topics({topic: wanted}, wait_for_metadata=True)
                except TopicAlreadyExistsError:
                    continue
        finally:
            admin.close()

    def progress(self) -> PublishedPosition | None:
        """The newest committed progress; None for a source that was never captured.

        Raises:
            FrescoError: KAFKA_UNREACHABLE, CAPTURE_STATE.
        """
        partition = TopicPartition(self._state, 0)
        options = client_options(self._config) | {"enable_auto_commit": False}
        try:
            consumer = KafkaConsumer(isolation_level="read_committed", **options)
        except KafkaError as error:
            raise unreachable(self._config, error) from error
        try:
            consumer.assign([partition])
            first = consumer.beginning_offsets([partition])[partition]
            end = consumer.end_offsets([partition])[partition]
            start = max(first, end - _WINDOW)
            while True:
                found = self._newest(consumer, partition, start, end)
                if found is not None or start <= first:
                    self._committed = found
                    return found
                start = first
        except KafkaError as error:
            raise unreachable(self._config, error) from error
        finally:
            consumer.close()

    def _newest(
        self, consumer: KafkaConsumer, partition: TopicPartition, start: int, end: int
    ) -> PublishedPosition | None:
        """The last record of [start, end)."""
        consumer.seek(partition, start)
        newest: PublishedPosition | None = None
        deadline = time.monotonic() + _READ_SECONDS
        while consumer.position(partition) < end:
            if time.monotonic() > deadline:
                raise unreachable(self._config, KafkaError("the state topic cannot be read"))
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    newest = progress_from_json(
                        record.value, f"topic {self._state}, offset {record.offset}"
                    )
        return newest

    def send(self, messages: Iterable[Message]) -> int:
        """Hand messages to the open transaction, which is begun where there is none; how many."""
        sent = 0
        for message in messages:
            self._begin()
            self._produce(*message)
            sent += 1
        return sent

    def _produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """What cannot be delivered makes the commit fail."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition=0)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._judged(error) from error

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def commit(self, progress: PublishedPosition) -> None:
        """Everything handed over and how far it reaches become visible, together.

        Raises:
            FrescoError: KAFKA_UNREACHABLE; CAPTURE_FENCED. Nothing of it is visible then.
        """
        try:
            self._begin()
            self._produce(self._state, b"progress", progress.to_json())
            self._producer.commit_transaction(_TIMEOUT)
            self._open, self._committed = False, progress
        except KafkaException as error:
            raise self._judged(error) from error

    def confirm(self) -> None:
        """Make sure that no other capture of the source has taken over; what is open is aborted.

        Raises:
            FrescoError: CAPTURE_FENCED; KAFKA_UNREACHABLE.
        """
        try:
            if self._open:
                self._producer.abort_transaction(_TIMEOUT)
                self._open = False
        except KafkaException as error:
            raise self._judged(error) from error
        if self._committed is not None:
            self.commit(self._committed)

    def close(self) -> None:
        """Leave; what is open is aborted, by the broker where it cannot be by us."""
        if self._open:
            with suppress(KafkaException):
                self._producer.abort_transaction(5.0)

    def _judged(self, error: KafkaException) -> FrescoError:
        if error.args and error.args[0].code() in _FENCED:
            return FrescoError(
                "CAPTURE_FENCED",
                f"another capture of {self._prefix} has taken over",
                where=self._config.kafka.bootstrap,
                todo="run one `fresco capture --source SOURCE` for each source",
            )
        if error.args and error.args[0].code() == Code.MSG_SIZE_TOO_LARGE:
            return FrescoError(
                "CAPTURE_RECORD_SIZE",
                f"an event is larger than {MAX_RECORD_BYTES >> 20} MiB, or than its topic takes",
                where=f"topics {self._prefix}.*",
                todo="leave the table with such a value out of the capture, or raise max.message.bytes of"
                " its topic and message.max.bytes of the broker",
            )
        return unreachable(self._config, KafkaError(str(error)))
