"""Rows on their way between stages: a small delta travels inside its message, a large one as
Parquet.

Inline rows are an Arrow IPC stream in base64, at most `INLINE_LIMIT` bytes of it; larger ones are
staged under the warehouse once, with row count and checksum, and read column by column where they
are used (DESIGN 10).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.errors import FrescoError
from streaming.messages import INLINE_LIMIT, Rows

Stage = Callable[[bytes], str]
"""Keeps a Parquet file's bytes durably; returns its path relative to the warehouse."""


def pack(table: pa.Table, stage: Stage) -> Rows:
    """A reference to the table: inline up to `INLINE_LIMIT` bytes of stream, else staged."""
    if table.nbytes <= 4 * INLINE_LIMIT:
        stream = _stream(table)
        if len(stream) <= INLINE_LIMIT:
            return Rows(rows=table.num_rows, ipc=base64.b64encode(stream).decode("ascii"))
    return staged(table, stage)


def staged(table: pa.Table, stage: Stage) -> Rows:
    """A reference to the table as a file, however small it is."""
    sink = pa.BufferOutputStream()
    write_parquet(table, sink, "zstd")
    content = sink.getvalue().to_pybytes()
    return Rows(
        rows=table.num_rows, path=stage(content), sha256=hashlib.sha256(content).hexdigest()
    )


def write_parquet(table: pa.Table, where: Any, compression: str = "snappy") -> None:
    """Write a file that any reader may filter: no statistics of columns that can hold NaN.

    Arrow leaves NaN out of a column's minimum and maximum, as the format demands. For Spark and DuckDB it
    is the greatest number, and both skip a row group by its maximum: `d > 5` loses its NaN.

    Args:
        where: a path or a stream.
    """
    counted = [field.name for field in table.schema if not _holds_floats(field.type)]
    pq.write_table(table, where, compression=compression, write_statistics=counted)


def _holds_floats(type_: pa.DataType) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return pa.types.is_floating(type_) or any(map(_holds_floats, inner))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpack(rows: Rows, root: Path) -> pa.Table:
    """The table that the reference stands for.

    Args:
        root: the warehouse.

    Raises:
        FrescoError: ROWS_DAMAGED.
    """
    source = locate(rows, root)
    table = pq.read_table(source) if isinstance(source, Path) else source
    if table.num_rows != rows.rows:
        raise _damaged(rows, f"{table.num_rows} rows instead of {rows.rows}")
    return table


def locate(rows: Rows, root: Path) -> pa.Table | Path:
    """The inline table, or the staged file, its checksum verified, for reading only some columns.

    Raises:
        FrescoError: ROWS_DAMAGED.
    """
    if rows.path is None:
        return _inline(rows)
    path = root / rows.path
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(rows, f"cannot be read: {error}") from error
    if digest != rows.sha256:
        raise _damaged(rows, "its checksum differs from the message's")
    return path


def _inline(rows: Rows) -> pa.Table:
    if rows.ipc is None:
        raise _damaged(rows, "neither rows nor a path")
    try:
        content = base64.b64decode(rows.ipc, validate=True)
        table = pa.ipc.open_stream(content).read_all()
    except (binascii.Error, pa.ArrowInvalid, OSError) as error:
        raise _damaged(rows, f"not an Arrow stream: {error}") from error
    if table.num_rows != rows.rows:
        raise _damaged(rows, f"{table.num_rows} rows instead of {rows.rows}")
    return table


def _damaged(rows: Rows, what: str) -> FrescoError:
    return FrescoError(
        "ROWS_DAMAGED",
        f"rows of a message are damaged: {what}",
        where=rows.path or "inside the message",
        todo="the file was changed or removed under a running pipeline; restore it from a backup of"
        " the warehouse, or start again from the last snapshot of the sources",
    )
