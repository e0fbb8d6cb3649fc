"""Trees as JSON in snapshots: every node and every kind of constant comes back as it was."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pytest

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
from streaming.algebra.tree_json import tree_back, tree_note
from streaming.scalars.expression import Call, Col, Column, Lit

SCAN = Scan("x.r", (Column("a", "bigint"), Column("b", "string")))
EQUAL = Call("=", (Col(0, "bigint"), Lit(3, "bigint")), "boolean")
TREES = [
    SCAN,
    Select(SCAN, EQUAL),
    Project(SCAN, (Col(1, "string"), EQUAL), (Column("b", "string"), Column("c", "boolean"))),
    Join(SCAN, Select(SCAN, EQUAL), ((0, 0), (1, 1)), EQUAL),
    Join(SCAN, SCAN, (), None),
    Union((SCAN, SCAN)),
    Distinct(SCAN),
    Monus(SCAN, SCAN),
    Aggregate(
        SCAN,
        (1,),
        (Aggregation("sum", 0, "bigint"), Aggregation("count_all", None, "bigint")),
        SCAN.schema,
    ),
]
CONSTANTS = [
    None,
    True,
    7,
    "7",
    0.1,
    float("inf"),
    Decimal("1.50"),
    date(2024, 2, 29),
    datetime(2024, 2, 29, 1, 2, 3, 4),
]


def through_json(tree: Tree) -> Tree:
    return tree_back(json.loads(json.dumps(tree_note(tree), allow_nan=False)))


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: type(tree).__name__)
def test_a_tree_comes_back(tree: Tree) -> None:
    assert through_json(tree) == tree


@pytest.mark.parametrize("constant", CONSTANTS, ids=repr)
def test_a_constant_comes_back_with_its_type(constant: object) -> None:
    tree = Project(SCAN, (Lit(constant, "some type"),), (Column("c", "some type"),))
    (back,) = through_json(tree).expressions  # type: ignore[union-attr]
    assert repr(back) == repr(Lit(constant, "some type"))


def test_what_no_tree_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="no constant"):
        tree_note(Project(SCAN, (Lit(b"bytes", "binary"),), ()))
