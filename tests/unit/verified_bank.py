"""A small warehouse for `verify`: two banks' entries, three views, written by the real writers.

The views' states are computed here in plain Python; a test then records them truly, or not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.messages import Control
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch, merge_runs
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesWriter
from tests.unit.warehouse_rows import frontier_of

ENTRY = (Column("id", "bigint"), Column("account", "int"), Column("amount", "decimal(18,2)"))
RELATIONS = {name: Relation(name, ENTRY, (0,)) for name in ("north.entry", "south.entry")}
SQL = {
    "balance": "SELECT account, SUM(amount) AS balance, AVG(amount) AS mean FROM north.entry "
    "GROUP BY account",
    "doubles": "SELECT account FROM south.entry",
    "total": "SELECT SUM(amount) AS total, COUNT(*) AS n FROM "
    "(SELECT amount FROM north.entry UNION ALL SELECT amount FROM south.entry) both",
}
Bag = Counter[tuple[object, ...]]
Change = tuple[str, int, tuple[object, ...]]
"""(relation, multiplicity, row)."""


def transfers(count: int, seed: int) -> list[list[Change]]:
    """Number 0: opening entries; then transfers inside the banks and across, and some deletions."""
    rng = random.Random(seed)
    entries: list[Change] = []
    history: list[list[Change]] = [[]]
    ids = iter(range(1, 10_000))

    def entry(bank: str, account: int, amount: Decimal) -> Change:
        change = (f"{bank}.entry", 1, (next(ids), account, amount))
        entries.append(change)
        return change

    history[0] = [entry(bank, a, Decimal(100)) for bank in ("north", "south") for a in (1, 2)]
    for _ in range(count):
        if rng.random() < 0.2:
            relation, _, row = entries.pop(rng.randrange(len(entries)))
            history.append([(relation, -1, row)])
            continue
        amount = Decimal(rng.randrange(1, 5000)) / 100
        banks = [rng.choice(("north", "south")) for _ in range(2)]
        history.append(
            [
                entry(banks[0], rng.randint(1, 3), -amount),
                entry(banks[1], rng.randint(1, 3), amount),
            ]
        )
    return history


def states(history: Sequence[Sequence[Change]]) -> list[dict[str, Bag]]:
    """Each view's bag after each number."""
    relations: dict[str, Bag] = {name: Counter() for name in RELATIONS}
    result = []
    for changes in history:
        for relation, multiplicity, row in changes:
            relations[relation][row] += multiplicity
        result.append(evaluate({name: Counter(bag) for name, bag in relations.items()}))
    return result


def evaluate(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    """The three views in plain Python."""
    north = [row for row in relations["north.entry"].elements()]
    south = [row for row in relations["south.entry"].elements()]
    amounts: dict[int, list[Decimal]] = {}
    for _, account, amount in north:
        amounts.setdefault(int(str(account)), []).append(Decimal(str(amount)))
    every = [Decimal(str(row[2])) for row in (*north, *south)]
    whole = (sum(every) if every else None, len(every))
    return {
        "balance": Counter(
            {
                (account, sum(values), (sum(values) / len(values)).quantize(Decimal("1e-6"))): 1
                for account, values in amounts.items()
            }
        ),
        "doubles": Counter((row[1],) for row in south),
        "total": Counter({whole: 1}),
    }


@dataclass
class Bank:
    """The warehouse under construction.

    Attributes:
        levels: view -> its WITH clause, when not COMPLETE.
        names: the views of `SQL` that it has.
    """

    folder: Path
    history: list[list[Change]]
    levels: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = tuple(SQL)

    def __post_init__(self) -> None:
        self.views = [
            parse_view(
                f"CREATE MATERIALIZED VIEW {name} "
                f"WITH {self.levels.get(name, 'COMPLETE')} CONSISTENCY AS {SQL[name]}",
                RELATIONS,
            )
            for name in self.names
        ]
        save_catalog(self.folder, self.views, {"g": list(self.names)}, RELATIONS)
        self.tables = {
            view.name: ViewTable(view.name, view.schema, view.key or ()) for view in self.views
        }
        self.states = states(self.history)
        self.covered: list[tuple[int, int]] = []
        self.published: dict[str, Bag] = {name: Counter() for name in self.names}
        self.writer = GroupWriter(str(self.folder), "bank", "g", list(self.tables.values()))
        self.updates = UpdatesWriter(str(self.folder), "bank", list(RELATIONS.values()))

    def record_updates(self, controls: Sequence[Control] = ()) -> None:
        """`_updates` in one step."""
        deltas = {}
        for name, relation in RELATIONS.items():
            rows = [
                (number, multiplicity, *row)
                for number, changes in enumerate(self.history)
                for changed, multiplicity, row in changes
                if changed == name
            ]
            deltas[name] = arrow(relation.schema, rows)
        self.updates.append(1, deltas, controls=controls)

    def commit(self, first: int, last: int, **given: Mapping[str, Bag] | Mapping[str, int]) -> None:
        """One epoch for [first..last] that moves every view through its true states.

        Args:
            given: `states`: number -> view -> the state to record in place of the true one;
                `suspended`: as the epoch says; `released`: ids as keys.
        """
        changed: Mapping[int, Mapping[str, Bag]] = given.get("states", {})  # type: ignore[assignment]
        deltas = {}
        for name, table in self.tables.items():
            rows = []
            for number in range(first, last + 1):
                target = changed.get(number, {}).get(name, self.states[number][name])
                difference = Counter(target)
                difference.subtract(self.published[name])
                rows += [(number, n, *row) for row, n in difference.items() if n]
                self.published[name] = target
            deltas[name] = arrow(table.schema, rows)
        suspended, released = (given.get(name, {}) for name in ("suspended", "released"))
        self.publish(deltas, first, last, suspended, tuple(released))  # type: ignore[arg-type]

    def publish(
        self,
        deltas: Mapping[str, pa.Table],
        first: int,
        last: int,
        suspended: Mapping[str, int] | None = None,
        released: tuple[str, ...] = (),
    ) -> None:
        """One epoch with these deltas."""
        covered = merge_runs(self.covered, [(first, last)])
        self.covered = list(covered)
        before = self.writer.last()
        number = before.epoch + 1 if before else 1
        epoch = Epoch(
            "g",
            number,
            ((first, last),),
            covered,
            frontier_of(covered),
            suspended=suspended or {},
            released=released,
        )
        self.writer.commit(deltas, epoch)


def arrow(schema: tuple[Column, ...], rows: Sequence[Sequence[object]]) -> pa.Table:
    """A delta from rows (number, multiplicity, value, ...)."""
    target = delta_schema(schema)
    columns = [pa.array([row[at] for row in rows], kind.type) for at, kind in enumerate(target)]
    return pa.Table.from_arrays(columns, schema=target)
