"""The query processor of one view manager: source_evaluate over several sources (strobe-family 5).

A query is a signed sum of terms. Each term is evaluated as the paper's procedure says, one source after
the other, next_source choosing the way (`working`). Where the paper lets next_source pick one of the
terms, here all terms are under way at once: those that turn to the same source at the same time are
parts of one statement, so of one snapshot of that source. The answer is the sum of the terms and names,
for each source, the state it was asked at last.

What the states are good for. One by one, a term sees one state of each source it visits (with `once`,
always; without, where all asked places of a source can be reached at the first visit). Terms of one
query that visit a source at different times see different states of it. The published algorithms do
not mind: they take an answer as of its arrival. A manager that compensates exactly needs one state per
source and query, and sets `exact`: then a query goes to one source at a time, each source once, with
everything that any term asks of it in one snapshot.

A term ends as soon as one of its known pieces has no rows. The sources it did not visit have no state
in the answer then, unless another term asked them: the term is empty at any state of theirs, so any
state may be taken, in particular the one that is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, Places, Psj, finished, partial_schema
from streaming.algebra.source_queries import (
    Answer,
    Known,
    Query,
    QueryPart,
    SourceAnswer,
    SourceQuery,
    SourceState,
)
from streaming.ask.evaluation import Evaluation, Sent, Share, evaluation_back, evaluation_note
from streaming.ask.state_codec import SeenCodec, StateCodec
from streaming.ask.working import Working, route_of
from streaming.errors import ProtocolError

V = TypeVar("V")


class QueryProcessor(Generic[V]):
    """Evaluates the queries of one view manager.

    Args:
        psj: the view.
        operators: what it can do with relations.
        statistics: rows per relation, for the order of sources.
        exact: one state per source and query, at the price of parallel and of smaller statements.
        states: how source states are written into snapshots.
    """

    def __init__(
        self,
        psj: Psj,
        operators: Operators[V],
        statistics: Mapping[str, int] | None = None,
        *,
        exact: bool = False,
        states: StateCodec | None = None,
    ) -> None:
        self.psj = psj
        self.operators = operators
        self.route = route_of(psj, tuple(sorted((statistics or {}).items())), once=exact)
        self._exact = exact
        self._codec = states or SeenCodec()
        self.under_way: dict[int, Evaluation[V]] = {}
        self.last_query = 0

    def handle(self, message: Query[V] | SourceAnswer[V]) -> list[SourceQuery[V] | Answer[V]]:
        """One message; returns statements to sources, or the answer when nothing is left to ask.

        Raises:
            ProtocolError: a query with an id from the past, with terms that are not over the same
                places, or with a place twice; an answer without a statement, from another source,
                or with other parts. Nothing has changed.
        """
        if isinstance(message, Query):
            return self._asked(message)
        evaluation = self._check_answer(message)
        sent = evaluation.sent[message.step]
        working, rows = dict(evaluation.working), iter(message.rows)
        for index, portions in sent.shares:
            values = tuple(next(rows) for _ in portions)
            working[index] = self.route.answered(working[index], portions, values)
        open_ = {step: one for step, one in evaluation.sent.items() if step != message.step}
        states = {**evaluation.states, message.source: message.state}
        turned = [index for index, _ in sent.shares]
        return self._evaluate(evaluation, working, open_, states, turned)

    # Procedure source_evaluate --------------------------------------------------------------------

    def _asked(self, query: Query[V]) -> list[SourceQuery[V] | Answer[V]]:
        """Lines 2 and 3: WQ = Q, and the first way to go."""
        places = self._check_query(query)
        ops = self.operators
        working = {
            index: Working(term.sign, self._pieces(term.known), term.asked)
            for index, term in enumerate(query.terms)
        }
        total = ops.empty(partial_schema(self.psj, places))
        begun = Evaluation(query.view, query.id, query.finish, places, working, total, 0, {}, {})
        out = self._evaluate(begun, working, {}, {}, list(working))
        self.last_query = query.id
        return out

    def _pieces(self, known: tuple[Known[V], ...]) -> tuple[Known[V], ...]:
        if len(known) < 2:
            return known
        return tuple(sorted(known, key=lambda piece: piece.places))

    def _evaluate(
        self,
        evaluation: Evaluation[V],
        working: dict[int, Working[V]],
        sent: dict[int, Sent],
        states: Mapping[str, SourceState],
        turned: list[int],
    ) -> list[SourceQuery[V] | Answer[V]]:
        """Lines 4 to 9 for the terms whose turn it is: send Q^i, or return the answer.

        Args:
            evaluation: as it was; `working`, `sent` and `states` are as they have become.
        """
        view, id_, step, total = evaluation.view, evaluation.id, evaluation.step, evaluation.total
        for index in turned:
            left = self.route.settled(self.operators, working[index])
            working[index] = left
            if not left.asked:
                del working[index]
                total = self._plus(total, left)
        if not working:
            self.under_way.pop(id_, None)
            return [Answer(view, id_, self._outputs(total, evaluation.finish), states)]
        shares = self._next_sources(working, [index for index in turned if index in working])
        out: list[SourceQuery[V] | Answer[V]] = []
        for source in sorted(shares):
            step += 1
            sent[step] = Sent(source, tuple(shares[source]))
            parts = self._parts(working, shares[source])
            out.append(SourceQuery(view, id_, step, source, parts))
        self.under_way[id_] = Evaluation(
            view, id_, evaluation.finish, evaluation.places, working, total, step, sent, states
        )
        return out

    def _next_sources(
        self, working: Mapping[int, Working[V]], turned: list[int]
    ) -> dict[str, list[Share]]:
        """Where the terms go whose turn it is; with `exact`, all of them to one source."""
        shares: dict[str, list[Share]] = {}
        if not self._exact:
            for index in turned:
                found = self.route.next_source(working[index])
                assert found is not None
                shares.setdefault(found[0], []).append((index, found[1]))
            return shares
        first = self.route.next_source(working[min(working)])
        assert first is not None
        source = first[0]
        for index, left in sorted(working.items()):
            if portions := self.route.portions(left, source):
                shares.setdefault(source, []).append((index, portions))
        return shares

    def _parts(
        self, working: Mapping[int, Working[V]], shares: list[Share]
    ) -> tuple[QueryPart[V], ...]:
        return tuple(
            [
                self.route.part(portion, working[index])
                for index, portions in shares
                for portion in portions
            ]
        )

    def _plus(self, total: V, left: Working[V]) -> V:
        (piece,) = left.pieces
        if left.sign > 0:
            return self.operators.plus(total, piece.rows)
        return self.operators.minus(total, piece.rows)

    def _outputs(self, total: V, finish: bool) -> V:
        return self.operators.evaluate(finished(self.psj), {LEFT: total}) if finish else total

    # Protocol -------------------------------------------------------------------------------------

    def _check_query(self, query: Query[V]) -> Places:
        """The places of the query's terms."""

        def broken(rule: str) -> ProtocolError:
            brief = f"query {query.view}/{query.id}"
            return ProtocolError("query_processor", brief, rule)

        if query.id <= self.last_query:
            raise broken(f"an id from the past; the last query was {self.last_query}")
        if not query.terms and not query.finish:
            raise broken("a partial of no term has no places")
        places = query.terms[0].places if query.terms else self.psj.places
        if query.finish:
            places = self.psj.places
        if len(set(places)) < len(places) or not set(places) <= set(self.psj.places):
            raise broken(f"a place twice, or none of the view's: {places}")
        for term in query.terms:
            if term.places != places:
                raise broken(f"a term over the places {term.places}, not {places}")
            if term.sign not in (1, -1):
                raise broken(f"a sign is 1 or -1, not {term.sign}")
        return places

    def _check_answer(self, answer: SourceAnswer[V]) -> Evaluation[V]:
        def broken(rule: str) -> ProtocolError:
            brief = f"answer {answer.view}/{answer.id}.{answer.step} of {answer.source}"
            return ProtocolError("query_processor", brief, rule)

        evaluation = self.under_way.get(answer.id)
        if evaluation is None or evaluation.view != answer.view:
            raise broken("an answer without a query")
        sent = evaluation.sent.get(answer.step)
        if sent is None:
            raise broken("an answer without a statement of this step")
        if sent.source != answer.source:
            raise broken(f"the statement went to {sent.source}")
        parts = sum([len(portions) for _, portions in sent.shares])
        if len(answer.rows) != parts:
            raise broken(f"{len(answer.rows)} parts, the statement has {parts}")
        return evaluation

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "last_query": self.last_query,
            "under_way": [
                evaluation_note(self.operators, self._codec, one) for one in self.under_way.values()
            ],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        found = [evaluation_back(self.operators, self._codec, note) for note in saved["under_way"]]
        self.last_query = saved["last_query"]
        self.under_way = {one.id: one for one in found}
