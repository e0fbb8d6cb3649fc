"""Views from scratch: each view's own SQL text, run by DuckDB over relations given as plain tables.

Nothing here is shared with the view managers: sqlglot turns the Spark text into DuckDB's, and
DuckDB's own planner and aggregates do the rest. Where DuckDB's result type is a floating one (it
divides and averages decimals as doubles), or the view's is, values are compared within `TOLERANCE`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.proof.proof_engine import (
    Print,
    as_print,
    columns_of,
    print_of,
    quoted,
    typed_columns,
)
from streaming.scalars import written
from streaming.scalars.expression import Schema
from streaming.scalars.types import FLOATS, decimal_parts

TOLERANCE = 1e-9
"""Relative difference that floating results may show; a decimal may be off by one last digit."""
MISMATCHES = 100_000
"""More differing rows than this are not matched within the tolerance."""


@dataclass(frozen=True)
class Difference:
    """A row that stands `expected` times when recomputed and `found` times as recorded."""

    row: tuple[Any, ...]
    expected: int
    found: int


def offer_relation(
    connection: duckdb.DuckDBPyConnection,
    relation: Relation,
    rows: str,
    columns: Sequence[str],
    generation: int | None = None,
) -> None:
    """Lets SQL say `source.table` for these rows (a table or subquery), under the true names.

    Args:
        generation: of the texts that are meant, where it is not the newest (`duck_text`).
    """
    source, _, table = relation.name.partition(".")
    source = _of_generation(source, generation)
    seen = [column for column, one in zip(columns, relation.schema, strict=True) if not one.hidden]
    named = ", ".join(
        f"{column} AS {quoted(one.name)}"
        for column, one in zip(seen, _distinct(_seen(relation)), strict=True)
    )
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(source)}")
    connection.execute(
        f"CREATE OR REPLACE VIEW {quoted(source)}.{quoted(table)} AS SELECT {named} FROM {rows}"
    )


def _of_generation(source: str, generation: int | None) -> str:
    return source if generation is None else f"{source}@{generation}"


def _seen(relation: Relation) -> Schema:
    """The columns that SQL can name."""
    return tuple(one for one in relation.schema if not one.hidden)


def _distinct(schema: Schema) -> Schema:
    """Names for an engine that ignores case: the second of `Id` and `id` gets its position."""
    seen: set[str] = set()
    names = []
    for position, column in enumerate(schema):
        clash = column.name.casefold() in seen
        seen.add(column.name.casefold())
        names.append(
            type(column)(f"{column.name}#{position}" if clash else column.name, column.type)
        )
    return tuple(names)


def parents_first(specs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The views' names, each after the views it scans."""
    names: list[str] = []
    while len(names) < len(specs):
        ready = [
            name
            for name, spec in specs.items()
            if name not in names and all(one in names for one in spec["relations"] if one in specs)
        ]
        if not ready:
            raise FrescoError("VERIFY_SQL", "views scan each other", where=", ".join(specs))
        names += ready
    return names


