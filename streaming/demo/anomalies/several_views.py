"""Anomalies of views that are read together: each is right by itself, side by side they never were.

The naive warehouse applies every list when it comes. The right one has a merge, which paints the view
update table and applies a row when it is whole. The seed says in which order the lists arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from streaming.demo.anomalies.databases_played import Databases
from streaming.demo.anomalies.played import Play
from streaming.demo.anomalies.player import Player, added, sweep
from streaming.demo.anomalies.shown import Anomaly, AnomalyShown, Shown, Side, bag, changes_only
from streaming.demo.embedded.postgres_server import Postgres
from streaming.merge.batching import NONE
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun

MVC = "painting-mvc"


class ListByList:
    """A warehouse that applies each list by itself."""

    def __init__(self, players: Sequence[Player]) -> None:
        self._players = {one.name: one for one in players}
        self.now = {one.name: one.mv for one in players}
        self.states: list[Shown] = [self.shown()]

    def shown(self) -> Shown:
        return tuple(self.now.values())

    def rel(self, message: Rel) -> None:
        """Nobody asks it."""

    def list(self, message: ActionList) -> None:
        self._apply(message)
        self.states.append(self.shown())

    def _apply(self, message: ActionList) -> None:
        delta = self._players[message.view].rows(message)
        self.now[message.view] = added(self.now[message.view], delta)


class Merged(ListByList):
    """A warehouse behind a merge."""

    def __init__(self, players: Sequence[Player]) -> None:
        super().__init__(players)
        self._machine = MergeMachine("g", tuple(self._players), "spa", NONE)
        self._lists: dict[tuple[str, int], ActionList] = {}
        first = RelRun(first=0, last=0, views=())
        self.rel(Rel(group="g", first=0, last=0, runs=(first,)))

    def rel(self, message: Rel) -> None:
        self._machine.handle(message)
        self._take()

    def list(self, message: ActionList) -> None:
        self._lists[message.view, message.last] = message
        self._machine.handle(message)
        self._take()

    def _take(self) -> None:
        while (batch := self._machine.take_batch()) is not None:
            for part in batch.parts:
                self._apply(self._lists[part.view, part.last])
            self.states.append(self.shown())


def _arrive(play: Play, warehouses: Sequence[ListByList], message: ActionList) -> None:
    play.history.append(f"AL {message.view}[{message.first}..{message.last}] -> warehouse")
    for one in warehouses:
        one.list(message)
    play.step(f"the list of {message.view} arrives")


def _in_some_order(
    play: Play, warehouses: Sequence[ListByList], players: Sequence[Player], seed: int
) -> list[ActionList]:
    """The views' newest lists reach the warehouses after number 1's REL; returns them as they arrive."""
    for one in warehouses:
        one.rel(_rel(1, *play.views))
    lists = [one.lists[-1] for one in players]
    random.Random(seed).shuffle(lists)
    for each in lists:
        _arrive(play, warehouses, each)
    return lists


def _rel(number: int, *views: str, idle: Sequence[str] = ()) -> Rel:
    run = RelRun(first=number, last=number, views=tuple(sorted(views)), idle=tuple(sorted(idle)))
    return Rel(group="g", first=number, last=number, runs=(run,))


def _outcome(
    play: Play,
    seed: int,
    warehouses: Sequence[ListByList],
    names: tuple[str, str],
    expected: tuple[Sequence[Shown], Sequence[Shown]],
    about: Anomaly,
) -> AnomalyShown:
    sides = [
        Side(name, changes_only(one.states), tuple(states))
        for name, one, states in zip(names, warehouses, expected, strict=True)
    ]
    return play.outcome(seed, sides, about)


def disagreement(server: Postgres, seed: int) -> AnomalyShown:
    """V1 = R join S, V2 = S join T; one insertion into S changes both."""
    tables = {"x.r": "a* b", "y.s": "b* c", "z.t": "c* d"}
    databases = Databases(server, tables, {"x.r": [(1, 2)], "z.t": [(3, 4)]})
    views = {
        "v1": "SELECT r.a, r.b, s.c FROM x.r r JOIN y.s s ON r.b = s.b",
        "v2": "SELECT s.b, s.c, t.d FROM y.s s JOIN z.t t ON s.c = t.c",
    }
    play = Play(databases, views)
    players = [play.play(name, sweep, name) for name in views]
    apart, merged = ListByList(players), Merged(players)
    play.watch(apart.states, merged.states)
    play.deliver(play.updates(*play.commit(("y.s", 1, (2, 3)))))
    play.settle()
    lists = _in_some_order(play, (apart, merged), players, seed)
    both = (bag((1, 2, 3)), bag((2, 3, 4)))
    half = tuple(
        rows if lists[0].view == view else {} for view, rows in zip(views, both, strict=True)
    )
    return _outcome(
        play, seed, (apart, merged), ("no merge", "spa"),
        ([({}, {}), half, both], [({}, {}), both]),
        Anomaly(
            key="disagreement", title="Two views that disagree", paper=f"{MVC}, Example 1",
            says="between the two lists one view has the insertion and the other has not",
        ),
    )  # fmt: skip


def transfer(server: Postgres, seed: int) -> AnomalyShown:
    """V1 = R, V2 = S; one global transaction takes from one database what it gives to the other."""
    databases = Databases(
        server, {"x.r": "id* amount", "y.s": "id* amount"}, {"x.r": [(1, 100)], "y.s": [(1, 0)]}
    )
    play = Play(databases, {"v1": "SELECT id, amount FROM x.r", "v2": "SELECT id, amount FROM y.s"})
    players = [play.play(name, sweep, name) for name in play.views]
    apart, merged = ListByList(players), Merged(players)
    play.watch(apart.states, merged.states)
    at_x = play.commit(("x.r", -1, (1, 100)), ("x.r", 1, (1, 70)), whole=False)
    at_y = play.commit(("y.s", -1, (1, 0)), ("y.s", 1, (1, 30)))
    play.deliver(play.updates(*at_x, *at_y))
    lists = _in_some_order(play, (apart, merged), players, seed)
    old, new = (bag((1, 100)), bag((1, 0))), (bag((1, 70)), bag((1, 30)))
    first = lists[0].view == "v1"
    half = (new[0], old[1]) if first else (old[0], new[1])
    return _outcome(
        play, seed, (apart, merged), ("no merge", "spa"), ([old, half, new], [old, new]),
        Anomaly(
            key="transfer", title="Money that vanishes, or doubles, for a moment", paper=f"{MVC}, 6.2",
            says="each view has its part of the transfer when its own list comes",
        ),
    )  # fmt: skip


def selections(server: Postgres, seed: int) -> AnomalyShown:
    """An order goes 1 (open) -> 2 (moving) -> 3 (archived); REL by selections against REL by relation."""
    play = Play(
        Databases(server, {"x.orders": "id* status"}, {"x.orders": [(7, 1)]}),
        {
            "open": "SELECT id FROM x.orders WHERE status = 1",
            "archived": "SELECT id FROM x.orders WHERE status = 3",
        },
    )
    players = [play.play(name, sweep, name) for name in play.views]
    paper, ours = Merged(players), Merged(players)
    play.watch(paper.states, ours.states)
    for old, new in ((1, 2), (2, 3)):
        play.deliver(
            play.updates(*play.commit(("x.orders", -1, (7, old)), ("x.orders", 1, (7, new))))
        )
    paper.rel(_rel(1, "open"))
    paper.rel(_rel(2, "archived"))
    ours.rel(_rel(1, "open", "archived", idle=["archived"]))
    ours.rel(_rel(2, "open", "archived", idle=["open"]))
    opened, archived = (one.lists for one in players)
    for message in (archived[1], opened[0]):
        _arrive(play, (paper, ours), message)
    first: Shown = (bag((7,)), {})
    middle: Shown = ({}, {})
    last: Shown = ({}, bag((7,)))
    return _outcome(
        play, seed, (paper, ours), ("rel by selection", "rel by relation"),
        ([first, (bag((7,)), bag((7,))), last], [first, middle, last]),
        Anomaly(
            key="selections", title="An order in two views at once", paper=f"{MVC}, 3.2 as printed",
            says="REL by selections leaves nothing that keeps the second transaction behind the first",
        ),
    )  # fmt: skip


SCENARIOS: dict[str, Callable[[Postgres, int], AnomalyShown]] = {
    "disagreement": disagreement,
    "transfer": transfer,
    "selections": selections,
}
