"""What trees mean, over small relations in plain Python: written to be obviously right.

A bag maps a row (a tuple of values) to how often it occurs; a numbered bag maps (number, row) to a
multiplicity, where the number is that of the transaction that a row belongs to and 0 stands for "part of
a state". Both may be signed. Select, project and union are linear and keep numbers; a pair of a join
carries the larger one, since it stands from the later of its rows on (DESIGN 4); an aggregate, duplicate
elimination and monus are defined over proper bags only, and under numbers by what they change by
(`Changes`), which is literally computed anew at each number at which an input changes.

It is the oracle against which the DuckDB and Spark evaluators are tested, for views and for delta plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
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
    computes,
    walk,
)
from streaming.scalars import exact
from streaming.scalars.meanings import evaluate as value_of
from streaming.scalars.meanings import grouped, normal, passing
from streaming.scalars.types import FLOATS, INTEGRALS, sum_type

Row = tuple[Any, ...]
Bag = dict[Row, int]
"""row -> multiplicity, never 0"""

Numbered = dict[tuple[int, Row], int]
"""(number, row) -> multiplicity, never 0."""

Leaf = Callable[[Scan | Delta | Before], Numbered]
"""The rows of a tree's leaves."""


def bag(rows: Iterable[Row | tuple[Row, int]], *, counted: bool = False) -> Bag:
    """A bag of rows, or of (row, multiplicity) pairs when `counted`; what cancels is left out."""
    result: Bag = {}
    for item in rows:
        row, count = item if counted else (item, 1)
        _add(result, tuple(normal(value) for value in row), count)
    return result


def added(*bags: Bag) -> Bag:
    """The sum of bags."""
    result: Bag = {}
    for each in bags:
        for row, count in each.items():
            _add(result, row, count)
    return result


def negated(rows: Bag) -> Bag:
    """The bag with every multiplicity's sign changed."""
    return {row: -count for row, count in rows.items()}


def numbered(rows: Bag, number: int = 0) -> Numbered:
    """A bag's rows under one number."""
    return {(number, row): count for row, count in rows.items()}


def flat(value: Numbered) -> Bag:
    """The rows without their numbers."""
    result: Bag = {}
    for (_, row), count in value.items():
        _add(result, row, count)
    return result


def _add(rows: dict[Any, int], key: object, count: int) -> None:
    if total := rows.get(key, 0) + count:
        rows[key] = total
    else:
        rows.pop(key, None)


# Meanings -----------------------------------------------------------------------------------------


def evaluate(tree: Tree, relations: Mapping[str, Bag]) -> Bag:
    """The bag that a view's tree stands for.

    Args:
        relations: every scanned relation's bag, rows with all its columns in the schema's order.

    Raises:
        FrescoError: VALUE_OVERFLOW, VALUE_DIVISION_BY_ZERO, VALUE_LETTERCASE.
        ValueError: an operator that needs a proper bag over one with a negative multiplicity.
        KeyError: a scanned relation is missing.
    """
    states = {name: numbered(relations[name]) for name in tree.scanned}
    return flat(interpret(tree, lambda leaf: states[leaf.relation]))  # type: ignore[union-attr]


def changes(plan: Tree, deltas: Mapping[Tree, Numbered], befores: Mapping[Tree, Bag]) -> Numbered:
    """The signed rows of a view's delta plan, with their numbers.

    Args:
        deltas: the batch's signed rows, by leaf.
        befores: every leaf's bag before the batch.

    Raises:
        KeyError: a leaf without a bag, or a changed one without a delta.
    """

    def leaf(node: Scan | Delta | Before) -> Numbered:
        if isinstance(node, Delta):
            return deltas[node.leaf]
        assert isinstance(node, Before)
        return numbered(befores[node.leaf])

    return interpret(plan, leaf)


def interpret(tree: Tree, leaf: Leaf) -> Numbered:
    """The numbered bag that a tree stands for.

    Raises:
        FrescoError, ValueError: as `evaluate`; ValueError too where an operator that is not linear is
            over rows with numbers.
    """
    match tree:
        case Scan() | Delta() | Before():
            return leaf(tree)
        case Select():
            rows, holds = interpret(tree.child, leaf), passing(tree.condition)
            return {k: n for k, n in rows.items() if holds(k[1])}
        case Project():
            return _projected(tree, interpret(tree.child, leaf))
        case Join():
            left = interpret(tree.left, leaf)
            spared = not left and not any(computes(node) for node in walk(tree.right))
            return {} if spared else _joined(tree, left, interpret(tree.right, leaf))
        case Union():
            return plus(*(interpret(child, leaf) for child in tree.children))
        case Aggregate() | Distinct() | Monus():
            sides = [_state(tree, interpret(child, leaf)) for child in tree.children]
            return numbered(of_bags(tree, sides))
        case Changes():
            return _changes(tree, leaf)


def of_bags(tree: Aggregate | Distinct | Monus, sides: Sequence[Bag]) -> Bag:
    """What an operator that is not linear makes of its inputs' bags."""
    match tree:
        case Aggregate():
            return aggregated(tree, *sides)
        case Distinct():
            return distinct(*sides)
        case Monus():
            return monus(*sides)


