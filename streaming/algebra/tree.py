"""Expression trees over signed bags, the one form in which a view is planned, maintained and proved.

A tree is data: SQL is parsed into it (`parse`), the delta rules map trees to trees (`delta`), `bag` says
what it means and `tree_sql` renders it for the engines. A view is a tree over scans. Its delta plan is
made of the same nodes over other leaves, what a batch changes (`Delta`) and what stood before it
(`Before`), and of one node more, `Changes`, for what is not linear.

A new operator is a class here with its `schema`, its children by one of the three bases, and a place in
`Tree`; its meaning in `bag`, its text in `tree_sql`, its rule in `delta` (where it is linear or a
function of its inputs' bags, the rule is there already). mypy names the places where it is missing.

Columns are named by position, so names that a user
may choose freely (case, spaces, reserved words) never meet an engine's rules; the names live in
`schema` only. Types are Spark's, written as Spark's simple strings ("decimal(18,2)"), because Spark's
result types are the law (DESIGN 11).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from streaming.scalars.expression import Col, Scalar, Schema, hashed_once, weight
from streaming.scalars.failure import fails


@dataclass(frozen=True)
class Relation:
    """A captured table: `name` is "source.table"; `key` the primary key's positions, () if none.

    Attributes:
        left_out: columns that it has at its source and not here, with their types there; for messages.
    """

    name: str
    schema: Schema
    key: tuple[int, ...] = ()
    left_out: tuple[tuple[str, str], ...] = field(default=(), compare=False)


# Relational expressions ---------------------------------------------------------------------------


class Expression:
    """What every relational expression has; `children` are the trees directly below, left to right."""

    @cached_property
    def scanned(self) -> tuple[str, ...]:
        """See `relations`; looked for once."""
        found: dict[str, None] = {}
        left: list[Tree] = [cast("Tree", self)]
        while left:
            node = left.pop()
            if isinstance(node, Scan):
                found[node.relation] = None
            else:
                left += node.children[::-1]
        return tuple(found)

    @cached_property
    def weight(self) -> int:
        """The size of the tree written out: its nodes' columns and their scalars' weights."""
        tree = cast("Tree", self)
        own = 1 + len(tree.schema) + sum(map(weight, scalars(tree)))
        return own + sum(child.weight for child in tree.children)

    @cached_property
    def depth(self) -> int:
        """How many nodes stand below each other."""
        return 1 + max((child.depth for child in cast("Tree", self).children), default=0)

    @cached_property
    def has_numbers(self) -> bool:
        """Whether the rows carry numbers of transactions: some leaf of a plan is what a batch changes."""
        return any(child.has_numbers for child in cast("Tree", self).children)


class _Leaf(Expression):
    @property
    def children(self) -> tuple[Tree, ...]:
        return ()

    def over(self, *children: Tree) -> Tree:
        """The same node over other children."""
        return cast("Tree", self)


class _OverOne(Expression):
    child: Tree

    @property
    def children(self) -> tuple[Tree, ...]:
        return (self.child,)

    def over(self, *children: Tree) -> Tree:
        """The same node over another child."""
        (child,) = children
        return cast("Tree", replace(cast(Any, self), child=child))


class _OverTwo(Expression):
    left: Tree
    right: Tree

    @property
    def children(self) -> tuple[Tree, ...]:
        return (self.left, self.right)

    def over(self, *children: Tree) -> Tree:
        """The same node over other children."""
        left, right = children
        return cast("Tree", replace(cast(Any, self), left=left, right=right))


@hashed_once
@dataclass(frozen=True)
class Scan(_Leaf):
    """A base relation ("north.entry") or another view, all its columns in the schema's order."""

    relation: str
    schema: Schema


@hashed_once
@dataclass(frozen=True)
class Select(_OverOne):
    """Rows for which `condition` is true (not false, not NULL)."""

    child: Tree
    condition: Scalar

    @property
    def schema(self) -> Schema:
        return self.child.schema


@hashed_once
@dataclass(frozen=True)
class Project(_OverOne):
    """One output column for each expression; duplicates stay (bags)."""

    child: Tree
    expressions: tuple[Scalar, ...]
    schema: Schema

    @cached_property
    def copied(self) -> tuple[int, ...] | None:
        """The input's positions where every output is a column of it; None where one is computed."""
        positions = [e.position for e in self.expressions if isinstance(e, Col)]
        return tuple(positions) if len(positions) == len(self.expressions) else None


