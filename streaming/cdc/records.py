"""Records as they come and what a batch of them becomes: decoded columns, and the bad ones by place."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.captured.captured_schema import CapturedRelation
from streaming.errors import FrescoError

APART = 20
"""Records of a step and partition that are kept and told one by one."""


@dataclass(frozen=True)
class BadRecord:
    """An event that cannot be used; kept by its place (DESIGN 11).

    Attributes:
        relation: the relation of its topic, None when the topic has none.
        transaction: its transaction where it could be read, else None.
        error: code, what, where, todo.
    """

    topic: str
    partition: int
    offset: int
    error: dict[str, str]
    source: str | None = None
    relation: str | None = None
    transaction: str | None = None


def abridged(bad: Sequence[BadRecord]) -> tuple[BadRecord, ...]:
    """The records of one step, of each partition the first `APART` and one that stands for the rest.

    That one may be behind any damage of its relation, so it says no transaction.
    """
    found: list[BadRecord] = []
    for _, mine in itertools.groupby(sorted(bad, key=_place), key=lambda one: _place(one)[:2]):
        first, rest = (records := list(mine))[:APART], records[APART:]
        found += first
        if len(rest) > 1:
            error = {
                **rest[0].error,
                "code": "SOURCE_MANY_BAD",
                "what": f"{len(rest)} more records cannot be used; the first: {rest[0].error['what']}",
                "where": f"topic {rest[0].topic}, partition {rest[0].partition}, "
                f"offset {rest[0].offset} to {rest[-1].offset}",
            }
            rest = [replace(rest[0], error=error, transaction=None)]
        found += rest
    return tuple(found)


def _place(record: BadRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


@dataclass(frozen=True)
class Decoded:
    """One batch of events, decoded.

    Attributes:
        rows: per relation, in topic order: partition, offset, op (c u d r t), transaction, position
            (int64 LSN), total_order, toast (positions whose value an earlier row of the transaction
            holds, else null), missing and unfit (positions of columns that the event does not name,
            or whose value does not fit and is NULL; null when all is right), prints (of the unfit
            columns, see `rowquery`), before b0.. and
            after a0.. in the relation's types.
        transactions: per source: offset, status, transaction, position, committed_ms, counts
            (list of struct collection, count; null in a BEGIN).
        notifications: per source, the notifications' JSON in order.
        versions: per source, the connector's version as the batch's first event says it.
        bad: what could not be used.
        ignored: tombstones, logical messages (op m) and heartbeats.
        fields: per relation, the columns that the batch's last event names.
        times: per source whose events say no transaction, when the newest of them committed,
            milliseconds since 1970, where they say it.
        lost: one record for each column that cannot be read any more, told the first time only.
        notices: what else a person should know of the columns, each once.
    """

    rows: dict[str, pa.Table] = field(default_factory=dict)
    transactions: dict[str, pa.Table] = field(default_factory=dict)
    notifications: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    bad: tuple[BadRecord, ...] = ()
    ignored: int = 0
    fields: dict[str, frozenset[str]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    lost: tuple[BadRecord, ...] = ()
    notices: tuple[str, ...] = ()


def by_topic(batch: pa.Table) -> dict[str, pa.Table]:
    """The batch cut by topic, in order; without copying where a topic's records lie together."""
    topics = batch["topic"].combine_chunks()
    if isinstance(topics, pa.ChunkedArray):
        topics = pa.concat_arrays(topics.chunks)
    encoded = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    if not len(codes):
        return {}
    edges = np.flatnonzero(np.diff(codes)) + 1
    starts = np.concatenate(([0], edges))
    if len(starts) > 64 * len(encoded.dictionary):
        order = np.argsort(codes, kind="stable")
        batch, codes = batch.take(pa.array(order)), codes[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1))
    stops = np.concatenate((starts[1:], [len(codes)]))
    parts: dict[str, list[pa.Table]] = {}
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        topic = encoded.dictionary[codes[start]].as_py()
        parts.setdefault(topic, []).append(batch.slice(start, stop - start))
    return {topic: pa.concat_tables(tables) for topic, tables in parts.items()}


def in_order(table: pa.Table) -> pa.Table:
    """The table by (partition, offset): already so, as a rule."""
    partitions = table["partition"].to_numpy()
    offsets = table["offset"].to_numpy()
    step = np.diff(partitions)
    if ((step > 0) | ((step == 0) & (np.diff(offsets) > 0))).all():
        return table
    return table.take(pa.array(np.lexsort((offsets, partitions))))


def bad_record(
    topic: str,
    partition: int,
    offset: int,
    code: str,
    what: str,
    *,
    todo: str = "correct the producer; where nothing is lost by this record, "
    "`fresco skip TOPIC PARTITION OFFSET --reason WHY`",
    source: str | None = None,
    relation: str | None = None,
    transaction: str | None = None,
) -> BadRecord:
    """A bad record whose error says its place."""
    where = f"topic {topic}, partition {partition}, offset {offset}"
    todo = todo.replace("TOPIC PARTITION OFFSET", f"{topic} {partition} {offset}")
    error = FrescoError(code, f"the record {what}", where=where, todo=todo).as_dict()
    return BadRecord(topic, partition, offset, error, source, relation, transaction)


def fault(
    captured: CapturedRelation, partition: int, offset: int, transaction: str | None, fault: str
) -> BadRecord:
    code, what, todo = fault.split("\n")
    names = {"source": captured.source, "relation": captured.relation.name}
    return bad_record(
        captured.topic,
        partition,
        offset,
        code,
        what,
        transaction=transaction,
        **names,
        **({"todo": todo} if todo else {}),
    )


def unknown(topic: str, records: pa.Table) -> Iterable[BadRecord]:
    pairs = zip(records["partition"].to_pylist(), records["offset"].to_pylist(), strict=True)
    for partition, offset in pairs:
        yield bad_record(
            topic,
            partition,
            offset,
            "SOURCE_RELATION_UNKNOWN",
            "belongs to no captured relation",
            todo="add the table to the source's configuration, or leave the topic out",
        )


def strangers(captured: CapturedRelation, texts: pa.Table) -> Iterable[BadRecord]:
    """Records without an `op`: flattened ones are named as such."""
    columns = {column.name for column in captured.relation.schema}
    names = {"source": captured.source, "relation": captured.relation.name}
    for partition, offset, text in zip(*(c.to_pylist() for c in texts.columns), strict=True):
        event = json.loads(text)
        event = event.get("payload", event) if isinstance(event, dict) else event
        if isinstance(event, dict) and columns & event.keys():
            yield bad_record(
                captured.topic,
                partition,
                offset,
                "SOURCE_FLATTENED",
                "is flattened: it has a row's columns and no envelope",
                todo="take the ExtractNewRecordState transform out of the connector",
                **names,
            )
        else:
            what = "is not a Debezium change event"
            yield bad_record(
                captured.topic, partition, offset, "SOURCE_NOT_AN_EVENT", what, **names
            )
