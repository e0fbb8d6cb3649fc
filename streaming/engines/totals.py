"""Running totals: an aggregate's changes under every number, as SQL for both engines.

What a group adds up to is linear in its rows, so the state of an aggregate is a bag of *partial
totals* (keys, row count `n`, and for each argument at position p the count of non-NULLs `np` and,
where it is summed, the sum `sp`): a group's totals are the sum of its partial rows. Advancing only
appends. The steps for one batch, with j the aggregate's index:

    kj  the batch's groups and their totals before it
    gj  what each (group, number) adds
    wj  gj with the additions so far within the batch
    aj  for each changed output row the old one at -1 and the new one at +1

Totals are exact: HUGEINT or DECIMAL(38,s) in DuckDB; in Spark, where even a sum of two decimals
loses scale near 38 digits, DECIMAL(38,0) of the unscaled units; the view's own type is checked when
the output row is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streaming.algebra.tree import Aggregate, Aggregation
from streaming.engines.sql_text import cast_sql, key_sql
from streaming.scalars.exact import duck_average, spark_average
from streaming.scalars.renderings import Dialect
from streaming.scalars.types import FLOATS, MAX_PRECISION, decimal, decimal_parts

SAME = "IS NOT DISTINCT FROM"


@dataclass(frozen=True)
class TotalsStep:
    """One statement of a program: `name` becomes what `sql` selects."""

    name: str
    sql: str
    sort: Aggregate | None = None
    """DuckDB: this step and the next may be done by `cumulate` from the rows of `entries`."""
    entries: str = ""


def key_names(aggregate: Aggregate) -> list[str]:
    """k0, k1, ...; without keys one constant key stands for the only group."""
    return [f"k{i}" for i in range(max(1, len(aggregate.keys)))]


def key_types(aggregate: Aggregate) -> list[str]:
    """The keys' types, in order."""
    return [aggregate.child.schema[key].type for key in aggregate.keys] or ["int"]


def keys_of(aggregate: Aggregate, alias: str) -> list[str]:
    """The keys as expressions over the child's rows."""
    types = [aggregate.child.schema[key].type for key in aggregate.keys]
    columns = [f"{alias}.c{key}" for key in aggregate.keys]
    return list(map(key_sql, columns, types)) or ["CAST(0 AS INT)"]


def arguments(aggregate: Aggregate) -> list[tuple[int, bool]]:
    """(position, is it summed) of each argument."""
    summed: dict[int, bool] = {}
    for a in aggregate.aggregations:
        if a.argument is not None:
            summed[a.argument] = summed.get(a.argument, False) or a.function in ("sum", "avg")
    return sorted(summed.items())


def total_columns(aggregate: Aggregate, dialect: Dialect) -> list[tuple[str, str]]:
    """(name, engine's type) of the totals' columns."""
    columns = [("n", "BIGINT")]
    for position, summed in arguments(aggregate):
        columns.append((f"n{position}", "BIGINT"))
        if summed:
            type_ = total_type(aggregate.child.schema[position].type, dialect)
            columns.append((f"s{position}", type_))
    return columns


def total_type(type_: str, dialect: Dialect) -> str:
    """The engine's exact type in which a column is summed."""
    if type_ in FLOATS:
        return "DOUBLE"
    if dialect == "spark":
        return "DECIMAL(38,0)"
    parts = decimal_parts(type_)
    return f"DECIMAL(38,{parts[1]})" if parts else "HUGEINT"


