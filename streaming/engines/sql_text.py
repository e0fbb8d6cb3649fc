"""Trees to SQL text for DuckDB and Spark, typed the same in both.

Every relation, given or computed, has columns c0..cN by position (`tree.column_name`), so no name
of a user's meets an engine's rules. Scalars carry explicit casts (`renderings`), aggregates are
cast to Spark's types here, and decimal averages are divided as integers in DuckDB, which would use
doubles. Plain bags only: a row stands as often as it occurs. Delta queries (`delta`) reuse
`scalar_sql` and `sum_sql` around numbers and multiplicities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars import exact, renderings
from streaming.scalars.expression import Call, Col, Lit, Scalar, column_name
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


def tree_sql(tree: Tree, dialect: Dialect, tables: Mapping[str, str]) -> str:
    """The tree as one SELECT with output columns c0..cN.

    Args:
        tables: from a relation's name to a table expression with columns c0..cN: a quoted name,
            or a query in parentheses.

    Raises:
        KeyError: a scanned relation is not in `tables`.
    """
    match tree:
        case Scan():
            return f"SELECT {_plain(len(tree.schema))} FROM {tables[tree.relation]} t"
        case Select():
            columns = _columns(tree)
            condition = condition_sql(tree.condition, dialect, columns)
            return (
                f"SELECT {', '.join(columns)} FROM {_source(tree.child, dialect, tables)} "
                f"WHERE {condition}"
            )
        case Project():
            columns = _columns(tree.child)
            outputs = [scalar_sql(e, dialect, columns) for e in tree.expressions]
            return f"SELECT {_named(outputs)} FROM {_source(tree.child, dialect, tables)}"
        case Join():
            return _join(tree, dialect, tables)
        case Union():
            return " UNION ALL ".join(
                f"SELECT {', '.join(_columns(child))} FROM {_source(child, dialect, tables)}"
                for child in tree.children
            )
        case Aggregate():
            return _aggregate(tree, dialect, tables)
        case Distinct():
            cells = ", ".join(_columns(tree))
            return f"SELECT DISTINCT {cells} FROM {_source(tree.child, dialect, tables)}"
        case Monus():
            return " EXCEPT ALL ".join(
                f"SELECT {', '.join(_columns(side))} FROM {_source(side, dialect, tables)}"
                for side in (tree.left, tree.right)
            )
        case _:
            raise TypeError("a plan is rendered by `program`")


def _join(tree: Join, dialect: Dialect, tables: Mapping[str, str]) -> str:
    left = [f"l.{column_name(i)}" for i in range(len(tree.left.schema))]
    right = [f"r.{column_name(i)}" for i in range(len(tree.right.schema))]
    conditions = [f"{left[i]} = {right[j]}" for i, j in tree.on]
    if tree.condition is not None:
        conditions.append(condition_sql(tree.condition, dialect, left + right))
    sources = (
        f"({tree_sql(tree.left, dialect, tables)}) l",
        f"({tree_sql(tree.right, dialect, tables)}) r",
    )
    if conditions:
        return (
            f"SELECT {_named(left + right)} FROM {sources[0]} INNER JOIN {sources[1]} "
            f"ON {' AND '.join(conditions)}"
        )
    return f"SELECT {_named(left + right)} FROM {sources[0]} CROSS JOIN {sources[1]}"


def _aggregate(tree: Aggregate, dialect: Dialect, tables: Mapping[str, str]) -> str:
    columns = _columns(tree.child)
    types = [column.type for column in tree.child.schema]
    keys = [key_sql(columns[position], types[position]) for position in tree.keys]
    outputs = keys + [aggregation_sql(a, columns, types, dialect) for a in tree.aggregations]
    query = f"SELECT {_named(outputs)} FROM {_source(tree.child, dialect, tables)}"
    return f"{query} GROUP BY {', '.join(keys)}" if keys else query


def _source(tree: Tree, dialect: Dialect, tables: Mapping[str, str]) -> str:
    if isinstance(tree, Scan):
        return f"{tables[tree.relation]} t"
    return f"({tree_sql(tree, dialect, tables)}) t"


def _columns(tree: Tree) -> list[str]:
    return [f"t.{column_name(position)}" for position in range(len(tree.schema))]


def _plain(width: int) -> str:
    return ", ".join(column_name(position) for position in range(width))


def _named(outputs: Sequence[str]) -> str:
    return ", ".join(f"{text} AS {column_name(i)}" for i, text in enumerate(outputs))
