"""C-Strobe, C-TStrobe and their periodic form (strobe-family 7).

Numbers are processed in order: deletions are `key_delete(MV, U)`, insertions ask V<U>, and the answers
are compensated for everything that is held (`compensated`), so the list brings MV to the state just
after the number. A number is an update (C-Strobe), a transaction (C-TStrobe: all its deletions and one
query for its insertions) or, with `period` k, the numbers of one block: [1..k], [k+1..2k], ... A block
ends early at a cut, so that no list crosses one. The action list AL of the periodic form is the net
change of the block: its deletions are applied to MV before the insertions, which V<I>[ss_b] has at the
state b after the whole block.

The paper takes up U_i+1 when U_i is done. V<U_i> does not depend on MV, though, so all waiting numbers
can ask at once (`window`), in one query whose rows are under their numbers; MV takes their deletions and
insertions in order. What is held for U_i then includes the numbers after it that are asked with it.

A held truncate of a relation that a query asks for makes the state after the numbers before it
unknowable, and their rows pointless: they are processed with the truncate, as one list that is not
complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators, Positions
from streaming.algebra.psj import LEFT, RIGHT
from streaming.algebra.source_queries import Answer, Known, Query, Term
from streaming.algebra.tree import Join, Project, Scan, Tree
from streaming.algebra.view_keys import Keys
from streaming.messages import ActionList, Updates
from streaming.scalars.expression import Col, Schema
from streaming.viewmanagers.asking.asking_manager import PlaceChange
from streaming.viewmanagers.asking.compensated import Compensated
from streaming.viewmanagers.asking.holding_queue import Span, change_back, change_note, together
from streaming.viewmanagers.asking.numbered_effects import keys_under, twice, under_ends
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import Mirror

V = TypeVar("V")


@dataclass(frozen=True)
class Current(Generic[V]):
    """U_i, the numbers being processed.

    Attributes:
        units: the first and the last number of each state that MV goes through.
        lists: the same of each action list.
        complete: each number has its state, so a list of several is complete.
    """

    change: PlaceChange[V]
    units: tuple[Span, ...]
    lists: tuple[Span, ...]
    complete: bool

    @property
    def i(self) -> int:
        return self.change.last


class CStrobe(Compensated[V], Generic[V]):
    """One view's manager; see `Compensated` and `Keyed` for the other arguments.

    Args:
        period: k, the numbers in a block.
        window: numbers that are processed together at most, or one block; 1 is the algorithm as
            published.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
        grouped: bool = True,
        period: int = 1,
        window: int = 1,
    ) -> None:
        super().__init__(spec, operators, keys, mirror, from_view, grouped)
        if period < 1:
            raise ValueError(f"a block has one number or more, not {period}")
        self.period, self.window = period, window
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
                out += self._finished(self.current)
                self.current = None
            else:
                return self.unless_void(out)

    def _next(self) -> Current[V] | None:
        """The next numbers, or blocks of them, as far as they have come."""
        batch = self.queue.batch(self.window, self.period)
        if batch is None:
            return None
        complete = self.period == 1
        lists = batch.spans if complete else batch.units
        return Current(batch.change, batch.units, lists, complete)

    def _absorbed(self, current: Current[V], truncate: int) -> Current[V]:
        """The numbers up to a truncate as one."""
        self.drop(current.i)
        change = together(self.operators, [current.change, self.queue.take(truncate)])
        whole = ((change.first, change.last),)
        return Current(change, whole, whole, False)

    def _net_by_unit(self, current: Current[V]) -> dict[int, V]:
        """What the numbers change at each place, net in each unit and under its last number."""
        deltas, units = current.change.deltas, current.units
        if current.complete:
            return dict(deltas)
        return {p: under_ends(self.operators, rows, units) for p, rows in deltas.items()}

    def _ask(self, current: Current[V]) -> list[Query[V]]:
        """Lines 7 to 9, for all insertions at once; what MV knows need not be asked."""
        ops, change = self.operators, current.change
        if change.truncated:
            return self.begin(current.i, self._under(change.last, self.insertions(change)))
        net = self._net_by_unit(current)
        found = ((place, ops.inserted(rows)) for place, rows in net.items())
        terms = self.terms_of({place: rows for place, rows in found if ops.size(rows)})
        together = net if len(current.units) > 1 else {}
        if not self._chains:
            return self.begin(current.i, terms, change.first, together)
        gone = {place: [ops.deleted(rows)] for place, rows in net.items()}
        known, asking = ops.empty(self.wide), []
        for term in terms:
            rows, unknown = self.known_in_view(term, gone)
            known = self.both(known, rows)
            if ops.size(unknown):
                asking.append(Term(1, (Known(term.known[0].places, unknown),), term.asked))
        out = self.begin(current.i, asking, change.first, together)
        family = self.families[current.i]
        family.delta = self.both(family.delta, known)
        return out

    def _under(self, number: int, terms: list[Term[V]]) -> list[Term[V]]:
        """The terms with what they know under one number."""
        return [
            replace(
                term,
                known=tuple(
                    replace(k, rows=self.operators.renumbered(k.rows, number)) for k in term.known
                ),
            )
            for term in terms
        ]

    def _finished(self, current: Current[V]) -> Iterator[ActionList]:
        """Lines 6, 16 and 17: the lists that bring MV forward, number by number."""
        ops, change = self.operators, current.change
        delta = self.finish(self.settled(current.i))
        if change.truncated:
            gone = ops.renumbered(self.mirror.rows(), change.last)
        else:
            found = ((p, ops.deleted(rows)) for p, rows in self._net_by_unit(current).items())
            deleted = {p: rows for p, rows in found if ops.size(rows)}
            gone = self._key_deleted(tuple(last for _, last in current.units), deleted, delta)
        rows = ops.minus(delta, gone)
        self.mirror.add(rows)
        for first, last in current.lists:
            part = rows if len(current.lists) == 1 else ops.between(rows, first, last)
            yield self.list_of(first, last, part, current.complete)

    def _key_deleted(self, ends: tuple[int, ...], deleted: Mapping[int, V], delta: V) -> V:
        """What key_delete(MV, U) takes out, unit by unit, under the number that does it.

        Nearly always a row of MV is hit by one unit, and what a unit inserts by none: one join says by
        which. The rest is walked through.
        """
        ops, schema = self.operators, self.psj.schema
        hit = ops.empty(schema)
        for place, rows in deleted.items():
            hit = self.both(hit, self.in_view(place, rows))
        if not deleted:
            return hit
        every = tuple(range(len(schema)))
        hits, inserts = ops.size(hit), ops.size(delta)
        by, again = [ops.empty(schema)], [ops.empty(schema)]
        for place, rows in deleted.items():
            key = self.keys.places[place]
            if hits:
                tree = _hit_by(schema, self.psj.leaves[place].schema, key.outputs, key.leaf)
                positive = ops.minus(ops.minus(rows, rows), rows)
                by.append(ops.evaluate(tree, {LEFT: hit, RIGHT: positive}))
            if not inserts:
                continue
            often = twice(
                ops,
                keys_under(ops, delta, schema, key.outputs),
                keys_under(ops, rows, self.psj.leaves[place].schema, key.leaf),
            )
            again.append(ops.matching(delta, key.outputs, often, tuple(range(len(key.leaf)))))
        units = ops.distinct(ops.plus(*by))
        new = ops.distinct(ops.plus(*again))
        often = twice(ops, units)
        once = ops.minus(units, ops.matching(units, every, often, every))
        if not ops.size(often) and not ops.size(new):
            return once
        rest = ops.plus(often, ops.renumbered(new, 0))
        for place, rows in deleted.items():
            key = self.keys.places[place]
            deleted = {**deleted, place: ops.matching(rows, key.leaf, rest, key.outputs)}
        gone, _ = self._deleted(often, ends, deleted, new)
        return ops.plus(once, gone)

    def _deleted(
        self, standing: V, ends: tuple[int, ...], deleted: Mapping[int, V], delta: V
    ) -> tuple[V, V]:
        """key_delete(MV, U) and MV = MV + Delta, unit by unit (lines 6 and 17).

        Args:
            standing: rows of MV, under 0.
            ends: the units' numbers, under which `deleted` and `delta` have their rows.

        Returns:
            what is deleted, under the number that deletes it, and what stands after the last unit.
        """
        ops = self.operators
        hit = ops.empty(self.psj.schema)
        for place, rows in deleted.items():
            key = self.keys.places[place]
            hit = self.both(hit, ops.matching(standing, key.outputs, rows, key.leaf))
        rest = ops.minus(standing, hit)
        if len(ends) == 1:
            return ops.renumbered(hit, ends[0]), ops.plus(rest, ops.renumbered(delta, 0))
        middle = len(ends) // 2
        gone = [ops.empty(self.psj.schema)]
        for half in (ends[:middle], ends[middle:]):
            found = ((p, ops.between(rows, half[0], half[-1])) for p, rows in deleted.items())
            part = {p: rows for p, rows in found if ops.size(rows)}
            new = ops.between(delta, half[0], half[-1])
            if part:
                taken, hit = self._deleted(hit, half, part, new)
                gone.append(taken)
            else:
                hit = ops.plus(hit, ops.renumbered(new, 0))
        return ops.plus(*gone), ops.plus(rest, hit)

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        current = self.current
        note = None
        if current is not None:
            note = {
                "change": change_note(self.operators, current.change),
                "units": [list(one) for one in current.units],
                "lists": [list(one) for one in current.lists],
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
            units, lists = (tuple((a, b) for a, b in note[name]) for name in ("units", "lists"))
            change = change_back(self.operators, note["change"])
            self.current = Current(change, units, lists, note["complete"])


@lru_cache(maxsize=1024)
def _hit_by(view: Schema, leaf: Schema, outputs: Positions, key: Positions) -> Tree:
    """View rows, each under the number of a leaf's row that has its key."""
    on = tuple(zip(outputs, key, strict=True))
    joined = Join(Scan(LEFT, view), Scan(RIGHT, leaf), on, None)
    return Project(joined, tuple(Col(i, c.type) for i, c in enumerate(view)), view)
