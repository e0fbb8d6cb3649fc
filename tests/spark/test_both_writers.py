"""The writer in the driver and Spark's MERGE leave the same table (DESIGN 8)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming.cli.ddl import ddl
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import WriterOptions
from streaming.warehouse.upkeep import Upkeep, UpkeepOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from warehouse_rows import BALANCE, LINES, ODD, delta, next_epoch, write_catalog

VIEWS = [BALANCE, ODD, LINES]
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


def odd(number: int, copies: int, key: int | None, text: str | None, value: float | None) -> tuple:
    return (
        *(number, copies, key, text, value, MOMENT if key else FIRST, b"\x00\xff", date(1, 1, 1)),
        *(key is None, -5, Decimal("12345678901234567890.0123456789"), MOMENT.replace(tzinfo=None)),
        float("nan") if key == 2 else -0.0,
    )


def batches() -> list[dict[str, pa.Table]]:
    """An initial state, updates, deletions, duplicates, NULLs, and a commit of numbers only."""
    account = [(0, 1, at, Decimal(at)) for at in range(100)]
    moved = [(1, sign, at, Decimal(at + (sign > 0))) for at in range(0, 100, 7) for sign in (-1, 1)]
    closed = [(2, -1, 5, Decimal(5)), (2, 1, 500, Decimal(5))]
    nan = float("nan")
    return [
        {
            "balance": delta(BALANCE, account),
            ODD.name: delta(ODD, [odd(0, 2, 1, "x", nan), odd(0, 1, None, None, None)]),
            "lines": delta(LINES, [(0, 3, "same", 1), (0, 1, None, None), (0, 1, "", 0)]),
        },
        {
            "balance": delta(BALANCE, moved + closed),
            ODD.name: delta(ODD, [odd(1, -1, 1, "x", nan), odd(2, 1, 2, "é'\\", -0.0)]),
            "lines": delta(LINES, [(1, -1, "same", 1), (2, -1, None, None), (2, 1, "", None)]),
        },
        {},
        {"lines": delta(LINES, [(4, -2, "same", 1), (4, 4, "", 0)])},
    ]


def written(folder: Path, spark: SparkSession | None) -> GroupWriter:
    options = WriterOptions(spark_bytes=-1)
    writer = GroupWriter(str(folder), "bank", "g", VIEWS, options)
    epoch: Epoch | None = None
    session = None if spark is None else lambda: spark
    for at, changes in enumerate(batches()):
        stands = {"lines": 2} if at == 2 else {}
        added = ((2 * at - 1 if at else 0, 2 * at),)
        epoch = next_epoch(epoch, "g", added, written_ms=at, suspended=stands)
        done = writer.commit(changes, epoch, spark=session)
        assert done.writer == ("spark" if spark else "delta-rs") and not done.repeated
        assert writer.commit(changes, epoch, spark=session).repeated
    write_catalog(folder, "g", VIEWS)
    return writer


def content(writer: GroupWriter) -> list[str]:
    """Every row of the table as text that tells NULL, NaN and -0.0 apart."""
    rows = writer.state.handle.to_pyarrow_table().to_pylist()
    return sorted(json.dumps(row, default=repr, sort_keys=True) for row in rows)


def test_the_same_batches_leave_the_same_table(tmp_path: Path, spark: SparkSession) -> None:
    ours = written(tmp_path / "driver", None)
    theirs = written(tmp_path / "spark", spark)
    assert content(ours) == content(theirs)
    assert fields(ours) == fields(theirs)
    assert ours.state.metadata() == theirs.state.metadata()
    assert ours.last() == theirs.last()
    application = "fresco/bank/g/state"
    assert ours.state.committed(application) == theirs.state.committed(application) == 4
    assert properties(ours) == properties(theirs)


def fields(writer: GroupWriter) -> dict[str, Any]:
    schema = json.loads(writer.state.handle.schema().to_json())
    return {field["name"]: field for field in schema["fields"]}


def properties(writer: GroupWriter) -> tuple[object, ...]:
    metadata, protocol = writer.state.handle.metadata(), writer.state.handle.protocol()
    features = sorted(protocol.writer_features or []), sorted(protocol.reader_features or [])
    return metadata.configuration, metadata.partition_columns, features


def test_spark_reads_how_each_view_stands_in_the_companion_view(
    tmp_path: Path, spark: SparkSession
) -> None:
    writer = written(tmp_path, spark)
    cause = {"code": "VIEW_ARITHMETIC", "what": "divided by zero"}
    last = writer.last()
    assert last is not None
    gone = next_epoch(last, "g", ((7, 7),), suspended={"lines": 6}, causes={"lines": cause})
    writer.commit({}, gone, spark=lambda: spark)
    write_catalog(tmp_path, "g", [BALANCE, LINES])  # Spark takes no view of the odd one's name
    for statement in ddl(str(tmp_path), "spark"):
        spark.sql(statement)
    rows = [tuple(row) for row in spark.table("fresco_views").collect() if row.view != "balance"]
    assert sorted(rows) == [
        (ODD.name, "maintained", None, None, None),
        ("lines", "suspended", 6, "VIEW_ARITHMETIC", "divided by zero"),
    ]
    assert spark.table("lines").count() == Warehouse(tmp_path).read("lines", transaction=6).num_rows
    with pytest.raises(FrescoError, match="READ_SUSPENDED"):
        Warehouse(tmp_path).spark(spark, "lines")
    with pytest.raises(FrescoError, match="READ_SUSPENDED"):
        Warehouse(tmp_path).register(spark, ["balance", "lines"])
    frame = Warehouse(tmp_path).spark(spark, "lines", transaction=7, suspended_as_of=True)
    assert lines(frame.toArrow()) == lines(Warehouse(tmp_path).read("lines", transaction=6))


def test_each_writer_goes_on_where_the_other_stopped(tmp_path: Path, spark: SparkSession) -> None:
    mixed = GroupWriter(str(tmp_path / "w"), "bank", "g", VIEWS, WriterOptions(spark_bytes=-1))
    alone = written(tmp_path / "driver", None)
    epoch: Epoch | None = None
    for at, changes in enumerate(batches()):
        stands = {"lines": 2} if at == 2 else {}
        added = ((2 * at - 1 if at else 0, 2 * at),)
        epoch = next_epoch(epoch, "g", added, written_ms=at, suspended=stands)
        mixed.commit(changes, epoch, spark=(lambda: spark) if at % 2 else None)
        Upkeep(mixed, options=UpkeepOptions(small_files=2)).run(60)
    assert content(mixed) == content(alone)


def test_spark_reads_a_view_that_joined_later_as_the_reader_does(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Also where the nearest epoch does not have the view, nor even its column."""
    late = replace(LINES, since=4)
    writer = GroupWriter(str(tmp_path), "bank", "g", [BALANCE])
    first = next_epoch(None, "g", ((0, 5),), written_ms=0, views={"balance": 0})
    writer.commit({"balance": delta(BALANCE, [(0, 1, 1, Decimal(1))])}, first)
    writer.add_view(late)
    rows = [(4, 2, "same", 1), (5, 1, "b", 2), (7, -1, "same", 1)]
    shown = next_epoch(first, "g", ((6, 8),), written_ms=1, views={"balance": 0, "lines": 4})
    writer.commit({"lines": delta(LINES, rows)}, shown)
    write_catalog(tmp_path, "g", [BALANCE, late])
    warehouse = Warehouse(tmp_path)
    counts = []
    for number in (4, 5, 6, 7, 8):
        frame = warehouse.spark(spark, "lines", transaction=number)
        ours = warehouse.read("lines", transaction=number)
        assert lines(frame.toArrow()) == lines(ours), number
        counts.append(ours.num_rows)
    assert counts == [2, 3, 3, 2, 2]
    with pytest.raises(FrescoError, match="READ_VIEW_NOT_THERE"):
        warehouse.spark(spark, "lines", transaction=3)


def test_spark_reads_every_state_as_the_reader_does(tmp_path: Path, spark: SparkSession) -> None:
    written(tmp_path, None)
    warehouse = Warehouse(tmp_path)
    for number in (0, 1, 2, 5, 6):
        for view in VIEWS:
            frame = warehouse.spark(spark, view.name, transaction=number)
            ours = warehouse.read(view.name, transaction=number)
            assert lines(frame.toArrow()) == lines(ours), (view.name, number)
    assert warehouse.register(spark, ["balance", "lines"], transaction=1) == 1
    joined = "SELECT sum(total), (SELECT count(*) FROM lines) FROM balance"
    assert [tuple(row) for row in spark.sql(joined).collect()] == [(Decimal(4965), 4)]


def lines(rows: pa.Table) -> list[str]:
    return sorted(repr(list(row.values())).replace("-0.0", "0.0") for row in rows.to_pylist())
