"""What a SELECT may consist of: the clauses refused by name, and what a parsed query is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from streaming.algebra.casts import cast
from streaming.algebra.scope import Text
from streaming.algebra.tree import Scalar, Tree
from streaming.algebra.types import NULL
from streaming.errors import FrescoError

_CLAUSES = {
    "distinct": ("DISTINCT", "group by all columns instead"),
    "limit": ("LIMIT", "a view has no order; limit it where it is read"),
    "offset": ("OFFSET", "a view has no order; cut it where it is read"),
    "order": ("ORDER BY", "a view has no order; sort it where it is read"),
    "sort": ("SORT BY", "a view has no order; sort it where it is read"),
    "cluster": ("CLUSTER BY", "remove it; the pipeline decides the layout"),
    "distribute": ("DISTRIBUTE BY", "remove it; the pipeline decides the layout"),
    "qualify": ("QUALIFY", "use WHERE or HAVING"),
    "windows": ("WINDOW", "compute the window where the view is read"),
    "laterals": ("LATERAL VIEW", "store the rows in a table of their own"),
    "pivots": ("PIVOT", "write SUM(CASE WHEN ... END) per column"),
    "hint": ("hints", "remove them; the pipeline plans its own work"),
    "sample": ("TABLESAMPLE", "a sample has no source state; use WHERE"),
    "version": ("VERSION AS OF", "a view is over the present; use AS OF when reading it"),
    "when": ("TIMESTAMP AS OF", "a view is over the present; use AS OF when reading it"),
    "by_name": ("UNION BY NAME", "use UNION ALL and put the columns in order"),
    "joins": ("joins in parentheses", "write the joins one after the other in FROM"),
}


@dataclass(frozen=True)
class Query:
    """A parsed query: its tree, and each output column's name (None: it was given none)."""

    tree: Tree
    names: tuple[str | None, ...]


def unsupported_clause(text: Text, name: str, node: exp.Expr, todo: str) -> FrescoError:
    return text.refusal("SQL_UNSUPPORTED", f"{name} is not supported", node, todo)


def refuse_clauses(text: Text, node: exp.Expr) -> None:
    """Refuses a node with a clause that no view may have.

    Raises:
        FrescoError: SQL_UNSUPPORTED.
    """
    for key, (name, todo) in _CLAUSES.items():
        value = node.args.get(key)
        if (key == "joins" and isinstance(node, exp.Select)) or not value:
            continue
        if key == "distinct" and not isinstance(node, exp.Select):
            continue
        at = value[0] if isinstance(value, list) else value
        raise unsupported_clause(text, name, at if isinstance(at, exp.Expr) else node, todo)
    known = {"with_", "expressions", "from_", "joins", "where", "group", "having", *_CLAUSES}
    for key, value in node.args.items() if isinstance(node, exp.Select) else ():
        if value and key not in known:
            raise unsupported_clause(text, key.strip("_").upper(), node, "remove it")


def renamed(text: Text, query: Query, node: exp.Expr) -> Query:
    """The query with the column names that `AS t(a, b)` gives."""
    alias = node.args.get("alias")
    names = [c.name for c in alias.args.get("columns") or ()] if alias else []
    if not names:
        return query
    if len(names) != len(query.names):
        what = f"{len(names)} column names for {len(query.names)} columns"
        raise text.refusal("SQL_COLUMN_COUNT", what, node, "name every column")
    return Query(query.tree, tuple(names))


def checked_condition(text: Text, built: Scalar, node: exp.Expr) -> Scalar:
    """The scalar, if it is a condition.

    Raises:
        FrescoError: SQL_TYPES.
    """
    if built.type not in ("boolean", NULL):
        what = f"a condition of type {built.type}"
        raise text.refusal("SQL_TYPES", what, node, "write a comparison")
    return cast(built, "boolean")
