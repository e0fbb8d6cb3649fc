"""Snapshots taken again by a real connector, under all modes while people work (oddity 5; DESIGN 5).

A blocking and an incremental one agree with the log, and nothing happens. Then the connector loses its
slot and its offsets, and with them what is written meanwhile: the snapshot that it takes makes it good.
Until then a query would see what the log has lost; so people work beside that.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from conftest import Bank
from kafka import KafkaProducer
from proofs import assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import Pipeline, Process, specified_pipeline, until
from writers import writing

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources

NAME = "again"
SIGNALS = f"{NAME}.signals"
TABLES = """
CREATE TABLE account (id bigint PRIMARY KEY, owner text);
CREATE TABLE entry (id bigint PRIMARY KEY, account bigint, amount numeric(18,2));
ALTER TABLE account REPLICA IDENTITY FULL;
ALTER TABLE entry REPLICA IDENTITY FULL;
CREATE INDEX ON entry (account);
INSERT INTO account SELECT n, 'owner ' || n FROM generate_series(1, 9) n;
INSERT INTO entry SELECT n, 1 + n % 9, n FROM generate_series(1, 300) n;
"""
LOST = """
UPDATE account SET owner = 'renamed' WHERE id = 1;
DELETE FROM entry WHERE id <= 10;
UPDATE entry SET amount = amount + 1 WHERE id BETWEEN 11 AND 20;
INSERT INTO account VALUES (10, 'owner 10');
INSERT INTO entry VALUES (999, 10, 9.99);
"""
JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM again.account a JOIN again.entry e ON e.account = a.id"""
BY_OWNER = """SELECT a.owner, COUNT(*) AS entries, SUM(e.amount) AS total
FROM again.account a JOIN again.entry e ON e.account = a.id GROUP BY a.owner"""
EVERY = 10
"""Transactions between two refreshes."""
VIEWS: Mapping[str, tuple[str, str]] = {
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "by_owner": ("COMPLETE CONSISTENCY USING replica", BY_OWNER),
    "asked": ("STRONG CONSISTENCY USING compensating", JOINED),
    "swept": ("STRONG CONSISTENCY USING sweep", JOINED),
    "by_c_strobe": ("STRONG CONSISTENCY USING c_strobe", JOINED),
    "by_strobe": ("STRONG CONSISTENCY USING strobe", JOINED),
    "by_eca": ("STRONG CONSISTENCY USING eca", JOINED),
    "refreshed": (f"CONVERGENT CONSISTENCY USING recompute EVERY '{EVERY} transactions'", JOINED),
}
IDS = itertools.count(1000)


