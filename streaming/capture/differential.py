"""The snapshot-differential monitor's arithmetic (strobe-family 3, DESIGN 6: legacy sources).

A source without a log is known by its successive snapshots. Each is brought into one *form*, a Parquet
file of typed columns, and the difference of two forms is what a transaction between them would have
changed:

* with a key: rows of a key that is new are inserted, of one that is gone deleted, and where any column is
  not the same the row was updated;
* without: rows are counted in both, and the surplus is deleted and inserted, row by row (bags).

Everything is a query of DuckDB over files, which spills to disk what memory does not hold. NULL is the
same as NULL, NaN as NaN, 0.0 as -0.0. The same two forms always give the same events in the same order,
so a difference whose publication broke off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from streaming.captured.captured_schema import CapturedRelation, source_type
from streaming.captured.json_values import exact_digits
from streaming.engines.duck_engine import duck_engine
from streaming.errors import FrescoError
from streaming.scalars.types import decimal_parts

MEMORY = "512MB"
"""Of DuckDB; what is more goes to its temporary folder."""
_INTEGERS = {"smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}


def open_engine(folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with bounded memory; what it spills goes below `folder`."""
    engine = duck_engine()
    spill = str(folder / "spill").replace("'", "''")
    engine.execute(
        f"SET TimeZone = 'UTC'; SET threads = 2; SET memory_limit = '{MEMORY}';"
        f" SET temp_directory = '{spill}'; SET preserve_insertion_order = true"
    )
    return engine


# Forms --------------------------------------------------------------------------------------------


def write_form(
    engine: duckdb.DuckDBPyConnection, texts: str, captured: CapturedRelation, file: Path
) -> int:
    """Bring a snapshot of one table into its form; returns how many rows it has.

    Args:
        texts: SQL of its rows, every column a text under its own name (NULL: no value).
        file: the Parquet file; columns c0, c1, ...

    Raises:
        FrescoError: SNAPSHOT_VALUE, SNAPSHOT_KEY_NULL, SNAPSHOT_KEY_DUPLICATE, SNAPSHOT_UNREADABLE.
    """
    name = captured.relation.name
    schema = captured.relation.schema
    refs = [f's."{column.name.replace(chr(34), chr(34) * 2)}"' for column in schema]
    cells = [_typed(captured, at, ref) for at, ref in enumerate(refs)]
    try:
        wrong = [
            f"count(*) FILTER ({ref} IS NOT NULL AND ({cell}) IS NULL),"
            f" min({ref}) FILTER ({ref} IS NOT NULL AND ({cell}) IS NULL)"
            for ref, cell in zip(refs, cells, strict=True)
        ]
        found = engine.execute(f"SELECT {', '.join(wrong)} FROM ({texts}) s").fetchone() or ()
        for at in range(len(schema)):
            if found[2 * at]:
                raise _unfit(captured, at, found[2 * at], str(found[2 * at + 1]))
        listed = ", ".join(f"{cell} AS c{at}" for at, cell in enumerate(cells))
        target = str(file).replace("'", "''")
        engine.execute(f"COPY (SELECT {listed} FROM ({texts}) s) TO '{target}' (FORMAT parquet)")
        (rows,) = engine.execute(f"SELECT count(*) FROM {form(file)}").fetchone() or (0,)
    except duckdb.Error as error:
        raise FrescoError(
            "SNAPSHOT_UNREADABLE",
            f"the snapshot of {name} cannot be read: {str(error).splitlines()[0]}",
            where=name,
            todo="write it anew, whole, under another name that sorts after the last one",
        ) from None
    _check_key(engine, captured, file)
    return int(rows)


def write_fitted(
    engine: duckdb.DuckDBPyConnection,
    captured: CapturedRelation,
    old: Path | None,
    columns: Sequence[str],
    new: Path,
    file: Path,
) -> None:
    """Bring a form into the columns of a newer one, by name; NULL where it has none.

    Args:
        old: a form with `columns`; None for a table that was not there, which has no rows.
        new: the form of `captured`.
    """
    listed = ", ".join(
        f"c{columns.index(column.name)} AS c{at}" if column.name in columns else f"NULL AS c{at}"
        for at, column in enumerate(captured.relation.schema)
    )
    typed = f"SELECT * FROM {form(new)} WHERE false"
    rows = typed if old is None else f"{typed} UNION ALL SELECT {listed} FROM {form(old)}"
    target = str(file).replace("'", "''")
    engine.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")


