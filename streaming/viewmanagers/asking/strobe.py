"""Strobe and T-Strobe (strobe-family 5.2 and 6.1).

Both are one machine: a number is processed as it comes, its deletions first, then one query for all of
its insertions. Where every update has its own number this is Strobe; where a number is a source's
transaction it is T-Strobe. MV changes only when UQS is empty: then AL is applied and its net effect
sent as one action list over all numbers since the last one. Why that is right: once UQS is empty every
answer has been cleaned of what was deleted while it was under way, and what an insertion brought in
besides has a query of its own (theorem 1).

**The gate.** Under steady load UQS may never be empty (7). So at a cut the machine stops: further
messages are held until the open queries are answered. Holding alone would be wrong: the answers have
seen the held updates, as the answer to U_1 below lacks what U_2 deleted. As the paper says for the
periodic form, the answers are compensated for held updates "as we did in C-Strobe" (`compensated`), and
lists end at cuts. Smallest history: V = r join s, r = {t}; U_1 = insert(s, u), cut, U_2 = delete(r, t)
before Q_1 is answered: A_1 is empty, V[ss_1] is {tu}. With `gate=False` the machine is the paper's.

With `window`, transactions of one message that nothing comes between are one: UL(T) is the net effect of
all of them, and they have one query. MV passes through fewer states, each still a state of the sources.

A truncate of R is a deletion of everything: it empties MV and AL, and answers under way no longer
matter. When it is held and an open query asks for R, the answer may lack rows that nothing can bring
back, so the held messages up to it are taken in, and the list goes across the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.source_queries import Answer, Known, Query, Term
from streaming.algebra.view_keys import Keys
from streaming.engines.evaluator import ViewError
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.compensated import Compensated
from streaming.viewmanagers.asking.holding_queue import HeldMessage, Span, within
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Action(Generic[V]):
    """An action of AL on MV.

    Attributes:
        kind: `key_delete` of the leaf's rows at `place`; `insert` of view rows; `clear`: a truncate,
            without rows.
    """

    kind: Literal["key_delete", "insert", "clear"]
    rows: V | None = None
    place: int = -1


class Strobe(Compensated[V], Generic[V]):
    """One view's manager; see `Compensated` and `Keyed` for the other arguments.

    Args:
        gate: hold updates at a cut until UQS is empty.
        window: numbers of one message that are processed as one transaction at most; 1 is the
            algorithm as published.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
        grouped: bool = True,
        gate: bool = True,
        window: int = 1,
    ) -> None:
        super().__init__(spec, operators, keys, mirror, from_view, grouped)
        self.gate, self.window = gate, window
        self.al: list[Action[V]] = []
        self.pending: dict[int, list[Action[V]]] = {}
        """pending(Q_i) by i: the deletions processed since Q_i was sent."""
        self.covers: tuple[int, int] | None = None
        """The first and the last number that asked for work since MV last changed."""

    # Messages -------------------------------------------------------------------------------------

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        self.hold(updates)
        return self._take_in()

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        if self.ignored(answer):
            return []
        i = self.names[answer.id].i
        out: list[Query[V] | ActionList] = [*self.compensate(answer)]
        if self.answered_all(i):
            self._insert(i)
        return [*out, *self._apply(), *self._take_in()]

    def _take_in(self) -> list[Query[V] | ActionList]:
        """Processes held messages until the gate is closed."""
        out: list[Query[V] | ActionList] = []
        while self.queue.held and not self._closed():
            held = self.queue.take_message()
            for first, number in self._chunks(held):
                self._note(held, number)
                out += self._process(first, number, held)
                out += self._apply()
            self._note(held, held.change.last)
            out += self._apply()
        return self.unless_void(out)

    def _closed(self) -> bool:
        """Whether the gate is closed: queries are open, and their answers will do."""
        return self.gate and bool(self.names) and self.queue.truncate(self.asked_places()) is None

    def _note(self, held: HeldMessage[V], number: int) -> None:
        """A message has been processed up to before a number, or to its end (G-Strobe's TT)."""

    def may_apply(self) -> bool:
        """Whether MV may change: UQS is empty."""
        return not self.names

    # The algorithm --------------------------------------------------------------------------------

    def _chunks(self, held: HeldMessage[V]) -> Iterator[Span]:
        """The numbers that are processed as one transaction; a truncate is by itself."""
        truncates = {number for number, _ in held.change.truncated}
        chunk: list[int] = []
        for number in held.numbers:
            if chunk and (number in truncates or len(chunk) == self.window):
                yield chunk[0], chunk[-1]
                chunk = []
            chunk.append(number)
            if number in truncates:
                yield number, number
                chunk = []
        if chunk:
            yield chunk[0], chunk[-1]

    def _process(self, first: int, number: int, held: HeldMessage[V]) -> list[Query[V]]:
        """T-Strobe, lines 3 to 9, for UL(T) of the numbers [first..number]."""
        change = within(self.operators, held.change, first, number)
        self.covers = (self.covers[0] if self.covers else first, number)
        if change.truncated:
            for i in list(self.families):
                self.drop(i)
            self.pending.clear()
            self.al = [Action("clear")]
        else:
            for place, deleted in self.net(change, -1).items():
                deletion = Action("key_delete", deleted, place)
                for actions in self.pending.values():
                    actions.append(deletion)
                self.al.append(deletion)
        terms, known = self._from_view(self.insertions(change))
        if not terms and known is None:
            return []
        out = self.begin(number, terms)
        self.pending[number] = []
        if known is not None:
            self.families[number].delta = self.both(self.families[number].delta, known)
        if self.answered_all(number):
            self._insert(number)
        return out

    def _from_view(self, terms: list[Term[V]]) -> tuple[list[Term[V]], V | None]:
        """The terms still to ask, and rows of the others that MV and AL's deletions tell."""
        if not self._chains or any(action.kind == "clear" for action in self.al):
            return terms, None
        gone: dict[int, list[V]] = {}
        for action in self.al:
            if action.kind == "key_delete" and action.rows is not None:
                gone.setdefault(action.place, []).append(action.rows)
        known, asking = self.operators.empty(self.wide), []
        for term in terms:
            rows, unknown = self.known_in_view(term, gone)
            known = self.both(known, rows)
            if self.operators.size(unknown):
                asking.append(Term(1, (Known(term.known[0].places, unknown),), term.asked))
        return asking, known if self.operators.size(known) else None

    def _insert(self, i: int) -> None:
        """T-Strobe, lines 10 and 11: A_i is complete."""
        answer = self.settled(i)
        for deletion in self.pending.pop(i):
            assert deletion.rows is not None
            answer = self.key_delete_answer(answer, deletion.place, deletion.rows)
        rows = self.finish(answer)
        if self.operators.size(rows):
            self.al.append(Action("insert", rows))

    def _apply(self) -> list[ActionList]:
        """T-Strobe, line 12: when UQS is empty, apply AL to MV without adding duplicate tuples."""
        if self.covers is None or not self.may_apply():
            return []
        ops, schema = self.operators, self.psj.schema
        gone, new = ops.empty(schema), ops.empty(schema)
        for action in self.al:
            if action.kind == "clear":
                gone, new = self.mirror.rows(), ops.empty(schema)
                continue
            assert action.rows is not None
            if action.kind == "insert":
                new = self.both(new, action.rows)
                continue
            gone = self.both(gone, self.in_view(action.place, action.rows))
            new = self.key_delete(new, action.place, action.rows)
        key, every = self.keys.outputs, tuple(range(len(schema)))
        stays = ops.minus(self.mirror.matching(key, new, key), ops.matching(gone, key, new, key))
        again = ops.matching(new, key, stays, key)
        self._refuse_taken(ops.minus(again, self.as_set(ops.matching(again, every, stays, every))))
        new = ops.minus(new, again)
        (first, last), self.covers, self.al = self.covers, None, []
        rows = ops.renumbered(ops.minus(new, gone), last)
        self.mirror.add(rows)
        return [self.list_of(first, last, rows, complete=False)]

    def _refuse_taken(self, rows: V) -> None:
        """Rows for AL whose keys MV holds with other values: that is no duplicate, a delete was lost.

        Raises:
            ViewError: VIEW_KEY_TAKEN.
        """
        if count := self.operators.size(rows):
            raise ViewError(
                "VIEW_KEY_TAKEN",
                f"{count} rows come with keys that rows of other values still have",
                where=f"view {self.spec.view}",
                todo="a delete was lost before those rows came again; `fresco verify --source` shows "
                "which rows of its relations are not the database's; take a snapshot of those tables "
                "again, then `fresco view resume NAME`",
            )

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            **super().snapshot(),
            "al": [self._action_note(action) for action in self.al],
            "pending": [
                [i, [self._action_note(action) for action in actions]]
                for i, actions in self.pending.items()
            ],
            "covers": self.covers and list(self.covers),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        super().restore(saved)
        self.al = [self._action_back(note) for note in saved["al"]]
        self.pending = {i: [self._action_back(a) for a in notes] for i, notes in saved["pending"]}
        covers = saved["covers"]
        self.covers = (covers[0], covers[1]) if covers else None

    def _action_note(self, action: Action[V]) -> list[Any]:
        rows = None if action.rows is None else self.operators.pack(action.rows)
        return [action.kind, rows, action.place]

    def _action_back(self, note: list[Any]) -> Action[V]:
        kind, rows, place = note
        opened = None if rows is None else self.operators.open(Rows.model_validate(rows))
        return Action(kind, opened, place)
