"""What a view manager that asks the sources can do with relations, which it never looks into.

Machines hold relations as opaque values of the evaluator they are given (DESIGN 4). A value is a
signed bag with numbers: rows, each with a multiplicity and the number of the transaction it belongs
to; number 0 stands for "part of a state". Three evaluators implement these operators: `numbered`
(plain Python, for the simulator and the tests), DuckDB and Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from streaming.algebra.tree import Tree
from streaming.messages import Rows
from streaming.scalars.expression import Schema

V = TypeVar("V")

Positions = tuple[int, ...]


class Operators(Protocol[V]):
    """Operators over signed bags with numbers; none changes its arguments, all results are net."""

    def empty(self, schema: Schema) -> V:
        """No rows."""

    def size(self, value: V) -> int:
        """How many (number, row) pairs have a multiplicity; 0 for an empty value."""

    def evaluate(self, tree: Tree, inputs: Mapping[str, V]) -> V:
        """The tree over its scans' values; a pair of a join carries the larger number.

        Raises:
            KeyError: a scan without a value.
            FrescoError: an expression without a value at a row.
            ValueError: an operator that is not linear, over numbers or negative multiplicities.
        """

    def plus(self, *values: V) -> V:
        """The sum; at least one value."""

    def minus(self, left: V, right: V) -> V:
        """The signed difference."""

    def between(self, value: V, first: int, last: int) -> V:
        """The rows whose number lies in [first..last]."""

    def renumbered(self, value: V, number: int) -> V:
        """All rows under one number."""

    def inserted(self, value: V) -> V:
        """The rows with a positive multiplicity."""

    def deleted(self, value: V) -> V:
        """The rows with a negative multiplicity, sign and all."""

    def distinct(self, value: V) -> V:
        """One copy of each (number, row) with a positive multiplicity."""

    def matching(self, value: V, at: Positions, rows: V, rows_at: Positions) -> V:
        """The rows of `value` whose columns `at` equal the columns `rows_at` of some row of `rows`.

        NULL equals NULL here; numbers play no part. `key_delete` is `value` minus this over the key,
        `key_delete*` the same over every column that both have (strobe-family 5 and 7).
        """

    def pack(self, value: V) -> Rows:
        """The value as a reference that can travel in a message or a snapshot."""

    def open(self, rows: Rows) -> V:
        """The value back from its reference."""
