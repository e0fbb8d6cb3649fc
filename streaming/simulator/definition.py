"""What a view is, by its definition: every row of every relation looked at, one by one.

The judge's evaluator. It is the plain meaning of SQL over full relations and shares nothing with what it
judges: no delta rule, no signed row, no number, no code of `algebra.bag` or `algebra.numbered`, with
which the simulated managers and sources compute. It knows what the simulator's views are made of, and no
NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    PlanNode,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars.expression import Call, Col, Lit, Scalar

Row = tuple[Any, ...]


def defined(tree: Tree, relations: Mapping[str, Mapping[Row, int]]) -> dict[Row, int]:
    """The rows of a view and how often each stands.

    Args:
        relations: every relation scanned, in the same form.

    Raises:
        TypeError: a view of something that the simulator has not.
    """
    return dict(Counter(_rows(tree, relations)))


def _rows(tree: Tree, relations: Mapping[str, Mapping[Row, int]]) -> list[Row]:
    match tree:
        case Scan():
            rows = relations[tree.relation].items()
            return [row for row, count in rows for _ in range(count)]
        case Select():
            return [row for row in _rows(tree.child, relations) if _value(tree.condition, row)]
        case Project():
            rows_ = _rows(tree.child, relations)
            return [tuple([_value(e, row) for e in tree.expressions]) for row in rows_]
        case Join():
            pairs = product(_rows(tree.left, relations), _rows(tree.right, relations))
            met = [left + right for left, right in pairs if _meet(tree, left, right)]
            return [row for row in met if tree.condition is None or _value(tree.condition, row)]
        case Union():
            return [row for child in tree.children for row in _rows(child, relations)]
        case Distinct():
            return list(set(_rows(tree.child, relations)))
        case Monus():
            left = _rows(tree.left, relations)
            for row in _rows(tree.right, relations):
                if row in left:
                    left.remove(row)
            return left
        case Aggregate():
            return _grouped(tree, _rows(tree.child, relations))
        case PlanNode():
            raise TypeError("a plan, not a view")


def _meet(tree: Join, left: Row, right: Row) -> bool:
    return all([left[a] == right[b] for a, b in tree.on])


def _grouped(tree: Aggregate, rows: Iterable[Row]) -> list[Row]:
    groups: dict[Row, list[Row]] = {} if tree.keys else {(): []}
    for row in rows:
        groups.setdefault(tuple([row[k] for k in tree.keys]), []).append(row)
    return [
        key + tuple([_aggregate(each, members) for each in tree.aggregations])
        for key, members in groups.items()
    ]


def _aggregate(aggregation: Aggregation, rows: list[Row]) -> int | None:
    if aggregation.function in ("count_all", "count"):
        return len(rows)
    if aggregation.function == "sum" and aggregation.argument is not None:
        return sum(row[aggregation.argument] for row in rows) if rows else None
    raise TypeError(f"{aggregation.function} is in no view of the simulator")


def _value(scalar: Scalar, row: Row) -> Any:
    match scalar:
        case Col():
            return row[scalar.position]
        case Lit():
            return scalar.value
        case Call(function="=", args=(left, right)):
            return _value(left, row) == _value(right, row)
    raise TypeError(f"{scalar} is in no view of the simulator")
