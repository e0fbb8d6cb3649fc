"""The Spark evaluator: a view whose state or batches do not fit the driver (DESIGN 4).

The same programs as DuckDB's, in Spark's dialect. State is Parquet: for each leaf signed rows, for
each aggregate partial totals, as one part per batch; parts are folded into one when there are many.
Files are written when the batch is advanced and only then become part of the state, so `discard`
has nothing to undo; like DuckDB's tables they are a cache, rebuilt after a restart.

Each evaluator has a session of its own (same context): its temporary views have fixed names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming.algebra.delta import clustering, leaf_relation, sums_round
from streaming.algebra.engine import Engine
from streaming.algebra.evaluator import Batch, Rows, missing
from streaming.algebra.leafdelta import (
    bag_sql,
    empty_sql,
    lacking_sql,
    leaf_sql,
    net_sql,
    relation_columns,
    short_sql,
    truncate_sql,
)
from streaming.algebra.program import Program
from streaming.algebra.totals import (
    Step,
    folded_totals_sql,
    key_names,
    key_types,
    total_columns,
)
from streaming.algebra.tree import MULTIPLICITY, NUMBER, Tree

MOST_PARTS = 32
"""Parts of one table before they are folded."""
VALUE_CONDITIONS = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CAST_OVERFLOW",
    "CAST_INVALID_INPUT",
    "DIVIDE_BY_ZERO",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE",
    "DATETIME_OVERFLOW",
    "REMAINDER_BY_ZERO",
    "USER_RAISED_EXCEPTION",
)
"""Spark's error conditions for an expression without a value; others are not the view's fault."""


class SparkEvaluator(Engine):
    """See `evaluator.Evaluator`.

    Args:
        tree: the view.
        spark: any session of the application.
        folder: where state is kept, a path that the executors see; emptied here.
    """

    _rows_looked_at = 64  # a try takes seconds here

    def __init__(self, tree: Tree, spark: SparkSession, folder: Path) -> None:
        super().__init__(tree, "spark")
        self._shape = Program(tree, "spark")
        self._totals = [j for j, a in enumerate(self._shape.aggregates) if not sums_round(a)]
        self._folder = folder
        self._parts: dict[str, list[str]] = {}
        self._written = 0
        self._cached: list[DataFrame] = []
        self._spark = spark.newSession()
        for key, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        }.items():
            self._spark.conf.set(key, str(value))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._schemas = self._table_schemas()
        for table in self._schemas:
            self._parts[table] = []
            self._register(table)

    def _table_schemas(self) -> dict[str, str]:
        """The state tables' columns, in Spark's DDL."""
        schemas = {}
        for i, leaf in enumerate(self._shape.leaves):
            columns = "".join(f", c{p} {c.type}" for p, c in enumerate(leaf.schema))
            schemas[f"s{i}"] = f"{MULTIPLICITY} bigint{columns}"
        for j in self._totals:
            aggregate = self._shape.aggregates[j]
            keys = list(zip(key_names(aggregate), key_types(aggregate), strict=True))
            columns_ = keys + total_columns(aggregate, "spark")
            schemas[f"t{j}"] = ", ".join(f"{n} {t}" for n, t in columns_)
        return schemas

    # One batch ------------------------------------------------------------------------------------

    def _has_no_value(self, error: Exception) -> bool:
        return isinstance(error, PySparkException) and has_no_value(error)

    def _run(self, steps: list[Step]) -> None:
        for step in steps:
            self._view(step.name, step.sql)

    def _answer(self, sql: str) -> pa.Table:
        return self._spark.sql(sql).toArrow()

    def _view(self, name: str, sql: str) -> None:
        """A temporary view whose rows are computed once."""
        frame = self._spark.sql(sql).persist()
        self._cached.append(frame)
        frame.createOrReplaceTempView(name)

    def _count(self, table: str, where: str = "TRUE") -> int:
        return int(self._spark.sql(f"SELECT count(*) FROM {table} WHERE {where}").collect()[0][0])

    def _leaf_delta(self, i: int, batch: Batch) -> bool:
        leaf = self._shape.leaves[i]
        relation = leaf_relation(leaf)
        pieces, truncates = batch.of(relation)
        if not pieces and not truncates:
            return False
        table, state = f"d{i}", f"s{i}"
        if pieces:
            self._source(leaf, pieces, batch)
            self._view(f"{table}_0", leaf_sql(leaf, "source", "spark"))
        else:
            self._view(f"{table}_0", empty_sql(leaf, state))
        self._view(f"{table}_1", net_sql(leaf, f"{table}_0"))
        last = f"{table}_1"
        for k, number in enumerate(truncates, start=2):
            gone = truncate_sql(leaf, last, state, number)
            self._view(f"{table}_{k}", f"SELECT * FROM {last} UNION ALL ({gone})")
            last = f"{table}_{k}"
        self._spark.table(last).createOrReplaceTempView(table)
        if self._count(table, f"{MULTIPLICITY} < 0"):
            self._check_retractions(leaf, relation, table, state)
        return self._count(table) > 0

    def _source(self, leaf: Tree, pieces: tuple[Rows, ...], batch: Batch) -> None:
        columns = [NUMBER, MULTIPLICITY, *relation_columns(leaf)]
        frames = []
        for rows in pieces:
            if isinstance(rows, Path):
                frame = self._spark.read.parquet(str(rows))
            else:
                frame = self._spark.createDataFrame(rows.select(columns))
            frames.append(frame.select(*columns))
        union = frames[0]
        for frame in frames[1:]:
            union = union.unionAll(frame)
        within = f"{NUMBER} BETWEEN {batch.first} AND {batch.last}"
        union.where(within).createOrReplaceTempView("source")

    def _check_retractions(self, leaf: Tree, relation: str, table: str, state: str) -> None:
        """Every retraction finds its row: no multiplicity falls below zero at any number."""
        self._view("short", short_sql(leaf, table))
        found = self._spark.sql(lacking_sql(leaf, "short", state)).collect()
        if found:
            row = found[0]
            raise missing(relation, int(row[0]), tuple(row[2:]), -int(row[1]))

    # State ----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Make the evaluated batch part of the state: new parts first, then their names."""
        assert self._pending is not None, "advance without evaluate"
        program, changed, number = self._pending
        made = {step.name for step in program.steps}
        new = {}
        for i in changed:
            rows = self._spark.table(f"d{i}").drop(NUMBER)
            new[f"s{i}"] = self._write(rows)
        for j in self._totals:
            if f"w{j}" in made:
                new[f"t{j}"] = self._write(self._spark.sql(program.totals_added(j)))
        for table, part in new.items():
            self._parts[table].append(part)
            self._register(table)
        self.number = number
        self.discard()
        self._fold()

    def _write(self, frame: DataFrame) -> str:
        self._written += 1
        path = str(self._folder / f"part-{self._written}")
        frame.write.parquet(path)
        return path

    def _register(self, table: str) -> None:
        reader = self._spark.read.schema(self._schemas[table])
        parts = self._parts[table]
        frame = (
            reader.parquet(*parts)
            if parts
            else self._spark.createDataFrame([], self._schemas[table])
        )
        frame.createOrReplaceTempView(table)

    def _fold(self) -> None:
        for table, parts in self._parts.items():
            if len(parts) > MOST_PARTS:
                index = int(table[1:])
                if table[0] == "s":
                    sql = bag_sql(self._shape.leaves[index], table)
                else:
                    sql = folded_totals_sql(self._shape.aggregates[index], index, "spark")
                self._replace(table, [self._write(self._spark.sql(sql))])

    def _replace(self, table: str, parts: list[str]) -> None:
        old, self._parts[table] = self._parts[table], parts
        self._register(table)
        for part in old:
            if Path(part).parent == self._folder:
                shutil.rmtree(part, ignore_errors=True)

    def discard(self) -> None:
        """Forget the evaluated batch."""
        self._pending = None
        for frame in self._cached:
            frame.unpersist()
        self._cached = []

    def rows(self) -> int:
        """Rows of the leaves' tables."""
        return sum(self._count(f"s{i}") for i in range(len(self._shape.leaves)))

    def export(self, folder: Path) -> list[list[str]]:
        """Write each leaf's bag as Parquet, folded, clustered by its join or group columns."""
        order = clustering(self.tree)
        files = []
        for i, leaf in enumerate(self._shape.leaves):
            frame = self._spark.sql(bag_sql(leaf, f"s{i}"))
            columns = [f"c{p}" for p in order.get(leaf, ())]
            if columns:
                frame = frame.sort(*columns)
            frame.write.parquet(str(folder / f"leaf{i}"))
            written = sorted((folder / f"leaf{i}").glob("part-*.parquet"))
            files.append([f"leaf{i}/{path.name}" for path in written])
        return files

    def load(self, files: list[list[Path]], number: int) -> None:
        """Take over what an evaluator's `export` wrote, as the state at `number`."""
        for i, paths in enumerate(files):
            self._replace(f"s{i}", [str(path) for path in paths])
        self.number = number
        self._stale = True

    def replay(self, batch: Batch) -> None:
        """Add a batch to the leaves without computing the view; for restoring.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING.
        """
        self._pending = (self._shape, self._changed(self._shape, batch), batch.last)
        self.advance()
        self._stale = True

    def _freshen(self) -> None:
        """Rebuild the totals after the leaves were replaced, inner aggregates first."""
        if self._stale:
            for j in self._totals:
                self._replace(f"t{j}", [self._write(self._spark.sql(self._shape.totals_of(j)))])
            self._stale = False


def has_no_value(error: PySparkException) -> bool:
    """Whether the error says that an expression has no value at some row."""
    condition = error.getCondition() or ""
    return condition.split(".")[0] in VALUE_CONDITIONS or any(
        f"[{name}" in str(error) for name in VALUE_CONDITIONS
    )