def additions(aggregate: Aggregate, dialect: Dialect, alias: str) -> list[str]:
    """What a group of signed rows adds to each total, as aggregate expressions."""
    m = f"{alias}._multiplicity"
    found = [f"CAST(SUM({m}) AS BIGINT) AS n"]
    for position, summed in arguments(aggregate):
        c = f"{alias}.c{position}"
        found.append(
            f"CAST(SUM(CASE WHEN {c} IS NULL THEN 0 ELSE {m} END) AS BIGINT) AS n{position}"
        )
        if summed:
            type_ = aggregate.child.schema[position].type
            total = f"SUM({_term(c, m, type_, dialect)})"
            if type_ in FLOATS:
                total = _ordered_sum(f"CAST({c} AS DOUBLE) * {m}", dialect)
            cast = f"CAST({total} AS {total_type(type_, dialect)})"
            found.append(f"COALESCE({cast}, 0) AS s{position}")
    return found


def _ordered_sum(term: str, dialect: Dialect) -> str:
    """A sum of doubles from the smallest term to the largest: the same bits for the same bag."""
    if dialect == "duckdb":
        return f"SUM({term} ORDER BY {term})"
    terms = f"array_sort(collect_list({term}))"
    return f"aggregate({terms}, CAST(0 AS DOUBLE), (a, x) -> a + x)"


def _term(c: str, m: str, type_: str, dialect: Dialect) -> str:
    """A column times a multiplicity, exactly."""
    parts = decimal_parts(type_)
    if dialect == "duckdb":
        if parts:
            return f"{c} * {m}"
        return f"CAST({c} AS {'HUGEINT' if type_ == 'bigint' else 'BIGINT'}) * {m}"
    units = c
    if parts and parts[1]:
        precision, scale = parts
        units = f"{c} * CAST('1{'0' * scale}' AS DECIMAL({scale + 1},0))"
        if precision + scale + 2 > MAX_PRECISION:
            units = f"replace(CAST({c} AS STRING), '.', '')"
    return f"CAST({units} AS DECIMAL(38,0)) * CAST({m} AS DECIMAL(10,0))"


def output(a: Aggregation, aggregate: Aggregate, dialect: Dialect, of: Callable[[str], str]) -> str:
    """An output column from a group's totals, in the view's type; NULL for sums of nothing.

    Args:
        of: the expression of a total by its name (`n`, `n3`, `s3`).
    """
    if a.function == "count_all" or a.argument is None:
        return of("n")
    n, s = of(f"n{a.argument}"), of(f"s{a.argument}")
    if a.function == "count":
        return n
    type_ = aggregate.child.schema[a.argument].type
    if a.function == "sum":
        value = _scaled(s, type_, a.type) if dialect == "spark" else cast_sql(s, a.type, dialect)
        return f"CASE WHEN {n} = 0 THEN NULL ELSE {value} END"
    if dialect == "duckdb":
        return duck_average(s, n, total_type(type_, dialect).lower(), a.type)
    parts = decimal_parts(type_)
    wide = decimal(MAX_PRECISION, parts[1]) if parts else type_
    return spark_average(_scaled(s, type_, wide) if parts else s, n, wide, a.type)


def _scaled(units: str, type_: str, result: str) -> str:
    """Spark: a column's total of unscaled units in its true scale; raises where it does not fit.

    Through text, as every decimal operation would cut the scale of a total of 38 digits.
    """
    parts = decimal_parts(type_)
    text = f"concat(CAST({units} AS STRING), 'E-{parts[1]}')" if parts and parts[1] else units
    return f"CAST({text} AS {result})"


def changed(aggregate: Aggregate, dialect: Dialect, appears: str) -> str:
    """Whether (group, number) changes the output row; over `k` (before), `w.r_*` and `w.*`."""

    def after(name: str) -> str:
        return f"(k.{name} + w.r_{name})"

    def earlier(name: str) -> str:
        return f"(k.{name} + w.r_{name} - w.{name})"

    existence = f"({earlier('n')} > 0) <> ({after('n')} > 0)"
    tests = [existence if aggregate.keys else appears]
    for a in aggregate.aggregations:
        if a.function == "count_all":
            tests.append("w.n <> 0")
        elif a.function == "count":
            tests.append(f"w.n{a.argument} <> 0")
        elif a.function == "sum":
            n = f"n{a.argument}"
            tests.append(f"w.s{a.argument} <> 0 OR ({earlier(n)} = 0) <> ({after(n)} = 0)")
        else:
            old, new = (output(a, aggregate, dialect, of) for of in (earlier, after))
            tests.append(f"({old}) IS DISTINCT FROM ({new})")
    return " OR ".join(f"({test})" for test in tests)


