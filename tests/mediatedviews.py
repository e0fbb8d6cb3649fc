"""Views over views in plain Python: sources, a numbering, and a node for each view (ryco-pyco 3.2).

A node is a mediator with any manager behind it, and for managers that ask, their processor and FIFO
adapter. Channels are FIFO per pair; nothing is delivered by itself: a test says what comes when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from streaming.algebra.bag import Bag, Numbered, evaluate, flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import SourceAnswer, SourceQuery
from streaming.algebra.tree import Relation, Tree, relations
from streaming.durable import as_json
from streaming.messages import ActionList, RelRun, Suspend, Updates
from streaming.simulator.nodes import AskingNode, ReplicaNode
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.modes import MODES, Options
from streaming.viewmanagers.over_views.mediator import Mediator
from tests.askedsources import Change, Sources, view

REPLICA = "replica"
SOURCES = "sources"
"""The sender of updates."""


def trees(sqls: Mapping[str, str], bases: Mapping[str, Relation]) -> dict[str, Tree]:
    """The views' trees; parents come before children."""
    known, found = dict(bases), {}
    for name, sql in sqls.items():
        found[name] = view(sql, known)
        known[name] = Relation(name, found[name].schema)
    return found


class ViewNode:
    """One view: mediator, manager, and what the manager needs."""

    def __init__(
        self, name: str, tree: Tree, mode: str, views: Iterable[str], operators: NumberedBags
    ) -> None:
        self.spec, self.mode, self.operators = ManagedView(name, "g", tree), mode, operators
        self.views = tuple(views)
        self.mediator = self._mediator()
        self.inner: ReplicaNode | AskingNode
        if mode == REPLICA:
            self.inner = ReplicaNode(self.spec, operators, [])
        else:
            mode, _, every = mode.partition(" every ")
            options = Options(settings={"every": int(every)} if every else {})
            self.inner = AskingNode(MODES[mode], self.spec, operators, options)
        self.statements: list[SourceQuery[Numbered]] = []

    def _mediator(self) -> Mediator[Numbered]:
        groups = dict.fromkeys(self.views, "g")
        return Mediator(self.spec, groups, self.operators, asks=self.mode != REPLICA)

    def handle(self, message: Any) -> list[ActionList | Suspend]:
        """One step; returns what is sent to the merge and the children."""
        sent: list[ActionList | Suspend] = []
        inside: list[Any] = [message]
        if not isinstance(message, SourceAnswer):
            inside = self.mediator.handle(message)
        for each in inside:
            if isinstance(each, Suspend):
                sent.append(each)
                continue
            for receiver, found in self.inner.handle(each):
                if receiver == "merge":
                    sent += self.mediator.passed_on(found)
                else:
                    self.statements.append(found)
        return sent

    def crash(self) -> None:
        """Everything again from its snapshot."""
        saved, inner = (
            json.dumps(as_json(self.mediator.snapshot())),
            json.dumps(as_json(self.inner.snapshot())),
        )
        self.mediator = self._mediator()
        self.mediator.restore(json.loads(saved))
        self.inner = self.inner.reborn(inner)


class Views:
    """The sources and all nodes.

    Attributes:
        channels: (sender, receiver) -> what is on its way, in order.
        lists: what each view has sent.
        truth: after each number the bag of every relation and view, by recomputation.
    """

    def __init__(
        self,
        sqls: Mapping[str, str],
        bases: Mapping[str, Relation],
        modes: Mapping[str, str],
        **initial: Any,
    ) -> None:
        self.trees = trees(sqls, bases)
        every = " CROSS JOIN ".join(name for name in bases)
        spec = ManagedView("all", "g", view(f"SELECT 1 AS one FROM {every}", bases))
        rows = {name.replace("__", "."): found for name, found in initial.items()}
        self.sources = Sources(spec, rows)
        self.operators = self.sources.operators
        self.nodes = {
            name: ViewNode(name, tree, modes.get(name, REPLICA), self.trees, self.operators)
            for name, tree in self.trees.items()
        }
        self.channels: dict[tuple[str, str], list[Any]] = {}
        self.lists: dict[str, list[ActionList | Suspend]] = {name: [] for name in self.trees}
        self.truth: list[dict[str, Bag]] = [self._state()]

    def _state(self) -> dict[str, Bag]:
        state: dict[str, Bag] = dict(self.sources.rows)
        for name, tree in self.trees.items():
            state[name] = evaluate(tree, state)
        return state

    def commit(self, *changes: Change, truncated: str | None = None) -> Updates:
        """A transaction; REL is by relation and inherited, idle where nothing remains of it."""
        message = self.sources.commit(*changes, truncated=truncated)
        self.truth.append(self._state())
        touched = set(message.relations) | ({truncated} if truncated else set())
        works = truncated or any(rows.rows for rows in message.relations.values())
        relevant = set(touched)
        for name, tree in self.trees.items():
            if relevant.intersection(relations(tree)):
                relevant.add(name)
        views = tuple(sorted(relevant.intersection(self.trees)))
        run = RelRun(
            first=message.first, last=message.last, views=views, idle=() if works else views
        )
        message = message.model_copy(update={"runs": (run,)})
        self.sources.published[-1] = message
        return message

    def initial(self) -> Updates:
        """Number 0: every relation whole."""
        run = RelRun(first=0, last=0, views=tuple(sorted(self.trees)))
        return self.sources.published[0].model_copy(update={"runs": (run,)})

    def publish(self, message: Updates) -> None:
        """The message is on its way to every view."""
        for name in self.nodes:
            self.channels.setdefault((SOURCES, name), []).append(message)

    def deliver(self, sender: str, receiver: str) -> list[ActionList | Suspend]:
        """The next message of a channel arrives; returns what the receiver sends."""
        message = self.channels[sender, receiver].pop(0)
        return self.took(receiver, self.nodes[receiver].handle(message))

    def took(self, name: str, sent: list[ActionList | Suspend]) -> list[ActionList | Suspend]:
        """What a view sends is on its way to its children."""
        self.lists[name] += sent
        for child, tree in self.trees.items():
            if name in relations(tree):
                self.channels.setdefault((name, child), []).extend(sent)
        return sent

    def ask(self, name: str, place: int = 0) -> tuple[str, list[ActionList | Suspend]]:
        """A statement of a view is answered at once; returns who was asked, and what came of it."""
        node = self.nodes[name]
        statement = node.statements.pop(place)
        asked = node.mediator if statement.source in self.nodes else self.sources
        return statement.source, self.took(name, node.handle(asked.answer(statement)))

    def waiting(self) -> list[tuple[str, str]]:
        """The channels with something on its way."""
        return [pair for pair, messages in self.channels.items() if messages]

    def settle(self) -> None:
        """Deliver and answer everything, in some fixed order."""
        while True:
            if pairs := self.waiting():
                self.deliver(*pairs[0])
            elif asking := [name for name, node in self.nodes.items() if node.statements]:
                self.ask(asking[0])
            else:
                return

    def shown(self, name: str) -> list[tuple[int, int, bool, dict[Any, int]]]:
        """A view's lists: first, last, complete, rows (with their numbers where there are several)."""
        found = []
        for sent in self.lists[name]:
            assert isinstance(sent, ActionList)
            delta = {} if sent.delta is None else self.operators.open(sent.delta)
            apart = sent.complete and sent.first < sent.last
            found.append((sent.first, sent.last, sent.complete, delta if apart else flat(delta)))
        return found
