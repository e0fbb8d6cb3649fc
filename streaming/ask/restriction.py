"""What restricts a relation at its source, and its rows as a state: the same for every kind of source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from streaming.ask.reduction import Input
from streaming.engines.duck.signed import Signed
from streaming.scalars.expression import column_name
from streaming.scalars.types import INTEGRALS, arrow_type, delta_schema

FEW = 500
"""Keys up to which values are taken one by one, which costs less than columns do to begin."""


class SourceColumn(Protocol):
    """A column at a source: its type here, and how its values are sent as keys (None: they are not)."""

    @property
    def spark(self) -> str: ...

    @property
    def key(self) -> Any | None: ...


@dataclass(frozen=True)
class Keys:
    """What a relation is restricted to: its columns, and the distinct values wanted in them."""

    columns: tuple[int, ...]
    values: pa.Table


def keys_of(
    columns: Sequence[SourceColumn], pairs: list[tuple[int, int]], other: Input, rows: Signed
) -> Keys | None:
    """The distinct values of another input's linked columns; None when they cannot be sent."""
    usable = [
        (own, theirs)
        for own, theirs in dict.fromkeys(pairs)
        if columns[own].key is not None
        and _comparable(columns[own].spark, other.schema[theirs].type)
    ]
    if not usable:
        return None
    arrays = _distinct(rows, [theirs for _, theirs in usable])
    return Keys(
        tuple(own for own, _ in usable),
        pa.Table.from_arrays(arrays, names=[f"v{i}" for i in range(len(arrays))]),
    )


def _distinct(rows: Signed, columns: list[int]) -> list[pa.Array | pa.ChunkedArray]:
    """The different rows of these columns, without those that hold a NULL."""
    bag = rows.bag(FEW)
    if bag is not None:
        found = {tuple(row[i] for i in columns) for _, row in bag}
        listed = zip(*(key for key in found if None not in key), strict=True)
        values = list(listed) or [()] * len(columns)
        return [
            pa.array(one, rows.schema.field(i + 2).type)
            for i, one in zip(columns, values, strict=True)
        ]
    names = [column_name(i) for i in columns]
    table = rows.table.select(list(dict.fromkeys(names)))
    distinct = table.group_by(table.column_names).aggregate([]).drop_null()
    return [distinct.column(name) for name in names]


def _comparable(own: str, other: str) -> bool:
    return own == other or (own in INTEGRALS and other in INTEGRALS)


def signed_rows(
    one: Input, read: list[int], arrays: list[pa.ChunkedArray | pa.Array], count: int
) -> Signed:
    """Rows as a state; columns that nobody reads are NULL."""
    schema = delta_schema(one.schema)
    found = dict(zip(read, arrays, strict=True))
    cells = [
        found[i] if i in found else pa.nulls(count, arrow_type(column.type))
        for i, column in enumerate(one.schema)
    ]
    numbers, ones = (pa.repeat(pa.scalar(n, pa.int64()), count) for n in (0, 1))
    return Signed(schema, pa.Table.from_arrays([numbers, ones, *cells], schema=schema), net=False)
