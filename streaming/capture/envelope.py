"""Debezium's messages in JSON, as its MySQL connector writes them (seen with 3.6.1; DESIGN 6).

A change event has the row before and after, its source's place, and its transaction; a changed primary
key is a delete, a tombstone and an insert. BEGIN and END of each transaction go to
`<prefix>.transaction`, what a snapshot has done to `<prefix>.notifications`, statements that alter tables
to `<prefix>`. END has one field more than Debezium's, `end`, where the transaction ends in the log: a
state of the source is named by such a place, and an answer at it need not wait for the next transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming.ask.mariadb.mysql_state import LogPlace

VERSION = "3.6.1-fresco"
"""The version of the format, which tells a reader how passes and counts are to be understood."""
Message = tuple[str, bytes | None, bytes | None]
"""Topic, key, value."""


@dataclass(frozen=True)
class CapturedTable:
    """A captured table: its topic, its name in counts ("bank.entry"), its primary key's columns."""

    database: str
    name: str
    topic: str
    key: tuple[str, ...]

    @property
    def collection(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class RowOrigin:
    """Where a row comes from: its event's place, the row in it, when, and which transaction."""

    at: LogPlace
    row: int
    server: int
    ms: int
    gtid: str = ""
    snapshot: str = "false"


class Envelope:
    """Writes the messages of one source.

    Args:
        prefix: the topics' prefix, Debezium's `topic.prefix`.
        notifications: the topic of words about the snapshot.
    """

    def __init__(self, prefix: str, notifications: str) -> None:
        self.prefix = prefix
        self.transaction_topic = f"{prefix}.transaction"
        self.notification_topic = notifications

    # Rows -----------------------------------------------------------------------------------------

    def change(
        self,
        table: CapturedTable,
        op: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        origin: RowOrigin,
        transaction: Mapping[str, Any] | None,
        schema: str = "",
    ) -> Message:
        """One event; under its schema part where there is one."""
        event = {
            "before": before,
            "after": after,
            "source": {
                "version": VERSION,
                "connector": "mysql",
                "name": self.prefix,
                "ts_ms": origin.ms,
                "snapshot": origin.snapshot,
                "db": table.database,
                "sequence": None,
                "ts_us": origin.ms * 1000,
                "ts_ns": origin.ms * 1_000_000,
                "table": table.name,
                "server_id": origin.server,
                "gtid": origin.gtid or None,
                "file": origin.at.file,
                "pos": origin.at.offset,
                "row": origin.row,
                "thread": None,
                "query": None,
            },
            "transaction": transaction,
            "op": op,
            "ts_ms": origin.ms,
            "ts_us": origin.ms * 1000,
            "ts_ns": origin.ms * 1_000_000,
        }
        image = after if before is None else before
        value = _json(event)
        if schema:
            value = b'{"schema":%b,"payload":%b}' % (schema.encode(), value)
        return table.topic, key_of(table, image), value

    def tombstone(self, table: CapturedTable, image: Mapping[str, Any]) -> Message:
        """What follows a delete."""
        return table.topic, key_of(table, image), None

    # Transactions ---------------------------------------------------------------------------------

    def begin(self, id_: str, ms: int) -> Message:
        """BEGIN of a transaction."""
        return self._transaction("BEGIN", id_, ms, None, {})

    def end(self, id_: str, ms: int, counts: Mapping[str, int], end: LogPlace) -> Message:
        """END of a transaction that ends at `end`, with its events by collection."""
        return self._transaction(
            "END", id_, ms, counts, {"end": {"file": end.file, "pos": end.offset}}
        )

    def passed(self, at: LogPlace, ms: int) -> Iterator[Message]:
        """An empty transaction that ends at `at`: the log has got so far, without a captured row.

        Its id is its last byte's place, where no transaction begins.
        """
        id_ = transaction_id(LogPlace(at.file, at.offset - 1))
        yield self.begin(id_, ms)
        yield self.end(id_, ms, {}, at)

    def _transaction(
        self, status: str, id_: str, ms: int, counts: Mapping[str, int] | None, more: dict[str, Any]
    ) -> Message:
        collections = None
        if counts is not None:
            collections = [
                {"data_collection": name, "event_count": count} for name, count in counts.items()
            ]
        event = {
            "status": status,
            "id": id_,
            "event_count": None if counts is None else sum(counts.values()),
            "data_collections": collections,
            "ts_ms": ms,
            **more,
        }
        return self.transaction_topic, _json({"id": id_}), _json(event)

    # Snapshots and statements ---------------------------------------------------------------------

    def notification(self, id_: str, type_: str, ms: int, **data: str) -> Message:
        """A word about the initial snapshot."""
        event = {
            "id": id_,
            "aggregate_type": "Initial Snapshot",
            "type": type_,
            "additional_data": {"connector_name": self.prefix, **data},
            "timestamp": ms,
        }
        return self.notification_topic, _json({"id": id_}), _json(event)

    def ddl(self, database: str, text: str, origin: RowOrigin) -> Message:
        """A statement that may have altered tables; the events after it show what it did."""
        event = {
            "source": {
                "version": VERSION,
                "connector": "mysql",
                "name": self.prefix,
                "ts_ms": origin.ms,
                "snapshot": "false",
                "db": database,
                "server_id": origin.server,
                "gtid": origin.gtid or None,
                "file": origin.at.file,
                "pos": origin.at.offset,
                "row": 0,
            },
            "ts_ms": origin.ms,
            "databaseName": database,
            "schemaName": None,
            "ddl": text,
            "tableChanges": [],
        }
        return self.prefix, _json({"databaseName": database}), _json(event)


def transaction_id(begin: LogPlace) -> str:
    """How the connector names a transaction: by where it begins."""
    return f"file={begin.file},pos={begin.offset}"


def place_of(id_: str, order: int, of_table: int) -> dict[str, Any]:
    """An event's transaction block."""
    return {"id": id_, "total_order": order, "data_collection_order": of_table}


def key_of(table: CapturedTable, image: Mapping[str, Any] | None) -> bytes | None:
    """The record's key: the primary key's columns; None without one."""
    if not table.key or image is None:
        return None
    return _json({name: image.get(name) for name in table.key})


def key_changed(key: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an update moved its row to another primary key."""
    return any(before.get(name) != after.get(name) for name in key)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
