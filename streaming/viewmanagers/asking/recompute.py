"""`recompute`: Recompute the View, RV (hacid-slides), as a periodic refresh (painting-mvc 6.3).

At a refresh point n the manager asks for the whole view and sends new - old as one list for the numbers
since the last one; old is what it has sent so far (the mirror). The answer comes at some state S of each
source, which has mostly moved on by then, so S is compensated to n (DESIGN 7) with the updates received
meanwhile; they count for the next refresh. The whole view asks for several places at once, so this takes
cross terms: one query a round, and at most as many rounds as there are places. A query must see one
state of each source (the processor's `exact`); where the rows ran out before a source was asked, the
answer has not its state and is right at any, so at n. That makes it strong over any number of sources,
without FIFO order. (As published it is not even convergent over several: strobe-family says so after
Example 0. Over one source with FIFO order S is what has been received, so the answer as it comes is
right for that number; only it is not n.)

Refresh points are cuts: with `every` = k they are the numbers divisible by k, counted from the view's
start, and messages end there. A message that does not end at one only counts.

Truncates. When S is after truncate(R) at t > n, the rows of R at n are gone: n is moved to the end of the
message that brought t, across the cut between them, and the view is asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from streaming.algebra.compensate import compensate
from streaming.algebra.operators import Operators
from streaming.algebra.psj import source_of
from streaming.algebra.source_queries import Answer, Query, Term
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.asking_manager import Asking
from streaming.viewmanagers.asking.recent import Again, LostByTruncate, Recent
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class RefreshPeriod:
    """Numbers that one message brought, or several up to a refresh point.

    Attributes:
        busy: whether the view has work at one of them.
        due: whether `last` is a refresh point.
    """

    first: int
    last: int
    busy: bool
    due: bool


class RecomputeManager(Asking[V]):
    """One view's manager.

    Args:
        every: numbers between two refresh points, 1 or more.
        mirror: the view's rows; by default held here.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        *,
        every: int = 1,
        mirror: Mirror[V] | None = None,
    ) -> None:
        super().__init__(spec, operators)
        self.every = every
        self.mirror = mirror or HeldMirror(operators, self.psj.schema)
        self.recent = Recent(self.psj, operators, spec.start)
        self.periods: list[RefreshPeriod] = []
        """Received and not refreshed, one for each message."""
        self.refresh: RefreshPeriod | None = None
        """The refresh in hand."""
        self.new: V = operators.empty(self.psj.schema)
        """The view at its refresh point, as far as answered."""

    def _initial(self, updates: Updates) -> ActionList:
        actions = super()._initial(updates)
        self.recent.deliver(updates, None, {updates.last})
        return actions

    def started(self, rows: V) -> None:
        self.mirror.add(rows)

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        """Count the message; refresh when it ends at a refresh point."""
        numbers, start = self.relevant(updates), self.spec.start
        change = self.change(updates, updates.first, updates.last)
        self.recent.deliver(updates, change, set(numbers))
        before, after = (n - start for n in (updates.first - 1, updates.last))
        due = after // self.every > before // self.every
        self.periods.append(RefreshPeriod(updates.first, updates.last, bool(numbers), due))
        return [] if self.refresh is not None else self._next()

    def answered(self, answer: Answer[V]) -> list[Query[V] | ActionList]:
        """The answer at S, compensated to the refresh point."""
        query, refresh = self.uqs[answer.id], self.refresh
        assert refresh is not None
        places = sorted({place for term in query.terms for place in term.asked})
        states = {
            place: answer.states.get(source_of(self.psj.relations[place])) for place in places
        }
        whole = len(query.terms) == 1 and self.operators.size(answer.rows)
        if whole and None in states.values():
            brief = f"answer {answer.view}/{answer.id}"
            raise ProtocolError("view_manager", brief, f"view {self.spec.view}: a state is missing")
        found = {
            place: self.recent.difference(place, state, refresh.last)
            for place, state in states.items()
            if state is not None
        }
        del self.uqs[answer.id]
        for source, state in answer.states.items():
            self.recent.confirm(source, state)
        lost = [d.last for d in found.values() if isinstance(d, LostByTruncate)]
        if lost:
            return self._moved(refresh, max(lost))
        if any(isinstance(d, Again) for d in found.values()):
            return [self.ask(query.terms)]
        differences = {p: d for p, d in found.items() if not isinstance(d, Again | LostByTruncate)}
        self.compensations += any(map(self.operators.size, differences.values()))
        rows = answer.rows
        cross: tuple[Term[V], ...] = ()
        for term in query.terms:
            rows, more = compensate(self.operators, self.psj, term, rows, differences, finish=True)
            cross += more
        self.new = self.operators.plus(self.new, rows)
        return [self.ask(cross)] if cross else [self._sent(refresh), *self._next()]

    # A refresh ------------------------------------------------------------------------------------

    def _next(self) -> list[Query[V] | ActionList]:
        """Ask for the view at the next refresh point for which there is work."""
        while any(period.due for period in self.periods):
            last = next(at for at, period in enumerate(self.periods) if period.due)
            taken, self.periods = self.periods[: last + 1], self.periods[last + 1 :]
            busy = [period.first for period in taken if period.busy]
            if busy:
                # Not from `taken[0]` on: a cut may lie between what is idle and the first work, and a
                # list that begins at work crosses none of those.
                self.refresh = RefreshPeriod(busy[0], taken[-1].last, True, True)
                return [self.ask((Term(1, (), self.psj.places),))]
        return []

    def _moved(self, refresh: RefreshPeriod, truncate: int) -> list[Query[V] | ActionList]:
        """Ask anew, for the end of the message that brought the truncate."""
        last = next(p.last for p in self.periods if p.first <= truncate <= p.last)
        self.periods = [period for period in self.periods if period.first > last]
        self.refresh = RefreshPeriod(refresh.first, last, True, True)
        self.new = self.operators.empty(self.psj.schema)
        return [self.ask((Term(1, (), self.psj.places),))]

    def _sent(self, refresh: RefreshPeriod) -> ActionList:
        """new - old."""
        rows = self.operators.minus(self.new, self.mirror.rows())
        rows = self.operators.renumbered(rows, refresh.last)
        actions = self.list_of(refresh.first, refresh.last, rows, complete=False)
        self.mirror.add(rows)
        self.recent.forget(refresh.last)
        self.new, self.refresh = self.operators.empty(self.psj.schema), None
        return actions

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            **super().snapshot(),
            "mirror": self.mirror.snapshot(),
            "recent": self.recent.snapshot(),
            "periods": [asdict(period) for period in self.periods],
            "refresh": None if self.refresh is None else asdict(self.refresh),
            "new": self.operators.pack(self.new),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self.recent.restore(saved["recent"])
        self.periods = [RefreshPeriod(**note) for note in saved["periods"]]
        self.refresh = None if saved["refresh"] is None else RefreshPeriod(**saved["refresh"])
        self.new = self.operators.open(Rows.model_validate(saved["new"]))
