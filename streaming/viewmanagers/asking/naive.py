"""`naive`: the Incremental View Maintenance Algorithm IVMA (hacid-slides), kept to show its anomaly.

    W_up_i:  receive U_i, let Q_i = V<U_i>, send Q_i
    W_ans_i: receive A_i, MV = MV + A_i

It is wrong as soon as a source moves on between U_i and the evaluation of Q_i: insertions are counted
twice, deletions are not carried out. The smallest histories are the slides' two anomalies and Example 0
of strobe-family; the golden tests run them.

U_i is a number, so the merge gets one list for each, in order: an answer that overtakes an earlier one
waits for it. A number that changes several places has V<U_i> as their telescoped sum (`compensate`).

MV is a table: a deletion of a row that is not there changes nothing.

Two ways to delete. By query, as in the slides: Q_i = V<U_i> is signed. From the view, as "conventional"
is meant in strobe-family Example 0: the deletion takes out of MV, when it is received, the rows that
agree with it on all columns the view has of the relation. That needs the relation's key among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from streaming.algebra.compensate import change_of_view, known_rows
from streaming.algebra.operators import Operators, Positions
from streaming.algebra.source_queries import Answer, Query, Term
from streaming.messages import ActionList, Rows, Updates
from streaming.scalars.expression import Col
from streaming.viewmanagers.asking.asking_manager import Asking, PlaceChange
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Slot(Generic[V]):
    """A number whose list has not been sent.

    Attributes:
        rows: its changes as far as they are known.
        query: the id it waits for, None when it waits for earlier numbers only.
        truncated: all rows of MV go out when its turn comes.
    """

    number: int
    rows: V
    query: int | None
    truncated: bool


class NaiveManager(Asking[V]):
    """One view's manager.

    Args:
        deletions: "query" or "view", see above.
        mirror: the view's rows; by default held here.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        *,
        deletions: Literal["query", "view"] = "query",
        mirror: Mirror[V] | None = None,
    ) -> None:
        super().__init__(spec, operators)
        self.deletions = deletions
        self.mirror = mirror or HeldMirror(operators, self.psj.schema)
        self.slots: list[Slot[V]] = []

    def started(self, rows: V) -> None:
        self.mirror.add(rows)

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        """W_up for each number of the message."""
        queries: list[Query[V] | ActionList] = []
        for number in self.relevant(updates):
            change = self.change(updates, number)
            rows, terms = self._update(change)
            query = None
            if any(term.asked for term in terms):
                query = self.ask(terms)
                queries.append(query)
            else:
                for term in terms:
                    known = known_rows(self.operators, self.psj, term, finish=True)
                    rows = self.operators.plus(rows, known)
            waits = None if query is None else query.id
            self.slots.append(Slot(number, rows, waits, bool(change.truncated)))
        return queries + self._lists()

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        """W_ans: the answer is added to MV when the numbers before it have their lists."""
        del self.uqs[answer.id]
        at = next(i for i, slot in enumerate(self.slots) if slot.query == answer.id)
        slot = self.slots[at]
        rows = self.operators.plus(slot.rows, answer.rows)
        self.slots[at] = replace(slot, rows=rows, query=None)
        return self._lists()

    def _update(self, change: PlaceChange[V]) -> tuple[V, tuple[Term[V], ...]]:
        """What is known at once, and V<U_i>."""
        ops, rows = self.operators, self.operators.empty(self.psj.schema)
        deltas = {p: ops.renumbered(delta, 0) for p, delta in change.deltas.items()}
        if self.deletions == "view":
            left = ops.plus(self.mirror.rows(), *(slot.rows for slot in self.slots))
            for place, delta in deltas.items():
                at, rows_at = self._columns_of(place)
                gone = ops.matching(left, at, ops.deleted(delta), rows_at)
                rows, left = ops.minus(rows, gone), ops.minus(left, gone)
            deltas = {p: ops.inserted(delta) for p, delta in deltas.items()}
        return rows, change_of_view(ops, self.psj, deltas)

    def _columns_of(self, place: int) -> tuple[Positions, Positions]:
        """The view's columns that are columns of the relation there, and which ones of the leaf."""
        start = self.psj.starts[place]
        width = len(self.psj.leaves[place].schema)
        pairs = [
            (at, output.position - start)
            for at, output in enumerate(self.psj.outputs)
            if isinstance(output, Col) and start <= output.position < start + width
        ]
        return tuple(at for at, _ in pairs), tuple(column for _, column in pairs)

    def _lists(self) -> list[Query[V] | ActionList]:
        lists: list[Query[V] | ActionList] = []
        while self.slots and self.slots[0].query is None:
            slot = self.slots.pop(0)
            rows = slot.rows
            if slot.truncated:
                rows = self.operators.minus(rows, self.mirror.rows())
            rows = self._there(self.operators.renumbered(rows, slot.number), slot.number)
            lists.append(self.list_of(slot.number, slot.number, rows, complete=True))
            self.mirror.add(rows)
        return lists

    def _there(self, rows: V, number: int) -> V:
        """Without the deletions of rows that MV has not: they change nothing in a table."""
        ops = self.operators
        gone = ops.deleted(rows)
        if not ops.size(gone):
            return rows
        every = tuple(range(len(self.psj.schema)))
        standing = self.mirror.matching(every, gone, every)
        lacking = ops.deleted(ops.plus(standing, ops.renumbered(gone, 0)))
        return ops.minus(rows, ops.renumbered(lacking, number))

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        slots = [
            {
                "number": slot.number,
                "rows": self.operators.pack(slot.rows),
                "query": slot.query,
                "truncated": slot.truncated,
            }
            for slot in self.slots
        ]
        return {**super().snapshot(), "mirror": self.mirror.snapshot(), "slots": slots}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self.slots = [
            Slot(
                note["number"],
                self.operators.open(Rows.model_validate(note["rows"])),
                note["query"],
                note["truncated"],
            )
            for note in saved["slots"]
        ]
