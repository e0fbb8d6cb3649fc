"""Trees to SQL text for DuckDB and Spark: one rule for each operator, whatever its rows carry.

Every relation, given or computed, has columns c0..cN by position (`column_name`), so no name of a user's
meets an engine's rules. Before them come the *marks* of a row, in this order:

    plain      none: a row stands as often as it occurs
    counted    `_multiplicity`: the bag of a delta plan before its batch
    numbered   `_number`, `_multiplicity`: signed rows under the numbers of transactions

Linear operators keep the marks; a pair of a join carries the larger number, and the multiplicities
multiply. What is not linear needs a state; its rows are of number 0 where rows are numbered.

`Renderer` makes views' trees plain or numbered; `program` gives delta plans' parts names and tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    PlanNode,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.engines.needed_rows import Limit
from streaming.engines.recomputed_groups import recomputed_groups
from streaming.engines.recount import counts_sql
from streaming.engines.sql_text import (
    aggregation_sql,
    condition_sql,
    key_sql,
    scalar_sql,
    total_condition_sql,
    total_sql,
)
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Col, Scalar, column_name
from streaming.scalars.renderings import Dialect

PLAIN: tuple[str, ...] = ()
COUNTED: tuple[str, ...] = (MULTIPLICITY,)
NUMBERED: tuple[str, ...] = (NUMBER, MULTIPLICITY)


def tree_sql(
    tree: Tree, dialect: Dialect, tables: Mapping[str, str], *, numbered: bool = False
) -> str:
    """A view's tree as one SELECT of its marks and c0..cN; not net where it is numbered.

    Args:
        tables: from a relation's name to a table expression with such columns: a quoted name, or a
            query in parentheses.

    Raises:
        KeyError: a scanned relation is not in `tables`.
    """
    return Renderer(dialect, tables, NUMBERED if numbered else PLAIN).query(tree)


def net_query(query: str, width: int) -> str:
    """Each (number, row) of a query once; what cancels is left out."""
    keys = ", ".join([NUMBER, *columns(width)])
    total = f"CAST(SUM({MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}"
    cells = ", ".join([NUMBER, total, *columns(width)])
    source = query if query.isidentifier() else f"({query})"
    return f"SELECT {cells} FROM {source} n GROUP BY {keys} HAVING SUM({MULTIPLICITY}) <> 0"


def columns(width: int, alias: str = "") -> list[str]:
    """c0 and so on."""
    return [f"{alias}{column_name(position)}" for position in range(width)]


def named(outputs: Sequence[str]) -> str:
    """The texts as c0 and so on."""
    return ", ".join(f"{text} AS {column_name(i)}" for i, text in enumerate(outputs))


class Renderer:
    """The text of each operator over the text of what is below it.

    A query under a limit has at least the rows within it.

    Args:
        tables: by relation, what its rows are selected from.
        marks: those of the tables.
    """

    def __init__(
        self, dialect: Dialect, tables: Mapping[str, str], marks: tuple[str, ...] = PLAIN
    ) -> None:
        self.dialect = dialect
        self._tables_of = tables
        self._marks = marks

    # What a plan has otherwise --------------------------------------------------------------------

    def marks(self, tree: Tree) -> tuple[str, ...]:
        """What the tree's rows carry before their values."""
        return self._marks

    def raises(self, tree: Tree) -> bool:
        """Whether the node's text raises where an expression of it fails; else it never does."""
        return True

    def leaf(self, tree: Tree, limit: Limit | None) -> str:
        """The query of what nothing is below."""
        if not isinstance(tree, Scan):
            raise TypeError(f"{type(tree).__name__} stands in delta plans only")
        names = ", ".join([*self.marks(tree), *columns(len(tree.schema))])
        return f"SELECT {names} FROM {self._tables_of[tree.relation]} t"

    def below(self, tree: Select | Project, limit: Limit | None) -> str:
        """What the node's rows are selected from."""
        return f"({self.query(tree.child, limit)})"

    def side(
        self, side: Tree, other: Tree, on: tuple[tuple[int, int], ...], limit: Limit | None
    ) -> str:
        """A join's side, whose columns meet the other's as `on` says."""
        return self.query(side, limit)

    # Operators ------------------------------------------------------------------------------------

    def query(self, tree: Tree, limit: Limit | None = None) -> str:
        """SQL that selects the tree's rows."""
        match tree:
            case Scan() | PlanNode():
                return self.leaf(tree, limit)
            case Select():
                return self._select(tree, limit)
            case Project():
                return self._project(tree, limit)
            case Union():
                return " UNION ALL ".join(f"({self.query(c, limit)})" for c in tree.children)
            case Join():
                return self._join(tree, limit)
            case Aggregate():
                return self.aggregate(tree, limit)
            case Distinct() | Monus():
                return self._counts(tree, limit)

    def condition(self, tree: Select | Join, condition: Scalar, names: Sequence[str]) -> str:
        """Text of whether a row passes."""
        text = condition_sql if self.raises(tree) else total_condition_sql
        return text(condition, self.dialect, names)

    def _select(self, tree: Select, limit: Limit | None) -> str:
        condition = self.condition(tree, tree.condition, columns(len(tree.schema), "x."))
        return f"SELECT * FROM {self.below(tree, limit)} x WHERE {condition}"

    def _project(self, tree: Project, limit: Limit | None) -> str:
        if limit is not None:
            kept = [(tree.expressions[p], q) for p, q in limit.pairs]
            limit = limit.to([(e.position, q) for e, q in kept if isinstance(e, Col)])
        names = columns(len(tree.child.schema), "x.")
        text = scalar_sql if self.raises(tree) else total_sql
        outputs = named([text(e, self.dialect, names) for e in tree.expressions])
        cells = ", ".join([*(f"x.{mark}" for mark in self.marks(tree)), outputs])
        return f"SELECT {cells} FROM {self.below(tree, limit)} x"

    def _join(self, tree: Join, limit: Limit | None) -> str:
        width = len(tree.left.schema)
        here = limit and limit.to([(p, q) for p, q in limit.pairs if p < width])
        there = limit and limit.to([(p - width, q) for p, q in limit.pairs if p >= width])
        left = self.side(tree.left, tree.right, tree.on, here)
        right = self.side(tree.right, tree.left, tuple((b, a) for a, b in tree.on), there)
        names = columns(width, "l.") + columns(len(tree.right.schema), "r.")
        cells = ", ".join([*self._pair_marks(tree), named(names)])
        tests = [f"l.{column_name(a)} = r.{column_name(b)}" for a, b in tree.on]
        if tree.condition is not None:
            tests.append(self.condition(tree, tree.condition, names))
        if tree.on:
            return f"SELECT {cells} FROM ({left}) l JOIN ({right}) r ON {' AND '.join(tests)}"
        where = f" WHERE {tests[0]}" if tests else ""
        return f"SELECT {cells} FROM ({left}) l CROSS JOIN ({right}) r{where}"

    def _pair_marks(self, tree: Join) -> list[str]:
        sides = (("l", self.marks(tree.left)), ("r", self.marks(tree.right)))
        numbers = [f"{side}.{NUMBER}" for side, marks in sides if NUMBER in marks]
        counts = [f"{side}.{MULTIPLICITY}" for side, marks in sides if MULTIPLICITY in marks]
        found = []
        if numbers:
            larger = f"greatest({', '.join(numbers)})" if len(numbers) > 1 else numbers[0]
            found.append(f"{larger} AS {NUMBER}")
        if counts:
            found.append(f"{' * '.join(counts)} AS {MULTIPLICITY}")
        return found

    def aggregate(self, tree: Aggregate, limit: Limit | None) -> str:
        """One row for each group; without keys exactly one."""
        if limit is not None:
            limit = limit.to([(tree.keys[p], q) for p, q in limit.pairs if p < len(tree.keys)])
        child = self.query(tree.child, limit)
        if self.marks(tree):
            return self._state(tree, recomputed_groups(tree, child, self.dialect))
        names, types = columns(len(tree.child.schema), "x."), [c.type for c in tree.child.schema]
        keys = [key_sql(names[position], types[position]) for position in tree.keys]
        outputs = [aggregation_sql(a, names, types, self.dialect) for a in tree.aggregations]
        query = f"SELECT {named(keys + outputs)} FROM ({child}) x"
        return f"{query} GROUP BY {', '.join(keys)}" if keys else query

    def _counts(self, tree: Distinct | Monus, limit: Limit | None) -> str:
        sides = [self.query(side, limit) for side in tree.children]
        if self.marks(tree):
            return self._state(tree, counts_sql(tree, sides))
        if isinstance(tree, Distinct):
            return f"SELECT DISTINCT * FROM ({sides[0]}) x"
        return f"({sides[0]}) EXCEPT ALL ({sides[1]})"

    def _state(self, tree: Tree, counted: str) -> str:
        """A state's counted rows with the tree's marks."""
        if NUMBER not in self.marks(tree):
            return counted
        return f"SELECT CAST(0 AS BIGINT) AS {NUMBER}, s.* FROM ({counted}) s"
