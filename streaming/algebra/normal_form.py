"""The normal form of a view's tree: work as far down as it goes, nothing carried that is not
needed.

Four rewritings, each of which keeps the bag a tree stands for, and which rows fail (`failure`):

* `lifted`: what a subquery computes and can fail is computed above the joins that it stands under.
* `pushed`: selections sink to the relations; equalities between the two sides of a join become its
  `on`; comma joins are put in an order in which each relation joins what is there already.
  A condition that can fail stays above joins, groupings and EXCEPT ALL.
* `pruned`: only needed columns leave a relation; projections over projections become one, unless
  an expression of many parts would be copied: a chain that uses each column four times would grow
  as 4^n (`limits`).
* The shape that relevance and replica state rely on: every Scan stands under
  `Project(Select(Scan))` or
  `Project(Scan)`, where the Select has all conditions on that relation alone and the Project plain
  columns (Col only, in the relation's order, at least one).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    PlanNode,
    Project,
    Scan,
    Select,
    Tree,
    Union,
    computes,
)
from streaming.errors import FrescoError
from streaming.scalars.expression import Call, Col, Scalar, Schema, columns_used
from streaming.scalars.failure import fails
from streaming.scalars.limits import (
    DEPTH,
    GROUPINGS,
    TREE_WEIGHT,
    mergeable,
    rounded,
    too_deep,
)
from streaming.scalars.substitution import conjunction, conjuncts, moved, substituted


def normal(tree: Tree) -> Tree:
    """The normal form; same bag, same schema.

    Raises:
        FrescoError: SQL_TOO_LARGE, SQL_TOO_DEEP.
    """
    return checked(_normal(checked(tree)))


def _normal(tree: Tree) -> Tree:
    low = pushed(lifted(pushed(tree, ())), ())
    narrow, places = pruned(low, frozenset(range(len(tree.schema))))
    arranged = _arranged(narrow, places, range(len(tree.schema)), tree.schema)
    if arranged.schema == tree.schema:
        return arranged
    columns = tuple(Col(i, column.type) for i, column in enumerate(tree.schema))
    return Project(arranged, columns, tree.schema)


# Failing projections up ---------------------------------------------------------------------------


def lifted(tree: Tree) -> Tree:
    """The tree with projections that can fail above the joins that do not join on such a column."""
    match tree:
        case Join():
            return _lifted(replace(tree, left=lifted(tree.left), right=lifted(tree.right)))
        case _:
            return tree.over(*map(lifted, tree.children))


def _lifted(tree: Join) -> Tree:
    left, lefts = _opened(tree.left, {i for i, _ in tree.on})
    right, rights = _opened(tree.right, {j for _, j in tree.on})
    if left is tree.left and right is tree.right:
        return tree
    width = len(left.schema)
    shifted = {i: width + i for i in range(len(right.schema))}
    values = [*lefts, *(moved(e, shifted) for e in rights)]
    given = conjuncts(tree.condition)
    sunk = [substituted(c, values) for c in given]
    if not mergeable(sunk, [*given, *values]):
        return tree
    pairs = [(values[i], values[len(lefts) + j]) for i, j in tree.on]
    parts = [Call("=", pair, "boolean") for pair in pairs]
    return Project(Join(left, right, (), conjunction([*parts, *sunk])), tuple(values), tree.schema)


def _opened(tree: Tree, on: set[int]) -> tuple[Tree, Sequence[Scalar]]:
    """A side of a join without a projection that can fail, and its columns over what is left."""
    if (
        isinstance(tree, Project)
        and computes(tree)
        and not any(fails(tree.expressions[i]) for i in on)
    ):
        return tree.child, tree.expressions
    return tree, [Col(i, column.type) for i, column in enumerate(tree.schema)]


# Selections down ----------------------------------------------------------------------------------


def pushed(tree: Tree, conditions: Sequence[Scalar]) -> Tree:
    """The tree under a selection by `conditions` (over its output), each as far down as it goes."""
    match tree:
        case Scan():
            return _selected(tree, conditions)
        case Select():
            return pushed(tree.child, [*conjuncts(tree.condition), *conditions])
        case Project():
            below, above = _sinking(conditions, tree.expressions)
            return _selected(replace(tree, child=pushed(tree.child, below)), above)
        case Join():
            return _joined(tree, conditions)
        case Union():
            if not mergeable([*conditions] * len(tree.children), conditions):
                return _selected(Union(tuple(pushed(c, ()) for c in tree.children)), conditions)
            return Union(tuple(pushed(child, conditions) for child in tree.children))
        case Aggregate():
            keys = [Col(p, tree.child.schema[p].type) for p in tree.keys]
            own = set(range(len(keys)))
            grouped = [c for c in conditions if keys and columns_used(c) <= own and not fails(c)]
            rest = [c for c in conditions if c not in grouped]
            child = pushed(tree.child, [substituted(c, keys) for c in grouped])
            return _selected(replace(tree, child=child), rest)
        case Distinct():
            return Distinct(pushed(tree.child, conditions))
        case Monus():
            safe = [c for c in conditions if not fails(c)]
            both = Monus(pushed(tree.left, safe), pushed(tree.right, safe))
            return _selected(both, [c for c in conditions if fails(c)])
        case PlanNode():
            raise TypeError("a plan, not a view")


def _sinking(
    conditions: Sequence[Scalar], expressions: tuple[Scalar, ...]
) -> tuple[list[Scalar], list[Scalar]]:
    """Conditions over a projection's input; and those over its output that would grow by that."""
    below, above = [], []
    for condition in conditions:
        sunk = substituted(condition, expressions)
        used = [expressions[p] for p in columns_used(condition)]
        if mergeable([sunk], [condition, *used]):
            below.append(sunk)
        else:
            above.append(condition)
    return below, above


