"""A source's log as Debezium would publish it, for tests: topics of JSON events with transactions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Record = tuple[str, str | None]
"""Topic and value; None is a tombstone."""

RECORDS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


@dataclass
class Topics:
    """Gives each record its place, as a broker would.

    Attributes:
        ends: topic -> the next offset.
        truncates: the partition of events that have no key.
    """

    ends: dict[str, int] = field(default_factory=dict)
    truncates: int = 0

    def batch(self, records: Iterable[Record | tuple[str, bytes]]) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for topic, value in records:
            raw = value.encode() if isinstance(value, str) else value
            partition = self.truncates if raw and b'"op": "t"' in raw else 0
            place = f"{topic}/{partition}" if partition else topic
            offset = self.ends.get(place, 0)
            self.ends[place] = offset + 1
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "key": None,
                    "value": raw,
                }
            )
        return pa.Table.from_pylist(rows, schema=RECORDS)


@dataclass
class SourceLog:
    """Writes transactions of one PostgreSQL source in commit order."""

    name: str
    version: str = "3.6.1.Final"
    lsn: int = 1000
    transaction: int = 700

    def topic(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def row(
        self,
        table: str,
        op: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        *,
        key: str | None = None,
        order: int | None = None,
        lsn: int | None = None,
        passing: bool = False,
    ) -> Record:
        """One event; `order` None and op r make a snapshot row, `passing` an incremental one's."""
        at = self.lsn if lsn is None else lsn
        place = None
        if key is not None:
            place = {"id": f"{key}:{at}", "total_order": order, "data_collection_order": order}
        event = {
            "before": before,
            "after": after,
            "source": {
                "version": self.version,
                "connector": "postgresql",
                "name": self.name,
                "snapshot": "incremental" if passing else "true" if op == "r" else "false",
                "table": table,
                "lsn": None if passing else at,
                "ts_ms": at,
            },
            "transaction": place,
            "op": op,
            "ts_ms": 1,
        }
        return (self.topic(table), json.dumps(event))

    def begin(self, key: str) -> Record:
        event = {"status": "BEGIN", "id": f"{key}:{self.lsn}", "ts_ms": self.lsn}
        return (f"{self.name}.transaction", json.dumps(event))

    def end(self, key: str, counts: dict[str, int], lsn: int | None = None) -> Record:
        event = {
            "status": "END",
            "id": f"{key}:{self.lsn if lsn is None else lsn}",
            "event_count": sum(counts.values()),
            "data_collections": [
                {"data_collection": f"public.{table}", "event_count": count}
                for table, count in counts.items()
            ],
            "ts_ms": self.lsn,
        }
        return (f"{self.name}.transaction", json.dumps(event))

    def commit(
        self, changes: Sequence[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]
    ) -> list[Record]:
        """A transaction of (table, op, before, after): BEGIN, its events, END."""
        self.transaction += 1
        key = str(self.transaction)
        records = [self.begin(key)]
        counts: dict[str, int] = {}
        for order, (table, op, before, after) in enumerate(changes, 1):
            self.lsn += 10
            counts[table] = counts.get(table, 0) + 1
            records.append(self.row(table, op, before, after, key=key, order=order))
        self.lsn += 10
        return [*records, self.end(key, counts)]

    def note(self, type_: str, kind: str = "Initial Snapshot", **data: str) -> Record:
        event = {
            "type": type_,
            "aggregate_type": kind,
            "additional_data": data,
            "timestamp": self.lsn,
        }
        return (f"{self.name}.notifications", json.dumps(event))

    def scanned(self, counts: dict[str, int]) -> list[Record]:
        """The notifications of a whole snapshot."""
        notes = [self.note("STARTED")]
        for table, count in counts.items():
            notes.append(
                self.note(
                    "TABLE_SCAN_COMPLETED",
                    scanned_collection=f"public.{table}",
                    total_rows_scanned=str(count),
                )
            )
        return [*notes, self.note("COMPLETED")]
