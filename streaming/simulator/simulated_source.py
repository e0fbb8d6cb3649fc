"""A simulated source: runs its transactions, logs them, answers queries in one snapshot.

An answer is computed at the source's current state and names it (DESIGN 7). With visibility "prefix"
that is everything committed so far. With "set" it may lack transactions that have just been logged, as
a PostgreSQL snapshot may: those that were not visible yet, which conflict with nothing that was. What
one answer has seen every later one sees.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from streaming.algebra.bag import Bag, Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import Seen, SourceAnswer, SourceQuery
from streaming.algebra.tree import Relation
from streaming.simulator.network import INTEGRATOR, Out
from streaming.simulator.workload import Transaction, WorkloadChange, touched

LATE = 2
"""How many of the last transactions a snapshot may lack."""


class SimulatedSource:
    """One source.

    Args:
        initial: its relations' rows.
        operators: evaluates the parts of a query.
        rng: draws what a snapshot lacks.
    """

    def __init__(
        self,
        name: str,
        relations: Mapping[str, Relation],
        initial: Mapping[str, Bag],
        operators: NumberedBags,
        visibility: Literal["prefix", "set"],
        rng: random.Random,
    ) -> None:
        self.name = name
        self.committed: list[Transaction] = []
        self.answered = 0
        self._relations = relations
        self._rows: dict[str, Numbered] = {
            relation: {(0, row): count for row, count in rows.items()}
            for relation, rows in initial.items()
        }
        self._operators = operators
        self._sets = visibility == "set"
        self._before: list[dict[str, Numbered]] = []
        self._shown: set[str] = set()
        self._rng = rng

    def handle(self, message: Transaction | SourceQuery[Numbered], sender: str) -> Out:
        """Runs a transaction or answers a query to who sent it."""
        if isinstance(message, Transaction):
            return [(INTEGRATOR, self.commit(message))]
        return [(sender, self.answer(message))]

    def commit(self, transaction: Transaction) -> Transaction:
        """Runs and logs the next transaction; returns it as the log shows it."""
        if self._sets:
            self._before.append({name: dict(rows) for name, rows in self._rows.items()})
            del self._before[:-LATE]
        for change in transaction.changes:
            apply(self._rows[change.relation], change)
        self.committed.append(transaction)
        return transaction

    def answer(self, query: SourceQuery[Numbered]) -> SourceAnswer[Numbered]:
        """All parts of a query in one snapshot."""
        self.answered += 1
        missing = self._missing() if self._sets else ()
        rows = self._without(missing) if missing else self._rows
        upto = len(self.committed)
        answers = tuple(
            [dict(self._operators.evaluate(p.tree, {**rows, **p.inputs})) for p in query.parts]
        )
        state = Seen(upto, frozenset(one.id for one in missing))
        return SourceAnswer(query.view, query.id, query.step, self.name, answers, state)

    def _missing(self) -> tuple[Transaction, ...]:
        """Some of the last transactions, none of which a later visible one conflicts with."""
        missing: list[Transaction] = []
        visible: list[Transaction] = []
        for transaction in reversed(self.committed[-LATE:]):
            hidden = transaction.id not in self._shown
            free = hidden and not any(self._conflict(transaction, later) for later in visible)
            if free and self._rng.random() < 0.4:
                missing.append(transaction)
            else:
                visible.append(transaction)
        self._shown.update(one.id for one in visible)
        return tuple(reversed(missing))

    def _conflict(self, one: Transaction, other: Transaction) -> bool:
        return any(
            a.relation == b.relation
            and (
                a.truncates
                or b.truncates
                or touched(self._relations[a.relation], a) & touched(self._relations[a.relation], b)
            )
            for a in one.changes
            for b in other.changes
        )

    def _without(self, missing: tuple[Transaction, ...]) -> dict[str, Numbered]:
        late = self.committed[-len(self._before) :]
        rows = {name: dict(each) for name, each in self._before[0].items()}
        for transaction in late:
            if transaction not in missing:
                for change in transaction.changes:
                    apply(rows[change.relation], change)
        return rows


def apply(rows: Numbered, change: WorkloadChange) -> None:
    """A row change on a relation's rows."""
    if change.truncates:
        rows.clear()
        return
    for row, by in ((change.before, -1), (change.after, 1)):
        if row is not None:
            key = (0, row)
            count = rows.get(key, 0) + by
            if count:
                rows[key] = count
            else:
                rows.pop(key, None)
