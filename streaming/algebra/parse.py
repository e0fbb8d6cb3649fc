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

from sqlglot import exp, parse_one, tokenize
from sqlglot.errors import ParseError, SqlglotError

from streaming.algebra.casts import cast
from streaming.algebra.clauses import (
    Query,
    checked_condition,
    refuse_clauses,
    renamed,
    unsupported_clause,
)
from streaming.algebra.expressions import Expressions
from streaming.algebra.from_clause import FromClause
from streaming.algebra.grouping import grouped, has_aggregate
from streaming.algebra.normal import normal
from streaming.algebra.scope import Name, Scope, Text, nearest
from streaming.algebra.tree import Call, Col, Column, Project, Relation, Scalar, Select, Tree, Union
from streaming.algebra.types import NULL, common_type
from streaming.errors import FrescoError


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
    node = _syntax(text)
    query = _Parser(text, relations).query(node, {})
    _named(text, node, query)
    return normal(query.tree)


def tables(sql: str, *, origin: str = "") -> tuple[str, ...]:
    """The names of the relations a SELECT scans, as written ("north.entry"), CTEs left out.

    Raises:
        FrescoError: SQL_SYNTAX, SQL_NOT_SELECT.
    """
    node = _syntax(Text(sql, origin))
    ctes = {cte.alias.lower() for cte in node.find_all(exp.CTE)}
    names = [".".join(part.name for part in table.parts) for table in node.find_all(exp.Table)]
    return tuple(dict.fromkeys(name for name in names if name.lower() not in ctes))


def _syntax(text: Text) -> exp.Expr:
    try:
        node = parse_one(text.sql, dialect="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = str(first.get("description") or error).split("\n")[0]
        raise _syntax_error(text, what, _error_offset(text, first)) from error
    except SqlglotError as error:
        raise _syntax_error(text, str(error).split("\n")[0], 0) from error
    if not isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        raise FrescoError(
            "SQL_NOT_SELECT",
            "a view is one SELECT",
            where=text.place(node),
            todo="write AS SELECT ... with a single statement and nothing after it",
        )
    for token in tokenize(text.sql, read="spark"):
        if token.text.upper() == "TRY_CAST":
            raise FrescoError(
                "SQL_FUNCTION_UNSUPPORTED",
                "TRY_CAST is not supported",
                where=text.where(token.start),
                todo="use CAST",
            )
    return node


def _error_offset(text: Text, error: Mapping[str, object]) -> int:
    """sqlglot counts lines from 1 and names the column of a token's last character."""
    line, column = int(str(error.get("line") or 1)), int(str(error.get("col") or 1))
    before = sum(len(part) + 1 for part in text.sql.split("\n")[: line - 1])
    return max(0, before + column - max(1, len(str(error.get("highlight") or " "))))


def _syntax_error(text: Text, what: str, offset: int) -> FrescoError:
    return FrescoError(
        "SQL_SYNTAX",
        f"this is not SQL that can be read: {what}",
        where=text.where(offset),
        todo="correct it; views are in Spark's dialect",
    )


def _named(text: Text, node: exp.Expr, query: Query) -> None:
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


class _Parser:
    """One view's text with what its names may mean."""

    def __init__(self, text: Text, relations: Mapping[str, Relation]) -> None:
        self._text = text
        self._from = FromClause(text, relations, self.query)

    def query(self, node: exp.Expr, ctes: Mapping[str, Query]) -> Query:
        """A SELECT, a UNION ALL, or either in parentheses."""
        refuse_clauses(self._text, node)
        ctes = self._with(node, ctes)
        match node:
            case exp.Subquery():
                return self.query(node.this, ctes)
            case exp.Union() if node.args.get("distinct") is False:
                return self._union(node, ctes)
            case exp.SetOperation():
                name = "UNION" if isinstance(node, exp.Union) else node.key.upper()
                raise unsupported_clause(
                    self._text, name, node, "only UNION ALL keeps a bag's duplicates"
                )
            case exp.Select():
                return self._select(node, ctes)
        raise self._text.refusal("SQL_NOT_SELECT", "a view is one SELECT", node, "write a SELECT")

    def _with(self, node: exp.Expr, ctes: Mapping[str, Query]) -> Mapping[str, Query]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise unsupported_clause(self._text, "WITH RECURSIVE", clause, "write the joins out")
        known = dict(ctes)
        for cte in clause.expressions:
            query = self.query(cte.this, known)
            known[cte.alias.lower()] = renamed(self._text, query, cte)
        return known

    def _union(self, node: exp.Union, ctes: Mapping[str, Query]) -> Query:
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
        return Query(Union(tuple(flat)), sides[0].names)

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

    def _select(self, node: exp.Select, ctes: Mapping[str, Query]) -> Query:
        tree, scope = self._from.build(node, ctes)
        plain = Expressions(self._text, scope)
        where = node.args.get("where")
        if where is not None:
            aggregate = where.find(exp.AggFunc)
            if aggregate is not None:
                raise unsupported_clause(
                    self._text, "an aggregate in WHERE", aggregate, "use HAVING"
                )
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
        return Query(Project(result, tuple(outputs), schema), tuple(names))

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
                names.append(item.alias_or_name or None)
        return outputs, names

    def _starred(self, item: exp.Expr, star: exp.Star, scope: Scope) -> tuple[Name, ...]:
        if any(star.args.values()):
            raise unsupported_clause(self._text, "* EXCEPT", item, "name the columns")
        qualifier = [p.name for p in item.parts[:-1]] if isinstance(item, exp.Column) else []
        found = scope.starred(qualifier)
        if not found:
            what = f"nothing named {'.'.join(qualifier)} in FROM"
            known = [n.qualifier[-1] for n in scope.names if n.qualifier]
            todo = nearest(qualifier[-1], known) if qualifier else ""
            raise self._text.refusal("SQL_UNKNOWN_RELATION", what, item, todo or "name the columns")
        return found


def _coerced(tree: Tree, position: int, type_: str) -> Scalar:
    """A column cast to a union's type; a bare NULL becomes a typed one."""
    column = Col(position, tree.schema[position].type)
    return Call("cast", (column,), type_) if column.type == NULL else cast(column, type_)