def running(
    aggregate: Aggregate, j: int, child: str | None, dialect: Dialect, start: int | None
) -> list[TotalsStep]:
    """The steps k, g, w and a of one aggregate for one batch.

    Args:
        j: the aggregate's index; its partial totals are in table `tj`.
        child: the table with the child's delta, None for no rows.
        start: the history's first number when this batch begins it (there are no totals yet).
    """
    names, totals = key_names(aggregate), [name for name, _ in total_columns(aggregate, dialect)]
    rows = _rows(aggregate, child, start)
    return [
        TotalsStep(f"k{j}", _groups(aggregate, j, rows, dialect, start)),
        TotalsStep(
            f"g{j}", _added(aggregate, j, rows, dialect), aggregate, _entries(aggregate, j, rows)
        ),
        TotalsStep(f"w{j}", _cumulated(j, names, totals, dialect)),
        TotalsStep(f"a{j}", _rows_out(aggregate, j, dialect, start)),
    ]


def _rows(aggregate: Aggregate, child: str | None, start: int | None) -> str:
    """The child's rows with keys k*; the only group of a keyless aggregate begins at `start`."""
    names = key_names(aggregate)
    columns = [f"c{position}" for position, _ in arguments(aggregate)]
    parts = []
    if child is not None:
        keys = [f"{e} AS {n}" for e, n in zip(keys_of(aggregate, "x"), names, strict=True)]
        cells = ", ".join(["x._number", "x._multiplicity", *keys, *(f"x.{c}" for c in columns)])
        parts.append(f"SELECT {cells} FROM {child} x")
    if start is not None and not aggregate.keys:
        nulls = [f"NULL AS {c}" for c in columns]
        cells = ", ".join([f"{start} AS _number", "0 AS _multiplicity", "0 AS k0", *nulls])
        parts.append(f"SELECT {cells}")
    return "(" + " UNION ALL ".join(parts) + ")"


def _groups(aggregate: Aggregate, j: int, rows: str, dialect: Dialect, start: int | None) -> str:
    names, totals = key_names(aggregate), [name for name, _ in total_columns(aggregate, dialect)]
    keys = ", ".join(names)
    group_id = "CAST(row_number() OVER () AS INTEGER) AS id, " if dialect == "duckdb" else ""
    distinct = f"SELECT DISTINCT {keys} FROM {rows} y"
    if start is not None:
        zeros = ", ".join(f"0 AS {name}" for name in totals)
        return f"SELECT {group_id}{keys}, {zeros} FROM ({distinct}) d"
    same = " AND ".join(f"d.{n} {SAME} t.{n}" for n in names)
    sums = ", ".join(f"SUM(t.{name}) AS {name}" for name in totals)
    qualified = ", ".join(f"t.{n}" for n in names)
    if dialect == "duckdb":
        found = f"t{j} t WHERE t._hash IN (SELECT hash({keys}) FROM d)"
    else:
        found = f"t{j} t LEFT SEMI JOIN d ON {same}"
    before = f"SELECT {qualified}, {sums} FROM {found} GROUP BY {qualified}"
    cells = ", ".join([f"d.{n}" for n in names] + [f"COALESCE(t.{n}, 0) AS {n}" for n in totals])
    joined = f"d LEFT JOIN ({before}) t ON {same}"
    return f"WITH d AS ({distinct}) SELECT {group_id}{cells} FROM {joined}"


