"""Spark's result types; the answers are its analyzer's (`tests/spark` asks it again)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.scalars.expression import Column
from streaming.scalars.types import (
    arrow_type,
    avg_type,
    delta_schema,
    duck_type,
    simple_type,
    sum_type,
)
from streaming.sql.parse import parse
from tests.golden.spark_types import COLUMNS, EXPRESSIONS

TYPED = Relation("s.t", tuple(Column(name, type_) for name, type_ in COLUMNS.items()))


@pytest.mark.parametrize(("expression", "type_"), EXPRESSIONS.items())
def test_an_expression_has_the_type_spark_gives_it(expression, type_):
    tree = parse(f"SELECT {expression} AS x FROM s.t", {"s.t": TYPED})
    assert tree.schema == (Column("x", type_),)


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("BIGINT", "bigint"),
        ("Integer", "int"),
        ("LONG", "bigint"),
        ("DECIMAL(18, 2)", "decimal(18,2)"),
        ("numeric(5)", "decimal(5,0)"),
        ("DECIMAL", "decimal(10,0)"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
    ],
)
def test_a_type_has_one_simple_string(written, simple):
    assert simple_type(written) == simple


@pytest.mark.parametrize(
    "written", ["decimal(39,2)", "decimal(5,6)", "array<int>", "varchar(3)", ""]
)
def test_other_types_are_refused_by_name(written):
    with pytest.raises(FrescoError) as raised:
        simple_type(written)
    assert raised.value.code == "SQL_TYPE_UNSUPPORTED"


def test_a_deltas_columns_are_positional_after_number_and_multiplicity():
    schema = delta_schema((Column("Id", "bigint"), Column("id", "decimal(18,2)")))
    assert schema.names == ["_number", "_multiplicity", "c0", "c1"]
    assert schema.field("c1").type == pa.decimal128(18, 2)
    assert not schema.field("_number").nullable


def test_every_type_has_a_name_in_arrow_and_in_duckdb():
    for type_ in COLUMNS.values():
        assert arrow_type(type_) and duck_type(type_)
    assert arrow_type("timestamp") == pa.timestamp("us", "UTC")
    assert duck_type("timestamp") == "TIMESTAMP WITH TIME ZONE"


def test_sums_and_averages_widen_as_in_spark():
    assert [sum_type(t) for t in ("int", "decimal(18,2)", "decimal(35,2)", "float", "string")] == [
        "bigint",
        "decimal(28,2)",
        "decimal(38,2)",
        "double",
        None,
    ]
    assert [avg_type(t) for t in ("int", "decimal(18,2)", "decimal(38,36)", "date")] == [
        "double",
        "decimal(22,6)",
        "decimal(38,38)",
        None,
    ]
