"""What one step of the intake hands to the rest of the integrator."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pyarrow as pa

from streaming.messages import Control, GlobalPart, RelRun
from streaming.sources.records import BadRecord


@dataclass(frozen=True)
class IntakeResult:
    """One step's outcome; `first` > `last` when nothing was numbered.

    Attributes:
        updates: relation -> delta (`algebra.types.delta_schema`), sorted by number.
        controls: truncates, and taints of single columns, under their numbers.
        runs: merge group -> REL entries covering first..last.
        transactions: number, source, transaction, position, committed_ms.
        positions: source -> commit position of its last numbered transaction, as text.
        delivered: source -> commit position up to which all of its transactions have a number.
        parts: the numbers that are parts of global transactions, where these are numbered apart.
        committed_ms: newest commit time among the transactions.
        bad: records of this batch that cannot be used.
        lost: one record for each column that cannot be read any more, told the first time only.
        notices: what else a person should know of the columns, each once.
        tainted: number -> relations that lack an undecodable record there.
        released: global transactions released as local in this step.
        overdue: global transactions of which a part is missing.
        held: complete transactions that wait for a global one or for the snapshots.
        waiting: relation -> rows that wait.
        incomplete: source -> its first transaction whose END counts rows that have not come.
        open_snapshots: sources whose initial snapshot is not closed.
        largest_unit: transactions in the largest unit that got one number.
        ignored: tombstones, logical messages and heartbeats.
        seconds: time per phase: decode, assemble, number, deltas, relevance.
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
    lost: tuple[BadRecord, ...] = ()
    notices: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    held: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    open_snapshots: tuple[str, ...] = ()
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