def _entries(aggregate: Aggregate, j: int, rows: str) -> str:
    """DuckDB: the child's rows with their group's id."""
    names = key_names(aggregate)
    same = " AND ".join(f"y.{n} {SAME} k.{n}" for n in names)
    columns = "".join(f", y.c{position}" for position, _ in arguments(aggregate))
    cells = f"y._number, k.id, y._multiplicity{columns}"
    return f"SELECT {cells} FROM {rows} y JOIN k{j} k ON {same}"


def _added(aggregate: Aggregate, j: int, rows: str, dialect: Dialect) -> str:
    names = key_names(aggregate)
    sums = ", ".join(additions(aggregate, dialect, "y"))
    if dialect == "duckdb":
        same = " AND ".join(f"y.{n} {SAME} k.{n}" for n in names)
        return (
            f"SELECT y._number, k.id, {sums} FROM {rows} y JOIN k{j} k ON {same}"
            " GROUP BY y._number, k.id"
        )
    keys = ", ".join(f"y.{n}" for n in names)
    return f"SELECT y._number, {keys}, {sums} FROM {rows} y GROUP BY y._number, {keys}"


def _cumulated(j: int, names: list[str], totals: list[str], dialect: Dialect) -> str:
    group = "g.id" if dialect == "duckdb" else ", ".join(f"g.{n}" for n in names)
    window = f"(PARTITION BY {group} ORDER BY g._number ROWS UNBOUNDED PRECEDING)"
    sums = ", ".join(f"SUM(g.{name}) OVER {window} AS r_{name}" for name in totals)
    return f"SELECT g.*, {sums} FROM g{j} g"


def _rows_out(aggregate: Aggregate, j: int, dialect: Dialect, start: int | None) -> str:
    names, totals = key_names(aggregate), [name for name, _ in total_columns(aggregate, dialect)]
    appears = f"w._number = {start}" if start is not None else "1 = 0"
    test = changed(aggregate, dialect, appears)
    if dialect == "duckdb":
        same, signs = "w.id = k.id", "(VALUES (-1), (1)) v(sign)"
    else:
        same = " AND ".join(f"w.{n} {SAME} k.{n}" for n in names)
        signs = "(SELECT explode(array(-1, 1)) AS sign) v"
    values = [
        f"k.{n} + w.r_{n} - CASE WHEN v.sign < 0 THEN w.{n} ELSE 0 END AS {n}" for n in totals
    ]
    cells = ", ".join(["w._number", "v.sign", *(f"k.{n}" for n in names), *values])
    keyless = f"NOT ({appears} AND v.sign < 0)"
    there = "o.n > 0" if aggregate.keys else "TRUE"
    kept = "TRUE" if aggregate.keys else keyless
    source = f"w{j} w JOIN k{j} k ON {same} CROSS JOIN {signs}"
    inner = f"SELECT {cells} FROM {source} WHERE ({test}) AND {kept}"
    outputs = [
        output(a, aggregate, dialect, lambda name: f"o.{name}") for a in aggregate.aggregations
    ]
    columns = [f"o.{n}" for n in names][: len(aggregate.keys)] + outputs
    out = ", ".join(f"{e} AS c{i}" for i, e in enumerate(columns))
    return (
        f"SELECT o._number, CAST(o.sign AS BIGINT) AS _multiplicity, {out} FROM ({inner}) o"
        f" WHERE {there}"
    )


def folded_totals_sql(aggregate: Aggregate, j: int, dialect: Dialect) -> str:
    """An aggregate's partial totals added up, without the groups that are gone."""
    keys = ", ".join(f"t.{n}" for n in key_names(aggregate))
    sums = ", ".join(
        f"CAST(SUM(t.{n}) AS {type_}) AS {n}" for n, type_ in total_columns(aggregate, dialect)
    )
    alive = " HAVING SUM(t.n) <> 0" if aggregate.keys else ""
    return f"SELECT {keys}, {sums} FROM t{j} t GROUP BY {keys}{alive}"
