"""The simulated integrator: its machine numbers what the sources log, here become messages of it.

One message for the merge (Rel) and one for each view manager (Updates) hold the same numbers; the last
of them is a cut. Numbering per event, per local transaction, per global transaction as a whole, or per
part with a tag (DESIGN 6) is what the integrator is told of the transactions, not another machine.

With `rel: with-actions` Rel rides along with the Updates instead. What the roster changes at a cut is
said between the message that ends there and the next one; a view that joins is given its relations,
and its parents where these are there already, as they are after that number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streaming.algebra.numbered import NumberedBags
from streaming.integrator.integrator_machine import Completed, IntegratorMachine
from streaming.integrator.knots import Touched
from streaming.integrator.window import Closed, PartOfGlobal
from streaming.messages import GlobalPart, Rel, SourceLog, Updates, ViewChange
from streaming.simulator.case import Case
from streaming.simulator.items import GROUP, Item, all_whole, items_of, rows_of, whole
from streaming.simulator.lattice import Place
from streaming.simulator.network import LAUNCH, MERGE, Out
from streaming.simulator.rel import Pattern, pattern, rel_runs
from streaming.simulator.roster import Roster
from streaming.simulator.workload import Transaction, World, touched
from streaming.viewmanagers.modes import Numbering


class Changed(NamedTuple):
    """What changes of the group at a cut.

    Attributes:
        out: what is sent for it at once.
        said: the changes.
        leaving: the managers whose views leave.
    """

    out: Out
    said: Sequence[ViewChange]
    leaving: Sequence[str]


NOTHING = Changed([], (), ())


class Integrating:
    """The integrator's node.

    Args:
        numbering: see `modes.Numbering`.
        rng: draws the sizes of messages where the case varies them.
        roster: the views of the group, whose managers get its messages.
    """

    def __init__(
        self,
        world: World,
        case: Case,
        numbering: Numbering,
        operators: NumberedBags,
        rng: random.Random,
        roster: Roster,
    ) -> None:
        self.world, self.case, self.numbering, self.roster = world, case, numbering, roster
        self.machine = IntegratorMachine(world.catalog.sources)
        self._operators = operators
        self._rng = rng
        self._logs: dict[str, list[Item]] = {source: [] for source in world.catalog.sources}
        self._numbers: list[list[Item]] = []
        self._emitted = 0
        self._size = 0
        """How many numbers the next message gets; 0 when that is not drawn yet."""
        self._delivered = dict.fromkeys(world.catalog.sources, 0)
        self._out: dict[str, set[int]] = {source: set() for source in world.catalog.sources}

    # Messages -------------------------------------------------------------------------------------

    def start(self) -> Out:
        """Number 0: every source's snapshot is closed."""
        sources = self.world.catalog.sources
        self.machine.handle(Completed(0, closed=tuple([Closed(source) for source in sources])))
        return self._addressed(self._whole(0))

    def handle(self, transaction: Transaction | None) -> Out:
        """A source logged a transaction; sends the messages that are full. None: sends the rest."""
        if transaction is None:
            left = len(self._numbers) - self._emitted
            return self._message(left) if left else []
        source = transaction.source
        log = self._logs[source]
        first = len(log) + 1
        log.extend(items_of(transaction, self.numbering))
        parts: tuple[PartOfGlobal, ...] = ()
        if self.numbering == "joined" and transaction.glob is not None:
            parts = (PartOfGlobal(source, first, transaction.glob, transaction.parts),)
        numbered = self.machine.handle(
            Completed(0, {source: (first, len(log))}, parts, keys=self._keys)
        )
        self._numbers.extend([] for _ in range(numbered.first, numbered.last + 1))
        for given in numbered.assignments:
            for k in range(given.last - given.first + 1):
                item = self._logs[given.source][given.first + k - 1]
                self._numbers[given.number + given.step * k - 1].append(item)
        out: Out = []
        while len(self._numbers) - self._emitted >= self._next_size():
            out += self._message(self._size)
            self._size = 0
        return out

    @property
    def last(self) -> int:
        """The last number that was sent."""
        return self._emitted

    @property
    def order(self) -> list[Place]:
        """The row changes in the order of their numbers."""
        return [
            (item.transaction.source, item.transaction.ordinal, item.event + n)
            for items in self._numbers
            for item in items
            for n in range(len(item.changes))
        ]

    def _next_size(self) -> int:
        if not self._size:
            most = self.case.batch
            self._size = self._rng.randint(1, most) if self.case.vary else most
        return self._size

    def _keys(self, source: str, first: int, last: int) -> Touched:
        """What each ordinal touches; a relation counts as one key where it is truncated among them."""
        items = self._logs[source][first - 1 : last]
        truncated = {c.relation for item in items for c in item.changes if c.truncates}
        codes: dict[object, int] = {}
        ordinals, keys = [], []
        for ordinal, item in enumerate(items, first):
            for key in self._touched(item, truncated):
                ordinals.append(ordinal)
                keys.append(codes.setdefault(key, len(codes)))
        return Touched(np.array(ordinals, np.int64), np.array(keys, np.int64))

    def _touched(self, item: Item, truncated: set[str]) -> set[object]:
        relations = self.world.catalog.relations
        found: set[object] = {c.relation for c in item.changes if c.relation in truncated}
        for change in (c for c in item.changes if not c.idles):
            for key in touched(relations[change.relation], change):
                found.add((change.relation, key))
        return found

    # One message ----------------------------------------------------------------------------------

    def _addressed(self, updates: Updates, change: Changed = NOTHING) -> Out:
        """The message to all managers of the group, and to those that must hear in it that they end."""
        told = [self.roster.node(view.name) for view in self.roster.present.views]
        if self.case.rel == "direct" and self.case.merge == "none":
            return [(node, updates) for node in told]
        rel = Rel(group=GROUP, first=updates.first, last=updates.last, runs=updates.runs)
        if self.case.rel == "direct":
            return [*((node, updates) for node in told), (MERGE, rel)]
        updates = updates.model_copy(update={"rel": (*change.said, rel)})
        return [(node, updates) for node in (*told, *change.leaving)]

    def _message(self, size: int) -> Out:
        first = self._emitted + 1
        numbers = self._numbers[self._emitted : self._emitted + size]
        change = self._changed(self._emitted)
        self._emitted += size
        catalog = self.roster.present
        parts = self._parts(numbers, first) if self.numbering == "apart" else ()
        tagged = {part.number for part in parts}
        patterns: list[Pattern] = [
            pattern(
                catalog, [change for item in items for change in item.changes], number in tagged
            )
            for number, items in enumerate(numbers, first)
        ]
        runs = rel_runs(catalog, first, tuple(patterns))
        rows, controls = rows_of(numbers, first)
        updates = Updates(
            group=GROUP,
            first=first,
            last=self._emitted,
            runs=runs,
            relations={name: self._operators.pack(each) for name, each in rows.items()},
            controls=controls,
            logs=self._source_logs(numbers, first),
            delivered=self._delivered,
            parts=parts,
        )
        return [*change.out, *self._addressed(updates, change)]

    # Views that join and leave --------------------------------------------------------------------

    def _changed(self, number: int) -> Changed:
        """What the roster changes at a cut; nothing where a transaction has a number only in part."""
        if not self.case.view_changes or not all_whole(self._numbers[:number], self.numbering):
            return NOTHING
        views = self.roster.views
        nodes = {view: self.roster.node(view) for view in views}
        said = self.roster.drawn(number)
        out: Out = []
        for each in said:
            if self.case.rel == "direct":
                out.append((MERGE, each))
            if each.change == "add":
                launch = self.roster.launch(each, views)
                old = [name for name in self.roster.parents(each.view) if name in views]
                out += [(LAUNCH, launch), (launch.node, self._whole(number, old))]
            elif self.case.rel == "direct":
                out.append((nodes[each.view], each))
        leaving = [nodes[each.view] for each in said if each.change == "drop"]
        return Changed(out, said, leaving)

    def _whole(self, number: int, parents: Sequence[str] = ()) -> Updates:
        views = tuple(sorted(self.roster.since))
        numbers = self._numbers[:number]
        return whole(self.world, numbers, self._operators, views, parents, self._delivered)

    # What a message says beside its rows ----------------------------------------------------------

    def _source_logs(self, numbers: Sequence[list[Item]], first: int) -> dict[str, SourceLog]:
        entries: dict[str, list[tuple[int, int, str]]] = {}
        for number, items in enumerate(numbers, first):
            for item in items:
                ordinal = item.transaction.ordinal
                entries.setdefault(item.transaction.source, []).append(
                    (ordinal, number, item.transaction.id)
                )
                if item.whole:
                    self._out[item.transaction.source].add(ordinal)
        delivered = dict(self._delivered)
        for source in entries:
            while delivered[source] + 1 in self._out[source]:
                delivered[source] += 1
        self._delivered = delivered
        logs = {}
        for source, each in entries.items():
            positions, given, names = zip(*sorted(each), strict=True)
            logs[source] = SourceLog(numbers=given, transactions=names, positions=positions)
        return logs

    def _parts(self, numbers: Sequence[list[Item]], first: int) -> tuple[GlobalPart, ...]:
        return tuple(
            GlobalPart(number=number, id=item.transaction.glob, parts=item.transaction.parts)
            for number, items in enumerate(numbers, first)
            for item in items
            if item.transaction.glob is not None
        )

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Control state; logs and numbered updates are tables of their own (`_updates`)."""
        return {
            "machine": self.machine.snapshot(),
            "logs": {source: len(log) for source, log in self._logs.items()},
            "numbers": [
                [[i.transaction.source, i.transaction.ordinal, i.event] for i in items]
                for items in self._numbers
            ],
            "emitted": self._emitted,
            "size": self._size,
            "delivered": self._delivered,
            "roster": self.roster.snapshot(),
            "out": {source: sorted(each) for source, each in self._out.items()},
        }

    def reborn(self, text: str) -> Integrating:
        """A new node in the state that the JSON text holds."""
        node = Integrating(
            self.world, self.case, self.numbering, self._operators, self._rng, self.roster
        )
        node.restore(json.loads(text))
        return node

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to what `snapshot` described."""
        self.machine.restore(saved["machine"])
        items: dict[tuple[str, int, int], Item] = {}
        for source, log in self.world.logs.items():
            self._logs[source] = [i for t in log for i in items_of(t, self.numbering)]
            items |= {(source, i.transaction.ordinal, i.event): i for i in self._logs[source]}
            del self._logs[source][saved["logs"][source] :]
        self._numbers = [[items[s, o, e] for s, o, e in each] for each in saved["numbers"]]
        self._emitted, self._size = saved["emitted"], saved["size"]
        self._delivered = dict(saved["delivered"])
        self.roster = self.roster.restored(saved["roster"])
        self._out = {source: set(each) for source, each in saved["out"].items()}
