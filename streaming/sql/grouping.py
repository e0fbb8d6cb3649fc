"""GROUP BY, HAVING and aggregates: a SELECT with them as Project(Select(Aggregate(Project))).

The Project below the Aggregate computes the keys and then each aggregate's argument, once; above
it, an expression that equals a key is that key's column and an aggregate is its result's column, so
SUM(x) + 1 or CASE WHEN key THEN ... are plain scalars over the Aggregate's output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from sqlglot import exp

from streaming.algebra.tree import Aggregate, Aggregation, Project, Select, Tree
from streaming.errors import FrescoError
from streaming.scalars.expression import Col, Column, Lit, Scalar
from streaming.scalars.functions import AGGREGATES
from streaming.scalars.types import avg_type, sum_type
from streaming.sql.expressions import Expressions, constant
from streaming.sql.scope import Scope, Text


def has_aggregate(nodes: Iterable[exp.Expr]) -> bool:
    """Whether one of the nodes holds an aggregate function (outside subqueries)."""
    return any(_aggregates(node) for node in nodes)


def _aggregates(node: exp.Expr) -> bool:
    prune = (exp.Subquery, exp.Select)
    found = node.walk(prune=lambda n: isinstance(n, prune))
    return any(is_aggregate(n) for n in found)


def is_aggregate(node: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Whether a node is the call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def output_name(item: exp.Expr) -> str | None:
    """The name of a select item: its alias, or the column's own; None where it has neither."""
    if isinstance(item, exp.Alias):
        return item.alias
    return item.name if isinstance(item, exp.Column) else None


def aliases(items: Iterable[exp.Expr]) -> dict[str, exp.Expr]:
    """From an alias of the select list, in lower case, to what it names."""
    return {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}


def grouped(
    text: Text, scope: Scope, tree: Tree, node: exp.Select
) -> tuple[Tree, list[Scalar], list[str | None]]:
    """The tree up to HAVING, and the select list's scalars and names over its output.

    Raises:
        FrescoError: SQL_NOT_GROUPED, SQL_UNSUPPORTED and the codes of `Expressions.build`.
    """
    plan = _Grouping(text, scope, node)
    outputs = [plan.output(item) for item in node.expressions]
    having = node.args.get("having")
    condition = plan.having(having.this) if having is not None else None
    result: Tree = plan.aggregate(tree)
    if condition is not None:
        result = Select(result, condition)
    return result, outputs, [output_name(item) for item in node.expressions]


