"""FROM: relations, CTEs and subqueries, joined one after the other, with the names they offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from streaming.algebra.tree import Join, Relation, Scan, Tree
from streaming.errors import FrescoError
from streaming.scalars.expression import Col, Scalar
from streaming.scalars.functions import call
from streaming.sql.clauses import ParsedQuery, checked_condition, renamed, unsupported_clause
from streaming.sql.expressions import Expressions
from streaming.sql.forbidden import forbidden
from streaming.sql.scope import Lacking, Scope, ScopeColumn, Text, lookup, nearest


class FromClause:
    """Builds the FROM clauses of one view.

    Args:
        query: parses a subquery, given the CTEs it may name.
    """

    def __init__(
        self,
        text: Text,
        relations: Mapping[str, Relation],
        query: Callable[[exp.Expr, Mapping[str, ParsedQuery]], ParsedQuery],
    ) -> None:
        self._text = text
        self._relations = relations
        self._query = query

    def build(self, node: exp.Select, ctes: Mapping[str, ParsedQuery]) -> tuple[Tree, Scope]:
        """The join of everything in FROM, and the names it brings into scope."""
        clause = node.args.get("from_")
        if clause is None:
            todo = "a view is over at least one relation"
            raise unsupported_clause(self._text, "SELECT without FROM", node, todo)
        tree, scope = self._source(clause.this, ctes)
        for join in node.args.get("joins") or ():
            tree, scope = self._join(tree, scope, join, ctes)
        return tree, scope

    def _source(self, node: exp.Expr, ctes: Mapping[str, ParsedQuery]) -> tuple[Tree, Scope]:
        """One item of FROM, its columns numbered from 0."""
        lacking: tuple[Lacking, ...] = ()
        if isinstance(node, exp.Subquery):
            query = renamed(self._text, self._query(node.this, ctes), node)
            qualifier: tuple[str, ...] = (node.alias,) if node.alias else ()
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            query, qualifier, left_out = self._table(node, ctes)
            lacking = tuple((qualifier, *one) for one in left_out)
            query = renamed(self._text, query, node)
        else:
            node = node.this if isinstance(node, exp.Table) else node
            word = self._text.word(node)
            error = forbidden(word)
            if error:
                raise self._text.placed(error, node)
            todo = "name a relation, or a subquery in parentheses"
            raise unsupported_clause(self._text, f"{word.upper()} in FROM", node, todo)
        seen = [(i, c) for i, c in enumerate(query.tree.schema) if not c.hidden]
        pairs = zip(query.names, seen, strict=True)
        names = tuple(ScopeColumn(qualifier, name, Col(i, c.type)) for name, (i, c) in pairs)
        return query.tree, Scope(names, lacking)

    def _table(
        self, node: exp.Table, ctes: Mapping[str, ParsedQuery]
    ) -> tuple[ParsedQuery, tuple[str, ...], tuple[tuple[str, str], ...]]:
        """What it scans, its qualifier, and the columns that are left out of it."""
        parts = [part.name for part in node.parts]
        name = ".".join(parts)
        qualifier = (node.alias,) if node.alias else tuple(parts)
        if len(parts) == 1 and name.lower() in ctes:
            return ctes[name.lower()], qualifier, ()
        relation = lookup(name, self._relations)
        if relation is None:
            known = ", ".join(sorted(self._relations)[:20]) or "none"
            todo = nearest(name, self._relations) or f"the pipeline's relations are: {known}"
            what = f"no relation {name} in this pipeline"
            raise self._text.refusal("SQL_UNKNOWN_RELATION", what, node, todo)
        scan = Scan(relation.name, relation.schema)
        query = ParsedQuery(scan, tuple(one.name for one in relation.schema if not one.hidden))
        return query, qualifier, relation.left_out

    def _join(
        self, left: Tree, before: Scope, node: exp.Join, ctes: Mapping[str, ParsedQuery]
    ) -> tuple[Tree, Scope]:
        right, coming = self._source(node.this, ctes)
        width = len(left.schema)
        added = tuple(
            replace(n, column=Col(width + n.column.position, n.column.type)) for n in coming.names
        )
        condition: Scalar | None = None
        names, added, parts = self._using(before.names, added, node)
        scope = Scope(names + added, before.lacking + coming.lacking)
        if node.args.get("on") is not None:
            built = Expressions(self._text, scope).build(node.args["on"])
            parts.append(checked_condition(self._text, built, node.args["on"]))
        for part in parts:
            condition = part if condition is None else call("and", condition, part)
        return Join(left, right, (), condition), scope

    def _using(
        self, names: tuple[ScopeColumn, ...], added: tuple[ScopeColumn, ...], node: exp.Join
    ) -> tuple[tuple[ScopeColumn, ...], tuple[ScopeColumn, ...], list[Scalar]]:
        """USING: equal columns, of which the left one comes first in `*` and has the bare name."""
        parts: list[Scalar] = []
        first: list[ScopeColumn] = []
        for identifier in node.args.get("using") or ():
            sides = []
            for scope in (Scope(names), Scope(added)):
                found = scope.resolve([identifier.name])
                if len(found) != 1:
                    raise self._using_error(identifier, scope, len(found))
                sides.append(found[0])
            parts.append(call("=", sides[0].column, sides[1].column))
            first.append(sides[0])
            added = tuple(replace(n, visible=False) if n == sides[1] else n for n in added)
        rest = tuple(n for n in names if n not in first)
        return (*first, *rest), added, parts

    def _using_error(self, node: exp.Expr, scope: Scope, count: int) -> FrescoError:
        code = "SQL_AMBIGUOUS_COLUMN" if count else "SQL_UNKNOWN_COLUMN"
        what = f"USING needs exactly one column {node.name} on each side"
        return self._text.refusal(code, what, node, scope.nearest(node.name) or "use ON")
