"""The FIFO adapter: restores what the published algorithms assume of the network (DESIGN 7).

eca, the strobe family and sweep assume that a source's answers and updates arrive in the order in
which the source made them: what an answer has seen has been delivered before it, what it has not seen
comes after it. Logs and queries travel apart, so neither holds (moro-sartori, figure 1: the answer
that saw tx overtakes tx's notification; ty's notification overtakes the answer that did not see ty).
The adapter sits between the sources and the integrator on one side, the query processor and the
manager on the other:

* an answer that has seen something undelivered is *held* until that has been delivered, if need be
  within a message, which is cut in two there (`splitting`);
* an answer that misses something already delivered is thrown away and its statement *asked again*.

An answer therefore passes exactly when the transactions it has seen are those delivered, as over a FIFO
channel. Both tests look at transactions, never at arrival: `state.upto` against the position below
which everything is delivered, and `state.saw` for each delivered transaction (a transaction may be in
the log before a snapshot shows it).

With `exact` the adapter only holds: `compensating` adds what an answer missed, but cannot take away
what it does not know yet. Statements travel under the adapter's own steps, which never repeat. A source
long not asked is asked for its state alone (query 0), so that the entries to be looked for stay few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Psj, source_of
from streaming.algebra.source_queries import QueryPart, SourceAnswer, SourceQuery
from streaming.algebra.tree_json import tree_back, tree_note
from streaming.ask.delivered import Delivered
from streaming.ask.splitting import belongs_after, split
from streaming.ask.state_codec import SeenCodec, StateCodec
from streaming.errors import ProtocolError
from streaming.messages import Rows, Updates

V = TypeVar("V")

PROBE_AFTER = 10_000
"""A source is asked for its state alone when so many delivered transactions wait to be seen."""
PROBE = 0
"""The query id of statements that ask for a state alone; a manager's own count from 1."""


@dataclass(frozen=True, slots=True)
class Out(Generic[V]):
    """A statement that has not been answered for good.

    Attributes:
        query: as the processor sent it.
        since: the delivered transactions before this one it is sure to see.
        answer: the answer that is held, None while none has come.
    """

    query: SourceQuery[V]
    since: int
    answer: SourceAnswer[V] | None = None


