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

from streaming.algebra.tree import Relation, Schema
from streaming.algebra.types import FLOATS, decimal_parts, duck_type
from streaming.errors import FrescoError
from streaming.proof.history import columns_of

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


def open_engine() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that keeps Spark's session zone and reaches no files."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_external_access = false")
    return connection


def quoted(name: str) -> str:
    """An identifier with any characters."""
    return '"' + name.replace('"', '""') + '"'


def offer_relation(
    connection: duckdb.DuckDBPyConnection, relation: Relation, bag: str, columns: Sequence[str]
) -> None:
    """Lets SQL say `source.table`: the true names, each row `_n` times as the bag says."""
    source, _, table = relation.name.partition(".")
    named = ", ".join(
        f"{column} AS {quoted(one.name)}"
        for column, one in zip(columns, _distinct(relation.schema), strict=True)
    )
    copies = f"SELECT unnest(range(2, (SELECT coalesce(max(_n), 1) + 1 FROM {bag}))) AS copy"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(source)}")
    connection.execute(
        f"CREATE VIEW {quoted(source)}.{quoted(table)} AS SELECT {named} FROM {bag} WHERE _n > 0 "
        f"UNION ALL SELECT {named} FROM (SELECT * FROM {bag} WHERE _n > 1) JOIN ({copies}) "
        "ON copy <= _n"
    )


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


def duck_text(sql: str, relations: Mapping[str, Relation], view: str) -> str:
    """The view's SELECT in DuckDB's dialect.

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
        for true, new in zip(relation.schema, _distinct(relation.schema), strict=True)
        if true.name != new.name
    }
    for column in tree.find_all(exp.Column):
        if column.name in renamed:
            column.set("this", exp.to_identifier(renamed[column.name], quoted=True))
    return tree.sql(dialect="duckdb")


class Recomputed:
    """One view's SQL; `refresh` evaluates it over the relations as they stand.

    Attributes:
        bag: DuckDB table of the result: c0.., _n.
        loose: positions compared within the tolerance.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        table: str,
        schema: Schema,
        sql: str,
        relations: Mapping[str, Relation],
    ) -> None:
        self.name, self.schema = name, schema
        self.bag = f"{table}_recomputed"
        self.columns = columns_of(schema)
        self._connection = connection
        inner = f"({duck_text(sql, relations, name)}) AS q({', '.join(self.columns)})"
        try:
            kinds = connection.execute(f"DESCRIBE SELECT * FROM {inner}").fetchall()
            names = ", ".join(
                f"{column} AS {quoted(one.name)}"
                for column, one in zip(self.columns, _distinct(schema), strict=True)
            )
            connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT {names} FROM {inner}")
        except duckdb.Error as error:
            raise _failed(name, error) from error
        floating = {at for at, kind in enumerate(kinds) if kind[1] in ("DOUBLE", "FLOAT")}
        self.loose = tuple(
            at for at, one in enumerate(schema) if one.type in FLOATS or at in floating
        )
        typed = ", ".join(
            f"CAST({column} AS {duck_type(one.type)}) AS {column}"
            for column, one in zip(self.columns, schema, strict=True)
        )
        self._query = (
            f"CREATE OR REPLACE TEMP TABLE {self.bag} AS SELECT {typed}, count(*) AS _n "
            f"FROM {inner} GROUP BY ALL"
        )

    def refresh(self) -> None:
        """Evaluates the SQL.

        Raises:
            FrescoError: VERIFY_SQL when DuckDB cannot (an overflow, an unknown function).
        """
        try:
            self._connection.execute(self._query)
        except duckdb.Error as error:
            raise _failed(self.name, error) from error

    def fingerprint(self) -> tuple[int, int]:
        """(rows, hash) of the bag, the same for equal bags in any order."""
        return fingerprint(self._connection, self.bag, self.columns)

    def take_rows(self, rows: pa.Table) -> str:
        """Makes a bag table of Arrow rows (the view's columns in order, then `_n`); its name."""
        table = f"{self.bag}_given"
        given = rows.rename_columns([*self.columns, "_n"])
        self._connection.register(f"{table}_arrow", given)
        typed = ", ".join(
            f"CAST({column} AS {duck_type(one.type)}) AS {column}"
            for column, one in zip(self.columns, self.schema, strict=True)
        )
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS "
            f"SELECT {typed}, CAST(_n AS BIGINT) AS _n FROM {table}_arrow"
        )
        self._connection.unregister(f"{table}_arrow")
        return table

    def fingerprint_of_rows(self) -> tuple[int, int]:
        """(rows, hash) of what `take_rows` took last."""
        return fingerprint(self._connection, f"{self.bag}_given", self.columns)

    def differences(self, other: str, limit: int = 3) -> list[Difference]:
        """Rows that stand a different number of times in the bag table `other` (the recorded)."""
        most = MISMATCHES if self.loose else limit
        found = differences(self._connection, self.bag, other, self.columns, most)
        if self.loose and len(found) < MISMATCHES:
            found = self._beyond_tolerance(found)
        return found[:limit]

    def _beyond_tolerance(self, found: list[Difference]) -> list[Difference]:
        """Without the pairs that differ in loose columns only, and there by little."""
        groups: dict[tuple[Any, ...], tuple[list[Difference], list[Difference]]] = {}
        for one in found:
            key = tuple(value for at, value in enumerate(one.row) if at not in self.loose)
            sides = groups.setdefault(key, ([], []))
            sides[one.expected < one.found].append(one)
        left: list[Difference] = []
        for more, less in groups.values():
            wanted = [one for one in more for _ in range(one.expected - one.found)]
            given = [one for one in less for _ in range(one.found - one.expected)]
            pairs = zip(
                sorted(wanted, key=self._order), sorted(given, key=self._order), strict=False
            )
            if len(wanted) != len(given) or not all(self._close(a.row, b.row) for a, b in pairs):
                left += [*more, *less]
        return left

    def _order(self, one: Difference) -> list[tuple[bool, bool, float]]:
        values = [one.row[at] for at in self.loose]
        return [(v is None, v is not None and v != v, float(v or 0)) for v in values]

    def _close(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        for at in self.loose:
            a, b = left[at], right[at]
            if a is None or b is None:
                if a is not b:
                    return False
                continue
            parts = decimal_parts(self.schema[at].type)
            last_digit = 10.0 ** -parts[1] * 1.01 if parts else 0.0
            both_nan = a != a and b != b
            if not both_nan and not math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=last_digit):
                return False
        return True


