"""Sources that are asked: relations in plain Python, a log, answers at the state of the moment.

`Sources` commits transactions, tells what the integrator would publish of them, and answers
statements. Nothing is delivered by itself: a test says in which order things arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streaming.algebra.bag import Bag, Numbered, bag, evaluate, flat, numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import source_of
from streaming.algebra.source_queries import Seen, SourceAnswer, SourceQuery
from streaming.algebra.tree import Relation, Tree, relations
from streaming.messages import Control, RelRun, SourceLog, Updates
from streaming.scalars.expression import Column
from streaming.sql.parse import parse
from streaming.viewmanagers.base import ManagedView

Change = tuple[str, int, tuple[Any, ...]]
"""A relation, +1 or -1, and a row."""


def tables(**columns: str) -> dict[str, Relation]:
    """`x__r1="a b"` is relation x.r1 with the bigint columns a and b, the first its key."""
    named = {name.replace("__", "."): text.split() for name, text in columns.items()}
    return {
        name: Relation(name, tuple(Column(c, "bigint") for c in found), (0,))
        for name, found in named.items()
    }


def view(sql: str, known: Mapping[str, Relation]) -> Tree:
    return parse(sql, known)


class Sources:
    """All sources of a test, and the integrator's numbering of what they do."""

    def __init__(self, spec: ManagedView, initial: Mapping[str, Iterable[tuple[Any, ...]]]) -> None:
        self.spec = spec
        self.operators = NumberedBags()
        used = relations(spec.tree)
        self.rows: dict[str, Bag] = {name: bag(initial.get(name, ())) for name in used}
        self.positions = {source_of(name): 0 for name in self.rows}
        self.number = 0
        self.published = [self._message({n: numbered(r) for n, r in self.rows.items()}, {}, ())]
        self.states: list[Bag] = [self.contents()]
        """The view's true contents after every number."""

    def contents(self) -> Bag:
        return evaluate(self.spec.tree, self.rows)

    def commit(self, *changes: Change, truncated: str | None = None) -> Updates:
        """One transaction; a truncate comes before its other changes."""
        self.number += 1
        rows: dict[str, Numbered] = {}
        if truncated is not None:
            self.rows[truncated] = {}
        touched = {name for name, _, _ in changes} | ({truncated} if truncated else set())
        for name, sign, row in changes:
            one = {(self.number, row): sign}
            rows[name] = self.operators.plus(rows.get(name, {}), one)
            self.rows[name] = flat(
                self.operators.plus(numbered(self.rows[name]), numbered({row: sign}))
            )
        controls: tuple[Control, ...] = ()
        if truncated is not None:
            controls = (Control(number=self.number, relation=truncated, kind="truncate"),)
        logs = {}
        for source in sorted({source_of(name) for name in touched}):
            self.positions[source] += 1
            position = self.positions[source]
            logs[source] = SourceLog(
                numbers=(self.number,), transactions=(f"{source}{position}",), positions=(position,)
            )
        self.published.append(self._message(rows, logs, controls))
        self.states.append(self.contents())
        return self.published[-1]

    def _message(
        self,
        rows: Mapping[str, Numbered],
        logs: dict[str, SourceLog],
        controls: tuple[Control, ...],
    ) -> Updates:
        n = self.number
        return Updates(
            group=self.spec.group,
            first=n,
            last=n,
            runs=(RelRun(first=n, last=n, views=(self.spec.view,)),),
            relations={name: self.operators.pack(each) for name, each in rows.items()},
            controls=controls,
            logs=logs,
            delivered=dict(self.positions),
        )

    def answer(
        self, statement: SourceQuery[Numbered], missing: Iterable[str] = ()
    ) -> SourceAnswer[Numbered]:
        """All parts at the source's state of the moment; `missing` is only said, not done."""
        found = {name: numbered(rows) for name, rows in self.rows.items()}
        here = {name: rows for name, rows in found.items() if source_of(name) == statement.source}
        rows = tuple(self.operators.evaluate(p.tree, {**here, **p.inputs}) for p in statement.parts)
        state = Seen(self.positions[statement.source], frozenset(missing))
        return SourceAnswer(
            statement.view, statement.id, statement.step, statement.source, rows, state
        )
