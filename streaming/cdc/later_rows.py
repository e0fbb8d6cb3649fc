"""One relation's rows in a snapshot that was taken again, and what the log has told since (`retaken`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.held_rows import HeldFiles, HeldRows
from streaming.cdc.replacement import touched, touched_schema
from streaming.cdc.row_query import row_schema


@dataclass(frozen=True)
class Taking:
    """Rows that have not taken effect; every method leaves it as it is.

    Attributes:
        rows: as decoded.
        later: the keys of events after the first of them that have a number (`touched_schema`).
        since: partition -> offset of the first row.
        position: the rows' log position; -1 of an incremental snapshot.
    """

    captured: CapturedRelation
    rows: HeldRows
    later: HeldRows
    since: Mapping[int, int]
    position: int

    @classmethod
    def begun(
        cls,
        captured: CapturedRelation,
        rows: pa.Table,
        position: int,
        files: HeldFiles | None,
    ) -> Taking:
        """Without its rows yet, of which `rows` are the first."""
        first = rows.group_by("partition").aggregate([("offset", "min")])
        since = dict(zip(*(column.to_pylist() for column in first.columns), strict=True))
        held = HeldRows(row_schema(captured), (), files)
        marks = HeldRows(touched_schema(captured), (), files)
        return cls(captured, held, marks, since, position)

    def passed_by(self, events: pa.Table) -> Taking:
        """After events of the log, decoded, got their numbers.

        In a partition without any of the rows all count that have come since; a TRUNCATE, which may lie
        in any partition, by its position.
        """
        partitions, offsets = events["partition"].to_numpy(), events["offset"].to_numpy()
        after = events["position"].to_numpy() > self.position
        after |= pc.not_equal(events["op"], "t").to_numpy()
        for partition, offset in self.since.items():
            own = partitions == partition
            after[own] = offsets[own] > offset
        later = touched(self.captured, events.filter(pa.array(after)))
        return replace(self, later=self.later.plus(later))

    def plus(self, rows: pa.Table) -> Taking:
        """With more rows."""
        return replace(self, rows=self.rows.plus(rows))

    def last(self) -> Mapping[int, int]:
        """Partition -> offset of the last row."""
        places = self.rows.read(columns=["partition", "offset"])
        ends = places.group_by("partition").aggregate([("offset", "max")])
        return dict(zip(*(column.to_pylist() for column in ends.columns), strict=True))

    def precedes(self, events: pa.Table) -> bool:
        """Whether none of the log's events (partition, offset) lies before a row of it."""
        for partition, offset in self.last().items():
            mine = events.filter(pc.equal(events["partition"], partition))["offset"]
            if len(mine) and pc.min(mine).as_py() < offset:
                return False
        return True

    def snapshot(self) -> tuple[Taking, list[Any]]:
        """Itself with its rows staged, and what a JSON snapshot says of it."""
        rows, row_notes = self.rows.snapshot()
        later, later_notes = self.later.snapshot()
        since = sorted(self.since.items())
        staged = replace(self, rows=rows, later=later)
        return staged, [row_notes, later_notes, since, self.position]

    @classmethod
    def back(
        cls, captured: CapturedRelation, files: HeldFiles | None, note: Sequence[Any]
    ) -> Taking:
        """From a snapshot's note."""
        rows, later, since, position = note
        held = HeldRows(row_schema(captured), (), files).restore(rows)
        marks = HeldRows(touched_schema(captured), (), files).restore(later)
        return cls(captured, held, marks, dict(map(tuple, since)), position)