@hashed_once
@dataclass(frozen=True)
class Join(_OverTwo):
    """Inner join; output is the left columns and then the right ones.

    Attributes:
        on: pairs (left position, right position) that must be equal (NULL is equal to nothing).
        condition: what else must hold, over the output's positions; None when nothing else.
    """

    left: Tree
    right: Tree
    on: tuple[tuple[int, int], ...]
    condition: Scalar | None

    @property
    def schema(self) -> Schema:
        return self.left.schema + self.right.schema


@hashed_once
@dataclass(frozen=True)
class Union(Expression):
    """UNION ALL; the children have the same types, the names are the first child's."""

    children: tuple[Tree, ...]

    @property
    def schema(self) -> Schema:
        return self.children[0].schema

    def over(self, *children: Tree) -> Tree:
        """The same node over other children."""
        return Union(children)


@dataclass(frozen=True)
class Aggregation:
    """`function` is count_all, count, sum or avg; `argument` a column position (None: count_all)."""

    function: str
    argument: int | None
    type: str


@hashed_once
@dataclass(frozen=True)
class Aggregate(_OverOne):
    """GROUP BY: output is the key columns in order and then one column for each aggregation.

    Without keys there is exactly one row, also over an empty input.
    """

    child: Tree
    keys: tuple[int, ...]
    aggregations: tuple[Aggregation, ...]
    schema: Schema


@hashed_once
@dataclass(frozen=True)
class Distinct(_OverOne):
    """Duplicate elimination: one copy of each row that occurs (moro-sartori 5.2)."""

    child: Tree

    @property
    def schema(self) -> Schema:
        return self.child.schema


@hashed_once
@dataclass(frozen=True)
class Monus(_OverTwo):
    """EXCEPT ALL: a row that occurs n times left and m times right occurs max(0, n - m) times.

    Both sides have the same types, the names are the left one's (moro-sartori 5.2).
    """

    left: Tree
    right: Tree

    @property
    def schema(self) -> Schema:
        return self.left.schema


# What delta plans have besides --------------------------------------------------------------------


class PlanNode(Expression):
    """What stands in delta plans only: no rewrite of views meets it."""


@hashed_once
@dataclass(frozen=True)
class Delta(_Leaf, PlanNode):
    """The batch's signed rows of a view's leaf, with their numbers."""

    leaf: Tree
    has_numbers = True

    @property
    def schema(self) -> Schema:
        return self.leaf.schema


@hashed_once
@dataclass(frozen=True)
class Before(_Leaf, PlanNode):
    """The bag of a view's leaf before the batch; no numbers."""

    leaf: Tree

    @property
    def schema(self) -> Schema:
        return self.leaf.schema


@hashed_once
@dataclass(frozen=True)
class Changes(PlanNode):
    """What the rows of an operator that is not linear change by, under each number.

    Attributes:
        operator: over the bags of its inputs before the batch.
        inputs: by child of the operator, its changes; None for none.
        start: the history's first number when the batch begins it: there are no bags before.
    """

    operator: Aggregate | Distinct | Monus
    inputs: tuple[Tree | None, ...]
    start: int | None = None
    has_numbers = True

    @property
    def schema(self) -> Schema:
        return self.operator.schema

    @property
    def children(self) -> tuple[Tree, ...]:
        """The changed inputs and, where there is one, the state before."""
        changed = tuple(each for each in self.inputs if each is not None)
        return changed if self.start is not None else (*changed, self.operator)

    def over(self, *children: Tree) -> Tree:
        """A plan is made by the delta rules, and nothing rewrites it."""
        raise TypeError("a plan is not rewritten")


Tree = (
    Scan | Select | Project | Join | Union | Aggregate | Distinct | Monus | Delta | Before | Changes
)


def scalars(tree: Tree) -> tuple[Scalar, ...]:
    """The scalars of the node itself."""
    match tree:
        case Select():
            return (tree.condition,)
        case Project():
            return tree.expressions
        case Join() if tree.condition is not None:
            return (tree.condition,)
        case _:
            return ()


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree itself and all below it, parents first, left to right."""
    yield tree
    for child in tree.children:
        yield from walk(child)


def relations(tree: Tree) -> tuple[str, ...]:
    """The relations scanned, each once, in the order of their first scan."""
    return tree.scanned


def computes(tree: Tree) -> bool:
    """Whether the node itself has an expression that can fail: it must meet each of its rows."""
    if isinstance(tree, Select):
        return fails(tree.condition)
    return isinstance(tree, Project) and any(fails(e) for e in tree.expressions)
