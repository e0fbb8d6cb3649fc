"""A simulated pipeline: sources, integrator, view managers, merge and warehouse on one network.

Every step is one message at one node, drawn by the network from one seed; the machines are the real
ones. A node may crash at a step: before the step is durable, and then what it would have sent never
leaves and the message comes again; or after, and then a new node goes on from the snapshot (DESIGN 9).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streaming.algebra.numbered import NumberedBags
from streaming.algebra.query import SourceQuery
from streaming.messages import ActionList
from streaming.simulator.case import Case
from streaming.simulator.integrating import GROUP, Integrating
from streaming.simulator.lattice import Place, Values
from streaming.simulator.network import WORLD, Network
from streaming.simulator.nodes import (
    MERGE,
    WAREHOUSE,
    AskingNode,
    MergeNode,
    Node,
    Out,
    ReplicaNode,
    Warehouse,
    seen_by_list,
)
from streaming.simulator.source import Source
from streaming.simulator.workload import Transaction, World, world
from streaming.viewmanagers.base import ViewSpec
from streaming.viewmanagers.modes import MODES, ModeInfo, Numbering, Options

INTEGRATOR = "integrator"
Watch = Callable[[str, str, Any], None]
"""Called with every message (sender, receiver, message) once its effects are durable."""


@dataclass
class Run:
    """What a history was, for the auditor.

    Attributes:
        order: the row changes as they were numbered.
        by_view: per view, the states it passes through when its lists are applied alone.
        group: the states of all views that the warehouse showed; empty without a merge.
        stuck: why something still waited at the end, None when nothing did.
    """

    world: World
    order: list[Place] = field(default_factory=list)
    by_view: dict[str, list[Values]] = field(default_factory=dict)
    group: list[Values] = field(default_factory=list)
    stuck: str | None = None
    counters: Counter[str] = field(default_factory=Counter)


def numbering_of(case: Case) -> Numbering:
    """The numbering of a case: its own, or the finest that one of its modes asks for."""
    if case.numbering is not None:
        return case.numbering
    asked = {MODES[mode].numbering for mode in case.modes}
    order: tuple[Numbering, ...] = ("event", "local", "apart", "joined")
    return next(one for one in order if one in asked)


def algorithm_of(case: Case) -> str:
    """SPA when all modes are complete (DESIGN 5)."""
    if case.merge != "auto":
        return case.merge
    return "spa" if all(MODES[mode].complete_lists for mode in case.modes) else "pa"


class Pipeline:
    """One history of a case.

    Args:
        watch: sees every message.
    """

    def __init__(self, case: Case, seed: int, watch: Watch | None = None) -> None:
        rng = random.Random(seed)
        self.case, self._rng, self._watch = case, rng, watch
        self._faults = random.Random(f"{seed} faults")
        self.operators = NumberedBags()
        self.world = world(case, rng)
        self.run_ = Run(self.world)
        self.network = Network(rng)
        catalog = self.world.catalog
        self.sources = {
            name: Source(
                name,
                catalog.relations,
                {r: b for r, b in self.world.initial.items() if r.startswith(f"{name}.")},
                self.operators,
                case.visibility,
                rng,
            )
            for name in catalog.sources
        }
        self.integrator = Integrating(self.world, case, numbering_of(case), self.operators, rng)
        self.views = tuple(view.name for view in catalog.views)
        self.nodes: dict[str, Node] = {}
        keys = {name: relation.key for name, relation in catalog.relations.items()}
        options = Options(keys, dict(case.options))
        for place, view in enumerate(catalog.views):
            spec = ViewSpec(view.name, GROUP, view.tree)
            self.nodes[view.name] = self._manager(MODES[case.mode_of(place)], spec, options)
        if case.merge != "none":
            self.nodes[MERGE] = MergeNode(GROUP, self.views, algorithm_of(case), case)
        self.warehouse = Warehouse(self.views, self.operators)
        self._now: dict[str, dict[Any, int]] = {view: {} for view in self.views}
        self.run_.by_view = {view: [] for view in self.views}

    def _manager(self, info: ModeInfo, spec: ViewSpec, options: Options) -> Node:
        if not info.asks:
            return ReplicaNode(spec, self.operators, [])
        return AskingNode(info, spec, self.operators, options)

    # The run --------------------------------------------------------------------------------------

    def run(self) -> Run:
        """The history from its first message to its last."""
        self._send(INTEGRATOR, self._addressed([self.integrator.start()]))
        for source, log in self.world.logs.items():
            for transaction in log:
                self.network.send(WORLD, source, transaction)
        self._deliver()
        self._send(INTEGRATOR, self._addressed(self.integrator.flush()))
        self._deliver()
        run = self.run_
        run.order = self.integrator.order
        run.group = self.warehouse.states
        run.stuck = self._stuck()
        return run

    def _deliver(self) -> None:
        """Delivers until nothing is under way."""
        network, case = self.network, self.case
        merging = MERGE in self.nodes
        while network:
            self._to(*network.next())
            if merging and (not case.greedy or self._rng.random() < 0.3):
                self._send(MERGE, self._step(MERGE, None))
        if merging:
            self._send(MERGE, self._step(MERGE, None))

    def _to(self, sender: str, receiver: str, message: Any) -> None:
        """One message: the receiver's step, and what it sends."""
        out: Out
        if receiver in self.sources:
            out = self._at_source(self.sources[receiver], message)
        elif receiver == INTEGRATOR:
            out = self._addressed(self._integrate(message))
        else:
            out = self._step(receiver, message)
        if self._watch is not None:
            self._watch(sender, receiver, message)
        self._send(receiver, out)

    def _at_source(self, source: Source, message: Transaction | SourceQuery[Any]) -> Out:
        if isinstance(message, Transaction):
            return [(INTEGRATOR, source.commit(message))]
        self.run_.counters["queries"] += 1
        return [(message.view, source.answer(message))]

    def _integrate(self, transaction: Transaction) -> list[Any]:
        if not self._crash():
            return self.integrator.handle(transaction)
        node = self.integrator
        if self._faults.random() < 0.5:
            saved = json.dumps(node.snapshot())
            out = None
        else:
            out = node.handle(transaction)
            saved = json.dumps(node.snapshot())
        self.integrator = Integrating(
            self.world, self.case, node.numbering, self.operators, self._rng
        )
        self.integrator.restore(json.loads(saved))
        return self.integrator.handle(transaction) if out is None else out

    def _addressed(self, messages: list[Any]) -> Out:
        out: Out = []
        for rel, updates in messages:
            if MERGE in self.nodes:
                out.append((MERGE, rel))
            out += [(view, updates) for view in self.views]
        return out

    def _step(self, name: str, message: Any) -> Out:
        if self._crash():
            return self._crashing(name, self.nodes[name], message)
        return self.nodes[name].handle(message)

    def _crash(self) -> bool:
        """Whether the machine stops at this step; drawn apart, so that all else stays the same."""
        if not self.case.faults.crash or self._faults.random() >= self.case.faults.crash:
            return False
        self.run_.counters["crashes"] += 1
        return True

    def _crashing(self, name: str, node: Node, message: Any) -> Out:
        """The step with a crash before it is durable, or after."""
        if self._faults.random() < 0.5:
            saved = json.dumps(node.snapshot())
            node.handle(message)
            self.nodes[name] = node.reborn(saved)
            return self.nodes[name].handle(message)
        out = node.handle(message)
        self.nodes[name] = node.reborn(json.dumps(node.snapshot()))
        return out

    def _send(self, sender: str, out: Out) -> None:
        for receiver, message in out:
            if receiver == WAREHOUSE:
                self.warehouse.apply(message)
                if self._watch is not None:
                    self._watch(sender, WAREHOUSE, message)
                continue
            if isinstance(message, ActionList):
                self._show(message)
                if MERGE not in self.nodes:
                    if self._watch is not None:
                        self._watch(sender, MERGE, message)
                    continue
            self.network.send(sender, receiver, message)

    def _show(self, sent: ActionList) -> None:
        states = seen_by_list(self._now[sent.view], sent, self.operators)
        self._now[sent.view] = states[-1]
        self.run_.by_view[sent.view] += [(state,) for state in states]

    def _stuck(self) -> str | None:
        """What still waits when every message has been delivered."""
        for view in self.views:
            node = self.nodes[view]
            if isinstance(node, AskingNode):
                self.run_.counters["asked_again"] += node.asked_again
                if node.manager.uqs:
                    return f"{view} waits for {len(node.manager.uqs)} answers"
        merge = self.nodes.get(MERGE)
        if isinstance(merge, MergeNode) and merge.machine.frontier < len(self.integrator.order):
            cells = merge.machine.cells_by_colour()
            if cells["white"] or merge.machine.waiting or cells["red"]:
                return f"the merge waits: {cells}"
        return None


def simulate(case: Case, seed: int, watch: Watch | None = None) -> Run:
    """One history of a case, not judged yet."""
    return Pipeline(case, seed, watch).run()