class FifoAdapter(Generic[V]):
    """The channel between a view manager and all of its sources.

    Args:
        view: whose statements pass.
        psj: the view, for its sources.
        operators: what packs rows for snapshots.
        exact: only hold, never ask again.
        states: how source states are written into snapshots.
    """

    def __init__(
        self,
        view: str,
        psj: Psj,
        operators: Operators[V],
        *,
        exact: bool = False,
        states: StateCodec | None = None,
        probe_after: int = PROBE_AFTER,
    ) -> None:
        self.view = view
        self.exact = exact
        self.delivered = {source_of(name): Delivered() for name in psj.relations}
        self.out: dict[int, Out[V]] = {}
        """Statements by the step they travel under."""
        self.step = 0
        self.number: int | None = None
        self._operators = operators
        self._codec = states or SeenCodec()
        self._probe_after = probe_after

    def handle(
        self, message: Updates | SourceQuery[V] | SourceAnswer[V]
    ) -> list[Updates | SourceQuery[V] | SourceAnswer[V]]:
        """One message; returns what passes, in the order in which it is to be handed on.

        Raises:
            ProtocolError: updates from the past or with a gap, a source whose delivered position
                goes back, a log whose columns differ in length; a statement of another view, to a
                source that is not the view's, or sent twice; an answer without a statement, from
                another source, a second one, or with other parts. Nothing has changed.
        """
        match message:
            case Updates():
                self._check_updates(message)
                return self._updates(message)
            case SourceQuery():
                self._check_query(message)
                return [self._send(message)]
            case SourceAnswer():
                self._check_answer(message)
                return self._answer(message)

    # Passing, holding, asking again ---------------------------------------------------------------

    def _updates(self, updates: Updates) -> list[Updates | SourceQuery[V] | SourceAnswer[V]]:
        """A message, cut in two where an answer that is held belongs inside of it."""
        out: list[Updates | SourceQuery[V] | SourceAnswer[V]] = []
        for after, step in [] if self.exact else sorted(self._inside(updates)):
            if after >= updates.first:
                piece, updates = split(updates, after)
                out += self._delivered(piece)
            if (waiting := self.out.get(step)) is not None and waiting.answer is not None:
                out.append(self._passed(step, waiting, waiting.answer))
        return [*out, *self._delivered(updates), *self._probes()]

    def _inside(self, updates: Updates) -> list[tuple[int, int]]:
        """(number after which it belongs, step) of the answers held that belong inside a message."""
        return [
            (after, step)
            for step, one in self.out.items()
            if one.answer is not None
            and not self._missed(one.answer, one.since)
            and (after := belongs_after(updates, one.answer.source, one.answer.state)) is not None
        ]

    def _delivered(self, updates: Updates) -> list[Updates | SourceQuery[V] | SourceAnswer[V]]:
        self.number = updates.last
        for source, known in self.delivered.items():
            log = None if self.exact else updates.logs.get(source)
            position = updates.delivered.get(source, known.position)
            self.delivered[source] = known.with_log(log, position)
        out: list[Updates | SourceQuery[V] | SourceAnswer[V]] = [updates]
        for step, waiting in list(self.out.items()):
            if waiting.answer is not None:
                out += self._judged(step, waiting)
        return out

    def _missed(self, answer: SourceAnswer[V], since: int) -> bool:
        return self.delivered[answer.source].missed(answer.state, since) is not None

    def _send(self, query: SourceQuery[V]) -> SourceQuery[V]:
        self.step += 1
        self.out[self.step] = Out(query, self.delivered[query.source].seen)
        return SourceQuery(query.view, query.id, self.step, query.source, query.parts)

    def _answer(self, answer: SourceAnswer[V]) -> list[Updates | SourceQuery[V] | SourceAnswer[V]]:
        asked = self.out[answer.step]
        waiting = Out(asked.query, asked.since, answer)
        if waiting.query.id != PROBE:
            return [*self._judged(answer.step, waiting)]
        del self.out[answer.step]
        self._forget(answer, waiting.since)
        return []

    def _judged(self, step: int, waiting: Out[V]) -> list[SourceQuery[V] | SourceAnswer[V]]:
        """An answer passes, is held or is asked for again."""
        answer = waiting.answer
        assert answer is not None
        known = self.delivered[answer.source]
        self.out[step] = waiting
        if answer.state.upto > known.position:
            return []
        if self.exact or not self._missed(answer, waiting.since):
            return [self._passed(step, waiting, answer)]
        del self.out[step]
        return [self._send(waiting.query)]

    def _passed(self, step: int, waiting: Out[V], answer: SourceAnswer[V]) -> SourceAnswer[V]:
        del self.out[step]
        self._forget(answer, waiting.since)
        step = waiting.query.step
        return SourceAnswer(answer.view, answer.id, step, answer.source, answer.rows, answer.state)

    def _forget(self, answer: SourceAnswer[V], since: int) -> None:
        """Keep only what a statement that is out, or a later one, may still miss."""
        source = answer.source
        known = self.delivered[source]
        if not known.entries:
            return
        known = known.shown(answer.state, since)
        out = [one.since for one in self.out.values() if one.query.source == source]
        self.delivered[source] = known.kept_from(min(out, default=known.seen))

    def _probes(self) -> list[SourceQuery[V]]:
        long = [s for s, known in self.delivered.items() if len(known.entries) >= self._probe_after]
        busy = {one.query.source for one in self.out.values()} if long else set()
        return [
            self._send(SourceQuery(self.view, PROBE, 1, source, ()))
            for source in sorted(long)
            if source not in busy
        ]

    # Protocol -------------------------------------------------------------------------------------

    def _check_updates(self, updates: Updates) -> None:
        def broken(rule: str) -> ProtocolError:
            brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"
            return ProtocolError("fifo_adapter", brief, f"view {self.view}: {rule}")

        if self.number is not None and updates.first != self.number + 1:
            raise broken(f"expected number {self.number + 1}")
        for source, log in updates.logs.items():
            if not len(log.numbers) == len(log.transactions) == len(log.positions):
                raise broken(f"the columns of {source}'s log differ in length")
        for source, position in updates.delivered.items():
            known = self.delivered.get(source)
            if known is not None and position < known.position:
                raise broken(f"{source}'s position goes back from {known.position} to {position}")

    def _check_query(self, query: SourceQuery[V]) -> None:
        def broken(rule: str) -> ProtocolError:
            brief = f"statement {query.view}/{query.id}.{query.step} to {query.source}"
            return ProtocolError("fifo_adapter", brief, rule)

        if query.view != self.view:
            raise broken(f"this is the channel of {self.view}")
        if query.source not in self.delivered:
            raise broken(f"view {self.view} uses no relation of it")
        for one in self.out.values():
            if one.query.id == query.id and one.query.step == query.step:
                raise broken("sent already")

    def _check_answer(self, answer: SourceAnswer[V]) -> None:
        def broken(rule: str) -> ProtocolError:
            brief = f"answer {answer.view}/{answer.id}.{answer.step} of {answer.source}"
            return ProtocolError("fifo_adapter", brief, rule)

        waiting = self.out.get(answer.step)
        if waiting is None or (answer.view, answer.id) != (self.view, waiting.query.id):
            raise broken("an answer without a statement")
        if waiting.query.source != answer.source:
            raise broken(f"the statement went to {waiting.query.source}")
        if waiting.answer is not None:
            raise broken("a second answer to one statement")
        if len(answer.rows) != len(waiting.query.parts):
            raise broken(f"{len(answer.rows)} parts, not {len(waiting.query.parts)}")

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "view": self.view,
            "number": self.number,
            "step": self.step,
            "delivered": {
                source: [k.position, k.forgotten, k.seen, [list(entry) for entry in k.entries]]
                for source, k in self.delivered.items()
            },
            "out": [self._note(step, waiting) for step, waiting in self.out.items()],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        if saved["view"] != self.view:
            raise ProtocolError("fifo_adapter", saved["view"], f"not of view {self.view}")
        out = dict(self._back(note) for note in saved["out"])
        self.number, self.step = saved["number"], saved["step"]
        self.delivered = {
            source: Delivered(position, forgotten, tuple((t, p) for t, p in entries), seen)
            for source, (position, forgotten, seen, entries) in saved["delivered"].items()
        }
        self.out = out

    def _note(self, step: int, waiting: Out[V]) -> dict[str, Any]:
        query, answer, pack = waiting.query, waiting.answer, self._operators.pack
        parts = [
            [tree_note(p.tree), {name: pack(rows) for name, rows in p.inputs.items()}]
            for p in query.parts
        ]
        held = answer and {
            "rows": [pack(rows) for rows in answer.rows],
            "state": self._codec.note(answer.state),
        }
        return {
            "travels": step,
            "id": query.id,
            "step": query.step,
            "source": query.source,
            "parts": parts,
            "since": waiting.since,
            "held": held,
        }

    def _back(self, note: Mapping[str, Any]) -> tuple[int, Out[V]]:
        def rows(reference: Any) -> V:
            return self._operators.open(Rows.model_validate(reference))

        step, id_, source = note["travels"], note["id"], note["source"]
        parts = tuple(
            QueryPart(
                tree_back(tree), {name: rows(reference) for name, reference in inputs.items()}
            )
            for tree, inputs in note["parts"]
        )
        query = SourceQuery(self.view, id_, note["step"], source, parts)
        answer, held = None, note["held"]
        if held is not None:
            values = tuple(rows(reference) for reference in held["rows"])
            state = self._codec.back(held["state"])
            answer = SourceAnswer(self.view, id_, step, source, values, state)
        return step, Out(query, note["since"], answer)
