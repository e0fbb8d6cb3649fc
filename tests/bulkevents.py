"""Many events of a bank's `entry` table as Debezium would publish them, made by one query."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tests.sourcelog import RECORDS, SourceLog

ACCOUNTS = 100
"""Entry i is on account i % `ACCOUNTS`, and of i % 1000 hundredths."""

_PLACE = 987654321
"""Stands in one event's text for what differs from event to event."""
_AMOUNT = "CAST(i % 1000 / 100 AS DECIMAL(18, 2))"


def entries(log: SourceLog, first: int, last: int, key: str | None) -> pa.Table:
    """Records of entries first..last, the i-th at offset i and with total_order i.

    Args:
        key: of the transaction that inserts them; None makes them rows of a snapshot.
    """
    row = {"id": _PLACE, "account": "%account", "amount": "%amount"}
    topic, one = log.row("entry", "r" if key is None else "c", None, row, key=key, order=_PLACE)
    assert one is not None
    text = f"'{one}'"
    for place, value in (
        (str(_PLACE), "i"),
        ('"%account"', f"i % {ACCOUNTS}"),
        ("%amount", _AMOUNT),
    ):
        text = text.replace(place, f"' || {value} || '")
    sql = (
        f"SELECT '{topic}', 0, i, NULL::BLOB, encode({text}) "
        f"FROM range({first}, {last} + 1) AS t(i)"
    )
    with duckdb.connect() as connection:
        found = connection.execute(sql).to_arrow_table()
    return found.rename_columns(RECORDS.names).cast(RECORDS)
