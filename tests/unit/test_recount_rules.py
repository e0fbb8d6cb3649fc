"""Duplicate elimination and monus under the delta rules, worked out by hand."""

from __future__ import annotations

import pyarrow as pa

from streaming.algebra.delta import before, delta
from streaming.algebra.normal_form import normal
from streaming.algebra.tree import Before, Changes, Delta, Distinct, Monus, Project, Scan, Tree
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.engines.program import Program
from streaming.scalars.expression import Col, Column
from streaming.scalars.types import delta_schema

X = (Column("x", "int"),)
R, S = Scan("s.r", X), Scan("s.s", X)
EACH, LESS = Distinct(R), Monus(R, S)


def rows(*signed: tuple) -> tuple[pa.Table, ...]:
    """One piece of rows (number, multiplicity, x)."""
    arrow = delta_schema(X)
    columns = zip(*signed, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
    return (pa.table(arrays, schema=arrow),)


def steps(view: Tree, *batches: tuple[int, int, dict]) -> list[list[tuple]]:
    """The view's delta in each batch, in order."""
    evaluator, found = DuckEvaluator(view, threads=1), []
    for first, last, given in batches:
        batch = Batch(first, last, {f"s.{name}": rows(*piece) for name, piece in given.items()})
        delta_ = evaluator.evaluate(batch)
        found.append(sorted(zip(*(c.to_pylist() for c in delta_.columns), strict=True), key=repr))
        evaluator.advance()
    return found


def test_the_rule_looks_at_the_sides_changes_and_their_bags_before() -> None:
    stood = Monus(Before(R), Before(S))
    assert before(LESS) == stood
    assert delta(LESS, frozenset({S})) == Changes(stood, (None, Delta(S)))
    assert delta(LESS, frozenset({S}), start=7) == Changes(stood, (None, Delta(S)), 7)
    assert delta(EACH, frozenset({S})) is None


def test_a_row_leaves_when_its_last_copy_does() -> None:
    initial = (0, 0, {"r": [(0, 2, 7), (0, 1, 8)]})
    assert steps(EACH, initial, (1, 3, {"r": [(1, -1, 7), (2, -1, 7), (3, 1, 7)]})) == [
        [(0, 1, 7), (0, 1, 8)],
        [(2, -1, 7), (3, 1, 7)],
    ]


def test_copies_that_come_and_go_are_not_seen() -> None:
    assert steps(EACH, (0, 0, {"r": [(0, 1, 7)]}), (1, 2, {"r": [(1, 5, 7), (2, -5, 7)]})) == [
        [(0, 1, 7)],
        [],
    ]


def test_null_equals_null_when_rows_are_counted() -> None:
    assert steps(EACH, (0, 0, {"r": [(0, 2, None)]}), (1, 1, {"r": [(1, -1, None)]})) == [
        [(0, 1, None)],
        [],
    ]


def test_monus_follows_both_sides_and_stops_at_nothing() -> None:
    found = steps(
        LESS,
        (0, 0, {"r": [(0, 3, 7)], "s": [(0, 1, 7)]}),
        (1, 4, {"s": [(1, 5, 7), (4, -5, 7)], "r": [(2, 2, 7)]}),
        (5, 5, {"r": [(5, -4, 7)]}),
    )
    assert found == [[(0, 2, 7)], [(1, -2, 7), (4, 4, 7)], [(5, -4, 7)]]


def test_only_rows_that_the_batch_touches_are_looked_at() -> None:
    program = Program(LESS, "duckdb", frozenset({R, S}))
    sql = program.answer
    assert sql is not None
    (step,) = program.steps
    assert step.sql.startswith("SELECT DISTINCT") and step.name == "r0"
    assert sql.count("c0 IN (SELECT c0 FROM r0)") == 2, "both sides' bags"


def test_the_normal_form_keeps_every_column_that_rows_are_counted_by() -> None:
    """Only y is wanted above, but which rows are equal depends on x too."""
    wide = (*X, Column("y", "int"))
    tree = Distinct(Monus(Scan("s.r", wide), Scan("s.s", wide)))
    above = normal(Project(tree, (Col(1, "int"),), wide[1:]))
    assert isinstance(above, Project) and isinstance(above.child, Distinct)
    assert above.child.schema == wide
