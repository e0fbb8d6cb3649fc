"""A simulated pipeline: sources, integrator, view managers, merge and warehouse on one network.

Every step is one message at one node, drawn by the network from one seed; the machines are the real
ones. A node may crash at a step: before the step is durable, and then what it would have sent never
leaves and the message comes again; or after, and then a new node goes on from the snapshot (DESIGN 9).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import relations
from streaming.durable import as_json
from streaming.merge.algorithms import Manager, merge_of
from streaming.merge.batching import GREEDY, NONE, BatchedTransaction
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Suspend
from streaming.simulator.case import Case
from streaming.simulator.integrator_node import Integrating
from streaming.simulator.items import GROUP
from streaming.simulator.lattice import Place, Shown, Values
from streaming.simulator.network import INTEGRATOR, LAUNCH, MERGE, WAREHOUSE, WORLD, Network, Out
from streaming.simulator.nodes import (
    AskingNode,
    CommittedMessage,
    Merge,
    MergeNode,
    Node,
    ReplicaNode,
    SimulatedWarehouse,
    seen_by_list,
)
from streaming.simulator.roster import Launch, Roster
from streaming.simulator.simulated_source import SimulatedSource
from streaming.simulator.small_views import CaseCatalog
from streaming.simulator.view_node import Inner, ViewNode
from streaming.simulator.workload import World, drawn
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.modes import MODES, Numbering, Options

Watch = Callable[[str, str, Any], None]
"""Called with every message (sender, receiver, message) once its effects are durable."""


@dataclass
class HistoryRun:
    """What a history was, for the auditor.

    Attributes:
        order: the row changes as they were numbered.
        by_view: per view, the states it passes through when its lists are applied alone; empty where
            views join and leave.
        group: the states of all views that the warehouse showed; empty without a merge.
        stuck: why something still waited at the end, None when nothing did.
        last: the last number.
    """

    world: World
    order: list[Place] = field(default_factory=list)
    by_view: dict[str, list[Values]] = field(default_factory=dict)
    group: list[Shown] = field(default_factory=list)
    stuck: str | None = None
    last: int = 0
    counters: Counter[str] = field(default_factory=Counter)


def numbering_of(case: Case) -> Numbering:
    """The numbering of a case: its own, or the finest that one of its modes asks for."""
    if case.numbering is not None:
        return case.numbering
    asked = {MODES[mode].numbering for mode in case.modes}
    order: tuple[Numbering, ...] = ("event", "local", "apart", "joined")
    return next(one for one in order if one in asked)


def managers_of(case: Case, catalog: CaseCatalog) -> dict[str, Manager]:
    """What each view's manager sends; over a parent that skips states nobody can have them all."""
    found: dict[str, Manager] = {}
    for place, view in enumerate(catalog.views):
        info = MODES[case.mode_of(place)]
        above = {found[name].sends for name in relations(view.tree) if name in found}
        manager = Manager(info.sends, info.period(dict(case.options)))
        if above - {"complete"}:
            manager = Manager("convergent" if "convergent" in above else "strong")
        found[view.name] = manager
    return found


def merge_for(case: Case, managers: Mapping[str, Manager]) -> Merge:
    """The merge of the group: what its managers need (`merge.algorithms`), or the algorithm asked for."""
    batching = GREEDY if case.greedy else NONE
    discipline: Discipline = "declared" if case.submission == "at-once" else case.submission
    if case.merge == "blocks":
        every = case.option("every", 1)
        return BlockMerge(GROUP, tuple(managers), every, batching, case.order, discipline)
    if case.merge in ("spa", "pa"):
        names = tuple(managers)
        return MergeMachine(GROUP, names, case.merge, batching, case.order, discipline=discipline)
    return merge_of(GROUP, managers, batching, case.order, discipline)


