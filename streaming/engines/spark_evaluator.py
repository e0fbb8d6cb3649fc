"""The Spark evaluator: a view whose state or batches do not fit the driver (DESIGN 4).

The same programs as DuckDB's, in Spark's dialect. State is Parquet: for each leaf signed rows, for
each aggregate partial totals, as one part per batch; parts are folded into one when there are many.
Files are written when the batch is advanced and only then become part of the state, so `discard`
has nothing to undo; like DuckDB's tables they are a cache, rebuilt after a restart.

Each evaluator has a session of its own (same context): its temporary views have fixed names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming.algebra.delta import clustering, leaf_relation, sums_round
from streaming.algebra.tree import Tree
from streaming.engines.duck.duck_evaluator import VALUE_ERRORS, source_sql
from streaming.engines.duck.duck_state import leaf_columns, quoted
from streaming.engines.duck_engine import duck_engine
from streaming.engines.engine import Engine
from streaming.engines.evaluator import Batch, Rows, missing
from streaming.engines.leaf_delta import (
    bag_sql,
    lacking_sql,
    names,
    net_sql,
    short_sql,
    truncate_sql,
)
from streaming.engines.program import Program
from streaming.engines.totals import (
    SAME,
    folded_totals_sql,
    key_names,
    key_types,
    total_columns,
)
from streaming.scalars.expression import MULTIPLICITY, NUMBER

MOST_PARTS = 32
"""Parts of one table before they are folded."""
SMALL_STATE = 1_000_000
"""Rows of state up to which what a step costs is Spark's planning and not its rows."""
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for small states: no code generated, which each batch's numbers would make new code, and no
job more than the answer's own, as a broadcast is one."""
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
        self._totals = [j for j, a in enumerate(self._shape.aggregates) if not sums_round(a)]
        self._folder = folder
        self._parts: dict[str, list[str]] = {}
        self._written = 0
        self._cached: list[DataFrame] = []
        self._deltas: dict[int, str] = {}
        self._loose: set[str] = set()
        """Parts of the batch under way."""
        self._known_rows: dict[str, int] = {}
        self._spark = spark.newSession()
        for key, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": spark.conf.get("spark.sql.shuffle.partitions"),
            "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        }.items():
            self._spark.conf.set(key, str(value))
        self._large = {key: str(self._spark.conf.get(key)) for key in SMALL}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._duck = duck_engine()
        self._duck.execute("SET threads = 1; SET TimeZone = 'UTC'")
        self._duck.execute(f"SET temp_directory = {quoted(folder / 'duckdb')}")
        self._schemas = self._table_schemas()
        for table in self._schemas:
            self._parts[table] = []
            self._register(table)

    def _table_schemas(self) -> dict[str, str]:
        """The state tables' columns, in Spark's DDL."""
        schemas = {}
        for i, leaf in enumerate(self._shape.leaves):
            schemas[f"s{i}"] = state_columns(leaf)
        for j in self._totals:
            aggregate = self._shape.aggregates[j]
            keys = list(zip(key_names(aggregate), key_types(aggregate), strict=True))
            columns_ = keys + total_columns(aggregate, "spark")
            schemas[f"t{j}"] = ", ".join(f"{n} {t}" for n, t in columns_)
        return schemas

    # One batch ------------------------------------------------------------------------------------

    def _has_no_value(self, error: Exception) -> bool:
        return isinstance(error, VALUE_ERRORS) or (
            isinstance(error, PySparkException) and has_no_value(error)
        )

    def _evaluate(self, batch: Batch) -> pa.Table:
        small = self.rows() <= SMALL_STATE
        for key, value in self._large.items():
            self._spark.conf.set(key, SMALL[key] if small else value)
        return super()._evaluate(batch)

    def _run(self, program: Program) -> None:
        """Views of the steps; the rows of one that is read more than once are kept."""
        kept = program.read_again | program.met
        for step in program.steps:
            frame = self._spark.sql(step.sql)
            # Totals are added from w, and Spark moves nothing below rows that are kept.
            if step.name[0] == "w" or step.name in kept:
                frame = frame.persist()
                self._cached.append(frame)
            frame.createOrReplaceTempView(step.name)

    def _answer(self, sql: str) -> pa.Table:
        return self._spark.sql(sql).toArrow()

    def _leaf_delta(self, i: int, batch: Batch) -> bool:
        """DuckDB works on the batch's own rows, out of core; Spark is asked where state is needed."""
        leaf = self._shape.leaves[i]
        relation = leaf_relation(leaf)
        pieces, truncates = batch.of(relation)
        if not pieces and not truncates:
            return False
        part = self._part(self._batch_sql(leaf, pieces, batch))
        if truncates:
            part = self._truncated(leaf, part, f"s{i}", truncates)
        self._deltas[i] = part
        delta = self._read([part], delta_columns(leaf))
        delta.createOrReplaceTempView(f"d{i}")
        if self._counted(part, f"{MULTIPLICITY} < 0"):
            self._check_retractions(leaf, relation, part, f"s{i}")
        return self._counted(part) > 0

    def _batch_sql(self, leaf: Tree, pieces: tuple[Rows, ...], batch: Batch) -> str:
        if pieces:
            return net_sql(leaf, f"({source_sql(self._duck, leaf, pieces, batch)})")
        columns = [(NUMBER, "BIGINT"), (MULTIPLICITY, "BIGINT"), *leaf_columns(leaf)]
        cells = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in columns)
        return f"SELECT {cells} LIMIT 0"

    def _truncated(self, leaf: Tree, part: str, state: str, truncates: list[int]) -> str:
        """The batch's rows with those that its truncates take out of the state."""
        rows, last = self._read([part], delta_columns(leaf)), "truncated"
        for number in truncates:
            rows.createOrReplaceTempView(last)
            gone = truncate_sql(leaf, last, state, number)
            rows = self._spark.sql(f"SELECT * FROM {last} UNION ALL ({gone})")
            last = f"truncated_{number}"
        return self._write(rows)

    def _check_retractions(self, leaf: Tree, relation: str, part: str, state: str) -> None:
        """Every retraction finds its row: no multiplicity falls below zero at any number."""
        short = short_sql(leaf, f"read_parquet({_files(part)})")
        asked = self._part(f"SELECT * REPLACE (CAST(_sum AS BIGINT) AS _sum) FROM ({short})")
        if not self._counted(asked):
            return
        self._read([asked], f"{delta_columns(leaf)}, _sum bigint").createOrReplaceTempView("short")
        same = " AND ".join(f"g.{name} {SAME} s.{name}" for name in names(leaf)) or "true"
        held = f"(SELECT * FROM {state} g LEFT SEMI JOIN short s ON {same})"
        found = self._spark.sql(lacking_sql(leaf, "short", held)).collect()
        if found:
            row = found[0]
            raise missing(relation, int(row[0]), tuple(row[2:]), -int(row[1]))

    # Files ----------------------------------------------------------------------------------------

    def _fresh(self) -> str:
        """The place of a part to be written; `discard` removes it unless the state has taken it."""
        self._written += 1
        part = str(self._folder / f"part-{self._written}")
        self._loose.add(part)
        return part

    def _part(self, sql: str) -> str:
        """DuckDB's rows as a part."""
        part = self._fresh()
        Path(part).mkdir()
        file = quoted(Path(part) / "rows.parquet")
        self._duck.execute(f"COPY ({sql}) TO {file} (FORMAT parquet)")
        return part

    def _write(self, frame: DataFrame) -> str:
        part = self._fresh()
        frame.write.parquet(part)
        return part

    def _read(self, parts: list[str], schema: str) -> DataFrame:
        """The rows of parts; columns that the schema does not name are not read."""
        if not parts:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*parts)

    def _counted(self, part: str, where: str = "TRUE") -> int:
        sql = f"SELECT count(*) FROM read_parquet({_files(part)}) WHERE {where}"
        row = self._duck.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    # State ----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Make the evaluated batch part of the state: new parts first, then their names."""
        assert self._pending is not None, "advance without evaluate"
        program, changed, number = self._pending
        made = {step.name for step in program.steps}
        new = {f"s{i}": self._deltas[i] for i in changed}
        for j in self._totals:
            if f"w{j}" in made:
                new[f"t{j}"] = self._write(self._spark.sql(program.totals_added(j)))
        for table, part in new.items():
            self._parts[table].append(part)
            self._loose.discard(part)
            self._register(table)
        self.number = number
        self.discard()
        self._fold()

    def _register(self, table: str) -> None:
        frame = self._read(self._parts[table], self._schemas[table])
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
        self._loose.difference_update(parts)
        self._register(table)
        self._remove(old)

    def _remove(self, parts: Iterable[str]) -> None:
        for part in parts:
            self._known_rows.pop(part, None)
            shutil.rmtree(part, ignore_errors=True)

    def discard(self) -> None:
        """Forget the evaluated batch."""
        self._pending = None
        for frame in self._cached:
            frame.unpersist()
        self._cached, self._deltas = [], {}
        self._remove(self._loose)
        self._loose = set()

    def rows(self) -> int:
        """Rows of the leaves' tables, as the files say."""
        return sum(
            self._rows_of(part)
            for i in range(len(self._shape.leaves))
            for part in self._parts[f"s{i}"]
        )

    def _rows_of(self, part: str) -> int:
        if part not in self._known_rows:
            files = Path(part).glob("*.parquet")
            self._known_rows[part] = sum(pq.read_metadata(file).num_rows for file in files)
        return self._known_rows[part]

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
        """Take over what an evaluator's `export` wrote, as the state at `number`.

        The files are linked or copied: whoever keeps them removes them when he likes.
        """
        for i, paths in enumerate(files):
            part = self._fresh()
            Path(part).mkdir()
            for k, path in enumerate(paths):
                own = Path(part) / f"{k}.parquet"
                try:
                    os.link(path, own)
                except OSError:
                    shutil.copyfile(path, own)
            self._replace(f"s{i}", [part] if paths else [])
        self.number = number
        self._stale = True

    def replay(self, batch: Batch) -> None:
        """Add a batch to the leaves without computing the view; for restoring.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING.
        """
        self._pending = (self._shape, self._changed(batch), batch.last)
        self.advance()
        self._stale = True

    def _freshen(self) -> None:
        """Rebuild the totals after the leaves were replaced, inner aggregates first."""
        if self._stale:
            for j in self._totals:
                self._replace(f"t{j}", [self._write(self._spark.sql(self._shape.totals_of(j)))])
            self._stale = False


def state_columns(leaf: Tree) -> str:
    """The columns of a leaf's bag, in Spark's DDL."""
    columns = "".join(f", c{p} {c.type}" for p, c in enumerate(leaf.schema))
    return f"{MULTIPLICITY} bigint{columns}"


def delta_columns(leaf: Tree) -> str:
    """The columns of a leaf's delta, in Spark's DDL."""
    return f"{NUMBER} bigint, {state_columns(leaf)}"


def _files(part: str) -> str:
    """A part's files, as a text literal of DuckDB."""
    return quoted(Path(part) / "*.parquet")


def has_no_value(error: PySparkException) -> bool:
    """Whether the error says that an expression has no value at some row."""
    condition = error.getCondition() or ""
    return condition.split(".")[0] in VALUE_CONDITIONS or any(
        f"[{name}" in str(error) for name in VALUE_CONDITIONS
    )
