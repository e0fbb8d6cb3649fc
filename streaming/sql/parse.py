"""A view's SELECT (Spark's dialect, parsed by sqlglot) to a typed tree in normal form.

Accepted: select lists with aliases and `*`; FROM with aliases, subqueries and CTEs; inner joins
    (ON, USING, comma); WHERE; GROUP BY expressions, aliases or ordinals; HAVING; SUM, COUNT, AVG
    inside expressions; UNION ALL. Everything else is refused by name, with line, column and what to
    do instead.

**Shape** (made by `normal`, relied on by relevance and by replica state): every Scan stands under
`Project(Select(Scan))` or `Project(Scan)`. The Select has every condition on that relation alone
that WHERE, ON or HAVING implies; the Project has just the columns used above it, as plain Cols in
the relation's order. Equalities of columns across a join are in `Join.on`; other scalars stand
above the joins, in the Project below an Aggregate (its keys and arguments) or in the topmost
Project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from streaming.algebra.normal_form import normal
from streaming.algebra.tree import Project, Relation, Select, Tree, Union
from streaming.errors import FrescoError
from streaming.scalars.casts import cast
from streaming.scalars.expression import Call, Col, Column, Scalar
from streaming.scalars.limits import too_deep
from streaming.scalars.types import NULL, common_type
from streaming.sql.accepted import check
from streaming.sql.clauses import ParsedQuery, checked_condition, renamed, unsupported_clause
from streaming.sql.expressions import Expressions
from streaming.sql.from_clause import FromClause
from streaming.sql.grouping import aliases, grouped, has_aggregate, is_aggregate, output_name
from streaming.sql.scope import Scope, ScopeColumn, Text, nearest
from streaming.sql.spelling import spelled
from streaming.sql.syntax import syntax


def parse(sql: str, relations: Mapping[str, Relation], *, origin: str = "") -> Tree:
    """The tree of a SELECT in normal form; its schema has the output names and Spark's types.

    Args:
        sql: the text; to keep a file's lines and columns, blank out what is before the SELECT.
        relations: what may be scanned, by full name ("north.entry"; a parent view's bare name).
        origin: the file's path, for errors.

    Raises:
        FrescoError: codes SQL_*, with line and column.
    """
    text = Text(sql, origin)
    node = syntax(text)
    check(text, node)
    tree = parsed(text, node, relations)
    try:
        spelled(text, node)
    except RecursionError as error:
        raise _too_nested(text, node) from error
    return tree


def parsed(text: Text, node: exp.Expr, relations: Mapping[str, Relation]) -> Tree:
    """The tree of a SELECT that was read and checked; see `parse`."""
    try:
        query = _ViewParser(text, relations).query(node, {})
        _named(text, node, query)
        return normal(query.tree)
    except RecursionError as error:
        raise _too_nested(text, node) from error
    except FrescoError as error:
        raise text.placed(error, node) from error


def _too_nested(text: Text, node: exp.Expr) -> FrescoError:
    return text.placed(too_deep("operators or queries stand inside each other too often"), node)


def tables(sql: str, *, origin: str = "") -> tuple[str, ...]:
    """The names of the relations a SELECT scans, as written ("north.entry"), CTEs left out.

    Raises:
        FrescoError: SQL_SYNTAX, SQL_NOT_SELECT, SQL_LITERAL, SQL_UNSUPPORTED.
    """
    node = syntax(Text(sql, origin))
    ctes = {cte.alias.lower() for cte in node.find_all(exp.CTE)}
    names = [".".join(part.name for part in table.parts) for table in node.find_all(exp.Table)]
    return tuple(dict.fromkeys(name for name in names if name.lower() not in ctes))


def _named(text: Text, node: exp.Expr, query: ParsedQuery) -> None:
    """Every output column has a name of its own and a type."""
    outputs = _outputs(node)
    for position, (name, column) in enumerate(zip(query.names, query.tree.schema, strict=True)):
        at = outputs[position] if len(outputs) == len(query.names) else node
        if name is None:
            what, code = f"output column {position + 1} has no name", "SQL_UNNAMED_COLUMN"
            raise text.refusal(code, what, at, "write expression AS name")
        if name in query.names[:position]:
            what, code = f"two output columns are named {name}", "SQL_DUPLICATE_COLUMN"
            raise text.refusal(code, what, at, "give one of them another name with AS")
        if column.type == NULL:
            what, code = f"column {name} is a NULL without a type", "SQL_TYPES"
            raise text.refusal(code, what, at, "write CAST(NULL AS type)")


def _outputs(node: exp.Expr) -> list[exp.Expr]:
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return list(node.expressions)


class _ViewParser:
    """One view's text with what its names may mean."""

    def __init__(self, text: Text, relations: Mapping[str, Relation]) -> None:
        self._text = text
        self._from = FromClause(text, relations, self.query)

    def query(self, node: exp.Expr, ctes: Mapping[str, ParsedQuery]) -> ParsedQuery:
        """A SELECT, a UNION ALL, or either in parentheses."""
        ctes = self._with(node, ctes)
        match node:
            case exp.Subquery():
                return self.query(node.this, ctes)
            case exp.Union():
                return self._union(node, ctes)
            case exp.Select():
                return self._select(node, ctes)
        raise self._text.refusal("SQL_NOT_SELECT", "a view is one SELECT", node, "write a SELECT")

    def _with(self, node: exp.Expr, ctes: Mapping[str, ParsedQuery]) -> Mapping[str, ParsedQuery]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        known = dict(ctes)
        own: set[str] = set()
        for cte in clause.expressions:
            if cte.alias.lower() in own:
                what, todo = f"WITH names {cte.alias} twice", "give one of them another name"
                raise self._text.refusal("SQL_SYNTAX", what, cte, todo)
            own.add(cte.alias.lower())
            query = self.query(cte.this, known)
            known[cte.alias.lower()] = renamed(self._text, query, cte)
        return known

    def _union(self, node: exp.Union, ctes: Mapping[str, ParsedQuery]) -> ParsedQuery:
        sides = self.query(node.this, ctes), self.query(node.expression, ctes)
        left, right = (side.tree.schema for side in sides)
        if len(left) != len(right):
            what = f"UNION ALL of {len(left)} and {len(right)} columns"
            todo = "give both sides the same columns"
            raise self._text.refusal("SQL_COLUMN_COUNT", what, node.expression, todo)
        types = []
        for position, (one, other) in enumerate(zip(left, right, strict=True)):
            type_ = common_type(one.type, other.type)
            if type_ is None:
                what = f"UNION ALL of {one.type} and {other.type} in column {position + 1}"
                todo = "CAST one side to the other's type"
                raise self._text.refusal("SQL_TYPES", what, node.expression, todo)
            types.append(type_)
        branches = [self._widened(side.tree, types, node) for side in sides]
        flat = [part for b in branches for part in (b.children if isinstance(b, Union) else (b,))]
        return ParsedQuery(Union(tuple(flat)), sides[0].names)

    def _widened(self, tree: Tree, types: list[str], node: exp.Expr) -> Tree:
        if [column.type for column in tree.schema] == types:
            return tree
        if isinstance(tree, Union):
            return Union(tuple(self._widened(child, types, node) for child in tree.children))
        try:
            columns = [_coerced(tree, i, type_) for i, type_ in enumerate(types)]
        except FrescoError as error:
            raise self._text.placed(error, node) from error
        schema = tuple(replace(c, type=t) for c, t in zip(tree.schema, types, strict=True))
        return Project(tree, tuple(columns), schema)

    def _select(self, node: exp.Select, ctes: Mapping[str, ParsedQuery]) -> ParsedQuery:
        if not node.expressions:
            what = "this is not SQL that can be read: SELECT of no column"
            raise self._text.refusal("SQL_SYNTAX", what, node, "name the columns, or write *")
        tree, scope = self._from.build(node, ctes)
        plain = Expressions(self._text, scope, outputs=aliases(node.expressions))
        where = node.args.get("where")
        if where is not None:
            aggregate = next(filter(is_aggregate, where.walk(prune=_is_query)), None)
            if aggregate is not None:
                what = f"the aggregate {aggregate.name.upper()} in WHERE"
                raise unsupported_clause(self._text, what, aggregate, "use HAVING")
            condition = checked_condition(self._text, plain.build(where.this), where.this)
            tree = Select(tree, condition)
        if node.args.get("group") or node.args.get("having") or has_aggregate(node.expressions):
            result, outputs, names = grouped(self._text, scope, tree, node)
        else:
            result, outputs, names = tree, *self._items(node.expressions, scope, plain)
        schema = tuple(
            Column(name or f"_c{i}", scalar.type)
            for i, (name, scalar) in enumerate(zip(names, outputs, strict=True))
        )
        return ParsedQuery(Project(result, tuple(outputs), schema), tuple(names))

    def _items(
        self, items: list[exp.Expr], scope: Scope, build: Expressions
    ) -> tuple[list[Scalar], list[str | None]]:
        outputs: list[Scalar] = []
        names: list[str | None] = []
        for item in items:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                for found in self._starred(item, star, scope):
                    outputs.append(found.column)
                    names.append(found.name)
            else:
                outputs.append(build.build(item.this if isinstance(item, exp.Alias) else item))
                names.append(output_name(item))
        return outputs, names

    def _starred(self, item: exp.Expr, star: exp.Star, scope: Scope) -> tuple[ScopeColumn, ...]:
        qualifier = [p.name for p in item.parts[:-1]] if isinstance(item, exp.Column) else []
        found = scope.starred(qualifier)
        if not found:
            what = f"nothing named {'.'.join(qualifier)} in FROM"
            known = [n.qualifier[-1] for n in scope.names if n.qualifier]
            todo = nearest(qualifier[-1], known) if qualifier else ""
            raise self._text.refusal("SQL_UNKNOWN_RELATION", what, item, todo or "name the columns")
        return found


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _coerced(tree: Tree, position: int, type_: str) -> Scalar:
    """A column cast to a union's type; a bare NULL becomes a typed one."""
    column = Col(position, tree.schema[position].type)
    return Call("cast", (column,), type_) if column.type == NULL else cast(column, type_)
