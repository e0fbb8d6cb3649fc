"""One batch through an engine's tables, the same for DuckDB and Spark (see `evaluator.Evaluator`).

The leaves' deltas become tables, the view's program runs over them, and its result is the view's
delta. Where an expression has no value, the batch's prefixes are tried by bisection until the first
number that fails is known: no prefix depends on what comes later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from streaming.algebra.tree import Tree
from streaming.engines.culprit import failing_row
from streaming.engines.evaluator import Batch, ViewError, arithmetic
from streaming.engines.program import Program, program_of
from streaming.scalars.renderings import Dialect
from streaming.scalars.types import delta_schema


class Engine(ABC):
    """What an engine makes of a batch; it keeps its tables and forgets them in `discard`."""

    _rows_looked_at = 1_000_000
    """Rows among which the one that has no value is looked for, by halves."""

    def __init__(self, tree: Tree, dialect: Dialect) -> None:
        self.tree = tree
        self.number: int | None = None
        self._dialect: Dialect = dialect
        self._shape = Program(tree, dialect)
        self._pending: tuple[Program, list[int], int] | None = None
        self._stale = False

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
        except Exception as error:
            if not self._has_no_value(error):
                raise
            number = self._first_failure(batch)
            row = "" if number is None else self._failing_row(batch.until(number))
            self.discard()
            raise arithmetic(str(error).splitlines()[0], number, row) from error

    def _failing_row(self, batch: Batch) -> str:
        return failing_row(self.tree, batch, self._fails, self._rows_looked_at)

    def _fails(self, batch: Batch) -> bool:
        self.discard()
        try:
            self._evaluate(batch)
        except ViewError:
            return False
        except Exception as error:
            return self._has_no_value(error)
        return False

    def _first_failure(self, batch: Batch) -> int | None:
        """The first number that fails; None when another error comes before it."""
        low, high = batch.first, batch.last
        while low < high:
            middle = (low + high) // 2
            self.discard()
            try:
                self._evaluate(batch.until(middle))
                low = middle + 1
            except ViewError:
                return None
            except Exception as error:
                if not self._has_no_value(error):
                    raise
                high = middle
        return low

    def _evaluate(self, batch: Batch) -> pa.Table:
        start = batch.first if self.number is None else None
        changed = self._changed(batch)
        leaves = frozenset(self._shape.leaves[i] for i in changed)
        program = program_of(self.tree, self._dialect, leaves, start)
        self._pending = (program, changed, batch.last)
        self._run(program)
        schema = delta_schema(self.tree.schema)
        if program.answer is None:
            return schema.empty_table()
        return self._answer(program.answer).cast(schema)

    def _changed(self, batch: Batch) -> list[int]:
        """The leaves that the batch changes."""
        return [i for i in range(len(self._shape.leaves)) if self._leaf_delta(i, batch)]

    @abstractmethod
    def discard(self) -> None:
        """Forget the evaluated batch."""

    @abstractmethod
    def _freshen(self) -> None:
        """Rebuild the totals when the leaves were replaced."""

    @abstractmethod
    def _leaf_delta(self, i: int, batch: Batch) -> bool:
        """Makes di, with truncates expanded and retractions checked; whether it has rows."""

    @abstractmethod
    def _run(self, program: Program) -> None:
        """Make the steps' tables, in order."""

    @abstractmethod
    def _answer(self, sql: str) -> pa.Table:
        """The rows of a query."""

    @abstractmethod
    def _has_no_value(self, error: Exception) -> bool:
        """Whether the engine says that an expression has no value at some row."""
