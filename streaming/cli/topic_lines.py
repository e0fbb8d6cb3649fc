"""The pipeline's own topics as text: any message on one line, its rows below it where they are asked for.

`fresco topics tail` reads beside the stages and commits nothing. A record that is no message of the
pipeline is shown as such: what is wrong with a topic is what one looks for here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pydantic import ValidationError

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.messages import (
    ActionList,
    Message,
    Rel,
    RelRun,
    Rows,
    Suspend,
    Updates,
    ViewChange,
    decode,
)
from streaming.packed_rows import unpack
from streaming.runtime.kafka_clients import client_options, unreachable
from streaming.scalars import written
from streaming.scalars.expression import MULTIPLICITY, NUMBER

SHOWN_RUNS = 6
"""REL runs told of one message."""


@dataclass(frozen=True)
class RecordLine:
    """One record.

    Attributes:
        kind: the message's type; "?" of what is no message.
        says: its content in one line.
        rows: the rows it carries, in words, where they were asked for.
    """

    topic: str
    offset: int
    at_ms: int
    kind: str
    producer: str
    sequence: str
    generation: str
    says: str
    rows: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def tail(
    config: Config,
    topics: Sequence[str],
    last: int,
    *,
    follow: bool = False,
    rows: int = 0,
) -> Iterator[RecordLine]:
    """The newest records of some topics, topic by topic, then, following, those that come.

    Args:
        last: how many of each topic.
        rows: how many rows of each message to tell.

    Raises:
        FrescoError: KAFKA_UNREACHABLE, KAFKA_TOPIC_MISSING.
    """
    try:
        consumer = KafkaConsumer(**client_options(config), enable_auto_commit=False)
    except KafkaError as error:
        raise unreachable(config, error) from error
    try:
        _start(consumer, config, topics, last)
        yield from _told(consumer, config.warehouse, follow, rows)
    finally:
        consumer.close()


def _start(consumer: KafkaConsumer, config: Config, topics: Sequence[str], last: int) -> None:
    missing = sorted(set(topics) - set(consumer.topics()))
    if missing:
        raise FrescoError(
            "KAFKA_TOPIC_MISSING",
            f"there is no topic {', '.join(missing)}",
            where=config.kafka.bootstrap,
            todo="the pipeline's topics are made at its first start",
        )
    partitions = [TopicPartition(topic, 0) for topic in topics]
    consumer.assign(partitions)
    first = consumer.beginning_offsets(partitions)
    for partition, end in consumer.end_offsets(partitions).items():
        consumer.seek(partition, max(first[partition], end - last))


def _told(
    consumer: KafkaConsumer, warehouse: Path, follow: bool, rows: int
) -> Iterator[RecordLine]:
    ends = consumer.end_offsets(consumer.assignment())
    while follow or any(consumer.position(one) < end for one, end in ends.items()):
        found = consumer.poll(timeout_ms=500)
        for partition in sorted(found, key=lambda one: str(one.topic)):
            for record in found[partition]:
                fields = {key: value.decode(errors="replace") for key, value in record.headers}
                yield told(
                    record.topic,
                    record.offset,
                    record.timestamp,
                    record.value,
                    fields,
                    warehouse,
                    rows,
                )


def told(
    topic: str,
    offset: int,
    at_ms: int,
    value: bytes | None,
    fields: dict[str, str],
    warehouse: Path,
    rows: int = 0,
) -> RecordLine:
    """One record in words.

    Args:
        fields: its headers.
    """
    kind, listed = "?", tuple[str, ...]()
    try:
        message = decode(value or b"")
    except ValidationError as error:
        says = f"not a message of the pipeline: {error.errors()[0]['msg']}"
    else:
        kind, says = message.type, in_words(message)
        listed = tuple(_row_texts(message, warehouse, rows)) if rows else ()
    producer, sequence, generation = (
        fields.get(name, "?") for name in ("producer", "sequence", "generation")
    )
    return RecordLine(topic, offset, at_ms, kind, producer, sequence, generation, says, listed)


def in_words(message: Message) -> str:
    """A message's content in one line."""
    match message:
        case Rel():
            return f"[{message.first}..{message.last}] {_runs(message.runs)}"
        case Updates():
            parts = [f"{name}: {_count(rows)}" for name, rows in message.relations.items()]
            parts += [f"{one.kind} {one.relation} at {one.number}" for one in message.controls]
            rows_ = ", ".join(parts) or "no rows"
            return f"[{message.first}..{message.last}] {rows_}; {_runs(message.runs)}"
        case ActionList():
            kind = "" if message.complete else ", as one"
            rows_ = _count(message.delta) if message.delta is not None else "empty"
            return f"{message.view}[{message.first}..{message.last}]{kind}: {rows_}"
        case Suspend():
            code, what = message.error.get("code", ""), message.error.get("what", "")
            return f"{message.view} is suspended after {message.after}: {code} {what}"
        case ViewChange():
            does = "joins" if message.change == "add" else "leaves"
            manager = f" ({message.manager})" if message.change == "add" else ""
            return f"{message.view} {does} at {message.number}{manager}"


def _runs(runs: Sequence[RelRun]) -> str:
    texts = []
    for run in runs[:SHOWN_RUNS]:
        numbers = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        views = [f"({view})" if view in run.idle else view for view in run.views]
        texts.append(f"{numbers} {' '.join(views) or 'nobody'}")
    more = len(runs) - SHOWN_RUNS
    return " | ".join(texts) + (f" | {more} runs more" if more > 0 else "")


def _count(rows: Rows) -> str:
    where = f" in {rows.path}" if rows.path else ""
    return f"{rows.rows} {'row' if rows.rows == 1 else 'rows'}{where}"


def _row_texts(message: Message, warehouse: Path, most: int) -> Iterator[str]:
    carried: dict[str, Rows] = {}
    if isinstance(message, Updates):
        carried = dict(message.relations)
    elif isinstance(message, ActionList) and message.delta is not None:
        carried = {message.view: message.delta}
    for name, reference in carried.items():
        try:
            table = unpack(reference, warehouse)
        except FrescoError as error:
            yield f"{name}: {error.what}"
            continue
        head = table.slice(0, most)
        signs = (head.column(name).to_pylist() for name in (NUMBER, MULTIPLICITY))
        rows = written.rows(head.drop_columns([NUMBER, MULTIPLICITY]))
        for number, copies, row in zip(*signs, rows, strict=True):
            values = ", ".join("NULL" if one is None else str(one) for one in row)
            yield f"{name} @{number} {copies:+d} ({values})"
        if table.num_rows > most:
            yield f"{name}: {table.num_rows - most} rows more"
