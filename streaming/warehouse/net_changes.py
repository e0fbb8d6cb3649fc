"""Net changes: what a delta over many numbers comes to, per row of the warehouse table.

Rows of a delta that are equal in every column add up their multiplicities, so the old and new
versions between two numbers of one batch cancel. DuckDB sees canonical columns only and answers
with positions in the delta; the rows themselves are taken from the Arrow table, so no value passes
through another engine's types.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from streaming.engines.duck_engine import duck_engine
from streaming.scalars.expression import MULTIPLICITY, column_name
from streaming.warehouse.identity import canonical_columns, id_expression

NET_SCHEMA = pa.schema(
    [("_id", pa.string()), ("plus", pa.int64()), ("minus", pa.int64()), ("row", pa.int64())]
)
"""Per `_id`, ascending: copies that come and that go, and the position in the delta of the row that
comes (of the row that goes, when none comes)."""


def net_changes(
    delta: pa.Table,
    width: int,
    key: Sequence[int] = (),
    connection: duckdb.DuckDBPyConnection | None = None,
) -> pa.Table:
    """Net changes of a delta of one view with `width` columns, as `NET_SCHEMA`; no zero rows.

    Args:
        key: the view's key positions; () identifies a row by all its columns.
        connection: one to take a cursor of (opening one costs 14 ms); a new one when None.

    Raises FrescoError WAREHOUSE_TYPE.
    """
    columns = [column_name(position) for position in range(width)]
    canonical = canonical_columns(delta, columns)
    kinds = {name: values.type for name, values in canonical.items()}
    net_rows = pa.table(
        {
            **canonical,
            "_m": delta.column(MULTIPLICITY),
            "_row": pa.array(np.arange(delta.num_rows)),
        }
    )
    listed = ", ".join(f'"{name}"' for name in columns)
    grouped = (
        f"SELECT {listed}, CAST(sum(_m) AS BIGINT) AS m, min(_row) AS r FROM net_rows "
        f"GROUP BY {listed} HAVING sum(_m) <> 0"
    )
    identifying = [column_name(position) for position in key] or columns
    identity = id_expression([(name, kinds[name]) for name in identifying])
    text = _keyed(grouped, identifying, identity) if key else _keyless(grouped, identity)
    with connection.cursor() if connection else duck_engine() as cursor:
        cursor.register("net_rows", net_rows)
        found = cursor.execute(text).to_arrow_table()
    return found.cast(NET_SCHEMA)


def _keyless(grouped: str, identity: str) -> str:
    return (
        f"SELECT {identity} AS _id, greatest(m, 0) AS plus, greatest(-m, 0) AS minus, r AS row "
        f"FROM ({grouped}) ORDER BY _id"
    )


def _keyed(grouped: str, identifying: Sequence[str], identity: str) -> str:
    key = ", ".join(f'"{name}"' for name in identifying)
    return (
        f"SELECT {identity} AS _id, plus, minus, row FROM (SELECT {key}, "
        "CAST(coalesce(sum(m) FILTER (m > 0), 0) AS BIGINT) AS plus, "
        "CAST(coalesce(-sum(m) FILTER (m < 0), 0) AS BIGINT) AS minus, "
        "coalesce(max(r) FILTER (m > 0), max(r)) AS row "
        f"FROM ({grouped}) GROUP BY {key}) ORDER BY _id"
    )
