"""Random views and random histories for the delta rules: small domains, so that rows meet.

Three relations with NULLs, duplicates and decimals; views of every operator in any nesting;
histories of transactions that insert, delete, update and truncate. Everything is drawn, so
hypothesis can shrink it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

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
from streaming.scalars.expression import Col, Column, Lit, Scalar, Schema
from streaming.scalars.functions import call
from streaming.scalars.types import avg_type, delta_schema, sum_type

MONEY = "decimal(10,2)"
RELATIONS: dict[str, Schema] = {
    "north.account": (Column("id", "bigint"), Column("owner", "string"), Column("limit", MONEY)),
    "north.entry": (Column("account", "bigint"), Column("amount", MONEY), Column("kind", "int")),
    "south.entry": (Column("account", "bigint"), Column("amount", MONEY), Column("kind", "int")),
}
VALUES: dict[str, list[object]] = {
    "bigint": [0, 0, 1, 1, None],
    "int": [0, 1, None],
    "string": ["x", "x", "", None],
    MONEY: [Decimal("0.10"), Decimal("-2.50"), Decimal("99999999.99"), None],
    "double": [0.1, 0.2, -1e15, 1e15, None],
}
Draw = Callable[[st.SearchStrategy], object]
Row = tuple[object, ...]


def with_doubles(relations: dict[str, Schema]) -> dict[str, Schema]:
    """The same relations, their money as doubles."""
    return {
        name: tuple(Column(c.name, "double" if c.type == MONEY else c.type) for c in schema)
        for name, schema in relations.items()
    }


@st.composite
def views(draw: Draw, relations: dict[str, Schema] = RELATIONS, depth: int = 3) -> Tree:
    """A view over the relations, at most `depth` operators above its leaves."""
    return _tree(draw, relations, depth)


def _tree(draw: Draw, relations: dict[str, Schema], depth: int) -> Tree:
    if depth == 0:
        return _leaf(draw, relations)
    kinds = ["leaf", "select", "project", "join", "join", "union", "group", "group"]
    kind = draw(st.sampled_from([*kinds, "distinct", "monus"]))
    if kind == "leaf":
        return _leaf(draw, relations)
    child = _tree(draw, relations, depth - 1)
    if kind == "select":
        return Select(child, _condition(draw, child.schema))
    if kind == "project":
        return _project(draw, child)
    if kind == "join":
        return _join(draw, child, _tree(draw, relations, depth - 1))
    if kind == "union":
        return Union(_alike(draw, child, _tree(draw, relations, depth - 1)))
    if kind == "monus":
        return Monus(*_alike(draw, child, _tree(draw, relations, depth - 1)))
    if kind == "distinct":
        return Distinct(child)
    return _group(draw, child)


def _leaf(draw: Draw, relations: dict[str, Schema]) -> Tree:
    name = draw(st.sampled_from(sorted(relations)))
    tree: Tree = Scan(name, relations[name])
    if draw(st.booleans()):
        tree = Select(tree, _condition(draw, tree.schema))
    return _project(draw, tree) if draw(st.booleans()) else tree


def _condition(draw: Draw, schema: Schema) -> Scalar:
    position = draw(st.integers(0, len(schema) - 1))
    type_ = schema[position].type
    values = [v for v in VALUES.get(type_, []) if v is not None]
    if not values or draw(st.integers(0, 3)) == 0:
        return call("isnotnull", Col(position, type_))
    operator = draw(st.sampled_from(["=", "<>", "<", ">="]))
    return call(operator, Col(position, type_), Lit(draw(st.sampled_from(values)), type_))


def _project(draw: Draw, child: Tree) -> Tree:
    width = len(child.schema)
    positions = draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=4))
    expressions: list[Scalar] = [Col(p, child.schema[p].type) for p in positions]
    schema = [child.schema[p] for p in positions]
    if draw(st.integers(0, 3)) == 0:
        tag = draw(st.sampled_from(["north", "south"]))
        expressions.append(Lit(tag, "string"))
        schema.append(Column("tag", "string"))
    return Project(child, tuple(expressions), tuple(schema))


def _join(draw: Draw, left: Tree, right: Tree) -> Tree:
    pairs = _of_one_type(left, right)
    if not pairs:
        return left
    on = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True))
    condition = None
    if draw(st.integers(0, 3)) == 0:
        condition = _condition(draw, left.schema + right.schema)
    return Join(left, right, tuple(on), condition)


def _of_one_type(left: Tree, right: Tree) -> list[tuple[int, int]]:
    """Positions on the left and on the right whose columns have one type."""
    return [
        (a, b)
        for a, x in enumerate(left.schema)
        for b, y in enumerate(right.schema)
        if x.type == y.type
    ]


def _alike(draw: Draw, left: Tree, right: Tree) -> tuple[Tree, Tree]:
    """Both sides cut to the columns of a type that both have; else the left side twice."""
    common = _of_one_type(left, right)
    if not common:
        return left, left
    pairs = draw(st.lists(st.sampled_from(common), min_size=1, max_size=3))
    sides = []
    for side, tree in enumerate((left, right)):
        schema = tuple(tree.schema[pair[side]] for pair in pairs)
        expressions = tuple(Col(pair[side], tree.schema[pair[side]].type) for pair in pairs)
        sides.append(Project(tree, expressions, schema))
    return sides[0], sides[1]


def _group(draw: Draw, child: Tree) -> Tree:
    width = len(child.schema)
    keys = tuple(draw(st.lists(st.integers(0, width - 1), max_size=2, unique=True)))
    aggregations = []
    for _ in range(draw(st.integers(0 if keys else 1, 3))):
        aggregations.append(_aggregation(draw, child.schema))
    schema = [child.schema[key] for key in keys]
    schema += [Column(f"a{i}", a.type) for i, a in enumerate(aggregations)]
    return Aggregate(child, keys, tuple(aggregations), tuple(schema))


def _aggregation(draw: Draw, schema: Schema) -> Aggregation:
    position = draw(st.integers(0, len(schema) - 1))
    type_ = schema[position].type
    functions = ["count_all", "count"] + (["sum", "sum", "avg"] if sum_type(type_) else [])
    function = draw(st.sampled_from(functions))
    if function == "count_all":
        return Aggregation(function, None, "bigint")
    if function == "count":
        return Aggregation(function, position, "bigint")
    result = sum_type(type_) if function == "sum" else avg_type(type_)
    assert result is not None
    return Aggregation(function, position, result)


@dataclass
class History:
    """Transactions 0..n; `deltas[n]` are the signed rows of transaction n by relation.

    `truncates[n]` are the relations truncated under n, before its rows; `states[n]` the bags after
    n.
    """

    deltas: list[dict[str, list[tuple[int, Row]]]] = field(default_factory=list)
    truncates: list[list[str]] = field(default_factory=list)
    states: list[dict[str, Counter[Row]]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return len(self.deltas) - 1

    def table(self, relation: str, schema: Schema, first: int, last: int) -> pa.Table:
        """The relation's delta for [first..last]."""
        rows = [
            (n, m, *row)
            for n in range(first, last + 1)
            for m, row in self.deltas[n].get(relation, [])
        ]
        arrow = delta_schema(schema)
        columns = zip(*rows, strict=True) if rows else [[] for _ in arrow]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
        return pa.table(arrays, schema=arrow)