def _selected(tree: Tree, conditions: Sequence[Scalar]) -> Tree:
    condition = conjunction(dict.fromkeys(conditions))
    return tree if condition is None else Select(tree, condition)


def _joined(tree: Join, conditions: Sequence[Scalar]) -> Tree:
    """A chain of joins, left-deep, each relation joined where an equality reaches it."""
    leaves, parts = _leaves(tree, 0)
    parts = list(dict.fromkeys([*parts, *conditions]))
    late = [part for part in parts if fails(part)]
    parts = [part for part in parts if part not in late]
    width = len(tree.schema)
    owner = [i for i, (leaf, _) in enumerate(leaves) for _ in leaf.schema]
    alone: list[list[Scalar]] = [[] for _ in leaves]
    shared = []
    for part in parts:
        owners = {owner[c] for c in columns_used(part)}
        if len(owners) == 1:
            alone[owners.pop()].append(part)
        else:
            shared.append(part)
    trees = []
    for (leaf, start), own in zip(leaves, alone, strict=True):
        places = {start + i: i for i in range(len(leaf.schema))}
        trees.append(pushed(leaf, [moved(part, places) for part in own]))
    order = _order(len(leaves), [{owner[c] for c in columns_used(p)} for p in shared], shared)
    joined, places = trees[order[0]], _offset(leaves[order[0]], 0)
    for index in order[1:]:
        here = {**places, **_offset(leaves[index], len(joined.schema))}
        ready = [p for p in shared if columns_used(p) <= here.keys()]
        shared = [p for p in shared if p not in ready]
        joined = _join(joined, trees[index], [moved(p, here) for p in ready])
        places = here
    joined = _selected(joined, [moved(part, places) for part in late])
    if order == list(range(len(leaves))):
        return joined
    columns = tuple(Col(places[p], tree.schema[p].type) for p in range(width))
    return Project(joined, columns, tree.schema)


