"""The demo's board: what every view says at each published state, and whether the sum ever moved."""

from __future__ import annotations

import time
from collections import Counter, deque
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
from rich.console import Group
from rich.table import Table

from streaming.embedded.naive import NaiveSum
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.epoch import Epoch

_SUMS = {"balance": "balance", "branch_total": "total", "total": "total"}
"""View -> the column whose sum over the view is the bank's money."""
_RECENT = 200


class LiveBoard:
    """Follows the newest epoch of the demo's group.

    Attributes:
        states: published states looked at; each is an epoch.
        moved: how many of them showed another sum than the first.
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
        self.states = 0
        self.moved = 0
        self.disagreed = 0

    def refresh(self) -> bool:
        """Read the newest published state, all views at once; False before there is one."""
        try:
            warehouse = Warehouse(self._path)
            snapshot = warehouse.snapshot(warehouse.views())
        except (FrescoError, OSError):
            return False
        if self._epoch is not None and snapshot.epoch.epoch == self._epoch.epoch:
            return True
        self._epoch = snapshot.epoch
        self._rows = {view: table.num_rows for view, table in snapshot.tables.items()}
        self._sums = {
            view: pc.sum(snapshot.tables[view][column]).as_py() or Decimal(0)
            for view, column in _SUMS.items()
        }
        self._judge()
        naive = self._naive.total
        low, high = self._naive_range
        self._naive_range = [min(low, naive), max(high, naive)]
        if (
            self._epoch.committed_ms is not None
            and self._epoch.written_ms is not None
            and self._epoch.epoch > 1
        ):
            self._fresh.append((self._epoch.written_ms - self._epoch.committed_ms) / 1000)
        return True

    def _judge(self) -> None:
        self.states += 1
        values = set(self._sums.values())
        if self._first is None:
            self._first = self._sums["total"]
        if values != {self._first}:
            self.moved += 1

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
            else (f"epoch {epoch.epoch}, every transaction up to {epoch.frontier}")
        )
        table = Table(title=title, title_justify="left")
        for name, justify in (
            ("view", "left"),
            ("frontier", "right"),
            ("rows", "right"),
            ("sum of money", "right"),
        ):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for view, rows in sorted(self._rows.items()):
            frontier = epoch.suspended.get(view, epoch.frontier) if epoch else ""
            table.add_row(view, str(frontier), str(rows), str(self._sums.get(view, "")))
        lines = [table, self._facts(left, counters)]
        return Group(*lines)

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
            f"wrong after {self._naive.moments} events",
        )
        if counters is not None:
            work = ", ".join(f"{value} {key}" for key, value in sorted(counters.items()))
            facts.add_row("workload", f"{work}; ends in {left:.0f} s")
        return facts
