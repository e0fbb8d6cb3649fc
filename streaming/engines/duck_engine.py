"""DuckDB as all of Fresco uses it: nothing of a query is handed down to the scan of an Arrow table.

DuckDB gives a comparison of a column with a constant to the scan of a registered Arrow table, and to
the scan of a Parquet file as a question about its statistics. Neither means the same as DuckDB: NaN is
its greatest number, Arrow's `>` is false for it and a Parquet writer leaves it out of a column's
maximum, so `d > 5` loses rows; `d <= 'nan'` keeps NULL; `a = 1 OR a IS NOT DISTINCT FROM 2` is an
error (measured with DuckDB 1.5.5; its issues 15844, 16942 and 25521, and 615 of its Python package).
No condition goes below a limit, and one that is never reached costs nothing: so a table of which a view's
or a reader's conditions are asked is *offered*, and not registered.

A hash join tells the scan of its other side the least and the greatest key, or all keys where they are
few. The scan of an Arrow table compares them as Python's values: of a date or a moment beyond the years 1
to 9999, infinity among them, rows are lost without a word, or the query fails. A limit does not keep such
a filter back, so no join has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa

SETTING = "SET disabled_optimizers = 'join_filter_pushdown'"
NEVER_REACHED = 2**63 - 1
ALL = f"LIMIT {NEVER_REACHED}"
"""What ends a query over a file whose rows are to be seen as they are."""


def duck_engine(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """An engine of its own, in memory.

    Args:
        threads: as many as the machine has by default.
    """
    engine = duckdb.connect(config={} if threads is None else {"threads": threads})
    engine.execute(SETTING)
    return engine


def offer(db: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Let SQL say `name`, until it is offered again."""
    db.from_arrow(table).limit(NEVER_REACHED).create_view(name, replace=True)


@contextmanager
def offering(db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """The tables, for as long as the block lasts."""
    for name, table in tables.items():
        offer(db, name, table)
    try:
        yield
    finally:
        for name in tables:
            db.execute(f'DROP VIEW "{name}"')
