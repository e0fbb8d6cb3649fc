"""Project-select-join views as the papers write them: pi(sigma(r1 x ... x rn)) (strobe-family 3).

`psj_of` brings a tree of projections, selections and inner joins into one normal form: the leaves in
order (a self-join has a relation twice, at two *places*), what must be equal, what else must hold, and
the outputs. Every query of the view managers that ask the sources is then a product of some known
places with some asked ones, and `joined` and `finished` make the trees for it. A *partial* over a set
of places has the leaves' columns, places ascending.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from streaming.algebra.delta import is_leaf, leaf_relation
from streaming.algebra.tree import Join, Project, Scan, Select, Tree
from streaming.errors import FrescoError
from streaming.scalars.expression import Call, Col, Scalar, Schema, columns_used
from streaming.scalars.failure import fails
from streaming.scalars.limits import written_out

Places = tuple[int, ...]
"""Places of leaves, ascending."""
LEFT = "@left"
"""Scan name of the known side of a join."""
RIGHT = "@right"
"""Scan name of the other side when it is known too."""


@dataclass(frozen=True)
class Psj:
    """A view in normal form; positions are those of the product of all leaves.

    Attributes:
        leaves: one tree for each place: a scan with what is pushed down to it.
        starts: the position of each leaf's first column.
        on: pairs of positions that must be equal.
        conditions: what else must hold.
        late: what must hold of a row of all leaves and can fail; tested last (`failure`).
        outputs: the view's columns.
        schema: of the outputs.
    """

    leaves: tuple[Tree, ...]
    starts: tuple[int, ...]
    on: tuple[tuple[int, int], ...]
    conditions: tuple[Scalar, ...]
    outputs: tuple[Scalar, ...]
    schema: Schema
    late: tuple[Scalar, ...] = ()

    @cached_property
    def places(self) -> Places:
        return tuple(range(len(self.leaves)))

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """The relation at each place."""
        return tuple(leaf_relation(leaf) for leaf in self.leaves)

    def places_of(self, relation: str) -> Places:
        """Where a relation stands; more than one place in a self-join."""
        return tuple(p for p, name in enumerate(self.relations) if name == relation)

    def place_at(self, position: int) -> int:
        """The leaf that a position of the product belongs to."""
        return max(p for p, start in enumerate(self.starts) if start <= position)

    @cached_property
    def _hash(self) -> int:
        return hash((self.leaves, self.outputs))

    def __hash__(self) -> int:
        return self._hash


def source_of(relation: str) -> str:
    """The source in a relation's name: "north" in "north.entry"."""
    return relation.split(".", 1)[0]


@lru_cache(maxsize=1024)
def psj_of(tree: Tree) -> Psj:
    """The normal form of a project-select-join view.

    Raises:
        FrescoError: VIEW_NOT_PSJ, an aggregate or a union is in it; SQL_TOO_LARGE, an expression
            of many parts is used often.
    """
    leaves, on, conditions, outputs = _flat(tree)
    leaves = list(leaves)
    starts, at = [], 0
    for leaf in leaves:
        starts.append(at)
        at += len(leaf.schema)
    psj = Psj(tuple(leaves), tuple(starts), (), (), tuple(outputs), tree.schema)
    apart: list[Scalar] = []
    late = [condition for condition in conditions if len(leaves) > 1 and fails(condition)]
    for condition in conditions:
        if condition in late:
            continue
        places = {psj.place_at(position) for position in columns_used(condition)}
        if len(places) <= 1:
            place = next(iter(places), 0)
            leaves[place] = Select(leaves[place], _moved(condition, -starts[place]))
        else:
            apart.append(condition)
    return replace(
        psj, leaves=tuple(leaves), on=tuple(on), conditions=tuple(apart), late=tuple(late)
    )


def _flat(
    tree: Tree,
) -> tuple[list[Tree], list[tuple[int, int]], list[Scalar], list[Scalar]]:
    """Leaves, equal positions, conditions and outputs of a tree, over the product of its leaves."""
    if is_leaf(tree):
        return [tree], [], [], [Col(i, c.type) for i, c in enumerate(tree.schema)]
    match tree:
        case Project():
            leaves, on, conditions, outputs = _flat(tree.child)
            placed = written_out([_placed(e, outputs) for e in tree.expressions])
            return leaves, on, conditions, placed
        case Select():
            leaves, on, conditions, outputs = _flat(tree.child)
            (condition,) = written_out([_placed(tree.condition, outputs)])
            return leaves, on, [*conditions, *_conjuncts(condition)], outputs
        case Join():
            leaves, on, conditions, outputs = _flat(tree.left)
            width = sum(len(leaf.schema) for leaf in leaves)
            more = _flat(tree.right)
            leaves = leaves + more[0]
            on = on + [(a + width, b + width) for a, b in more[1]]
            conditions = conditions + [_moved(c, width) for c in more[2]]
            right = [_moved(output, width) for output in more[3]]
            for i, j in tree.on:
                a, b = outputs[i], right[j]
                if isinstance(a, Col) and isinstance(b, Col):
                    on.append((a.position, b.position))
                else:
                    conditions.append(Call("=", (a, b), "boolean"))
            both = outputs + right
            if tree.condition is not None:
                (condition,) = written_out([_placed(tree.condition, both)])
                conditions += _conjuncts(condition)
            return leaves, on, conditions, both
    raise FrescoError(
        "VIEW_NOT_PSJ",
        f"a view that asks its sources is made of select, project and inner join; {type(tree).__name__}"
        " is not among them",
        todo="use `USING replica` for this view",
    )


