"""Modes that ask their source, on a keyed three-relation join: freshness, queries, costs.

Run: python -m bench.asking [--quick]. Writes results/asking.md and .json. Three tables:

* the whole service over Kafka, Debezium, Spark and Delta, a pipeline of its own for each mode, from the
  commit in PostgreSQL to the warehouse commit that shows it (`asking_service`);
* the managers alone over the same kind of tables, with and without the gate, with answers at known states
  and at those of the moment: what keeps a mode from ever showing anything (`asking_machines`);
* what one update costs over 10^5, 10^6 and 10^7 base rows.

`--quick` takes small tables and a few seconds; its figures say that the parts work, and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import asking_machines, asking_service, orders
from bench.asking_machines import Run
from streaming.spark.spark_session import versions
from tests.service import askedpostgres as asked

RESULTS = Path(__file__).parent / "results"
MODES = ("compensating", "sweep", "c_tstrobe", "t_strobe", "eca")
SERVED = ("compensating", "sweep", "c_strobe", "strobe", "eca", "replica")
"""As view files name them."""


def runs(rows: int, rate: float, seconds: float) -> list[Run]:
    """Each mode; then those that may starve, with and without the gate and known states."""
    found = [Run(mode, rows, rate, seconds, {}) for mode in MODES]
    for mode in ("t_strobe", "eca"):
        for paced in (True, False):
            for gate in (1, 0):
                if (paced, gate) != (True, 1):
                    found.append(Run(mode, rows, rate, seconds, {"gate": gate}, paced))
    return found


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--writers", type=int, default=4, help="of the service's source")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--modes", nargs="*", default=list(SERVED), help="of the service")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--parts", nargs="*", default=["service", "machines", "sizes"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.seconds, options.sizes = 10_000, 8.0, [10**4, 10**5]
    figures: dict[str, Any] = {"machine": machine(), "settings": settings(options)}
    if "service" in options.parts:
        figures["service"] = asking_service.measure(
            options.modes, options.rows, options.rate, options.seconds, options.writers
        )
    if "machines" in options.parts:
        with server() as (dsn, folder):
            wanted = runs(options.rows, options.rate, options.seconds)
            figures["machines"] = list(measured(dsn, folder, wanted))
    if "sizes" in options.parts:
        with server() as (dsn, folder):
            wanted = [
                Run(mode, rows, options.rate, options.seconds / 2, {})
                for rows in options.sizes
                for mode in ("compensating", "sweep", "c_tstrobe")
            ]
            figures["sizes"] = list(measured(dsn, folder, wanted))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "asking.json").write_text(json.dumps(figures, indent=2) + "\n")
    text = table(figures)
    (options.out / "asking.md").write_text(text)
    print(text)


@contextmanager
def server() -> Iterator[tuple[str, Path]]:
    """A PostgreSQL of its own, and a folder for what managers stage."""
    with tempfile.TemporaryDirectory(prefix="fresco-asking-") as folder:
        path = Path(folder)
        (path / "postgres").mkdir()
        with asked.server(path / "postgres") as running:
            yield running.dsn("north"), path


def measured(dsn: str, folder: Path, wanted: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """The runs, over tables filled anew for each."""
    for run in wanted:
        sizes = orders.fill(dsn, run.rows)
        figures = {
            "name": run.name,
            **asdict(run),
            **asking_machines.measure(dsn, sizes, run, folder),
        }
        print(figures, flush=True)
        yield figures


def machine() -> dict[str, Any]:
    """Where it ran."""
    return {
        "cores": os.cpu_count(),
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        **versions(),
    }


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """How it ran."""
    return {
        "rows": options.rows,
        "rate": options.rate,
        "writers": options.writers,
        "seconds": options.seconds,
        "quick": options.quick,
        "step_s": asking_machines.STEP_SECONDS,
    }


# The tables ---------------------------------------------------------------------------------------


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    here, how = figures["machine"], figures["settings"]
    lines = [
        f"# Modes that ask, {time.strftime('%Y-%m-%d')}" + (" (quick)" if how["quick"] else ""),
        "",
        f"{here['cores']} cores ({here['cpu']}), Python {here['python']}, pyspark {here['pyspark']},"
        f" DuckDB {here['duckdb']}, PostgreSQL on the same machine; load before"
        f" {here['load_before']:.1f}. A keyed join of three relations with {how['rows']:,} base rows,"
        f" {how['rate']:g} transactions/s of one update each ({how['writers']} connections for the"
        f" service), {how['seconds']:g} s for each line.",
    ]
    if "service" in figures:
        lines += ["", "## The service: from the source's commit to the warehouse's", ""]
        lines += rows_of(
            figures["service"],
            {
                "mode": "mode", "committed/s": "reached_rate", "numbers": "numbers",
                "p50 s": "p50_s", "p99 s": "p99_s", "queries/update": "queries_per_update",
                "held": "held", "again": "again", "compensations": "compensations",
                "level": "level",
            },
        )  # fmt: skip
    if "machines" in figures:
        lines += ["", "## The managers alone: from the commit to the action list", ""]
        lines += rows_of(
            figures["machines"],
            {
                "mode": "name", "numbers": "numbers", "shown": "shown", "p50 s": "p50_s",
                "p99 s": "p99_s", "oldest not shown s": "oldest_waiting_s",
                "queries/update": "queries_per_update", "held": "held", "again": "again",
                "compensations": "compensations", "ms/update": "wall_ms_per_update",
                "CPU ms/update": "cpu_ms_per_update",
            },
        )  # fmt: skip
    if "sizes" in figures:
        lines += ["", "## The managers alone: one update over more and more base rows", ""]
        lines += rows_of(
            figures["sizes"],
            {
                "mode": "mode", "base rows": "rows", "numbers": "numbers", "p50 s": "p50_s",
                "queries/update": "queries_per_update", "ms/update": "wall_ms_per_update",
                "CPU ms/update": "cpu_ms_per_update", "initial s": "initial_s",
            },
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def rows_of(found: Sequence[dict[str, Any]], columns: dict[str, str]) -> list[str]:
    """A table of these columns: heading -> figure."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for one in found:
        lines.append(f"| {' | '.join(_cell(one.get(name)) for name in columns.values())} |")
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return "never"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
