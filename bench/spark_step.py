"""What a step of a view over Spark costs: seconds, core-seconds of the JVM, Spark jobs.

Run: python -m bench.spark_step [--batches 6] [--transactions 40]. Six views side by side, as a pipeline
has them whose `limits.driver_rows` they exceed, then one view of three relations alone. Each batch is so
many orders with two lines each and as many orders updated; the first is the initial rows. Each delta is
compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming.algebra.tree import Relation
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.engines.spark_evaluator import SparkEvaluator
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.spark.jars import spark_jars
from streaming.spark.spark_session import spark_session
from streaming.sql.parse import parse

RELATIONS = {
    name: Relation(name, tuple(Column(*column.split()) for column in columns))
    for name, columns in {
        "shop.orders": ("id bigint", "customer bigint", "status string"),
        "shop.lines": (
            "order_id bigint", "product bigint", "qty int", "price decimal(10,2)",
        ),
        "crm.customers": ("id bigint", "name string", "region string"),
    }.items()
}  # fmt: skip
JOINED = (
    "shop.orders o JOIN shop.lines l ON l.order_id = o.id JOIN crm.customers c ON c.id = o.customer"
)
VIEWS = (
    f"SELECT c.region, SUM(l.qty * l.price) AS revenue, COUNT(*) AS n FROM {JOINED}"
    " WHERE o.status <> 'cancelled' GROUP BY c.region",
    f"SELECT c.name, SUM(l.qty * l.price) AS spent FROM {JOINED} GROUP BY c.name",
    "SELECT o.id, c.name FROM shop.orders o JOIN crm.customers c ON c.id = o.customer"
    " WHERE o.status = 'open'",
    "SELECT l.product, SUM(l.qty) AS sold FROM shop.lines l GROUP BY l.product",
    "SELECT o.status, COUNT(*) AS n FROM shop.orders o GROUP BY o.status",
    "SELECT l.order_id, l.product, l.qty FROM shop.lines l WHERE l.qty > 5",
)
ORDERS, CUSTOMERS = 1000, 200


@dataclass(frozen=True)
class Step:
    """One step: seconds, core-seconds of the JVM, Spark jobs, rows of the delta."""

    seconds: float
    cpu: float
    jobs: int
    rows: int


class Jvm:
    """The JVM's meters."""

    def __init__(self, spark: SparkSession) -> None:
        self._pid = spark.sparkContext._gateway.proc.pid
        self._scheduler = spark.sparkContext._jsc.sc().dagScheduler()

    def cpu(self) -> float:
        """Core-seconds so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def jobs(self) -> int:
        """Spark jobs so far."""
        return int(self._scheduler.numTotalJobs())


def batches(count: int, transactions: int) -> list[Batch]:
    """The initial rows, then so many batches."""
    price = Decimal("3.50")
    made = [
        _batch(0, 0, {
            "shop.orders": [(0, 1, i, i % CUSTOMERS, "open") for i in range(ORDERS)],
            "shop.lines": [(0, 1, i % ORDERS, i % 50, i % 9 + 1, price) for i in range(3 * ORDERS)],
            "crm.customers": [(0, 1, i, f"c{i}", f"r{i % 7}") for i in range(CUSTOMERS)],
        })
    ]  # fmt: skip
    for first in range(1, count * transactions + 1, transactions):
        numbers = range(first, first + transactions)
        orders = [(n, 1, ORDERS + n, n % CUSTOMERS, "open") for n in numbers]
        for sign, status in ((-1, "open"), (1, "paid")):
            orders += [(n, sign, n % ORDERS, n % CUSTOMERS, status) for n in numbers if n < ORDERS]
        lines = [(n, 1, ORDERS + n, product, 2, price) for n in numbers for product in (3, 4)]
        made.append(_batch(numbers[0], numbers[-1], {"shop.orders": orders, "shop.lines": lines}))
    return made


def _batch(first: int, last: int, relations: dict[str, list[tuple[Any, ...]]]) -> Batch:
    tables = {}
    for name, rows in relations.items():
        schema = delta_schema(RELATIONS[name].schema)
        columns = zip(*rows, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        tables[name] = (pa.table(arrays, schema=schema),)
    return Batch(first, last, tables)


def steps(jvm: Jvm, evaluator: SparkEvaluator, given: Sequence[Batch]) -> list[Step]:
    """Every batch's step; a delta that is not DuckDB's raises AssertionError."""
    other, found = DuckEvaluator(evaluator.tree, threads=1), []
    for batch in given:
        began, cpu, jobs = time.perf_counter(), jvm.cpu(), jvm.jobs()
        delta = evaluator.evaluate(batch)
        evaluator.advance()
        seconds = time.perf_counter() - began
        found.append(Step(seconds, jvm.cpu() - cpu, jvm.jobs() - jobs, delta.num_rows))
        assert _sorted(delta) == _sorted(other.evaluate(batch)), f"batch {batch.first}"
        other.advance()
    return found


def _sorted(delta: pa.Table) -> list[str]:
    return sorted(map(str, delta.to_pylist()))


def side_by_side(
    jvm: Jvm, evaluators: Sequence[SparkEvaluator], given: Sequence[Batch]
) -> list[list[Step]]:
    """Every view's steps, each view in a thread of its own."""
    found: dict[int, list[Step]] = {}
    threads = [
        threading.Thread(target=lambda i=i, e=e: found.update({i: steps(jvm, e, given)}))
        for i, e in enumerate(evaluators)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[i] for i in range(len(evaluators))]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--transactions", type=int, default=40)
    options = parser.parse_args()
    given = batches(options.batches, options.transactions)
    sources = {"shop": SourceConfig(tables={"orders": "public.orders"})}
    folder = Path(tempfile.mkdtemp(prefix="fresco-bench-"))
    config = Config(pipeline="bench", warehouse=folder, views=folder, sources=sources)
    spark = spark_session(config, jars=[str(jar) for jar in spark_jars()])
    jvm = Jvm(spark)
    trees = [parse(sql, RELATIONS) for sql in VIEWS]

    def evaluators(name: str) -> list[SparkEvaluator]:
        return [SparkEvaluator(t, spark, folder / f"{name}{i}") for i, t in enumerate(trees)]

    six = side_by_side(jvm, evaluators("six"), given)
    print("| six views side by side, batch | longest step s | shortest step s |\n|---|---|---|")
    for k, row in enumerate(zip(*six, strict=True)):
        took = [step.seconds for step in row]
        print(f"| {k} | {max(took):.1f} | {min(took):.1f} |")
    print("\n| one view, batch | s | JVM core-s | Spark jobs |\n|---|---|---|---|")
    for k, step in enumerate(steps(jvm, evaluators("one")[0], given)):
        print(f"| {k} | {step.seconds:.1f} | {step.cpu:.1f} | {step.jobs} |")
    spark.stop()


if __name__ == "__main__":
    main()
