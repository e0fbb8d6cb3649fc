"""Sweep, query processor and FIFO adapter together, on random histories, against recomputation.

Sources commit, the integrator's messages are delivered late and several at once, statements are
computed and their answers delivered whenever it suits the network, the machines are now and then
replaced by copies restored from their snapshots. At every number the view must be what its SQL gives.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from streaming.algebra.bag import Numbered, added, flat
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery
from streaming.ask.fifo import FifoAdapter
from streaming.ask.processor import QueryProcessor
from streaming.durable import as_json
from streaming.messages import ActionList, SourceLog, Updates
from streaming.viewmanagers.asking.sweep import SweepManager
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import Change, Sources, tables, view

RELATIONS = tables(x__r="a b", y__s="b c", z__t="c d", x__u="d e")
VIEWS = {
    "chain": "SELECT r.a, s.c, t.d FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.c",
    "star": "SELECT s.b, r.a, t.d FROM x.r r JOIN z.t t ON r.a = t.d JOIN y.s s ON r.b = s.b",
    "projected": "SELECT r.a FROM x.r r JOIN y.s s ON r.b = s.b WHERE s.c > 0",
    "self-join": "SELECT p.a, q.b, s.c FROM x.r p JOIN x.r q ON p.b = q.a JOIN y.s s ON q.b = s.b",
    "two at x": "SELECT r.a, u.e FROM x.r r JOIN y.s s ON r.b = s.b JOIN x.u u ON s.c < u.d",
    "product": "SELECT r.a, s.c FROM x.r r CROSS JOIN y.s s",
    "one": "SELECT r.b FROM x.r r WHERE r.a > 0",
}
SPECS = {name: ManagedView("v", "g", view(sql, RELATIONS)) for name, sql in VIEWS.items()}
HISTORIES = 150
"""Per view."""


class History:
    """One random history of one view."""

    def __init__(self, spec: ManagedView, rng: random.Random, window: int) -> None:
        self.rng, self.window = rng, window
        initial = {name: [self.row() for _ in range(rng.randrange(3))] for name in RELATIONS}
        self.sources = Sources(spec, initial)
        self.spec = spec
        self.truncates: list[int] = []
        self.statements: list[SourceQuery[Numbered]] = []
        self.answers: list[SourceAnswer[Numbered]] = []
        self.lists: list[ActionList] = []
        self.again = 0
        self.delivered = 0
        self.machines()

    def machines(self) -> None:
        operators = self.sources.operators
        self.manager = SweepManager(self.spec, operators, window=self.window)
        self.processor = QueryProcessor(self.manager.psj, operators)
        self.adapter = FifoAdapter("v", self.manager.psj, operators)

    def row(self) -> tuple[int, int]:
        return self.rng.randrange(2), self.rng.randrange(2)

    # Steps ----------------------------------------------------------------------------------------

    def commit(self) -> None:
        rng, rows = self.rng, self.sources.rows
        changes: list[Change] = []
        truncated = None
        gone: set[str] = set()
        if rng.random() < 0.06:
            truncated = rng.choice(sorted(rows))
            self.truncates.append(self.sources.number + 1)
            gone.add(truncated)
        taken: dict[tuple[str, Any], int] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            name = rng.choice(sorted(rows))
            present = [
                row
                for row, count in rows[name].items()
                if name not in gone and count > taken.get((name, row), 0)
            ]
            if present and rng.random() < 0.5:
                row = rng.choice(present)
                taken[name, row] = taken.get((name, row), 0) + 1
                changes.append((name, -1, row))
            else:
                changes.append((name, 1, self.row()))
        self.sources.commit(*changes, truncated=truncated)

    def publish(self) -> None:
        waiting = self.sources.published[self.delivered :]
        some = waiting[: 1 if self.delivered == 0 else self.rng.choice((1, 1, 2, 3))]
        self.delivered += len(some)
        self.take(together(self.sources, some))

    def compute(self) -> None:
        statement = self.statements.pop(self.rng.randrange(len(self.statements)))
        self.answers.append(self.sources.answer(statement))

    def deliver(self) -> None:
        self.take(self.answers.pop(self.rng.randrange(len(self.answers))))

    def crash(self) -> None:
        machines = (self.manager, self.processor, self.adapter)
        saved = as_json([machine.snapshot() for machine in machines])
        self.machines()
        for machine, state in zip((self.manager, self.processor, self.adapter), saved, strict=True):
            machine.restore(state)

    def take(self, message: Updates | SourceAnswer[Numbered]) -> None:
        for passed in self.adapter.handle(message):
            if isinstance(passed, SourceQuery):
                self.again += 1
                self.statements.append(passed)
            else:
                self.inside(passed)

    def inside(self, message: Any) -> None:
        queue: list[Any] = [message]
        while queue:
            each = queue.pop(0)
            match each:
                case ActionList():
                    self.lists.append(each)
                case SourceQuery():
                    self.statements += self.adapter.handle(each)  # type: ignore[arg-type]
                case Updates() | Answer():
                    queue += self.manager.handle(each)
                case Query() | SourceAnswer():
                    queue += self.processor.handle(each)

    def run(self, transactions: int) -> None:
        self.publish()
        while True:
            steps = []
            if self.sources.number < transactions:
                steps.append(self.commit)
            if self.delivered < len(self.sources.published):
                steps.append(self.publish)
            if self.statements:
                steps.append(self.compute)
            if self.answers:
                steps.append(self.deliver)
            if not steps:
                return
            self.rng.choice(steps)()
            if self.rng.random() < 0.05:
                self.crash()

    # Judgement ------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Lists tile the numbers; after each number of a complete one the view is what its SQL gives."""
        rows: dict[Any, int] = {}
        covered = -1
        for sent in self.lists:
            assert sent.first == covered + 1
            if self.window == 1:
                assert sent.complete == (sent.first == sent.last)
            lost = any(sent.first < n <= sent.last for n in self.truncates)
            assert sent.complete or lost, "only a truncate makes numbers share a list"
            covered = sent.last
            ops = self.sources.operators
            delta = {} if sent.delta is None else ops.open(sent.delta)
            for number in range(sent.first, sent.last + 1) if sent.complete else (sent.last,):
                rows = added(
                    rows, flat(ops.between(delta, number, number) if sent.complete else delta)
                )
                assert rows == self.sources.states[number], f"after number {number}"
        assert covered == self.sources.number
        assert not self.manager.uqs and not self.processor.under_way and not self.adapter.out


