"""The anomaly of a view over views whose parents took the updates in different orders (ryco-pyco 3.1).

Each parent is maintained rightly, in the order in which updates reached it. The naive child pairs what
the parents say of one update; the right one pairs what they say of one number, all having followed the
numbering (the registry's update-message-order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streaming import packed_rows as packing
from streaming.algebra.bag import Bag
from streaming.algebra.tree import Relation
from streaming.demo.anomalies.databases_played import Databases
from streaming.demo.anomalies.played import Play
from streaming.demo.anomalies.player import FEW, NOWHERE, Player, added, operators, packed, sweep
from streaming.demo.anomalies.shown import Anomaly, AnomalyShown, Shown, Side, bag, changes_only
from streaming.demo.embedded.postgres_server import Postgres
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.duck.signed import Signed
from streaming.messages import ActionList, RelRun, Updates
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse
from streaming.viewmanagers.base import Codec, ManagedView
from streaming.viewmanagers.over_views.mediator import Mediator
from streaming.viewmanagers.replica import ReplicaManager


class Over:
    """V0 over V1 and V2: a mediator and a replica manager, as in the service."""

    def __init__(self, text: str, parents: Mapping[str, Player]) -> None:
        known = {name: Relation(name, one.spec.tree.schema) for name, one in parents.items()}
        self.spec = ManagedView("v0", "g", parse(text, known))
        self._schemas = {name: delta_schema(one.schema) for name, one in known.items()}
        self._operators = operators()
        self._mediator: Mediator[Signed] = Mediator(
            self.spec, dict.fromkeys(parents, "g"), self._operators
        )
        codec = Codec(packed, lambda rows: packing.locate(rows, NOWHERE))
        self._manager = ReplicaManager(self.spec, DuckEvaluator(self.spec.tree, threads=1), codec)
        self._number = -1
        self.now: Bag = {}
        self.states: list[Shown] = []
        self.take({name: one.shown[0][0] for name, one in parents.items()})

    def shown(self) -> Shown:
        return (self.now,)

    def take(self, deltas: Mapping[str, Mapping[Any, int]]) -> None:
        """What the parents list under the next number."""
        self._number += 1
        n = self._number
        run = RelRun(first=n, last=n, views=("v0", *sorted(deltas)))
        messages: list[Updates | ActionList] = [
            Updates(group="g", first=n, last=n, runs=(run,), relations={})
        ]
        for name, delta in deltas.items():
            rows = Signed(
                self._schemas[name], bag={(n, row): count for row, count in delta.items()}
            )
            packed = self._operators.pack(rows)
            messages.append(ActionList(group="g", view=name, first=n, last=n, delta=packed))
        for message in messages:
            for each in self._mediator.handle(message):
                assert isinstance(each, Updates)
                sent = self._manager.handle(each)
                self._manager.advance()
                if sent is not None and sent.delta is not None:
                    found = self._operators.open(sent.delta).bag(FEW) or {}
                    for (_, row), count in found.items():
                        self.now = added(self.now, {row: count})
        self.states.append(self.shown())


def no_registry(server: Postgres, seed: int) -> AnomalyShown:
    """V1 = V2 = B1 join B2; V1 hears of DU11 first, V2 of DU21; V0 = V1 join V2 (Examples 1 and 4)."""
    join = "SELECT b1.k, b2.v FROM x.b1 b1 JOIN y.b2 b2 ON b1.k = b2.k"
    over = "SELECT v1.k, v1.v, v2.v AS w FROM v1 JOIN v2 ON v1.k = v2.k"
    truth = (
        "SELECT b1.k, b2.v, c2.v AS w FROM x.b1 b1 JOIN y.b2 b2 ON b1.k = b2.k"
        " JOIN y.b2 c2 ON b1.k = c2.k"
    )
    databases = Databases(server, {"x.b1": "k*", "y.b2": "k* v"}, {"y.b2": [(1, 10)]})
    play = Play(databases, {"v0": truth})
    tree = databases.view(join)
    own = {name: play.play(name, sweep, tree) for name in ("v1", "v2")}
    ordered = {name: play.play(f"{name}_registry", sweep, tree) for name in ("v1", "v2")}
    by_arrival, by_number = Over(over, own), Over(over, ordered)
    play.watch(by_arrival.states, by_number.states)

    du21 = play.commit(("y.b2", -1, (1, 10)), ("y.b2", 1, (1, 20)))
    play.deliver(play.updates(*du21), "v2", "v1_registry", "v2_registry")
    play.settle()
    du11 = play.commit(("x.b1", 1, (1,)))
    play.number = 0
    play.deliver(play.updates(*du11), "v1")
    play.deliver(play.updates(*du21), "v1")
    play.deliver(
        play.message({"x.b1": {(1,): 1}}, 2, dict(du11)), "v2", "v1_registry", "v2_registry"
    )
    play.settle()
    v1, v2 = (own[name].lists for name in ("v1", "v2"))
    for at1, at2 in ((0, 1), (1, 0)):
        by_arrival.take({"v1": own["v1"].rows(v1[at1]), "v2": own["v2"].rows(v2[at2])})
    for number in (0, 1):
        by_number.take({name: one.rows(one.lists[number]) for name, one in ordered.items()})
    play.step("V0 pairs the parents' changes")
    mixed, end = (bag((1, 10, 20)),), (bag((1, 20, 20)),)
    sides = (
        Side("no registry", changes_only(by_arrival.states), (({},), mixed, end)),
        Side("one numbering", changes_only(by_number.states), (({},), end)),
    )
    return play.outcome(
        seed, sides,
        Anomaly(
            key="no-registry", title="Parents that took the updates in different orders",
            paper="ryco-pyco, Examples 1 and 4",
            says="each parent is right by itself; together they show two values of one row",
        ),
    )  # fmt: skip


SCENARIOS: dict[str, Callable[[Postgres, int], AnomalyShown]] = {"no-registry": no_registry}
