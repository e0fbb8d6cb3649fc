"""SWEEP: one update after the other, one relation after the other, compensated at home (AASY97).

The mediator of ryco-pyco (figure 9) maintains its view so. Updates wait in a queue, UMQ. For the first
of them ViewChange starts from the changed relation and sweeps over the others, leftwards and then
rightwards, asking for one relation at a time: TempView is what it has so far, its join with the
relation comes back from the source, at whatever state the source is by then. Since only one relation
was unknown, what later updates of that relation contributed is TempView joined with these updates, which
are in the queue: it is subtracted at once, without asking anybody (local compensation). The channel to
the sources must be FIFO (`ask.fifo`): then an answer has seen exactly the updates delivered before
it, and all of these that are not done yet are in the queue.

A transaction may change several places at once, a relation may stand at several places. With d_i what
number n changes at place i, the view changes by

    sum over i of  S_1(n) x ... x S_i-1(n) x d_i x S_i+1(n-1) x ... x S_k(n-1),

places left of i new, right of it old (ryco-pyco 2.3, after equation 4); the sum telescopes to V(n) -
V(n-1), so it is the list of n whatever the transactions change and wherever a relation stands. New or
old is a matter of which queued updates are subtracted: those after n, or n's own too. Lists are complete:
they hold each number's rows.

Several numbers at a time (`window`). What a sweep does for n it does for all waiting numbers at once:
d_i holds the changes of all of them, TempView's rows keep their numbers through the joins, and an answer
is compensated number by number (`later`), by the changes after n, the batch's own among them. So the
sweeps of a batch ask as many queries as those of one number.

The order of a sweep is the paper's where neighbours in the list of places can be joined; a place that
nothing known can be joined with waits until one can (the paper's chain joins never need this).

Truncates. At a number that truncates relations the view becomes what the rest of the number leaves of
it: all rows known so far (`Mirror`) go, and the sweep starts from the truncated relations' new rows. An
answer that has seen a later truncate of the relation it was asked for is lost, its rows cannot be had
back; then one list, not complete, covers all numbers up to the truncate.

Two mistakes in the paper:

* Figure 9: "FOR ALL dS FROM UpdateSource DO dV = dV - dS x TempView" stands after the answer of Parent j.
  The updates to subtract are those of Parent j, not those of the update's own source. V = S1 x S2, S1 =
  S2 = {}: U1 inserts (1) into S1, U2 inserts (1) into S2 before U1's query is answered. As printed U1's
  answer {(1,1)} stays, and U2's list brings the row again.
* Section 3.3: the changes of several parents under one DU-id may be computed "in a different order, or
  even in parallel". In a different order yes, since taking a change out of RMQ turns its parent from
  old to new for those after it; in parallel no: V = S1 x S2, one DU-id brings (1) to both, both sweeps
  find the other's row (or neither does) and V gets two rows (or none).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from streaming.algebra.join_graph import adjacent, join_graph
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Places, finished, joined
from streaming.algebra.source_queries import Answer, Known, Query, Term
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.asking_manager import Asking, PlaceChange
from streaming.viewmanagers.asking.holding_queue import (
    HeldBatch,
    HeldMessage,
    HoldingQueue,
    batch_back,
    batch_note,
)
from streaming.viewmanagers.asking.numbered_effects import with_later
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Sweep(Generic[V]):
    """One ViewChange on its way.

    Attributes:
        have: the places that TempView covers.
        temp: TempView.
        order: the places still to be joined, in the order of the passes.
        new: the places wanted as they are after each number; the others as before it.
    """

    have: Places
    temp: V
    order: Places
    new: frozenset[int]


@dataclass(frozen=True)
class SweepInHand(Generic[V]):
    """What is being done for the numbers that were at the head of the queue.

    Attributes:
        first: the first number that the list will cover.
        batch: the numbers; they have left the queue.
        delta: the sum of the finished sweeps.
        sweeps: the sweep on its way, then those that have not begun.
    """

    first: int
    batch: HeldBatch[V]
    delta: V
    sweeps: tuple[Sweep[V], ...]


class SweepManager(Asking[V]):
    """The manager of one view.

    Args:
        window: numbers that are swept together at most; 1 is the algorithm as published.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        mirror: Mirror[V] | None = None,
        window: int = 1,
    ) -> None:
        super().__init__(spec, operators)
        self.graph = join_graph(self.psj)
        self.mirror: Mirror[V] = mirror or HeldMirror(operators, self.psj.schema)
        self.window = window
        self.umq: HoldingQueue[V] = HoldingQueue(self.psj, operators)
        self.work: SweepInHand[V] | None = None

    # Messages -------------------------------------------------------------------------------------

    def started(self, rows: V) -> None:
        self.mirror.add(rows)

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        """LogUpdates: append to the queue, and begin when nothing is at work."""
        change = self.change(updates, updates.first, updates.last)
        self.umq.put(HeldMessage(tuple(self.relevant(updates)), change, cut=updates.cut))
        return [] if self.work else self.update_view()

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        """The next relation's join with TempView, compensated; then on with the sweep."""
        assert self.work is not None
        sweep, *rest = self.work.sweeps
        place = self.uqs.pop(answer.id).terms[0].asked[0]
        if (truncate := self.umq.truncate((place,))) is not None:
            self._skip(self.work, truncate)
            return self.update_view()
        order = tuple(p for p in sweep.order if p != place)
        temp = self.compensated(self.work, place, answer.rows)
        have = tuple(sorted((*sweep.have, place)))
        self.work = replace(self.work, sweeps=(Sweep(have, temp, order, sweep.new), *rest))
        return self.update_view()

    # UpdateView and ViewChange --------------------------------------------------------------------

    def update_view(self) -> list[Query[V] | ActionList]:
        """Work on the head of the queue until something must be asked or the queue is empty."""
        out: list[Query[V] | ActionList] = []
        while self.work is not None or self.umq:
            if self.work is None:
                batch = self.umq.batch(self.window)
                assert batch is not None
                self.work = self._begun(batch.change.first, batch)
            if not self.work.sweeps:
                out += self._lists(self.work)
                continue
            sweep, *rest = self.work.sweeps
            place = self.next_place(sweep)
            if place is None:
                delta = self.operators.plus(self.work.delta, self._outputs(sweep))
                self.work = replace(self.work, delta=delta, sweeps=tuple(rest))
            elif (truncate := self.umq.truncate((place,))) is not None:
                self._skip(self.work, truncate)
            else:
                known = Known(sweep.have, sweep.temp)
                out.append(self.ask((Term(1, (known,), (place,)),), finish=False))
                return out
        return out

    def _begun(self, first: int, batch: HeldBatch[V]) -> SweepInHand[V]:
        """The sweeps for a batch: one per changed place, or one after a truncate."""
        ops, change = self.operators, batch.change
        every = self.psj.places
        if change.truncated:
            gone = ops.renumbered(self.mirror.rows(), change.last)
            delta = ops.minus(ops.empty(self.psj.schema), gone)
            return SweepInHand(first, batch, delta, tuple(self._from_truncated(change)))
        sweeps = [
            Sweep(
                (i,),
                change.deltas[i],
                (*reversed(every[:i]), *every[i + 1 :]),
                frozenset(every[:i]),
            )
            for i in every
            if i in change.deltas
        ]
        return SweepInHand(first, batch, ops.empty(self.psj.schema), tuple(sweeps))

    def _from_truncated(self, change: PlaceChange[V]) -> Iterator[Sweep[V]]:
        """The whole view at a number, from the rows that a truncate has left of its relations."""
        relations = {relation for _, relation in change.truncated}
        known = [p for p in self.psj.places if self.psj.relations[p] in relations]
        if any(place not in change.deltas for place in known):
            return
        have: Places = (known[0],)
        temp = change.deltas[known[0]]
        for place in known[1:]:
            temp = self._joined(have, temp, place, change.deltas[place])
            have = (*have, place)
        others = tuple(p for p in self.psj.places if p not in have)
        yield Sweep(have, temp, others, frozenset(others))

    def next_place(self, sweep: Sweep[V]) -> int | None:
        """Parent j: the next place of the passes that can be joined; None when the sweep is done."""
        if not sweep.order or not self.operators.size(sweep.temp):
            return None
        near = [p for p in sweep.order if adjacent(self.graph, (p,), sweep.have)]
        return (near or sweep.order)[0]

    def compensated(self, work: SweepInHand[V], place: int, rows: V) -> V:
        """dV - TempView x (the updates of the place that are not to be seen), number by number."""
        ops, sweep, change = self.operators, work.sweeps[0], work.batch.change

        def join(temp: V, updates: V) -> V:
            return self._joined(sweep.have, temp, place, updates)

        waiting = self.umq.rows(place)
        surplus = []
        if ops.size(waiting):
            surplus.append(join(sweep.temp, ops.renumbered(waiting, 0)))
        if place in change.deltas:
            updates, own = change.deltas[place], place not in sweep.new
            numbers = change.first, change.last
            surplus += with_later(ops, sweep.temp, updates, *numbers, join, own)
        self.compensations += bool(surplus)
        return ops.minus(rows, ops.plus(*surplus)) if surplus else rows

    def _joined(self, have: Places, temp: V, place: int, rows: V) -> V:
        tree = joined(self.psj, have, (place,), base=False)
        return self.operators.evaluate(tree, {LEFT: temp, RIGHT: rows})

    def _outputs(self, sweep: Sweep[V]) -> V:
        """The view's columns of a finished sweep; one that ran empty has not gone everywhere."""
        if sweep.order:
            return self.operators.empty(self.psj.schema)
        return self.operators.evaluate(finished(self.psj), {LEFT: sweep.temp})

    def _lists(self, work: SweepInHand[V]) -> Iterator[ActionList]:
        """V = V + dV: the lists of the batch, one between two cuts."""
        self.work = None
        self.mirror.add(work.delta)
        complete = work.first == work.batch.change.first
        for first, last in work.batch.spans:
            rows = self.operators.between(work.delta, first, last)
            yield self.list_of(first if complete else work.first, last, rows, complete)

    # Truncates ------------------------------------------------------------------------------------

    def _skip(self, work: SweepInHand[V], truncate: int) -> None:
        """Give up the numbers before a truncate: the list of the truncate covers them."""
        if self.umq.held[0].change.first < truncate:
            self.umq.take(truncate - 1)
        batch = self.umq.batch(1)
        assert batch is not None and batch.change.first == truncate
        self.work = self._begun(work.first, batch)

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        pack = self.operators.pack
        work = self.work and {
            "first": self.work.first,
            "batch": batch_note(self.operators, self.work.batch),
            "delta": pack(self.work.delta),
            "sweeps": [
                [list(s.have), pack(s.temp), list(s.order), sorted(s.new)] for s in self.work.sweeps
            ],
        }
        return {
            **super().snapshot(),
            "umq": self.umq.snapshot(),
            "work": work,
            "mirror": self.mirror.snapshot(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self.umq.restore(saved["umq"])
        work = saved["work"]
        self.work = work and SweepInHand(
            work["first"],
            batch_back(self.operators, work["batch"]),
            self._open(work["delta"]),
            tuple(
                Sweep(tuple(have), self._open(temp), tuple(order), frozenset(new))
                for have, temp, order, new in work["sweeps"]
            ),
        )

    def _open(self, reference: Any) -> V:
        return self.operators.open(Rows.model_validate(reference))
