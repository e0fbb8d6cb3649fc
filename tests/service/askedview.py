"""A view manager that asks a real PostgreSQL, with its processor and its adapter, in one thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery
from streaming.ask.fifo import FifoAdapter
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.ask.postgres.pg_state import PgState, PgStateCodec
from streaming.ask.processor import QueryProcessor
from streaming.ask.splitting import paced
from streaming.engines.duck.duck_mirror import DuckMirror
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.messages import ActionList, Updates
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.compensating import CompensatingManager
from streaming.viewmanagers.asking.strobe import Strobe
from streaming.viewmanagers.asking.sweep import SweepManager
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.modes import WINDOW

MODES = {
    "compensating": CompensatingManager,
    "sweep": SweepManager,
    "c_tstrobe": CStrobe,
    "t_strobe": Strobe,
}
KEYED = ("c_tstrobe", "t_strobe")


@dataclass
class AskedView:
    """One view under one mode.

    Attributes:
        lists: the action lists sent, in order.
        spent: seconds by stage.
        counts: how often each happened.
    """

    mode: str
    spec: ManagedView
    source: PostgresSource
    operators: DuckOperators
    relations: dict[str, Any]
    lists: list[ActionList] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    backlog: list[Updates] = field(default_factory=list)
    pinned: PgState | None = None

    def __post_init__(self) -> None:
        psj, ops = psj_of(self.spec.tree), self.operators
        exact = self.mode == "compensating"
        more: dict[str, Any] = {"mirror": DuckMirror(ops, psj.schema)}
        if not exact:
            more["window"] = WINDOW
        if self.mode in KEYED:
            more["keys"] = {name: relation.key for name, relation in self.relations.items()}
        self.manager: Any = MODES[self.mode](self.spec, ops, **more)
        codec = PgStateCodec()
        self.processor: QueryProcessor[Signed] = QueryProcessor(psj, ops, exact=exact, states=codec)
        self.adapter: FifoAdapter[Signed] = FifoAdapter(
            self.spec.view, psj, ops, exact=exact, states=codec
        )

    def deliver(self, updates: Updates) -> None:
        """One message, and all that follows from it."""
        messages: deque[Any] = deque(self._timed("adapter", self.adapter.handle, updates))
        self._work(messages)

    def deliver_pinned(self, updates: Updates) -> None:
        """The message as far as the pinned state has seen it; then the next state is pinned.

        A manager that compensates exactly gets messages whole, whatever the state has seen.
        """
        if self.mode == "compensating":
            self.deliver(updates)
            self.source.pin()
            return
        self.backlog.append(updates)
        if self.pinned is not None:
            messages, self.backlog = self.backlog, []
            for message in messages:
                reached = message.delivered[self.source.name] >= self.pinned.upto
                states = {self.source.name: self.pinned} if reached else {}
                pieces, later = paced(message, states)
                for piece in pieces:
                    self.deliver(piece)
                if later is not None:
                    self.backlog.append(later)
        self.pinned = self.source.pin()

    def release(self) -> None:
        """Back to states of the moment; what waited is delivered."""
        self.source.release()
        self.pinned, messages, self.backlog = None, self.backlog, []
        for message in messages:
            self.deliver(message)

    def _work(self, messages: deque[Any]) -> None:
        while messages:
            message = messages.popleft()
            match message:
                case Updates() | Answer():
                    for one in self._timed("manager", self.manager.handle, message):
                        if isinstance(one, ActionList):
                            self.lists.append(one)
                        else:
                            messages.append(one)
                case Query():
                    self._count("queries")
                    self._first(messages, self._timed("processor", self.processor.handle, message))
                case SourceQuery():
                    self._count("statements")
                    answer = self._timed("source", self.source.answer, message)
                    passed = self._timed("adapter", self.adapter.handle, answer)
                    self._count("held", not passed)
                    self._count("again", any(isinstance(p, SourceQuery) for p in passed))
                    messages += passed
                case SourceAnswer():
                    self._first(messages, self._timed("processor", self.processor.handle, message))

    def _first(
        self, messages: deque[Any], made: list[SourceQuery[Signed] | Answer[Signed]]
    ) -> None:
        """An answer is the manager's before the updates that stand after it; statements can wait."""
        for one in made:
            if isinstance(one, SourceQuery):
                messages.extend(self.adapter.handle(one))
            else:
                messages.appendleft(one)

    def restart(self) -> None:
        """Everything anew from its snapshots, as after a crash."""
        saved = [m.snapshot() for m in (self.manager, self.processor, self.adapter)]
        self.__post_init__()
        machines: Sequence[Any] = (self.manager, self.processor, self.adapter)
        for machine, one in zip(machines, saved, strict=True):
            machine.restore(one)

    @property
    def waits(self) -> bool:
        """Whether an answer is held."""
        return any(out.answer is not None for out in self.adapter.out.values())

    def _timed(self, stage: str, work: Any, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return work(*args)
        finally:
            self.spent[stage] = self.spent.get(stage, 0) + time.perf_counter() - start

    def _count(self, what: str, happened: bool = True) -> None:
        self.counts[what] = self.counts.get(what, 0) + happened
