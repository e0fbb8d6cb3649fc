"""One table over time in DuckDB: signed rows by number, and the bag at the number it stands at.

A history steps forward through numbers by folding only the rows in between, so that recomputing a
view at many numbers costs the changes and not the whole past each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from streaming.algebra.tree import Schema, column_name
from streaming.algebra.types import duck_type

Runs = Sequence[tuple[int, int]]


def columns_of(schema: Schema) -> list[str]:
    """c0, c1, ... of a schema."""
    return [column_name(position) for position in range(len(schema))]


def same_row(left: str, right: str, columns: Sequence[str]) -> str:
    """SQL: the two rows are equal, NULL equal to NULL."""
    return " AND ".join(f"{left}.{c} IS NOT DISTINCT FROM {right}.{c}" for c in columns) or "true"


class History:
    """Signed rows (_number, _multiplicity, c0..) and, in table `bag`, their sum at `number`.

    Args:
        connection: its tables are this history's `name` with `_all`, `_now` and `_step` behind it.
        rows: any order; columns are taken by position.
        truncated: numbers under which the table is emptied before that number's rows.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        schema: Schema,
        rows: pa.Table,
        truncated: Sequence[int] = (),
    ) -> None:
        self.number = -1
        self.bag = f"{name}_now"
        self.columns = columns_of(schema)
        self._connection = connection
        self._all, self._step_table = f"{name}_all", f"{name}_step"
        self._truncated = sorted(truncated)
        typed = [
            f"CAST({column} AS {duck_type(one.type)}) AS {column}"
            for column, one in zip(self.columns, schema, strict=True)
        ]
        given = rows.rename_columns(["_number", "_multiplicity", *self.columns])
        connection.register(f"{name}_given", given)
        chosen = ", ".join(["_number", "_multiplicity", *typed])
        connection.execute(
            f"CREATE TEMP TABLE {self._all} AS SELECT {chosen} FROM {name}_given ORDER BY _number"
        )
        connection.unregister(f"{name}_given")
        kept = ", ".join([*self.columns, "_multiplicity AS _n"])
        connection.execute(
            f"CREATE TEMP TABLE {self.bag} AS SELECT {kept} FROM {self._all} WHERE false"
        )

    def seek(self, number: int) -> bool:
        """Steps forward to the state after `number`; whether anything changed."""
        changed = False
        for cut in [n for n in self._truncated if self.number < n <= number]:
            changed |= self._fold("_number > ? AND _number <= ?", [self.number, cut - 1])
            self._connection.execute(f"DELETE FROM {self.bag}")
            self.number, changed = cut - 1, True
        changed |= self._fold("_number > ? AND _number <= ?", [self.number, number])
        self.number = max(self.number, number)
        return changed

    def shift(self, runs: Runs, sign: int) -> bool:
        """Adds (+1) or takes back (-1) numbers ahead of `number`; whether anything changed."""
        changed = False
        for first, last in runs:
            where = "_number >= ? AND _number <= ?"
            changed |= self._fold(where, [first, last], sign)
        return changed

    def rewrites(self, runs: Runs) -> bool:
        """Whether the table is emptied under a number in the runs (then `shift` cannot tell)."""
        return any(first <= n <= last for n in self._truncated for first, last in runs)

    def _fold(self, where: str, values: list[int], sign: int = 1) -> bool:
        run, columns = self._connection.execute, ", ".join(self.columns)
        run(
            f"CREATE OR REPLACE TEMP TABLE {self._step_table} AS "
            f"SELECT {columns}, CAST({sign} * sum(_multiplicity) AS BIGINT) AS _n "
            f"FROM {self._all} WHERE {where} "
            f"GROUP BY {columns} HAVING sum(_multiplicity) <> 0",
            values,
        )
        if not self._value(f"SELECT count(*) FROM {self._step_table}"):
            return False
        match = same_row("b", "s", self.columns)
        chosen = ", ".join(f"s.{column}" for column in self.columns)
        run(
            f"CREATE OR REPLACE TEMP TABLE {self._step_table}_new AS SELECT {chosen}, "
            f"s._n + coalesce(b._n, 0) AS _n FROM {self._step_table} s "
            f"LEFT JOIN {self.bag} b ON {match}"
        )
        run(f"DELETE FROM {self.bag} b USING {self._step_table} s WHERE {match}")
        run(f"INSERT INTO {self.bag} SELECT * FROM {self._step_table}_new WHERE _n <> 0")
        return True

    def below_zero(self) -> tuple[int, tuple[Any, ...], int] | None:
        """The first (number, row, multiplicity) at which a row's multiplicity is negative."""
        columns = ", ".join(self.columns)
        partition = f"PARTITION BY {columns}" if self.columns else ""
        found = self._connection.execute(
            f"SELECT _number, CAST(n AS BIGINT), {columns} FROM ("
            f" SELECT _number, {columns}, sum(sum(_multiplicity)) OVER"
            f" ({partition} ORDER BY _number) AS n"
            f" FROM {self._all} GROUP BY _number, {columns})"
            f" WHERE n < 0 ORDER BY _number LIMIT 1"
        ).fetchone()
        if found is None or self._truncated:
            return None
        return found[0], tuple(found[2:]), found[1]

    def _value(self, query: str) -> int:
        found = self._connection.execute(query).fetchone()
        return int(found[0]) if found else 0
