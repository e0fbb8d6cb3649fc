"""What one step of the intake hands to the rest of the integrator."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pyarrow as pa

from streaming.cdc.records import BadRecord
from streaming.messages import Control, GlobalPart, RelRun


@dataclass(frozen=True)
class IntakeResult:
    """One step's outcome. Times are milliseconds since 1970; positions are places in a source's log, that
    of a transaction where its commit stands (PostgreSQL's LSN, MariaDB's binlog).

    Attributes:
        first, last: the numbers given, all of first..last; `first` > `last` when none was, and `last` is
            then the last one ever given, -1 before the first.
        updates: relation -> delta (`scalars.types.delta_schema`: number, multiplicity, c0..), sorted by
            number; only relations that have rows.
        controls: truncates, and taints of single columns, under their numbers; by (number, relation).
        runs: merge group -> REL entries covering first..last in order, without gaps.
        transactions: the number map, a row for each source transaction: number int64, source and
            transaction string, position int64, committed_ms int64 or null; by (number, source). Several
            rows have one number where transactions form a unit; a number may have none.
        positions: source -> position of its last numbered transaction, of this step or an earlier one, as
            a decimal text.
        committed_ms: newest commit time among `transactions`; None where none has one.
        bad: records of this batch that cannot be used, each by topic, partition and offset.
        tainted: number -> relations, sorted, that lack a record there which cannot be used.
        released: ids of the global transactions released as local in this step.
        delivered: source -> position up to which every transaction that ended has a number.
        parts: the numbers that are parts of global transactions, where these are numbered apart.
        split: of one of these some parts may have numbers, and others not.
        lost: one record for each column that cannot be read any more, told the first time only.
        notices: what else a person should know of the columns, a sentence each, told once.
        overdue: ids of global transactions of which a part is missing.
        held: how many complete transactions wait for a global one or for the snapshots.
        waiting: relation -> how many rows wait; only relations that have some.
        incomplete: source -> id of its first transaction whose END counts rows that have not come.
        open_snapshots: source whose initial snapshot is not closed -> what has come of it, in words.
        largest_unit: how many transactions the largest unit has that got one number; 0 without units.
        ignored: how many tombstones, logical messages and heartbeats there were.
        seconds: what each phase took: decode, assemble, number, deltas, relevance.
    """

    first: int
    last: int
    updates: dict[str, pa.Table]
    controls: tuple[Control, ...]
    runs: dict[str, tuple[RelRun, ...]]
    transactions: pa.Table
    positions: dict[str, str]
    committed_ms: int | None
    bad: tuple[BadRecord, ...]
    tainted: dict[int, tuple[str, ...]]
    released: tuple[str, ...]
    delivered: dict[str, int] = field(default_factory=dict)
    parts: tuple[GlobalPart, ...] = ()
    split: bool = False
    lost: tuple[BadRecord, ...] = ()
    notices: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    held: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    open_snapshots: dict[str, str] = field(default_factory=dict)
    largest_unit: int = 0
    ignored: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Clock:
    """Seconds per phase; for the result only, nothing is decided by it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = now - self._at
        self._at = now