def _leaves(tree: Tree, start: int) -> tuple[list[tuple[Tree, int]], list[Scalar]]:
    """The relations of a chain of joins with their first positions, and all its conditions."""
    if isinstance(tree, Select):
        leaves, parts = _leaves(tree.child, start)
        if len(leaves) > 1:
            shifted = {i: start + i for i in range(len(tree.schema))}
            return leaves, parts + [moved(c, shifted) for c in conjuncts(tree.condition)]
    if not isinstance(tree, Join):
        return [(tree, start)], []
    middle = start + len(tree.left.schema)
    left, right = _leaves(tree.left, start), _leaves(tree.right, middle)
    shifted = {i: start + i for i in range(len(tree.schema))}
    own = [moved(c, shifted) for c in conjuncts(tree.condition)]
    for i, j in tree.on:
        sides = (Col(start + i, tree.schema[i].type), Col(middle + j, tree.right.schema[j].type))
        own.append(Call("=", sides, "boolean"))
    return left[0] + right[0], left[1] + right[1] + own


def _offset(leaf: tuple[Tree, int], start: int) -> dict[int, int]:
    tree, old = leaf
    return {old + i: start + i for i in range(len(tree.schema))}


def _order(count: int, owners: list[set[int]], shared: list[Scalar]) -> list[int]:
    """The FROM order, but what no equality connects to what is there waits for what one does."""
    links = [o for o, part in zip(owners, shared, strict=True) if _equality(part) and len(o) == 2]
    order, waiting = [0], list(range(1, count))
    while waiting:
        ready = (i for i in waiting if any(i in o and o - {i} <= set(order) for o in links))
        chosen = next(ready, waiting[0])
        order.append(chosen)
        waiting.remove(chosen)
    return order


def _equality(part: Scalar) -> bool:
    return (
        isinstance(part, Call)
        and part.function == "="
        and all(isinstance(arg, Col) for arg in part.args)
    )


def _join(left: Tree, right: Tree, parts: list[Scalar]) -> Join:
    width, on, rest = len(left.schema), [], []
    for part in parts:
        pair = sorted(columns_used(part))
        if _equality(part) and len(pair) == 2 and pair[0] < width <= pair[1]:
            on.append((pair[0], pair[1] - width))
        else:
            rest.append(part)
    return Join(left, right, tuple(on), conjunction(rest))


# Columns ------------------------------------------------------------------------------------------


def pruned(tree: Tree, needed: frozenset[int]) -> tuple[Tree, dict[int, int]]:
    """A tree with at least the needed columns, and where each of these is now."""
    match tree:
        case Scan() | Select(child=Scan()):
            kept = sorted(needed) or [0]
            columns = tuple(Col(p, tree.schema[p].type) for p in kept)
            schema = tuple(tree.schema[p] for p in kept)
            return Project(tree, columns, schema), {p: i for i, p in enumerate(kept)}
        case Select():
            child, places = pruned(tree.child, needed | columns_used(tree.condition))
            return Select(child, moved(tree.condition, places)), places
        case Project():
            return _pruned_project(tree, needed)
        case Join():
            return _pruned_join(tree, needed)
        case Union():
            kept = sorted(needed) or [0]
            schema = tuple(tree.schema[p] for p in kept)
            parts = []
            for child in tree.children:
                narrow, places = pruned(child, frozenset(kept))
                parts.append(_arranged(narrow, places, kept, schema))
            return Union(tuple(parts)), {p: i for i, p in enumerate(kept)}
        case Aggregate():
            return _pruned_aggregate(tree, needed)
        case Distinct() | Monus():
            sides = (_whole(side, tree.schema) for side in tree.children)
            return tree.over(*sides), _identity(tree.schema)
        case PlanNode():
            raise TypeError("a plan, not a view")


def _pruned_project(tree: Project, needed: frozenset[int]) -> tuple[Tree, dict[int, int]]:
    kept = sorted(needed) or [0]
    expressions = [tree.expressions[p] for p in kept]
    used = frozenset[int]().union(*(columns_used(e) for e in expressions))
    child, places = pruned(tree.child, used)
    outputs = tuple(moved(e, places) for e in expressions)
    schema = tuple(tree.schema[p] for p in kept)
    return _projected(child, outputs, schema), {p: i for i, p in enumerate(kept)}


