"""`make bench`: this machine's figures, all in one run, written to bench/results.

Real parts throughout: transfers are committed in PostgreSQL, captured by Debezium, read from Kafka.
1. A backlog of transfers lies in the topics. The floor is measured on it, then Fresco with the five
   views of the demo, from the first record to the commit that covers the last transaction.
2. Transfers at a steady rate: freshness of each, from its commit in PostgreSQL to the first warehouse
   commit that shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

from bench.floor import floor_seconds
from streaming.configuration.pipeline_config import Config, load_config
from streaming.demo.bank import bulk_transfers
from streaming.demo.bank_workload import Workload
from streaming.demo.demonstration import BANK, BankStack
from streaming.demo.embedded.parts import DATABASES
from streaming.demo.marker import Marker
from streaming.readers import Warehouse
from streaming.service.service import Service
from streaming.spark.jars import spark_jars
from streaming.spark.spark_session import spark_session, versions
from streaming.warehouse.updates import UpdatesReader

FILL_SECONDS = 600.0
RUN_SECONDS = 900.0


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=60, help="of the freshness run")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    options = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fresco-bench-") as folder:
        bank = BankStack(Path(folder), console)
        try:
            bank.start()
            figures = measure(bank, console, options.transfers, options.seconds, options.rate)
        finally:
            bank.stop()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "latest.json").write_text(json.dumps(figures, indent=2) + "\n")
    text = table(figures)
    (options.out / "latest.md").write_text(text)
    print(text)


def measure(
    bank: BankStack, console: Console, transfers: int, seconds: int, rate: float
) -> dict[str, Any]:
    """All figures of one run.

    The backlog is worked off twice, as the floor is measured twice, and the shorter counts for both:
    the first pass of either is the JVM compiling itself.
    """
    config = load_config(BANK)
    jars = [str(jar) for jar in spark_jars()]
    console.print(f"filling the topics with {transfers} transfers")
    filled = fill(bank, transfers)
    marker = Marker.put(dsns(bank))
    spark = spark_session(config, jars=jars)
    floor, events = floor_seconds(spark, bank.stack.bootstrap)
    console.print(f"floor {floor:.1f} s for {events} events; now Fresco")
    passes: list[Pass] = []
    fresh: dict[str, Any] = {}
    for name in ("cold", "warm"):
        with running(config, bank.folder / name, name, jars) as service:
            passes.append(backlog(service, marker))
            console.print(f"{name}: {passes[-1].seconds:.1f} s")
            if name == "warm":
                fresh = freshness(bank, service, seconds, rate)
    best = min(passes, key=lambda one: one.seconds)
    return {
        "machine": {
            "cores": os.cpu_count(),
            "cpu": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            **versions(),
        },
        "backlog": {
            "transfers": transfers,
            "events": events,
            "fill_s": filled,
            "floor_s": floor,
            "floor_row_events_per_s": 2 * transfers / floor,
            "fresco_s": best.seconds,
            "fresco_first_s": passes[0].seconds,
            "fresco_row_events_per_s": 2 * transfers / best.seconds,
            "share_of_floor": floor / best.seconds,
            "stages": best.stages,
        },
        "freshness": fresh,
    }


@dataclass(frozen=True)
class Pass:
    """One working off of the backlog: seconds from running queries to the last commit."""

    seconds: float
    stages: dict[str, float]


@contextmanager
def running(config: Config, folder: Path, name: str, jars: list[str]) -> Iterator[Service]:
    """A service in this process, with a warehouse and topics of its own."""
    own = config.model_copy(update={"pipeline": name, "warehouse": folder})
    service = Service(own, jars=jars)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def backlog(service: Service, marker: Marker) -> Pass:
    """Wait until the views reflect the whole backlog."""
    began = time.perf_counter()
    wait(lambda: marker.reflected(service.config.warehouse), RUN_SECONDS)
    return Pass(time.perf_counter() - began, stage_seconds(service))


def dsns(bank: BankStack) -> dict[str, str]:
    return {database: bank.stack.dsn(database) for database in DATABASES}


def fill(bank: BankStack, transfers: int) -> float:
    """Commit the transfers in both databases; returns when Debezium has written the last event."""
    began = time.perf_counter()
    bank.stack.capture()
    consumer = KafkaConsumer(bootstrap_servers=bank.stack.bootstrap)
    entries = [TopicPartition(f"{name}.public.entry", 0) for name in DATABASES]
    before = _count(bank)
    wait(lambda: sum(consumer.end_offsets(entries).values()) >= before, FILL_SECONDS)
    for name in DATABASES:
        bulk_transfers(bank.stack.dsn(name), transfers // len(DATABASES))
    wanted = before + 2 * transfers
    wait(lambda: sum(consumer.end_offsets(entries).values()) >= wanted, FILL_SECONDS)
    consumer.close()
    return time.perf_counter() - began


def _count(bank: BankStack) -> int:
    total = 0
    for dsn in dsns(bank).values():
        with psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT count(*) FROM entry").fetchone()
            total += int(row[0]) if row else 0
    return total


def freshness(bank: BankStack, service: Service, seconds: int, rate: float) -> dict[str, Any]:
    """Seconds from each transaction's source commit to the first epoch that covers it."""
    warehouse, group = service.config.warehouse, service.config.pipeline
    first = Warehouse(warehouse).epochs(group)[-1].frontier
    workload = Workload(dsns(bank), rate=rate, seed=7, say=lambda line: None).start()
    time.sleep(seconds)
    workload.stop()
    marker = Marker.put(dsns(bank))
    wait(lambda: marker.reflected(warehouse), RUN_SECONDS)
    epochs = Warehouse(warehouse).epochs(group)
    map_ = UpdatesReader(str(warehouse)).transactions(first, 1 << 62)
    numbers = map_["number"].to_numpy()
    committed = map_["committed_ms"].to_numpy()
    frontiers = np.array([epoch.frontier for epoch in epochs])
    written = np.array([epoch.written_ms for epoch in epochs])
    at = np.searchsorted(frontiers, numbers)
    waits = (written[at] - committed) / 1000.0
    used = [epoch for epoch in epochs if epoch.frontier > first]
    return {
        "rate": rate,
        "seconds": seconds,
        "transactions": len(numbers),
        "epochs": len(used),
        "p50_s": float(np.percentile(waits, 50)),
        "p99_s": float(np.percentile(waits, 99)),
    }


