"""Oddity 14: a transaction, or a snapshot, of a million rows: bounded memory, one commit."""

from __future__ import annotations

import gc
import json
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.cdc.held_rows import HeldFiles
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.readers import Warehouse
from streaming.scalars.types import delta_schema
from tests.bulkevents import ACCOUNTS, entries
from tests.intakeworld import make
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages
from tests.unit.test_debezium_events import bank

ROWS = 1_000_000
BATCH = 250_000
ROW_BYTES = 32
"""Of a row that waits, in memory: where it is, its transaction's key and its place in it."""
BATCH_BYTES = 1 << 20
"""What else may stay in memory after a batch."""


def files_in(folder: Path) -> HeldFiles:
    def stage(rows: pa.Table) -> str:
        pq.write_table(rows, folder / (name := f"{uuid.uuid4().hex}.parquet"))
        return name

    return HeldFiles(stage, lambda name, columns: pq.read_table(folder / name, columns=columns))


def allocated() -> int:
    """Bytes that Arrow holds, what only waits for Python's collector left out."""
    gc.collect()
    return pa.total_allocated_bytes()


def settled(limit: int) -> int:
    """The same once it is below a limit, if it comes to be: Arrow's threads let go a moment later."""
    deadline = time.monotonic() + 5
    while (held := allocated()) >= limit and time.monotonic() < deadline:
        time.sleep(0.01)
    return held


def captured() -> list:
    return [relation for relation in bank() if relation.source == "north"]


def sent(rows: int, number: int) -> pa.Table:
    """The delta of entries 0..rows-1, all inserted under one number."""
    ids = np.arange(rows)
    hundredths = pa.array(ids % 1000, pa.int64()).cast(pa.decimal128(19, 0))
    amounts = pc.multiply(hundredths, pa.scalar("0.01").cast(pa.decimal128(3, 2)))
    columns = [np.full(rows, number), np.ones(rows, np.int64), ids, ids % ACCOUNTS]
    entry = next(one.relation for one in captured() if one.relation.name == "north.entry")
    schema = delta_schema(entry.schema)
    values = [*(pa.array(column) for column in columns), amounts.cast(schema.field("c2").type)]
    return pa.table(values, schema=schema)


def test_oddity_14_a_transaction_of_a_million_rows_waits_outside_memory_and_is_one_number(
    tmp_path: Path,
) -> None:
    log, files = SourceLog("north"), files_in(tmp_path)
    intake = make(captured(), files=files)
    intake.step(Topics().batch([log.begin("9")]), 0)
    before = allocated()
    for first in range(0, ROWS, BATCH):
        waiting = intake.step(entries(log, first, first + BATCH - 1, "9"), 0)
        assert waiting.waiting == {"north.entry": first + BATCH}
        saved = json.dumps(intake.snapshot())
        del waiting
        limit = before + ROW_BYTES * (first + BATCH) + BATCH_BYTES
        assert settled(limit) < limit
        if first == ROWS // 2:
            intake = make(captured(), files=files)
            intake.restore(json.loads(saved))
    assert len(saved) < 5000
    log.lsn += 10
    end = Topics({"north.transaction": 1}).batch([log.end("9", {"entry": ROWS})])
    result = intake.step(end, 0)
    assert (result.first, result.last) == (1, 1)
    assert result.updates["north.entry"].equals(sent(ROWS, 1))
    assert intake.snapshot()["assembler"]["held"] == {}


def test_oddity_14_an_initial_snapshot_waits_outside_memory_and_is_number_0(
    tmp_path: Path,
) -> None:
    rows, batch = 300_000, 100_000
    log, files = SourceLog("north"), files_in(tmp_path)
    intake = make(captured(), files=files, snapshot=True)
    before = allocated()
    for first in range(0, rows, batch):
        intake.step(entries(log, first, first + batch - 1, None), 0)
        saved = json.dumps(intake.snapshot())
        assert settled(before + BATCH_BYTES) < before + BATCH_BYTES
    intake = make(captured(), files=files, snapshot=True)
    intake.restore(json.loads(saved))
    counts = {"account": 0, "entry": rows, "fresco_global": 0}
    result = intake.step(Topics().batch(log.scanned(counts)), 0)
    assert (result.first, result.last) == (0, 0)
    assert result.updates["north.entry"].equals(sent(rows, 0))


def test_oddity_14_a_large_transaction_is_one_commit_of_all_views(tmp_path: Path) -> None:
    rows, batch = 100_000, 50_000
    log, topics = SourceLog("north"), Topics()
    relations = {one.relation.name: one.relation for one in captured()}
    views = [
        parse_view(f"CREATE MATERIALIZED VIEW {name} AS {sql}", relations)
        for name, sql in (
            ("every", "SELECT id, account, amount FROM north.entry"),
            ("total", "SELECT SUM(amount) AS total, COUNT(*) AS entries FROM north.entry"),
        )
    ]
    save_catalog(tmp_path, views, {GROUP: [view.name for view in views]}, relations)
    stages = SteppedStages(tmp_path, captured(), views)
    stages.feed(topics.batch([log.begin("9")]))
    for first in range(0, rows, batch):
        stages.feed(entries(log, first, first + batch - 1, "9"))
    log.lsn += 10
    stages.feed(topics.batch([log.end("9", {"entry": rows})]))
    stages.close()
    warehouse = Warehouse(tmp_path)
    assert [epoch.added for epoch in warehouse.epochs(GROUP)] == [((0, 0),), ((1, 1),)]
    delta = sent(rows, 1)
    every = warehouse.read("every").sort_by("id")
    assert every.columns == [delta["c0"], delta["c1"], delta["c2"]]
    whole = {"total": pc.sum(delta["c2"]).as_py(), "entries": rows}
    assert warehouse.read("total").to_pylist() == [whole]
