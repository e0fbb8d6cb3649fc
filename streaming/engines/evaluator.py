"""What every evaluator of a view can do, and what goes into it: one batch of numbered updates.

An evaluator holds the bags of its view's leaves up to one number. `evaluate` computes the view's
delta for a batch and changes nothing that lasts; `advance` makes the batch part of the state, once
the manifest that carries the delta is durable; `discard` forgets it. Three implement this: `duck`
in the driver, `spark` for what does not fit there, and the tests' `bag`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa

from streaming.algebra.tree import Tree
from streaming.errors import FrescoError

Rows: TypeAlias = pa.Table | Path
"""A delta (`_number`, `_multiplicity`, c0..), in memory or as a Parquet file read column by column.
"""


class ViewError(FrescoError):
    """An error of one view's data; it suspends that view only (DESIGN 11).

    Attributes:
        number: the first number that cannot be computed, None when it cannot be told.
    """

    def __init__(
        self, code: str, what: str, *, where: str = "", todo: str = "", number: int | None = None
    ) -> None:
        super().__init__(code, what, where=where, todo=todo)
        self.number = number


@dataclass(frozen=True)
class Batch:
    """The updates of the numbers [first..last] that concern one view.

    Attributes:
        relations: pieces of rows by relation; all columns of the relation, by position. Rows of
            other numbers are skipped.
        truncates: (number, relation): all rows that stood just before the number leave under it;
            rows of the same number in `relations` come after it.
    """

    first: int
    last: int
    relations: Mapping[str, tuple[Rows, ...]] = field(default_factory=dict)
    truncates: tuple[tuple[int, str], ...] = ()

    def of(self, relation: str) -> tuple[tuple[Rows, ...], list[int]]:
        """A relation's pieces of rows, and the numbers that truncate it, in order."""
        truncates = sorted(number for number, name in self.truncates if name == relation)
        return self.relations.get(relation, ()), truncates

    def until(self, last: int) -> Batch:
        """The same batch without the numbers above `last`; evaluators skip rows beyond it."""
        kept = tuple(t for t in self.truncates if t[0] <= last)
        return replace(self, last=last, truncates=kept)


@dataclass(frozen=True)
class Limits:
    """How much one view may hold in the driver.

    Attributes:
        duckdb_rows: rows of state and batch together.
    """

    duckdb_rows: int = 20_000_000


def choose(limits: Limits, state_rows: int, batch_rows: int) -> Literal["duckdb", "spark"]:
    """The evaluator for a batch: DuckDB while state and batch fit into the driver."""
    return "duckdb" if state_rows + batch_rows <= limits.duckdb_rows else "spark"


class Evaluator(Protocol):
    """The state of one view's leaves and the way to its delta."""

    tree: Tree
    number: int | None
    """The number that the state reflects; None before the first batch."""

    def evaluate(self, batch: Batch) -> pa.Table:
        """The view's delta, net per (number, row), typed by `types.delta_schema`.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING, VIEW_ARITHMETIC; the state is as it was.
        """

    def advance(self) -> None:
        """Make the evaluated batch part of the state."""

    def discard(self) -> None:
        """Forget the evaluated batch."""

    def rows(self) -> int:
        """Rows of state, for the choice of an evaluator."""

    def export(self, folder: Path) -> list[list[str]]:
        """Write each leaf's bag, folded, as Parquet into the folder; file names for each leaf."""

    def load(self, files: list[list[Path]], number: int) -> None:
        """Take over what `export` wrote, in its order, as the state at `number`."""

    def replay(self, batch: Batch) -> None:
        """Add a batch to the state without computing the view, to restore what was advanced once.

        Raises:
            ViewError: VIEW_RETRACTION_MISSING.
        """


def missing(relation: str, number: int, row: tuple[object, ...], lacking: int) -> ViewError:
    """The error of a retraction that finds no row."""
    return ViewError(
        "VIEW_RETRACTION_MISSING",
        f"transaction {number} takes a row out of {relation} that is not there"
        f" ({lacking} too many): {row!r}",
        where=f"{relation}, number {number}",
        todo="updates were lost before this number; compare with `fresco verify --source`,"
        " then `fresco view resume NAME`",
        number=number,
    )


def arithmetic(message: str, number: int | None, row: str = "") -> ViewError:
    """The error of an expression that has no value at some row.

    Args:
        row: which one, where that is known.
    """
    at = f"number {number}" if number is not None else ""
    return ViewError(
        "VIEW_ARITHMETIC",
        f"the view's expressions have no value at a row: {message}",
        where=", ".join(one for one in (at, row) if one),
        todo="correct the row at the source, then `fresco view resume NAME`; or let the view's SQL have a"
        " value there, as NULLIF(divisor, 0) for a divisor, then `fresco view drop NAME` and"
        " `fresco view add FILE`",
        number=number,
    )
