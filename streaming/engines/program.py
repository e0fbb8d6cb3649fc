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
    Scan,
    Select,
    Tree,
    Union,
    computes,
)
from streaming.engines.needed_rows import Limit
from streaming.engines.netting import is_net
from streaming.engines.recomputed_groups import recomputed, recomputed_groups
from streaming.engines.recount import affected_sql, counts_sql, recount_sql
from streaming.engines.sql_text import (
    cast_sql,
    condition_sql,
    scalar_sql,
    total_condition_sql,
    total_sql,
)
from streaming.engines.totals import (
    Step,
    additions,
    key_names,
    keys_of,
    output,
    running,
    total_columns,
)
from streaming.scalars.expression import NUMBER, Col, column_name, columns_used
from streaming.scalars.failure import fails
from streaming.scalars.renderings import Dialect


class Program:
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
        self.dialect = dialect
        self.steps: list[Step] = []
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
            self.steps.append(Step(name, sql))
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
        self.steps.append(Step(name, affected))
        olds = []
        if plan.start is None:
            same = tuple((i, i) for i in range(len(operator.schema)))
            olds = [self.query(c, Limit(name, same, nulls=True)) for c in operator.children]
        return recount_sql(operator, changes, olds)

    def _result(self, plan: Tree) -> str:
        sql = self.query(plan)
        names = _columns(len(self.tree.schema))
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

    def query(self, plan: Tree, limit: Limit | None = None) -> str:
        """SQL that selects the plan's rows, at least those within the limit."""
        match plan:
            case Delta():
                return f"SELECT * FROM {self.table(plan)}"
            case Changes():
                made = self._tables.get(plan)
                return f"SELECT * FROM {made}" if made else self._changes(plan)
            case Before():
                names = ", ".join(["_multiplicity", *_columns(len(plan.leaf.schema))])
                tests = limit.tests("s.c") if limit is not None and limit.nulls else []
                where = f" WHERE {' AND '.join(tests)}" if tests else ""
                return f"SELECT {names} FROM s{self.leaves.index(plan.leaf)} s{where}"
            case Aggregate():
                return self._groups(plan, limit)
            case Distinct() | Monus():
                return counts_sql(plan, [self.query(side, limit) for side in plan.children])
            case Select():
                return self._filter(plan, limit)
            case Project():
                return self._map(plan, limit)
            case Union():
                return " UNION ALL ".join(f"({self.query(part, limit)})" for part in plan.children)
            case Join():
                return self._match(plan, limit)
            case Scan():
                raise TypeError("a plan has no scans")

    def _met(self, plan: Tree) -> str:
        """A table of the rows that there are under each number, without pairs that cancel each other."""
        if isinstance(plan, Delta) or is_net(plan):
            self.met.add(self.table(plan))
            return self.table(plan)
        if plan not in self._met_tables:
            by = ", ".join([NUMBER, *_columns(len(plan.schema))])
            total = "SUM(n._multiplicity)"
            sql = (
                f"SELECT {by}, CAST({total} AS BIGINT) AS _multiplicity FROM {self.table(plan)} n"
                f" GROUP BY {by} HAVING {total} <> 0"
            )
            self._met_tables[plan] = f"m{len(self._met_tables)}"
            self.met.add(self._met_tables[plan])
            self.steps.append(Step(self._met_tables[plan], sql))
        return self._met_tables[plan]

    def _filter(self, plan: Select, limit: Limit | None) -> str:
        """Rows with numbers are tested in a table, as an engine moves conditions below joins.

        Those without are of earlier batches, where each that failed has ended the view.
        """
        columns = [f"x.{name}" for name in _columns(len(plan.child.schema))]
        if not plan.has_numbers:
            condition = total_condition_sql(plan.condition, self.dialect, columns)
            condition = self._unmoved(plan, condition)
            return f"SELECT * FROM ({self.query(plan.child, limit)}) x WHERE {condition}"
        apart = fails(plan.condition) or _fails(plan.child)
        rows = self._met(plan.child) if apart else f"({self.query(plan.child, limit)})"
        condition = self._unmoved(plan, condition_sql(plan.condition, self.dialect, columns))
        return f"SELECT * FROM {rows} x WHERE {condition}"

    def _unmoved(self, plan: Select, condition: str) -> str:
        """A condition over computed columns that Spark leaves where it stands.

        It would write out in it what computes them, and the same again below that: a chain of eight
        subqueries that use a column four times took minutes. What is not deterministic is not moved.
        """
        computes = isinstance(plan.child, Project) and any(
            not isinstance(plan.child.expressions[p], Col) for p in columns_used(plan.condition)
        )
        if self.dialect == "duckdb" or not computes:
            return condition
        return f"IF(rand() >= 0, {condition}, FALSE)"

    def _map(self, plan: Project, limit: Limit | None) -> str:
        names = [f"x.{n}" for n in _columns(len(plan.child.schema))]
        below = None
        if limit is not None:
            kept = [(plan.expressions[p], q) for p, q in limit.pairs]
            below = limit.to([(e.position, q) for e, q in kept if isinstance(e, Col)])
        marks = ["x._number"] if plan.has_numbers else []
        cells = [*marks, "x._multiplicity"]
        text = scalar_sql if marks else total_sql
        for position, e in enumerate(plan.expressions):
            cells.append(f"{text(e, self.dialect, names)} AS c{position}")
        if marks and (_fails(plan) or _fails(plan.child)):
            return f"SELECT {', '.join(cells)} FROM {self._met(plan.child)} x"
        return f"SELECT {', '.join(cells)} FROM ({self.query(plan.child, below)}) x"

    def _match(self, plan: Join, limit: Limit | None) -> str:
        left, right = self._operands(plan, limit)
        numbered = [s for s, p in (("l", plan.left), ("r", plan.right)) if p.has_numbers]
        cells = []
        if len(numbered) == 2:
            cells.append("greatest(l._number, r._number) AS _number")
        elif numbered:
            cells.append(f"{numbered[0]}._number")
        cells.append("l._multiplicity * r._multiplicity AS _multiplicity")
        names = [f"l.{n}" for n in _columns(len(plan.left.schema))]
        names += [f"r.{n}" for n in _columns(len(plan.right.schema))]
        cells += [f"{name} AS c{position}" for position, name in enumerate(names)]
        tests = [f"l.c{a} = r.c{b}" for a, b in plan.on]
        if plan.condition is not None:
            text = condition_sql if numbered else total_condition_sql
            tests.append(text(plan.condition, self.dialect, names))
        join = (
            f"({left}) l JOIN ({right}) r ON {' AND '.join(tests)}"
            if plan.on
            else (f"({left}) l CROSS JOIN ({right}) r" + (f" WHERE {tests[0]}" if tests else ""))
        )
        return f"SELECT {', '.join(cells)} FROM {join}"

    def _operands(self, plan: Join, limit: Limit | None) -> tuple[str, str]:
        """Both sides' SQL; a side with numbers becomes a table and limits the side without."""
        swapped = tuple((b, a) for a, b in plan.on)
        left = self._operand(plan.left, plan.right, plan.on, limit)
        if limit is not None:
            width = len(plan.left.schema)
            limit = limit.to([(p - width, q) for p, q in limit.pairs if p >= width])
        return left, self._operand(plan.right, plan.left, swapped, limit)

    def _operand(
        self, plan: Tree, other: Tree, on: tuple[tuple[int, int], ...], limit: Limit | None
    ) -> str:
        if plan.has_numbers:
            return f"SELECT * FROM {self.table(plan)}"
        if other.has_numbers:
            return self.query(plan, Limit(self.table(other), on) if on else None)
        width = len(plan.schema)
        within = limit and limit.to([pair for pair in limit.pairs if pair[0] < width])
        return self.query(plan, within)

    def _groups(self, aggregate: Aggregate, limit: Limit | None) -> str:
        """An aggregate's rows before the batch, from its totals or its child's rows."""
        limit = limit and limit.to([p for p in limit.pairs if p[0] < len(aggregate.keys)])
        if sums_round(aggregate):
            below = limit and limit.to([(aggregate.keys[p], q) for p, q in limit.pairs])
            child = self.query(aggregate.child, below)
            return recomputed_groups(aggregate, child, self.dialect)
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


def _fails(plan: Tree) -> bool:
    """Whether the plan computes what can fail: it is a table of its own, so that it meets each row."""
    return isinstance(plan, Project) and any(fails(e) for e in plan.expressions)


def _below_joins(tree: Tree, below: bool = False) -> list[Tree]:
    """What can fail below a join, inner ones first; leaves are computed before all else."""
    if is_leaf(tree):
        return []
    here = below or isinstance(tree, Join)
    found = [node for child in tree.children for node in _below_joins(child, here)]
    return [*found, tree] if below and computes(tree) else found


def _columns(width: int) -> list[str]:
    return [column_name(position) for position in range(width)]
