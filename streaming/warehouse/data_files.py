"""Data files of Fresco's Delta tables: written by Arrow, named in the log by actions.

A file holds the rows of one partition. Columns that are null in all of them (the other views'
structs) are left out: Delta reads a column that a file lacks as null. A file that no commit names
is never read; upkeep's vacuum takes it away.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from streaming.warehouse.names import folder_name

Action: TypeAlias = AddAction | RemoveAction
QUICK = "snappy"
"""For rows that are written once on the way and folded later: half of zstd's time."""
SMALL = "zstd"
"""For rows that stay: a third of snappy's size."""


@dataclass(frozen=True)
class TableFolder:
    """A folder in a file system: where a table's files and log are."""

    filesystem: pafs.FileSystem
    root: str
    uri: str

    @staticmethod
    def of(uri: str | Path) -> TableFolder:
        """The place of a path of this machine or a URI (`s3://bucket/folder`)."""
        text = str(uri).rstrip("/")
        if "://" not in text:
            text = str(Path(text).absolute())
            return TableFolder(pafs.LocalFileSystem(), text, text)
        filesystem, root = pafs.FileSystem.from_uri(text)
        return TableFolder(filesystem, root, text)

    def path(self, relative: str) -> str:
        """The file system's path of a path relative to the place."""
        return f"{self.root}/{relative}"

    def below(self, name: str) -> TableFolder:
        """The place of a folder inside this one."""
        return TableFolder(self.filesystem, f"{self.root}/{name}", f"{self.uri}/{name}")


def write_file(
    place: TableFolder,
    rows: pa.Table,
    partition: tuple[str, str],
    stats: Sequence[str],
    data_change: bool = True,
    compression: str = SMALL,
) -> AddAction:
    """Write one Parquet file and return the action that adds it.

    Args:
        rows: without the partition column; sorted as readers will look for them.
        partition: the partition column and its value.
        stats: columns to put minimum, maximum and null count of into the log.
        data_change: False when the same rows were in the table before.
        compression: `SMALL` or `QUICK`.
    """
    column, value = partition
    folder = f"{column}={folder_name(value)}"
    relative = f"{folder}/part-{uuid.uuid4().hex}.parquet"
    path = place.path(relative)
    if isinstance(place.filesystem, pafs.LocalFileSystem):
        place.filesystem.create_dir(place.path(folder))
    with place.filesystem.open_output_stream(path) as stream:
        pq.write_table(
            rows,
            stream,
            compression=compression,
            compression_level=1 if compression == SMALL else None,
            use_dictionary=False,
            write_statistics=list(stats),
            row_group_size=1 << 17,
        )
        size = stream.tell()
    return AddAction(
        path=relative,
        size=size,
        partition_values={column: value},
        modification_time=now_ms(),
        data_change=data_change,
        stats=json.dumps(_statistics(rows, stats), separators=(",", ":")),
    )


def _statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    ends = {name: pc.min_max(rows.column(name)).as_py() for name in columns if rows.num_rows}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: pair["min"] for name, pair in ends.items() if pair["min"] is not None},
        "maxValues": {name: pair["max"] for name, pair in ends.items() if pair["max"] is not None},
        "nullCount": {name: rows.column(name).null_count for name in ends},
    }


def read_file(place: TableFolder, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A data file, or those of `columns` that it has; `path` as the log has it.

    A field inside a struct column is `struct.field`.
    """
    with place.filesystem.open_input_file(place.path(unquote(path))) as stream:
        source = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        return source.read(None if columns is None else list(columns))


def delete_files(place: TableFolder, actions: Sequence[Action]) -> None:
    """Delete files that were written for a commit that did not happen."""
    for action in actions:
        if isinstance(action, AddAction):
            try:
                place.filesystem.delete_file(place.path(action.path))
            except OSError:
                continue


def now_ms() -> int:
    """Milliseconds since 1970: for log entries only, never for an outcome."""
    return int(time.time() * 1000)
