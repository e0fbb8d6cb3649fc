"""Random relations, scalars and trees for property tests of the evaluators.

Scalars are drawn through `functions.call`, so they have Spark's types and implicit casts; what the
typing rules refuse is replaced by one of its arguments. A strategy is made once for the same arguments:
hypothesis takes longer to make one than to draw from it.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache

import pyarrow as pa
from hypothesis import strategies as st

from streaming.algebra.bag import Bag, bag
from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    Project,
    Relation,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.errors import FrescoError
from streaming.scalars.casts import cast
from streaming.scalars.expression import Col, Column, Lit, Scalar, Schema, column_name
from streaming.scalars.functions import call
from streaming.scalars.types import arrow_type, avg_type, decimal_parts, sum_type

NUMBERS = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "decimal(5,2)",
    "decimal(18,2)",
    "decimal(38,10)",
)
TYPES = (*NUMBERS, "boolean", "double", "float", "string", "date", "timestamp", "timestamp_ntz")
LIMITS = {"tinyint": 127, "smallint": 32767, "int": 2**31 - 1, "bigint": 2**63 - 1}
TEXTS = (
    "",
    "a",
    "A b",
    " a ",
    "ab%_",
    "straße",
    "ÉCLAIR",
    "\U0001f600x",
    "e\u0301",
    "\u00a0n",
    "ﬁn",
    "'q'",
)
RELATIONS = {
    "n.r": Relation(
        "n.r",
        tuple(
            Column(f"r{i}", t) for i, t in enumerate(("int", "bigint", "decimal(18,2)", "string"))
        ),
    ),
    "n.s": Relation(
        "n.s",
        tuple(
            Column(f"s{i}", t) for i, t in enumerate(("int", "decimal(5,2)", "double", "boolean"))
        ),
    ),
    "n.t": Relation("n.t", (Column("Id", "bigint"), Column("id", "date"))),
}
"""Relations over which `trees` draws; none has a key, so duplicates occur."""


@lru_cache(maxsize=128)
def values(type_: str, *, extreme: bool = False) -> st.SearchStrategy[object]:
    """Values of a type and None; small ones that often coincide, or the whole range."""
    return st.none() | _values(type_, extreme)


def _values(type_: str, extreme: bool) -> st.SearchStrategy[object]:
    parts = decimal_parts(type_)
    if parts:
        limit = 10 ** parts[0] - 1 if extreme else 500
        units = st.integers(-limit, limit) | st.sampled_from((0, 5, -5, limit, -limit))
        return units.map(lambda u: Decimal(u).scaleb(-parts[1], Context(prec=60)))
    if type_ in LIMITS:
        limit = LIMITS[type_] if extreme else 3
        return st.integers(-limit - 1, limit) | st.sampled_from((0, 1, limit, -limit - 1))
    if type_ == "boolean":
        return st.booleans()
    if type_ in ("double", "float"):
        special = st.sampled_from((float("nan"), float("inf"), -float("inf"), 0.1, 1e30, -1e-30))
        plain = st.integers(-8, 8).map(lambda n: n / 4)
        width = 32 if type_ == "float" else 64
        return st.floats(width=width) | special.map(_single(type_)) if extreme else plain
    if type_ == "string":
        return (
            st.sampled_from(TEXTS) if not extreme else st.sampled_from(TEXTS) | st.text(max_size=6)
        )
    day = (
        st.dates(datetime.date(1, 1, 1))
        if extreme
        else st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 3))
    )
    if type_ == "date":
        return day
    moment = st.tuples(day, st.times() if extreme else st.just(datetime.time(1))).map(
        lambda pair: datetime.datetime.combine(*pair)
    )
    return (
        moment if type_ == "timestamp_ntz" else moment.map(lambda m: m.replace(tzinfo=datetime.UTC))
    )


def _single(type_: str):
    from streaming.scalars.casts import single

    return single if type_ == "float" else lambda value: value


@lru_cache(maxsize=1024)
def rows(schema: Schema, *, extreme: bool = False, size: int = 6) -> st.SearchStrategy[list[tuple]]:
    """Rows with NULLs and duplicates."""
    row = st.tuples(*(values(column.type, extreme=extreme) for column in schema))
    return st.lists(row, max_size=size)


def databases() -> st.SearchStrategy[dict[str, list[tuple]]]:
    """Rows for each of RELATIONS."""
    return st.fixed_dictionaries({n: rows(r.schema) for n, r in RELATIONS.items()})


def bags(database: dict[str, list[tuple]]) -> dict[str, Bag]:
    return {name: bag(listed) for name, listed in database.items()}


def arrow_table(schema: Schema, listed: Sequence[tuple]) -> pa.Table:
    """Rows as an Arrow table with columns c0..cN."""
    columns = [
        pa.array([row[i] for row in listed], arrow_type(column.type))
        for i, column in enumerate(schema)
    ]
    return pa.table(columns, names=[column_name(i) for i in range(len(schema))])


# Scalars ------------------------------------------------------------------------------------------

_SHAPES = {
    "+": 2, "-": 2, "*": 2, "/": 2, "%": 2, "neg": 1, "abs": 1,
    "=": 2, "<>": 2, "<": 2, "<=": 2, ">": 2, ">=": 2, "<=>": 2, "isdistinct": 2, "between": 3,
    "in": 4, "and": 2, "or": 2, "not": 1, "isnull": 1, "isnotnull": 1,
    "case": 3, "coalesce": 2, "nullif": 2, "round": 2,
    "concat": 2, "upper": 1, "lower": 1, "trim": 1, "length": 1, "like": 2, "substring": 3,
}  # fmt: skip
_CASTS = ("tinyint", "int", "bigint", "double", "string", "decimal(6,1)", "decimal(38,4)", "date")


@lru_cache(maxsize=4096)
@st.composite
def scalars(
    draw: st.DrawFn, schema: Schema, depth: int = 2, names: Sequence[str] = tuple(_SHAPES)
) -> Scalar:
    """A scalar over the schema, of any type."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(_leaves(schema))
    name = draw(st.sampled_from((*names, "cast")))
    if name == "cast":
        return _cast(draw(scalars(schema, depth - 1, names)), draw(st.sampled_from(_CASTS)))
    args = [draw(scalars(schema, depth - 1, names)) for _ in range(_SHAPES[name])]
    if name == "like":
        args[1] = Lit(draw(st.sampled_from(("%a%", "_", "", "a%", "%ß_"))), "string")
    if name == "substring":
        args[1:] = [Lit(draw(st.integers(0, 3)), "int") for _ in range(2)]
    if name == "round":
        args[1] = Lit(draw(st.integers(0, 3)), "int")
    if name == "case":
        args[0] = draw(conditions(schema, depth - 1, names))
    try:
        return call(name, *args)
    except FrescoError:
        return args[0]


