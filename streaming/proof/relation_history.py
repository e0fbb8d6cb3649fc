"""One table over all times in DuckDB: signed rows by number, and what they add up to at a number.

A recorded history (a changelog) is judged by its bags' prints, which are running sums. One that SQL
reads (a relation) is laid out once as copies of rows, each with the numbers from which and up to
which it stands, so that the table at any number is a filter, and nothing is folded on the way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from streaming.proof.proof_engine import NOW, Print, as_print, columns_of, print_of, typed_columns
from streaming.scalars import written
from streaming.scalars.expression import Schema

Runs = Sequence[tuple[int, int]]
BLOCK = 10_000
NEVER = (1 << 63) - 1


class History:
    """Signed rows (_number, _multiplicity, c0..) and their sums.

    Args:
        connection: this history's tables there are `name` with `_all` and `_copies` behind it.
        rows: any order; columns are taken by position.
        truncated: numbers under which the table is emptied before that number's rows.

    Attributes:
        size: how many signed rows there are.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        schema: Schema,
        rows: pa.Table,
        truncated: Sequence[int] = (),
    ) -> None:
        self.columns, self._schema = columns_of(schema), schema
        self.size = rows.num_rows
        self._connection, self._name = connection, name
        self._all = f"{name}_all"
        self._truncated = sorted(truncated)
        given = rows.rename_columns(["_number", "_multiplicity", *self.columns])
        connection.register(f"{name}_given", given)
        connection.execute(
            f"CREATE TEMP TABLE {self._all} AS "
            f"SELECT _number, _multiplicity, {typed_columns(schema)} "
            f"FROM {name}_given ORDER BY _number"
        )
        connection.unregister(f"{name}_given")
        numbers = connection.execute(f"SELECT DISTINCT _number FROM {self._all}").fetchnumpy()
        self._numbers = sorted({*numbers["_number"].tolist(), *self._truncated})

    def changes(self, after: int, number: int) -> bool:
        """Whether anything is recorded with after < number <= `number`."""
        return bisect_right(self._numbers, after) < bisect_right(self._numbers, number)

    def prints(self, numbers: Iterable[int]) -> dict[int, Print]:
        """Number -> the print of the bag after it; for a history that is never truncated."""
        assert not self._truncated
        query = print_of(self._all, self._schema, "_multiplicity", by="_number")
        steps = self._connection.execute(query)
        block = steps.fetchmany(BLOCK)[::-1]
        count = upper = lower = 0
        found: dict[int, Print] = {}
        for number in sorted(numbers):
            while block and block[-1][0] <= number:
                step = as_print(block.pop()[1:])
                count, upper, lower = count + step[0], upper + step[1], lower + step[2]
                block = block or steps.fetchmany(BLOCK)[::-1]
            found[number] = count, upper, lower
        return found

    def bag(self, number: int, ahead: Runs = ()) -> str:
        """SQL, in parentheses: c0.., `_n` after `number`, with the numbers of `ahead` added."""
        columns = ", ".join(self.columns)
        covered = [f"_number <= {number}"]
        covered += [f"_number BETWEEN {first} AND {last}" for first, last in ahead]
        emptied = [n for n in self._truncated if n <= number or _within(n, ahead)]
        since = f"_number >= {emptied[-1]}" if emptied else "true"
        return (
            f"(SELECT {columns}, CAST(sum(_multiplicity) AS BIGINT) AS _n FROM {self._all} "
            f"WHERE {since} AND ({' OR '.join(covered)}) "
            f"GROUP BY {columns} HAVING sum(_multiplicity) <> 0)"
        )

    def rows_now(self) -> str:
        """SQL, in parentheses: the rows at `NOW`, each as often as it stands; of any number.

        The i-th copy of a row stands from a number that takes its count to i or above until the
        next one that takes it below, or until the table is emptied.
        """
        columns, copies = ", ".join(self.columns), f"{self._name}_copies"
        ends = f"CAST([{', '.join(map(str, [*self._truncated, NEVER]))}] AS BIGINT[])"
        of_row = f"PARTITION BY _era, {columns}"
        self._connection.execute(
            f"""
            CREATE TEMP TABLE {copies} AS
            WITH changes AS (
                SELECT {columns}, _number, sum(_multiplicity) AS change,
                    {self._era} AS _era
                FROM {self._all} GROUP BY ALL
            ), counts AS (
                SELECT *, CAST(greatest(0, sum(change) OVER ({of_row} ORDER BY _number)) AS BIGINT)
                    AS n FROM changes
            ), steps AS (
                SELECT *, coalesce(lag(n) OVER ({of_row} ORDER BY _number), 0) AS was FROM counts
            ), moves AS (
                SELECT {columns}, _era, _number, n > was AS comes,
                    unnest(range(least(n, was) + 1, greatest(n, was) + 1)) AS copy FROM steps
            ), stays AS (
                SELECT *, coalesce(
                    lead(_number) OVER ({of_row}, copy ORDER BY _number),
                    list_extract({ends}, _era + 1)
                ) AS _until FROM moves
            )
            SELECT {columns}, _number AS _from, _until FROM stays WHERE comes ORDER BY _from
            """
        )
        return f"(SELECT {columns} FROM {copies} WHERE _from <= {NOW} AND _until > {NOW})"

    def all_times(self) -> pa.Table:
        """The copies that `rows_now` has laid out: c0.., from which number, and up to which (not in)."""
        return self._connection.execute(f"FROM {self._name}_copies").to_arrow_table()

    def rows_ahead(self, number: int, ahead: Runs) -> str:
        """SQL, in parentheses: the rows after `number` and the numbers of `ahead`."""
        columns = ", ".join(self.columns)
        copies = f"SELECT {columns}, unnest(range(_n)) AS copy FROM {self.bag(number, ahead)}"
        return f"(SELECT {columns} FROM ({copies}))"

    @property
    def _era(self) -> str:
        """SQL: after how many truncations a row is recorded."""
        return " + ".join(["0", *(f"CAST(_number >= {cut} AS INTEGER)" for cut in self._truncated)])

    def below_zero(self, limit: int) -> list[tuple[int, tuple[Any, ...], int]]:
        """Retractions that found no row: (number, row, its multiplicity then), so many at most."""
        columns = ", ".join(self.columns)
        found = self._connection.execute(
            f"SELECT _number, CAST(n AS BIGINT), {columns} FROM ("
            f" SELECT _number, {columns}, sum(_multiplicity) AS change, sum(sum(_multiplicity)) OVER"
            f" (PARTITION BY {self._era}, {columns} ORDER BY _number) AS n"
            f" FROM {self._all} GROUP BY _number, {columns})"
            f" WHERE n < 0 AND change < 0 ORDER BY ALL LIMIT {limit}"
        ).to_arrow_table()
        rows = written.rows(found.drop_columns(found.column_names[:2]))
        numbers, counts = (found.column(at).to_pylist() for at in range(2))
        return list(zip(numbers, rows, counts, strict=True))


def _within(number: int, runs: Runs) -> bool:
    return any(first <= number <= last for first, last in runs)
