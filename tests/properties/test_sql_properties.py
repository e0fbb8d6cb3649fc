"""The SQL that DuckDB is given means what the bag evaluator computes, types and NULLs included."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from streaming.algebra.bag import Bag, bag, evaluate
from streaming.algebra.normal_form import normal
from streaming.algebra.tree import Project, Relation, Scan, Tree
from streaming.engines.tree_sql import tree_sql
from streaming.errors import FrescoError
from streaming.scalars.expression import Column
from streaming.scalars.meanings import normal as one_value
from streaming.scalars.types import NULL, arrow_type
from tests.properties.trees import (
    RELATIONS,
    TYPES,
    arrow_table,
    bags,
    databases,
    rows,
    scalars,
    trees,
)

ONE = Relation("one", tuple(Column(f"c{i}", t) for i, t in enumerate(TYPES)))
SCHEMAS = {r.name: r.schema for r in (*RELATIONS.values(), ONE)}
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


def computed(connection, tree: Tree, database: dict[str, list[tuple]]) -> Bag:
    """The tree's bag from DuckDB; every column has the tree's type."""
    names = {}
    for index, (name, listed) in enumerate(database.items()):
        connection.register(f"t{index}", arrow_table(SCHEMAS[name], listed))
        names[name] = f"t{index}"
    query = tree_sql(tree, "duckdb", names)
    note(query)
    result = connection.execute(query).to_arrow_table()
    assert result.schema.types == [arrow_type(column.type) for column in tree.schema]
    columns = [column.to_pylist() for column in result.columns]
    return Counter(tuple(one_value(v) for v in row) for row in zip(*columns, strict=True))


@SLOW
@given(trees(), databases())
def test_duckdb_computes_the_bag_a_tree_stands_for(duck, tree, database):
    assume(all(column.type != NULL for column in tree.schema))
    try:
        expected = evaluate(tree, bags(database))
    except FrescoError:
        assume(False)
    assert computed(duck, tree, database) == expected


@SLOW
@given(trees(), databases())
def test_the_normal_form_of_a_tree_stands_for_the_same_bag(tree, database):
    try:
        expected = evaluate(tree, bags(database))
    except FrescoError:
        assume(False)
    shaped = normal(tree)
    assert shaped.schema == tree.schema
    assert evaluate(shaped, bags(database)) == expected


@settings(SLOW, max_examples=300)
@given(st.data())
def test_a_function_has_one_value_or_fails_in_both(duck, data):
    scan = Scan(ONE.name, ONE.schema)
    scalar = data.draw(scalars(scan.schema, 2))
    assume(scalar.type != NULL)
    tree = Project(scan, (scalar,), (Column("x", scalar.type),))
    listed = data.draw(rows(scan.schema, extreme=True, size=1))
    try:
        expected = evaluate(tree, {"one": bag(listed)})
    except FrescoError as error:
        with pytest.raises(duckdb.Error):
            computed(duck, tree, {"one": listed})
        assert error.code.startswith("VALUE_")
    else:
        assert computed(duck, tree, {"one": listed}) == expected