def stage_seconds(service: Service) -> dict[str, float]:
    """Seconds each stage spent in its steps."""
    found = {}
    for metric in service.metrics.batch_seconds.collect():
        for sample in metric.samples:
            if sample.name.endswith("_sum"):
                found[sample.labels["stage"]] = round(sample.value, 2)
    return found


def wait(condition: Any, seconds: float) -> None:
    """Return once the condition holds; TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {seconds:.0f} s")
        time.sleep(0.2)


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    machine, backlog, fresh = figures["machine"], figures["backlog"], figures["freshness"]
    lines = [
        f"# Figures of {time.strftime('%Y-%m-%d')}",
        "",
        f"{machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, pyspark "
        f"{machine['pyspark']}, DuckDB {machine['duckdb']}, delta-rs {machine['deltalake']}; Kafka, "
        "PostgreSQL and Debezium on the same machine. Ratios are of one run.",
        "",
        f"Backlog of {backlog['transfers']} transfers ({backlog['events']} events with BEGIN and "
        "END), five views:",
        "",
        "| | seconds | row events/s |",
        "|---|---|---|",
        f"| floor: Spark reads and parses | {backlog['floor_s']:.1f} | "
        f"{backlog['floor_row_events_per_s']:,.0f} |",
        f"| Fresco: topics to committed Delta | {backlog['fresco_s']:.1f} | "
        f"{backlog['fresco_row_events_per_s']:,.0f} |",
        f"| share of the floor | {backlog['share_of_floor']:.0%} | |",
        "",
        f"The shorter of two passes for each; Fresco's first, on a cold JVM: "
        f"{backlog['fresco_first_s']:.1f} s.",
        "",
        f"Seconds in steps, by stage: {backlog['stages']}",
        "",
        f"Freshness at {fresh['rate']:g} transfers/s, five views, {fresh['transactions']} "
        f"transactions in {fresh['epochs']} commits: p50 {fresh['p50_s']:.2f} s, "
        f"p99 {fresh['p99_s']:.2f} s.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
