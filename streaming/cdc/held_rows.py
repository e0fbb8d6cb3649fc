"""Rows that wait, written once and never rewritten (DESIGN 6).

What batches leave behind travels inside the snapshot while it is little; then it is staged as one
chunk, which a snapshot refers to by its path and by the ranges of its rows that still wait. Of a staged
chunk only the columns that must be looked at meanwhile stay in memory, and its rows are read when they
are taken. So a transaction of a million rows is written once however many batches it spans, and waits in
a few bytes a row however wide its rows are.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

INLINE = 32 * 1024
"""Bytes of rows up to which they are part of the snapshot itself."""


@dataclass(frozen=True)
class HeldFiles:
    """Where chunks are staged.

    Attributes:
        stage: writes rows durably and names the file.
        load: a file's rows, of the named columns only.
    """

    stage: Callable[[pa.Table], str]
    load: Callable[[str, Sequence[str]], pa.Table]


@dataclass(frozen=True)
class Chunk:
    """Waiting rows.

    Attributes:
        near: what is in memory of those that still wait: all columns until the chunk is staged.
        path: where the whole chunk is staged, None while it is not.
        waits: which rows of the staged chunk still wait, None when all do.
    """

    near: pa.Table
    path: str | None = None
    waits: np.ndarray | None = None

    def keep(self, mask: np.ndarray) -> Chunk:
        waits = None if self.path is None else self.staged(mask)
        return Chunk(self.near.filter(pa.array(mask)), self.path, waits)

    def staged(self, mask: np.ndarray) -> np.ndarray:
        """A mask over the rows that wait, as one over the staged chunk."""
        if self.waits is None:
            return mask
        whole = self.waits.copy()
        whole[self.waits] = mask
        return whole


@dataclass(frozen=True)
class HeldRows:
    """Chunks of one schema, oldest first.

    Attributes:
        looked_at: the columns that stay in memory; None for all of them.
        files: where rows are staged; None keeps them in memory and inside the snapshot.
    """

    schema: pa.Schema
    looked_at: tuple[str, ...] | None = None
    files: HeldFiles | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def rows(self) -> int:
        return sum(chunk.near.num_rows for chunk in self.chunks)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that rows of it are in."""
        return tuple(chunk.path for chunk in self.chunks if chunk.path is not None)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(chunk.near.nbytes for chunk in self.chunks)

    @property
    def table(self) -> pa.Table:
        """The columns that stay in memory, of all rows."""
        names = self._names(self.looked_at)
        empty = self.schema.empty_table().select(names)
        return pa.concat_tables([empty, *(chunk.near.select(names) for chunk in self.chunks)])

    def read(
        self, mask: np.ndarray | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows where `mask` is true, from the files too.

        Args:
            mask: over the rows of `table`; None for all.
            columns: None for all.
        """
        names = self._names(columns)
        found, start = [self.schema.empty_table().select(names)], 0
        for chunk in self.chunks:
            stop = start + chunk.near.num_rows
            part = np.ones(stop - start, bool) if mask is None else mask[start:stop]
            start = stop
            if not part.any():
                continue
            if chunk.path is None:
                rows = chunk.near.select(names)
            else:
                rows, part = self._load(chunk.path, names), chunk.staged(part)
            found.append(rows if part.all() else rows.filter(pa.array(part)))
        return pa.concat_tables(found)

    def plus(self, rows: pa.Table) -> HeldRows:
        if not rows.num_rows:
            return self
        return replace(self, chunks=(*self.chunks, Chunk(rows)))

    def keep(self, mask: np.ndarray) -> HeldRows:
        """Only the rows of `table` where `mask` is true."""
        if mask.all():
            return self
        kept, start = [], 0
        for chunk in self.chunks:
            part = mask[start : start + chunk.near.num_rows]
            start += chunk.near.num_rows
            if part.all():
                kept.append(chunk)
            elif part.any():
                kept.append(chunk.keep(part))
        return replace(self, chunks=tuple(kept))

    def empty(self) -> HeldRows:
        """Without rows."""
        return replace(self, chunks=())

    def snapshot(self) -> tuple[HeldRows, list[dict[str, Any]]]:
        """Itself with its rows staged unless they are few, and what a JSON snapshot says of it.

        Staged chunks come before the others, because rows are staged all together.
        """
        chunks = [chunk for chunk in self.chunks if chunk.path is not None]
        fresh = [chunk.near for chunk in self.chunks if chunk.path is None]
        inline = []
        if fresh:
            rows = pa.concat_tables(fresh)
            if self.files is not None and rows.nbytes > INLINE:
                chunks.append(self._staged(self.files.stage(rows)))
            else:
                inline = [rows.combine_chunks()]
        notes: list[dict[str, Any]] = [
            {"path": chunk.path, "ranges": _ranges(chunk)} for chunk in chunks
        ]
        notes += [{"ipc": _to_ipc(rows)} for rows in inline]
        return replace(self, chunks=(*chunks, *map(Chunk, inline))), notes

    def restore(self, notes: list[dict[str, Any]]) -> HeldRows:
        """The same rows back from a snapshot's notes."""
        chunks = []
        for note in notes:
            if "ipc" in note:
                chunks.append(Chunk(_fitted(_from_ipc(note["ipc"]), self.schema)))
                continue
            chunk = self._staged(note["path"])
            waits = np.zeros(chunk.near.num_rows, bool)
            for start, stop in note["ranges"]:
                waits[start:stop] = True
            chunks.append(chunk if waits.all() else chunk.keep(waits))
        return replace(self, chunks=tuple(chunks))

    def _staged(self, path: str) -> Chunk:
        # Read back even when it was just written: a column of the rows as they were decoded would
        # keep the memory of all of them.
        return Chunk(self._load(path, self._names(self.looked_at)), path)

    def _load(self, path: str, names: list[str]) -> pa.Table:
        if self.files is None:
            raise ValueError(f"rows are staged at {path} and there is nothing to read them with")
        rows = self.files.load(path, names)
        wanted = pa.schema([self.schema.field(name) for name in names])
        return _fitted(rows, wanted) if names else rows

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        return list(self.schema.names if columns is None else columns)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in a schema; a column that an older Fresco did not keep is null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _ranges(chunk: Chunk) -> list[list[int]]:
    """Of a staged chunk, [start, stop) of its rows that wait."""
    waits = np.ones(chunk.near.num_rows, bool) if chunk.waits is None else chunk.waits
    edges = np.flatnonzero(np.diff(waits, prepend=False, append=False))
    return [[int(a), int(b)] for a, b in edges.reshape(-1, 2)]


def _to_ipc(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def _from_ipc(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
