"""At the edges of every numeric type each engine and path has the same value, or an error.

`tests/spark` holds the same operations against Spark running the text.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from streaming.algebra.bag import bag, numbered
from streaming.algebra.normal_form import normal as view_of
from streaming.algebra.tree import Project, Relation, Tree
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed, _table
from streaming.engines.evaluator import Batch, ViewError
from streaming.errors import FrescoError
from streaming.messages import Rows
from streaming.scalars.expression import Column
from streaming.scalars.meanings import evaluate, normal
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse
from tests.golden.numeric_edges import ARITHMETIC, COMPARISONS, PAIRS, SIGNS, TYPES, edges

FAILED = "failed"


def no_rows(table: pa.Table) -> Rows:
    raise AssertionError


COLUMNS = DuckOperators(no_rows, no_rows, small=0, threads=1)  # type: ignore[arg-type]


def by_python(tree: Tree, rows: list[tuple]) -> list[object]:
    """The one output of each row."""
    assert isinstance(tree, Project)
    found: list[object] = []
    for row in rows:
        try:
            found.append(evaluate(tree.expressions[0], tuple(normal(v) for v in row)))
        except FrescoError:
            found.append(FAILED)
    return found


def by_columns(
    relation: Relation, text: str, rows: list[tuple], failing: list[bool]
) -> list[object]:
    """The same from DuckDB over all rows at once, of those that do not fail; the others one by one."""
    tree = parse(f"SELECT n, {text} AS x FROM s.t", {"s.t": relation})
    numbered_rows = [(n, *row) for n, row in enumerate(rows)]
    values: list[object] = [FAILED] * len(rows)
    good = [row for row, fails in zip(numbered_rows, failing, strict=True) if not fails]
    for n, value in computed(relation, tree, good):
        values[n] = value
    for row, fails in zip(numbered_rows, failing, strict=True):
        if fails:
            try:
                ((n, values[n]),) = computed(relation, tree, [row])
            except ViewError as error:
                assert error.code == "VIEW_ARITHMETIC"
    return values


def computed(relation: Relation, tree: Tree, rows: list[tuple]) -> list[tuple]:
    schema = delta_schema(relation.schema)
    value = Signed(schema, _table(schema, numbered(bag(rows))))
    table = COLUMNS.evaluate(tree, {"s.t": value}).table
    assert table.schema == delta_schema(tree.schema)
    return list(zip(*(column.to_pylist() for column in table.columns[2:]), strict=True))


def same(one: object, other: object) -> bool:
    return repr(normal(one)) == repr(normal(other))


def compared(text: str, types: tuple[str, ...], names: tuple[str, ...]) -> None:
    columns = tuple(Column(n, t) for n, t in zip(names, types, strict=True))
    relation = Relation("s.t", (Column("n", "int"), *columns))
    rows = list(itertools.product(*(edges(t) for t in types)))
    try:
        tree = parse(f"SELECT {text} AS x FROM s.t", {"s.t": Relation("s.t", columns)})
    except FrescoError as refused:
        assert refused.code == "SQL_FUNCTION_UNSUPPORTED", (text, types, refused)
        return
    while isinstance(tree, Project) and isinstance(tree.child, Project):
        tree = Project(tree.child.child, tree.expressions, tree.schema)
    here = by_python(tree, rows)
    there = by_columns(relation, text, rows, [value is FAILED for value in here])
    for row, one, other in zip(rows, here, there, strict=True):
        assert same(one, other), f"{text} at {row} of {types}: Python {one!r}, DuckDB {other!r}"


@pytest.mark.parametrize("types", PAIRS, ids=" ".join)
def test_operators_and_comparisons_agree_at_the_edges(types: tuple[str, str]) -> None:
    for operator in (*ARITHMETIC, *COMPARISONS):
        compared(f"l {operator} r", types, ("l", "r"))


@pytest.mark.parametrize("text", ["- -2147483648", "-(-9223372036854775808)", "- - -2147483648"])
def test_a_literal_is_negated_only_where_its_type_has_the_result(text: str) -> None:
    compared(text, ("int",), ("x",))


@pytest.mark.parametrize("type_", TYPES)
def test_signs_and_casts_agree_at_the_edges(type_: str) -> None:
    for text in (*SIGNS, *(f"CAST(x AS {target})" for target in (*TYPES, "string"))):
        compared(text, (type_,), ("x",))


@pytest.mark.parametrize("type_", ["float", "double"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT x FROM s.t", ["-0.0"]),
        ("SELECT -x AS y, ABS(x) AS z FROM s.t", ["0.0", "0.0"]),
        ("SELECT x, COUNT(*) AS n FROM s.t GROUP BY x", ["0.0", "1"]),
        ("SELECT x, SUM(x) AS s FROM s.t GROUP BY x", ["0.0", "0.0"]),
    ],
)
def test_a_zero_keeps_its_sign_and_groups_have_one_zero(
    type_: str, text: str, shown: list[str]
) -> None:
    """Spark's NormalizeFloatingNumbers; `tests/spark` has the same rows from Spark."""
    relation = Relation("s.t", (Column("x", type_),))
    tree = view_of(parse(text, {"s.t": relation}))
    schema = delta_schema(relation.schema)
    table = _table(schema, {(0, (-0.0,)): 1})
    few = DuckOperators(no_rows, no_rows, threads=1)  # type: ignore[arg-type]
    evaluator = DuckEvaluator(tree, threads=1)
    for found in (
        few.evaluate(tree, {"s.t": Signed(schema, bag={(0, (-0.0,)): 1})}).table,
        COLUMNS.evaluate(tree, {"s.t": Signed(schema, table)}).table,
        evaluator.evaluate(Batch(0, 0, {"s.t": (table,)})),
    ):
        assert [repr(column[0].as_py()) for column in found.columns[2:]] == shown
