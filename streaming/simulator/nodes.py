"""The machines of a simulated pipeline behind one face: a message in, addressed messages out.

A node's state is what its `snapshot` says; `reborn` makes a new node from that alone, after a round
trip through JSON, as a restarted process does. Relations in a snapshot are references; what they refer
to (a Parquet file in a real pipeline) outlives a crash.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import Query, SourceAnswer, SourceQuery
from streaming.ask.copies import CopiedCodec, Copies
from streaming.ask.fifo import FifoAdapter
from streaming.ask.processor import QueryProcessor
from streaming.ask.state_codec import SeenCodec
from streaming.errors import ProtocolError
from streaming.merge.batching import BatchedTransaction
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.machine import Event, MergeMachine
from streaming.merge.routing import RoutedMerge
from streaming.messages import ActionList, Updates
from streaming.simulator.bag_evaluator import BagEvaluator, codec
from streaming.simulator.lattice import Shown
from streaming.simulator.network import MERGE, WAREHOUSE, Out
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.modes import ModeInfo, Options
from streaming.viewmanagers.replica import ReplicaManager


class Node(Protocol):
    """A machine in the pipeline."""

    def handle(self, message: Any) -> Out:
        """One step."""

    def snapshot(self) -> Any:
        """The state as JSON values."""

    def reborn(self, saved: str) -> Node:
        """A new node in the state that the JSON text holds."""


class ReplicaNode:
    """A replica manager; its durable form is the updates since its beginning."""

    def __init__(self, spec: ManagedView, operators: NumberedBags, topic: list[Updates]) -> None:
        self.spec, self._operators, self._topic = spec, operators, topic
        self.manager = ReplicaManager(spec, BagEvaluator(spec.tree), codec(operators))

    def handle(self, message: Updates) -> Out:
        found = self.manager.handle(message)
        self.manager.advance()
        if not self._topic or self._topic[-1].last < message.last:
            self._topic.append(message)
        return [] if found is None else [(MERGE, found)]

    def snapshot(self) -> Any:
        return self.manager.snapshot()

    def reborn(self, saved: str) -> ReplicaNode:
        number = json.loads(saved)["number"]
        node = ReplicaNode(self.spec, self._operators, self._topic)
        tail = [updates for updates in self._topic if updates.last <= number]
        node.manager.restore(None, tail, _no_files)
        return node


def _no_files(name: str) -> Any:
    raise AssertionError(f"no checkpoint was written: {name}")


class AskingNode:
    """A manager that asks, its query processor, and the adapter between them and the sources.

    They are one process (DESIGN 4): what they say to each other needs no channel.

    Args:
        copied: relations that the process keeps a copy of (strobe-family 9).
    """

    def __init__(
        self,
        info: ModeInfo,
        spec: ManagedView,
        operators: NumberedBags,
        options: Options,
        copied: tuple[str, ...] = (),
    ) -> None:
        self.info, self.spec, self._operators, self._options = info, spec, operators, options
        self._copied = copied
        self.manager = info.make(spec, operators, options)
        self.copies: Copies[Numbered] = Copies(self.manager.psj, operators, copied)
        self.processor: QueryProcessor[Numbered] = QueryProcessor(
            self.manager.psj, operators, exact=info.exact, states=CopiedCodec(SeenCodec())
        )
        self.adapter: FifoAdapter[Numbered] = FifoAdapter(
            spec.view,
            self.manager.psj,
            operators,
            exact=info.exact,
        )
        self.asked_again = 0

    def handle(self, message: Updates | SourceAnswer[Numbered]) -> Out:
        out: Out = []
        for found in self.adapter.handle(message):
            if isinstance(found, SourceQuery):
                self.asked_again += 1
                out.append((found.source, found))
            else:
                self._inside(found, out)
        return out

    def _inside(self, message: Updates | SourceAnswer[Numbered], out: Out) -> None:
        """What the manager and the processor make of a message that the adapter let pass."""
        queue: deque[Any] = deque((message,))
        while queue:
            each = queue.popleft()
            match each:
                case ActionList():
                    out.append((MERGE, each))
                case SourceQuery() if (answer := self.copies.answer(each)) is not None:
                    queue.append(answer)
                case SourceQuery():
                    out += [(each.source, passed) for passed in self.adapter.handle(each)]
                case Query() | SourceAnswer():
                    queue += self.processor.handle(each)
                case _:
                    if isinstance(each, Updates):
                        self.copies.add(each)
                    queue += self.manager.handle(each)

    def snapshot(self) -> Any:
        return {
            "manager": self.manager.snapshot(),
            "processor": self.processor.snapshot(),
            "adapter": self.adapter.snapshot(),
            "copies": self.copies.snapshot(),
            "asked_again": self.asked_again,
        }

    def reborn(self, saved: str) -> AskingNode:
        node = AskingNode(self.info, self.spec, self._operators, self._options, self._copied)
        state = json.loads(saved)
        node.manager.restore(state["manager"])
        node.processor.restore(state["processor"])
        node.adapter.restore(state["adapter"])
        node.copies.restore(state["copies"])
        node.asked_again = state["asked_again"]
        return node


Merge = MergeMachine | BlockMerge


class CommittedMessage(NamedTuple):
    """The warehouse has committed a batched transaction."""

    sequence: int


class MergeNode:
    """The merge of the group. A message paints; None is a trigger: what is ready is submitted.

    Args:
        routed: it hears REL from the managers.
    """

    def __init__(self, make: Callable[[], Merge], routed: bool = False) -> None:
        self._make, self._routed = make, routed
        self.machine = make()
        self._entry = RoutedMerge(self.machine) if routed else self.machine

    def handle(self, message: Event | CommittedMessage | None) -> Out:
        if isinstance(message, CommittedMessage):
            self.machine.committed(message.sequence)
            return []
        if message is not None:
            self._entry.handle(message)
            return []
        out: Out = []
        while (batch := self.machine.take_batch()) is not None:
            out.append((WAREHOUSE, batch))
        return out

    def snapshot(self) -> Any:
        return self._entry.snapshot()

    def reborn(self, saved: str) -> MergeNode:
        node = MergeNode(self._make, self._routed)
        node._entry.restore(json.loads(saved))
        return node


class SimulatedWarehouse:
    """Applies batched transactions; remembers every state that became visible.

    A transaction commits after those that it says it depends on. Visible is what has the initial state in
    it: a number whose REL is empty may be committed before number 0 is.

    Args:
        views: all that there can be.
        began: those with which it begins; the others are None until they join.
    """

    def __init__(
        self, views: tuple[str, ...], began: Collection[str], operators: NumberedBags
    ) -> None:
        self.views, self._operators = views, operators
        self.states: list[Shown] = []
        self.frontiers: list[int] = []
        self._committed: set[int] = set()
        self._begun = False
        self._now: Mapping[str, dict[Any, int] | None] = {
            view: {} if view in began else None for view in views
        }

    def waits(self, batch: BatchedTransaction) -> bool:
        """Whether something that it depends on has not committed."""
        return not self._committed.issuperset(batch.depends_on)

    def apply(self, batch: BatchedTransaction) -> None:
        """One commit for all views."""
        self._committed.add(batch.sequence)
        now = dict(self._now)
        for view, _ in batch.dropped:
            now[view] = None
        for view, _ in batch.added:
            now[view] = {}
        for part in batch.parts:
            delta = self._operators.open(batch.delta(part.list_id))
            before = now[part.view]
            if before is None:
                raise ProtocolError("warehouse", batch, f"{part.view} is not in the group")
            now[part.view] = applied(before, delta, part.first, part.last)
        self._now = now
        self._begun = self._begun or any(first == 0 for first, _ in batch.ranges)
        if not self._begun:
            return
        self.states.append(tuple([now[view] for view in self.views]))
        self.frontiers.append(batch.frontier)


def applied(
    bag: dict[Any, int], delta: Numbered, first: int | None = None, last: int | None = None
) -> dict[Any, int]:
    """The bag with the rows of the numbers [first..last] added."""
    after = dict(bag)
    for (number, row), count in delta.items():
        if first is None or last is None or first <= number <= last:
            total = after.pop(row, 0) + count
            if total:
                after[row] = total
    return after


def seen_by_list(bag: dict[Any, int], sent: ActionList, operators: NumberedBags) -> list[Any]:
    """The states a view passes through when a list is applied to it alone, at least one."""
    if sent.delta is None:
        return [bag]
    delta = operators.open(sent.delta)
    if not sent.complete:
        return [applied(bag, delta)]
    states = []
    for number in sorted({number for number, _ in delta}) or [sent.last]:
        bag = applied(bag, delta, number, number)
        states.append(bag)
    return states
