"""Which rows of its relations a source must send so that an expression can be computed here.

A source is not asked to compute the expression. It is asked for those rows of each relation that can
have a part in it; the expression itself is computed over them by the view's own operators. So types,
NULLs, overflow and collations are Spark's whatever the source's engine thinks of them, values are read
exactly as the log's are, and what is sent to the source may be weaker than the expression but never
stronger. What restricts a relation:

* a conjunct of the selections above it that reads this relation alone (*filters*);
* an equality with a column of another input (*links*): once that input's rows are here, the relation
  needs only the rows whose column is among its values. Known rows reduce their neighbours, these reduce
  theirs: the semi-join program of distributed databases, one statement per relation, one snapshot.

Both are sound because all operators between the scan and the condition are selections, projections
and inner joins; below any other operator nothing from above is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from streaming.algebra.psj import renumbered
from streaming.algebra.tree import (
    Join,
    Project,
    Scan,
    Select,
    Tree,
    computes,
)
from streaming.scalars.expression import Call, Col, Scalar, Schema, columns_used

Origin = tuple[int, int] | None
"""(index of the input, its column) that an output is a copy of."""


@dataclass
class Input:
    """One scan of the expression; the same relation may have several.

    Attributes:
        name: of the scan in `Reduction.tree`, of its own.
        relation: the scan's name in the expression: a relation, or known rows.
        filters: what must hold of a row, over the input's columns.
        used: the columns that the expression reads.
    """

    name: str
    relation: str
    schema: Schema
    filters: list[Scalar] = field(default_factory=list)
    used: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Link:
    """Two columns of different inputs that must be equal."""

    one: tuple[int, int]
    other: tuple[int, int]

    def seen_from(self, index: int) -> tuple[int, tuple[int, int]] | None:
        """(own column, (other input, its column)) of an input; None when it is not linked."""
        for (here, column), there in ((self.one, self.other), (self.other, self.one)):
            if here == index:
                return column, there
        return None


@dataclass(frozen=True)
class Reduction:
    """An expression with its inputs apart: `tree` scans each under a name of its own."""

    tree: Tree
    inputs: tuple[Input, ...]
    links: tuple[Link, ...]

    def linked(self, index: int) -> dict[int, list[tuple[int, int]]]:
        """Other input -> pairs (own column, the other's column) that must be equal."""
        found: dict[int, list[tuple[int, int]]] = {}
        for link in self.links:
            seen = link.seen_from(index)
            if seen is not None:
                own, (other, column) = seen
                found.setdefault(other, []).append((own, column))
        return found


@lru_cache(maxsize=1024)
def reduction(tree: Tree) -> Reduction:
    """The inputs of an expression and what restricts them."""
    walk = _Walk()
    renamed, origins = walk.tree(tree)
    walk.use(origins)
    return Reduction(renamed, tuple(walk.inputs), tuple(dict.fromkeys(walk.links)))


class _Walk:
    """Collects inputs, filters and links; each node's outputs are traced to the inputs' columns."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.links: list[Link] = []

    def tree(self, tree: Tree) -> tuple[Tree, list[Origin]]:
        match tree:
            case Scan():
                index = len(self.inputs)
                name = f"@input{index}"
                self.inputs.append(Input(name, tree.relation, tree.schema))
                return Scan(name, tree.schema), [(index, i) for i in range(len(tree.schema))]
            case Select():
                child, origins = self.tree(tree.child)
                self.condition(tree.condition, origins)
                return Select(child, tree.condition), origins
            case Project():
                child, origins = self.tree(tree.child)
                for expression in tree.expressions:
                    self.use([origins[i] for i in columns_used(expression)])
                if computes(tree):  # it fails at rows that a condition above would keep away
                    return Project(child, tree.expressions, tree.schema), [None] * len(tree.schema)
                copied = [
                    origins[e.position] if isinstance(e, Col) else None for e in tree.expressions
                ]
                return Project(child, tree.expressions, tree.schema), copied
            case Join():
                return self.join(tree)
            case _:
                return self.other(tree)

    def join(self, tree: Join) -> tuple[Tree, list[Origin]]:
        left, left_origins = self.tree(tree.left)
        right, right_origins = self.tree(tree.right)
        origins = left_origins + right_origins
        for i, j in tree.on:
            self.link(left_origins[i], right_origins[j])
        if tree.condition is not None:
            self.condition(tree.condition, origins)
        return Join(left, right, tree.on, tree.condition), origins

    def other(self, tree: Tree) -> tuple[Tree, list[Origin]]:
        """An operator that what stands above does not pass through."""
        unknown: list[Origin] = [None] * len(tree.schema)
        return tree.over(*map(self.whole, tree.children)), unknown

    def whole(self, tree: Tree) -> Tree:
        renamed, origins = self.tree(tree)
        self.use(origins)
        return renamed

    def use(self, origins: list[Origin]) -> None:
        for origin in origins:
            if origin is not None:
                self.inputs[origin[0]].used.add(origin[1])

    def link(self, one: Origin, other: Origin) -> None:
        self.use([one, other])
        if one is not None and other is not None and one[0] != other[0]:
            self.links.append(Link(one, other))

    def condition(self, condition: Scalar, origins: list[Origin]) -> None:
        for part in conjuncts(condition):
            read = {position: origins[position] for position in columns_used(part)}
            self.use(list(read.values()))
            match part:
                case Call(function="=", args=(Col() as a, Col() as b)):
                    self.link(origins[a.position], origins[b.position])
            found = {o[0] for o in read.values() if o is not None}
            if len(found) == 1 and None not in read.values():
                at = {position: o[1] for position, o in read.items() if o is not None}
                self.inputs[found.pop()].filters.append(renumbered(part, at))


def conjuncts(condition: Scalar) -> Iterator[Scalar]:
    """What must hold all together."""
    if isinstance(condition, Call) and condition.function == "and":
        for arg in condition.args:
            yield from conjuncts(arg)
    else:
        yield condition