def _pruned_join(tree: Join, needed: frozenset[int]) -> tuple[Tree, dict[int, int]]:
    width = len(tree.left.schema)
    used = needed | (columns_used(tree.condition) if tree.condition is not None else frozenset())
    left_used = {p for p in used if p < width} | {i for i, _ in tree.on}
    right_used = {p - width for p in used if p >= width} | {j for _, j in tree.on}
    left, left_places = pruned(tree.left, frozenset(left_used))
    right, right_places = pruned(tree.right, frozenset(right_used))
    offset = len(left.schema)
    places = {**left_places, **{width + p: offset + q for p, q in right_places.items()}}
    on = tuple((left_places[i], right_places[j]) for i, j in tree.on)
    condition = None if tree.condition is None else moved(tree.condition, places)
    return Join(left, right, on, condition), places


def _pruned_aggregate(tree: Aggregate, needed: frozenset[int]) -> tuple[Tree, dict[int, int]]:
    keys = len(tree.keys)
    kept = [i for i in range(len(tree.aggregations)) if keys + i in needed]
    if not keys and not kept:
        kept = [0]
    chosen = [tree.aggregations[i] for i in kept]
    used = {*tree.keys, *(a.argument for a in chosen if a.argument is not None)}
    child, places = pruned(tree.child, frozenset(used))
    aggregations = tuple(
        a if a.argument is None else replace(a, argument=places[a.argument]) for a in chosen
    )
    outputs = [*range(keys), *(keys + i for i in kept)]
    schema = tuple(tree.schema[p] for p in outputs)
    narrow = Aggregate(child, tuple(places[k] for k in tree.keys), aggregations, schema)
    return narrow, {p: i for i, p in enumerate(outputs)}


def _whole(tree: Tree, schema: Schema) -> Tree:
    """All columns in their order: which rows are equal depends on each of them."""
    narrow, places = pruned(tree, frozenset(range(len(schema))))
    return _arranged(narrow, places, range(len(schema)), schema)


def _identity(schema: Schema) -> dict[int, int]:
    return {position: position for position in range(len(schema))}


def _arranged(tree: Tree, places: dict[int, int], kept: Iterable[int], schema: Schema) -> Tree:
    """The kept columns in their order, under the schema's names."""
    columns = tuple(Col(places[p], column.type) for p, column in zip(kept, schema, strict=True))
    return _projected(tree, columns, schema)


def _projected(tree: Tree, expressions: tuple[Scalar, ...], schema: Schema) -> Tree:
    """A Project, made one with a Project below unless that is a relation's or much is copied."""
    identity = tuple(Col(i, column.type) for i, column in enumerate(tree.schema))
    if expressions == identity:
        return replace(tree, schema=schema) if isinstance(tree, Project | Aggregate) else tree
    if isinstance(tree, Project) and not _is_scan(tree.child):
        merged = tuple(substituted(e, tree.expressions) for e in expressions)
        if mergeable(merged, (*expressions, *tree.expressions)):
            return Project(tree.child, merged, schema)
    return Project(tree, expressions, schema)


def _is_scan(tree: Tree) -> bool:
    return isinstance(tree, Scan) or (isinstance(tree, Select) and isinstance(tree.child, Scan))


def checked(tree: Tree) -> Tree:
    """The tree, if what is done with it ends.

    Raises:
        FrescoError: SQL_TOO_LARGE, SQL_TOO_DEEP.
    """
    if tree.depth > DEPTH:
        todo = "use fewer queries inside each other, or a view of its own for the inner ones"
        raise too_deep(f"more than {DEPTH} queries inside each other", todo)
    if tree.weight > TREE_WEIGHT:
        what = f"the view has {rounded(tree.weight)} parts when all it names is written out"
        todo = "make a view of its own of a query that is used several times, or use fewer columns"
        raise FrescoError("SQL_TOO_LARGE", f"{what}; {TREE_WEIGHT:,} are allowed", todo=todo)
    if _groupings(tree) > GROUPINGS:
        todo = "use a view of its own for the inner ones"
        raise too_deep(f"more than {GROUPINGS} GROUP BYs inside each other", todo)
    return tree


def _groupings(tree: Tree) -> int:
    return isinstance(tree, Aggregate) + max(map(_groupings, tree.children), default=0)
