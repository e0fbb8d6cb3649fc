"""A simulated source without CDC: triggers fill delta tables with transaction ids (moro-sartori 5.5).

Each relation has two delta tables beside it, which no transaction of the source's own looks at. A
statement sees what has committed and become visible, all of its tables in one snapshot; with visibility
"set" that need not be a prefix of the source's log: a transaction may be seen before one that committed
earlier, when the two have nothing in common.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

from streaming.algebra.bag import Bag, Numbered, Row
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import QueryPart
from streaming.algebra.tree import Relation, Scan, Tree
from streaming.isolated.add_del import Kind, at_source, delta_table
from streaming.isolated.session_messages import (
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    ReadIds,
)
from streaming.simulator.workload import Transaction, WorkloadChange, touched

KINDS: tuple[Kind, ...] = ("inserted", "deleted")
LATE = 0.4
"""How often a transaction does not become visible at once, with visibility "set"."""


class DeltaSource:
    """One source.

    Args:
        initial: its relations' rows.
        captured: the relations that views use: they have triggers, and delta tables that begin empty.
        rng: draws what is not visible yet.
    """

    def __init__(
        self,
        name: str,
        relations: Mapping[str, Relation],
        initial: Mapping[str, Bag],
        captured: Iterable[str],
        operators: NumberedBags,
        visibility: Literal["prefix", "set"] = "prefix",
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.tables: dict[str, Numbered] = {}
        self._relations = {n: r for n, r in relations.items() if n in initial}
        self._captured = tuple(captured)
        self._delta_tables = {
            (name, kind): delta_table(Scan(name, relation.schema), kind).relation
            for name, relation in self._relations.items()
            for kind in KINDS
        }
        self._operators = operators
        self._rng = rng or random.Random(0)
        self._late = LATE if visibility == "set" else 0.0
        self._hidden: list[Transaction] = []
        for relation, rows in initial.items():
            self.tables[relation] = {(0, row): count for row, count in rows.items()}
        for relation in self._captured:
            for kind in KINDS:
                self.tables[self._delta_tables[relation, kind]] = {}

    def commit(self, transaction: Transaction) -> None:
        """Commits a transaction; what conflicts with it has become visible before."""
        last = max(
            (i for i, one in enumerate(self._hidden) if self._conflict(one, transaction)),
            default=-1,
        )
        self._show(self._hidden[: last + 1])
        if self._rng.random() < self._late:
            self._hidden.append(transaction)
        else:
            self._run(transaction)

    def answer(self, message: ReadIds[Any] | Evaluate[Any] | DeleteIds[Any]) -> Any:
        """One statement for each message."""
        self._show([one for one in self._hidden if self._rng.random() < 0.5])
        match message:
            case ReadIds():
                return Ids(message.session, self.name, self.evaluate(message.part))
            case Evaluate():
                rows = tuple(self.evaluate(part) for part in message.parts)
                return Evaluated(message.session, message.request, self.name, rows)
            case DeleteIds():
                self.delete(message.relations, message.ids)
                return Deleted(message.session, self.name)

    def evaluate(self, part: QueryPart[Numbered]) -> Numbered:
        """An expression over the tables and the delta tables as they are."""
        return dict(self._operators.evaluate(resolved(part.tree), {**self.tables, **part.inputs}))

    def delete(self, relations: Iterable[str], ids: Numbered) -> None:
        """Deletes the rows of these transactions from the delta tables."""
        gone = {row[0] for _, row in ids}
        for relation in relations:
            for kind in KINDS:
                table = self._delta_tables[relation, kind]
                rows = self.tables[table].items()
                self.tables[table] = {k: n for k, n in rows if k[1][-1] not in gone}

    def unhandled(self) -> bool:
        """Whether the delta tables have rows, or will have."""
        tables = (self.tables[self._delta_tables[r, k]] for r in self._captured for k in KINDS)
        return bool(self._hidden) or any(tables)

    def _show(self, transactions: list[Transaction]) -> None:
        """Makes some hidden transactions visible, and before each what it conflicts with."""
        for transaction in transactions:
            if transaction not in self._hidden:
                continue
            at = self._hidden.index(transaction)
            earlier = [one for one in self._hidden[:at] if self._conflict(one, transaction)]
            self._show(earlier)
            self._hidden.remove(transaction)
            self._run(transaction)

    def _run(self, transaction: Transaction) -> None:
        """The row changes, and what the triggers make of each."""
        for change in transaction.changes:
            rows = self.tables[change.relation]
            if change.truncates:
                fired = [(row, -count) for (_, row), count in rows.items()]
            else:
                fired = [
                    (r, by) for r, by in ((change.before, -1), (change.after, 1)) if r is not None
                ]
            for row, by in fired:
                _add(rows, row, by)
                if change.relation in self._captured:
                    kind: Kind = "inserted" if by > 0 else "deleted"
                    delta = self.tables[self._delta_tables[change.relation, kind]]
                    _add(delta, (*row, transaction.id), abs(by))

    def _conflict(self, one: Transaction, other: Transaction) -> bool:
        return any(
            a.relation == b.relation
            and (a.truncates or b.truncates or self._touched(a) & self._touched(b))
            for a in one.changes
            for b in other.changes
        )

    def _touched(self, change: WorkloadChange) -> set[Row]:
        return touched(self._relations[change.relation], change)


def _add(rows: Numbered, row: Row, by: int) -> None:
    total = rows.get((0, row), 0) + by
    assert total >= 0, f"a row that is not there is deleted: {row}"
    if total:
        rows[0, row] = total
    else:
        del rows[0, row]


@lru_cache(maxsize=4096)
def resolved(tree: Tree) -> Tree:
    """Every relation's named state by equations (1) to (3)."""
    return at_source(tree)