def together(sources: Sources, messages: list[Updates]) -> Updates:
    """The messages as one."""
    if len(messages) == 1:
        return messages[0]
    ops = sources.operators
    relations: dict[str, Numbered] = {}
    logs: dict[str, list[tuple[int, str, int]]] = {}
    for message in messages:
        for name, rows in message.relations.items():
            relations[name] = ops.plus(relations.get(name, {}), ops.open(rows))
        for source, log in message.logs.items():
            entries = zip(log.numbers, log.transactions, log.positions, strict=True)
            logs.setdefault(source, []).extend(entries)
    return Updates(
        group=messages[0].group,
        first=messages[0].first,
        last=messages[-1].last,
        runs=tuple(run for message in messages for run in message.runs),
        relations={name: ops.pack(rows) for name, rows in relations.items()},
        controls=tuple(control for message in messages for control in message.controls),
        logs={source: SourceLog(**columns(entries)) for source, entries in logs.items()},
        delivered=messages[-1].delivered,
    )


def columns(entries: list[tuple[int, str, int]]) -> dict[str, Any]:
    numbers, transactions, positions = zip(*entries, strict=True)
    return {"numbers": numbers, "transactions": transactions, "positions": positions}


def replay(name: str, seed: int, window: int) -> History:
    history = History(SPECS[name], random.Random(f"{name} {seed}"), window)
    history.run(transactions=6)
    return history


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("name", VIEWS)
def test_sweep_is_complete_on_random_histories(name: str, window: int) -> None:
    again = skipped = 0
    for seed in range(HISTORIES):
        try:
            history = replay(name, seed, window)
            history.judge()
        except Exception as error:
            raise AssertionError(f"replay({name!r}, seed={seed}, window={window})") from error
        again += history.again
        skipped += any(not sent.complete for sent in history.lists)
    asks = name != "one"
    assert (again > 0, skipped > 0) == (asks, asks), "the histories are the hard ones"
