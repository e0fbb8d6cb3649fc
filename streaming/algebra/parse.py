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
from dataclasses import dataclass, replace

from sqlglot import exp, parse_one
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Tokenizer

from streaming.algebra.casts import cast
from streaming.algebra.expressions import Expressions
from streaming.algebra.forbidden import forbidden
from streaming.algebra.functions import call
from streaming.algebra.grouping import grouped, has_aggregate
from streaming.algebra.normal import normal
from streaming.algebra.scope import Name, Scope, Text, lookup, nearest
from streaming.algebra.tree import (
    Call,
    Col,
    Column,
    Join,
    Project,
    Relation,
    Scalar,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.algebra.types import NULL, common_type
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
    for token in Tokenizer().tokenize(text.sql):
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
        self._relations = relations

    def query(self, node: exp.Expr, ctes: Mapping[str, Query]) -> Query:
        """A SELECT, a UNION ALL, or either in parentheses."""
        self._refuse_clauses(node)
        ctes = self._with(node, ctes)
        match node:
            case exp.Subquery():
                return self.query(node.this, ctes)
            case exp.Union() if node.args.get("distinct") is False:
                return self._union(node, ctes)
            case exp.SetOperation():
                name = "UNION" if isinstance(node, exp.Union) else node.key.upper()
                raise self._unsupported(name, node, "only UNION ALL keeps a bag's duplicates")
            case exp.Select():
                return self._select(node, ctes)
        raise self._text.refusal("SQL_NOT_SELECT", "a view is one SELECT", node, "write a SELECT")

    def _refuse_clauses(self, node: exp.Expr) -> None:
        for key, (name, todo) in _CLAUSES.items():
            value = node.args.get(key)
            if (key == "joins" and isinstance(node, exp.Select)) or not value:
                continue
            if key == "distinct" and not isinstance(node, exp.Select):
                continue
            at = value[0] if isinstance(value, list) else value
            raise self._unsupported(name, at if isinstance(at, exp.Expr) else node, todo)
        known = {"with_", "expressions", "from_", "joins", "where", "group", "having", *_CLAUSES}
        for key, value in node.args.items() if isinstance(node, exp.Select) else ():
            if value and key not in known:
                raise self._unsupported(key.strip("_").upper(), node, "remove it")

    def _unsupported(self, name: str, node: exp.Expr, todo: str) -> FrescoError:
        return self._text.refusal("SQL_UNSUPPORTED", f"{name} is not supported", node, todo)

    def _with(self, node: exp.Expr, ctes: Mapping[str, Query]) -> Mapping[str, Query]:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise self._unsupported("WITH RECURSIVE", clause, "write the joins out")
        known = dict(ctes)
        for cte in clause.expressions:
            query = self.query(cte.this, known)
            known[cte.alias.lower()] = self._renamed(query, cte)
        return known

    def _renamed(self, query: Query, node: exp.Expr) -> Query:
        """The query with the column names that `AS t(a, b)` gives."""
        alias = node.args.get("alias")
        names = [c.name for c in alias.args.get("columns") or ()] if alias else []
        if not names:
            return query
        if len(names) != len(query.names):
            what = f"{len(names)} column names for {len(query.names)} columns"
            raise self._text.refusal("SQL_COLUMN_COUNT", what, alias, "name every column")
        return Query(query.tree, tuple(names))

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

    # FROM -----------------------------------------------------------------------------------------

    def _from(self, node: exp.Select, ctes: Mapping[str, Query]) -> tuple[Tree, Scope]:
        clause = node.args.get("from_")
        if clause is None:
            todo = "a view is over at least one relation"
            raise self._unsupported("SELECT without FROM", node, todo)
        tree, names = self._source(clause.this, ctes)
        for join in node.args.get("joins") or ():
            tree, names = self._join(tree, names, join, ctes)
        return tree, Scope(names)

    def _source(self, node: exp.Expr, ctes: Mapping[str, Query]) -> tuple[Tree, tuple[Name, ...]]:
        """One item of FROM, its columns numbered from 0."""
        self._refuse_clauses(node)
        if isinstance(node, exp.Subquery):
            query = self._renamed(self.query(node.this, self._with(node, ctes)), node)
            qualifier: tuple[str, ...] = (node.alias,) if node.alias else ()
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            query, qualifier = self._table(node, ctes)
            query = self._renamed(query, node)
        else:
            word = self._text.word(node.this if isinstance(node, exp.Table) else node)
            error = forbidden(word)
            if error:
                raise self._text.placed(error, node)
            todo = "name a relation, or a subquery in parentheses"
            raise self._unsupported(f"{word.upper()} in FROM", node, todo)
        columns = zip(query.names, query.tree.schema, strict=True)
        names = [Name(qualifier, name, Col(i, c.type)) for i, (name, c) in enumerate(columns)]
        return query.tree, tuple(names)

    def _table(self, node: exp.Table, ctes: Mapping[str, Query]) -> tuple[Query, tuple[str, ...]]:
        parts = [part.name for part in node.parts]
        name = ".".join(parts)
        qualifier = (node.alias,) if node.alias else tuple(parts)
        if len(parts) == 1 and name.lower() in ctes:
            return ctes[name.lower()], qualifier
        relation = lookup(name, self._relations)
        if relation is None:
            known = ", ".join(sorted(self._relations)[:20]) or "none"
            todo = nearest(name, self._relations) or f"the pipeline's relations are: {known}"
            what = f"no relation {name} in this pipeline"
            raise self._text.refusal("SQL_UNKNOWN_RELATION", what, node, todo)
        scan = Scan(relation.name, relation.schema)
        return Query(scan, tuple(column.name for column in relation.schema)), qualifier

    def _join(
        self, left: Tree, names: tuple[Name, ...], node: exp.Join, ctes: Mapping[str, Query]
    ) -> tuple[Tree, tuple[Name, ...]]:
        kind = " ".join(str(node.args.get(k) or "") for k in ("method", "side", "kind")).split()
        if kind not in ([], ["INNER"], ["CROSS"]):
            todo = "only inner joins can be maintained so far; filter or union instead"
            raise self._unsupported(f"{' '.join(kind)} JOIN", node, todo)
        right, added = self._source(node.this, ctes)
        width = len(left.schema)
        added = tuple(
            replace(n, column=Col(width + n.column.position, n.column.type)) for n in added
        )
        condition: Scalar | None = None
        names, added, parts = self._using(names, added, node)
        scope = Scope(names + added)
        if node.args.get("on") is not None:
            parts.append(self._condition(node.args["on"], Expressions(self._text, scope)))
        for part in parts:
            condition = part if condition is None else call("and", condition, part)
        return Join(left, right, (), condition), scope.names

    def _using(
        self, names: tuple[Name, ...], added: tuple[Name, ...], node: exp.Join
    ) -> tuple[tuple[Name, ...], tuple[Name, ...], list[Scalar]]:
        """USING: equal columns, of which the left one comes first in `*` and has the bare name."""
        parts: list[Scalar] = []
        first: list[Name] = []
        for identifier in node.args.get("using") or ():
            sides = []
            for scope in (Scope(names), Scope(added)):
                found = scope.resolve([identifier.name])
                if len(found) != 1:
                    raise self._using_error(identifier, scope, len(found))
                sides.append(found[0])
            parts.append(
                self._condition(identifier, None, call("=", sides[0].column, sides[1].column))
            )
            first.append(sides[0])
            added = tuple(replace(n, visible=False) if n == sides[1] else n for n in added)
        rest = tuple(n for n in names if n not in first)
        return (*first, *rest), added, parts

    def _using_error(self, node: exp.Expr, scope: Scope, count: int) -> FrescoError:
        code = "SQL_AMBIGUOUS_COLUMN" if count else "SQL_UNKNOWN_COLUMN"
        what = f"USING needs exactly one column {node.name} on each side"
        return self._text.refusal(code, what, node, scope.nearest(node.name) or "use ON")

    def _condition(
        self, node: exp.Expr, build: Expressions | None, built: Scalar | None = None
    ) -> Scalar:
        if build is not None:
            built = build.build(node)
        assert built is not None
        if built.type not in ("boolean", NULL):
            what = f"a condition of type {built.type}"
            raise self._text.refusal("SQL_TYPES", what, node, "write a comparison")
        return cast(built, "boolean")

    # SELECT ---------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, ctes: Mapping[str, Query]) -> Query:
        tree, scope = self._from(node, ctes)
        plain = Expressions(self._text, scope)
        where = node.args.get("where")
        if where is not None:
            aggregate = where.find(exp.AggFunc)
            if aggregate is not None:
                raise self._unsupported("an aggregate in WHERE", aggregate, "use HAVING")
            tree = Select(tree, self._condition(where.this, plain))
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
            raise self._unsupported("* EXCEPT", item, "name the columns")
        qualifier = [p.name for p in item.parts[:-1]] if isinstance(item, exp.Column) else []
        found = scope.starred(qualifier)
        if not found:
            what = f"nothing named {'.'.join(qualifier)} in FROM"
            known = [n.qualifier[-1] for n in scope.names if n.qualifier]
            todo = nearest(qualifier[-1], known) if qualifier else "name the columns"
            raise self._text.refusal("SQL_UNKNOWN_RELATION", what, item, todo)
        return found


def _coerced(tree: Tree, position: int, type_: str) -> Scalar:
    """A column cast to a union's type; a bare NULL becomes a typed one."""
    column = Col(position, tree.schema[position].type)
    return Call("cast", (column,), type_) if column.type == NULL else cast(column, type_)
