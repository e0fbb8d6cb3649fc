"""Records real Debezium events for the tests that have no database: `debezium/*.jsonl`.

Run it as `python tests/golden/record_debezium.py [bank] [bank_with_schema] [types]
[types_precise]`. It starts the embedded stack, makes the changes listed below, and writes every
record of the connectors' topics but heartbeats, one JSON object a line: topic, partition, offset,
key, value (text or null), in the order of their Kafka timestamps.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from kafka import KafkaConsumer, TopicPartition

from streaming.demo.bank import create_bank
from streaming.demo.embedded.parts import DATABASES, StackSource
from streaming.demo.embedded.stack import Stack

TARGET = Path(__file__).parent / "debezium"
ACCOUNTS = 3

# Each text is one transaction; they run in this order, one after the other.
NORTH_BEFORE_CAPTURE = ("INSERT INTO entry VALUES (101, 1, -5.00), (102, 2, 5.00)",)
NORTH_LOCAL = (
    "INSERT INTO entry VALUES (201, 1, -12.50), (202, 2, 12.50)",
    "UPDATE account SET branch = 'Cork' WHERE id = 1",
    "UPDATE account SET id = 33 WHERE id = 3; UPDATE entry SET account = 33 WHERE account = 3",
    "INSERT INTO account VALUES (4, 'Åse \"quoted\" 🙂', NULL), (5, '', 'Cork'), (6, 'x', 'y')",
    "UPDATE entry SET amount = amount * 2 WHERE id IN (201, 202)",
    "DELETE FROM entry WHERE id IN (201, 202)",
)
SOUTH_LOCAL = (
    "INSERT INTO entry VALUES (301, 2, -0.01), (302, 3, 0.01)",
    "TRUNCATE entry",
    "INSERT INTO entry VALUES (303, 2, -7.00), (304, 3, 7.00); DELETE FROM account WHERE id = 1",
)
GLOBAL_NORTH = (
    "INSERT INTO entry VALUES (401, 1, -99.99); INSERT INTO fresco_global VALUES ('g-1', 2)"
)
GLOBAL_SOUTH = (
    "INSERT INTO fresco_global VALUES ('g-1', 2); INSERT INTO entry VALUES (401, 2, 99.99)"
)
LAST = "INSERT INTO account VALUES (1000, 'last', 'last')"

TYPES_TABLE = """
CREATE TABLE odd (
    id int PRIMARY KEY, n_free numeric, n_wide numeric(38,10), n_money numeric(18,2),
    at_zone timestamptz, at_wall timestamp, at_milli timestamp(3), on_day date, at_time time,
    flag boolean, i2 smallint, i4 int, i8 bigint, f4 real, f8 double precision,
    words text, limited varchar(10), padded char(4), bytes bytea, uid uuid, doc jsonb,
    doc_text json, "Mixed Case, name" text
);
ALTER TABLE odd REPLICA IDENTITY FULL;
"""
TYPES_ROWS = (
    """(%d, 123.4500, 1234567890123456789012345678.0123456789, -12.30,
        '2024-02-29 12:00:00.123456+02', '2024-02-29 12:00:00.123456', '2024-02-29 12:00:00.123',
        '2024-02-29', '23:59:59.999999', true, -32768, 2147483647, 9223372036854775807, 0.1, 0.1,
        'text ''quoted'' é 🙂', 'varying', 'ab', '\\x00ff10',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '{"b": [1, 2.50], "a": null}', '{"b":  1, "a": 2}', 'mixed')""",
    """(%d, 'NaN', 0.0000000001, 0.00,
        'infinity', 'infinity', '-infinity', 'infinity', '00:00:00',
        false, 0, 0, 0, 'NaN', 'Infinity', '', '', '', '', NULL, 'null', '[]', '')""",
    """(%d, -1e-20, -0.5, NULL,
        '-infinity', '1969-12-31 23:59:59.999999', '0001-01-01 00:00:00', '0001-01-01', NULL,
        NULL, NULL, -1, -9223372036854775808, '-Infinity', 'NaN', NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL)""",
    """(%d, 1e30, NULL, 9999999999999999.99,
        '1900-01-01 00:00:00+00', '9999-12-31 23:59:59', NULL, '9999-12-31', '12:00:00',
        NULL, NULL, NULL, NULL, 16777216.0, 5e-324, E'line\\nbreak', NULL, NULL, NULL, NULL,
        '"text"', 'true', NULL)""",
)


def run_transaction(dsn: str, statements: str) -> int:
    """Run `statements` as one transaction; its 32-bit transaction id."""
    with psycopg.connect(dsn) as connection:
        for statement in statements.split("; "):
            connection.execute(statement)
        row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert row is not None
    return int(row[0]) % 2**32


class Recorder:
    """Reads the topics of `sources` from their beginning until what is awaited has come."""

    def __init__(self, stack: Stack, sources: tuple[StackSource, ...]) -> None:
        self.records: list[dict[str, Any]] = []
        self._consumer = KafkaConsumer(bootstrap_servers=stack.bootstrap, fetch_max_wait_ms=10)
        topics = [
            topic
            for source in sources
            for topic in source.topics
            if topic != source.heartbeat_topic
        ]
        partitions = [TopicPartition(topic, 0) for topic in topics]
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(*partitions)

    def await_record(self, topic: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Read on until a record of `topic` has a payload that `wanted` accepts."""
        for _ in range(600):
            if any(
                record["topic"] == topic and record["value"] and wanted(payload(record["value"]))
                for record in self.records
            ):
                return
            self._read()
        raise TimeoutError(f"nothing awaited came in {topic}")

    def await_transaction(self, source: StackSource, txid: int, topic: str) -> None:
        """Read on until END of `txid` and its event in `topic` are there."""
        self.await_record(
            source.transaction_topic,
            lambda value: value["status"] == "END" and value["id"].split(":")[0] == str(txid),
        )
        self.await_record(topic, lambda value: value["source"]["txId"] == txid)

    def _read(self) -> None:
        for messages in self._consumer.poll(timeout_ms=100).values():
            for message in messages:
                self.records.append(
                    {
                        "topic": message.topic,
                        "partition": message.partition,
                        "offset": message.offset,
                        "key": message.key.decode() if message.key else None,
                        "value": message.value.decode() if message.value else None,
                        "timestamp": message.timestamp,
                    }
                )

    def write(self, path: Path) -> None:
        """Write what was read, timestamps left out, and end."""
        self._consumer.close()
        ordered = sorted(self.records, key=lambda record: record["timestamp"])
        with open(path, "w", encoding="utf-8") as file:
            for record in ordered:
                line = {key: value for key, value in record.items() if key != "timestamp"}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{path.name}: {len(ordered)} records, {path.stat().st_size} bytes")


