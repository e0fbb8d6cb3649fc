"""What the clauses of a SELECT share: a parsed query, its names, its conditions."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from streaming.algebra.tree import Tree
from streaming.errors import FrescoError
from streaming.scalars.expression import Scalar
from streaming.sql.scope import Text


@dataclass(frozen=True)
class ParsedQuery:
    """A parsed query: its tree, and each output column's name (None: it was given none)."""

    tree: Tree
    names: tuple[str | None, ...]


def unsupported_clause(text: Text, name: str, node: exp.Expr, todo: str) -> FrescoError:
    at = text.own(node)
    return text.refusal("SQL_UNSUPPORTED", f"{name} is not supported", node, todo, at)


def renamed(text: Text, query: ParsedQuery, node: exp.Expr) -> ParsedQuery:
    """The query with the column names that `AS t(a, b)` gives."""
    alias = node.args.get("alias")
    names = [c.name for c in alias.args.get("columns") or ()] if alias else []
    if not names:
        return query
    if len(names) != len(query.names):
        what = f"{len(names)} column names for {len(query.names)} columns"
        raise text.refusal("SQL_COLUMN_COUNT", what, node, "name every column")
    return ParsedQuery(query.tree, tuple(names))


def checked_condition(text: Text, built: Scalar, node: exp.Expr) -> Scalar:
    """The scalar, if it is a condition.

    Raises:
        FrescoError: SQL_TYPES.
    """
    if built.type != "boolean":
        what = f"a condition of type {built.type}"
        raise text.refusal("SQL_TYPES", what, node, "write a comparison")
    return built