class _Grouping:
    """The keys and aggregations of one SELECT, collected while its expressions are built."""

    def __init__(self, text: Text, scope: Scope, node: exp.Select) -> None:
        self._text = text
        self._items = node.expressions
        self._aliases = aliases(self._items)
        self._plain = Expressions(text, scope, outputs=self._aliases)
        self._above = Expressions(text, scope, self._intercept)
        self._scope = scope
        self._keys: list[Scalar] = []
        self._arguments: dict[Scalar, int] = {}
        self._aggregations: dict[Aggregation, int] = {}
        self._in_having = False
        group = node.args.get("group")
        if group is not None:
            self._group(group)

    def _group(self, group: exp.Group) -> None:
        for item in group.expressions:
            key = self._key(item)
            if key not in self._keys:
                self._keys.append(key)

    def _refusal(self, what: str, node: exp.Expr) -> FrescoError:
        return self._text.refusal(
            "SQL_UNSUPPORTED",
            f"{what} is not supported",
            node,
            "name the grouping expressions; write one view for each set",
        )

    def _key(self, node: exp.Expr) -> Scalar:
        """A key: an ordinal, else a column of FROM, else an alias of the select list."""
        target = node
        if isinstance(node, exp.Literal) and not node.is_string:
            target = self._ordinal(node)
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            alias = self._aliases.get(node.name.lower())
            if alias is not None and not self._scope.resolve([node.name]):
                target = alias
        if _aggregates(target):
            raise self._refusal("an aggregate in GROUP BY", node)
        return self._plain.build(target)

    def _ordinal(self, node: exp.Literal) -> exp.Expr:
        position = constant(node).value
        # 1L is no ordinal in Spark, but a constant to group by.
        if (
            not isinstance(position, int)
            or not node.this.isdigit()
            or not 1 <= position <= len(self._items)
        ):
            raise self._text.refusal(
                "SQL_UNSUPPORTED",
                f"GROUP BY {node.this}: the select list has {len(self._items)} items",
                node,
                "use a number from 1 to that, or the expression itself",
            )
        item: exp.Expr = self._items[position - 1]
        return item.this if isinstance(item, exp.Alias) else item

    def output(self, item: exp.Expr) -> Scalar:
        """A select item over the Aggregate's output."""
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            raise self._refusal("* beside aggregates", item)
        return self._above.build(item.this if isinstance(item, exp.Alias) else item)

    def having(self, node: exp.Expr) -> Scalar:
        """HAVING's condition, in which the select list's aliases may stand."""
        self._in_having = True
        condition = self._above.build(node)
        if condition.type != "boolean":
            what = f"a condition of type {condition.type}"
            raise self._text.refusal("SQL_TYPES", what, node, "write a comparison")
        return condition

    def aggregate(self, tree: Tree) -> Aggregate:
        """The Aggregate over the Project of keys and arguments, which have all been collected.

        HAVING alone makes one group of all rows, whose size is then counted and left out above.
        """
        if not self._keys and not self._aggregations:
            self._result("count_all", None, "bigint")
        computed = (*self._keys, *self._arguments)
        schema = tuple(Column(f"_c{i}", scalar.type) for i, scalar in enumerate(computed))
        below = Project(tree, computed, schema) if computed else tree
        width = len(self._keys)
        aggregations = tuple(
            Aggregation(a.function, None if a.argument is None else width + a.argument, a.type)
            for a in self._aggregations
        )
        results = tuple(Column(f"_a{i}", a.type) for i, a in enumerate(aggregations))
        return Aggregate(below, tuple(range(width)), aggregations, schema[:width] + results)

    def _intercept(self, node: exp.Expr) -> Scalar | None:
        if isinstance(node, exp.Literal):
            return None
        if is_aggregate(node):
            return self._aggregation(node)
        if _aggregates(node):
            return None
        if isinstance(node, exp.Column):
            return self._column(node)
        if not self._keys or isinstance(node, exp.Paren):
            return None
        try:
            scalar = self._plain.build(node)
        except FrescoError:
            return None
        return self._as_key(scalar)

    def _as_key(self, scalar: Scalar) -> Col | None:
        if scalar in self._keys and not isinstance(scalar, Lit):
            return Col(self._keys.index(scalar), scalar.type)
        return None

    def _column(self, node: exp.Column) -> Scalar:
        alias = self._aliases.get(node.name.lower()) if len(node.parts) == 1 else None
        if self._in_having and alias is not None and not self._scope.resolve([node.name]):
            return self._above.build(alias)
        found = self._as_key(self._plain.column(node))
        if found is None:
            raise self._text.refusal(
                "SQL_NOT_GROUPED",
                f"column {node.sql(dialect='spark')} is neither in GROUP BY nor in an aggregate",
                node,
                "add it to GROUP BY, or aggregate it",
            )
        return found

    def _aggregation(self, node: exp.Anonymous) -> Scalar:
        function, word = AGGREGATES[node.name.lower()], node.name.upper()
        if len(node.expressions) != 1:
            raise self._refusal(f"{word} of {len(node.expressions)} arguments", node)
        argument = node.expressions[0]
        if isinstance(argument, exp.Star):
            if function == "count":
                return self._result("count_all", None, "bigint")
            raise self._refusal(f"{word}(*)", node)
        if _aggregates(argument):
            raise self._refusal("an aggregate of an aggregate", node)
        scalar = self._plain.build(argument)
        if function == "count":
            if isinstance(scalar, Lit) and scalar.value is not None:
                return self._result("count_all", None, "bigint")
            return self._result("count", scalar, "bigint")
        type_ = sum_type(scalar.type) if function == "sum" else avg_type(scalar.type)
        if type_ is None:
            what = f"{word} of {scalar.type}"
            raise self._text.refusal("SQL_TYPES", what, node, "CAST the argument to a number")
        return self._result(function, scalar, type_)

    def _result(self, function: str, argument: Scalar | None, type_: str) -> Col:
        """The result's column; equal aggregates are computed once."""
        place = None
        if argument is not None:
            place = self._arguments.setdefault(argument, len(self._arguments))
        aggregation = Aggregation(function, place, type_)
        position = self._aggregations.setdefault(aggregation, len(self._aggregations))
        return Col(len(self._keys) + position, type_)