def plus(*values: Numbered) -> Numbered:
    """The sum; at least one value."""
    result = dict(values[0])
    for value in values[1:]:
        if not result:
            result = dict(value)
            continue
        for key, count in value.items():
            if total := result.get(key, 0) + count:
                result[key] = total
            else:
                del result[key]
    return result


def _state(tree: Tree, rows: Numbered) -> Bag:
    if any([number for number, _ in rows]):
        raise ValueError(f"{type(tree).__name__} over rows with numbers")
    return {row: count for (_, row), count in rows.items()}


def _projected(tree: Project, rows: Numbered) -> Numbered:
    result: Numbered = {}
    copied = tree.copied
    for (number, row), count in rows.items():
        if copied is not None:
            key = (number, tuple([row[i] for i in copied]))
        else:
            key = (number, tuple([value_of(e, row) for e in tree.expressions]))
        if total := result.get(key, 0) + count:
            result[key] = total
        else:
            del result[key]
    return result


def _joined(tree: Join, left: Numbered, right: Numbered) -> Numbered:
    """Multiplicities multiply, and the larger number is the pair's."""
    if not left or not right:
        return {}
    on, holds = tree.on, passing(tree.condition)
    matches: dict[Row, list[tuple[int, Row, int]]] = {}
    for (number, row), count in right.items():
        on_right = tuple([row[j] for _, j in on])
        if None not in on_right:
            matches.setdefault(on_right, []).append((number, row, count))
    result: Numbered = {}
    for (number, row), count in left.items():
        for later, other, times in matches.get(tuple([row[i] for i, _ in on]), ()):
            both = row + other
            if holds(both):
                key = (later if later > number else number, both)
                if total := result.get(key, 0) + count * times:
                    result[key] = total
                else:
                    del result[key]
    return result


def _changes(tree: Changes, leaf: Leaf) -> Numbered:
    """Under each number at which an input changes, the operator's rows then less those before."""
    operator, numbers = tree.operator, set[int]()
    if tree.start is None:
        sides = [_state(operator, interpret(child, leaf)) for child in operator.children]
        standing = of_bags(operator, sides)
    else:
        sides, standing = [{} for _ in tree.inputs], {}
        numbers.add(tree.start)
    steps: list[dict[int, Bag]] = []
    for changed in tree.inputs:
        steps.append({})
        for (number, row), count in ({} if changed is None else interpret(changed, leaf)).items():
            steps[-1].setdefault(number, {})[row] = count
        numbers |= steps[-1].keys()
    result: Numbered = {}
    for number in sorted(numbers):
        sides = [added(s, step.get(number, {})) for s, step in zip(sides, steps, strict=True)]
        now = of_bags(operator, sides)
        result.update(numbered(added(now, negated(standing)), number))
        standing = now
    return result


# Operators that are not linear --------------------------------------------------------------------


def distinct(rows: Bag) -> Bag:
    """One copy of each row."""
    _refuse_negative(rows, "duplicate elimination")
    return dict.fromkeys(rows, 1)


def monus(left: Bag, right: Bag) -> Bag:
    """Each row as often as it occurs on the left more than on the right, at least not at all."""
    _refuse_negative(left, "monus")
    _refuse_negative(right, "monus")
    return {
        row: count - right.get(row, 0) for row, count in left.items() if count > right.get(row, 0)
    }


def _refuse_negative(rows: Bag, operator: str) -> None:
    if rows and min(rows.values()) < 0:
        raise ValueError(f"{operator} needs a bag without negative multiplicities")


def aggregated(tree: Aggregate, rows: Bag) -> Bag:
    """One row for each group; without keys exactly one."""
    _refuse_negative(rows, "an aggregate")
    groups: dict[Row, list[tuple[Row, int]]] = {} if tree.keys else {(): []}
    for row, count in rows.items():
        groups.setdefault(tuple(grouped(row[k]) for k in tree.keys), []).append((row, count))
    types = [column.type for column in tree.child.schema]
    return {
        key + tuple(aggregation(a, types, members) for a in tree.aggregations): 1
        for key, members in groups.items()
    }


def aggregation(function: Aggregation, types: list[str], members: list[tuple[Row, int]]) -> Any:
    """One aggregate over the (row, multiplicity) pairs of a group; NULL arguments do not count."""
    position = function.argument
    if position is None:
        return sum(count for _, count in members)
    values = [(row[position], count) for row, count in members if row[position] is not None]
    total_count = sum(count for _, count in values)
    if function.function == "count":
        return total_count
    if not values:
        return None
    type_ = types[position]
    if type_ in FLOATS:
        ordered = sorted(values, key=lambda pair: (pair[0] != pair[0], pair[0]))
        total = normal(sum(value for value, count in ordered for _ in range(count)))
        return total if function.function == "sum" else normal(total / total_count)
    total = sum((Fraction(value) * count for value, count in values), Fraction(0))
    if function.function == "sum":
        return exact.to_exact(total, function.type)
    if type_ in INTEGRALS:
        return exact.average(int(total), total_count, function.type)
    total_type = sum_type(type_)
    assert total_type is not None
    return exact.average(exact.to_exact(total, total_type), total_count, function.type)
