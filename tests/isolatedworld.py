"""`isolated` with two sources, fed by hand: x has r(a, b), y has s(b, c)."""

from __future__ import annotations

from typing import Any

from streaming.algebra.bag import Bag, Numbered, bag, evaluate, flat, numbered
from streaming.algebra.numbered import NumberedBags
from streaming.durable import as_json
from streaming.isolated.isolated_manager import Isolated
from streaming.isolated.session_messages import Installed, StartSession
from streaming.messages import ActionList, Rel
from streaming.simulator.delta_source import DeltaSource
from streaming.simulator.workload import Transaction, WorkloadChange
from tests.askedsources import tables, view

KNOWN = tables(x__r="a b", y__s="b c")
JOINED = view("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b", KNOWN)
COPY = view("SELECT a, b FROM x.r", KNOWN)
VIEWS = {"joined": JOINED, "copy": COPY}
INITIAL = {"x.r": [(1, 2)], "y.s": [(2, 3)]}


class World:
    """The machine with its two sources; every message is delivered by hand or by `settle`."""

    def __init__(self, restarts: bool = False) -> None:
        self.operators = NumberedBags()
        self.machine = self._new()
        self.restarts = restarts
        self.sources = {
            name: DeltaSource(
                name, KNOWN, {relation: bag(INITIAL[relation])}, [relation], self.operators
            )
            for name, relation in (("x", "x.r"), ("y", "y.s"))
        }
        self.commits = 0
        self.lists: list[Rel | ActionList] = []

    def _new(self) -> Isolated[Any]:
        return Isolated("g", VIEWS, self.operators)

    def commit(
        self, relation: str, before: tuple[Any, ...] | None, after: tuple[Any, ...] | None
    ) -> str:
        self.commits += 1
        source = relation[0]
        change = WorkloadChange(relation, before, after)
        transaction = Transaction(source, self.commits, (change,))
        self.sources[source].commit(transaction)
        return transaction.id

    def handle(self, message: Any) -> list[Any]:
        """One message; with `restarts` the machine crashes after it and goes on from its snapshot."""
        sent = self.machine.handle(message)
        if self.restarts:
            saved = as_json(self.machine.snapshot())
            self.machine = self._new()
            self.machine.restore(saved)
            again = self.machine.resume()
            assert {repr(type(each)) for each in again} >= {repr(type(each)) for each in sent}
            return again
        return sent

    def settle(self, sent: list[Any]) -> None:
        """Everything is answered at once, until nothing is said any more."""
        while sent:
            following: list[Any] = []
            lists = [each for each in sent if isinstance(each, Rel | ActionList)]
            if lists and lists[0] not in self.lists:
                self.lists += lists
            if lists:
                following += self.handle(Installed(lists[0].last))
            for each in sent:
                if not isinstance(each, Rel | ActionList):
                    following += self.handle(self.sources[each.source].answer(each))
            sent = following

    def session(self) -> None:
        self.settle(self.handle(StartSession()))

    def contents(self, view_: str) -> Bag:
        """What the warehouse shows."""
        found: Bag = {}
        for each in self.lists:
            if isinstance(each, ActionList) and each.view == view_ and each.delta is not None:
                delta = self.operators.renumbered(self.operators.open(each.delta), 0)
                found = flat(self.operators.plus(numbered(found), delta))
        return found

    def true(self, view_: str) -> Bag:
        rows = {name: flat(self.sources[name[0]].tables[name]) for name in INITIAL}
        return evaluate(VIEWS[view_], rows)


def ids(*found: str) -> Numbered:
    return numbered(bag([(each,) for each in found]))


def in_step(step: str) -> World:
    """A second session, x changed, that has come to a step."""
    world = World()
    world.session()
    world.commit("x.r", None, (5, 2))
    sent = world.handle(StartSession())
    while world.machine.step != step:
        lists = [each for each in sent if isinstance(each, Rel)]
        if lists:
            world.lists += sent
            sent = world.handle(Installed(lists[0].last))
        else:
            answers = [world.sources[each.source].answer(each) for each in sent]
            sent = [following for answer in answers for following in world.handle(answer)]
    return world


def described(machine: Isolated[Any]) -> str:
    """The whole state, relations by value."""
    kept = {name: value for name, value in vars(machine).items() if name != "operators"}
    return repr(kept)
