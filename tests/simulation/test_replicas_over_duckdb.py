"""Histories of replicas whose delta plan is SQL that DuckDB runs, as in the service (`program`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streaming.algebra.tree import Scan, Tree, walk
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.scalars.expression import MULTIPLICITY, NUMBER, column_name
from streaming.simulator import nodes
from streaming.simulator.bag_evaluator import NumberedTable
from streaming.simulator.case import Case, Faults
from streaming.simulator.judging import holds
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level

COMPLETE = Level.COMPLETE
CHAIN = Case(scenario="local", transactions=5, batch=4, vary=True)
OPERATORS = replace(CHAIN, views="operators", relations="bag")


class OverDuckDB:
    """A replica's evaluator as the service has it: the plan as SQL (`engines.program`)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._engine = DuckEvaluator(tree, threads=1)
        widths = {n.relation: len(n.schema) for n in walk(tree) if isinstance(n, Scan)}
        names = (NUMBER, MULTIPLICITY, *map(column_name, range(max(widths.values()))))
        self._schemas = {
            relation: pa.schema([(name, pa.int64()) for name in names[: width + 2]])
            for relation, width in widths.items()
        }

    @property
    def number(self) -> int | None:
        return self._engine.number

    def evaluate(self, batch: Batch) -> Any:
        found = self._engine.evaluate(self._as_tables(batch))
        rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
        return NumberedTable({(number, tuple(row)): n for number, n, *row in rows})

    def _as_tables(self, batch: Batch) -> Batch:
        tables = {
            relation: tuple([self._as_table(relation, piece) for piece in pieces])
            for relation, pieces in batch.relations.items()
        }
        return replace(batch, relations=tables)

    def _as_table(self, relation: str, piece: Any) -> pa.Table:
        rows = [(number, count, *row) for (number, row), count in piece.items()]
        schema = self._schemas[relation]
        return pa.table(
            {name: [row[i] for row in rows] for i, name in enumerate(schema.names)}, schema
        )

    def advance(self) -> None:
        self._engine.advance()

    def discard(self) -> None:
        self._engine.discard()

    def replay(self, batch: Batch) -> None:
        self._engine.replay(self._as_tables(batch))


OVER_DUCKDB = {
    "chain": CHAIN,
    "total": replace(CHAIN, views="total", truncates=0.1),
    "operators": replace(OPERATORS, merge="auto"),
    "tower": replace(CHAIN, views="tower", merge="auto", rows=2),
    "crashes": replace(CHAIN, views="self", faults=Faults(crash=0.3)),
}


@pytest.mark.parametrize("name", OVER_DUCKDB)
def test_replicas_over_duckdb_are_complete(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_complete_over_duckdb(monkeypatch, name, 2)


@pytest.mark.deep
@pytest.mark.parametrize("name", OVER_DUCKDB)
def test_replicas_over_duckdb_are_complete_in_many_histories(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_complete_over_duckdb(monkeypatch, name, 300)


def assert_complete_over_duckdb(patch: pytest.MonkeyPatch, name: str, histories: int) -> None:
    patch.setattr(nodes, "BagEvaluator", OverDuckDB)
    case = OVER_DUCKDB[name]
    for seed in range(histories):
        assert holds(case, simulate(case, seed), COMPLETE), f"seed {seed}, {case}"
