"""The floor (DESIGN 15): Spark reads and parses the needed fields of the captured topics, nothing more.

Whatever puts transactions together and maintains views has to do at least this much; the rest of
Fresco is judged by how little it adds.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming.demo.embedded.parts import DATABASES

_ROWS = {
    "entry": "id BIGINT, account BIGINT, amount STRING",
    "account": "id BIGINT, owner STRING, branch STRING",
    "fresco_global": "id STRING, parts INT",
}
_TRANSACTION = (
    "status STRING, id STRING, event_count BIGINT, ts_ms BIGINT, "
    "data_collections ARRAY<STRUCT<data_collection: STRING, event_count: BIGINT>>"
)


def _event(row: str) -> str:
    return (
        f"before STRUCT<{_fields(row)}>, after STRUCT<{_fields(row)}>, op STRING, ts_ms BIGINT, "
        "source STRUCT<ts_ms: BIGINT, snapshot: STRING, txId: BIGINT, lsn: BIGINT>, "
        "transaction STRUCT<id: STRING, total_order: BIGINT>"
    )


def _fields(row: str) -> str:
    return ", ".join(": ".join(column.split(" ", 1)) for column in row.split(", "))


def floor_seconds(spark: SparkSession, bootstrap: str, repeats: int = 2) -> tuple[float, int]:
    """The shorter of some runs over every captured topic: seconds, and events read."""
    best, events = float("inf"), 0
    for _ in range(repeats):
        started = time.perf_counter()
        events = 0
        for schema, topics in _topics().items():
            parsed = _read(spark, bootstrap, topics).select(
                "topic", "partition", "offset", f.from_json(f.col("value").cast("string"), schema)
            )
            parsed.write.format("noop").mode("overwrite").save()
        best = min(best, time.perf_counter() - started)
    for topics in _topics().values():
        events += _read(spark, bootstrap, topics).count()
    return best, events


def _topics() -> dict[str, list[str]]:
    """Schema of the values -> topics that have it."""
    topics = {
        _event(row): [f"{name}.public.{table}" for name in DATABASES]
        for table, row in _ROWS.items()
    }
    return {**topics, _TRANSACTION: [f"{name}.transaction" for name in DATABASES]}


def _read(spark: SparkSession, bootstrap: str, topics: list[str]) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("minPartitions", "2")
        .load()
    )
