"""The embedded stack for real: databases at work, captured by Debezium into Kafka, started twice.

The topics are judged by replaying them: the rows they add up to must be the rows of the databases.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any

import psycopg
import pytest
from kafka import KafkaConsumer, TopicPartition
from psycopg.rows import dict_row
from services import until

from streaming.demo.bank import BULK_FIRST_ID, bulk_transfers, create_bank
from streaming.demo.bank_workload import Workload
from streaming.demo.embedded.parts import BANK_TABLES, DATABASES, StackSource, bank_sources
from streaming.demo.embedded.stack import Stack
from streaming.demo.pace import Pace
from streaming.errors import FrescoError

AHEAD = 600

Record = dict[str, Any]


class Topics:
    """Everything in the topics of `sources`, read on with every call of `read`."""

    def __init__(self, stack: Stack, sources: tuple[StackSource, ...]) -> None:
        self.values: dict[str, list[Record | None]] = defaultdict(list)
        self._consumer = KafkaConsumer(bootstrap_servers=stack.bootstrap, fetch_max_wait_ms=20)
        partitions = [TopicPartition(topic, 0) for one in sources for topic in one.topics]
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(*partitions)

    def read(self) -> Topics:
        """Take in what is there now."""
        for messages in self._consumer.poll(timeout_ms=50, max_records=20_000).values():
            for message in messages:
                value = json.loads(message.value) if message.value else None
                self.values[message.topic].append(value)
        return self

    def rows(self, source: StackSource, table: str) -> dict[Any, Record]:
        """The table's rows by id, as its events add up."""
        found: dict[Any, Record] = {}
        for event in self.values[f"{source.name}.{table}"]:
            if event is None:
                continue
            if event["before"] is not None:
                assert found.pop(event["before"]["id"]) == event["before"]
            if event["after"] is not None:
                found[event["after"]["id"]] = event["after"]
        return found

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


def database_rows(dsn: str, table: str) -> dict[Any, Record]:
    """The table's rows by id, numbers as the events write them."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}".encode())
        rows = [
            {name: str(value) if name == "amount" else value for name, value in row.items()}
            for row in cursor
        ]
    return {row["id"]: row for row in rows}


def in_step(stack: Stack, topics: Topics, sources: tuple[StackSource, ...]) -> bool:
    """True when the topics add up to the databases."""
    topics.read()
    return all(
        topics.rows(source, table) == database_rows(stack.dsn(source.name), table)
        for source in sources
        for table in BANK_TABLES
    )


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that have `folder` in their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stack's folder, shared by the tests of this file in their order."""
    return tmp_path_factory.mktemp("stack")


@pytest.fixture
def stack(folder: Path) -> Iterator[Stack]:
    """The stack with the bank in it, not captured yet."""
    with Stack(folder) as running:
        for name in DATABASES:
            create_bank(running.dsn(name), accounts=20)
        yield running


def test_topics_add_up_to_databases_that_work_before_and_after_capture(stack: Stack) -> None:
    sources = bank_sources()
    dsns = {name: stack.dsn(name) for name in DATABASES}
    pace = Pace(AHEAD)
    workload = Workload(dsns, rate=200, other_share=0.2, seed=20_001, pace=pace).start()
    until(lambda: workload.counters.total() > 100, "work before capture")
    stack.capture()
    pace.read(captured := pace.written)
    until(lambda: pace.written >= captured + AHEAD, "work under capture")
    counters = workload.stop()
    assert {"transfers", "globals", "corrections", "deletions", "renames"} <= counters.keys()

    topics = Topics(stack, sources)
    until(lambda: in_step(stack, topics, sources), "the topics to add up")
    for source in sources:
        snapshot = [value for value in topics.values[source.notification_topic] if value]
        assert snapshot[-1]["type"] == "COMPLETED"
        scanned = {
            value["additional_data"]["scanned_collection"]: int(
                value["additional_data"]["total_rows_scanned"]
            )
            for value in snapshot
            if value["type"] == "TABLE_SCAN_COMPLETED"
        }
        for table in BANK_TABLES:
            events = [event for event in topics.values[f"{source.name}.{table}"] if event]
            assert scanned[table] == sum(event["op"] == "r" for event in events)
        assert_transactions_whole(topics, source)
    topics.close()

    parts = Counter(
        event["after"]["id"]
        for source in sources
        for event in topics.values[f"{source.name}.public.fresco_global"]
        if event
    )
    assert len(parts) == counters["globals"] and set(parts.values()) == {2}
    assert entries_sum(stack) == 0


def assert_transactions_whole(topics: Topics, source: StackSource) -> None:
    """Every transaction has BEGIN and END, and as many row events as END counts."""
    markers = [value for value in topics.values[source.transaction_topic] if value]
    ends = {one["id"].split(":")[0]: one for one in markers if one["status"] == "END"}
    begins = {one["id"].split(":")[0] for one in markers if one["status"] == "BEGIN"}
    assert begins == ends.keys() and len(ends) > 100
    counted: Counter[str] = Counter()
    for table in BANK_TABLES:
        for event in topics.values[f"{source.name}.{table}"]:
            if event is not None and event["op"] != "r":
                assert event["source"]["txId"] == int(event["transaction"]["id"].split(":")[0])
                counted[event["transaction"]["id"].split(":")[0]] += 1
    assert counted == {txid: end["event_count"] for txid, end in ends.items()}


