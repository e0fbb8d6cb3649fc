"""Which evaluator holds a view's state: DuckDB in the driver while it fits, else Spark (DESIGN 4)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from streaming.algebra.tree import Tree, relations
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Evaluator, Limits, choose
from streaming.engines.spark_evaluator import SparkEvaluator
from streaming.messages import Updates
from streaming.spark.spark_session import Session
from streaming.viewmanagers.replica import ReplicaManager

Kind = Literal["duckdb", "spark"]


class Evaluators:
    """The two evaluators of one view, and the choice between them before each batch.

    Args:
        spark: the session, which is waited for only where it is used.
        folder: where Spark keeps the state; a path that the executors see, for this view alone.
        limits: rows of state and batch that may be in the driver.
    """

    def __init__(self, tree: Tree, spark: Session, folder: Path, limits: Limits) -> None:
        self._tree, self._spark = tree, spark
        self._folder, self._limits = folder, limits
        self._kind: Kind = "duckdb"

    def first(self) -> Evaluator:
        """An empty one in the driver, for a manager that starts."""
        self._kind = "duckdb"
        return self._make("duckdb")

    def fit(self, manager: ReplicaManager, messages: Sequence[Updates]) -> None:
        """Move the manager's state to the evaluator that this batch asks for."""
        used = relations(self._tree)
        batch = sum(
            rows.rows
            for updates in messages
            for name, rows in updates.relations.items()
            if name in used
        )
        kind = choose(self._limits, manager.evaluator.rows(), batch)
        if kind == self._kind:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        moving = Path(tempfile.mkdtemp(prefix="moving-", dir=self._folder))
        try:
            manager.move(self._make(kind), moving)
        finally:
            shutil.rmtree(moving, ignore_errors=True)
        self._kind = kind

    def _make(self, kind: Kind) -> Evaluator:
        if kind == "spark":
            return SparkEvaluator(self._tree, self._spark(), self._folder / "state")
        return DuckEvaluator(self._tree)
