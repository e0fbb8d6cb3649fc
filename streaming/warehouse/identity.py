"""`_id`: the identity of a row within its view, computed here and nowhere else (DESIGN 8).

Canonical form, version 1. For each identifying value, in the order of its columns: `~` for NULL,
else the number of bytes of its text in UTF-8, a colon, and the text. `_id` is the first 32
hexadecimal digits of the SHA-256 of their concatenation. The text of a value is:

* boolean: `true` or `false`; integers: decimal digits with `-` when negative;
* decimal: digits with exactly the type's scale, `-` when negative;
* float and double: the 64 bits of the value as a double, read as a signed integer, in decimal
  digits; every NaN as 0x7FF8000000000000, and -0.0 as 0.0, because SQL holds them for equal;
* string: itself; binary: upper-case hexadecimal digits;
* date: days since 1970-01-01; timestamps: microseconds since 1970-01-01 (00:00 UTC).

Lengths make the concatenation one-to-one, so equal ids mean equal rows up to collisions of SHA-256
cut to 128 bits. A view's columns keep their types for life, so types need no tag.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import FrescoError


def canonical_columns(rows: pa.Table, columns: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """The columns in types in which equal values are equal bits: see the canonical form.

    Raises FrescoError WAREHOUSE_TYPE for a type that no view can have.
    """
    return {name: _canonical(rows.column(name), name) for name in columns}


def _canonical(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = values.type
    if pa.types.is_floating(kind):
        doubles = values.cast(pa.float64())
        doubles = pc.if_else(pc.is_nan(doubles), float("nan"), pc.add(doubles, 0.0))
        return _view(doubles, pa.int64())
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _view(values, pa.int64())
    if pa.types.is_date32(kind):
        return _view(values, pa.int32())
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
    ):
        return values
    raise FrescoError(
        "WAREHOUSE_TYPE",
        f"no canonical form for values of type {kind}",
        where=name,
        todo="cast the column to a type that Delta and Fresco both have",
    )


def _view(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], type=kind)


def id_expression(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """DuckDB SQL for `_id` over canonical columns (name, type), in the identifying order."""
    if not columns:
        return "substr(sha256(''), 1, 32)"
    parts = " || ".join(_part(name, kind) for name, kind in columns)
    return f"substr(sha256({parts}), 1, 32)"


def _part(name: str, kind: pa.DataType) -> str:
    quoted = f'"{name}"'
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = quoted
    elif pa.types.is_binary(kind):
        text = f"hex({quoted})"
    else:
        text = f"CAST({quoted} AS VARCHAR)"
    return f"coalesce(CAST(strlen({text}) AS VARCHAR) || ':' || {text}, '~')"
