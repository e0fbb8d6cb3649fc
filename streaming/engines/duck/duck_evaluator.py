"""The DuckDB evaluator: a view's state in memory in the driver, answers in milliseconds (DESIGN 4).

What it holds is a cache: `export` and `load` carry it to and from durable files, and `number` says
what it reflects. A batch lives in temporary tables until it is advanced or discarded.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from streaming.algebra.delta import leaf_relation
from streaming.algebra.tree import Aggregate, Tree
from streaming.engines.duck.cumulate import cumulate
from streaming.engines.duck.duck_state import DuckState, quoted
from streaming.engines.duck_engine import ALL
from streaming.engines.engine import Engine
from streaming.engines.evaluator import Batch, Rows, missing
from streaming.engines.leaf_delta import (
    empty_sql,
    lacking_sql,
    leaf_sql,
    names,
    net_sql,
    read_columns,
    short_sql,
    truncate_sql,
)
from streaming.engines.program import Program
from streaming.scalars.expression import MULTIPLICITY, NUMBER

RETRACTIONS = f"{MULTIPLICITY} < 0"
VALUE_ERRORS = (
    duckdb.OutOfRangeException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
)
"""What DuckDB raises where an expression has no value; anything else is not the view's fault."""

SMALL_BATCH = 20_000
"""Rows below which one thread takes less CPU and no more time (measured: 75 instead of 98 ms)."""


class DuckEvaluator(Engine):
    """See `evaluator.Evaluator`.

    Args:
        tree: the view.
        threads: of this view's engine.
        memory: DuckDB's memory limit ("2GB"), None for its default.
    """

    def __init__(self, tree: Tree, *, threads: int = 2, memory: str | None = None) -> None:
        super().__init__(tree, "duckdb")
        self._threads = threads
        self._state = DuckState(self._shape, threads, memory)

    # One batch ------------------------------------------------------------------------------------

    def _has_no_value(self, error: Exception) -> bool:
        return isinstance(error, VALUE_ERRORS)

    def _evaluate(self, batch: Batch) -> pa.Table:
        self._state.use_threads(1 if _is_small(batch) else self._threads)
        return super()._evaluate(batch)

    def _answer(self, sql: str) -> pa.Table:
        return self._state.db.execute(sql).to_arrow_table()

    def _run(self, program: Program) -> None:
        done = ""
        for step in program.steps:
            if step.name == done:
                continue
            if step.sort is not None and self._cumulate(step.sort, step.entries, step.name):
                done = f"w{step.name[1:]}"
                continue
            self._state.temporary(step.name, step.sql)

    def _cumulate(self, aggregate: Aggregate, entries: str, name: str) -> bool:
        """Make the table w by sorting, where 64 bits suffice; whether it was made."""
        rows = self._state.db.execute(entries).to_arrow_table()
        table = cumulate(aggregate, rows)
        if table is None:
            return False
        self._state.db.register("cumulated", table)
        self._state.temporary(f"w{name[1:]}", "SELECT * FROM cumulated")
        self._state.db.unregister("cumulated")
        return True

    def _leaf_delta(self, i: int, batch: Batch) -> bool:
        leaf = self._shape.leaves[i]
        relation = leaf_relation(leaf)
        pieces, truncates = batch.of(relation)
        if not pieces and not truncates:
            return False
        table, state = f"d{i}", f"s{i}"
        if pieces:
            self._state.temporary(table, source_sql(self._state.db, leaf, pieces, batch))
        else:
            self._state.temporary(table, empty_sql(leaf, state))
        if self._state.count(table, RETRACTIONS):
            self._state.temporary(table, net_sql(leaf, table))
        for number in truncates:
            self._state.db.execute(
                f"INSERT INTO {table} {truncate_sql(leaf, table, state, number)}"
            )
        if self._state.count(table, RETRACTIONS):
            self._check_retractions(leaf, relation, table, state)
        return self._state.count(table) > 0

    def _check_retractions(self, leaf: Tree, relation: str, table: str, state: str) -> None:
        """Every retraction finds its row: no multiplicity falls below zero at any number."""
        self._state.temporary("short", short_sql(leaf, table))
        if not self._state.count("short"):
            return
        if leaf.schema:
            keys = ", ".join(names(leaf))
            state = f"(SELECT * FROM {state} WHERE _hash IN (SELECT hash({keys}) FROM short))"
        found = self._state.db.execute(lacking_sql(leaf, "short", state)).fetchone()
        if found is not None:
            raise missing(relation, int(found[0]), tuple(found[2:]), -int(found[1]))

    # State ----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Make the evaluated batch part of the state."""
        assert self._pending is not None, "advance without evaluate"
        program, changed, number = self._pending
        self._state.append(program, changed)
        self.number = number
        self.discard()

    def discard(self) -> None:
        """Forget the evaluated batch."""
        self._pending = None
        self._state.drop_temporary()

    def rows(self) -> int:
        """Rows of the leaves' tables."""
        return sum(self._state.count(f"s{i}") for i in range(len(self._shape.leaves)))

    def export(self, folder: Path) -> list[list[str]]:
        """Write each leaf's bag as Parquet, folded, clustered by its join or group columns."""
        return self._state.export(folder)

    def load(self, files: list[list[Path]], number: int) -> None:
        """Take over what an evaluator's `export` wrote, as the state at `number`."""
        self._state.load(files)
        self.number = number
        self._stale = True

    def replay(self, batch: Batch) -> None:
        """Add a batch to the leaves without computing the view; for restoring.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING.
        """
        self._state.append(self._shape, self._changed(batch))
        self.number = batch.last
        self._stale = True
        self.discard()

    def _freshen(self) -> None:
        if self._stale:
            self._state.rebuild()
            self._stale = False


def source_sql(
    db: duckdb.DuckDBPyConnection, leaf: Tree, pieces: tuple[Rows, ...], batch: Batch
) -> str:
    """The leaf's rows of a batch, from its relation's, of which those in memory are registered."""
    columns = ", ".join([NUMBER, MULTIPLICITY, *read_columns(leaf)])
    parts = []
    for k, rows in enumerate(pieces):
        if isinstance(rows, Path):
            table = f"read_parquet({quoted(rows)})"
        else:
            table = f"input{k}"
            db.register(table, rows)
        within = f"{NUMBER} BETWEEN {batch.first} AND {batch.last}"
        parts.append(f"(SELECT {columns} FROM {table} WHERE {within} {ALL})")
    return leaf_sql(leaf, f"({' UNION ALL '.join(parts)})", "duckdb")


def _is_small(batch: Batch) -> bool:
    """Whether several threads would cost more than they save: the views share the cores."""
    rows = 0
    for pieces in batch.relations.values():
        for piece in pieces:
            if not isinstance(piece, pa.Table):
                return False
            rows += piece.num_rows
    return rows < SMALL_BATCH