def duck_text(
    sql: str, relations: Mapping[str, Relation], view: str, generation: int | None = None
) -> str:
    """The view's SELECT in DuckDB's dialect.

    Args:
        generation: of the relations that it is over, where it is not the newest.

    Raises:
        FrescoError: VERIFY_SQL when sqlglot cannot read it.
    """
    try:
        tree = sqlglot.parse_one(sql, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise FrescoError("VERIFY_SQL", str(error).splitlines()[0], where=view) from error
    renamed = {
        true.name: new.name
        for relation in relations.values()
        for true, new in zip(_seen(relation), _distinct(_seen(relation)), strict=True)
        if true.name != new.name
    }
    for node in tree.find_all(exp.Table, exp.Column) if generation is not None else ():
        if (source := node.text("db")) != "":
            name = _of_generation(source, generation)
            node.set("db", exp.to_identifier(name, quoted=True))
    for column in tree.find_all(exp.Column):
        if column.name in renamed:
            column.set("this", exp.to_identifier(renamed[column.name], quoted=True))
    return tree.sql(dialect="duckdb")


class Recomputed:
    """One view's SQL, evaluated over the relations as they stand whenever it is asked for.

    Attributes:
        bag: SQL, in parentheses, of the result: c0.., _n.
        loose: positions compared within the tolerance.
        unable: why DuckDB cannot run it; nothing but the recorded rows' bags can be asked for then.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        table: str,
        schema: Schema,
        sql: str,
        relations: Mapping[str, Relation],
        generation: int | None = None,
    ) -> None:
        self.name, self.schema = name, schema
        self.columns = columns_of(schema)
        self._connection = connection
        self._given, self._statement = f"{table}_given", f"{table}_print"
        self.unable: FrescoError | None = None
        self.loose = tuple(at for at, one in enumerate(schema) if one.type in FLOATS)
        try:
            self._plan(duck_text(sql, relations, name, generation))
        except FrescoError as error:
            self.unable = error

    def _plan(self, text: str) -> None:
        inner = f"({text}) AS q({', '.join(self.columns)})"
        self._rows = f"(SELECT {typed_columns(self.schema)} FROM {inner})"
        self.bag = f"(SELECT *, count(*) AS _n FROM {self._rows} GROUP BY ALL)"
        try:
            kinds = self._connection.execute(f"DESCRIBE SELECT * FROM {inner}").fetchall()
            names = ", ".join(
                f"{column} AS {quoted(one.name)}"
                for column, one in zip(self.columns, _distinct(self.schema), strict=True)
            )
            self._connection.execute(
                f"CREATE VIEW {quoted(self.name)} AS SELECT {names} FROM {inner}"
            )
        except duckdb.Error as error:
            raise _failed(self.name, error) from error
        floating = {at for at, kind in enumerate(kinds) if kind[1] in ("DOUBLE", "FLOAT")}
        self.loose = tuple(sorted({*self.loose, *floating}))

    def prepare(self) -> None:
        """Plans `print`; what has changed in DuckDB's catalog since makes every `print` plan anew."""
        if self.unable is not None:
            return
        query = print_of(self._rows, self.schema)
        try:
            self._connection.execute(f"PREPARE {self._statement} AS {query}")
        except duckdb.Error as error:
            self.unable = _failed(self.name, error)

    def print(self) -> Print | None:
        """The result's print, `prepare` first; None when DuckDB is unable (an overflow, ...)."""
        if self.unable is not None:
            return None
        try:
            found = self._connection.execute(f"EXECUTE {self._statement}").fetchone()
        except duckdb.Error as error:
            self.unable = _failed(self.name, error)
            return None
        assert found is not None
        return as_print(found)

    def take_rows(self, rows: pa.Table) -> str:
        """A bag in SQL of Arrow rows (the view's columns in order, then `_n`), until the next."""
        self._connection.register(self._given, rows.rename_columns([*self.columns, "_n"]))
        typed = typed_columns(self.schema)
        return f"(SELECT {typed}, CAST(_n AS BIGINT) AS _n FROM {self._given})"

    def print_of_bag(self, bag: str) -> Print:
        """The print of a bag of the view's columns, in SQL."""
        found = self._connection.execute(print_of(bag, self.schema, "_n")).fetchone()
        assert found is not None
        return as_print(found)

    def differences(
        self, other: str, limit: int = 3, expected: str | None = None
    ) -> list[Difference]:
        """Rows that stand a different number of times in the bag `other` (the recorded), in SQL.

        Args:
            expected: a bag in SQL; the view's own when None.

        Raises:
            FrescoError: VERIFY_SQL when DuckDB cannot run the view.
        """
        try:
            return different(
                self._connection, expected or self.bag, other, self.schema, self.loose, limit
            )
        except duckdb.Error as error:
            raise _failed(self.name, error) from error

    def spark_bag(self, rows: pa.Table, schema: Schema) -> str:
        """A bag in SQL of rows as Spark gives them, in Spark's types, until the next."""
        self._connection.register(f"{self._given}_spark", rows)
        typed = typed_columns(schema)
        return f"(SELECT *, count(*) AS _n FROM (SELECT {typed} FROM {self._given}_spark) GROUP BY ALL)"

    def spark_differences(self, bag: str, other: str, schema: Schema) -> list[Difference]:
        """As `differences`, between a `spark_bag` and the recorded one: only floats have a tolerance."""
        loose = tuple(at for at, one in enumerate(schema) if one.type in FLOATS)
        typed = f"(SELECT {typed_columns(schema)}, _n FROM {other})"
        return different(self._connection, bag, typed, schema, loose, 1)


def different(
    connection: duckdb.DuckDBPyConnection,
    expected: str,
    found: str,
    schema: Schema,
    loose: Sequence[int],
    limit: int,
) -> list[Difference]:
    """`differences` within the tolerance, which the columns `loose` have."""
    rows = differences(connection, expected, found, schema, MISMATCHES if loose else limit)
    if loose and len(rows) < MISMATCHES:
        rows = _beyond_tolerance(rows, schema, loose)
    return rows[:limit]


def _beyond_tolerance(
    found: list[Difference], schema: Schema, loose: Sequence[int]
) -> list[Difference]:
    """Without the pairs that differ in loose columns only, and there by little."""
    groups: dict[tuple[Any, ...], tuple[list[Difference], list[Difference]]] = {}
    for one in found:
        key = tuple(value for at, value in enumerate(one.row) if at not in loose)
        sides = groups.setdefault(key, ([], []))
        sides[one.expected < one.found].append(one)

    def order(one: Difference) -> list[tuple[bool, bool, float]]:
        values = [one.row[at] for at in loose]
        return [(v is None, v is not None and v != v, float(v or 0)) for v in values]

    left: list[Difference] = []
    for more, less in groups.values():
        wanted = [one for one in more for _ in range(one.expected - one.found)]
        given = [one for one in less for _ in range(one.found - one.expected)]
        pairs = zip(sorted(wanted, key=order), sorted(given, key=order), strict=False)
        close = all(_close(a.row, b.row, schema, loose) for a, b in pairs)
        if len(wanted) != len(given) or not close:
            left += [*more, *less]
    return left


def _close(
    left: tuple[Any, ...], right: tuple[Any, ...], schema: Schema, loose: Sequence[int]
) -> bool:
    for at in loose:
        a, b = left[at], right[at]
        if a is None or b is None:
            if a is not b:
                return False
            continue
        parts = decimal_parts(schema[at].type)
        last_digit = 10.0 ** -parts[1] * 1.01 if parts else 0.0
        both_nan = a != a and b != b
        if not both_nan and not math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=last_digit):
            return False
    return True


