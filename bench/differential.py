"""How fast `fresco snapshots` reads a snapshot and finds what has changed since the one before.

Run: python -m bench.differential [--rows 1000000] [--changed 0.01]. For CSV and for Parquet: bringing a
snapshot of so many rows into its form (and how long it takes until its first events are there), the
difference of two forms of which a share of the rows differs, with and without a key, and writing the
events of the first snapshot and of the difference as JSON. What Kafka costs after that is `bench.run`'s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from streaming.capture.differential import counts, open_engine, write_form
from streaming.capture.snapshot_events import Stamp, events
from streaming.capture.snapshot_files import CsvFormat, texts_sql
from streaming.captured.captured_schema import CapturedRelation, captured

COLUMNS = [
    ("id", "int8"), ("account", "int8"), ("amount", "numeric(18,2)"), ("owner", "text"),
    ("at", "timestamptz"),
]  # fmt: skip
ITEM = captured("shop.item", "shop.public.item", COLUMNS, key=["id"], decimals="string")
_ROWS = """SELECT i AS id, i % 1000 AS account, (i * 7919 % 1000000 / 100 {more})::DECIMAL(18,2)
AS amount,
'owner ' || i % 1000 AS owner, TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i) AS at
FROM range({first}, {last}) t(i)"""


def snapshots(folder: Path, kind: str, rows: int, changed: float) -> tuple[Path, Path]:
    """Two snapshots: of the second a share is updated, as much deleted, as much inserted."""
    share = int(rows * changed)
    written = "FORMAT csv, HEADER" if kind == "csv" else "FORMAT parquet"
    files = folder / f"1.{kind}", folder / f"2.{kind}"
    steady = _ROWS.format(more="", first=2 * share, last=rows)
    updated = _ROWS.format(more="+ 1", first=share, last=2 * share)
    come = _ROWS.format(more="", first=rows, last=rows + share)
    before = _ROWS.format(more="", first=0, last=rows)
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        after = f"{updated} UNION ALL {steady} UNION ALL {come}"
        for file, query in zip(files, (before, after), strict=True):
            duck.execute(f"COPY ({query}) TO '{file}' ({written})")
    return files


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the outcome."""
    began = time.perf_counter()
    outcome = work()
    return time.perf_counter() - began, outcome


def measure(kind: str, rows: int, changed: float) -> dict[str, float]:
    """Thousands of rows, or events, a second; how long after a snapshot's arrival its first come."""
    with tempfile.TemporaryDirectory(prefix="fresco-differential-") as name:
        folder = Path(name)
        engine = open_engine(folder)
        old, new = folder / "old.parquet", folder / "new.parquet"
        files = snapshots(folder, kind, rows, changed)

        def read(file: Path, into: Path) -> int:
            texts = texts_sql(engine, ITEM, [file], CsvFormat())
            return write_form(engine, texts, ITEM, into)

        stamp = Stamp("shop", 2, 0, 0)

        def begun() -> Any:
            read(files[0], old)
            return next(iter(events(engine, ITEM, None, old, stamp)))

        def written(before: Path | None, item: CapturedRelation) -> int:
            return sum(part.num_rows for part in events(engine, item, before, new, stamp))

        waited, _ = timed(begun)
        reading, count = timed(lambda: read(files[1], new))
        plain = replace(ITEM, relation=replace(ITEM.relation, key=()))
        keyed, found = timed(lambda: counts(engine, ITEM, old, new))
        bag, _ = timed(lambda: counts(engine, plain, old, new))
        first, initial = timed(lambda: written(None, ITEM))
        later, differing = timed(lambda: written(old, ITEM))
        assert found.events == differing
        return {
            "rows": count, "events": differing, "seconds to the first events": waited,
            "read": count / reading / 1000,
            "difference with key": count / keyed / 1000,
            "difference without": count / bag / 1000,
            "first events": initial / first / 1000,
            "events of difference, from": count / later / 1000,
        }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changed", type=float, default=0.01)
    options = parser.parse_args()
    print("thousands a second of a snapshot's rows, unless said otherwise")
    for kind in ("csv", "parquet"):
        figures = measure(kind, options.rows, options.changed)
        print(kind, {what: round(value, 2) for what, value in figures.items()}, flush=True)


if __name__ == "__main__":
    main()
