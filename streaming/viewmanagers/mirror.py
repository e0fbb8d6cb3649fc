"""The view as its manager has sent it so far: what `key_delete(MV, U)` and a truncate look into.

The papers' warehouse applies `key_delete` to MV itself. Here action lists are signed rows, so the
manager must know which rows of MV a deletion takes out. `HeldMirror` keeps the rows; a service may
read them from the warehouse instead, as they stand after the last list.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from streaming.algebra.operators import Operators, Positions
from streaming.messages import Rows
from streaming.scalars.expression import Schema

V = TypeVar("V")


class Mirror(Protocol[V]):
    """The rows of MV, all under number 0."""

    def rows(self) -> V:
        """All of them."""

    def matching(self, at: Positions, rows: V, rows_at: Positions) -> V:
        """Those whose columns `at` equal the columns `rows_at` of some row of `rows`."""

    def index(self, *ats: Positions) -> None:
        """Says by which columns rows will be looked for, so that this is fast from the first time on."""

    def add(self, delta: V) -> None:
        """Apply a sent list's signed rows, whatever their numbers."""

    def snapshot(self) -> Any:
        """A reference to the rows, for JSON."""

    def restore(self, saved: Any) -> None:
        """The rows back from `snapshot`."""


class HeldMirror(Generic[V]):
    """A mirror that holds the rows as one value."""

    def __init__(self, operators: Operators[V], schema: Schema) -> None:
        self._operators = operators
        self._rows = operators.empty(schema)

    def rows(self) -> V:
        return self._rows

    def matching(self, at: Positions, rows: V, rows_at: Positions) -> V:
        return self._operators.matching(self._rows, at, rows, rows_at)

    def index(self, *ats: Positions) -> None:
        """One pass finds rows by any columns."""

    def add(self, delta: V) -> None:
        flat = self._operators.renumbered(delta, 0)
        self._rows = self._operators.plus(self._rows, flat)

    def snapshot(self) -> Any:
        return self._operators.pack(self._rows)

    def restore(self, saved: Any) -> None:
        self._rows = self._operators.open(Rows.model_validate(saved))
