"""A leaf's delta of one batch as SQL: from its relation's rows, truncates expanded, retractions
checked.

One text for both engines. `delta` is the table with the leaf's signed rows and numbers, `state` the
one with its bag before the batch.
"""

from __future__ import annotations

from streaming.algebra.scans import scan_needs
from streaming.algebra.tree import Project, Scan, Select, Tree, walk
from streaming.engines.sql_text import cast_sql, condition_sql, scalar_sql
from streaming.engines.totals import SAME
from streaming.scalars.expression import MULTIPLICITY, NUMBER, column_name
from streaming.scalars.failure import fails
from streaming.scalars.renderings import Dialect


def names(leaf: Tree) -> list[str]:
    """The leaf's columns, c0 and so on."""
    return [column_name(position) for position in range(len(leaf.schema))]


def listed(leaf: Tree) -> str:
    """ ", c0, c1": the leaf's columns to follow others in a list."""
    return "".join(f", {name}" for name in names(leaf))


def relation_columns(leaf: Tree) -> list[str]:
    """The columns of the relation under the leaf."""
    scan = next(node for node in walk(leaf) if isinstance(node, Scan))
    return [column_name(position) for position in range(len(scan.schema))]


def read_columns(leaf: Tree) -> list[str]:
    """Those of them that the leaf reads: rows under way may lack a column that is new since."""
    (need,) = scan_needs(leaf)
    return [column_name(position) for position in sorted(need.columns)]


def leaf_sql(leaf: Tree, source: str, dialect: Dialect) -> str:
    """The leaf's rows with their marks from its relation's, each value cast to its type."""
    node, expressions, condition = leaf, None, None
    if isinstance(node, Project):
        expressions, node = node.expressions, node.child
    if isinstance(node, Select):
        condition, node = node.condition, node.child
    columns = [f"x.{name}" for name in relation_columns(leaf)]
    values = columns
    if expressions is not None:
        values = [scalar_sql(e, dialect, columns) for e in expressions]
    cells = [f"x.{NUMBER}", f"x.{MULTIPLICITY}"]
    for name, value, column in zip(names(leaf), values, leaf.schema, strict=True):
        cells.append(f"{cast_sql(value, column.type, dialect)} AS {name}")
    if condition is not None and fails(condition):  # what is there under no number must not fail
        by = ", ".join([NUMBER, *read_columns(leaf)])
        total = f"SUM(n.{MULTIPLICITY})"
        source = (
            f"(SELECT {by}, CAST({total} AS BIGINT) AS {MULTIPLICITY} FROM {source} n"
            f" GROUP BY {by} HAVING {total} <> 0)"
        )
    where = "" if condition is None else f" WHERE {condition_sql(condition, dialect, columns)}"
    return f"SELECT {', '.join(cells)} FROM {source} x{where}"


def net_sql(leaf: Tree, delta: str) -> str:
    """The delta with each (number, row) once; what cancels within a number is left out."""
    return (
        f"SELECT {NUMBER}, CAST(SUM(n.{MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}{listed(leaf)}"
        f" FROM {delta} n GROUP BY {NUMBER}{listed(leaf)} HAVING SUM(n.{MULTIPLICITY}) <> 0"
    )


def truncate_sql(leaf: Tree, delta: str, state: str, number: int) -> str:
    """The rows of a truncate: everything that stood just before the number leaves under it."""
    cells = f"{MULTIPLICITY}{listed(leaf)}"
    stood = f"SELECT {cells} FROM {state} UNION ALL SELECT {cells} FROM {delta}"
    group = f" GROUP BY {', '.join(names(leaf))}" if leaf.schema else ""
    return (
        f"SELECT CAST({number} AS BIGINT) AS {NUMBER},"
        f" CAST(-SUM(b.{MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}{listed(leaf)}"
        f" FROM ({stood} WHERE {NUMBER} < {number}) b{group}"
        f" HAVING SUM(b.{MULTIPLICITY}) <> 0"
    )


def empty_sql(leaf: Tree, state: str) -> str:
    """A delta without rows."""
    cells = f"CAST(0 AS BIGINT) AS {NUMBER}, {MULTIPLICITY}{listed(leaf)}"
    return f"SELECT {cells} FROM {state} WHERE 1 = 0"


def short_sql(leaf: Tree, delta: str) -> str:
    """Retractions that the batch itself does not cover: `_sum` is how many rows state must hold."""
    keys = ", ".join(names(leaf)) or "0"
    window = f"(PARTITION BY {keys} ORDER BY {NUMBER})"
    sums = f"SELECT *, SUM({MULTIPLICITY}) OVER {window} AS _sum FROM {delta}"
    return f"SELECT * FROM ({sums}) r WHERE r.{MULTIPLICITY} < 0 AND r._sum < 0"


def lacking_sql(leaf: Tree, short: str, state: str) -> str:
    """The first retraction that finds no row: its number, how many it lacks (below 0), its values.

    Args:
        state: the leaf's bag, at least the rows that `short` asks for.
    """
    keys = ", ".join(f"g.{name}" for name in names(leaf))
    first, group = (f"{keys}, ", f" GROUP BY {keys}") if keys else ("", "")
    same = " AND ".join(f"h.{n} {SAME} s.{n}" for n in names(leaf)) or "1 = 1"
    held = f"SELECT {first}SUM(g.{MULTIPLICITY}) AS held FROM {state} g{group}"
    lack = "h._sum + COALESCE(s.held, 0)"
    cells = ", ".join([f"h.{NUMBER}", f"{lack} AS lack", *(f"h.{n}" for n in names(leaf))])
    return (
        f"SELECT {cells} FROM {short} h LEFT JOIN ({held}) s ON {same}"
        f" WHERE {lack} < 0 ORDER BY h.{NUMBER} LIMIT 1"
    )


def bag_sql(leaf: Tree, state: str) -> str:
    """A leaf's bag folded: each distinct row once."""
    group = f" GROUP BY {', '.join(names(leaf))}" if leaf.schema else ""
    total = f"CAST(SUM(s.{MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}"
    having = f" HAVING SUM(s.{MULTIPLICITY}) <> 0"
    return f"SELECT {total}{listed(leaf)} FROM {state} s{group}{having}"
