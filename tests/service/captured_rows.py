"""A captured table and its rows as `_updates` holds them, from the JSON that Debezium wrote.

Shares no code with `streaming.cdc`: it is one half of the second assembly.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Captured:
    """One captured table: name "source.table", its topic, and column -> Spark type, in order.

    `key` are the columns of its primary key; without one, a row is its own key.
    """

    relation: str
    topic: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return self.relation.partition(".")[0]

    @property
    def collection(self) -> str:
        """As END counts name it: the topic without its prefix."""
        return self.topic.partition(".")[2]


def row_of(table: Captured, values: Mapping[str, Any] | None) -> Row:
    if values is None:
        return ()
    return tuple(_value(values[name], kind) for name, kind in table.columns.items())


def _value(value: Any, kind: str) -> Any:
    """A value as `_updates` holds it; decimals come as text or as base64 of the unscaled number."""
    if value is None:
        return None
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").partition(",")[2])
        try:
            return Decimal(value).quantize(Decimal(1).scaleb(-scale))
        except ArithmeticError:
            unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
            return Decimal(unscaled).scaleb(-scale)
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if kind == "timestamp":
        return datetime.fromisoformat(value).astimezone(UTC)
    if kind == "timestamp_ntz":
        return datetime(1970, 1, 1) + timedelta(microseconds=value)
    if kind == "binary":
        return base64.b64decode(value)
    return value