def differences(
    connection: duckdb.DuckDBPyConnection,
    expected: str,
    found: str,
    schema: Schema,
    limit: int,
) -> list[Difference]:
    """Rows that stand a different number of times in two bags, ordered, so many at most."""
    names = ", ".join(columns_of(schema))
    rows = connection.execute(
        f"SELECT CAST(sum(e) AS BIGINT), CAST(sum(f) AS BIGINT), {names} FROM ("
        f" SELECT {names}, _n AS e, 0 AS f FROM {expected} UNION ALL"
        f" SELECT {names}, 0, _n FROM {found}) GROUP BY {names}"
        f" HAVING sum(e) <> sum(f) ORDER BY ALL LIMIT {limit}"
    ).to_arrow_table()
    counts = (rows.column(at).to_pylist() for at in range(2))
    values = written.rows(rows.drop_columns(rows.column_names[:2]))
    return [Difference(row, *both) for row, *both in zip(values, *counts, strict=True)]


def _failed(view: str, error: duckdb.Error) -> FrescoError:
    return FrescoError(
        "VERIFY_SQL",
        f"the view's SQL cannot be recomputed: {str(error).splitlines()[0]}",
        where=view,
        todo="verify it with Spark by hand; this check needs SQL that DuckDB runs too",
    )
