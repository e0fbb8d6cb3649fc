"""Arrow tables that DuckDB's SQL can name, with no condition handed down to Arrow.

DuckDB gives a comparison of a column with a constant to the scan of a registered Arrow table, and to
the scan of a Parquet file as a question about its statistics. Neither means the same as DuckDB: NaN is
its greatest number, Arrow's `>` is false for it and a Parquet writer leaves it out of a column's
maximum, so `d > 5` loses rows; `d <= 'nan'` keeps NULL; `a = 1 OR a IS NOT DISTINCT FROM 2` is an
error (measured with DuckDB 1.5.5; its issues 15844, 16942 and 25521, and 615 of its Python package).
No condition goes below a limit, and one that is never reached costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa

NEVER_REACHED = 2**63 - 1
ALL = f"LIMIT {NEVER_REACHED}"
"""What ends a query over a file whose rows are to be seen as they are."""


def offer(db: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Let SQL say `name`, until it is offered again or withdrawn."""
    db.from_arrow(table).limit(NEVER_REACHED).create_view(name, replace=True)


def withdraw(db: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Forget the tables."""
    for name in names:
        db.execute(f'DROP VIEW "{name}"')


@contextmanager
def offering(db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """The tables, for as long as the block lasts."""
    for name, table in tables.items():
        offer(db, name, table)
    try:
        yield
    finally:
        withdraw(db, tables)
