"""Expression trees over signed bags, the one form in which a view is planned, maintained and proved.

A tree is data: SQL is parsed into it (`parse`), the delta rules map trees to trees (`delta`), and each
evaluator (`bag`, `duck`, `spark`) interprets it. Columns are named by position, so names that a user
may choose freely (case, spaces, reserved words) never meet an engine's rules; the names live in
`schema` only. Types are Spark's, written as Spark's simple strings ("decimal(18,2)"), because Spark's
result types are the law (DESIGN 11).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

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
    """What every relational expression has."""

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
                left += children(node)[::-1]
        return tuple(found)

    @cached_property
    def weight(self) -> int:
        """The size of the tree written out: its nodes' columns and their scalars' weights."""
        tree = cast("Tree", self)
        own = 1 + len(tree.schema) + sum(map(weight, scalars(tree)))
        return own + sum(child.weight for child in children(tree))

    @cached_property
    def depth(self) -> int:
        """How many nodes stand below each other."""
        return 1 + max((child.depth for child in children(cast("Tree", self))), default=0)


@dataclass(frozen=True)
class Scan(Expression):
    """A base relation ("north.entry") or another view, all its columns in the schema's order."""

    relation: str
    schema: Schema


@hashed_once
@dataclass(frozen=True)
class Select(Expression):
    """Rows for which `condition` is true (not false, not NULL)."""

    child: Tree
    condition: Scalar

    @property
    def schema(self) -> Schema:
        return self.child.schema


@hashed_once
@dataclass(frozen=True)
class Project(Expression):
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
class Join(Expression):
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


@dataclass(frozen=True)
class Aggregation:
    """`function` is count_all, count, sum or avg; `argument` a column position (None: count_all)."""

    function: str
    argument: int | None
    type: str


@hashed_once
@dataclass(frozen=True)
class Aggregate(Expression):
    """GROUP BY: output is the key columns in order and then one column for each aggregation.

    Without keys there is exactly one row, also over an empty input.
    """

    child: Tree
    keys: tuple[int, ...]
    aggregations: tuple[Aggregation, ...]
    schema: Schema


@hashed_once
@dataclass(frozen=True)
class Distinct(Expression):
    """Duplicate elimination: one copy of each row that occurs (moro-sartori 5.2)."""

    child: Tree

    @property
    def schema(self) -> Schema:
        return self.child.schema


@hashed_once
@dataclass(frozen=True)
class Monus(Expression):
    """EXCEPT ALL: a row that occurs n times left and m times right occurs max(0, n - m) times.

    Both sides have the same types, the names are the left one's (moro-sartori 5.2).
    """

    left: Tree
    right: Tree

    @property
    def schema(self) -> Schema:
        return self.left.schema


Tree = Scan | Select | Project | Join | Union | Aggregate | Distinct | Monus


def children(tree: Tree) -> tuple[Tree, ...]:
    """The trees directly below, left to right."""
    match tree:
        case Scan():
            return ()
        case Join() | Monus():
            return (tree.left, tree.right)
        case Union():
            return tree.children
        case _:
            return (tree.child,)


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
    for child in children(tree):
        yield from walk(child)


def relations(tree: Tree) -> tuple[str, ...]:
    """The relations scanned, each once, in the order of their first scan."""
    return tree.scanned


def computes(tree: Tree) -> bool:
    """Whether the node itself has an expression that can fail: it must meet each of its rows."""
    if isinstance(tree, Select):
        return fails(tree.condition)
    return isinstance(tree, Project) and any(fails(e) for e in tree.expressions)
