"""The whole service with one view that asks its source: freshness from commit to commit.

People work on PostgreSQL, Debezium captures it into Kafka, the service keeps the view in Delta. Each mode
is a pipeline of its own over the same topics, one after the other. The level is what `verify` finds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import orders
from bench.run import wait
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.demo.embedded.parts import StackSource
from streaming.demo.embedded.stack import Stack
from streaming.errors import FrescoError
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.service import Service
from streaming.spark.jars import spark_jars
from streaming.warehouse.updates import UpdatesReader

SHOP = "shop"
START_SECONDS = 1800.0
REST_SECONDS = 600.0
QUIET_SECONDS = 5.0
"""Without a new number, and all of them published: the view is at rest."""
LEVELS = {"strobe": "STRONG", "eca": "STRONG"}
SAMPLE = 5
"""Numbers that `verify` recomputes: each is a join of all base rows."""


def measure(
    modes: Sequence[str], rows: int, rate: float, seconds: float, writers: int
) -> list[dict[str, Any]]:
    """The figures of each mode, while so many writers make so many transactions a second together."""
    with tempfile.TemporaryDirectory(prefix="fresco-asking-") as folder:
        stack = Stack(Path(folder) / "stack", databases=(SHOP,))
        with stack:
            sizes = orders.fill(stack.dsn(SHOP), rows)
            tables = tuple(f"public.{name}" for name in orders.TABLES)
            stack.capture([StackSource(SHOP, tables=tables)])
            jars = [str(jar) for jar in spark_jars()]
            found = []
            for mode in modes:
                config = configured(Path(folder), stack, mode)
                with_people = People(stack.dsn(SHOP), sizes, rate, seconds, writers)
                found.append({"mode": mode, **served(config, jars, with_people)})
                print(found[-1], flush=True)
            return found


def configured(folder: Path, stack: Stack, mode: str) -> Config:
    """A pipeline of one view."""
    views = folder / f"views_{mode}"
    views.mkdir()
    header = f"WITH {LEVELS.get(mode, 'COMPLETE')} CONSISTENCY USING {mode}"
    text = f"CREATE MATERIALIZED VIEW sold\n{header}\nAS {orders.VIEW.format(source=SHOP)}\n"
    (views / "sold.sql").write_text(text)
    raw = {
        "pipeline": f"asking_{mode}",
        "warehouse": str(folder / f"warehouse_{mode}"),
        "views": str(views),
        "kafka": {"bootstrap": stack.bootstrap},
        "metrics": {"port": 0},
        "sources": {
            SHOP: {
                "connection": stack.dsn(SHOP),
                "decimals": "string",
                "tables": {name: f"public.{name}" for name in orders.TABLES},
            }
        },
    }
    return parse_config(raw, folder=folder)


@dataclass(frozen=True)
class People:
    """Who writes to the source: how many, how fast, for how long."""

    dsn: str
    sizes: orders.Sizes
    rate: float
    seconds: float
    writers: int


def served(config: Config, jars: list[str], people: People) -> dict[str, Any]:
    """One pipeline from its first epoch to its rest."""
    service = Service(config, jars=jars)
    began = time.perf_counter()
    service.start()
    try:
        wait(lambda: newest(config) is not None, START_SECONDS)
        rest(config, service)
        initial, first = time.perf_counter() - began, newest(config) or 0
        before = asked(service)
        with orders.at_work(people.dsn, people.sizes, people.rate, people.writers) as work:
            time.sleep(people.seconds)
        rest(config, service)
        counts = {what: n - before.get(what, 0) for what, n in asked(service).items()}
    finally:
        service.stop()
    waits = freshness(config, first)
    verdict = verify_pipeline(config.warehouse, SAMPLE)
    return {
        "numbers": len(waits),
        "reached_rate": work.rate,
        "p50_s": float(np.percentile(waits, 50)),
        "p99_s": float(np.percentile(waits, 99)),
        "queries_per_update": counts.get("queries", 0) / max(counts.get("updates", 0), 1),
        **{what: int(counts.get(what, 0)) for what in ("held", "again", "compensations")},
        "level": next(line.achieved for line in verdict.lines if line.kind == "view"),
        "initial_s": initial,
    }


def newest(config: Config) -> int | None:
    """The newest epoch's frontier."""
    try:
        return Warehouse(config.warehouse).epochs(config.pipeline)[-1].frontier
    except (FrescoError, IndexError):
        return None


def rest(config: Config, service: Service) -> None:
    """Return when everything numbered is published and nothing has been numbered for a while."""
    known, since = -1.0, time.monotonic()

    def quiet() -> bool:
        nonlocal known, since
        numbered = service.metrics.numbered._value.get()
        if numbered != known:
            known, since = numbered, time.monotonic()
        return time.monotonic() - since > QUIET_SECONDS and (newest(config) or 0) >= numbered

    wait(quiet, REST_SECONDS)


def asked(service: Service) -> dict[str, float]:
    """What the view's manager asked so far."""
    (metric,) = service.metrics.source_asked.collect()
    return {one.labels["what"]: one.value for one in metric.samples if one.name.endswith("_total")}


def freshness(config: Config, first: int) -> np.ndarray:
    """Seconds from each commit after number `first` to the first epoch that shows it."""
    epochs = Warehouse(config.warehouse).epochs(config.pipeline)
    found = UpdatesReader(str(config.warehouse)).transactions(first, 1 << 62)
    frontiers = np.array([epoch.frontier for epoch in epochs])
    written = np.array([epoch.written_ms for epoch in epochs])
    at = np.searchsorted(frontiers, found["number"].to_numpy())
    return (written[at] - found["committed_ms"].to_numpy()) / 1000.0
