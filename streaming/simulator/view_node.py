"""A view's manager with what stands around it: mediator, REL that rides along, its beginning and end.

A view over views has its mediator before the manager (ryco-pyco 3.2), and the manager asks a parent's
rows of it. With `rel: with-actions` what the manager sends passes `Forwarding` (painting-mvc 3.2). A view
that joins a running group announces itself before its first list, and a manager ends when it hears that
its view has left.
"""

from __future__ import annotations

import json
from typing import Any

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import SourceAnswer, SourceQuery
from streaming.messages import ActionList, Suspend, Updates, ViewChange
from streaming.simulator.network import MERGE, Out
from streaming.simulator.nodes import AskingNode, ReplicaNode
from streaming.simulator.roster import Launch
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.forwarding import Forwarding
from streaming.viewmanagers.over_views.mediator import Mediator

Inner = ReplicaNode | AskingNode


class ViewNode:
    """One manager's node.

    Args:
        inner: the manager, with what it needs to ask.
        parents: the views that the view scans.
        views: the group's views when the manager begins, those that came first first; () where the
            integrator tells the merge of REL.

    Attributes:
        ended: the view has left; nothing is sent to the node any more.
    """

    def __init__(
        self,
        launch: Launch,
        spec: ManagedView,
        operators: NumberedBags,
        inner: Inner,
        parents: tuple[str, ...],
        views: tuple[str, ...],
    ) -> None:
        self._made = launch, spec, operators
        self._parents, self._views = parents, views
        self.name, self.spec, self.inner = launch.node, spec, inner
        self._unsaid = launch.said
        self.ended = False
        self.mediator: Mediator[Numbered] | None = None
        self.forwarding: Forwarding | None = None
        if parents:
            groups = dict.fromkeys(parents, spec.group)
            asks = isinstance(inner, AskingNode)
            self.mediator = Mediator(spec, groups, operators, asks)
        if views:
            self.forwarding = Forwarding(spec.view, views)

    def handle(self, message: Any) -> Out:
        """One step."""
        out: Out = []
        if self._unsaid is not None:
            out.append((MERGE, self._unsaid))
            self._unsaid = None
        inside: list[Any] = [message]
        match message:
            case ViewChange():
                self.ended = True
                return out
            case SourceQuery():
                assert self.mediator is not None
                return [*out, (self.name, self.mediator.answer(message))]
            case Updates():
                if self.forwarding is not None:
                    out += [(MERGE, each) for each in self.forwarding.heard(message)]
                    if self._leaves(message):
                        self.ended = True
                        return out
        if self.mediator is not None and not isinstance(message, SourceAnswer):
            inside = list(self.mediator.handle(message))
        for each in inside:
            if isinstance(each, Suspend):
                out += self._sent(each)
                continue
            for receiver, found in self.inner.handle(each):
                if receiver == MERGE:
                    out += self._passed_on(found)
                else:
                    out.append((self.name if receiver in self._parents else receiver, found))
        return out

    def _leaves(self, updates: Updates) -> bool:
        return any(
            isinstance(one, ViewChange) and (one.view, one.change) == (self.spec.view, "drop")
            for one in updates.rel
        )

    def _passed_on(self, found: ActionList) -> Out:
        """A list of the manager as the merge and the children hear it."""
        passed = [found] if self.mediator is None else self.mediator.passed_on(found)
        return [pair for each in passed for pair in self._sent(each)]

    def _sent(self, message: ActionList | Suspend) -> Out:
        if self.forwarding is None:
            return [(MERGE, message)]
        return [(MERGE, each) for each in self.forwarding.sent(message)]

    def snapshot(self) -> Any:
        return {
            "inner": self.inner.snapshot(),
            "said": self._unsaid is None,
            "ended": self.ended,
            "mediator": self.mediator and self.mediator.snapshot(),
            "forwarding": self.forwarding and self.forwarding.snapshot(),
        }

    def reborn(self, saved: str) -> ViewNode:
        state = json.loads(saved)
        inner = self.inner.reborn(json.dumps(state["inner"]))
        node = ViewNode(*self._made, inner, self._parents, self._views)
        node.ended = state["ended"]
        if state["said"]:
            node._unsaid = None
        if node.mediator is not None:
            node.mediator.restore(state["mediator"])
        if node.forwarding is not None:
            node.forwarding.restore(state["forwarding"])
        return node
