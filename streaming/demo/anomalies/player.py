"""One view manager over live databases, one message at a time.

The manager, its query processor and the sources' answers are the service's own; only the channels are
a script's, which says when a statement is evaluated and when its answer arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.algebra.bag import Bag, flat
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery
from streaming.algebra.tree import Tree
from streaming.ask.fifo import FifoAdapter
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.ask.postgres.pg_state import PgStateCodec
from streaming.ask.processor import QueryProcessor
from streaming.demo.anomalies.databases_played import Databases
from streaming.demo.anomalies.shown import Shown, bag_text, row_text
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.sweep import SweepManager
from streaming.viewmanagers.base import ManagedView

FEW = 1_000
"""Rows; a scenario has fewer."""
NOWHERE = Path("/nowhere")
Keys = Mapping[str, tuple[int, ...]]
Make = Callable[[ManagedView, DuckOperators, Keys], Any]
"""A manager from its view, its operators and the relations' keys."""


def operators() -> DuckOperators:
    """Of a manager whose rows all travel inside their messages."""
    return DuckOperators(packed, lambda rows: packing.unpack(rows, NOWHERE))


def packed(table: pa.Table) -> Rows:
    """Rows inside their message."""
    return packing.pack(table, _unstaged)


def _unstaged(content: bytes) -> str:
    raise ValueError(f"{len(content)} bytes do not travel inside a message")


class Player:
    """One view manager.

    Attributes:
        mv: the view when its lists are applied as they come.
        lists: those it has sent.
    """

    def __init__(
        self,
        name: str,
        tree: Tree,
        make: Make,
        databases: Databases,
        history: list[str],
        exact: bool = False,
    ) -> None:
        self.name, self.history = name, history
        self.spec = ManagedView(name, "g", tree)
        self.operators = operators()
        keys = {relation: one.key for relation, one in databases.relations.items()}
        self.manager = make(self.spec, self.operators, keys)
        psj, codec = self.manager.psj, PgStateCodec()
        self.processor: QueryProcessor[Signed] = QueryProcessor(
            psj, self.operators, exact=exact, states=codec
        )
        self.adapter: FifoAdapter[Signed] | None = None
        if exact:
            self.adapter = FifoAdapter(name, psj, self.operators, exact=True, states=codec)
        self.sources = {
            source: PostgresSource(source, databases.dsns[source], found, self.operators)
            for source, found in databases.captured.items()
        }
        self.statements: list[SourceQuery[Signed]] = []
        self.answers: deque[SourceAnswer[Signed]] = deque()
        self.lists: list[ActionList] = []
        self.mv: Bag = {}
        self.shown: list[Shown] = []
        """The view after each list."""

    def deliver(self, message: Updates | SourceAnswer[Signed]) -> None:
        """One message, and what the manager and its processor make of it."""
        queue: deque[Any] = deque(self._through(message))
        while queue:
            match each := queue.popleft():
                case ActionList():
                    self._sent(each)
                case Updates() | Answer():
                    queue += self.manager.handle(each)
                case Query() | SourceAnswer():
                    for made in self.processor.handle(each):
                        if isinstance(made, Answer):
                            queue.appendleft(made)
                        else:
                            queue += self._through(made)
                case SourceQuery():
                    known = [rows for part in each.parts for rows in part.inputs.values()]
                    self._note(f"Q {self._step(each)} -> {each.source} {self._text(*known)}")
                    self.statements.append(each)

    def _through(self, message: Any) -> Sequence[Any]:
        """The adapter, where there is one: what it holds comes later."""
        return (message,) if self.adapter is None else self.adapter.handle(message)

    def evaluate(self, source: str) -> bool:
        """The source evaluates the oldest statement it has of this manager; False without one."""
        found = next((one for one in self.statements if one.source == source), None)
        if found is None:
            return False
        self.statements.remove(found)
        answer = self.sources[source].answer(found)
        self.answers.append(answer)
        self._note(f"A {self._step(found)} @{source} {self._text(*answer.rows)} (under way)")
        return True

    def take_answer(self) -> bool:
        """The oldest answer arrives; False without one."""
        if not self.answers:
            return False
        answer = self.answers.popleft()
        self._note(f"A {self._step(answer)} -> {self.name}")
        self.deliver(answer)
        return True

    @property
    def held(self) -> list[str]:
        """The sources of which the adapter holds an answer."""
        out = self.adapter.out.values() if self.adapter is not None else ()
        return sorted({one.query.source for one in out if one.answer is not None})

    def rows(self, message: ActionList) -> dict[Any, int]:
        """A list's rows, whatever their numbers."""
        if message.delta is None:
            return {}
        return flat(self.operators.open(message.delta).bag(FEW) or {})

    def _sent(self, message: ActionList) -> None:
        self.lists.append(message)
        delta = self.rows(message)
        self.mv = added(self.mv, delta)
        self.shown.append((self.mv,))
        signs = " ".join(
            f"{'+' if n > 0 else '-'}{'' if abs(n) == 1 else abs(n)}{row_text(row)}"
            for row, n in sorted(delta.items())
        )
        one = "" if message.complete else "~"
        if message.last > 0:
            self._note(f"AL {self.name}[{message.first}..{message.last}]{one} {{{signs}}}")
            self._note(f"MV {self.name}={bag_text(self.mv)}")

    def _note(self, line: str) -> None:
        self.history.append(line.rstrip())

    def _step(self, message: SourceQuery[Signed] | SourceAnswer[Signed]) -> str:
        return f"{self.name}{message.id}.{message.step}"

    def _text(self, *values: Signed) -> str:
        return " ".join(bag_text(flat(value.bag(FEW) or {})) for value in values)

    def close(self) -> None:
        for source in self.sources.values():
            source.close()
        self.operators.db.close()


def added(state: Bag, delta: Mapping[Any, int]) -> Bag:
    """The bag with the rows of a list; what is below nothing stays, to be seen."""
    now = dict(state)
    for row, count in delta.items():
        total = now.pop(row, 0) + count
        if total:
            now[row] = total
    return now


def sweep(spec: ManagedView, ops: DuckOperators, _: Keys) -> SweepManager[Signed]:
    """SWEEP as published."""
    return SweepManager(spec, ops)
