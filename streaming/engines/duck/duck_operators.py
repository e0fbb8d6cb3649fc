"""`DuckOperators`: what view managers that ask do with relations, in the service (`operators`).

A value (`signed.Signed`) of a few hundred rows is worked on as a dict by the plain operators that the
simulator uses (`numbered`); larger ones as Arrow columns, by DuckDB where rows are compared, joined or
computed and by Arrow's own filters elsewhere. The choice is by size alone and changes no result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.operators import Positions
from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    Scan,
    Tree,
    Union,
    computes,
    relations,
    walk,
)
from streaming.engines.duck.duck_evaluator import SMALL_BATCH, VALUE_ERRORS
from streaming.engines.duck.signed import Signed
from streaming.engines.duck_engine import duck_engine, offering
from streaming.engines.evaluator import arithmetic
from streaming.engines.netting import is_net
from streaming.engines.tree_sql import net_query, tree_sql
from streaming.errors import FrescoError
from streaming.messages import Rows
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name
from streaming.scalars.types import delta_schema

SMALL = 512
"""Rows, of all inputs together, up to which dicts are faster than a statement (measured)."""
SMALL_PRODUCT = 48
"""The same for a tree with a join that is a product."""

SUMMED = 4096
"""Rows up to which values are added up as dicts."""
OPENED = 8
"""References whose values are kept."""

Pack = Callable[[pa.Table], Rows]
Open = Callable[[Rows], pa.Table]


class DuckOperators:
    """See `operators.Operators`; one instance belongs to one thread.

    Args:
        pack: a table to a reference (`rows.pack` with the service's staging).
        open_: a reference to its table (`rows.unpack` with the warehouse).
        small: rows up to which values are dicts; 0 makes everything columns.
        threads: of DuckDB, for large values.
    """

    def __init__(self, pack: Pack, open_: Open, *, small: int = SMALL, threads: int = 2) -> None:
        self.db = duck_engine()
        self.db.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        self._threads = threads
        self._in_use = 0
        self._use_threads(1)
        self._pack = pack
        self._open = open_
        self._small = small
        self._bags = NumberedBags()
        self._plans: dict[Tree, Plan] = {}
        self._opened: deque[tuple[Rows, Signed]] = deque(maxlen=OPENED)

    # Values ---------------------------------------------------------------------------------------

    def value(self, table: pa.Table, *, net: bool = False) -> Signed:
        """A delta's table (`_number`, `_multiplicity`, c0..) as a value.

        Args:
            net: whether no (number, row) occurs twice.
        """
        return Signed(table.schema, table, net=net)

    def empty(self, schema: Schema) -> Signed:
        return Signed(delta_schema(schema), bag={})

    def size(self, value: Signed) -> int:
        bag = value.bag(self._small)
        return len(bag) if bag is not None else self.netted(value).held

    def netted(self, value: Signed) -> Signed:
        """The value with each (number, row) once."""
        if value.net or value.bag(self._small) is not None:
            return value
        query = net_query("SELECT * FROM s0", len(value.schema) - 2)
        return Signed(value.schema, self._run(query, [value.table], value.schema))

    def pack(self, value: Signed) -> Rows:
        if value.packed is None:
            value.packed = self._pack(self.netted(value).table)
        return value.packed

    def open(self, rows: Rows) -> Signed:
        """The value; a manager opens one message's rows once for every number in it."""
        for known, value in self._opened:
            if known is rows:
                return value
        table = self._open(rows)
        value = self.netted(Signed(table.schema, table, net=False, packed=rows))
        self._opened.append((rows, value))
        return value

    # Operators ------------------------------------------------------------------------------------

    def evaluate(self, tree: Tree, inputs: Mapping[str, Signed]) -> Signed:
        plan = self._plans.get(tree)
        if plan is None:
            plan = self._plans[tree] = Plan(tree)
        values = [inputs[name] for name in plan.scans]
        bags = self._as_bags(
            values, min(SMALL_PRODUCT, self._small) if plan.product else self._small
        )
        if bags is not None:
            try:
                found = self._bags.evaluate(tree, dict(zip(plan.scans, bags, strict=True)))
            except FrescoError as error:
                raise arithmetic(error.what, None) from error
            return Signed(plan.schema, bag=found)
        if plan.counted or plan.fails:
            values = [self.netted(value) for value in values]
            for name in plan.counted:
                self._check_state(tree, name, inputs[name])
        net = plan.net and all(value.net for value in values)
        query = plan.query if net else plan.net_query
        tables = {f"s{i}": value.table for i, value in enumerate(values)}
        for name, apart, schema in plan.apart:
            tables[name] = self._query(apart, tables, schema)
        return Signed(plan.schema, self._query(query, tables, plan.schema))

    def _check_state(self, tree: Tree, name: str, value: Signed) -> None:
        table = self.netted(value).table
        if not table.num_rows:
            return
        bounds = pc.min_max(table.column(NUMBER))
        if bounds["min"].as_py() or bounds["max"].as_py():
            raise ValueError(f"{type(tree).__name__} over rows with numbers ({name})")
        if pc.min(table.column(MULTIPLICITY)).as_py() < 0:
            raise ValueError(f"{type(tree).__name__} over negative multiplicities ({name})")

    def plus(self, *values: Signed) -> Signed:
        schema = values[0].schema
        values = tuple(value for value in values if value.held)
        if len(values) < 2:
            return values[0] if values else Signed(schema, bag={})
        bags = self._as_bags(values, SUMMED)
        if bags is not None:
            return Signed(schema, bag=self._bags.plus(*bags))
        return self._sum(schema, [value.table for value in values])

    def minus(self, left: Signed, right: Signed) -> Signed:
        if not right.held:
            return left
        bags = self._as_bags((left, right), SUMMED)
        if bags is not None:
            return Signed(left.schema, bag=self._bags.minus(*bags))
        negated = _with(right.table, MULTIPLICITY, pc.negate(right.table.column(MULTIPLICITY)))
        return self._sum(left.schema, [left.table, negated])

    def _sum(self, schema: pa.Schema, tables: Sequence[pa.Table]) -> Signed:
        table = pa.concat_tables([table.cast(schema) for table in tables])
        return self.netted(Signed(schema, table, net=False))

    def between(self, value: Signed, first: int, last: int) -> Signed:
        bag = value.bag(self._small)
        if bag is not None:
            return Signed(value.schema, bag=self._bags.between(bag, first, last))
        number = value.table.column(NUMBER)
        within = pc.and_(pc.greater_equal(number, first), pc.less_equal(number, last))
        return Signed(value.schema, value.table.filter(within), net=value.net)

    def renumbered(self, value: Signed, number: int) -> Signed:
        bag = value.bag(self._small)
        if bag is not None:
            return Signed(value.schema, bag=self._bags.renumbered(bag, number))
        bounds = pc.min_max(value.table.column(NUMBER))
        alone = bounds["min"].as_py() == bounds["max"].as_py()
        if alone and bounds["min"].as_py() in (number, None):
            return value
        numbers = pa.repeat(pa.scalar(number, pa.int64()), value.held)
        table = _with(value.table, NUMBER, numbers)
        return self.netted(Signed(value.schema, table, net=value.net and alone))

    def inserted(self, value: Signed) -> Signed:
        return self._signed(value, pc.greater)

    def deleted(self, value: Signed) -> Signed:
        return self._signed(value, pc.less)

    def _signed(self, value: Signed, than: Callable[[pa.ChunkedArray, int], pa.Array]) -> Signed:
        bag = value.bag(self._small)
        if bag is not None:
            one = self._bags.inserted if than is pc.greater else self._bags.deleted
            return Signed(value.schema, bag=one(bag))
        table = self.netted(value).table
        return Signed(value.schema, table.filter(than(table.column(MULTIPLICITY), 0)))

    def distinct(self, value: Signed) -> Signed:
        bag = value.bag(self._small)
        if bag is not None:
            return Signed(value.schema, bag=self._bags.distinct(bag))
        table = self.inserted(value).table
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        return Signed(value.schema, _with(table, MULTIPLICITY, ones))

    def matching(self, value: Signed, at: Positions, rows: Signed, rows_at: Positions) -> Signed:
        bags = self._as_bags((value, rows), self._small)
        if bags is not None:
            return Signed(value.schema, bag=self._bags.matching(bags[0], at, bags[1], rows_at))
        if not at:
            return value if self.size(rows) else Signed(value.schema, bag={})
        same = " AND ".join(
            f"v.{column_name(i)} IS NOT DISTINCT FROM r.{column_name(j)}"
            for i, j in zip(at, rows_at, strict=True)
        )
        tables = [value.table, self.netted(rows).table]
        query = f"SELECT v.* FROM s0 v SEMI JOIN s1 r ON {same}"
        return Signed(value.schema, self._run(query, tables, value.schema), net=value.net)

    # DuckDB ---------------------------------------------------------------------------------------

    def _as_bags(self, values: Sequence[Signed], limit: int) -> list[Numbered] | None:
        """All values as dicts, when together they are small."""
        if not self._small or sum(value.held for value in values) > limit:
            return None
        bags = [value.bag(limit) for value in values]
        found = [bag for bag in bags if bag is not None]
        return found if len(found) == len(values) else None

    def _run(self, query: str, tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
        """The rows of a query over the tables s0, s1, ..."""
        return self._query(query, {f"s{i}": table for i, table in enumerate(tables)}, schema)

    def _query(self, query: str, tables: Mapping[str, pa.Table], schema: pa.Schema) -> pa.Table:
        """The rows of a query over named tables."""
        small = sum(table.num_rows for table in tables.values()) < SMALL_BATCH
        self._use_threads(1 if small else self._threads)
        with offering(self.db, tables):
            try:
                return self.db.execute(query).to_arrow_table().cast(schema)
            except VALUE_ERRORS as error:
                raise arithmetic(str(error).splitlines()[0], None) from error

    def _use_threads(self, threads: int) -> None:
        if threads != self._in_use:
            self.db.execute(f"SET threads = {threads}")
            self._in_use = threads


class Plan:
    """A tree's scans and its statement, made once.

    What can fail must meet each of its rows and no others, but DuckDB moves conditions below joins and
    leaves out what nobody reads. So it is a statement of its own, over rows that are there.

    Attributes:
        apart: (table, statement, schema), in order.
    """

    def __init__(self, tree: Tree) -> None:
        self.scans = relations(tree)
        self.schema = delta_schema(tree.schema)
        self.fails = any(computes(node) for node in walk(tree))
        self.apart: list[tuple[str, str, pa.Schema]] = []
        self._tables = {name: f"s{index}" for index, name in enumerate(self.scans)}
        self.query = self._text(self._parted(tree, False) if self.fails else tree)
        self.net_query = net_query(self.query, len(tree.schema))
        self.net = is_net(tree)
        self.counted = counted_relations(tree)
        self.product = any(isinstance(node, Join) and not node.on for node in walk(tree))

    def _parted(self, tree: Tree, below: bool) -> Tree:
        """The tree over scans of what is made apart; `below`: something else is over it."""
        under = below or not isinstance(tree, Union)
        over = [self._parted(child, under) for child in tree.children]
        if not computes(tree):
            return tree.over(*over)
        (child,) = over
        tree = tree.over(child if isinstance(child, Scan) else self._alone(child))
        return self._alone(tree) if below else tree

    def _text(self, tree: Tree) -> str:
        return tree_sql(tree, "duckdb", self._tables, numbered=True)

    def _alone(self, tree: Tree) -> Tree:
        name = f"a{len(self.apart)}"
        query = net_query(self._text(tree), len(tree.schema))
        self.apart.append((name, query, delta_schema(tree.schema)))
        self._tables[name] = name
        return Scan(name, tree.schema)


def counted_relations(tree: Tree) -> tuple[str, ...]:
    """The scans below operators that are not linear: their rows must be states."""
    found: dict[str, None] = {}
    for node in walk(tree):
        if isinstance(node, Aggregate | Distinct | Monus):
            found.update(dict.fromkeys(relations(node)))
    return tuple(found)


def _with(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with one column replaced."""
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(name), column)
