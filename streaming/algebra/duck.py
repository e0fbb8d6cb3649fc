"""The DuckDB evaluator: a view's state in memory in the driver, answers in milliseconds (DESIGN 4).

What it holds is a cache: `export` and `load` carry it to and from durable files, and `number` says what
it reflects. A batch lives in temporary tables until it is advanced or discarded.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from streaming.algebra.delta import is_net, leaf_relation
from streaming.algebra.duckstate import DuckState, leaf_columns, listed
from streaming.algebra.evaluator import Batch, Rows, ViewError, arithmetic, missing
from streaming.algebra.program import Program, leaf_sql
from streaming.algebra.totals import SAME
from streaming.algebra.tree import MULTIPLICITY, NUMBER, Scan, Tree, walk
from streaming.algebra.types import delta_schema, duck_type


class DuckEvaluator:
    """See `evaluator.Evaluator`.

    Args:
        tree: the view.
        threads: of this view's engine.
        memory: DuckDB's memory limit ("2GB"), None for its default.
    """

    def __init__(self, tree: Tree, *, threads: int = 2, memory: str | None = None) -> None:
        self.tree = tree
        self.number: int | None = None
        self._state = DuckState(tree, threads, memory)
        self._pending: tuple[Program, list[int], int] | None = None
        self._stale = False

    # One batch ------------------------------------------------------------------------------------

    def evaluate(self, batch: Batch) -> pa.Table:
        """The view's delta; see `evaluator.Evaluator.evaluate`.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING; VIEW_ARITHMETIC with the first number that fails.
        """
        self.discard()
        try:
            self._freshen()
            return self._evaluate(batch)
        except ViewError:
            self.discard()
            raise
        except duckdb.Error as error:
            number = self._first_failure(batch)
            self.discard()
            raise arithmetic(str(error).splitlines()[0], number) from error

    def _first_failure(self, batch: Batch) -> int | None:
        """The first number that fails, by bisection: a prefix of a batch depends on nothing later."""
        low, high = batch.first, batch.last
        while low < high:
            middle = (low + high) // 2
            try:
                self._evaluate(batch.until(middle))
                low = middle + 1
            except duckdb.Error:
                high = middle
            except ViewError:
                return None
        return low

    def _evaluate(self, batch: Batch) -> pa.Table:
        start = batch.first if self.number is None else None
        program = Program(self.tree, "duckdb", start)
        changed = [i for i in range(len(program.leaves)) if self._leaf_delta(i, batch)]
        plan = program.plan(frozenset(program.leaves[i] for i in changed))
        self._pending = (program, changed, batch.last)
        schema = delta_schema(self.tree.schema)
        result = None if plan is None else program.query(plan)
        for step in program.steps:
            self._state.temporary(step.name, step.sql)
        if plan is None:
            return schema.empty_table()
        names = [f"c{i}" for i in range(len(self.tree.schema))]
        typed = "".join(
            f", CAST(o.{n} AS {duck_type(c.type)}) AS {n}"
            for n, c in zip(names, self.tree.schema, strict=True)
        )
        if is_net(plan):
            sql = f"SELECT o._number, o._multiplicity{typed} FROM ({result}) o"
        else:
            sums = "CAST(SUM(o._multiplicity) AS BIGINT) AS _multiplicity"
            by = ", ".join(f"o.{n}" for n in [NUMBER, *names])
            sql = (
                f"SELECT o._number, {sums}{typed} FROM ({result}) o GROUP BY {by}"
                " HAVING SUM(o._multiplicity) <> 0"
            )
        return self._state.db.execute(sql).to_arrow_table().cast(schema)

    def _leaf_delta(self, i: int, batch: Batch) -> bool:
        """Makes di, with truncates expanded and retractions checked; whether it has rows."""
        leaf = self._state.shape.leaves[i]
        relation = leaf_relation(leaf)
        pieces = batch.relations.get(relation, ())
        truncates = sorted(number for number, name in batch.truncates if name == relation)
        if not pieces and not truncates:
            return False
        columns = listed(leaf)
        if not pieces:
            empty = f"SELECT CAST(0 AS BIGINT) AS {NUMBER}, {MULTIPLICITY}{columns} FROM s{i} LIMIT 0"
            self._state.temporary(f"d{i}", empty)
        else:
            self._state.temporary(f"d{i}", self._source(leaf, pieces, batch))
        if self._state.count(f"d{i}", f"{MULTIPLICITY} < 0"):
            total = f"CAST(SUM(n.{MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}"
            grouped = f"GROUP BY {NUMBER}{columns} HAVING SUM(n.{MULTIPLICITY}) <> 0"
            self._state.temporary(
                f"d{i}", f"SELECT {NUMBER}, {total}{columns} FROM d{i} n {grouped}"
            )
        for number in truncates:
            self._truncate(i, columns, number)
        if self._state.count(f"d{i}", f"{MULTIPLICITY} < 0"):
            self._check_retractions(i, relation)
        return self._state.count(f"d{i}") > 0

    def _source(self, leaf: Tree, pieces: tuple[Rows, ...], batch: Batch) -> str:
        names = ", ".join([NUMBER, MULTIPLICITY, *_relation_columns(leaf)])
        parts = []
        for k, rows in enumerate(pieces):
            if isinstance(rows, Path):
                name = str(rows).replace("'", "''")
                table = f"read_parquet('{name}')"
            else:
                table = f"input{k}"
                self._state.db.register(table, rows)
            within = f"{NUMBER} BETWEEN {batch.first} AND {batch.last}"
            parts.append(f"SELECT {names} FROM {table} WHERE {within}")
        source = f"({' UNION ALL '.join(parts)})"
        sql = leaf_sql(leaf, source, "duckdb", (NUMBER, MULTIPLICITY))
        typed = "".join(f", CAST(y.{n} AS {t}) AS {n}" for n, t in leaf_columns(leaf))
        return f"SELECT y.{NUMBER}, y.{MULTIPLICITY}{typed} FROM ({sql}) y"

    def _truncate(self, i: int, columns: str, number: int) -> None:
        """Everything that stood just before the number leaves under it."""
        cells = f"{MULTIPLICITY}{columns}"
        earlier = f"SELECT {cells} FROM s{i} UNION ALL SELECT {cells} FROM d{i} WHERE {NUMBER} < {number}"
        group = f" GROUP BY {columns[2:]}" if columns else ""
        self._state.db.execute(
            f"INSERT INTO d{i} SELECT {number}, CAST(-SUM(b.{MULTIPLICITY}) AS BIGINT){columns}"
            f" FROM ({earlier}) b{group} HAVING SUM(b.{MULTIPLICITY}) <> 0"
        )

    def _check_retractions(self, i: int, relation: str) -> None:
        """Every retraction finds its row: no multiplicity falls below zero at any number."""
        names = [name for name, _ in leaf_columns(self._state.shape.leaves[i])]
        keys = ", ".join(names) or "0"
        window = f"(PARTITION BY {keys} ORDER BY {NUMBER})"
        sums = f"SELECT *, SUM({MULTIPLICITY}) OVER {window} AS _sum FROM d{i}"
        short = f"SELECT * FROM ({sums}) r WHERE r.{MULTIPLICITY} < 0 AND r._sum < 0"
        self._state.temporary("short", short)
        if not self._state.count("short"):
            return
        where = f" WHERE _hash IN (SELECT hash({keys}) FROM short)" if names else ""
        group = f" GROUP BY {keys}" if names else ""
        same = " AND ".join(f"h.{n} {SAME} s.{n}" for n in names) or "TRUE"
        held = f"SELECT {keys}, SUM({MULTIPLICITY}) AS held FROM s{i}{where}{group}"
        lack = "h._sum + COALESCE(s.held, 0)"
        cells = ", ".join([f"h.{NUMBER}", f"{lack} AS lack", *(f"h.{n}" for n in names)])
        found = self._state.db.execute(
            f"SELECT {cells} FROM short h LEFT JOIN ({held}) s ON {same}"
            f" WHERE {lack} < 0 ORDER BY ALL LIMIT 1"
        ).fetchone()
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
        return sum(self._state.count(f"s{i}") for i in range(len(self._state.shape.leaves)))

    def export(self, folder: Path) -> list[str]:
        """Write each leaf's bag as Parquet, folded, clustered by what it is joined or grouped on."""
        return self._state.export(folder)

    def load(self, files: list[Path], number: int) -> None:
        """Take over what an evaluator's `export` wrote, as the state at `number`."""
        self._state.load(files)
        self.number = number
        self._stale = True

    def replay(self, batch: Batch) -> None:
        """Add a batch to the leaves without computing the view; for restoring.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING.
        """
        changed = [i for i in range(len(self._state.shape.leaves)) if self._leaf_delta(i, batch)]
        self._state.append(self._state.shape, changed)
        self.number = batch.last
        self._stale = True
        self.discard()

    def _freshen(self) -> None:
        if self._stale:
            self._state.rebuild()
            self._stale = False


def _relation_columns(leaf: Tree) -> list[str]:
    scan = next(node for node in walk(leaf) if isinstance(node, Scan))
    return [f"c{position}" for position in range(len(scan.schema))]