def form(file: Path) -> str:
    """SQL of a form's rows."""
    return f"read_parquet('{str(file).replace(chr(39), chr(39) * 2)}')"


def _typed(captured: CapturedRelation, at: int, text: str) -> str:
    """SQL of a column's value from its text; NULL where the text does not fit."""
    spark, base = captured.relation.schema[at].type, source_type(captured.source_types[at])
    if spark in _INTEGERS:
        return (
            f"CASE WHEN NOT contains({text}, '.') THEN TRY_CAST({text} AS {_INTEGERS[spark]}) END"
        )
    if (parts := decimal_parts(spark)) is not None:
        return exact_digits(text, *parts)
    match spark:
        case "float" | "double":
            return f"TRY_CAST({text} AS {spark.upper()})"
        case "boolean":
            return (
                f"CASE WHEN lower({text}) IN ('t', 'true', '1') THEN true"
                f" WHEN lower({text}) IN ('f', 'false', '0') THEN false END"
            )
        case "date":
            day = f"TRY_CAST({text} AS DATE)"
            return f"CASE WHEN isfinite({day}) THEN date_diff('day', DATE '1970-01-01', {day}) END"
        case "timestamp":
            at_ = f"TRY_CAST({text} AS TIMESTAMPTZ)"
            return f"CASE WHEN isfinite({at_}) THEN epoch_us({at_}) END"
        case "timestamp_ntz":
            at_ = f"TRY_CAST({text} AS TIMESTAMP)"
            micros = f"CASE WHEN isfinite({at_}) THEN epoch_us({at_}) END"
            coarse = bool(base.arguments) and base.arguments[0] <= 3
            return f"({micros}) // 1000 * 1000" if coarse else micros
        case "binary":
            octets = f"TRY(unhex(substr({text}, 3)))"
            return f"CASE WHEN {text}[1:2] = '\\x' THEN to_base64({octets}) END"
    return text


def _unfit(captured: CapturedRelation, at: int, count: int, text: str) -> FrescoError:
    column = captured.relation.schema[at]
    return FrescoError(
        "SNAPSHOT_VALUE",
        f"{count} values of {column.name} are no {captured.source_types[at]}, as {text[:60]!r}",
        where=f"{captured.relation.name}, column {column.name}",
        todo="correct the snapshot and write it under a name that sorts after the last one, or correct"
        " the column's type in the configuration",
    )


