"""The relations of a source: from its database, else the configuration, else the events themselves."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from http.client import HTTPException
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.ask.source_kind import Captor
from streaming.ask.source_kinds import kind_of_connection, kind_of_source
from streaming.captured.captured_schema import CapturedRelation, captured, schema_from_connect
from streaming.cdc.connect_rest import ConnectRest
from streaming.cdc.connector_settings import PLACEHOLDER
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.errors import FrescoError
from streaming.runtime.kafka_clients import client_options, unreachable

_PEEK_SECONDS = 10.0


def source_relations(config: Config, name: str) -> list[CapturedRelation]:
    """Every captured relation of one source, with what its connector says of its values.

    Raises:
        FrescoError: SOURCE_UNREACHABLE, SOURCE_TABLE_MISSING, SOURCE_REPLICA_IDENTITY,
            SOURCE_NO_SCHEMA, CONFIG_VALUE, KAFKA_UNREACHABLE; those of `mysqlcheck.RULES`.
    """
    relations = _relations(config, name)
    source = config.sources[name]
    if source.connect is None or not kind_of_source(name, source).log.marks_unchanged:
        return relations
    said = _placeholder(source.connect.get_secret_value(), config.prefix(name))
    return relations if said is None else [replace(one, placeholder=said) for one in relations]


def _placeholder(address: str, prefix: str) -> str | None:
    """What a source's connector writes for a value that did not change; None where nobody tells.

    A worker that cannot be asked, or has no such connector, is told of by a start and by `doctor`.
    """
    try:
        told = ConnectRest(address).ask("GET", "/connectors?expand=info")
        configs = [one["info"]["config"] for one in told.values()]
        mine = [one for one in configs if one.get("topic.prefix") == prefix]
    except (OSError, ValueError, HTTPException, AttributeError, KeyError, TypeError):
        return None
    return next((one[PLACEHOLDER] for one in mine if one.get(PLACEHOLDER)), None)


def _relations(config: Config, name: str) -> list[CapturedRelation]:
    source = config.sources[name]
    connection, kind = source.secret(), kind_of_source(name, source)
    if connection is not None:
        if kind_of_connection(connection) is not kind:
            raise FrescoError(
                "CONFIG_VALUE",
                f"the connection is not one to a {source.database}",
                where=f"sources.{name}",
                todo="set database: mariadb with a mariadb:// connection, mysql with mysql://, or"
                " postgres with postgresql://",
            )
        found = kind.read_schemas(
            connection, name, config.prefix(name), source.tables, source.decimals
        )
        if source.capture == "debezium" and source.snapshots is None:
            ours = None if source.connect is None else False
            kind.require_whole_rows(
                Captor(connection, name, list(source.tables.values()), ours=ours)
            )
        return found
    if source.full_rows is not True:
        raise FrescoError(
            "SOURCE_REPLICA_IDENTITY",
            "without a connection nobody can see that events carry full rows",
            where=f"sources.{name}",
            todo=f"give a connection, or run {kind.whole_rows} and set full_rows: true",
        )
    return [_relation(config, name, source, table) for table in source.tables]


def _relation(config: Config, name: str, source: SourceConfig, table: str) -> CapturedRelation:
    """A relation that no connection can describe."""
    topic = f"{config.prefix(name)}.{source.tables[table]}"
    if table in source.columns:
        columns, kind = source.columns[table], kind_of_source(name, source)
        return captured(
            f"{name}.{table}",
            topic,
            [(column, kind.captured_type(text)) for column, text in columns.items()],
            key=source.keys.get(table, []),
            collection=source.tables[table],
            decimals=source.decimals,
        )
    key, value = first_record(config, topic)
    if not isinstance(value, dict) or "schema" not in value:
        raise FrescoError(
            "SOURCE_NO_SCHEMA",
            f"the columns of {table} are not known: there is no connection, nothing under "
            "columns:, and the topic's first event has no schema part",
            where=f"sources.{name}, topic {topic}",
            todo=f"give a connection, list the columns under sources.{name}.columns.{table}, or "
            "let the connector's converter send schemas (schemas.enable=true)",
        )
    key_part = key.get("schema") if isinstance(key, dict) else None
    return schema_from_connect(value["schema"], f"{name}.{table}", topic, key_part)


def first_record(config: Config, topic: str) -> tuple[Any, Any]:
    """Key and value of a topic's first record with a value, from JSON; (None, None) without one.

    Raises:
        FrescoError: KAFKA_UNREACHABLE.
    """
    try:
        consumer = KafkaConsumer(**client_options(config), enable_auto_commit=False)
    except KafkaError as error:
        raise unreachable(config, error) from error
    try:
        partitions = [
            TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + _PEEK_SECONDS
        while time.monotonic() < deadline and any(
            consumer.position(partition) < end for partition, end in ends.items()
        ):
            for records in consumer.poll(timeout_ms=200, max_records=10).values():
                for record in records:
                    if record.value is not None:
                        return _json(record.key), _json(record.value)
        return None, None
    finally:
        consumer.close()


def _json(content: bytes | None) -> Any:
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None
