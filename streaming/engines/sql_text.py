"""Scalars and aggregates to SQL text for DuckDB and Spark, typed the same in both.

Scalars carry explicit casts (`renderings`), aggregates are cast to Spark's types here, and decimal
averages are divided as integers in DuckDB, which would use doubles. `tree_sql` makes queries of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.algebra.tree import Aggregation
from streaming.scalars import exact, renderings
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.failure import duck_holds, duck_raising, duck_text, tested
from streaming.scalars.renderings import Dialect, Rendering
from streaming.scalars.types import FLOATS, INTEGRALS, duck_type, is_decimal, sum_type


def scalar_sql(scalar: Scalar, dialect: Dialect, columns: Sequence[str]) -> str:
    """The scalar's text; the value has the scalar's type in both engines; it raises where it fails.

    Args:
        columns: text of the input's column at each position ("l.c0").
    """
    return duck_raising(scalar, columns) if dialect == "duckdb" else _spark(scalar, columns)


def condition_sql(condition: Scalar, dialect: Dialect, columns: Sequence[str]) -> str:
    """Text of whether a row passes; it raises where the row reaches what fails (`failure`)."""
    if dialect == "duckdb":
        return duck_holds(condition, columns)
    return " AND ".join(_spark(part, columns) for part in tested(condition))


def total_sql(scalar: Scalar, dialect: Dialect, columns: Sequence[str]) -> str:
    """The scalar's text that never raises, for rows that are known to have a value where it counts."""
    if dialect == "duckdb":
        return duck_text(scalar, columns)[0]
    return _spark(scalar, columns, renderings.SPARK_TOTAL)


def total_condition_sql(condition: Scalar, dialect: Dialect, columns: Sequence[str]) -> str:
    """The condition's text that never raises, as `total_sql`."""
    return " AND ".join(total_sql(part, dialect, columns) for part in tested(condition))


def _spark(
    scalar: Scalar, columns: Sequence[str], table: Mapping[str, Rendering] = renderings.SPARK
) -> str:
    match scalar:
        case Col():
            return columns[scalar.position]
        case Lit():
            return renderings.literal(scalar, "spark")
        case Call():
            args = [_spark(arg, columns, table) for arg in scalar.args]
            return table[scalar.function](scalar, args)


def cast_sql(text: str, type_: str, dialect: Dialect) -> str:
    """CAST to a Spark type in the dialect's name for it."""
    return f"CAST({text} AS {duck_type(type_) if dialect == 'duckdb' else type_.upper()})"


def key_sql(text: str, type_: str) -> str:
    """A column as a key of groups, in both dialects: there is one zero, as Spark shows it."""
    if type_ not in FLOATS:
        return text
    return f"CASE WHEN {text} = 0 THEN CAST(0 AS {type_.upper()}) ELSE {text} END"


def sum_sql(argument: str, type_: str, dialect: Dialect) -> str:
    """SUM with Spark's type; raises in the engine where the type does not hold the sum."""
    return cast_sql(f"sum({argument})", type_, dialect)


def aggregation_sql(
    aggregation: Aggregation, columns: Sequence[str], types: Sequence[str], dialect: Dialect
) -> str:
    """One aggregate over a plain bag's columns (texts and types by position)."""
    position = aggregation.argument
    if position is None:
        return cast_sql("count(*)", aggregation.type, dialect)
    argument, type_ = columns[position], types[position]
    if aggregation.function == "count":
        return cast_sql(f"count({argument})", aggregation.type, dialect)
    if aggregation.function == "sum":
        return sum_sql(argument, aggregation.type, dialect)
    if dialect == "spark" and is_decimal(type_):
        return cast_sql(f"avg({argument})", aggregation.type, dialect)
    if type_ in INTEGRALS:
        # Exact, where Spark's own AVG adds doubles in the order in which rows arrive.
        wide = "HUGEINT" if dialect == "duckdb" else "DECIMAL(38,0)"
        total = f"CAST(sum(CAST({argument} AS {wide})) AS DOUBLE)"
        return f"({total} / CAST(count({argument}) AS DOUBLE))"
    if not is_decimal(type_):
        return cast_sql(f"avg({argument})", aggregation.type, dialect)
    total_type = sum_type(type_)
    assert total_type is not None
    total = sum_sql(argument, total_type, dialect)
    return exact.duck_average(total, f"count({argument})", total_type, aggregation.type)
