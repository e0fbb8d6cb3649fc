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
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

from bench.floor import floor_seconds
from streaming.config import load_config
from streaming.demo import BANK, BankStack
from streaming.embedded.bank import bulk_transfers
from streaming.embedded.description import DATABASES
from streaming.embedded.jars import spark_jars
from streaming.embedded.marker import Marker
from streaming.embedded.workload import Workload
from streaming.readers import Warehouse
from streaming.runtime.service import Service
from streaming.runtime.session import spark_session, versions
from streaming.warehouse.updates import UpdatesReader

GROUP = "bank"
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
    """All figures of one run."""
    config = load_config(BANK)
    jars = [str(jar) for jar in spark_jars()]
    console.print(f"filling the topics with {transfers} transfers")
    filled = fill(bank, transfers)
    spark = spark_session(config, jars=jars)
    console.print("measuring the floor")
    floor, events = floor_seconds(spark, bank.stack.bootstrap)
    console.print(f"floor {floor:.1f} s for {events} events; now Fresco")
    marker = Marker.put(dsns(bank))
    service = Service(config, jars=jars)
    began = time.perf_counter()
    service.start()
    started = time.perf_counter()
    try:
        wait(lambda: marker.reflected(bank.warehouse), RUN_SECONDS)
        done = time.perf_counter()
        console.print(f"backlog in {done - started:.1f} s; freshness for {seconds} s")
        fresh = freshness(bank, seconds, rate)
    finally:
        service.stop()
    row_events = 2 * transfers
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
            "floor_row_events_per_s": row_events / floor,
            "fresco_s": done - started,
            "fresco_row_events_per_s": row_events / (done - started),
            "start_s": started - began,
            "share_of_floor": floor / (done - started),
            "stages": stage_seconds(service),
        },
        "freshness": fresh,
    }


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


def freshness(bank: BankStack, seconds: int, rate: float) -> dict[str, Any]:
    """Seconds from each transaction's source commit to the first epoch that covers it."""
    first = Warehouse(bank.warehouse).epochs(GROUP)[-1].frontier
    workload = Workload(dsns(bank), rate=rate, seed=7, say=lambda line: None).start()
    time.sleep(seconds)
    workload.stop()
    marker = Marker.put(dsns(bank))
    wait(lambda: marker.reflected(bank.warehouse), RUN_SECONDS)
    epochs = Warehouse(bank.warehouse).epochs(GROUP)
    map_ = UpdatesReader(str(bank.warehouse)).transactions(first, 1 << 62)
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
