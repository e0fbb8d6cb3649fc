"""C-Strobe, C-TStrobe and their periodic form (strobe-family 7).

One number after the other is processed: deletions are `key_delete(MV, U)`, insertions ask V<U>, and the
answers are compensated for everything that is held (`compensated`), so the list brings MV to the state
just after the number. A number is an update (C-Strobe), a transaction (C-TStrobe: all its deletions
and one query for its insertions) or, with `period` k, the numbers of one block: [1..k], [k+1..2k], ...
A block ends early at a cut, so that no list crosses one; when every cut ends a block, the level is
complete-N. The action list AL of the periodic form is the net change of the block: its deletions are
applied to MV before the insertions, which V<I>[ss_b] has at the state b after the whole block.

A held truncate of a relation that a query asks for makes the state after the numbers before it
unknowable, and their rows pointless: they are processed with the truncate, as one list that is not
complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.query import Answer, Known, Query, Term
from streaming.algebra.viewkeys import Keys
from streaming.messages import ActionList, Updates
from streaming.viewmanagers.asking import Change
from streaming.viewmanagers.base import ViewSpec
from streaming.viewmanagers.compensated import Compensated
from streaming.viewmanagers.holding import change_back, change_note, together
from streaming.viewmanagers.mirror import Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Current(Generic[V]):
    """U_i, the numbers being processed; `complete`: there is one."""

    change: Change[V]
    complete: bool

    @property
    def i(self) -> int:
        return self.change.last


class CStrobe(Compensated[V], Generic[V]):
    """One view's manager; see `Compensated` and `Keyed` for the other arguments.

    Args:
        period: k, the numbers in a block.
    """

    def __init__(
        self,
        spec: ViewSpec,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
        grouped: bool = True,
        period: int = 1,
    ) -> None:
        super().__init__(spec, operators, keys, mirror, from_view, grouped)
        if period < 1:
            raise ValueError(f"a block has one number or more, not {period}")
        self.period = period
        self.current: Current[V] | None = None

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        self.hold(updates)
        return self._work()

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        if self.ignored(answer):
            return []
        return [*self.compensate(answer), *self._work()]

    def _work(self) -> list[Query[V] | ActionList]:
        """Line 4: processes updates in order of arrival until one has to wait."""
        out: list[Query[V] | ActionList] = []
        while True:
            if self.current is None:
                self.current = self._next()
                if self.current is None:
                    return self.unless_void(out)
                out += self._ask(self.current)
            truncate = self.queue.truncate(self.asked_places())
            if truncate is not None:
                self.current = self._absorbed(self.current, truncate)
                out += self._ask(self.current)
            elif self.answered_all(self.current.i):
                out.append(self._finished(self.current))
                self.current = None
            else:
                return self.unless_void(out)

    def _next(self) -> Current[V] | None:
        """The next number, or the next block of them, as far as the message goes."""
        held = self.queue.next()
        if held is None:
            return None
        first = held.numbers[0]
        end = first + self.period - 1 - (first - 1) % self.period
        last = max(n for n in held.numbers if n <= end)
        if held.change.first < first:
            self.queue.take(first - 1)
        return Current(self.queue.take(last), self.period == 1)

    def _absorbed(self, current: Current[V], truncate: int) -> Current[V]:
        """The numbers up to a truncate as one."""
        self.drop(current.i)
        change = together(self.operators, [current.change, self.queue.take(truncate)])
        return Current(change, False)

    def _ask(self, current: Current[V]) -> list[Query[V]]:
        """Lines 7 to 9, for all insertions at once; what MV knows need not be asked."""
        terms = self.insertions(current.change)
        if not self._chains or current.change.truncated:
            return self.begin(current.i, terms)
        gone = {place: [rows] for place, rows in self.net(current.change, -1).items()}
        known, asking = self.operators.empty(self.wide), []
        for term in terms:
            rows, unknown = self.known_in_view(term, gone)
            known = self.both(known, rows)
            if self.operators.size(unknown):
                asking.append(Term(1, (Known(term.known[0].places, unknown),), term.asked))
        out = self.begin(current.i, asking)
        family = self.families[current.i]
        family.delta = self.both(family.delta, known)
        return out

    def _finished(self, current: Current[V]) -> ActionList:
        """Lines 6, 16 and 17: the list that makes MV the view after the number."""
        ops, change = self.operators, current.change
        delta = self.finish(self.settled(current.i))
        gone = ops.empty(self.psj.schema)
        if change.truncated:
            gone = self.mirror.rows()
        else:
            for place, deleted in self.net(change, -1).items():
                gone = self.both(gone, self.in_view(place, deleted))
        rows = ops.renumbered(ops.minus(delta, gone), change.last)
        self.mirror.add(rows)
        return self.list_of(change.first, change.last, rows, current.complete)

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        current = self.current
        note = None
        if current is not None:
            note = {
                "change": change_note(self.operators, current.change),
                "complete": current.complete,
            }
        return {**super().snapshot(), "current": note}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        super().restore(saved)
        note = saved["current"]
        self.current = None
        if note is not None:
            self.current = Current(change_back(self.operators, note["change"]), note["complete"])
