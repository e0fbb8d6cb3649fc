"""Tables of a view in DuckDB: leaves as signed rows, aggregates as partial totals (see `program`).

Tables only grow by appends. A leaf is folded when retractions have made enough of its rows useless,
totals when partial rows outnumber the groups. Each row carries the hash of its values (of its keys,
in totals), so that the few rows a batch needs are found by a pass over one column.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from streaming.algebra.delta import clustering, sums_round
from streaming.algebra.tree import Tree
from streaming.engines.duck_engine import duck_engine
from streaming.engines.leaf_delta import bag_sql, listed
from streaming.engines.program import Program
from streaming.engines.totals import folded_totals_sql, key_names, key_types, total_columns
from streaming.scalars.expression import MULTIPLICITY
from streaming.scalars.types import duck_type

FOLD_LEAST = 50_000
"""Rows below which folding is not worth a statement."""


def leaf_columns(leaf: Tree) -> list[tuple[str, str]]:
    """(name, DuckDB type) of a leaf's values."""
    return [(f"c{i}", duck_type(column.type)) for i, column in enumerate(leaf.schema)]


def quoted(path: Path) -> str:
    """A path as an SQL text literal."""
    return "'" + str(path).replace("'", "''") + "'"


class DuckState:
    """What `DuckEvaluator` keeps between batches.

    Args:
        shape: the view's tables.
        threads: of the engine.
        memory: DuckDB's memory limit ("2GB"), None for its default.
    """

    def __init__(self, shape: Program, threads: int, memory: str | None) -> None:
        self.shape = shape
        self.totals = [j for j, a in enumerate(self.shape.aggregates) if not sums_round(a)]
        self._garbage = [0] * len(self.shape.leaves)
        self._groups = {j: 0 for j in self.totals}
        self.db = duck_engine()
        self.db.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'")
        self._in_use = threads
        self.db.execute("SET preserve_insertion_order = false")
        if memory is not None:
            self.db.execute(f"SET memory_limit = '{memory}'")
        self._create()

    def _create(self) -> None:
        for i, leaf in enumerate(self.shape.leaves):
            columns = "".join(f", {n} {t}" for n, t in leaf_columns(leaf))
            self.db.execute(f"CREATE TABLE s{i} ({MULTIPLICITY} BIGINT{columns}, _hash UBIGINT)")
        for j in self.totals:
            aggregate = self.shape.aggregates[j]
            types = [duck_type(t) for t in key_types(aggregate)]
            keys = list(zip(key_names(aggregate), types, strict=True))
            columns = ", ".join(f"{n} {t}" for n, t in keys + total_columns(aggregate, "duckdb"))
            self.db.execute(f"CREATE TABLE t{j} ({columns}, _hash UBIGINT)")

    def use_threads(self, threads: int) -> None:
        """For the next statements."""
        if threads != self._in_use:
            self.db.execute(f"SET threads = {threads}")
            self._in_use = threads

    # Statements -----------------------------------------------------------------------------------

    def count(self, table: str, where: str = "TRUE") -> int:
        row = self.db.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()
        assert row is not None
        return int(row[0])

    def temporary(self, name: str, sql: str) -> None:
        """Make or replace a table that lives until the batch is advanced or discarded."""
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def drop_temporary(self) -> None:
        """Forget a batch's tables."""
        sql = "SELECT table_name FROM duckdb_tables() WHERE temporary"
        for (name,) in self.db.execute(sql).fetchall():
            self.db.execute(f"DROP TABLE {name}")

    # Changes --------------------------------------------------------------------------------------

    def append(self, program: Program, changed: list[int]) -> None:
        """Add a batch's deltas (tables di of the leaves `changed`) and its totals, atomically."""
        made = {step.name for step in program.steps}
        self.db.execute("BEGIN")
        try:
            for i in changed:
                self._append_leaf(i, f"d{i}")
            for j in self.totals:
                if f"w{j}" in made:
                    self._append_totals(j, program.totals_added(j))
        except duckdb.Error:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")
        for i in changed:
            self._garbage[i] += self.count(f"d{i}", f"{MULTIPLICITY} < 0")
        self._fold()

    def _append_leaf(self, i: int, source: str) -> None:
        leaf = self.shape.leaves[i]
        hashed = ", ".join(name for name, _ in leaf_columns(leaf)) or "0"
        cells = f"{MULTIPLICITY}{listed(leaf)}, hash({hashed})"
        self.db.execute(f"INSERT INTO s{i} SELECT {cells} FROM {source}")

    def _append_totals(self, j: int, sql: str) -> None:
        keys = ", ".join(key_names(self.shape.aggregates[j]))
        self.db.execute(f"INSERT INTO t{j} SELECT *, hash({keys}) FROM ({sql}) u")

    def _fold(self) -> None:
        for i, leaf in enumerate(self.shape.leaves):
            if self._garbage[i] > max(FOLD_LEAST, self.count(f"s{i}") // 4):
                self._begin_fold(f"s{i}", bag_sql(leaf, f"s{i}"))
                self._append_leaf(i, "folded")
                self.db.execute("COMMIT")
                self._garbage[i] = 0
        for j in self.totals:
            if self.count(f"t{j}") > FOLD_LEAST + 2 * self._groups[j]:
                aggregate = self.shape.aggregates[j]
                self._begin_fold(f"t{j}", folded_totals_sql(aggregate, j, "duckdb"))
                self._append_totals(j, "SELECT * FROM folded")
                self.db.execute("COMMIT")
                self._groups[j] = self.count(f"t{j}")

    def _begin_fold(self, table: str, sql: str) -> None:
        self.temporary("folded", sql)
        self.db.execute("BEGIN")
        self.db.execute(f"DELETE FROM {table}")

    # Durable form ---------------------------------------------------------------------------------

    def export(self, folder: Path) -> list[list[str]]:
        """Write each leaf's bag, folded and clustered, as Parquet; file names for each leaf."""
        order = clustering(self.shape.tree)
        files = []
        for i, leaf in enumerate(self.shape.leaves):
            by = ", ".join(f"f.c{p}" for p in order.get(leaf, ())) or MULTIPLICITY
            name = f"leaf{i}.parquet"
            sql = f"SELECT * FROM ({bag_sql(leaf, f's{i}')}) f ORDER BY {by}"
            self.db.execute(f"COPY ({sql}) TO {quoted(folder / name)} (FORMAT parquet)")
            files.append([name])
        return files

    def load(self, files: list[list[Path]]) -> None:
        """Replace the leaves' tables by what `export` wrote; totals are rebuilt by `rebuild`."""
        for i, paths in enumerate(files):
            self.db.execute(f"DELETE FROM s{i}")
            if paths:
                self._append_leaf(i, f"read_parquet([{', '.join(map(quoted, paths))}])")
            self._garbage[i] = 0

    def rebuild(self) -> None:
        """Make the totals anew from the leaves, inner aggregates first."""
        for j in self.totals:
            self.db.execute(f"DELETE FROM t{j}")
            self._append_totals(j, self.shape.totals_of(j))
            self._groups[j] = self.count(f"t{j}")
