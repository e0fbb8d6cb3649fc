"""View managers that ask, alone over a real PostgreSQL: no Kafka, no Spark, no table.

Updates come from PostgreSQL's own log (pgoutput through SQL), answers from its tables, people work on it
in other processes. What is measured is what a mode itself costs and how it waits; what the service adds
is `asking_service`. A step reads the log, hands the message to the manager's `Dialogue` and takes its
snapshot, as a step of the service does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from bench import orders
from streaming import packed_rows as packing
from streaming.algebra.tree import Scan
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.messages import Updates
from streaming.pipeline.choosing import Choice
from streaming.stages.dialogue import Dialogue
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import Options
from tests.service import askedpostgres as asked
from tests.service.pglog import Log

STEP_SECONDS = 0.5
"""From one look at the log to the next."""
WARM_SECONDS = 5.0


@dataclass(frozen=True)
class Run:
    """One mode under one load.

    Attributes:
        settings: of the manager, where they are not as usual.
        paced: whether answers are given at known states; else at those of the moment.
    """

    mode: str
    rows: int
    rate: float
    seconds: float
    settings: Mapping[str, int]
    paced: bool = True

    @property
    def name(self) -> str:
        given = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        moment = "" if self.paced else "answers of the moment"
        return ": ".join(
            part for part in (self.mode, ", ".join(filter(None, (given, moment)))) if part
        )


class LargeLog(Log):
    """A log whose initial state the source gives, and that keeps no rows."""

    def begin(self, operators: DuckOperators, source: PostgresSource | None = None) -> Updates:
        assert source is not None
        self._slot.start()
        whole = {}
        for name, relation in self.relations.items():
            (rows,) = asked.asked(source, (Scan(name, relation.schema), {})).rows
            whole[name], self.rows[name] = operators.pack(rows), {}
        return self._message(operators, 0, {}, []).model_copy(update={"relations": whole})

    def more(self, operators: DuckOperators) -> Updates | None:
        for rows in self.rows.values():
            rows.clear()
        return super().more(operators)


def measure(dsn: str, sizes: orders.Sizes, run: Run, folder: Path) -> dict[str, Any]:
    """The figures of one run over filled tables."""
    found, operators = asked.captured(dsn, *orders.TABLES), asked.operators(folder)
    relations = asked.relations(found)
    spec = ManagedView("v", "g", asked.view(orders.VIEW.format(source="north"), found))
    keys = {name: relation.key for name, relation in relations.items()}
    choice = Choice(
        run.mode, Level.STRONG, "one-local", Options(keys, run.settings), sources=("north",)
    )
    source = PostgresSource("north", dsn, found, operators)
    staged = iter(range(10**9))

    def stage(content: bytes) -> str:
        name = f"mirror-{next(staged)}.parquet"
        (folder / name).write_bytes(content)
        return name

    dialogue = Dialogue(
        spec,
        choice,
        operators,
        {"north": source},
        lambda table: packing.staged(table, stage),
        lambda one, query: one.answer(query),
        paced=run.paced,
    )
    log = LargeLog(dsn, relations, "v")
    try:
        began = time.perf_counter()
        list(dialogue.deliver(log.begin(operators, source)))
        initial = time.perf_counter() - began
        dialogue.counted()
        with orders.at_work(dsn, sizes, run.rate):
            figures = _loop(dialogue, log, operators, run)
        return {**figures, "initial_s": initial}
    finally:
        dialogue.close()
        log.close()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("VACUUM orders")


def _loop(dialogue: Dialogue, log: Log, operators: DuckOperators, run: Run) -> dict[str, Any]:
    """Step after step until the time is over; what a fresh process does once is not counted."""
    ages, spent, shown = list[float](), 0.0, 0
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        shown = max([shown, *(last for _, last in _step(dialogue, log, operators)[0])])
    dialogue.counted()
    before, cpu = log.number, time.process_time()
    until += run.seconds
    while time.monotonic() < until:
        lists, seconds = _step(dialogue, log, operators)
        for first, last in lists:
            ages += [log.age(n) for n in range(max(first, 1), last + 1)]
            shown = max(shown, last)
        spent += seconds
    cpu = time.process_time() - cpu
    counts, numbers = dialogue.counted(), max(log.number - before, 1)
    oldest = max((log.age(n) for n in range(shown + 1, log.number + 1)), default=0.0)
    return {
        "numbers": numbers,
        "shown": max(shown - before, 0),
        "oldest_waiting_s": oldest,
        "p50_s": float(np.percentile(ages, 50)) if ages else None,
        "p99_s": float(np.percentile(ages, 99)) if ages else None,
        "queries_per_update": counts["queries"] / numbers,
        **{what: counts[what] for what in ("statements", "held", "again", "compensations")},
        "wall_ms_per_update": 1000 * spent / numbers,
        "cpu_ms_per_update": 1000 * cpu / numbers,
    }


def _step(
    dialogue: Dialogue, log: Log, operators: DuckOperators
) -> tuple[list[tuple[int, int]], float]:
    """One step; the numbers of the lists that came of it, and the seconds without reading the log."""
    began = time.perf_counter()
    updates = log.more(operators)
    read = time.perf_counter()
    work = dialogue.deliver(updates) if updates is not None else iter(())
    if updates is None and dialogue.rest():
        work = dialogue.flush()
    lists = [(one.first, one.last) for one in work]
    dialogue.snapshot()
    ended = time.perf_counter()
    time.sleep(max(0.0, began + STEP_SECONDS - ended))
    return lists, ended - read
