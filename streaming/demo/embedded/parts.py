"""What the stack consists of, said once: versions, server settings, topics, connector options.

The embedded stack (`stack.py`) and the docker one (`compose.py`) are both rendered from the objects
below, so a setting that matters for correctness (DESIGN.md section 6: full row images, transaction
metadata, truncates not skipped) cannot hold in one and be missing in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.spark.artifacts import (
    DEBEZIUM_VERSION,
    KAFKA_VERSION,
)

POSTGRES_VERSION = "18"

KAFKA_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
POSTGRES_IMAGE = f"postgres:{POSTGRES_VERSION}"
MARIADB_IMAGE = "mariadb:10.11"
CONNECT_IMAGE = f"quay.io/debezium/connect:{DEBEZIUM_VERSION}"
PROMETHEUS_IMAGE = "prom/prometheus:v3.5.0"
GRAFANA_IMAGE = "grafana/grafana:12.1.0"
PYTHON_IMAGE = "python:3.11-slim-bookworm"

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Largest record a broker takes and a producer sends: a wide row twice, with room to spare."""

DATABASES = ("north", "south")
BANK_TABLES = ("public.account", "public.entry", "public.fresco_global")
POSTGRES_USER = "postgres"
PASSWORD_VARIABLE = "POSTGRES_PASSWORD"
"""Environment variable that holds the database password in the docker stack."""
METRICS_PORT = 9464

BROKER_SETTINGS: Mapping[str, str] = {
    # A topic that nobody created is an error to report, not one to cover up with an empty topic.
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
    "log.segment.bytes": str(256 * 1024 * 1024),
    # The change events are the only full history of the demo: none may expire.
    "log.retention.ms": "-1",
}

POSTGRES_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "16",
    "max_replication_slots": "16",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "timezone": "UTC",
}

MARIADB_USER = "fresco"
MARIADB_SETTINGS: Mapping[str, str] = {
    "server-id": "1",
    "log-bin": "binlog",
    # Whole rows and their columns' names and types: nothing else is a change event.
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "sync-binlog": "1",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-buffer-pool-size": "128M",
    "max-connections": "200",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "skip-name-resolve": "ON",
}

POSTGRES_INITDB_OPTIONS = ("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256")

WORKER_SETTINGS: Mapping[str, str] = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    # Else a NULL comes as the column's DEFAULT, and nobody can tell.
    "key.converter.replace.null.with.default": "false",
    "value.converter.replace.null.with.default": "false",
    "plugin.discovery": "service_load",
    # Offsets decide how much is repeated after a crash; once a second keeps repeats short.
    "offset.flush.interval.ms": "1000",
    "producer.max.request.size": str(MAX_MESSAGE_BYTES),
    "producer.buffer.memory": str(2 * MAX_MESSAGE_BYTES),
    "topic.creation.enable": "true",
}

# Who hands secrets to a connector: a file here, the environment in docker.
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
ENVIRONMENT_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"

TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}


@dataclass(frozen=True)
class StackSource:
    """One database under capture: its name, which is also the topic prefix, and its tables."""

    name: str
    tables: tuple[str, ...] = BANK_TABLES
    with_schema: bool = False
    """True gives every record its schema part (Kafka Connect's `schemas.enable`)."""
    options: tuple[tuple[str, str], ...] = ()
    """Connector options that replace or extend those of `connector_config`."""

    @property
    def connector(self) -> str:
        """The connector's name in Kafka Connect."""
        return f"fresco-{self.name}"

    @property
    def notification_topic(self) -> str:
        """Where the connector says how its snapshot goes on."""
        return f"{self.name}.notifications"

    @property
    def transaction_topic(self) -> str:
        """Where the connector says BEGIN and END."""
        return f"{self.name}.transaction"

    @property
    def heartbeat_topic(self) -> str:
        """Where the connector proves it lives; named by Debezium's fixed prefix."""
        return f"__debezium-heartbeat.{self.name}"

    @property
    def row_topics(self) -> tuple[str, ...]:
        """One topic per captured table, in the tables' order."""
        return tuple(f"{self.name}.{table}" for table in self.tables)

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic the connector writes, each of one partition."""
        return (
            *self.row_topics,
            self.transaction_topic,
            self.notification_topic,
            self.heartbeat_topic,
        )


UNCHANGED = {"unavailable.value.placeholder": "unchanged-5d1f0c9be27a4486"}
"""What stands for a TOAST value that did not change: nobody's text, as Debezium's own may be."""


def bank_sources() -> tuple[StackSource, ...]:
    """The demo's sources: the same bank tables in every database of `DATABASES`."""
    return tuple(StackSource(name, options=tuple(UNCHANGED.items())) for name in DATABASES)


def connector_config(
    source: StackSource, *, host: str, port: int, user: str, password: str
) -> dict[str, str]:
    """The configuration of the Debezium connector that captures `source`.

    `password` is a reference for Connect's configuration provider (`${file:...}`, `${env:...}`),
    so that neither the REST interface nor a rendered file shows the secret itself.
    """
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": host,
        "database.port": str(port),
        "database.user": user,
        "database.password": password,
        "database.dbname": source.name,
        "topic.prefix": source.name,
        "plugin.name": "pgoutput",
        "slot.name": f"fresco_{source.name}",
        "publication.name": f"fresco_{source.name}",
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(source.tables),
        "snapshot.mode": "initial",
        "provide.transaction.metadata": "true",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": source.notification_topic,
        # Debezium skips TRUNCATE by default, without a trace.
        "skipped.operations": "none",
        "decimal.handling.mode": "string",
        "tombstones.on.delete": "true",
        "event.processing.failure.handling.mode": "fail",
        "errors.tolerance": "none",
        "poll.interval.ms": "50",
        # Write-ahead log of the other databases is confirmed only by heartbeats.
        "heartbeat.interval.ms": "5000",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.max.message.bytes": str(MAX_MESSAGE_BYTES),
        "topic.creation.default.retention.ms": "-1",
        "key.converter.schemas.enable": str(source.with_schema).lower(),
        "value.converter.schemas.enable": str(source.with_schema).lower(),
        "key.converter": WORKER_SETTINGS["key.converter"],
        "value.converter": WORKER_SETTINGS["value.converter"],
        # A connector that names its converter has none of the worker's settings of it.
        "key.converter.replace.null.with.default": "false",
        "value.converter.replace.null.with.default": "false",
    }
    return config | dict(source.options)
