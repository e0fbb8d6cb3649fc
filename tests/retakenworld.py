"""A source whose snapshot is taken again, and an intake that is restarted at every step, for tests."""

from __future__ import annotations

from typing import Any, Literal

from streaming.cdc.intake import Intake, IntakeResult
from streaming.cdc.later_snapshots import CLOCKS_MS
from streaming.durable import as_json
from tests.intakeworld import Recorded, make, relations, snapshot_of
from tests.sourcelog import Record, SourceLog, Topics

Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]


class Source:
    """A database, its log as the connector tells it, and an intake that is restarted at every step."""

    def __init__(
        self,
        transactions: Literal["metadata", "per-event"] = "metadata",
        begun: bool = True,
        snapshot: bool = True,
        value: str = "text",
    ) -> None:
        self._relations = relations(value)
        self._transactions, self._snapshot = transactions, snapshot
        self.log, self.topics = SourceLog("north"), Topics()
        self.results = Recorded()
        self.contents = self.results.contents
        self.intake = self._made()
        if begun:
            first = snapshot_of(self.log, {"account": 3, "entry": 2}, 0 if value == "int4" else "a")
            self.step(first)

    def _made(self) -> Intake:
        return make(
            self._relations,
            snapshot=self._snapshot,
            transactions=self._transactions,
            contents=self.contents,
        )

    def step(self, records: list[Record] | None = None, now_ms: int = 0) -> IntakeResult:
        result = self.intake.step(self.topics.batch(records or []), now_ms)
        self.results.append(result)
        saved = as_json(self.intake.snapshot())
        self.intake = self._made()
        self.intake.restore(saved)
        return result

    def commit(self, *changes: Change) -> list[Record]:
        if self._transactions == "metadata":
            return self.log.commit(list(changes))
        records = []
        for change in changes:
            self.log.lsn += 10
            records.append(self.log.row(*change))
        return records

    def later(self, *changes: Change) -> list[Record]:
        """A transaction so late that a snapshot before it has not seen it, whoever's clock is right."""
        self.log.lsn += CLOCKS_MS
        return self.commit(*changes)

    def again(self, **tables: list[dict[str, Any]]) -> list[Record]:
        """A whole snapshot, taken at the log's end."""
        self.log.lsn += 1
        rows = [self.log.row(t, "r", None, values) for t, rows in tables.items() for values in rows]
        return [*rows, *self.log.scanned({table: len(rows) for table, rows in tables.items()})]

    def has(self, table: str) -> list[tuple[Any, ...]]:
        """The relation as the numbered updates make it."""
        captured = {one.counted_as: one for one in self._relations}[f"public.{table}"]
        return self.results.rows(captured)
