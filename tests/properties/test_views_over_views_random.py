"""Views over views, three deep, on random histories: every list equals recomputation at its number.

Chains and diamonds of managers that keep and managers that ask, strong ones among the parents. Updates
and the parents' lists arrive interleaved at will, statements are answered late, and nodes are now and
then replaced by copies restored from their snapshots.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from streaming.algebra.bag import Bag, added, flat
from streaming.algebra.source_queries import SourceAnswer
from streaming.messages import ActionList
from tests.askedsources import tables
from tests.mediatedviews import Views
from tests.properties.test_sweep_random import together

BASES = tables(x__r="a b", y__s="b c", z__t="c d")
V1 = "SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b"
CHAIN = {
    "v1": V1,
    "v2": "SELECT v1.a, t.d FROM v1 JOIN z.t t ON v1.c = t.c",
    "v3": "SELECT p.a, q.d, r.b FROM v2 p JOIN v2 q ON p.d = q.a JOIN x.r r ON q.d = r.a",
}
DIAMOND = {
    "v1": V1,
    "v2": "SELECT s.b, t.d FROM y.s s JOIN z.t t ON s.c = t.c",
    "v3": "SELECT v1.a, v2.d FROM v1 JOIN v2 ON v1.c = v2.b",
    "v4": "SELECT v3.a, v1.c FROM v3 JOIN v1 ON v3.a = v1.a JOIN z.t t ON v1.c = t.c",
}
TOTALS = {
    "v1": "SELECT r.a, count(*) AS n FROM x.r r GROUP BY r.a",
    "v2": "SELECT v1.n, s.c FROM v1 JOIN y.s s ON v1.a = s.b",
    "v3": "SELECT v2.c, sum(v2.n) AS total FROM v2 JOIN v1 ON v2.n = v1.n GROUP BY v2.c",
}
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "chain of replicas": (CHAIN, {}),
    "chain, all ask": (CHAIN, {"v1": "sweep", "v2": "compensating", "v3": "sweep"}),
    "chain, strong at the bottom": (CHAIN, {"v1": "recompute"}),
    "chain, strong and asking": (CHAIN, {"v1": "recompute", "v2": "sweep", "v3": "compensating"}),
    "chain, strong in the middle": (CHAIN, {"v2": "recompute"}),
    "diamond of replicas": (DIAMOND, {}),
    "diamond, asking above": (DIAMOND, {"v3": "sweep", "v4": "compensating"}),
    "diamond, strong left": (DIAMOND, {"v1": "recompute", "v4": "sweep"}),
    "diamond, both strong": (DIAMOND, {"v1": "recompute", "v2": "recompute", "v3": "compensating"}),
    "diamond, strong, straddling": (
        DIAMOND,
        {"v1": "recompute every 3", "v2": "recompute every 2"},
    ),
    "totals": (TOTALS, {}),
    "totals, asking between": (TOTALS, {"v2": "sweep"}),
}
HISTORIES = 20
"""Per case; of 12 transactions each, where every period ends."""


class History:
    """One random history."""

    def __init__(self, case: str, rng: random.Random) -> None:
        sqls, modes = CASES[case]
        initial = {
            name.replace(".", "__"): [self.row(rng) for _ in range(rng.randrange(4))]
            for name in BASES
        }
        self.rng, self.modes = rng, modes
        self.views = Views(sqls, BASES, modes, **initial)
        self.answers: list[tuple[str, SourceAnswer[Any]]] = []
        self.published = 0
        self.truncates = rng.random() < 0.3
        self.views.publish(self.views.initial())

    @staticmethod
    def row(rng: random.Random) -> tuple[int, int]:
        return rng.randrange(2), rng.randrange(2)

    def commit(self) -> None:
        rng, rows = self.rng, self.views.sources.rows
        if self.truncates and rng.random() < 0.2:
            self.views.commit(truncated=rng.choice(sorted(rows)))
            return
        taken: dict[Any, int] = {}
        changes = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice(sorted(rows))
            there = [row for row, n in rows[name].items() if n > taken.get((name, row), 0)]
            if there and rng.random() < 0.5:
                row = rng.choice(there)
                taken[name, row] = taken.get((name, row), 0) + 1
                changes.append((name, -1, row))
            else:
                changes.append((name, 1, self.row(rng)))
        self.views.commit(*changes)

    def publish(self) -> None:
        waiting = self.views.sources.published[self.published + 1 :]
        some = waiting[: self.rng.choice((1, 2, 3, 5))]
        self.published += len(some)
        self.views.publish(together(self.views.sources, some))

    def deliver(self) -> None:
        self.views.deliver(*self.rng.choice(self.views.waiting()))

    def compute(self) -> None:
        views = self.views
        name = self.rng.choice([name for name, node in views.nodes.items() if node.statements])
        node = views.nodes[name]
        statement = node.statements.pop(self.rng.randrange(len(node.statements)))
        asked = node.mediator if statement.source in views.nodes else views.sources
        self.answers.append((name, asked.answer(statement)))

    def answer(self) -> None:
        name, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
        self.views.took(name, self.views.nodes[name].handle(answer))

    def run(self, transactions: int) -> None:
        views = self.views
        while True:
            steps: list[Any] = []
            if views.sources.number < transactions:
                steps.append(self.commit)
            if self.published < views.sources.number:
                steps.append(self.publish)
            steps += [self.deliver] * min(len(views.waiting()), 3)
            if any(node.statements for node in views.nodes.values()):
                steps.append(self.compute)
            if self.answers:
                steps.append(self.answer)
            if not steps:
                return
            self.rng.choice(steps)()
            if self.rng.random() < 0.1:
                views.nodes[self.rng.choice(sorted(views.nodes))].crash()

    # Judgement ------------------------------------------------------------------------------------

    def judge(self) -> None:
        for name, node in self.views.nodes.items():
            assert node.mediator.number == self.views.sources.number, f"{name} waits"
            assert not any(node.mediator.rmq.values()) and not node.mediator.umq
            self.judge_view(name)

    def judge_view(self, name: str) -> None:
        """After every number that a list covers by itself, and between lists, the view is right."""
        operators, truth = self.views.operators, self.views.truth
        rows: Bag = {}
        at = -1
        for sent in self.views.lists[name]:
            assert isinstance(sent, ActionList) and sent.first > at
            for number in range(at + 1, sent.first):
                assert rows == truth[number][name], f"{name}: no list for {number}"
            delta = {} if sent.delta is None else operators.open(sent.delta)
            first = sent.first
            for number in range(first, sent.last + 1) if sent.complete else [sent.last]:
                rows = added(rows, flat(operators.between(delta, first, number)))
                assert rows == truth[number][name], f"{name} after {number}"
                first = number + 1
            at = sent.last
        for number in range(at + 1, len(truth)):
            assert rows == truth[number][name], f"{name}: no list for {number}"


@pytest.mark.parametrize("case", CASES)
def test_every_list_is_what_recomputation_gives(case: str) -> None:
    for seed in range(HISTORIES):
        history = History(case, random.Random(f"{case} {seed}"))
        try:
            history.run(transactions=12)
            history.judge()
        except Exception as error:
            raise AssertionError(f"{case}, seed {seed}: {error}") from error