def _cast(value: Scalar, type_: str) -> Scalar:
    try:
        return cast(value, type_)
    except FrescoError:
        return value


@lru_cache(maxsize=4096)
@st.composite
def _leaves(draw: st.DrawFn, schema: Schema) -> Scalar:
    if draw(st.booleans()):
        position = draw(st.integers(0, len(schema) - 1))
        return Col(position, schema[position].type)
    type_ = draw(st.sampled_from(("int", "decimal(3,2)", "string", "boolean", "date", "double")))
    value = draw(values(type_))
    return Lit(value, type_)


@lru_cache(maxsize=4096)
@st.composite
def conditions(
    draw: st.DrawFn, schema: Schema, depth: int = 2, names: Sequence[str] = tuple(_SHAPES)
) -> Scalar:
    """A boolean scalar."""
    scalar = draw(scalars(schema, depth, names))
    return scalar if scalar.type == "boolean" else call("isnotnull", scalar)


# Trees --------------------------------------------------------------------------------------------

_CALM = tuple(name for name in _SHAPES if name not in ("/", "%", "lower"))
"""Functions that do not fail on small values: an engine may compute them for rows dropped later."""


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Tree:
    """A tree over RELATIONS, at most four columns wide above each join."""
    if depth == 0:
        relation = draw(st.sampled_from(tuple(RELATIONS.values())))
        return Scan(relation.name, relation.schema)
    child = draw(trees(depth - 1))
    kinds = ("select", "project", "join", "union", "aggregate", "distinct", "monus")
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "select":
            return Select(child, draw(conditions(child.schema, 2, _CALM)))
        case "project":
            return draw(projects(child))
        case "join":
            return draw(joins(child, draw(trees(depth - 1))))
        case "union":
            return Union(draw(alike(child)))
        case "monus":
            return Monus(*draw(alike(child)))
        case "distinct":
            return Distinct(child)
        case _:
            return draw(aggregates(child))


@st.composite
def alike(draw: st.DrawFn, child: Tree) -> tuple[Tree, Tree]:
    """Two trees with columns of the same types."""
    one, other = draw(projects(child)), draw(projects(child))
    same = [c.type for c in one.schema] == [c.type for c in other.schema]
    if not same:
        other = Select(one, draw(conditions(one.schema, 1, _CALM)))
    return one, other


@st.composite
def projects(draw: st.DrawFn, child: Tree) -> Tree:
    listed = draw(st.lists(scalars(child.schema, 2, _CALM), min_size=1, max_size=4))
    schema = tuple(Column(f"p{i}", scalar.type) for i, scalar in enumerate(listed))
    return Project(child, tuple(listed), schema)


@st.composite
def joins(draw: st.DrawFn, left: Tree, right: Tree) -> Tree:
    pairs = [
        (i, j)
        for i, one in enumerate(left.schema)
        for j, other in enumerate(right.schema)
        if one.type == other.type
    ]
    on = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    both = left.schema + right.schema
    condition = draw(st.none() | conditions(both, 1, _CALM))
    joined = Join(left, right, tuple(on), condition)
    kept = draw(st.lists(st.integers(0, len(both) - 1), min_size=1, max_size=4, unique=True))
    columns = tuple(Col(p, both[p].type) for p in kept)
    return Project(joined, columns, tuple(both[p] for p in kept))


@st.composite
def aggregates(draw: st.DrawFn, child: Tree) -> Tree:
    width = len(child.schema)
    keys = draw(st.lists(st.integers(0, width - 1), max_size=2, unique=True))
    listed = [Aggregation("count_all", None, "bigint")]
    for position, column in enumerate(child.schema):
        listed.append(Aggregation("count", position, "bigint"))
        if sum_type(column.type):
            listed.append(Aggregation("sum", position, str(sum_type(column.type))))
            listed.append(Aggregation("avg", position, str(avg_type(column.type))))
    chosen = draw(st.lists(st.sampled_from(listed), min_size=1, max_size=3, unique=True))
    schema = tuple(child.schema[k] for k in keys) + tuple(
        Column(f"a{i}", a.type) for i, a in enumerate(chosen)
    )
    return Aggregate(child, tuple(keys), tuple(chosen), schema)