def differences(
    connection: duckdb.DuckDBPyConnection,
    expected: str,
    found: str,
    columns: Sequence[str],
    limit: int,
) -> list[Difference]:
    """Rows that stand a different number of times in two bag tables, ordered, so many at most."""
    names = ", ".join(columns)
    rows = connection.execute(
        f"SELECT CAST(sum(e) AS BIGINT), CAST(sum(f) AS BIGINT), {names} FROM ("
        f" SELECT {names}, _n AS e, 0 AS f FROM {expected} UNION ALL"
        f" SELECT {names}, 0, _n FROM {found}) GROUP BY {names}"
        f" HAVING sum(e) <> sum(f) ORDER BY ALL LIMIT {limit}"
    ).fetchall()
    return [Difference(tuple(row[2:]), row[0], row[1]) for row in rows]


def fingerprint(
    connection: duckdb.DuckDBPyConnection, bag: str, columns: Sequence[str]
) -> tuple[int, int]:
    """(rows, hash) of a bag table."""
    row = connection.execute(
        f"SELECT coalesce(sum(_n), 0)::BIGINT, "
        f"coalesce(sum(_n * (hash({', '.join(columns)}) >> 16)::HUGEINT), 0) FROM {bag}"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _failed(view: str, error: duckdb.Error) -> FrescoError:
    return FrescoError(
        "VERIFY_SQL",
        f"the view's SQL cannot be recomputed: {str(error).splitlines()[0]}",
        where=view,
        todo="verify it with Spark by hand; this check needs SQL that DuckDB runs too",
    )
