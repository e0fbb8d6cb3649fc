"""PostgreSQL's own log as numbered updates: what connector and integrator do, in one process.

Each transaction of the log (`demo.embedded.slot_log`) gets a number in the order of commits. The
delivered position is that of the last commit, as in the service.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from streaming.algebra.bag import Numbered
from streaming.algebra.tree import Relation
from streaming.demo.embedded.slot_log import SlotLog, SlotTransaction
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.messages import RelRun, SourceLog, Updates
from streaming.scalars.types import delta_schema


class Log:
    """The captured tables of one source since `begin`."""

    def __init__(self, dsn: str, relations: Mapping[str, Relation], view: str) -> None:
        self.relations = relations
        self.view = view
        self.number = 0
        self.committed: dict[int, float] = {}
        """Number -> when it committed, in seconds since the epoch."""
        self.rows: dict[str, Numbered] = {}
        """All rows published so far, with their numbers."""
        self._slot = SlotLog(dsn, "north", relations)

    @property
    def position(self) -> int:
        return self._slot.position

    def begin(self, operators: DuckOperators) -> Updates:
        """The slot and number 0, the relations whole; nobody may write meanwhile."""
        for name, found in self._slot.begin().items():
            self.rows[name] = {(0, tuple(row)): 1 for row in found}
        return self._message(operators, 0, self.rows, [])

    def more(self, operators: DuckOperators) -> Updates | None:
        """The transactions committed since, None when the log did not move."""
        first, rows, log = (
            self.number + 1,
            dict[str, Numbered](),
            list[tuple[int, SlotTransaction]](),
        )
        for one in self._slot.more():
            self.number += 1
            self.committed[self.number] = one.seconds
            log.append((self.number, one))
            for name, sign, row in one.changes:
                found, key = rows.setdefault(name, {}), (self.number, row)
                found[key] = found.get(key, 0) + sign
                if not found[key]:
                    del found[key]
        if not log:
            return None
        for name, found in rows.items():
            self.rows[name].update(found)
        return self._message(operators, first, rows, log)

    def _message(
        self,
        operators: DuckOperators,
        first: int,
        rows: Mapping[str, Numbered],
        log: list[tuple[int, SlotTransaction]],
    ) -> Updates:
        return Updates(
            group="g",
            first=first,
            last=self.number,
            runs=(RelRun(first=first, last=self.number, views=(self.view,)),),
            relations={
                name: operators.pack(Signed(delta_schema(self.relations[name].schema), bag=found))
                for name, found in rows.items()
            },
            logs={
                "north": SourceLog(
                    numbers=tuple(number for number, _ in log),
                    transactions=tuple(one.id for _, one in log),
                    positions=tuple(one.position for _, one in log),
                )
            },
            delivered={"north": self.position},
        )

    def age(self, number: int) -> float:
        """Seconds since a number's commit."""
        return time.time() - self.committed.get(number, time.time())

    def close(self) -> None:
        self._slot.close()
