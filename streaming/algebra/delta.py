"""The delta rules: how a view changes, at every number, when its relations do (DESIGN 4 and 5).

A rule maps a tree to a *plan*: again a tree, whose leaves are `Delta(R)` (the batch's signed rows, each
with its transaction's number) and `Before(R)` (the bag as it stood before the batch). A tree over bags
alone is the tree's bag before the batch (`before`). One plan does a whole batch; its result is separable
at every number, which is what makes a complete view manager as fast as a batched one:

* Select, Project and Union are linear: rows keep their numbers.
* Join is bilinear: dL x R_before + L_before x dR + dL x dR. Row l of dL stands in L from its number
  on, row r of dR from its own, so the pair stands from the larger of the two.
* What is not linear is a function of its inputs' bags, so that its changes under a number are its rows
  after less its rows before (`Changes`). Only the groups or rows that the batch touches change: the
  totals of a group (count, count of non-NULLs, sum) are linear in its rows, so those after number n are
  those before the batch plus what the batch adds up to n; how often a row of Distinct or Monus occurs
  depends on that row's occurrences below alone. Sums of floating-point numbers are not linear (they
  round), so an affected group is computed anew from all its rows, in a fixed order.

A *leaf* is one scan with the selection and the projection pushed down to it: what a view keeps of a
relation. Everything here is pure; evaluators give plans their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from streaming.algebra.tree import (
    Aggregate,
    Before,
    Changes,
    Delta,
    Distinct,
    Join,
    Monus,
    Project,
    Scan,
    Select,
    Tree,
    Union,
    walk,
)
from streaming.scalars.expression import Col


def leaf_relation(leaf: Tree) -> str:
    """The relation that a leaf scans."""
    return next(node.relation for node in walk(leaf) if isinstance(node, Scan))


def is_leaf(tree: Tree) -> bool:
    """A scan with at most one selection and, above it, at most one projection."""
    if isinstance(tree, Project):
        tree = tree.child
    if isinstance(tree, Select):
        tree = tree.child
    return isinstance(tree, Scan)


def leaves(tree: Tree) -> tuple[Tree, ...]:
    """The distinct leaves, left to right; equal ones (self-joins) share their state."""
    if is_leaf(tree):
        return (tree,)
    return tuple(dict.fromkeys(leaf for child in tree.children for leaf in leaves(child)))


def aggregates(tree: Tree) -> tuple[Aggregate, ...]:
    """The distinct aggregates, inner ones first."""
    if is_leaf(tree):
        return ()
    below = tuple(node for child in tree.children for node in aggregates(child))
    here = (tree,) if isinstance(tree, Aggregate) else ()
    return tuple(dict.fromkeys(below + here))


def is_float(type_: str) -> bool:
    """Whether sums of this type round, so that they depend on the order."""
    return type_ in ("float", "double")


def sums_round(aggregate: Aggregate) -> bool:
    """Whether a group must be computed anew from its rows, in a fixed order."""
    types = [column.type for column in aggregate.child.schema]
    return any(
        a.function in ("sum", "avg") and a.argument is not None and is_float(types[a.argument])
        for a in aggregate.aggregations
    )


def clustering(tree: Tree) -> dict[Tree, tuple[int, ...]]:
    """For each leaf the columns its rows are best kept together by: joined on, else grouped on."""
    found: dict[Tree, tuple[int, ...]] = {}
    _cluster(tree, (), found)
    return found


def _cluster(tree: Tree, wanted: tuple[int, ...], found: dict[Tree, tuple[int, ...]]) -> None:
    if is_leaf(tree):
        found[tree] = found.get(tree) or wanted
        return
    match tree:
        case Join():
            width = len(tree.left.schema)
            here = tuple(p for p in wanted if p < width)
            _cluster(tree.left, tuple(a for a, _ in tree.on) or here, found)
            there = tuple(p - width for p in wanted if p >= width)
            _cluster(tree.right, tuple(b for _, b in tree.on) or there, found)
        case Project():
            below = [e.position for p in wanted if isinstance(e := tree.expressions[p], Col)]
            _cluster(tree.child, tuple(below), found)
        case Aggregate():
            _cluster(tree.child, tree.keys, found)
        case _:
            for child in tree.children:
                _cluster(child, wanted, found)


@lru_cache(maxsize=1024)
def before(tree: Tree) -> Tree:
    """The plan of the tree's bag before the batch."""
    return Before(tree) if is_leaf(tree) else tree.over(*map(before, tree.children))


@lru_cache(maxsize=1024)
def delta(tree: Tree, changed: frozenset[Tree], start: int | None = None) -> Tree | None:
    """The plan of the tree's signed rows with their numbers, or None when nothing can change.

    Args:
        tree: the view, or a part of it.
        changed: the leaves with rows in this batch.
        start: the history's first number when the batch begins it: an aggregate without keys then gets
            its one row, even over an empty input.
    """
    if is_leaf(tree):
        return Delta(tree) if tree in changed else None
    changes = tuple(delta(child, changed, start) for child in tree.children)
    match tree:
        case Select() | Project():
            return None if changes[0] is None else tree.over(changes[0])
        case Union():
            return _sum(changes)
        case Join():
            return _join(tree, changes[0], changes[1], start)
        case Aggregate() | Distinct() | Monus():
            appears = start is not None and isinstance(tree, Aggregate) and not tree.keys
            operator = before(tree)
            assert isinstance(operator, Aggregate | Distinct | Monus)
            return Changes(operator, changes, start) if any(changes) or appears else None
        case _:
            raise TypeError(f"no rule for {type(tree).__name__}")


def _join(tree: Join, left: Tree | None, right: Tree | None, start: int | None) -> Tree | None:
    terms: list[Tree] = []
    if left is not None and start is None:
        terms += [tree.over(left, part) for part in _parts(before(tree.right))]
    if right is not None and start is None:
        terms += [tree.over(part, right) for part in _parts(before(tree.left))]
    if left is not None and right is not None:
        terms.append(tree.over(left, right))
    return _sum(terms)


def _parts(plan: Tree) -> tuple[Tree, ...]:
    """A join distributes over a union, so that each part meets the small side directly."""
    return plan.children if isinstance(plan, Union) else (plan,)


def _sum(parts: Iterable[Tree | None]) -> Tree | None:
    present = tuple(part for part in parts if part is not None)
    if not present:
        return None
    return present[0] if len(present) == 1 else Union(present)
