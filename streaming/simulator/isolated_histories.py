"""Histories of `isolated`: sources with delta tables, a network without promises, crashes anywhere.

Channels lose, repeat and reorder whatever is sent, notifications and everything else; a clock sends again
what has had no answer and starts a session now and then. The machine crashes before it has handled a
message, after, or after its snapshot is durable and part of what it said is on its way. The warehouse
drops numbers that it has. What is visible after each installation is judged by the auditor.

    x1: +x.r1[1,2]              source x commits its first transaction
    S1                          the first session begins
    TID x={x1}                  ids read at x
    E1 y {[1,2]}                y evaluates what request 1 asks, with the rows that were sent along
    crash, again                the machine goes on from its snapshot
    MV 0 v={[1,2,3]}            number 0 is visible
    D x={x1}                    x deletes what was handled

`python -m streaming.simulator.isolated_histories 17` replays seed 17.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streaming.algebra.bag import Bag, Numbered, flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import LEFT, source_of
from streaming.durable import as_json
from streaming.isolated.isolated_manager import Isolated
from streaming.isolated.session_messages import (
    DeleteIds,
    Evaluate,
    Installed,
    ReadIds,
    StartSession,
)
from streaming.messages import ActionList, Rel
from streaming.simulator.auditor import Auditor
from streaming.simulator.case import Case, Faults, HistoryOutcome
from streaming.simulator.delta_source import DeltaSource
from streaming.simulator.lattice import Values
from streaming.simulator.notation import bag_text, values_text, witness_text
from streaming.simulator.workload import Transaction, World, world
from streaming.viewmanagers.levels import Level

GROUP = "g"
MACHINE, WAREHOUSE = "isolated", "warehouse"
MOST_STEPS = 20_000
"""A history that takes longer is stuck."""
CASE = Case(
    scenario="local",
    views="mixed",
    relations="bag",
    transactions=8,
    visibility="set",
    truncates=0.05,
    faults=Faults(crash=0.05, lose=0.1, repeat=0.1, reorder=1.0),
)


@dataclass
class NumberWarehouse:
    """Installs the lists of one number in one transaction, each number once (MVC 4, one row of the VUT).

    Attributes:
        states: what was visible after each number.
        waiting: REL and the lists of the next number, as far as they have come.
    """

    views: tuple[str, ...]
    operators: NumberedBags
    states: list[Values] = field(default_factory=list)
    waiting: dict[str, Rel | ActionList] = field(default_factory=dict)

    def handle(self, message: Rel | ActionList) -> bool:
        """REL or a list, in any order and more than once; whether its number has become visible."""
        if message.last < len(self.states):
            return False
        assert message.last == len(self.states), f"{message.last} after {len(self.states) - 1}"
        self.waiting["" if isinstance(message, Rel) else message.view] = message
        rel = self.waiting.get("")
        if not isinstance(rel, Rel):
            return False
        run, lists = rel.runs[0], {view: each for view, each in self.waiting.items() if view}
        if lists.keys() != set(run.views) - set(run.idle):
            return False
        deltas: dict[str, Numbered] = {view: {} for view in self.views}
        for view, each in lists.items():
            if isinstance(each, ActionList) and each.delta is not None:
                deltas[view] = self.operators.open(each.delta)
        self.install(deltas)
        self.waiting = {}
        return True

    def install(self, lists: dict[str, Numbered]) -> None:
        """All views in one transaction."""
        old: Values = self.states[-1] if self.states else tuple({} for _ in self.views)
        shown: list[Bag] = []
        for view, rows in zip(self.views, old, strict=True):
            new = flat(
                self.operators.plus({(0, r): n for r, n in rows.items()}, _zero(lists[view]))
            )
            assert all(count > 0 for count in new.values()), f"a deletion finds no row of {view}"
            shown.append(new)
        self.states.append(tuple(shown))


def _zero(delta: Numbered) -> Numbered:
    return NumberedBags().renumbered(delta, 0)


class Sessions:
    """One history.

    Args:
        watch: whether its lines are written down.
    """

    def __init__(self, case: Case, seed: int, watch: bool = False) -> None:
        self.case, self.rng = case, random.Random(f"isolated {seed}")
        self.world: World = world(case.load, self.rng)
        self.operators = NumberedBags()
        known = self.world.catalog
        self.trees = {view.name: view.tree for view in known.views}
        self.machine = Isolated(GROUP, self.trees, self.operators)
        self.sources = {
            source: DeltaSource(
                source,
                known.relations,
                {n: r for n, r in self.world.initial.items() if source_of(n) == source},
                [scan.relation for scan in self.machine.scans.get(source, ())],
                self.operators,
                case.visibility,
                self.rng,
            )
            for source in known.sources
        }
        self.logs = {source: list(log) for source, log in self.world.logs.items()}
        self.warehouse = NumberWarehouse(tuple(sorted(self.trees)), self.operators)
        self.under_way: list[tuple[str, Any]] = []
        self.lists: dict[int, dict[str, Numbered]] = {}
        self.lines: list[str] = []
        self.watch = watch
        self.counters = {"messages": 0, "crashes": 0, "lost": 0, "repeated": 0, "sessions": 0}

    def run(self) -> list[Values]:
        """The whole history; the states that were visible, in order.

        Raises:
            AssertionError: it does not come to its end.
        """
        for _ in range(MOST_STEPS):
            if not self._step():
                return self.warehouse.states
        raise AssertionError("stuck")

    def _step(self) -> bool:
        """One event; False when all is done."""
        draw = self.rng.random
        open_logs = [source for source, log in self.logs.items() if log]
        if open_logs and draw() < 0.3:
            self._commit(self.rng.choice(open_logs))
        elif self.under_way and draw() < 0.97:
            self._deliver()
        elif self.machine.step != "idle":
            self._send(self.machine.resume())
        elif open_logs or not self.warehouse.states or self._unhandled():
            self._to_machine(StartSession())
        else:
            return False
        return True

    def _unhandled(self) -> bool:
        return any(self.sources[source].unhandled() for source in self.machine.scans)

    def _commit(self, source: str) -> None:
        transaction: Transaction = self.logs[source].pop(0)
        self.sources[source].commit(transaction)
        self._say(transaction.text)
        self.under_way.append((MACHINE, StartSession()))

    def _deliver(self) -> None:
        faults, draw = self.case.faults, self.rng.random
        at = self.rng.randrange(len(self.under_way)) if draw() < faults.reorder else 0
        receiver, message = self.under_way.pop(at)
        if draw() < faults.lose:
            self.counters["lost"] += 1
            return
        if draw() < faults.repeat:
            self.counters["repeated"] += 1
            self.under_way.append((receiver, message))
        if receiver == MACHINE:
            self._to_machine(message)
        elif receiver == WAREHOUSE:
            self._install(message)
        else:
            if self.watch:
                self._say(self._asked(receiver, message))
            self.under_way.append((MACHINE, self.sources[receiver].answer(message)))

    # The machine ----------------------------------------------------------------------------------

    def _to_machine(self, message: Any) -> None:
        """A message handled, with a crash at any of the moments at which one makes a difference.

        What is durable is the state before the message until it is handled, and after that the new one,
        before anything is sent. So a snapshot is taken only where there is a crash.
        """
        self.counters["messages"] += 1
        moment = self.rng.choice(("before", "after", "sending"))
        crashes = self.rng.random() < self.case.faults.crash
        durable = json.dumps(as_json(self.machine.snapshot())) if crashes else ""
        if crashes and moment == "before":
            return self._crash(durable)
        session = self.machine.session
        sent = self.machine.handle(message)
        if crashes and moment == "after":
            return self._crash(durable)
        if self.machine.session > session:
            self.counters["sessions"] += 1
            self._say(f"S{self.machine.session}")
        if not crashes:
            return self._send(sent)
        durable = json.dumps(as_json(self.machine.snapshot()))
        self._send(sent[: self.rng.randint(0, len(sent))])
        self._crash(durable)

    def _crash(self, durable: str) -> None:
        self.counters["crashes"] += 1
        self._say("crash, again")
        self.machine = Isolated(GROUP, self.trees, self.operators)
        self.machine.restore(json.loads(durable))
        self._send(self.machine.resume())

    def _send(self, sent: list[Any]) -> None:
        """Lists go to the warehouse, which waits for all of a number; the rest to its source."""
        for message in sent:
            if isinstance(message, Rel | ActionList):
                self.under_way.append((WAREHOUSE, message))
            else:
                self.under_way.append((message.source, message))

    def _install(self, message: Rel | ActionList) -> None:
        fresh = self.warehouse.handle(message)
        number = message.last
        if fresh:
            shown = values_text(self.warehouse.states[-1], self.warehouse.views)
            self._say(f"MV {number} {shown}")
        if number < len(self.warehouse.states):
            self.under_way.append((MACHINE, Installed(number)))

    # In words -------------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        if self.watch:
            self.lines.append(line)

    def _asked(self, source: str, message: Any) -> str:
        match message:
            case ReadIds():
                return f"TID {source}={_ids_text(self.sources[source].evaluate(message.part))}"
            case Evaluate():
                known = [part.inputs[LEFT] for part in message.parts if LEFT in part.inputs]
                return f"E{message.request} {source} {' '.join(map(_text, known))}".rstrip()
            case DeleteIds():
                return f"D {source}={_ids_text(message.ids)}"
        raise AssertionError(message)


def _text(rows: Numbered) -> str:
    return bag_text(flat(rows))


def _ids_text(rows: Numbered) -> str:
    return f"{{{','.join(sorted(row[0] for _, row in rows))}}}"


def audited(sessions: Sessions) -> Iterator[tuple[tuple[str, ...], Auditor, list[Values]]]:
    """Each view alone, then all together: names, auditor, states."""
    states, views = sessions.warehouse.states, sessions.warehouse.views
    for at, view in enumerate(views):
        trees = [sessions.trees[view]]
        alone: list[Values] = [(values[at],) for values in states]
        yield (view,), Auditor(sessions.world, sessions.case.scenario, trees), alone
    yield views, together(sessions), states


def together(sessions: Sessions) -> Auditor:
    """The auditor of all views as one."""
    trees = [sessions.trees[view] for view in sessions.warehouse.views]
    return Auditor(sessions.world, sessions.case.scenario, trees)


def holds(case: Case, seed: int, level: Level) -> bool:
    """Whether a history has the level, all views as one."""
    sessions = Sessions(case, seed)
    return together(sessions).holds(sessions.run(), level)


def run(case: Case, seed: int) -> HistoryOutcome:
    """One history, written down and judged."""
    sessions = Sessions(case, seed, watch=True)
    sessions.run()
    *single, (names, judge, states) = audited(sessions)
    levels = {view: auditor.level(alone) for (view,), auditor, alone in single}
    group, witness = judge.level(states), None
    if group < Level.COMPLETE:
        found = judge.witness(states, Level(group + 1))
        witness = witness_text(names, group, found) if found is not None else None
    lines = (*sessions.lines, *([witness] if witness else []))
    return HistoryOutcome(case, seed, levels, group, witness, lines, sessions.counters)


if __name__ == "__main__":
    print("\n".join(run(CASE, int(sys.argv[1]) if len(sys.argv) > 1 else 0).history))