def entries_sum(stack: Stack) -> Any:
    """The sum of all entries of all databases."""
    total = 0
    for name in DATABASES:
        with psycopg.connect(stack.dsn(name)) as connection:
            row = connection.execute("SELECT sum(amount) FROM entry").fetchone()
            total += row[0] if row else 0
    return total


def test_a_second_start_goes_on_without_a_second_snapshot(stack: Stack) -> None:
    sources = bank_sources()
    topics = Topics(stack, sources)
    until(lambda: in_step(stack, topics, sources), "the kept topics")
    topics.close()
    with psycopg.connect(stack.dsn("north")) as connection:
        connection.execute("UPDATE account SET owner = 'while nobody captured' WHERE id = 1")
    stack.capture()
    ask = stack.connect.rest.ask
    ask("PUT", "/connectors/fresco-north/pause")
    with psycopg.connect(stack.dsn("north")) as connection:
        connection.execute("UPDATE account SET owner = 'while paused' WHERE id = 2")
    ask("PUT", "/connectors/fresco-north/resume")
    ask("POST", "/connectors/fresco-south/restart?includeTasks=true")
    stack.connect.wait_running(["fresco-north", "fresco-south"])
    with psycopg.connect(stack.dsn("south")) as connection:
        connection.execute("TRUNCATE fresco_global")
    topics = Topics(stack, sources)

    def all_there() -> bool:
        rows = topics.read().rows(sources[0], "public.account")
        truncated = topics.values["south.public.fresco_global"]
        return (
            rows.get(1, {}).get("owner") == "while nobody captured"
            and rows.get(2, {}).get("owner") == "while paused"
            and bool(truncated)
            and truncated[-1] is not None
            and truncated[-1]["op"] == "t"
        )

    until(all_there, "what happened while capture was away, and after")
    started = [
        value
        for value in topics.values["north.notifications"]
        if value and value["type"] == "STARTED"
    ]
    assert len(started) == 1
    topics.close()


def test_bulk_transfers_are_one_transaction_each_and_sum_to_zero(stack: Stack) -> None:
    bulk_transfers(stack.dsn("north"), 300)
    bulk_transfers(stack.dsn("north"), 200)
    with psycopg.connect(stack.dsn("north")) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT xmin::text), sum(amount) FROM entry WHERE id >= %s",
            [BULK_FIRST_ID],
        ).fetchone()
    assert row == (1000, 500, 0)


def test_a_connector_that_cannot_run_is_an_error_with_its_reason(stack: Stack) -> None:
    by_hand = ("publication.autocreate.mode", "disabled")
    with pytest.raises(FrescoError, match=r"slot\.name.*must contain only") as raised:
        stack.capture([StackSource("north", options=(by_hand, ("slot.name", "Not-A-Slot")))])
    assert raised.value.code == "EMBEDDED_START_FAILED"
    assert raised.value.where == "fresco-north"
    servers = (stack.connect, stack.kafka, stack.postgres)
    assert [server.pid is not None for server in servers] == [False, True, True]

    def ever_fails() -> bool:
        stack.check()
        return False

    with pytest.raises(FrescoError, match=r"(?i)publication") as raised:
        options = (by_hand, ("database.dbname", "north"))
        stack.capture([StackSource("astray", options=options)])
        until(ever_fails, "the failed task")
    assert raised.value.where == "fresco-astray"


def test_a_folder_takes_one_stack_at_a_time_and_stop_leaves_no_process(stack: Stack) -> None:
    with pytest.raises(FrescoError, match="another process"):
        Stack(stack.folder).start()
    stack.check()
    broker = stack.kafka.pid
    assert broker is not None
    os.kill(broker, signal.SIGKILL)
    until(lambda: stack.kafka.pid is None, "the end of the broker")
    with pytest.raises(FrescoError, match="Kafka has ended by itself") as ended:
        stack.check()
    assert ended.value.code == "EMBEDDED_SERVER_ENDED" and ended.value.where == str(stack.logs)
    workload = Workload(
        {name: stack.dsn(name) for name in DATABASES}, rate=200, seed=20_002
    ).start()
    until(lambda: workload.counters.total() > 5, "work before the end")
    assert processes_of(stack.folder)
    stack.stop()
    assert stack.kafka.pid is None and stack.postgres.pid is None
    assert processes_of(stack.folder) == []
    until(lambda: not any(one.name.startswith("teller-") for one in enumerate_threads()), "its end")
    with pytest.raises(FrescoError, match="stopped early") as failed:
        workload.stop()
    assert failed.value.code == "EMBEDDED_WORKLOAD_FAILED"
    assert failed.value.where.startswith("teller-") and failed.value.todo
    assert stack.postgres.password not in str(failed.value)
