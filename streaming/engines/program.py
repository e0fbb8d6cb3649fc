"""A delta plan as a sequence of SQL statements: one rule, two dialects.

Each step names the rows that the next ones read, so that what several terms need is computed once
and the engine knows its size. Tables that exist beforehand, with i a leaf's and j an aggregate's
index:

    di  the batch's delta of a leaf       _number, _multiplicity, c0..
    si  the leaf's bag before the batch   _multiplicity, c0..
    tj  an aggregate's partial totals     see `totals`

A join with the bag of an inner aggregate must not compute all its groups for a few keys, so the
keys of the small side go down to the totals as a *limit*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from streaming.algebra.delta import aggregates, before, delta, is_leaf, leaves, sums_round
from streaming.algebra.tree import (
    Aggregate,
    Before,
    Changes,
    Delta,
    Distinct,
    Join,
    Monus,
    Project,
    Select,
    Tree,
    computes,
)
from streaming.engines.needed_rows import Limit
from streaming.engines.netting import is_net
from streaming.engines.recomputed_groups import recomputed
from streaming.engines.recount import affected_sql, recount_sql
from streaming.engines.sql_text import cast_sql
from streaming.engines.totals import (
    TotalsStep,
    additions,
    key_names,
    keys_of,
    output,
    running,
    total_columns,
)
from streaming.engines.tree_sql import COUNTED, NUMBERED, Renderer, columns, net_query
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Col, Scalar, columns_used
from streaming.scalars.renderings import Dialect


class Program(Renderer):
    """The statements of one view for batches that change the same leaves; made once and kept.

    Args:
        tree: the view.
        dialect: `duckdb` or `spark`.
        changed: the leaves that the batch changes; none for the view's tables alone.
        start: the history's first number when the batch begins it, else None.

    Attributes:
        steps: what the answer reads, in order.
        answer: SQL of the view's delta over the steps, typed, and net per (number, row); None where the
            batch changes nothing.
        met: tables of rows that meet what can fail: no engine may test or compute anything below them.
    """

    def __init__(
        self,
        tree: Tree,
        dialect: Dialect,
        changed: frozenset[Tree] = frozenset(),
        start: int | None = None,
    ) -> None:
        super().__init__(dialect, {})
        self.steps: list[TotalsStep] = []
        self.leaves = leaves(tree)
        self.aggregates = aggregates(tree)
        self.met: set[str] = set()
        self.tree = tree
        self._index: dict[Tree, int] = {before(a): j for j, a in enumerate(self.aggregates)}
        self._tables: dict[Tree, str] = {}
        self._met_tables: dict[Tree, str] = {}
        self._made: dict[Changes, str] = {}
        self._apart(changed, start)
        plan = delta(tree, changed, start)
        self.answer = None if plan is None else self._result(plan)

    def _apart(self, changed: frozenset[Tree], start: int | None) -> None:
        """Makes the steps that are needed whether or not the view's delta reads them.

        An inner aggregate can change under a join whose other side is still empty: the view then
        has no changes from it, its totals do. So can what a join is over and can fail: an error belongs
        to the number of its row, whether or not that meets others.
        """
        for aggregate in self.aggregates:
            inner = delta(aggregate, changed, start)
            if isinstance(inner, Changes) and not sums_round(aggregate):
                self._changes(inner)
        for node in _below_joins(self.tree):
            rows = delta(node, changed, start)
            if rows is not None:
                self.table(rows)

    @cached_property
    def read_again(self) -> frozenset[str]:
        """The steps that others or the answer read more than once."""
        names = re.findall(
            r"\w+", " ".join([self.answer or "", *(step.sql for step in self.steps)])
        )
        read = Counter(names)
        return frozenset(step.name for step in self.steps if read[step.name] > 1)

    def table(self, plan: Tree) -> str:
        """The name of a table with the plan's rows, made by the steps so far."""
        if isinstance(plan, Delta):
            return f"d{self.leaves.index(plan.leaf)}"
        if plan not in self._tables:
            sql = self.query(plan)
            name = f"p{len(self._tables)}"
            if isinstance(plan, Changes) and plan.operator in self._index:
                name = f"a{self._index[plan.operator]}"
            self._tables[plan] = name
            self.steps.append(TotalsStep(name, sql))
        return self._tables[plan]

    def _changes(self, plan: Changes) -> str:
        """Makes the tables that an operator's changed rows need, once; SQL of these rows over them."""
        if plan not in self._made:
            operator = plan.operator
            if isinstance(operator, Aggregate):
                self._made[plan] = self._regrouped(operator, plan.inputs[0], plan.start)
            else:
                self._made[plan] = self._recounted(operator, plan)
        return self._made[plan]

    def _regrouped(self, aggregate: Aggregate, changes: Tree | None, start: int | None) -> str:
        j = self._index[aggregate]
        child = None if changes is None else self.table(changes)
        if sums_round(aggregate):
            old = None
            if start is None:
                limit = None
                if child is not None and aggregate.keys:
                    keys = tuple((key, key) for key in aggregate.keys)
                    limit = Limit(child, keys, nulls=True)
                old = self.query(aggregate.child, limit)
            made = recomputed(aggregate, j, child, old, self.dialect, start)
        else:
            made = running(aggregate, j, child, self.dialect, start)
        self.steps.extend(made[:-1])
        return made[-1].sql

    def _recounted(self, operator: Distinct | Monus, plan: Changes) -> str:
        changes = [None if side is None else self.table(side) for side in plan.inputs]
        name = f"r{sum(not isinstance(each.operator, Aggregate) for each in self._made)}"
        affected = affected_sql(operator, [table for table in changes if table is not None])
        self.steps.append(TotalsStep(name, affected))
        olds = []
        if plan.start is None:
            same = tuple((i, i) for i in range(len(operator.schema)))
            olds = [self.query(c, Limit(name, same, nulls=True)) for c in operator.children]
        return recount_sql(operator, changes, olds)

    def _result(self, plan: Tree) -> str:
        sql = self.query(plan)
        names = columns(len(self.tree.schema))
        typed = "".join(
            f", {cast_sql(f'o.{n}', column.type, self.dialect)} AS {n}"
            for n, column in zip(names, self.tree.schema, strict=True)
        )
        if is_net(plan):
            return f"SELECT o._number, o._multiplicity{typed} FROM ({sql}) o"
        by = ", ".join(f"o.{name}" for name in [NUMBER, *names])
        sums = "CAST(SUM(o._multiplicity) AS BIGINT) AS _multiplicity"
        having = "HAVING SUM(o._multiplicity) <> 0"
        return f"SELECT o._number, {sums}{typed} FROM ({sql}) o GROUP BY {by} {having}"

    def marks(self, tree: Tree) -> tuple[str, ...]:
        return NUMBERED if tree.has_numbers else COUNTED

    def raises(self, tree: Tree) -> bool:
        """Rows without numbers are of earlier batches, where each that failed has ended the view."""
        return tree.has_numbers

    def leaf(self, tree: Tree, limit: Limit | None) -> str:
        match tree:
            case Delta():
                return f"SELECT * FROM {self.table(tree)}"
            case Changes():
                made = self._tables.get(tree)
                return f"SELECT * FROM {made}" if made else self._changes(tree)
            case Before():
                names = ", ".join([MULTIPLICITY, *columns(len(tree.schema))])
                tests = limit.tests("s.c") if limit is not None and limit.nulls else []
                where = f" WHERE {' AND '.join(tests)}" if tests else ""
                return f"SELECT {names} FROM s{self.leaves.index(tree.leaf)} s{where}"
            case _:
                raise TypeError("a delta plan has no scans")

    def below(self, tree: Select | Project, limit: Limit | None) -> str:
        """Rows with numbers meet what can fail in a table, as an engine moves conditions below joins."""
        child = tree.child
        apart = computes(tree) or (isinstance(child, Project) and computes(child))
        return self._met(child) if tree.has_numbers and apart else super().below(tree, limit)

    def side(
        self, side: Tree, other: Tree, on: tuple[tuple[int, int], ...], limit: Limit | None
    ) -> str:
        """A side with numbers becomes a table and limits the side without."""
        if side.has_numbers:
            return f"SELECT * FROM {self.table(side)}"
        if other.has_numbers:
            limit = Limit(self.table(other), on) if on else None
        return self.query(side, limit)

    def _met(self, plan: Tree) -> str:
        """A table of the rows that there are under each number, without pairs that cancel each other."""
        if isinstance(plan, Delta) or is_net(plan):
            self.met.add(self.table(plan))
            return self.table(plan)
        if plan not in self._met_tables:
            sql = net_query(self.table(plan), len(plan.schema))
            self._met_tables[plan] = f"m{len(self._met_tables)}"
            self.met.add(self._met_tables[plan])
            self.steps.append(TotalsStep(self._met_tables[plan], sql))
        return self._met_tables[plan]

    def condition(self, tree: Select | Join, condition: Scalar, names: Sequence[str]) -> str:
        """A condition over computed columns stays where it stands, in Spark too.

        It would write out in it what computes them, and the same again below that: a chain of eight
        subqueries that use a column four times took minutes. What is not deterministic is not moved.
        """
        text = super().condition(tree, condition, names)
        below = tree.child if isinstance(tree, Select) else None
        computed = isinstance(below, Project) and any(
            not isinstance(below.expressions[p], Col) for p in columns_used(condition)
        )
        return f"IF(rand() >= 0, {text}, FALSE)" if computed and self.dialect == "spark" else text

    def aggregate(self, tree: Aggregate, limit: Limit | None) -> str:
        """An aggregate's rows before the batch, from its totals or its child's rows."""
        if sums_round(tree):
            return super().aggregate(tree, limit)
        aggregate = tree
        limit = limit and limit.to([p for p in limit.pairs if p[0] < len(aggregate.keys)])
        j = self._index[aggregate]
        names = key_names(aggregate)
        keys = ", ".join(f"t.{n}" for n in names)
        totals = [name for name, _ in total_columns(aggregate, self.dialect)]
        sums = ", ".join(f"SUM(t.{name}) AS {name}" for name in totals)
        tests = limit.tests("t.k") if limit is not None else []
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        inner = f"SELECT {keys}, {sums} FROM t{j} t{where} GROUP BY {keys}"
        outputs = [
            output(a, aggregate, self.dialect, lambda n: f"o.{n}") for a in aggregate.aggregations
        ]
        columns = [f"o.{n}" for n in names][: len(aggregate.keys)] + outputs
        cells = ", ".join(f"{e} AS c{i}" for i, e in enumerate(columns))
        there = " WHERE o.n > 0" if aggregate.keys else ""
        return f"SELECT CAST(1 AS BIGINT) AS _multiplicity, {cells} FROM ({inner}) o{there}"

    def totals_of(self, j: int) -> str:
        """SQL for an aggregate's whole totals from its child's bag, to rebuild them."""
        aggregate = self.aggregates[j]
        names = key_names(aggregate)
        child = self.query(before(aggregate.child))
        keys = [f"{e} AS {n}" for e, n in zip(keys_of(aggregate, "y"), names, strict=True)]
        sums = additions(aggregate, self.dialect, "y")
        grouped = f"SELECT {', '.join(keys + sums)} FROM ({child}) y"
        if aggregate.keys:
            return f"{grouped} GROUP BY {', '.join(keys_of(aggregate, 'y'))}"
        filled = [f"COALESCE(z.{n}, 0) AS {n}" for n, _ in total_columns(aggregate, self.dialect)]
        return f"SELECT z.k0, {', '.join(filled)} FROM ({grouped}) z"

    def totals_added(self, j: int) -> str:
        """SQL for the partial totals that this batch adds, once its steps have run."""
        aggregate = self.aggregates[j]
        names = key_names(aggregate)
        totals = [name for name, _ in total_columns(aggregate, self.dialect)]
        sums = ", ".join(f"SUM(w.{name}) AS {name}" for name in totals)
        if self.dialect == "duckdb":
            keys = ", ".join(f"k.{n}" for n in names)
            return f"SELECT {keys}, {sums} FROM w{j} w JOIN k{j} k ON w.id = k.id GROUP BY {keys}"
        keys = ", ".join(f"w.{n}" for n in names)
        return f"SELECT {keys}, {sums} FROM w{j} w GROUP BY {keys}"


@lru_cache(maxsize=512)
def program_of(
    tree: Tree, dialect: Dialect, changed: frozenset[Tree], start: int | None = None
) -> Program:
    """See `Program`; made once."""
    return Program(tree, dialect, changed, start)


def _below_joins(tree: Tree, below: bool = False) -> list[Tree]:
    """What can fail below a join, inner ones first; leaves are computed before all else."""
    if is_leaf(tree):
        return []
    here = below or isinstance(tree, Join)
    found = [node for child in tree.children for node in _below_joins(child, here)]
    return [*found, tree] if below and computes(tree) else found
