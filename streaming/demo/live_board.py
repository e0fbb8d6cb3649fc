"""The demo's board: what every view says at each published state, and whether the sum ever moved."""

from __future__ import annotations

import time
from collections import Counter, deque
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
from rich.console import Group
from rich.table import Table

from streaming.demo.naive_sum import NaiveSum
from streaming.errors import FrescoError
from streaming.readers import Snapshot, Warehouse
from streaming.warehouse.epoch import Epoch

_SUMS = {"balance": "balance", "branch_total": "total", "total": "total"}
"""View -> the column whose sum over the view is the bank's money."""
_RECENT = 200


class LiveBoard:
    """Follows the newest epoch of the demo's group.

    Attributes:
        states: published states looked at; each is an epoch.
        moved: how many of them showed another sum than the first.
        committed_ms: when the newest transaction committed that they show, milliseconds since 1970.
    """

    def __init__(self, warehouse: Path, naive: NaiveSum) -> None:
        self._path = warehouse
        self._naive = naive
        self._epoch: Epoch | None = None
        self._rows: dict[str, int] = {}
        self._sums: dict[str, Decimal] = {}
        self._fresh: deque[float] = deque(maxlen=_RECENT)
        self._naive_range = [Decimal(0), Decimal(0)]
        self._first: Decimal | None = None
        self._naive_wrong = 0
        self.states = 0
        self.moved = 0
        self.committed_ms: int | None = None

    def refresh(self) -> bool:
        """Look at every state published since the last look; False before there is one."""
        warehouse = Warehouse(self._path)
        try:
            newest = warehouse.snapshot(warehouse.views(), suspended_as_of=True)
        except (FrescoError, OSError):
            return False
        seen = self._epoch.epoch if self._epoch else newest.epoch.epoch - 1
        for epoch in range(seen + 1, newest.epoch.epoch):
            self._judge(warehouse.snapshot(sorted(_SUMS), epoch=epoch, suspended_as_of=True))
        if newest.epoch.epoch > seen:
            self._judge(newest)
            self._rows = {view: table.num_rows for view, table in newest.tables.items()}
        return True

    def _judge(self, state: Snapshot) -> None:
        """The sum of money in each view of a published state, and beside it the naive one."""
        epoch = self._epoch = state.epoch
        self._sums = {
            view: pc.sum(state.tables[view][column]).as_py() or Decimal(0)
            for view, column in _SUMS.items()
        }
        self.states += 1
        if epoch.committed_ms is not None:
            self.committed_ms = max(epoch.committed_ms, self.committed_ms or 0)
        if self._first is None:
            self._first = self._sums["total"]
        if set(self._sums.values()) != {self._first}:
            self.moved += 1
        naive = self._naive.total
        low, high = self._naive_range
        self._naive_range = [min(low, naive), max(high, naive)]
        self._naive_wrong += naive != self._first
        if self.states > 1 and epoch.committed_ms is not None and epoch.written_ms is not None:
            self._fresh.append((epoch.written_ms - epoch.committed_ms) / 1000)

    def render(self, left: float, counters: Counter[str] | None) -> Group:
        """The board as it is now.

        Args:
            left: seconds until the transfers end.
            counters: of the workload; None when it has ended.
        """
        epoch = self._epoch
        title = (
            "all views at one source state"
            if epoch is None
            else (
                f"warehouse commit {epoch.epoch}: all views show every transaction up to "
                f"{epoch.frontier} and nothing else"
            )
        )
        table = Table(title=title, title_justify="left")
        for name, justify in (
            ("view", "left"),
            ("frontier", "right"),
            ("freshness", "right"),
            ("rows", "right"),
            ("sum of money", "right"),
        ):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for view, rows in sorted(self._rows.items()):
            frontier = epoch.suspended.get(view, epoch.frontier) if epoch else ""
            fresh = f"{self._fresh[-1]:.2f} s" if self._fresh else "-"
            table.add_row(view, str(frontier), fresh, str(rows), str(self._sums.get(view, "")))
        return Group(table, self._facts(left, counters))

    def _facts(self, left: float, counters: Counter[str] | None) -> Table:
        facts = Table.grid(padding=(0, 2))
        fresh = sorted(self._fresh)
        median = f"{fresh[len(fresh) // 2]:.2f} s" if fresh else "-"
        worst = f"{fresh[-1]:.2f} s" if fresh else "-"
        written = self._epoch.written_ms if self._epoch else None
        age = "-" if written is None else f"{time.time() - written / 1000:.1f} s"
        low, high = self._naive_range
        facts.add_row(
            "freshness (source commit to warehouse commit)",
            f"median {median}, worst {worst}, last commit {age} ago",
        )
        facts.add_row("published states checked", f"{self.states}, the sum moved in {self.moved}")
        facts.add_row(
            "naive: plain per-table reads, same moments",
            f"now {self._naive.total}, between {low} and {high}; "
            f"wrong at {self._naive_wrong} of these states",
        )
        if counters is not None:
            work = ", ".join(f"{value} {key}" for key, value in sorted(counters.items()))
            facts.add_row("workload", f"{work}; ends in {left:.0f} s")
        return facts
