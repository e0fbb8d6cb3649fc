"""Debezium's JSON events as typed columns, each event parsed once (DESIGN 6).

DuckDB reads the fields of all events of a topic as text in one vectorised pass (`from_json`); `values`
casts them by the column's database type. An event that is not right becomes a `BadRecord` that names
its place and its transaction where that can still be read, and the others go on. Events come with or
without Kafka Connect's schema part; the first of a topic tells which, and one of the other kind is
read again. Optimism pays: a text that is not JSON makes DuckDB refuse the batch, and only then is
each text checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.captured.retyped import by_schema
from streaming.cdc.glance import fields_of, is_wrapped, version
from streaming.cdc.judgement import faults
from streaming.cdc.records import (
    BadRecord,
    Decoded,
    bad_record,
    by_topic,
    fault,
    in_order,
    strangers,
    unknown,
)
from streaming.cdc.row_query import READ, finish_rows, row_query, row_schema
from streaming.engines.duck.kept_plans import TextPlans
from streaming.engines.duck_engine import duck_engine

THREADS = 2
CHUNK = 8192
"""Rows of an Arrow batch handed to DuckDB: its threads take one batch at a time."""


class Decoder:
    """Decodes batches of Kafka records of the captured topics.

    Args:
        relations: what is captured; other topics are refused record by record.
        sources: their sources; by default one for each source name, whose prefix is its name.
        engine: a DuckDB that nobody uses meanwhile; by default one of its own.
    """

    def __init__(
        self,
        relations: Sequence[CapturedRelation],
        sources: Sequence[CapturedSource] = (),
        engine: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        names = dict.fromkeys(relation.source for relation in relations)
        self.sources = {s.name: s for s in sources or [CapturedSource(n, n) for n in names]}
        self._relations = {relation.topic: relation for relation in relations}
        self._transaction_topics = {s.transaction_topic: s for s in self.sources.values()}
        self._notification_topics = {s.notification_topic: s for s in self.sources.values()}
        self._ignored = {t for s in self.sources.values() for t in s.ignored_topics}
        self.duck = engine or duck_engine(THREADS)
        """The engine, which keeps no rows between two steps; its owner's statements may use it too."""
        self.duck.execute("SET TimeZone = 'UTC'")
        self._plans = TextPlans(self.duck)

    def decode(self, batch: pa.Table) -> Decoded:
        """Decode records (topic, partition int32, offset int64, key, value binary or string).

        Returns:
            The decoded batch; this never raises for what a record contains.
        """
        rows: dict[str, pa.Table] = {}
        transactions: dict[str, pa.Table] = {}
        notifications: dict[str, tuple[dict[str, Any], ...]] = {}
        versions: dict[str, str] = {}
        fields: dict[str, frozenset[str]] = {}
        times: dict[str, int] = {}
        bad: list[BadRecord] = []
        ignored = 0
        for topic, records in by_topic(batch).items():
            present = records
            if records["value"].null_count:
                present = records.filter(pc.is_valid(records["value"]))
            ignored += records.num_rows - present.num_rows
            if topic in self._ignored:
                ignored += present.num_rows
            elif not present.num_rows:
                continue
            elif topic in self._relations:
                captured = self._relations[topic]
                texts = self._texts(topic, in_order(present), bad)
                table, messages = self._rows(captured, texts, bad, times)
                ignored += messages
                rows[captured.relation.name] = table
                versions.setdefault(captured.source, version(texts))
                fields[captured.relation.name] = fields_of(texts)
            elif topic in self._transaction_topics:
                source = self._transaction_topics[topic]
                texts = self._texts(topic, in_order(present), bad)
                transactions[source.name] = self._transactions(source, texts, bad)
            elif topic in self._notification_topics:
                source = self._notification_topics[topic]
                texts = self._texts(topic, in_order(present), bad)
                notifications[source.name] = tuple(_notifications(topic, texts, bad))
            else:
                bad.extend(unknown(topic, present))
        found = Decoded(rows, transactions, notifications, versions, tuple(bad), ignored, fields)
        return replace(found, times=times)

    # Texts ----------------------------------------------------------------------------------------

    def _texts(self, topic: str, records: pa.Table, bad: list[BadRecord]) -> pa.Table:
        """(p, o, v): partition, offset and the value as UTF-8 text, in DuckDB's chunks."""
        values = records["value"]
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            keep = np.array([_is_utf8(value.as_py()) for value in values])
            bad.extend(self._bad(topic, records, ~keep, "SOURCE_NOT_UTF8", "is not UTF-8 text"))
            records = records.filter(pa.array(keep))
            texts = records["value"].cast(pa.string())
        table = pa.table({"p": records["partition"], "o": records["offset"], "v": texts})
        return _chunked(table)

    def _bad(
        self, topic: str, records: pa.Table, mask: np.ndarray, code: str, what: str
    ) -> Iterable[BadRecord]:
        captured = self._relations.get(topic)
        source = captured.source if captured else None
        name = captured.relation.name if captured else None
        names = ("partition", "offset") if "partition" in records.column_names else ("p", "o")
        chosen = records.select(names).filter(pa.array(mask))
        pairs = zip(chosen[names[0]].to_pylist(), chosen[names[1]].to_pylist(), strict=True)
        for partition, offset in pairs:
            yield bad_record(topic, partition, offset, code, what, source=source, relation=name)

    def _query(
        self, topic: str, texts: pa.Table, sql: str, bad: list[BadRecord]
    ) -> tuple[pa.Table, pa.Table]:
        """Run `sql` over `texts`; what is not JSON goes to `bad`, then the rest is run."""
        try:
            return self._plans.run(sql, texts), texts
        except duckdb.Error:
            checked = self._plans.run("SELECT p, o, json_valid(v) AS ok FROM texts", texts)
            keep = checked["ok"].to_numpy()
            if keep.all():
                raise
            bad.extend(self._bad(topic, checked, ~keep, "SOURCE_NOT_JSON", "is not JSON"))
            texts = _chunked(texts.filter(pa.array(keep)))
            return self._plans.run(sql, texts), texts

    # Rows -----------------------------------------------------------------------------------------

    def _rows(
        self,
        captured: CapturedRelation,
        texts: pa.Table,
        bad: list[BadRecord],
        times: dict[str, int],
    ) -> tuple[pa.Table, int]:
        """A topic's rows, and how many logical messages were among its records."""
        parts = [
            self._rows_of_one_schema(captured, part, retyped, bad, times)
            for part, retyped in by_schema(captured, texts)
        ]
        if len(parts) == 1:
            return parts[0]
        empty = row_schema(captured).empty_table()
        return in_order(pa.concat_tables([empty, *(table for table, _ in parts)])), sum(
            messages for _, messages in parts
        )

    def _rows_of_one_schema(
        self,
        captured: CapturedRelation,
        texts: pa.Table,
        retyped: tuple[int, ...],
        bad: list[BadRecord],
        times: dict[str, int],
    ) -> tuple[pa.Table, int]:
        log = self.sources[captured.source].log
        metadata = self.sources[captured.source].transactions == "metadata"
        wrapped = is_wrapped(texts)
        found: list[pa.Table] = []
        for form in (wrapped, not wrapped):
            if found and not texts.num_rows:
                break
            sql = row_query(captured, log, form, not metadata, bool(retyped))
            table, texts = self._query(captured.topic, texts, sql, bad)
            without = pc.is_null(table["op"])
            if not table["op"].null_count:
                found.append(table)
                texts = texts.slice(0, 0)
                break
            found.append(table.filter(pc.invert(without)))
            # DuckDB keeps the order of its input, so the mask fits the texts too.
            texts = _chunked(texts.filter(without))
        bad.extend(strangers(captured, texts))
        raw = in_order(pa.concat_tables(found).rename_columns({"p": "partition", "o": "offset"}))
        messages = pc.equal(raw["op"], "m")
        raw = raw.filter(pc.invert(messages))
        if not metadata:
            streamed = pc.invert(pc.is_in(raw["op"], pa.array(READ)))
            newest = pc.max(raw["committed_ms"].filter(streamed)).as_py()
            if newest is not None:
                times[captured.source] = max(newest, times.get(captured.source, newest))
        table = finish_rows(captured, raw, metadata, retyped)
        found_wrong = faults(captured, raw, table, metadata, log)
        if found_wrong is not None:
            wrong = pc.is_valid(found_wrong)
            columns = ("partition", "offset", "transaction")
            chosen = [raw[name].filter(wrong).to_pylist() for name in columns]
            codes = found_wrong.filter(wrong).to_pylist()
            for partition, offset, transaction, code in zip(*chosen, codes, strict=True):
                bad.append(fault(captured, partition, offset, transaction, code))
            table = table.filter(pc.invert(wrong))
        return table, pc.sum(messages).as_py() or 0

    # Transactions ---------------------------------------------------------------------------------

    def _transactions(
        self, source: CapturedSource, texts: pa.Table, bad: list[BadRecord]
    ) -> pa.Table:
        shape: dict[str, Any] = {
            "status": "VARCHAR",
            "id": "VARCHAR",
            "ts_ms": "BIGINT",
            "data_collections": [{"data_collection": "VARCHAR", "event_count": "BIGINT"}],
        }
        shape |= source.log.end
        key, position = source.log.transaction.format(id="e.id"), source.log.end_position
        wrapped = is_wrapped(texts)
        top = "j.payload" if wrapped else "j"
        structure = json.dumps({"payload": shape} if wrapped else shape)
        sql = (
            f'SELECT p AS "partition", o AS "offset", e.status AS status, {key} AS "transaction", '
            f"{position} AS position, e.ts_ms AS committed_ms, e.data_collections AS counts "
            f"FROM (SELECT p, o, {top} AS e FROM "
            f"(SELECT p, o, from_json(v, '{structure}') AS j FROM texts))"
        )
        topic = source.transaction_topic
        table, _ = self._query(topic, texts, sql, bad)
        right = pc.and_(
            pc.is_in(table["status"], pa.array(["BEGIN", "END"])),
            pc.and_(pc.is_valid(table["position"]), pc.not_equal(table["transaction"], "")),
        )
        keep = pc.fill_null(right, False).to_numpy()
        if not keep.all():
            what = "is not a BEGIN or END of a transaction"
            for wrong in self._bad(topic, table, ~keep, "SOURCE_TRANSACTION_BAD", what):
                bad.append(wrong)
            table = table.filter(pa.array(keep))
        return table


def _chunked(table: pa.Table) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=CHUNK), schema=table.schema)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _notifications(topic: str, texts: pa.Table, bad: list[BadRecord]) -> Iterable[dict[str, Any]]:
    for partition, offset, text in zip(*(c.to_pylist() for c in texts.columns), strict=True):
        try:
            event = json.loads(text)
            event = event.get("payload", event)
            kind = event.get("aggregate_type") or "Initial Snapshot"
            said = {**(event.get("additional_data") or {})}
            at = event.get("timestamp")
            if event["type"] == "TABLE_SCAN_COMPLETED":
                rows = int(said.get("total_rows_scanned", 0))
                said = {
                    "scanned_collection": said["scanned_collection"],
                    "total_rows_scanned": rows,
                }
            at = None if at is None else int(at)
            yield {**said, "type": event["type"], "aggregate_type": kind, "timestamp": at}
        except (ValueError, KeyError, TypeError, AttributeError):
            what = "is not a Debezium notification"
            bad.append(bad_record(topic, partition, offset, "SOURCE_NOTIFICATION_BAD", what))
