"""`DuckOperators` is `NumberedBags`: whatever form a value has, every operator gives the same rows."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from streaming import packed_rows as packing
from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import Scan
from streaming.engines.duck.duck_mirror import DuckMirror
from streaming.engines.duck.duck_operators import DuckOperators, counted_relations
from streaming.engines.duck.signed import Signed, _table
from streaming.errors import FrescoError
from streaming.scalars.expression import Schema
from streaming.scalars.types import NULL, delta_schema
from streaming.viewmanagers.mirror import HeldMirror
from tests.properties.trees import RELATIONS, rows, trees

SLOW = settings(
    deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), print_blob=True
)
FORMS = {"columns": 0, "mixed": 4, "dicts": 512}
PLAIN = NumberedBags()
SCHEMA = RELATIONS["n.r"].schema
FILES: dict[str, bytes] = {}


def stage(content: bytes) -> str:
    FILES[str(len(FILES))] = content
    return str(len(FILES) - 1)


def unpacked(rows: packing.Rows) -> pa.Table:
    if rows.path is not None:
        return pq.read_table(io.BytesIO(FILES[rows.path]))
    return packing.unpack(rows, root=None)  # type: ignore[arg-type]


def operators(form: str) -> DuckOperators:
    pack = lambda table: packing.pack(table, stage)  # noqa: E731
    return DuckOperators(pack, unpacked, small=FORMS[form], threads=1)


ALL = {form: operators(form) for form in FORMS}


@st.composite
def signed(draw: st.DrawFn, schema: Schema, numbers: int = 3) -> Numbered:
    listed = draw(rows(schema, size=7))
    entries = st.tuples(st.integers(0, numbers), st.sampled_from((1, 1, 2, -1, -2)))
    value: Numbered = {}
    for row in listed:
        number, count = draw(entries) if numbers else (0, draw(st.integers(1, 2)))
        value = PLAIN.plus(value, {(number, row): count})
    return value


def given_as(ops: DuckOperators, schema: Schema, value: Numbered, twice: bool) -> Signed:
    """As a message brings it; `twice`: each row in two pieces, so that it is not net."""
    table = _table(delta_schema(schema), value)
    if not twice:
        return ops.value(table)
    more = _table(delta_schema(schema), {k: 2 * n for k, n in value.items()})
    less = _table(delta_schema(schema), {k: -n for k, n in value.items()})
    return ops.value(pa.concat_tables([more, less]))


def back(value: Signed) -> Numbered:
    """The rows, from columns of exactly the schema's types."""
    table = value.table
    assert table.schema == value.schema
    found = Signed(table.schema, table).bag(10**9)
    assert found is not None
    return found


@pytest.mark.parametrize("form", FORMS)
@SLOW
@given(data=st.data())
def test_a_tree_has_the_same_rows_numbers_and_types(form: str, data: st.DataObject) -> None:
    ops, tree = ALL[form], data.draw(trees())
    assume(all(column.type != NULL for column in tree.schema))
    states = counted_relations(tree)
    values = {
        name: data.draw(signed(r.schema, 0 if name in states else 3))
        for name, r in RELATIONS.items()
    }
    twice = data.draw(st.booleans())
    inputs = {n: given_as(ops, RELATIONS[n].schema, v, twice) for n, v in values.items()}
    try:
        expected = PLAIN.evaluate(tree, values)
    except FrescoError:
        assume(False)
    found = ops.evaluate(tree, inputs)
    assert back(found) == expected
    assert found.schema == delta_schema(tree.schema)


@pytest.mark.parametrize("form", FORMS)
@SLOW
@given(data=st.data())
def test_the_other_operators_do_the_same(form: str, data: st.DataObject) -> None:
    ops = ALL[form]
    one, other = data.draw(signed(SCHEMA)), data.draw(signed(SCHEMA))
    twice = data.draw(st.booleans())
    a, b = (given_as(ops, SCHEMA, v, twice) for v in (one, other))
    assert ops.size(a) == len(one)
    assert back(ops.plus(a, b, a)) == PLAIN.plus(one, other, one)
    assert back(ops.minus(a, b)) == PLAIN.minus(one, other)
    assert ops.size(ops.minus(a, a)) == 0
    assert back(ops.netted(ops.between(a, 1, 2))) == PLAIN.between(one, 1, 2)
    assert back(ops.renumbered(a, 1)) == PLAIN.renumbered(one, 1)
    assert back(ops.inserted(a)) == PLAIN.inserted(one)
    assert back(ops.deleted(a)) == PLAIN.deleted(one)
    assert back(ops.distinct(a)) == PLAIN.distinct(one)
    assert back(ops.open(ops.pack(a))) == one
    at = data.draw(st.lists(st.integers(0, 3), max_size=3, unique=True).map(tuple))
    assert back(ops.netted(ops.matching(a, at, b, at))) == PLAIN.matching(one, at, other, at)
    assert back(ops.empty(SCHEMA)) == {}


@pytest.mark.parametrize("form", FORMS)
@SLOW
@given(data=st.data())
def test_the_mirror_holds_what_the_plain_one_holds(form: str, data: st.DataObject) -> None:
    ops, most = ALL[form], data.draw(st.sampled_from((0, 2, 200)))
    plain, held = HeldMirror(PLAIN, SCHEMA), DuckMirror(ops, SCHEMA, tail=3, looked_up=most)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            held.index((0,), (1, 2), (0,))
        delta = data.draw(signed(SCHEMA))
        plain.add(delta)
        held.add(given_as(ops, SCHEMA, delta, False))
        at = data.draw(st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple))
        sought = data.draw(signed(SCHEMA))
        rows = given_as(ops, SCHEMA, sought, False)
        assert back(held.matching(at, rows, at)) == plain.matching(at, sought, at)
        if data.draw(st.booleans()):
            saved = held.snapshot()
            held = DuckMirror(ops, SCHEMA, tail=3, looked_up=most)
            held.restore(saved)
    assert back(held.rows()) == plain.rows()


def test_what_is_not_linear_refuses_numbers_and_negative_rows() -> None:
    from streaming.algebra.tree import Distinct

    tree = Distinct(Scan("n.r", SCHEMA))
    row: tuple[Any, ...] = (1, 2, None, "x")
    for form, ops in ALL.items():
        for value in ({(1, row): 1}, {(0, row): -1}):
            with pytest.raises(ValueError):
                ops.evaluate(tree, {"n.r": given_as(ops, SCHEMA, value, False)})
            assert form in FORMS


def test_days_and_moments_that_python_has_not_stay_columns() -> None:
    """The infinities of PostgreSQL, as `captured.json_values` reads them."""
    from streaming.scalars.expression import Column

    schema = (Column("d", "date"), Column("t", "timestamp"))
    days = pa.array([2147483647, 1], pa.int32()).view(pa.date32())
    at = pa.array([9223372036825200000, 1], pa.int64()).view(pa.timestamp("us", "UTC"))
    ones = pa.array([1, 1], pa.int64())
    table = pa.Table.from_arrays([ones, ones, days, at], schema=delta_schema(schema))
    ops = ALL["dicts"]
    value = ops.value(table)
    found = ops.evaluate(Scan("x", schema), {"x": ops.plus(value, value)}).table
    assert sorted(found.column("c0").cast(pa.int32()).to_pylist()) == [1, 2147483647]
    assert found.column("_multiplicity").to_pylist() == [2, 2]
    assert 9223372036825200000 in found.column("c1").cast(pa.int64()).to_pylist()
