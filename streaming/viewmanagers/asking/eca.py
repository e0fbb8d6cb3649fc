"""`eca`: the Eager Compensating Algorithm (hacid-slides; Zhuge and others 1995), for one source.

    W_up_i:  receive U_i, let Q_i = V<U_i> - sum of Q_j<U_i> over Q_j in UQS, send Q_i
    W_ans_i: receive A_i, let COLLECT = COLLECT + A_i;
             if UQS is empty then MV = MV + COLLECT, COLLECT = {}

Why it is right: updates and answers of the source come in one order (the FIFO adapter sees to it), so
every query in UQS will be evaluated after every update received. Let S be the state after the last
one. COLLECT + (the queries in UQS, evaluated at S) = V(S) - MV: an update changes what the queries in
UQS will give by the sum of Q_j<U_i> and the right side by V<U_i>, and Q_i makes up for both.

U_i is what one message brings: several updates of one relation, of several, under one number or many.
V<U> and Q<U> are then sums over the sets of changed places (`compensate`); with one update they are the
slides'. Their size does not depend on the number of updates. A query whose terms know all their places
is evaluated here and not sent.

The gate (DESIGN 5). Under steady updates UQS may never be empty. So at a cut, which each message's end
is, nothing further is taken up until UQS is empty: V<U_i> waits. But U_i has been received, answers
will have seen it, so - sum of Q_j<U_i> is sent at once, and the invariant holds with S the state at the
cut. Such a query asks for one place fewer and is compensated itself, so the gate opens after at most as
many rounds as the view has places (as C-Strobe's loop ends, strobe-family 7). `gate=False` is the
algorithm as published; its lists cross cuts.

Truncates. After truncate(R) R's rows are those received since: known. V after the message is one term
that knows R, and COLLECT = that - MV. Queries sent earlier find R empty; they are void, and the list
goes from the first number not applied to the message with the truncate, across the cut between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from streaming.algebra.compensate import before, change_of_view, known_rows
from streaming.algebra.operators import Operators
from streaming.algebra.psj import source_of
from streaming.algebra.source_queries import Answer, Known, Query, Term
from streaming.errors import FrescoError
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.asking_manager import Asking
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Update(Generic[V]):
    """U_i: what one message changes at the view's places.

    Attributes:
        deltas: place -> signed rows under number 0.
        whole: place -> all its rows after the message, where its relation has been truncated.
    """

    first: int
    last: int
    deltas: Mapping[int, V]
    whole: Mapping[int, V]


class EcaManager(Asking[V]):
    """One view's manager.

    Args:
        gate: whether nothing is taken up after a cut until UQS is empty.
        mirror: the view's rows, for truncates; by default held here.

    Raises:
        FrescoError: VIEW_NOT_PSJ; VIEW_MODE_SOURCES, the relations are not all of one source.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        *,
        gate: bool = True,
        mirror: Mirror[V] | None = None,
    ) -> None:
        super().__init__(spec, operators)
        sources = sorted({source_of(relation) for relation in self.psj.relations})
        if len(sources) > 1:
            raise FrescoError(
                "VIEW_MODE_SOURCES",
                f"eca maintains views over one source; {spec.view} is over {', '.join(sources)}",
                where=spec.view,
                todo="use `USING compensating`, `sweep`, `strobe` or `c_strobe` for this view",
            )
        self.gate = gate
        self.mirror = mirror or HeldMirror(operators, self.psj.schema)
        self.collect: V = operators.empty(self.psj.schema)
        self.open: tuple[int, int] | None = None
        """The numbers that COLLECT and UQS stand for."""
        self.queue: list[Update[V]] = []
        """Updates at the gate: received, not taken up."""

    def started(self, rows: V) -> None:
        self.mirror.add(rows)

    # W_up -----------------------------------------------------------------------------------------

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        """W_up."""
        if not self.relevant(updates):
            return []
        update = self._update(updates)
        if self.open is None or update.whole:
            return self._send(self._take_up([*self.queue, update])) + self._settle()
        uqs = [term for query in self.uqs.values() for term in query.terms]
        compensation = before(self.operators, uqs, update.deltas)
        self.compensations += bool(compensation)
        if self.gate:
            self.queue.append(update)
            return self._send(compensation) + self._settle()
        self.open = (self.open[0], update.last)
        change = change_of_view(self.operators, self.psj, update.deltas)
        return self._send((*change, *compensation)) + self._settle()

    def _update(self, updates: Updates) -> Update[V]:
        ops, change = self.operators, self.change(updates, updates.first, updates.last)
        deltas = {p: ops.renumbered(delta, 0) for p, delta in change.deltas.items()}
        whole: dict[int, V] = {}
        for number, relation in change.truncated:
            for place in self.psj.places_of(relation):
                delta = change.deltas.get(place, ops.empty(self.psj.leaves[place].schema))
                whole[place] = ops.renumbered(ops.between(delta, number, updates.last), 0)
        return Update(updates.first, updates.last, deltas, whole)

    def _take_up(self, queue: Sequence[Update[V]]) -> tuple[Term[V], ...]:
        """Q_i of the first update, compensated for the others: all of them have been received.

        After a truncate all up to it are taken up together: V as it is then, instead of MV.
        """
        ops, begin = self.operators, self.open or (queue[0].first, queue[0].last)
        last = max((at for at, update in enumerate(queue) if update.whole), default=0)
        taken, rest = queue[last], queue[last + 1 :]
        if taken.whole:
            known = tuple(Known((p,), rows) for p, rows in taken.whole.items())
            asked = tuple(p for p in self.psj.places if p not in taken.whole)
            terms: tuple[Term[V], ...] = (Term(1, known, asked),)
            if not all(ops.size(k.rows) for k in known):
                terms = ()
            self.collect = ops.minus(ops.empty(self.psj.schema), self.mirror.rows())
            self.uqs = {i: replace(query, terms=()) for i, query in self.uqs.items()}
        else:
            terms = change_of_view(ops, self.psj, taken.deltas)
        self.open = (begin[0], taken.last)
        self.queue = list(rest)
        if rest:
            places = sorted({place for update in rest for place in update.deltas})
            later = {p: ops.plus(*(u.deltas[p] for u in rest if p in u.deltas)) for p in places}
            compensation = before(ops, terms, later)
            self.compensations += bool(compensation)
            terms = (*terms, *compensation)
        return terms

    def _send(self, terms: tuple[Term[V], ...]) -> list[Query[V] | ActionList]:
        """Send Q_i; evaluate it here when it asks for nothing."""
        if any(term.asked for term in terms):
            return [self.ask(terms)]
        for term in terms:
            rows = known_rows(self.operators, self.psj, term, finish=True)
            self.collect = self.operators.plus(self.collect, rows)
        return []

    # W_ans ----------------------------------------------------------------------------------------

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        """W_ans."""
        query = self.uqs.pop(answer.id)
        if query.terms:
            self.collect = self.operators.plus(self.collect, answer.rows)
        return self._settle()

    def _settle(self) -> list[Query[V] | ActionList]:
        """MV = MV + COLLECT when UQS is empty; then the gate opens."""
        out: list[Query[V] | ActionList] = []
        while not self.uqs and self.open is not None:
            first, last = self.open
            rows = self.operators.renumbered(self.collect, last)
            out.append(self.list_of(first, last, rows, complete=False))
            self.mirror.add(rows)
            self.collect, self.open = self.operators.empty(self.psj.schema), None
            if self.queue:
                out += self._send(self._take_up(self.queue))
        return out

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        def packed(rows: Mapping[int, V]) -> list[Any]:
            return [[p, self.operators.pack(v)] for p, v in rows.items()]

        return {
            **super().snapshot(),
            "mirror": self.mirror.snapshot(),
            "collect": self.operators.pack(self.collect),
            "open": self.open and list(self.open),
            "queue": [[u.first, u.last, packed(u.deltas), packed(u.whole)] for u in self.queue],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        def opened(pairs: list[Any]) -> dict[int, V]:
            return {p: self.operators.open(Rows.model_validate(rows)) for p, rows in pairs}

        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self.collect = self.operators.open(Rows.model_validate(saved["collect"]))
        self.open = tuple(saved["open"]) if saved["open"] else None
        self.queue = [Update(f, n, opened(d), opened(w)) for f, n, d, w in saved["queue"]]
