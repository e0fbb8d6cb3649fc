"""Histories in which every machine has a twin that is restarted from its snapshot after every message.

The twin must send what the machine sends and come to its state. Between two messages it hears old ones
again, or what another manager of its view heard; a message that it refuses has changed nothing.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.durable import as_json
from streaming.errors import FrescoError
from streaming.isolated.isolated_manager import Isolated
from streaming.messages import Rows
from streaming.simulator import isolated_histories, world
from streaming.simulator.case import Case
from streaming.simulator.integrator_node import Integrating
from streaming.simulator.isolated_histories import Sessions
from streaming.simulator.network import Out
from streaming.simulator.nodes import AskingNode, MergeNode, Node, ReplicaNode
from streaming.simulator.view_node import ViewNode
from streaming.simulator.world import SimulatedPipeline


class ByContent(NumberedBags):
    """Equal rows have one reference, so messages and snapshots with equal rows are equal."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[frozenset[Any], Rows] = {}

    def pack(self, value: Numbered) -> Rows:
        key = frozenset(value.items())
        if key not in self._known:
            self._known[key] = super().pack(value)
        return self._known[key]


def written(state: Any) -> str:
    """A snapshot as text; in which order an object has its members says nothing."""
    return json.dumps(as_json(state), sort_keys=True)


def restarted(node: Node) -> Node:
    """The node that a restart makes of it."""
    return node.reborn(json.dumps(as_json(node.snapshot())))


class Twins(SimulatedPipeline):
    """A history of a case whose machines all have a twin.

    Attributes:
        compared: messages that a machine and its twin have handled.
        refused: per kind of machine, strange messages that it has refused.
    """

    def __init__(self, case: Case, seed: int) -> None:
        self._made = world.NumberedBags
        world.NumberedBags = ByContent  # type: ignore[misc]
        try:
            super().__init__(case, seed)
        finally:
            world.NumberedBags = self._made  # type: ignore[misc]
        self.twins: dict[str, Node] = {}
        self.chance = random.Random(f"{seed} twins")
        self.heard: dict[tuple[str, str], list[Any]] = {}
        self.compared = 0
        self.refused: Counter[str] = Counter()

    def _step(self, name: str, message: Any) -> Out:
        node = self.nodes[name]
        twin = self.twins.get(name)
        if twin is None:
            twin = restarted(node)
            self._listen(node)
        before = self._draws(node)
        out = node.handle(message)
        after = self._draws(node)
        for draws, state in zip((self._rng, self._roster_draws(node)), before, strict=True):
            draws.setstate(state)
        assert twin.handle(message) == out, f"{name} after a restart, {message}"
        assert self._draws(node) == after
        saved = written(node.snapshot())
        assert written(twin.snapshot()) == saved, f"{name} after a restart, {message}"
        self.compared += 1
        twin = restarted(node)
        assert written(twin.snapshot()) == saved, f"{name} restored"
        self.twins[name] = self._annoyed(node, twin)
        for draws, state in zip((self._rng, self._roster_draws(node)), after, strict=True):
            draws.setstate(state)
        return out

    def _roster_draws(self, node: Node) -> random.Random:
        roster = getattr(node, "roster", None)
        return self._rng if roster is None else roster.rng

    def _draws(self, node: Node) -> tuple[Any, Any]:
        return self._rng.getstate(), self._roster_draws(node).getstate()

    def _listen(self, node: Node) -> None:
        """Remembers what each of a node's machines hears."""
        for role, machine in machines_of(node).items():
            messages = self.heard.setdefault((role, node_view(node)), [])
            machine.handle = _heard(machine.handle, messages)

    def _annoyed(self, node: Node, twin: Node) -> Node:
        """A twin whose machines have heard what their kind hears, of others or at another time."""
        for role in machines_of(twin):
            messages = self.heard.get((role, node_view(node)))
            if not messages:
                continue
            machine, message = machines_of(twin)[role], self.chance.choice(messages)
            before = written(machine.snapshot())
            try:
                machine.handle(message)
            except FrescoError:
                self.refused[role] += 1
                assert written(machine.snapshot()) == before, f"refused, and yet taken: {message}"
            except Exception as error:
                raise AssertionError(f"{role} breaks at {message}") from error
            else:
                twin = restarted(node)
        return twin


def machines_of(node: Node) -> dict[str, Any]:
    """A node's machines by what they are; the simulated integrator is no machine itself."""
    match node:
        case ViewNode():
            beside = {"mediator": node.mediator}
            found = {role: one for role, one in beside.items() if one is not None}
            return {**found, **machines_of(node.inner)}
        case AskingNode():
            manager = {type(node.manager).__name__: node.manager}
            return {**manager, "processor": node.processor, "adapter": node.adapter}
        case ReplicaNode():
            return {"replica": node.manager}
        case MergeNode():
            return {type(node._entry).__name__: node._entry}
    return {}


def node_view(node: Node) -> str:
    """The view of a manager's node, "" of another's."""
    return "" if isinstance(node, MergeNode | Integrating) else node.spec.view  # type: ignore[attr-defined]


def _heard(handle: Callable[[Any], Any], messages: list[Any]) -> Callable[[Any], Any]:
    def listening(message: Any) -> Any:
        messages.append(message)
        return handle(message)

    return listening


class SessionTwins(Sessions):
    """The same for `isolated`, whose machine hears messages lost, repeated and out of order anyway."""

    def __init__(self, case: Case, seed: int) -> None:
        made = isolated_histories.NumberedBags
        isolated_histories.NumberedBags = ByContent  # type: ignore[misc]
        try:
            super().__init__(case, seed)
        finally:
            isolated_histories.NumberedBags = made  # type: ignore[misc]
        self.twin = self._again()
        self.compared = 0

    def _again(self) -> Isolated[Numbered]:
        fresh = Isolated(isolated_histories.GROUP, self.trees, self.operators)
        fresh.restore(as_json(self.machine.snapshot()))
        assert written(fresh.snapshot()) == written(self.machine.snapshot())
        return fresh

    def _to_machine(self, message: Any) -> None:
        sent = self.machine.handle(message)
        assert self.twin.handle(message) == sent
        assert written(self.twin.snapshot()) == written(self.machine.snapshot())
        self.twin = self._again()
        self.compared += 1
        self._send(sent)

    def _send(self, sent: list[Any]) -> None:
        super()._send(sent)
        if hasattr(self, "twin"):
            self.twin = self._again()