class Captured:
    """A database of the test's own under a connector that takes signals from a topic."""

    def __init__(self, bank: Bank) -> None:
        stack = bank.stack.stack
        create_databases(stack.dsn(POSTGRES_USER), [NAME])
        self.dsn, self._rest, self._bootstrap = stack.dsn(NAME), stack.connect.rest, bank.bootstrap
        self.run(TABLES)
        signals = {
            "read.only": "true",
            "signal.enabled.channels": "kafka",
            "signal.kafka.topic": SIGNALS,
            "signal.kafka.bootstrap.servers": bank.bootstrap,
            "signal.poll.interval.ms": "200",
        }
        source = StackSource(
            NAME, ("public.account", "public.entry"), options=tuple(signals.items())
        )
        create_topics(bank.bootstrap, [*source.topics, SIGNALS])
        self._connector = source.connector
        password = stack.connect.secret("password")
        reach = {"host": LOOPBACK, "user": POSTGRES_USER, "password": password}
        self._rest.put(self._connector, connector_config(source, port=stack.postgres.port, **reach))
        stack.connect.wait_running([self._connector])

    def run(self, statements: str) -> None:
        """One transaction."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statements.encode())

    def snapshot(self, kind: str) -> None:
        """Ask the connector for one."""
        tables = ["public.account", "public.entry"]
        signal = {
            "id": kind,
            "type": "execute-snapshot",
            "data": {"data-collections": tables, "type": kind},
        }
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        producer.send(SIGNALS, key=NAME.encode(), value=json.dumps(signal).encode()).get(60)
        producer.close()

    def loses_its_slot(self) -> None:
        """The connector stops, forgets, and comes back after people have written."""
        path = f"/connectors/{self._connector}"
        self._rest.ask("PUT", f"{path}/stop")
        until(lambda: self._rest.ask("GET", f"{path}/status")["tasks"] == [], "its end", 60)
        self._rest.ask("DELETE", f"{path}/offsets")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"SELECT pg_drop_replication_slot('fresco_{NAME}')".encode())
        self.run(LOST)
        self._rest.ask("PUT", f"{path}/resume")

    def at_work(self, reader: Pipeline, changing: bool) -> AbstractContextManager[None]:
        """Entries come, and with `changing` also change and go, until the block ends.

        None is of an account that is lost.
        """

        def statements() -> Iterator[str]:
            for number in IDS:
                yield f"INSERT INTO entry VALUES ({number}, {2 + number % 8}, 1)"
                if changing:
                    yield f"UPDATE entry SET amount = 2 WHERE id = {number % 300}"
                    yield f"DELETE FROM entry WHERE id = {number - 20}"

        return writing(reader, self.dsn, statements(), 0.02)


def agrees(service: Process, relations: int, what: str) -> None:
    """Return once so many relations have been compared in all, and were equal.

    An incremental snapshot may be compared in parts.
    """
    until(
        lambda: service.says.count("agrees with what the log") >= relations,
        f"{what} to be compared",
        90,
        service,
    )


def rests(source: Captured, pipeline: Pipeline, service: Process) -> None:
    """Everything is reflected: what changes nothing brings the numbers to the next refresh."""
    last = next(IDS)
    source.run(f"INSERT INTO entry VALUES ({last}, 2, 5)")
    for _ in range(EVERY):
        source.run(f"UPDATE entry SET amount = amount WHERE id = {last}")
    for view in VIEWS:
        if view != "by_owner":
            until(
                lambda view=view: last in [row[0] for row in pipeline.rows(view)],
                f"the last entry in {view}",
                alive=service,
            )


@pytest.mark.timeout(600)
def test_snapshots_taken_again_double_nothing_and_make_good_what_was_lost(
    bank: Bank, tmp_path: Path
) -> None:
    source = Captured(bank)
    tables = {"account": "public.account", "entry": "public.entry"}
    described = {"connection": source.dsn, "decimals": "string", "tables": tables}
    pipeline = specified_pipeline(
        tmp_path / NAME, NAME, VIEWS, bank.environment, sources={NAME: described}
    )
    with pipeline.running() as service:
        until(pipeline.newest, "the first epoch", alive=service)
        with source.at_work(pipeline, changing=True):
            source.snapshot("blocking")
            agrees(service, 2, "a blocking snapshot")
        rests(source, pipeline, service)
        source.snapshot("incremental")  # a connector that is at work meanwhile may fail (3.6.1)
        agrees(service, 4, "an incremental snapshot")
        assert "SOURCE_SNAPSHOT_DIFFERS" not in service.says
        source.loses_its_slot()
        with source.at_work(pipeline, changing=False):
            until(
                lambda: service.says.count("SOURCE_SNAPSHOT_DIFFERS") == 2,
                "what was lost to be made good",
                90,
                service,
            )
        rests(source, pipeline, service)
        assert service.stops() == 0
    assert "Traceback" not in service.says
    verdict = verify_pipeline(pipeline.warehouse, 100)
    assert verdict.problems == () and verdict.holds, [*map(str, verdict.lines)]
    assert {line.achieved for line in verdict.lines if line.name in ("kept", "by_owner")} == {
        "complete"
    }
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    for view in VIEWS:
        if view != "by_owner":
            assert pipeline.rows(view) == pipeline.rows("kept"), view