def _conjuncts(condition: Scalar) -> list[Scalar]:
    if isinstance(condition, Call) and condition.function == "and":
        return [part for arg in condition.args for part in _conjuncts(arg)]
    return [condition]


def _placed(scalar: Scalar, outputs: list[Scalar]) -> Scalar:
    """The scalar with each column replaced by what stands for it."""
    match scalar:
        case Col():
            return outputs[scalar.position]
        case Call():
            return Call(
                scalar.function, tuple(_placed(a, outputs) for a in scalar.args), scalar.type
            )
        case _:
            return scalar


def _moved(scalar: Scalar, by: int) -> Scalar:
    match scalar:
        case Col():
            return Col(scalar.position + by, scalar.type)
        case Call():
            return Call(scalar.function, tuple(_moved(a, by) for a in scalar.args), scalar.type)
        case _:
            return scalar


@lru_cache(maxsize=4096)
def partial_schema(psj: Psj, places: Places) -> Schema:
    """The columns of a partial over these places."""
    return tuple([column for place in places for column in psj.leaves[place].schema])


def positions(psj: Psj, places: Places) -> dict[int, int]:
    """Position in the product -> position in a partial over these places."""
    found: dict[int, int] = {}
    for place in places:
        start = psj.starts[place]
        for i in range(len(psj.leaves[place].schema)):
            found[start + i] = len(found)
    return found


@lru_cache(maxsize=4096)
def joined(psj: Psj, left: Places, right: Places, base: bool) -> Tree:
    """The tree that joins two partials into the one over both; places stay ascending.

    Args:
        left: places of `Scan(LEFT)`.
        right: the other places, one or more.
        base: whether the right side is the relation itself (then one place) or `Scan(RIGHT)`.
    """
    both = tuple(sorted(left + right))
    left_at, right_at = positions(psj, left), positions(psj, right)
    on = []
    for a, b in psj.on:
        if a in left_at and b in right_at:
            on.append((left_at[a], right_at[b]))
        elif b in left_at and a in right_at:
            on.append((left_at[b], right_at[a]))
    width = len(left_at)
    at = {**left_at, **{p: i + width for p, i in right_at.items()}}
    crossing = [
        renumbered(condition, at)
        for condition in psj.conditions
        if (used := columns_used(condition)) <= at.keys()
        and not used <= left_at.keys()
        and not used <= right_at.keys()
    ]
    first = Scan(LEFT, partial_schema(psj, left))
    second: Tree = Scan(RIGHT, partial_schema(psj, right))
    if base:
        (place,) = right
        second = psj.leaves[place]
    tree: Tree = Join(first, second, tuple(on), _all(crossing))
    order = positions(psj, both)
    schema = partial_schema(psj, both)
    columns = tuple(Col(at[p], schema[i].type) for p, i in order.items())
    if [c.position for c in columns] == list(range(len(columns))):
        return tree
    return Project(tree, columns, schema)


@lru_cache(maxsize=1024)
def finished(psj: Psj) -> Tree:
    """The view's outputs over `Scan(LEFT)`, a partial over all places."""
    rows: Tree = Scan(LEFT, partial_schema(psj, psj.places))
    late = _all(list(psj.late))
    return Project(rows if late is None else Select(rows, late), psj.outputs, psj.schema)


@lru_cache(maxsize=1024)
def leaf_named(psj: Psj, place: int, name: str) -> Tree:
    """The leaf at a place, over a scan of another name with the relation's columns."""

    def renamed(tree: Tree) -> Tree:
        if isinstance(tree, Scan):
            return Scan(name, tree.schema)
        return tree.over(*map(renamed, tree.children))

    return renamed(psj.leaves[place])


def renumbered(scalar: Scalar, at: dict[int, int]) -> Scalar:
    """The scalar with each column at its new position."""
    match scalar:
        case Col():
            return Col(at[scalar.position], scalar.type)
        case Call():
            return Call(scalar.function, tuple(renumbered(a, at) for a in scalar.args), scalar.type)
        case _:
            return scalar


def _all(conditions: list[Scalar]) -> Scalar | None:
    if not conditions:
        return None
    tree = conditions[0]
    for condition in conditions[1:]:
        tree = Call("and", (tree, condition), "boolean")
    return tree
