"""Keys of views: output columns whose values no two rows of the view share, at any number.

Derived from the relations' primary keys. A select-project-join view keeps a key when its output has
the key columns of every relation, where these count as had: a column fixed by `column = constant`,
a column equal to one that is had (a join's `on`), and all of a relation whose key is equated with
columns that are had (a foreign key's target). An aggregate's key is its group key; without one it
is a single row, whose key is empty. A UNION ALL has a key only if a column of distinct constants
tells the branches apart. Without duplicates the whole row is a key where no other is known; what
monus leaves of its left side keeps that side's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    PlanNode,
    Project,
    Relation,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars.casts import injective
from streaming.scalars.expression import Call, Col, Lit, Scalar


@dataclass(frozen=True)
class _Facts:
    """What is known of a tree's rows.

    Attributes:
        key: positions that identify a row, None when nothing does.
        equal: for each position the smallest position that always has the same value.
        constants: positions that have one value in every row.
    """

    key: frozenset[int] | None
    equal: tuple[int, ...]
    constants: Mapping[int, object]


def derive_key(tree: Tree, relations: Mapping[str, Relation]) -> tuple[int, ...] | None:
    """A key of the tree's output: positions in order, () for at most one row, None for none known.

    Args:
        relations: the scanned relations with their primary keys; () there means none.
    """
    key = _facts(tree, relations).key
    return None if key is None else tuple(sorted(key))


def _facts(tree: Tree, relations: Mapping[str, Relation]) -> _Facts:
    match tree:
        case Scan():
            relation = relations.get(tree.relation)
            key = frozenset(relation.key) if relation and relation.key else None
            return _Facts(key, tuple(range(len(tree.schema))), {})
        case Select():
            return _selected(_facts(tree.child, relations), tree.condition)
        case Project():
            return _projected(_facts(tree.child, relations), tree.expressions)
        case Join():
            return _joined(tree, relations)
        case Union():
            return _united([_facts(child, relations) for child in tree.children])
        case Aggregate():
            child = _facts(tree.child, relations)
            keys = tuple(Col(k, tree.child.schema[k].type) for k in tree.keys)
            extra = tuple(Lit(None, a.type) for a in tree.aggregations)
            over = _projected(child, keys + extra)
            constants = {p: v for p, v in over.constants.items() if p < len(keys)}
            equal = tuple(e if i < len(keys) else i for i, e in enumerate(over.equal))
            return _Facts(_without(frozenset(range(len(keys))), equal, constants), equal, constants)
        case Distinct():
            facts = _facts(tree.child, relations)
            if facts.key is not None:
                return facts
            whole = frozenset(range(len(tree.schema)))
            key = _without(whole, facts.equal, facts.constants)
            return _Facts(key, facts.equal, facts.constants)
        case Monus():
            return _facts(tree.left, relations)
        case PlanNode():
            raise TypeError("a plan, not a view")


def _selected(facts: _Facts, condition: Scalar) -> _Facts:
    """Equalities with constants, and of columns, among the conjuncts."""
    if isinstance(condition, Call) and condition.function == "and":
        for part in condition.args:
            facts = _selected(facts, part)
        return facts
    if not (isinstance(condition, Call) and condition.function == "="):
        return facts
    left, right = condition.args
    if isinstance(left, Lit):
        left, right = right, left
    if isinstance(left, Col) and isinstance(right, Lit) and right.value is not None:
        constants = {**facts.constants, left.position: right.value}
        return _Facts(_without(facts.key, facts.equal, constants), facts.equal, constants)
    if isinstance(left, Col) and isinstance(right, Col):
        return _equated(facts, left.position, right.position)
    return facts


def _equated(facts: _Facts, one: int, other: int) -> _Facts:
    low, high = sorted((facts.equal[one], facts.equal[other]))
    equal = tuple(low if e == high else e for e in facts.equal)
    constants = {
        p: facts.constants[c]
        for c in facts.constants
        for p in range(len(equal))
        if equal[p] == equal[c]
    }
    return _Facts(_without(facts.key, equal, constants), equal, constants)


def _without(
    key: frozenset[int] | None, equal: tuple[int, ...], constants: Mapping[int, object]
) -> frozenset[int] | None:
    """The key without what is known anyway: constants, and the second of two equal columns."""
    if key is None:
        return None
    fixed = {equal[p] for p in constants}
    return frozenset(equal[p] for p in key if equal[p] not in fixed)


def _projected(facts: _Facts, expressions: tuple[Scalar, ...]) -> _Facts:
    kept: dict[int, int] = {}
    copies: dict[int, int] = {}
    equal: list[int] = []
    constants: dict[int, object] = {}
    for position, expression in enumerate(expressions):
        source = _source(expression)
        if source is not None:
            kept.setdefault(facts.equal[source], position)
        if isinstance(expression, Col):
            equal.append(copies.setdefault(facts.equal[expression.position], position))
            if expression.position in facts.constants:
                constants[position] = facts.constants[expression.position]
        else:
            equal.append(position)
        if isinstance(expression, Lit) and expression.value is not None:
            constants[position] = expression.value
    key = None
    if facts.key is not None and all(facts.equal[p] in kept for p in facts.key):
        key = frozenset(kept[facts.equal[p]] for p in facts.key)
    return _Facts(key, tuple(equal), constants)


def _source(expression: Scalar) -> int | None:
    """The column an expression is a copy of, or a cast that keeps different values different."""
    if isinstance(expression, Col):
        return expression.position
    if isinstance(expression, Call) and expression.function == "cast":
        (argument,) = expression.args
        if isinstance(argument, Col) and injective(argument.type, expression.type):
            return argument.position
    return None


def _joined(tree: Join, relations: Mapping[str, Relation]) -> _Facts:
    left, right = _facts(tree.left, relations), _facts(tree.right, relations)
    width = len(tree.left.schema)
    equal = left.equal + tuple(width + e for e in right.equal)
    constants = {**left.constants, **{width + p: v for p, v in right.constants.items()}}
    pairs = [(i, width + j) for i, j in tree.on]
    right_key = None if right.key is None else frozenset(width + p for p in right.key)
    facts = _Facts(None, equal, constants)
    for one, other in pairs:
        facts = _equated(facts, one, other)
    key = None
    if left.key is not None and right_key is not None:
        key = left.key | right_key
        if _determined(right_key, {j for _, j in pairs}, constants, equal):
            key = left.key
        elif _determined(left.key, {i for i, _ in pairs}, constants, equal):
            key = right_key
    key = _without(key, facts.equal, facts.constants)
    facts = _Facts(key, facts.equal, facts.constants)
    return facts if tree.condition is None else _selected(facts, tree.condition)


def _determined(
    key: frozenset[int], joined: set[int], constants: Mapping[int, object], equal: tuple[int, ...]
) -> bool:
    """Whether the other side's row fixes this side's key, hence its row."""
    fixed = {equal[p] for p in joined} | {equal[p] for p in constants}
    return all(equal[p] in fixed for p in key)


def _united(branches: list[_Facts]) -> _Facts:
    width = len(branches[0].equal)
    key = None
    if all(branch.key is not None for branch in branches):
        for position in range(width):
            values = [branch.constants.get(position) for branch in branches]
            if None not in values and len(set(values)) == len(values):
                parts = [branch.key for branch in branches if branch.key is not None]
                key = frozenset((position,)).union(*parts)
                break
    return _Facts(key, tuple(range(width)), {})
