"""`compensating`: exact and complete, over any number of sources, at batch speed (DESIGN 5 and 7).

ECA's compensation, C-Strobe's completeness and SWEEP's local steps, generalised to batches. For the
numbers [a..b] of one message, with B the state before a and D what the batch changes at each place, the
view changes by the telescoped sum over the places k that change

    sum over k of  (places before k: B + D)  x  D at k  x  (places after k: B)

which has every set of changed places once: under the one that is its last. Rows carry their numbers
and a pair the larger one, so the sum of the rows up to m is V(m) - V(a-1) for every m in [a..b]: a
complete list. A relation at two places has its delta at both, so self-joins need nothing of their own.

Each k is a chain (`chains`) that asks for one place at a time; the chains run side by side. An answer
at state S is made the answer at a-1 with the deltas of the transactions in which the two differ
(`recent`): subtracted where S has seen a number from a on, added where it missed one before a. S need
not be a prefix and no FIFO order is needed, only that what S has seen has been delivered. So a batch
costs at most k x (n - 1) <= n x (n - 1) queries, whatever its size, in n - 1 rounds. While it is worked
on, further updates wait; between batches nothing is kept but recent deltas.

Truncates. After truncate(R) at t, R's rows are those that came with t or later: known. A message is
split before each truncate. A batch that begins with one has, under t, all rows of the view going out
(the mirror), and what comes in is one chain that begins with R's rows since t and wants the other places
after the batch. An answer to an earlier batch that asks R and has seen t finds R's rows gone: what
has been computed is dropped, and ONE list, not complete, covers everything up to t.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, finished, source_of
from streaming.algebra.source_queries import Answer, Query
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.asking_manager import Asking
from streaming.viewmanagers.asking.chains import (
    Chain,
    answered,
    chain_back,
    chain_note,
    question,
    step,
)
from streaming.viewmanagers.asking.recent import Again, LostByTruncate, Recent
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class CompensatedBatch:
    """Numbers that are worked on together; a truncate can only be under the first.

    Attributes:
        truncated: the relations that are truncated under `first`.
        busy: whether the view has work at one of the numbers.
        busy_later: the same, the first number aside.
    """

    first: int
    last: int
    truncated: tuple[str, ...]
    busy: bool
    busy_later: bool


@dataclass
class BatchInHand(Generic[V]):
    """The batch in hand.

    Attributes:
        since: where its list begins; before `batch.first` where earlier batches were lost.
        chains: by the id of the query each waits for.
        done: the sum of the chains that have ended.
    """

    since: int
    batch: CompensatedBatch
    chains: dict[int, Chain[V]]
    done: V


class CompensatingManager(Asking[V]):
    """One view's manager.

    Args:
        mirror: the view's rows, for truncates; by default held here.
    """

    def __init__(
        self, spec: ManagedView, operators: Operators[V], *, mirror: Mirror[V] | None = None
    ) -> None:
        super().__init__(spec, operators)
        self.mirror = mirror or HeldMirror(operators, self.psj.schema)
        self.recent = Recent(self.psj, operators, spec.start)
        self.queue: list[CompensatedBatch] = []
        self.work: BatchInHand[V] | None = None

    def _initial(self, updates: Updates) -> ActionList:
        actions = super()._initial(updates)
        self.recent.deliver(updates, None, {updates.last})
        return actions

    def started(self, rows: V) -> None:
        self.mirror.add(rows)

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        change = self.change(updates, updates.first, updates.last)
        numbers = self.relevant(updates)
        self.recent.deliver(updates, change, set(numbers))
        self.queue.extend(_split(updates, numbers, change.truncated))
        return self._next(None)

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        query = self.uqs[answer.id]
        chain = self.work.chains.get(answer.id) if self.work is not None else None
        if self.work is None or chain is None:  # of a batch that was dropped
            del self.uqs[answer.id]
            return []
        (place,) = query.terms[0].asked
        source = source_of(self.psj.relations[place])
        state = answer.states.get(source)
        if state is None:
            brief, rule = f"answer {answer.view}/{answer.id}", f"it has not the state of {source}"
            raise ProtocolError("view_manager", brief, f"view {self.spec.view}: {rule}")
        surplus = self.recent.difference(place, state, self.work.batch.first - 1)
        del self.uqs[answer.id], self.work.chains[answer.id]
        self.recent.confirm(source, state)
        if isinstance(surplus, Again):
            return [self._asked(self.work, chain, place)]
        if isinstance(surplus, LostByTruncate):
            return self._dropped(self.work.since, surplus.first)
        self.compensations += bool(self.operators.size(surplus))
        chain = answered(self.operators, self.psj, chain, place, answer.rows, surplus)
        queries = self._go_on(self.work, chain)
        return queries if self.work.chains else [*self._sent(self.work), *self._next(None)]

    # A batch --------------------------------------------------------------------------------------

    def _next(self, since: int | None) -> list[Query[V] | ActionList]:
        """Begin the next batch that leaves work; one that needs no query ends at once."""
        out: list[Query[V] | ActionList] = []
        while self.work is None and self.queue:
            batch = self.queue.pop(0)
            if not batch.busy:
                continue
            begin = batch.first if since is None else since
            self.work = work = BatchInHand(begin, batch, {}, self.operators.empty(self.psj.schema))
            for chain in self._chains(batch):
                out += self._go_on(work, chain)
            if not work.chains:
                out += self._sent(work)
            since = None
        return out

    def _chains(self, batch: CompensatedBatch) -> Iterator[Chain[V]]:
        deltas = {p: self.recent.rows(p, batch.first, batch.last) for p in self.psj.places}
        changed = {p: delta for p, delta in deltas.items() if self.operators.size(delta)}
        if batch.truncated:
            relations = self.psj.relations
            first, *others = (p for p in self.psj.places if relations[p] in batch.truncated)
            whole = {p: deltas[p] for p in others}
            if all(p in changed for p in (first, *others)):
                yield Chain((first,), deltas[first], whole, changed)
            return
        for k, delta in changed.items():
            yield Chain((k,), delta, {}, {p: d for p, d in changed.items() if p < k})

    def _go_on(self, work: BatchInHand[V], chain: Chain[V]) -> list[Query[V] | ActionList]:
        chain, place = step(self.operators, self.psj, chain)
        if place is not None:
            return [self._asked(work, chain, place)]
        if self.operators.size(chain.rows):
            rows = self.operators.evaluate(finished(self.psj), {LEFT: chain.rows})
            work.done = self.operators.plus(work.done, rows)
        return []

    def _asked(self, work: BatchInHand[V], chain: Chain[V], place: int) -> Query[V]:
        query = self.ask((question(chain, place),), finish=False)
        work.chains[query.id] = chain
        return query

    def _dropped(self, since: int, truncate: int) -> list[Query[V] | ActionList]:
        """Go on with the batch that begins with this truncate; it stands for all before it."""
        at = next(i for i, batch in enumerate(self.queue) if batch.first == truncate)
        self.queue, self.work = self.queue[at:], None
        return self._next(since)

    def _sent(self, work: BatchInHand[V]) -> list[Query[V] | ActionList]:
        """The batch's list."""
        first, last, rows = work.batch.first, work.batch.last, work.done
        if work.batch.truncated:
            gone = self.operators.renumbered(self.mirror.rows(), first)
            rows = self.operators.minus(rows, gone)
        lists: list[Query[V] | ActionList] = []
        if work.since < first:
            lost = self.operators.between(rows, first, first)
            lists.append(self.list_of(work.since, first, lost, complete=False))
            if work.batch.busy_later:
                later = self.operators.between(rows, first + 1, last)
                lists.append(self.list_of(first + 1, last, later, complete=True))
        else:
            lists.append(self.list_of(first, last, rows, complete=True))
        self.mirror.add(rows)
        self.recent.forget(last)
        self.work = None
        return lists

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        work = self.work
        return {
            **super().snapshot(),
            "mirror": self.mirror.snapshot(),
            "recent": self.recent.snapshot(),
            "queue": [asdict(batch) for batch in self.queue],
            "work": None
            if work is None
            else {
                "since": work.since,
                "batch": asdict(work.batch),
                "chains": [[i, chain_note(self.operators, c)] for i, c in work.chains.items()],
                "done": self.operators.pack(work.done),
            },
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self.recent.restore(saved["recent"])
        self.queue = [_batch(note) for note in saved["queue"]]
        work = saved["work"]
        self.work = None
        if work is not None:
            chains = {i: chain_back(self.operators, note) for i, note in work["chains"]}
            done = self.operators.open(Rows.model_validate(work["done"]))
            self.work = BatchInHand(work["since"], _batch(work["batch"]), chains, done)


def _split(
    updates: Updates, numbers: list[int], truncated: tuple[tuple[int, str], ...]
) -> Iterator[CompensatedBatch]:
    """A message as batches: one more begins at each truncate."""
    begins = sorted({updates.first, *(number for number, _ in truncated)})
    for first, following in zip(begins, [*begins[1:], updates.last + 1], strict=True):
        relations = tuple(relation for number, relation in truncated if number == first)
        within = numbers[bisect_left(numbers, first) : bisect_left(numbers, following)]
        busy, later = bool(within or relations), bool(within) and within[-1] > first
        yield CompensatedBatch(first, following - 1, relations, busy, later)


def _batch(note: Mapping[str, Any]) -> CompensatedBatch:
    return CompensatedBatch(**{**note, "truncated": tuple(note["truncated"])})
