"""A large transaction beside a backlog of small ones: how long after the last commit it is published.

Run: python -m bench.large [--rows 400000] [--each 10]. PostgreSQL, Kafka, Debezium and Fresco, all here.
The rows are inserted, updated, and half of them deleted: by transactions of `each` rows, then in one.
For both: seconds from the end of writing until Debezium has written the last event to Kafka, until the
integrator has recorded it, and until a commit shows it; and the seconds that the stages spent in their
steps. What Debezium takes nobody after it can make good.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

from bench.run import dsns, running, stage_seconds, wait
from streaming.configuration.pipeline_config import load_config
from streaming.demo.demonstration import BANK, BankStack
from streaming.demo.marker import Marker
from streaming.service.service import Service
from streaming.spark.jars import spark_jars

TOPIC = TopicPartition("north.public.fresco_global", 0)
MOST_SECONDS = 900.0
Write = Callable[[str, int, int], None]


def in_one(dsn: str, first: int, rows: int) -> None:
    """Three transactions."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO entry SELECT i, i %% 100 + 1, i %% 1000 FROM generate_series(%s, %s) i",
            (first, first + rows - 1),
        )
        connection.execute("UPDATE entry SET amount = amount + 1 WHERE id >= %s", (first,))
        connection.execute("DELETE FROM entry WHERE id >= %s", (first + rows // 2,))


def by_small(each: int) -> Write:
    """Transactions of so many rows; commits are not awaited on disk one by one."""

    def write(dsn: str, first: int, rows: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            for statement, count in (
                (
                    "INSERT INTO entry SELECT i, i % 100 + 1, i % 1000 FROM generate_series(a, b) i",
                    rows,
                ),
                ("UPDATE entry SET amount = amount + 1 WHERE id BETWEEN a AND b", rows),
                ("DELETE FROM entry WHERE id BETWEEN a AND b", rows // 2),
            ):
                connection.execute(
                    f"""DO $$ DECLARE a bigint; b bigint; BEGIN
                    FOR k IN 0 .. {count // each - 1} LOOP
                        a := {first + rows - count} + k * {each}; b := a + {each - 1};
                        {statement}; COMMIT;
                    END LOOP; END $$""".encode()
                )

    return write


def published(bank: BankStack, service: Service, write: Write, first: int, rows: int) -> str:
    """Write, and what came of it, as one line."""
    began = time.perf_counter()
    before = stage_seconds(service)
    write(bank.stack.dsn("north"), first, rows)
    ended = time.perf_counter()
    consumer = KafkaConsumer(bootstrap_servers=bank.stack.bootstrap)
    end = consumer.end_offsets([TOPIC])[TOPIC]
    marker = Marker.put(dsns(bank))
    took = []
    for reached in (
        lambda: consumer.end_offsets([TOPIC])[TOPIC] > end,
        lambda: marker.recorded(service.config.warehouse),
        lambda: marker.reflected(service.config.warehouse),
    ):
        wait(reached, MOST_SECONDS)
        took.append(time.perf_counter() - ended)
    consumer.close()
    after = stage_seconds(service)
    steps = {name: round(s - before.get(name, 0.0), 1) for name, s in after.items()}
    return (
        f"written in {ended - began:.1f} s; then in Kafka after {took[0]:.1f} s, recorded after "
        f"{took[1]:.1f} s, published after {took[2]:.1f} s; seconds in steps {json.dumps(steps)}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--each", type=int, default=10)
    options = parser.parse_args()
    jars = [str(jar) for jar in spark_jars()]
    with tempfile.TemporaryDirectory(prefix="fresco-bench-") as folder:
        bank = BankStack(Path(folder), Console(stderr=True))
        try:
            bank.start()
            bank.stack.capture()
            with running(load_config(BANK), bank.folder / "large", "large", jars) as service:
                marker = Marker.put(dsns(bank))
                wait(lambda: marker.reflected(service.config.warehouse), MOST_SECONDS)
                small = by_small(options.each)
                for at, (name, write) in enumerate(
                    (("warming up", small), ("small ones", small), ("one transaction", in_one))
                ):
                    rows = options.rows if at else options.rows // 10
                    first = 10_000_000 * (at + 1)
                    print(f"{name}: {published(bank, service, write, first, rows)}", flush=True)
        finally:
            bank.stop()


if __name__ == "__main__":
    main()
