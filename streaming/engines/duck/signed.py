"""One value of `duckops`: a signed bag with numbers, as a dict while it is small, else as Arrow columns.

View managers that ask handle mostly a few rows at a time, many times per second: a dict operator
takes microseconds where the smallest DuckDB statement takes one to three milliseconds (measured). Large
values (initial states, whole relations, large batches) are columns. A value is made in one form and
gets the other when it is asked for; nobody changes it. Both forms mean the same: `numbered` and
`renderings` are tested against each other, types, NULLs and decimals included.
"""

from __future__ import annotations

import pyarrow as pa

from streaming.algebra.bag import Numbered
from streaming.messages import Rows
from streaming.scalars.expression import MULTIPLICITY, NUMBER
from streaming.scalars.meanings import normal


class Signed:
    """A signed bag with numbers.

    Attributes:
        schema: the Arrow schema of its columns (`types.delta_schema`).
        packed: the reference it travels under, once it has one.
    """

    __slots__ = ("_bag", "_net", "_table", "packed", "schema")

    def __init__(
        self,
        schema: pa.Schema,
        table: pa.Table | None = None,
        bag: Numbered | None = None,
        *,
        net: bool = True,
        packed: Rows | None = None,
    ) -> None:
        assert table is not None or bag is not None
        self.schema = schema
        self.packed = packed
        self._table = table
        self._bag = bag
        self._net = net

    @property
    def net(self) -> bool:
        """Whether each (number, row) is held once; in a dict it always is."""
        return self._net

    @property
    def held(self) -> int:
        """Rows held; more than `len` of the net value where it is not net."""
        if self._bag is not None:
            return len(self._bag)
        assert self._table is not None
        return int(self._table.num_rows)

    @property
    def table(self) -> pa.Table:
        """As Arrow columns."""
        if self._table is None:
            assert self._bag is not None
            self._table = _table(self.schema, self._bag)
        return self._table

    def bag(self, limit: int) -> Numbered | None:
        """As a dict; None with more than `limit` rows or where Python has not the values.

        A date or timestamp beyond the years 1 to 9999, such as an infinity, has no Python value.
        """
        if self._bag is None:
            assert self._table is not None
            if self._table.num_rows > limit:
                return None
            try:
                self._bag = _bag(self._table)
            except (ValueError, OverflowError, pa.ArrowInvalid):
                return None
            if not self._net:
                self._table, self._net = None, True
        return self._bag if len(self._bag) <= limit else None


def _table(schema: pa.Schema, bag: Numbered) -> pa.Table:
    numbers = pa.array([number for number, _ in bag], pa.int64())
    counts = pa.array(bag.values(), pa.int64())
    width = len(schema) - 2
    columns = zip(*(row for _, row in bag), strict=True) if bag else [()] * width
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(columns, list(schema)[2:], strict=True)
    ]
    return pa.Table.from_arrays([numbers, counts, *arrays], schema=schema)


def _bag(table: pa.Table) -> Numbered:
    numbers = table.column(NUMBER).to_pylist()
    counts = table.column(MULTIPLICITY).to_pylist()
    columns = []
    for column in table.columns[2:]:
        values = column.to_pylist()
        columns.append(
            [normal(value) for value in values] if pa.types.is_floating(column.type) else values
        )
    rows = zip(*columns, strict=True) if columns else iter([()] * table.num_rows)
    result: Numbered = {}
    for number, count, row in zip(numbers, counts, rows, strict=True):
        total = result.get((number, row), 0) + count
        if total:
            result[number, row] = total
        else:
            result.pop((number, row), None)
    return result