@st.composite
def histories(draw: Draw, relations: dict[str, Schema] = RELATIONS, most: int = 8) -> History:
    """Up to `most` transactions after the initial one."""
    history = History()
    bags: dict[str, Counter[Row]] = {name: Counter() for name in relations}
    for _ in range(draw(st.integers(3, most + 1))):
        delta, truncated = _transaction(draw, relations, bags, len(history.deltas) > 0)
        history.deltas.append(delta)
        history.truncates.append(truncated)
        history.states.append({name: Counter(bag) for name, bag in bags.items()})
    return history


def _transaction(
    draw: Draw, relations: dict[str, Schema], bags: dict[str, Counter[Row]], later: bool
) -> tuple[dict[str, list[tuple[int, Row]]], list[str]]:
    delta: dict[str, list[tuple[int, Row]]] = {}
    truncated = []
    if later and draw(st.integers(0, 7)) == 0:
        name = draw(st.sampled_from(sorted(relations)))
        bags[name].clear()
        truncated.append(name)
    for _ in range(draw(st.integers(0, 4) if later else st.integers(3, 8))):
        name = draw(st.sampled_from(sorted(relations)))
        standing = sorted(bags[name].elements(), key=repr)
        rows = delta.setdefault(name, [])
        if standing and draw(st.booleans()):
            old = draw(st.sampled_from(standing))
            rows.append((-1, old))
            bags[name][old] -= 1
            bags[name] += Counter()
            if draw(st.booleans()):
                continue
        new = tuple(draw(st.sampled_from(VALUES[c.type])) for c in relations[name])
        copies = draw(st.sampled_from([1, 1, 1, 2]))
        rows.append((copies, new))
        bags[name][new] += copies
    return delta, truncated
