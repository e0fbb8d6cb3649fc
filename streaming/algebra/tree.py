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
from typing import TypeVar, cast

NUMBER = "_number"
"""Column of every delta: the transaction a row belongs to (int64)."""
MULTIPLICITY = "_multiplicity"
"""Column of every delta: +k or -k copies of the row (int64)."""


_T = TypeVar("_T")


def column_name(position: int) -> str:
    """Physical name of a delta's column: c0, c1, ..."""
    return f"c{position}"


def hashed_once(cls: type[_T]) -> type[_T]:
    """The frozen dataclass, whose hash is worked out once for each object.

    Trees and plans share their parts, and a hash that walks all of them takes 2^n steps for n joins.
    The hash is a process's own: nothing of this is pickled.
    """
    whole = cls.__hash__

    def __hash__(self: _T) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = whole(self)
        return int(found)

    cls.__hash__ = __hash__  # type: ignore[method-assign, assignment]
    return cls


@dataclass(frozen=True)
class Column:
    """A column's true name (any text) and its Spark type.

    Attributes:
        hidden: no SQL can name it: it stands there for views that were planned before (`sources.layout`).
        before: position of the narrower column whose values this one goes on with.
    """

    name: str
    type: str
    hidden: bool = False
    before: int | None = None


Schema = tuple[Column, ...]


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


# Scalar expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Col:
    """The value of the input's column at `position` (from 0)."""

    position: int
    type: str


@dataclass(frozen=True)
class Lit:
    """A constant; `value` is None, bool, int, float, str, Decimal, date or datetime."""

    value: object
    type: str


@hashed_once
@dataclass(frozen=True)
class Call:
    """A function or operator on the list in `algebra.functions`, with Spark's result type."""

    function: str
    args: tuple[Scalar, ...]
    type: str

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """How many names an engine's text has of the value, and of whether it fails (`failure`).

        Shared arguments count as often as they are written, since text and walks copy them.
        """
        parts = [arg.sizes if isinstance(arg, Call) else (1, 0) for arg in self.args]
        values, failed = (sum(side) for side in zip(*parts, strict=True))
        own, written = _TEXTS.get(self.function, (1, 1))
        value = own + written * values
        can_fail = self.function in _FALLIBLE and self.type not in ("double", "float")
        if failed or can_fail:
            failed += values + (value if can_fail else 0)
            failed += len(parts) * parts[0][0] if self.function == "in" else 0
        return value, failed

    @property
    def weight(self) -> int:
        """The size of the whole text."""
        return sum(self.sizes)

    @cached_property
    def depth(self) -> int:
        """How many calls stand inside each other."""
        return 1 + max((arg.depth for arg in self.args if isinstance(arg, Call)), default=0)


Scalar = Col | Lit | Call


_TEXTS = {"/": (10, 6), "%": (5, 2), "upper": (110, 6), "lower": (10, 6)}
"""The size of a function's own text, and how often it names an argument at most, where that is more
than 1 (`renderings`)."""
_FALLIBLE = ("+", "-", "*", "/", "%", "neg", "abs", "cast", "upper", "lower")


def weight(scalar: Scalar) -> int:
    """See `Call.weight`; a column or a constant weighs 1."""
    return scalar.weight if isinstance(scalar, Call) else 1


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


def columns_used(scalar: Scalar) -> frozenset[int]:
    """The input positions a scalar reads."""
    match scalar:
        case Col():
            return frozenset((scalar.position,))
        case Lit():
            return frozenset()
        case Call():
            return frozenset().union(*(columns_used(arg) for arg in scalar.args))
