"""The bag evaluator: trees over small relations in plain Python, written to be obviously right.

A bag maps a row (a tuple of values) to how often it occurs. The signed bags of the delta rules are
the same with negative counts; select, project, join and union are linear and take them; an
aggregate, duplicate elimination and monus are defined over proper bags only. It is the oracle
against which the DuckDB and Spark evaluators are tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars import exact
from streaming.scalars.meanings import evaluate as value_of
from streaming.scalars.meanings import grouped, normal, passing
from streaming.scalars.types import FLOATS, INTEGRALS, sum_type

Row = tuple[Any, ...]
Bag = dict[Row, int]


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


def _add(rows: Bag, row: Row, count: int) -> None:
    total = rows.get(row, 0) + count
    if total:
        rows[row] = total
    else:
        rows.pop(row, None)


def evaluate(tree: Tree, relations: Mapping[str, Bag]) -> Bag:
    """The bag that a tree stands for.

    Args:
        relations: every scanned relation's bag, rows with all its columns in the schema's order.

    Raises:
        FrescoError: VALUE_OVERFLOW, VALUE_DIVISION_BY_ZERO, VALUE_LETTERCASE.
        ValueError: an operator that needs a proper bag over one with a negative multiplicity.
        KeyError: a scanned relation is missing.
    """
    match tree:
        case Scan():
            return relations[tree.relation]
        case Select():
            rows, holds = evaluate(tree.child, relations), passing(tree.condition)
            return {r: n for r, n in rows.items() if holds(r)}
        case Project():
            result: Bag = {}
            for row, count in evaluate(tree.child, relations).items():
                _add(result, projected(tree, row), count)
            return result
        case Join():
            return joined(tree, evaluate(tree.left, relations), evaluate(tree.right, relations))
        case Union():
            return added(*(evaluate(child, relations) for child in tree.children))
        case Aggregate():
            return aggregated(tree, evaluate(tree.child, relations))
        case Distinct():
            return distinct(evaluate(tree.child, relations))
        case Monus():
            return monus(evaluate(tree.left, relations), evaluate(tree.right, relations))


def projected(tree: Project, row: Row) -> Row:
    """What a projection makes of a row."""
    if (copied := tree.copied) is not None:
        return tuple([row[i] for i in copied])
    return tuple([value_of(e, row) for e in tree.expressions])


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


def joined(tree: Join, left: Bag, right: Bag) -> Bag:
    """The join of two bags; multiplicities multiply."""
    if not left or not right:
        return {}
    on, holds = tree.on, passing(tree.condition)
    matches: dict[Row, list[tuple[Row, int]]] = {}
    for row, count in right.items():
        key = tuple([row[j] for _, j in on])
        if None not in key:
            matches.setdefault(key, []).append((row, count))
    result: Bag = {}
    for row, count in left.items():
        for other, times in matches.get(tuple([row[i] for i, _ in on]), ()):
            both = row + other
            if holds(both):
                _add(result, both, count * times)
    return result


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
