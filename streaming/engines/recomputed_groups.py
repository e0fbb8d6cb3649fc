"""Aggregates whose sums round: affected groups anew, at each number at which they change, as SQL.

A sum of doubles depends on the order of its terms, so it cannot be kept as a running total: it
would drift from recomputation, and a retraction would miss its row by the last bit. So the output
row is a function of the group's bag alone: equal rows are netted first, then the products value x
multiplicity are added from the smallest to the largest. Cost: (rows of an affected group) x
(numbers at which it changes). With j the aggregate's index:

    qj  affected (group, number), and (group, -1) for the state before the batch
    zj  the group's bag after each of these numbers
    aj  the old row at -1 and the new one at +1 where they differ
"""

from __future__ import annotations

from streaming.algebra.tree import Aggregate
from streaming.engines.totals import (
    SAME,
    TotalsStep,
    additions,
    arguments,
    key_names,
    keys_of,
    output,
    total_columns,
)
from streaming.scalars.renderings import Dialect

BEFORE = -1
"""Stands for the number before the batch; every real number is larger."""


def recomputed(
    aggregate: Aggregate,
    j: int,
    child: str | None,
    old: str | None,
    dialect: Dialect,
    start: int | None,
) -> list[TotalsStep]:
    """The steps q, z and a for one batch.

    Args:
        child: the table with the child's delta, None for no rows.
        old: SQL of the child's bag before the batch (at least of the affected groups), None if
        empty.
        start: the history's first number when this batch begins it.
    """
    names = key_names(aggregate)
    return [
        TotalsStep(f"q{j}", _affected(aggregate, child, start)),
        TotalsStep(f"z{j}", _bags(aggregate, j, child, old)),
        TotalsStep(f"a{j}", _rows_out(aggregate, j, names, dialect)),
    ]


def recomputed_groups(aggregate: Aggregate, child: str, dialect: Dialect) -> str:
    """The aggregate's rows over a signed bag without numbers."""
    names = key_names(aggregate)
    keys = ", ".join(names)
    bag = _net(f"SELECT {_cells(aggregate, 'y')} FROM ({child}) y", names, aggregate)
    sums = ", ".join(additions(aggregate, dialect, "z"))
    inner = f"SELECT {keys}, {sums} FROM ({bag}) z GROUP BY {keys}"
    if not aggregate.keys:
        filled = _filled(aggregate, dialect, "i")
        inner = f"SELECT 0 AS k0, {filled} FROM (SELECT 1 AS one) u LEFT JOIN ({inner}) i ON TRUE"
    out = _outputs(aggregate, dialect, "o", names)
    return f"SELECT CAST(1 AS BIGINT) AS _multiplicity, {out} FROM ({inner}) o"


def _cells(aggregate: Aggregate, alias: str, number: str | None = None) -> str:
    keys = [
        f"{e} AS {n}" for e, n in zip(keys_of(aggregate, alias), key_names(aggregate), strict=True)
    ]
    columns = [f"{alias}.c{position}" for position, _ in arguments(aggregate)]
    marks = [] if number is None else [f"{number} AS _number"]
    return ", ".join([*marks, *keys, f"{alias}._multiplicity", *columns])


def _net(rows: str, by: list[str], aggregate: Aggregate) -> str:
    grouped = ", ".join([*by, *(f"c{position}" for position, _ in arguments(aggregate))])
    return (
        f"SELECT {grouped}, SUM(n._multiplicity) AS _multiplicity FROM ({rows}) n"
        f" GROUP BY {grouped} HAVING SUM(n._multiplicity) <> 0"
    )


def _affected(aggregate: Aggregate, child: str | None, start: int | None) -> str:
    names = key_names(aggregate)
    parts = []
    if child is not None:
        keys = ", ".join(f"{e} AS {n}" for e, n in zip(keys_of(aggregate, "x"), names, strict=True))
        parts.append(f"SELECT {keys}, x._number FROM {child} x")
        if start is None:
            parts.append(f"SELECT {keys}, {BEFORE} AS _number FROM {child} x")
    if start is not None and not aggregate.keys:
        parts.append(f"SELECT 0 AS k0, {start} AS _number")
    return f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)}) u"


