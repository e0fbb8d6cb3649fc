"""Copies of chosen relations at the warehouse: sub-queries that need not travel (strobe-family 9).

The paper's fourth improvement: "it may make sense to copy the most frequently accessed ones, if they are
not too large or expensive to keep up to date. This also increases the number of queries that can be
answered locally." A statement that asks a source for copied relations alone is answered here, at once.

Why this is right for every manager that asks: the copies stand at the state after the last updates
handed to the manager, all of them and no others. That is what an answer shows that comes over a FIFO
channel at this moment (`fifo`), so the published algorithms cannot tell it from one of the source; and
an exact manager is told which transactions these are. A statement that asks for another relation of the
source too travels as a whole, because its parts have to see one state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Psj, source_of
from streaming.algebra.source_queries import Copied, SourceAnswer, SourceQuery, SourceState
from streaming.algebra.tree import Scan, relations, walk
from streaming.ask.state_codec import StateCodec
from streaming.messages import Rows, Updates

V = TypeVar("V")


class CopiedCodec:
    """The codec of states of copies, and of a source's own states through another."""

    def __init__(self, own: StateCodec) -> None:
        self._own = own

    def note(self, state: SourceState) -> Any:
        if isinstance(state, Copied):
            return {"copied": [state.position, sorted(state.beyond), state.upto, state.whole]}
        return {"own": self._own.note(state)}

    def back(self, note: Any) -> SourceState:
        if "own" in note:
            return self._own.back(note["own"])
        position, beyond, upto, whole = note["copied"]
        return Copied(position, frozenset(beyond), upto, whole)


class Copies(Generic[V]):
    """The copied relations of one view.

    Args:
        psj: the view.
        operators: what can be done with relations.
        copied: names of relations; those that the view does not read are left out.

    Attributes:
        answered: how many statements have been answered here.
    """

    def __init__(self, psj: Psj, operators: Operators[V], copied: Collection[str]) -> None:
        self._operators = operators
        leaves = psj.leaves if copied else ()
        scans = [node for leaf in leaves for node in walk(leaf) if isinstance(node, Scan)]
        self.rows: dict[str, V] = {
            scan.relation: operators.empty(scan.schema) for scan in scans if scan.relation in copied
        }
        asked = {source_of(scan.relation) for scan in scans if scan.relation not in copied}
        self.states = {
            source: Copied(-1, frozenset(), -1, whole=source not in asked)
            for source in {source_of(name) for name in self.rows}
        }
        self._beyond: dict[str, dict[str, int]] = {source: {} for source in self.states}
        """source -> id -> commit position of the transactions in `Copied.beyond`."""
        self.answered = 0

    def add(self, updates: Updates) -> None:
        """The updates are about to be handed to the manager."""
        operators = self._operators
        for name, rows in self.rows.items():
            truncates = [
                control.number
                for control in updates.controls
                if control.kind == "truncate" and control.relation == name
            ]
            if truncates:
                rows = operators.minus(rows, rows)
            if (reference := updates.relations.get(name)) is not None:
                first = max([updates.first, *truncates])
                more = operators.between(operators.open(reference), first, updates.last)
                rows = operators.plus(rows, operators.renumbered(more, 0))
            self.rows[name] = rows
        for source in self.states:
            self._tell(source, updates)

    def _tell(self, source: str, updates: Updates) -> None:
        known, beyond = self.states[source], self._beyond[source]
        position = updates.delivered.get(source, known.position)
        upto = max(known.upto, position)
        if (log := updates.logs.get(source)) is not None:
            beyond |= dict(zip(log.transactions, log.positions, strict=True))
            upto = max([upto, *log.positions])
        beyond = {name: at for name, at in beyond.items() if at > position}
        self._beyond[source] = beyond
        self.states[source] = Copied(position, frozenset(beyond), upto, known.whole)

    def answer(self, query: SourceQuery[V]) -> SourceAnswer[V] | None:
        """A statement's answer; None where it asks for a relation that is not copied."""
        if not self.rows:
            return None
        asked = {
            name for part in query.parts for name in relations(part.tree) if name not in part.inputs
        }
        if not asked or not asked <= self.rows.keys():
            return None
        self.answered += 1
        rows = tuple(
            self._operators.evaluate(part.tree, {**self.rows, **part.inputs})
            for part in query.parts
        )
        state = self.states[query.source]
        return SourceAnswer(query.view, query.id, query.step, query.source, rows, state)

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "rows": {name: self._operators.pack(rows) for name, rows in self.rows.items()},
            "states": {
                source: [state.position, state.upto, self._beyond[source]]
                for source, state in self.states.items()
            },
            "answered": self.answered,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        references = {name: Rows.model_validate(note) for name, note in saved["rows"].items()}
        self.rows = {name: self._operators.open(rows) for name, rows in references.items()}
        self._beyond = {source: dict(note[2]) for source, note in saved["states"].items()}
        self.states = {
            source: Copied(position, frozenset(beyond), upto, self.states[source].whole)
            for source, (position, upto, beyond) in saved["states"].items()
        }
        self.answered = saved["answered"]