def payload(text: str) -> dict[str, Any]:
    """The event itself, with or without the schema part around it."""
    value = json.loads(text)
    return dict(value.get("payload", value))


def snapshot_done(value: dict[str, Any]) -> bool:
    """True for the notification that closes a snapshot."""
    return bool(value["aggregate_type"] == "Initial Snapshot" and value["type"] == "COMPLETED")


def record_bank(with_schema: bool, path: Path) -> None:
    """The bank in two databases: snapshot, local changes of every kind, a global transaction."""
    north, south = (StackSource(name, with_schema=with_schema) for name in DATABASES)
    with tempfile.TemporaryDirectory() as folder, Stack(folder) as stack:
        for name in DATABASES:
            create_bank(stack.dsn(name), ACCOUNTS)
        for statements in NORTH_BEFORE_CAPTURE:
            run_transaction(stack.dsn("north"), statements)
        stack.capture((north, south))
        recorder = Recorder(stack, (north, south))
        for source in (north, south):
            recorder.await_record(source.notification_topic, snapshot_done)
        for statements in NORTH_LOCAL:
            run_transaction(stack.dsn("north"), statements)
        run_transaction(stack.dsn("north"), GLOBAL_NORTH)
        for statements in (SOUTH_LOCAL[0], GLOBAL_SOUTH, *SOUTH_LOCAL[1:]):
            run_transaction(stack.dsn("south"), statements)
        for source in (north, south):
            last = run_transaction(stack.dsn(source.name), LAST)
            recorder.await_transaction(source, last, source.row_topics[0])
        recorder.write(path)


def record_types(options: tuple[tuple[str, str], ...], path: Path) -> None:
    """One table of odd types: the same rows once in the snapshot, once streamed, then changed."""
    source = StackSource("north", tables=("public.odd",), with_schema=True, options=options)
    with tempfile.TemporaryDirectory() as folder, Stack(folder) as stack:
        run_transaction(stack.dsn("north"), TYPES_TABLE)
        insert = "INSERT INTO odd VALUES " + ", ".join(TYPES_ROWS)
        run_transaction(stack.dsn("north"), insert % (1, 2, 3, 4))
        stack.capture((source,))
        recorder = Recorder(stack, (source,))
        recorder.await_record(source.notification_topic, snapshot_done)
        run_transaction(stack.dsn("north"), insert % (11, 12, 13, 14))
        run_transaction(stack.dsn("north"), "UPDATE odd SET i4 = 7 WHERE id IN (11, 12, 13)")
        last = run_transaction(stack.dsn("north"), "DELETE FROM odd WHERE id = 14")
        recorder.await_transaction(source, last, source.row_topics[0])
        recorder.write(path)


RECORDINGS: dict[str, Callable[[Path], None]] = {
    "bank": lambda path: record_bank(False, path),
    "bank_with_schema": lambda path: record_bank(True, path),
    "types": lambda path: record_types((), path),
    "types_precise": lambda path: record_types((("decimal.handling.mode", "precise"),), path),
}


def main() -> None:
    """Record what the command line names, or everything."""
    TARGET.mkdir(exist_ok=True)
    for name in sys.argv[1:] or RECORDINGS:
        RECORDINGS[name](TARGET / f"{name}.jsonl")


if __name__ == "__main__":
    main()
