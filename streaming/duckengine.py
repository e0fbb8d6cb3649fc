"""DuckDB as all of Fresco uses it.

A hash join tells the scan of its other side the least and the greatest key, or all keys where they are
few. The scan of an Arrow table compares them as Python's values: of a date or a moment beyond the years 1
to 9999, infinity among them, rows are lost without a word, or the query fails (measured with DuckDB
1.5.5). A limit does not keep such a filter back, so no join has one.
"""

from __future__ import annotations

import duckdb

SETTING = "SET disabled_optimizers = 'join_filter_pushdown'"


def duck_engine(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """An engine of its own, in memory.

    Args:
        threads: as many as the machine has by default.
    """
    engine = duckdb.connect(config={} if threads is None else {"threads": threads})
    engine.execute(SETTING)
    return engine