def _check_key(engine: duckdb.DuckDBPyConnection, captured: CapturedRelation, file: Path) -> None:
    """Refuse a key that is missing or doubled.

    Raises:
        FrescoError: SNAPSHOT_KEY_NULL, SNAPSHOT_KEY_DUPLICATE.
    """
    key = captured.relation.key
    if not key:
        return
    names = ", ".join(f"c{at}" for at in key)
    shown = ", ".join(captured.relation.schema[at].name for at in key)
    nulls = " OR ".join(f"c{at} IS NULL" for at in key)
    (empty,) = engine.execute(f"SELECT count(*) FROM {form(file)} WHERE {nulls}").fetchone() or (0,)
    if empty:
        raise _key("SNAPSHOT_KEY_NULL", captured, f"{empty} rows have no value of the key {shown}")
    found = engine.execute(
        f"SELECT count(*), {names} FROM {form(file)} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if found is not None:
        value = ", ".join(map(str, found[1:]))
        raise _key("SNAPSHOT_KEY_DUPLICATE", captured, f"{found[0]} rows have the key {value}")


def _key(code: str, captured: CapturedRelation, what: str) -> FrescoError:
    name = captured.relation.name
    return FrescoError(
        code,
        f"{what} in the snapshot of {name}",
        where=name,
        todo="correct the snapshot and write it under a name that sorts after the last one; a table"
        " whose key does not identify rows has no `keys` in the configuration",
    )


# Differences --------------------------------------------------------------------------------------


def difference_sql(captured: CapturedRelation, old: Path, new: Path) -> str:
    """SQL of the changes: op (c, u, d), b0.. before, a0.. after, and n, their order, from 1."""
    width, key = len(captured.relation.schema), captured.relation.key
    names = [f"c{at}" for at in range(width)]
    signed = [  # 0.0 and -0.0 are equal, and not the same
        f"c{at}" for at, c in enumerate(captured.relation.schema) if c.type in ("float", "double")
    ]
    if not key:
        return _bag_difference(names, signed, old, new)
    on = " AND ".join(f"o.c{at} = n.c{at}" for at in key)
    first = f"c{key[0]}"
    differs = [f"o.{name} IS DISTINCT FROM n.{name}" for name in names]
    differs += [f"coalesce(signbit(o.{one}) <> signbit(n.{one}), false)" for one in signed]
    changed = " OR ".join(differs)
    images = [f"o.{name} AS b{at}, n.{name} AS a{at}" for at, name in enumerate(names)]
    order = ", ".join(f"coalesce(o.c{at}, n.c{at})" for at in key)
    return (
        f"SELECT CASE WHEN o.{first} IS NULL THEN 'c' WHEN n.{first} IS NULL THEN 'd' ELSE 'u' END"
        f" AS op, {', '.join(images)}, row_number() OVER (ORDER BY {order}) AS n"
        f" FROM {form(old)} o FULL OUTER JOIN {form(new)} n ON {on}"
        f" WHERE o.{first} IS NULL OR n.{first} IS NULL OR {changed}"
    )


def _bag_difference(names: Sequence[str], signed: Sequence[str], old: Path, new: Path) -> str:
    listed = ", ".join(names)
    signs = [f"signbit({one})" for one in signed]
    grouped = ", ".join([*names, *signs])
    counted = (
        f"SELECT {', '.join([listed, *(f'{sign} AS s{at}' for at, sign in enumerate(signs))])},"
        f" sum(k) AS k FROM (SELECT {listed}, 1 AS k FROM {form(new)} UNION ALL"
        f" SELECT {listed}, -1 FROM {form(old)}) GROUP BY {grouped} HAVING sum(k) <> 0"
    )
    # A group's own value of 0.0 may have either sign.
    value = {
        one: f"CASE WHEN s{at} THEN -abs({one}) ELSE {one} END" for at, one in enumerate(signed)
    }
    values = [value.get(name, name) for name in names]
    before = ", ".join(f"CASE WHEN k < 0 THEN {one} END AS b{at}" for at, one in enumerate(values))
    after = ", ".join(f"CASE WHEN k > 0 THEN {one} END AS a{at}" for at, one in enumerate(values))
    order = ", ".join(["k > 0", *names, *(f"s{at}" for at in range(len(signed)))])
    return (
        f"SELECT CASE WHEN k < 0 THEN 'd' ELSE 'c' END AS op, {before}, {after},"
        f" row_number() OVER (ORDER BY {order}) AS n"
        f" FROM ({counted}), range(abs(k)::BIGINT)"
    )


@dataclass(frozen=True)
class DifferenceCounts:
    """What a difference, or a first snapshot, has of one table."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def events(self) -> int:
        return self.inserted + self.updated + self.deleted


def counts(
    engine: duckdb.DuckDBPyConnection, captured: CapturedRelation, old: Path | None, new: Path
) -> DifferenceCounts:
    """How many rows came, changed and went; `old` None: all came."""
    if old is None:
        (rows,) = engine.execute(f"SELECT count(*) FROM {form(new)}").fetchone() or (0,)
        return DifferenceCounts(inserted=int(rows))
    found = dict(
        engine.execute(
            f"SELECT op, count(*) FROM ({difference_sql(captured, old, new)}) GROUP BY op"
        ).fetchall()
    )
    return DifferenceCounts(found.get("c", 0), found.get("u", 0), found.get("d", 0))
