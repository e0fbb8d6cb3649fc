"""The delta rules: how a view changes, at every number, when its relations do (DESIGN 4 and 5).

A rule maps a tree to a *plan*: again an expression, whose inputs are `Delta(R)` (the batch's signed
rows, each with its transaction's number) and `Before(R)` (the bag as it stood before the batch).
One plan does a whole batch; its result is separable at every number, which is what makes a complete
view manager as fast as a batched one:

* Select, Project and Union are linear: rows keep their numbers.
* Join is bilinear: dL x R_before + L_before x dR + dL x dR. Row l of dL stands in L from its number
  on, row r of dR from its own, so the pair stands from the larger of the two.
* Aggregate: the totals (count, count of non-NULLs, sum) of a group are linear in its rows, so the
  totals after number n are those before the batch plus what the batch adds up to n. Under each
  number at which the output row changes it goes out at -1 and in at +1.
* Distinct and Monus are not linear; how often a row occurs depends on that row's occurrences below
  alone, so the rows that the batch touches are counted anew at each number at which they changed.
* Sums of floating-point numbers are not linear (they round), so an affected group is computed anew
  from all its rows, in a fixed order, at each number at which it changes.

A *leaf* is one scan with the selection and the projection pushed down to it: what a view keeps of a
relation. Everything here is pure; evaluators give plans their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    Project,
    Scan,
    Select,
    Tree,
    Union,
    children,
    walk,
)
from streaming.scalars.expression import Col, Scalar, hashed_once


@dataclass(frozen=True)
class Delta:
    """The batch's signed rows of a leaf, with their numbers."""

    leaf: Tree


@dataclass(frozen=True)
class Before:
    """The bag of a leaf before the batch; no numbers."""

    leaf: Tree


@dataclass(frozen=True)
class Groups:
    """An aggregate's rows before the batch; no numbers."""

    aggregate: Aggregate


@hashed_once
@dataclass(frozen=True)
class Filter:
    child: Plan
    condition: Scalar


@hashed_once
@dataclass(frozen=True)
class Map:
    child: Plan
    expressions: tuple[Scalar, ...]


@hashed_once
@dataclass(frozen=True)
class Sum:
    """All rows of all parts."""

    parts: tuple[Plan, ...]


@hashed_once
@dataclass(frozen=True)
class Match:
    """Pairs of a left and a right row, their multiplicities multiplied.

    A pair's number is the larger of its rows' numbers, or the only one; no number if neither has
    one.
    """

    left: Plan
    right: Plan
    on: tuple[tuple[int, int], ...]
    condition: Scalar | None
    left_width: int
    right_width: int


@hashed_once
@dataclass(frozen=True)
class Changes:
    """The changes of an aggregate's rows under each number; `child` None: no changed input."""

    aggregate: Aggregate
    child: Plan | None


@hashed_once
@dataclass(frozen=True)
class Counts:
    """A Distinct's or a Monus's rows before the batch, from its sides' bags; no numbers."""

    tree: Distinct | Monus
    sides: tuple[Plan, ...]


@hashed_once
@dataclass(frozen=True)
class Recount:
    """The changes of a Distinct's or a Monus's rows under each number.

    Attributes:
        changes: by side, its changes, None for none.
        sides: by side, its bag before the batch; () when the batch begins the history.
    """

    tree: Distinct | Monus
    changes: tuple[Plan | None, ...]
    sides: tuple[Plan, ...]


Plan = Delta | Before | Groups | Filter | Map | Sum | Match | Changes | Counts | Recount


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
    return tuple(dict.fromkeys(leaf for child in children(tree) for leaf in leaves(child)))


def aggregates(tree: Tree) -> tuple[Aggregate, ...]:
    """The distinct aggregates, inner ones first."""
    if is_leaf(tree):
        return ()
    below = tuple(node for child in children(tree) for node in aggregates(child))
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
            for child in children(tree):
                _cluster(child, wanted, found)


@lru_cache(maxsize=1024)
def before(tree: Tree) -> Plan:
    """The tree's bag before the batch."""
    if is_leaf(tree):
        return Before(tree)
    match tree:
        case Select():
            return Filter(before(tree.child), tree.condition)
        case Project():
            return Map(before(tree.child), tree.expressions)
        case Union():
            return Sum(tuple(before(child) for child in tree.children))
        case Join():
            return _match(tree, before(tree.left), before(tree.right))
        case Aggregate():
            return Groups(tree)
        case Distinct() | Monus():
            return Counts(tree, tuple(before(side) for side in children(tree)))
        case Scan():
            return Before(tree)


@lru_cache(maxsize=1024)
def delta(tree: Tree, changed: frozenset[Tree], initial: bool = False) -> Plan | None:
    """The tree's signed rows with their numbers, or None when nothing can change.

    Args:
        tree: the view, or a part of it.
        changed: the leaves with rows in this batch.
        initial: the batch begins the history: an aggregate without keys then gets its one row, even
            over an empty input.
    """
    if is_leaf(tree):
        return Delta(tree) if tree in changed else None
    match tree:
        case Select():
            child = delta(tree.child, changed, initial)
            return None if child is None else Filter(child, tree.condition)
        case Project():
            child = delta(tree.child, changed, initial)
            return None if child is None else Map(child, tree.expressions)
        case Union():
            return _sum(delta(child, changed, initial) for child in tree.children)
        case Join():
            return _join(tree, changed, initial)
        case Aggregate():
            child = delta(tree.child, changed, initial)
            idle = child is None and not (initial and not tree.keys)
            return None if idle else Changes(tree, child)
        case Distinct() | Monus():
            changes = tuple(delta(side, changed, initial) for side in children(tree))
            olds = () if initial else tuple(before(side) for side in children(tree))
            return Recount(tree, changes, olds) if any(changes) else None
        case Scan():
            raise AssertionError("a scan is a leaf")


def _join(tree: Join, changed: frozenset[Tree], initial: bool) -> Plan | None:
    left = delta(tree.left, changed, initial)
    right = delta(tree.right, changed, initial)
    terms: list[Plan | None] = []
    if left is not None and not initial:
        terms += [_match(tree, left, part) for part in _parts(before(tree.right))]
    if right is not None and not initial:
        terms += [_match(tree, part, right) for part in _parts(before(tree.left))]
    if left is not None and right is not None:
        terms.append(_match(tree, left, right))
    return _sum(terms)


def _parts(plan: Plan) -> tuple[Plan, ...]:
    """A join distributes over a sum, so that each part meets the small side directly."""
    return plan.parts if isinstance(plan, Sum) else (plan,)


def _match(tree: Join, left: Plan, right: Plan) -> Match:
    widths = (len(tree.left.schema), len(tree.right.schema))
    return Match(left, right, tree.on, tree.condition, *widths)


def _sum(parts: object) -> Plan | None:
    present = tuple(part for part in parts if part is not None)  # type: ignore[attr-defined]
    if not present:
        return None
    return present[0] if len(present) == 1 else Sum(present)


def has_numbers(plan: Plan) -> bool:
    """Whether the plan's rows carry transaction numbers."""
    match plan:
        case Delta() | Changes() | Recount():
            return True
        case Before() | Groups() | Counts():
            return False
        case Filter() | Map():
            return has_numbers(plan.child)
        case Sum():
            return has_numbers(plan.parts[0])
        case Match():
            return has_numbers(plan.left) or has_numbers(plan.right)