def _bags(aggregate: Aggregate, j: int, child: str | None, old: str | None) -> str:
    names = key_names(aggregate)
    columns = [f"c{position}" for position, _ in arguments(aggregate)]
    parts = []
    if child is not None:
        parts.append(f"SELECT {_cells(aggregate, 'x', 'x._number')} FROM {child} x")
    if old is not None:
        parts.append(f"SELECT {_cells(aggregate, 'y', str(BEFORE))} FROM ({old}) y")
    if not parts:
        types = ", ".join(f"NULL AS {c}" for c in columns)
        rest = f", {types}" if types else ""
        parts.append(f"SELECT 0 AS _number, 0 AS k0, 0 AS _multiplicity{rest}")
    same = " AND ".join([*(f"q.{n} {SAME} b.{n}" for n in names), "b._number <= q._number"])
    keys = ", ".join([*(f"q.{n}" for n in names), "q._number"])
    cells = ", ".join([keys, "b._multiplicity", *(f"b.{c}" for c in columns)])
    rows = f"SELECT {cells} FROM q{j} q JOIN ({' UNION ALL '.join(parts)}) b ON {same}"
    return _net(rows, [*names, "_number"], aggregate)


def _rows_out(aggregate: Aggregate, j: int, names: list[str], dialect: Dialect) -> str:
    keys = ", ".join(names)
    sums = ", ".join(additions(aggregate, dialect, "z"))
    totals = f"SELECT {keys}, _number, {sums} FROM z{j} z GROUP BY {keys}, _number"
    same = " AND ".join([*(f"q.{n} {SAME} i.{n}" for n in names), "q._number = i._number"])
    columns = ", ".join(f"q.{n}" for n in names)
    filled = _filled(aggregate, dialect, "i")
    every = f"SELECT {columns}, q._number, {filled} FROM q{j} q LEFT JOIN ({totals}) i ON {same}"
    out = _outputs(aggregate, dialect, "o", names)
    there = "o.n > 0" if aggregate.keys else "TRUE"
    rows = f"SELECT o._number, {keys}, {there} AS _there, {out} FROM ({every}) o"
    window = f"(PARTITION BY {keys} ORDER BY r._number)"
    width = len(aggregate.schema)
    lags = [f"LAG(r.c{i}) OVER {window} AS o{i}" for i in range(width)]
    lags.append(f"LAG(r._there) OVER {window} AS _was")
    both = f"SELECT r.*, {', '.join(lags)} FROM ({rows}) r"
    differs = " OR ".join(
        ["(NOT b._there) OR NOT COALESCE(b._was, FALSE)"]
        + [f"b.c{i} IS DISTINCT FROM b.o{i}" for i in range(width)]
    )
    news = ", ".join(f"b.c{i}" for i in range(width))
    olds = ", ".join(f"b.o{i} AS c{i}" for i in range(width))
    test = f"b._number > {BEFORE} AND ({differs})"
    return (
        f"WITH b AS ({both})"
        f" SELECT b._number, CAST(-1 AS BIGINT) AS _multiplicity, {olds} FROM b"
        f" WHERE {test} AND COALESCE(b._was, FALSE)"
        f" UNION ALL SELECT b._number, CAST(1 AS BIGINT) AS _multiplicity, {news} FROM b"
        f" WHERE {test} AND b._there"
    )


def _filled(aggregate: Aggregate, dialect: Dialect, alias: str) -> str:
    return ", ".join(
        f"COALESCE({alias}.{n}, 0) AS {n}" for n, _ in total_columns(aggregate, dialect)
    )


def _outputs(aggregate: Aggregate, dialect: Dialect, alias: str, names: list[str]) -> str:
    columns = [f"{alias}.{n}" for n in names][: len(aggregate.keys)]
    columns += [
        output(a, aggregate, dialect, lambda n: f"{alias}.{n}") for a in aggregate.aggregations
    ]
    return ", ".join(f"{e} AS c{i}" for i, e in enumerate(columns))