class SimulatedPipeline:
    """One history of a case.

    Args:
        watch: sees every message.
    """

    def __init__(self, case: Case, seed: int, watch: Watch | None = None) -> None:
        self.world, state = drawn(case.load, seed)
        rng = random.Random(seed)
        rng.setstate(state)
        self.case, self._rng, self._watch = case, rng, watch
        self._faults = random.Random(f"{seed} faults") if case.faults.crash else rng
        self.operators = NumberedBags()
        self.network = Network(rng)
        self.views = tuple([view.name for view in self.world.catalog.views])
        self.merging = case.merge != "none"
        self.nodes: dict[str, Node] = {}
        self.sources = self._make_sources()
        self._children: dict[str, dict[str, int]] = {}
        """Manager -> the managers that need its lists, each from a number on."""
        managers = managers_of(case, self.world.catalog)
        chance = random.Random(f"{seed} views") if case.view_changes else rng
        roster = Roster(GROUP, self.world.catalog, managers, case.view_changes, chance)
        for view in roster.views:
            self._launch(roster.launch(view, roster.views))
        if self.merging:
            began = {view: managers[view] for view in roster.views}
            routed = case.rel == "with-actions"
            self.nodes[MERGE] = MergeNode(lambda: merge_for(case, began), routed)
        numbering = numbering_of(case)
        self.nodes[INTEGRATOR] = Integrating(
            self.world, case, numbering, self.operators, rng, roster
        )
        self.warehouse = SimulatedWarehouse(self.views, roster.views, self.operators)
        self._now: dict[str, dict[Any, int]] = {view: {} for view in self.views}
        self.run_ = HistoryRun(self.world, by_view={view: [] for view in self.views})

    def _make_sources(self) -> dict[str, SimulatedSource]:
        catalog, initial = self.world.catalog, self.world.initial
        return {
            name: SimulatedSource(
                name,
                catalog.relations,
                {r: bag for r, bag in initial.items() if r.startswith(f"{name}.")},
                self.operators,
                self.case.visibility,
                self._rng,
            )
            for name in catalog.sources
        }

    def _launch(self, launch: Launch) -> None:
        """Starts a manager and tells its view's parents of it."""
        case, catalog = self.case, self.world.catalog
        place = self.views.index(launch.view)
        spec = ManagedView(launch.view, GROUP, catalog.views[place].tree, launch.number)
        info = MODES[case.mode_of(place)]
        inner: Inner
        if info.asks:
            keys = {name: relation.key for name, relation in catalog.relations.items()}
            options = Options(keys, dict(case.options))
            inner = AskingNode(info, spec, self.operators, options, case.copied)
        else:
            inner = ReplicaNode(spec, self.operators, [])
        for parent, first in launch.parents.items():
            self._children.setdefault(parent, {})[launch.node] = first
        routed = case.rel == "with-actions"
        if not launch.parents and not routed and not case.view_changes:
            self.nodes[launch.node] = inner
            return
        parents = tuple(name for name in relations(spec.tree) if name in self.views)
        views = launch.views if routed else ()
        self.nodes[launch.node] = ViewNode(launch, spec, self.operators, inner, parents, views)

    # The run --------------------------------------------------------------------------------------

    def run(self) -> HistoryRun:
        """The history from its first message to its last."""
        integrator = self.nodes[INTEGRATOR]
        assert isinstance(integrator, Integrating)
        self._send(INTEGRATOR, integrator.start())
        for source, log in self.world.logs.items():
            for transaction in log:
                self.network.send(WORLD, source, transaction)
        self._deliver()
        self._send(INTEGRATOR, self._step(INTEGRATOR, None))
        self._deliver()
        run = self.run_
        integrator = self.nodes[INTEGRATOR]
        assert isinstance(integrator, Integrating)
        run.order = integrator.order
        run.group = self.warehouse.states
        run.last = integrator.last
        run.stuck = self._stuck(run.last)
        return run

    def _deliver(self) -> None:
        """Delivers until nothing is under way."""
        network, sources, nodes, watch = self.network, self.sources, self.nodes, self._watch
        while network or (self.merging and self._submitted()):
            sender, receiver, message = network.next()
            if receiver == WAREHOUSE and self.warehouse.waits(message):
                network.send(sender, receiver, message)
                continue
            if receiver == WAREHOUSE:
                out = self._commit(message)
            elif receiver in sources:
                out = sources[receiver].handle(message, sender)
            elif receiver in nodes:
                out = self._step(receiver, message)
            else:  # a manager that has ended
                continue
            if watch is not None:
                watch(sender, receiver, message)
            self._send(receiver, out)
            if receiver == MERGE and (not self.case.greedy or self._rng.random() < 0.3):
                self._send(MERGE, self._step(MERGE, None))
            elif self.case.view_changes and _ended(nodes.get(receiver)):
                del nodes[receiver]

    def _submitted(self) -> bool:
        """Whether the merge, which hears nothing more, has submitted something that travels."""
        self._send(MERGE, self._step(MERGE, None))
        return bool(self.network)

    def _commit(self, batch: BatchedTransaction) -> Out:
        self.warehouse.apply(batch)
        told = self.case.submission in ("sequential", "dependent")
        return [(MERGE, CommittedMessage(batch.sequence))] if told else []

    def _step(self, name: str, message: Any) -> Out:
        """A machine's step."""
        crash = self.case.faults.crash
        if crash and self._faults.random() < crash:
            self.run_.counters["crashes"] += 1
            return self._crashing(name, message)
        return self.nodes[name].handle(message)

    def _crashing(self, name: str, message: Any) -> Out:
        """The step with a crash before it is durable, or after."""
        node = self.nodes[name]
        if self._faults.random() < 0.5:
            self.nodes[name] = node.reborn(json.dumps(as_json(node.snapshot())))
            return self.nodes[name].handle(message)
        out = node.handle(message)
        self.nodes[name] = node.reborn(json.dumps(as_json(node.snapshot())))
        return out

    def _send(self, sender: str, out: Out) -> None:
        for receiver, message in out:
            if receiver == LAUNCH:
                self._launch(message)
                continue
            if receiver == WAREHOUSE:
                if self.case.submission != "at-once":  # a channel each, so they meet in any order
                    self.network.send(f"{MERGE} {message.sequence}", WAREHOUSE, message)
                    continue
                self.warehouse.apply(message)
                if self._watch is not None:
                    self._watch(sender, WAREHOUSE, message)
                continue
            if receiver == MERGE and isinstance(message, ActionList | Suspend):
                self._hand_down(sender, message)
                if isinstance(message, ActionList) and not self.case.view_changes:
                    self._show(message)
                if not self.merging:
                    if self._watch is not None:
                        self._watch(sender, MERGE, message)
                    continue
            self.network.send(sender, receiver, message)

    def _hand_down(self, sender: str, message: ActionList | Suspend) -> None:
        """What a parent has sent goes to its children too, but for what was before their time."""
        for child, first in self._children.get(sender, {}).items():
            if isinstance(message, Suspend):
                self.network.send(sender, child, message)
            elif message.last >= first:
                bare = message.model_copy(update={"rel": ()}) if message.rel else message
                self.network.send(sender, child, bare)

    def _show(self, sent: ActionList) -> None:
        states = seen_by_list(self._now[sent.view], sent, self.operators)
        self._now[sent.view] = states[-1]
        self.run_.by_view[sent.view] += [(state,) for state in states]

    def _stuck(self, last: int) -> str | None:
        """What still waits when every message has been delivered."""
        counters = self.run_.counters
        counters["queries"] = sum(source.answered for source in self.sources.values())
        for name, node in self.nodes.items():
            inner = node.inner if isinstance(node, ViewNode) else node
            if isinstance(inner, AskingNode):
                counters["asked again"] += inner.asked_again
                counters["answered from copies"] += inner.copies.answered
                if inner.manager.uqs:
                    return f"{name} waits for {len(inner.manager.uqs)} answers"
            if isinstance(node, ViewNode) and node.mediator and node.mediator.umq:
                return f"{name} waits for its parents' lists after {node.mediator.number}"
        merge = self.nodes.get(MERGE)
        if isinstance(merge, MergeNode) and merge.machine.settled < last:
            return f"the merge has come to {merge.machine.settled} of {last}"
        return None


def _ended(node: Node | None) -> bool:
    return isinstance(node, ViewNode) and node.ended


def simulate(case: Case, seed: int, watch: Watch | None = None) -> HistoryRun:
    """One history of a case, not judged yet."""
    return SimulatedPipeline(case, seed, watch).run()
