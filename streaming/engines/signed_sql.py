"""Trees over signed bags with numbers as DuckDB text: `numbered` in SQL.

Linear operators keep number and multiplicity, a join carries the larger number and multiplies the
multiplicities. What is not linear is a query over plain bags (`sql.tree_sql`): its inputs are states,
under number 0, each row standing as often as it occurs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.algebra.tree import Join, Project, Scan, Select, Tree, Union, relations, walk
from streaming.engines.sql_text import condition_sql, scalar_sql, tree_sql
from streaming.scalars.expression import MULTIPLICITY, NUMBER, column_name

LINEAR = (Scan, Select, Project, Join, Union)


def counted_relations(tree: Tree) -> tuple[str, ...]:
    """The scans below operators that are not linear: their rows must be states."""
    found: dict[str, None] = {}
    for node in walk(tree):
        if not isinstance(node, LINEAR):
            found.update(dict.fromkeys(relations(node)))
    return tuple(found)


def is_net(tree: Tree) -> bool:
    """Whether the rows are net when the inputs are."""
    while isinstance(tree, Select):
        tree = tree.child
    return isinstance(tree, Scan)


def net_query(query: str, width: int) -> str:
    """Each (number, row) of a query once; what cancels is left out."""
    keys = ", ".join([NUMBER, *_names(width)])
    total = f"CAST(sum({MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}"
    cells = ", ".join([NUMBER, total, *_names(width)])
    return f"SELECT {cells} FROM ({query}) n GROUP BY {keys} HAVING sum({MULTIPLICITY}) <> 0"


def signed_sql(tree: Tree, tables: Mapping[str, str]) -> str:
    """The tree as a SELECT of _number, _multiplicity and c0..cN; not net.

    Args:
        tables: from a scan's name to a table with such columns.

    Raises:
        KeyError: a scan is not in `tables`.
    """
    match tree:
        case Scan():
            return f"SELECT {_all(len(tree.schema))} FROM {tables[tree.relation]}"
        case Select():
            columns = _columns("t", len(tree.schema))
            condition = condition_sql(tree.condition, "duckdb", columns)
            return f"SELECT * FROM ({signed_sql(tree.child, tables)}) t WHERE {condition}"
        case Project():
            columns = _columns("t", len(tree.child.schema))
            outputs = [scalar_sql(e, "duckdb", columns) for e in tree.expressions]
            marks = [f"t.{NUMBER}", f"t.{MULTIPLICITY}"]
            return f"SELECT {_named(marks, outputs)} FROM ({signed_sql(tree.child, tables)}) t"
        case Join():
            return _join(tree, tables)
        case Union():
            return " UNION ALL ".join(f"({signed_sql(c, tables)})" for c in tree.children)
        case _:
            plain = {name: _plain(tree, name, tables[name]) for name in relations(tree)}
            outputs = _columns("t", len(tree.schema))
            marks = ["CAST(0 AS BIGINT)", "CAST(1 AS BIGINT)"]
            return f"SELECT {_named(marks, outputs)} FROM ({tree_sql(tree, 'duckdb', plain)}) t"


def _join(tree: Join, tables: Mapping[str, str]) -> str:
    left = _columns("l", len(tree.left.schema))
    right = _columns("r", len(tree.right.schema))
    conditions = [f"{left[i]} = {right[j]}" for i, j in tree.on]
    if tree.condition is not None:
        conditions.append(condition_sql(tree.condition, "duckdb", left + right))
    marks = [
        f"greatest(l.{NUMBER}, r.{NUMBER})",
        f"l.{MULTIPLICITY} * r.{MULTIPLICITY}",
    ]
    return (
        f"SELECT {_named(marks, left + right)} FROM ({signed_sql(tree.left, tables)}) l"
        f" INNER JOIN ({signed_sql(tree.right, tables)}) r ON {' AND '.join(conditions) or 'TRUE'}"
    )


def _plain(tree: Tree, name: str, table: str) -> str:
    """A state's rows, each as often as it occurs."""
    width = next(
        len(node.schema) for node in walk(tree) if isinstance(node, Scan) and node.relation == name
    )
    cells = ", ".join(_columns("p", width)) or "1"
    return f"(SELECT {cells} FROM {table} p, range(p.{MULTIPLICITY}))"


def _columns(alias: str, width: int) -> list[str]:
    return [f"{alias}.{name}" for name in _names(width)]


def _names(width: int) -> list[str]:
    return [column_name(position) for position in range(width)]


def _all(width: int) -> str:
    return ", ".join([NUMBER, MULTIPLICITY, *_names(width)])


def _named(marks: Sequence[str], outputs: Sequence[str]) -> str:
    names = [NUMBER, MULTIPLICITY, *_names(len(outputs))]
    return ", ".join(f"{t} AS {n}" for t, n in zip([*marks, *outputs], names, strict=True))
