"""Rows that wait, in Arrow, written once and never rewritten (DESIGN 6).

What a batch leaves behind is one chunk. A snapshot refers to a staged chunk by its path and by the
ranges of its rows that still wait; a small chunk travels inside the snapshot instead. So a transaction
of a million rows is written once however many batches it spans.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

INLINE = 32 * 1024
"""Bytes up to which a chunk is part of the snapshot itself."""

Stage = Callable[[pa.Table], str]
Load = Callable[[str], pa.Table]


@dataclass(frozen=True)
class Chunk:
    """Waiting rows.

    Attributes:
        rows: those that still wait.
        path: where the whole chunk is staged, None while it is not.
        index: positions of `rows` in the staged chunk.
    """

    rows: pa.Table
    path: str | None = None
    index: np.ndarray | None = None

    def keep(self, mask: np.ndarray) -> Chunk:
        index = self.index[mask] if self.index is not None else None
        return Chunk(self.rows.filter(pa.array(mask)), self.path, index)


@dataclass(frozen=True)
class Held:
    """Chunks of one schema, oldest first."""

    schema: pa.Schema
    chunks: tuple[Chunk, ...] = ()

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *(c.rows for c in self.chunks)])

    @property
    def rows(self) -> int:
        return sum(chunk.rows.num_rows for chunk in self.chunks)

    def plus(self, rows: pa.Table) -> Held:
        if not rows.num_rows:
            return self
        return replace(self, chunks=(*self.chunks, Chunk(rows)))

    def keep(self, mask: np.ndarray) -> Held:
        """Only the rows of `table` where `mask` is true."""
        if mask.all():
            return self
        kept, start = [], 0
        for chunk in self.chunks:
            part = mask[start : start + chunk.rows.num_rows]
            start += chunk.rows.num_rows
            if part.all():
                kept.append(chunk)
            elif part.any():
                kept.append(chunk.keep(part))
        return replace(self, chunks=tuple(kept))

    def snapshot(self, stage: Stage | None) -> tuple[Held, list[dict[str, Any]]]:
        """Itself with every large chunk staged, and what a JSON snapshot says of it."""
        chunks: list[Chunk] = []
        notes: list[dict[str, Any]] = []
        for chunk in self.chunks:
            if chunk.path is None and (stage is None or chunk.rows.nbytes <= INLINE):
                notes.append({"ipc": _to_ipc(chunk.rows)})
            else:
                if chunk.path is None and stage is not None:
                    whole = np.arange(chunk.rows.num_rows)
                    chunk = Chunk(chunk.rows, stage(chunk.rows), whole)
                notes.append({"path": chunk.path, "ranges": _ranges(chunk.index)})
            chunks.append(chunk)
        return replace(self, chunks=tuple(chunks)), notes

    def restore(self, notes: list[dict[str, Any]], load: Load) -> Held:
        """The same rows back from a snapshot's notes."""
        chunks = []
        for note in notes:
            if "ipc" in note:
                chunks.append(Chunk(_from_ipc(note["ipc"])))
                continue
            index = np.concatenate([np.arange(a, b) for a, b in note["ranges"]])
            rows = load(note["path"]).cast(self.schema).take(pa.array(index))
            chunks.append(Chunk(rows, note["path"], index))
        return replace(self, chunks=tuple(chunks))


def _ranges(index: np.ndarray | None) -> list[list[int]]:
    if index is None or not len(index):
        return []
    edges = np.flatnonzero(np.diff(index) != 1) + 1
    starts = index[np.concatenate(([0], edges))]
    stops = index[np.concatenate((edges - 1, [len(index) - 1]))] + 1
    return [[int(a), int(b)] for a, b in zip(starts, stops, strict=True)]


def _to_ipc(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def _from_ipc(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()
