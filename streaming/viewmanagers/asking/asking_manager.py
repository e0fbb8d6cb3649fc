"""What the view managers that ask the sources have in common (strobe-family 5, hacid-slides).

Such a manager receives two kinds of messages, the numbered updates of its merge group and answers to
its queries, and sends two, queries and action lists. One file holds one algorithm; here is what all
of them share: the protocol check of both kinds, the deltas of the view's leaves, the ids of queries
and UQS, the initial state (number `start` brings the relations whole, so no query is needed), and the
form of an action list.

An algorithm derives from `Asking` and gives `receive` (W_up) and `answered` (W_ans). Both raise before
they change state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Psj, finished, joined, leaf_named, psj_of
from streaming.algebra.scans import columns_read
from streaming.algebra.source_queries import Answer, Query, Term, query_back, query_note
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Updates
from streaming.viewmanagers.base import ManagedView, ManagerProgress, check_updates, works
from streaming.viewmanagers.taint import refuse_controls

V = TypeVar("V")


@dataclass(frozen=True)
class PlaceChange(Generic[V]):
    """What one transaction, or one batch of them, changes at the view's places.

    Attributes:
        first, last: the numbers.
        deltas: place -> the leaf's signed rows, with their numbers; empty ones are left out.
        truncated: (number, relation) of the truncates among the numbers.
    """

    first: int
    last: int
    deltas: Mapping[int, V]
    truncated: tuple[tuple[int, str], ...] = ()


class Asking(Generic[V]):
    """Base of the managers that ask.

    Args:
        spec: the view; its tree is made of select, project and inner join.
        operators: what it can do with relations.

    Raises:
        FrescoError: VIEW_NOT_PSJ.
    """

    def __init__(self, spec: ManagedView, operators: Operators[V]) -> None:
        self.spec = spec
        self.operators = operators
        self.psj: Psj = psj_of(spec.tree)
        self.reads = columns_read(spec.tree)
        self.progress = ManagerProgress(spec.start - 1)
        self.uqs: dict[int, Query[V]] = {}
        """UQS: queries sent whose answers have not come, by id."""
        self.next_query = 1
        self.asked = self.sent = spec.start - 1
        """The last number that asked for work, and the last that a list has covered."""
        self.cuts: list[int] = []
        """Ends of messages since which work is open; a list that goes on beyond one crosses it."""
        self.compensations = 0
        """How often an answer, or a query, was made up for updates of another moment; a measure."""

    # Messages -------------------------------------------------------------------------------------

    def handle(self, message: Updates | Answer[V]) -> list[Query[V] | ActionList]:
        """One message; returns queries and action lists in the order they are to be sent.

        Raises:
            ProtocolError: see `base.check_updates`; an answer without a query. Nothing has changed.
            ViewError: the view reads what could not be decoded (`tainted`). Nothing has changed.
        """
        if isinstance(message, Answer):
            self._check_answer(message)
            return self.answered(message)
        check_updates(self.spec, self.progress, message)
        refuse_controls(self.reads, message.controls)
        if message.first <= self.spec.start <= message.last:
            return [self._initial(message)]
        asked = [run.last for run in message.runs if works(run, self.spec.view)]
        out = self.receive(message)
        self.asked = asked[-1] if asked else self.asked
        ended = [message.last] if message.cut else []
        self.cuts = [*self.cuts, *ended] if self.asked > self.sent else []
        self.progress = ManagerProgress(message.last)
        return out

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        """W_up: the next updates of the group."""
        raise NotImplementedError

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        """W_ans: the answer to a query in UQS."""
        raise NotImplementedError

    def started(self, rows: V) -> None:
        """The view's initial rows have been sent."""

    def _check_answer(self, answer: Answer[V]) -> None:
        def broken(rule: str) -> ProtocolError:
            return ProtocolError("view_manager", f"answer {answer.view}/{answer.id}", rule)

        if answer.view != self.spec.view:
            raise broken(f"this is the manager of {self.spec.view}")
        if answer.id not in self.uqs:
            raise broken(f"view {self.spec.view}: an answer without a query")

    def _initial(self, updates: Updates) -> ActionList:
        if updates.first != updates.last:
            brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"
            raise ProtocolError("view_manager", brief, "the initial state comes by itself")
        rows = self.view_of(self.change(updates, updates.first).deltas)
        self.progress = ManagerProgress(updates.last)
        self.started(rows)
        return self.list_of(updates.first, updates.last, rows, complete=True)

    # What algorithms are made of ------------------------------------------------------------------

    def relevant(self, updates: Updates) -> list[int]:
        """The numbers for which REL asks this view for work, ascending."""
        view = self.spec.view
        return [
            n for run in updates.runs if works(run, view) for n in range(run.first, run.last + 1)
        ]

    def change(self, updates: Updates, first: int, last: int | None = None) -> PlaceChange[V]:
        """The leaves' deltas of the numbers [first..last] (`last` None: of `first` alone)."""
        last = first if last is None else last
        ops, deltas = self.operators, {}
        for place, relation in enumerate(self.psj.relations):
            rows = updates.relations.get(relation)
            if rows is None or not rows.rows:
                continue
            within = ops.between(ops.open(rows), first, last)
            delta = ops.evaluate(leaf_named(self.psj, place, LEFT), {LEFT: within})
            if ops.size(delta):
                deltas[place] = delta
        relations = self.psj.relations
        truncated = tuple(
            (c.number, c.relation)
            for c in updates.controls
            if c.kind == "truncate" and first <= c.number <= last and c.relation in relations
        )
        return PlaceChange(first, last, deltas, truncated)

    def view_of(self, leaves: Mapping[int, V]) -> V:
        """The view over its leaves' rows; a place that is not given is empty."""
        ops, places = self.operators, self.psj.places
        if any(place not in leaves for place in places):
            return ops.empty(self.psj.schema)
        partial, have = leaves[0], places[:1]
        for place in places[1:]:
            tree = joined(self.psj, have, (place,), base=False)
            partial = ops.evaluate(tree, {LEFT: partial, RIGHT: leaves[place]})
            have = (*have, place)
        return ops.evaluate(finished(self.psj), {LEFT: partial})

    def ask(self, terms: tuple[Term[V], ...], finish: bool = True) -> Query[V]:
        """A new query, in UQS from now on."""
        query = Query(self.spec.view, self.next_query, terms, finish)
        self.next_query += 1
        self.uqs[query.id] = query
        return query

    def list_of(self, first: int, last: int, rows: V, complete: bool) -> ActionList:
        """AL of the numbers [first..last]; empty lists are sent too (MVC 3.3)."""
        empty = not self.operators.size(rows)
        across = not complete and any(first <= cut < last for cut in self.cuts)
        self.sent = max(self.sent, last)
        self.cuts = [cut for cut in self.cuts if cut > last]
        return ActionList(
            group=self.spec.group,
            view=self.spec.view,
            first=first,
            last=last,
            complete=complete,
            across=across,
            delta=None if empty else self.operators.pack(rows),
        )

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "view": self.spec.view,
            "number": self.progress.number,
            "next_query": self.next_query,
            "asked": self.asked,
            "sent": self.sent,
            "cuts": list(self.cuts),
            "uqs": [query_note(self.operators, q) for q in self.uqs.values()],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        if saved["view"] != self.spec.view:
            raise ProtocolError("view_manager", saved["view"], f"not of view {self.spec.view}")
        self.progress = ManagerProgress(saved["number"])
        self.next_query = saved["next_query"]
        self.asked, self.sent, self.cuts = saved["asked"], saved["sent"], list(saved["cuts"])
        queries = [query_back(self.operators, note) for note in saved["uqs"]]
        self.uqs = {query.id: query for query in queries}
