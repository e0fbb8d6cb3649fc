"""Whatever a log has lost, and whatever a snapshot has seen ahead of it, the relation ends as it is.

Transactions of a keyed table, some of them lost to the log before a snapshot is taken again; the snapshot
is stamped with where the log stood and has seen some of what comes after. The connector may tell the end
of the log before the snapshot again. Topics, batches and restarts fall as they like.
"""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

from streaming.cdc.later_snapshots import CLOCKS_MS
from streaming.durable import as_json
from tests.intakeworld import Recorded, make, relations, row, snapshot_of
from tests.sourcelog import Record, SourceLog, Topics

ENGINE = duckdb.connect()
"""Every restart takes it over: making one costs more than what it computes here."""
ACCOUNT = relations()[0]
Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]


class World:
    """The database's table and its log, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.log, self.table = random.Random(seed), SourceLog("north"), {0: "a", 1: "a"}
        self.records = snapshot_of(self.log, {"account": 2, "entry": 0})
        self.records += self.log.commit([("entry", "c", None, row(1))])
        self.told: list[list[Record]] = []
        """What the log has told since, by transaction."""

    def works(self, lost: float = 0.0, deletes: bool = True) -> list[Record]:
        """Some transactions; what the log tells of them."""
        told: list[Record] = []
        for _ in range(self.rng.randrange(6)):
            changes = self._transaction(deletes)
            if self.rng.random() >= lost:
                self.told.append(self.log.commit(changes))
                told += self.told[-1]
        return told

    def again(self) -> list[Record]:
        """The last transactions once more, as after a restart of the connector."""
        last = self.told[len(self.told) - self.rng.randint(0, len(self.told)) :]
        return [record for one in last for record in one]

    def _transaction(self, deletes: bool) -> list[Change]:
        changes: list[Change] = []
        for _ in range(self.rng.randint(1, 3)):
            key, value = self.rng.randrange(4), self.rng.choice("pqd" if deletes else "pq")
            old = row(key, self.table[key]) if key in self.table else None
            if value != "d":
                changes.append(("account", "u" if old else "c", old, row(key, value)))
                self.table[key] = value
            elif old is not None:
                changes.append(("account", "d", old, None))
                del self.table[key]
        return changes

    def snapshot(self) -> list[Record]:
        """A blocking snapshot; the log goes on from before it, with what it has seen."""
        stood, again = self.log.lsn, self.again()
        ahead = self.works()
        rows = [
            self.log.row("account", "r", None, row(*one), lsn=stood) for one in self.table.items()
        ]
        return [*rows, *self.log.scanned({"account": len(rows)}), *again, *ahead]

    def broken(self) -> list[Record]:
        """A snapshot whose connector is ended, perhaps after its last row; people write afterwards."""
        rows = [self.log.row("account", "r", None, row(*one)) for one in self.table.items()]
        told = [self.log.note("STARTED"), *rows[: self.rng.choice([1, len(rows), len(rows)])]]
        told += [self.log.note("ABORTED")] if self.rng.random() < 0.3 else []
        self.log.lsn += 50
        self.works(lost=1.0, deletes=False)
        return told

    def passing(self) -> list[Record]:
        """An incremental snapshot: each row somewhere between the log's events."""
        told = [self.log.note("STARTED", kind="Incremental Snapshot")]
        for key in range(4):
            told += self.works(deletes=False) if self.rng.random() < 0.5 else []
            if key in self.table:
                one = row(key, self.table[key])
                told.append(self.log.row("account", "r", None, one, passing=True))
        return [*told, self.log.note("COMPLETED", kind="Incremental Snapshot")]

    def delivered(self) -> Recorded:
        """What comes of the records: each topic keeps its order and nothing else."""
        results, topics, queues = Recorded(), Topics(), dict[str, list[Record]]()
        intake = make(snapshot=True, contents=results.contents, engine=ENGINE)
        for record in self.records:
            queues.setdefault(record[0], []).append(record)
        while queues:
            batch: list[Record] = []
            for name in self.rng.choices(sorted(queues), k=self.rng.randint(1, 4)):
                size = self.rng.randint(1, 6)
                batch += queues[name][:size]
                queues[name] = queues[name][size:]
            queues = {name: left for name, left in queues.items() if left}
            results.append(intake.step(topics.batch(batch), 0))
            if self.rng.random() < 0.25:
                saved = as_json(intake.snapshot())
                intake = make(snapshot=True, contents=results.contents, engine=ENGINE)
                intake.restore(saved)
        results += [intake.step(topics.batch([]), 0) for _ in range(2)]
        return results


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in (0, 10, 20)])
def test_a_snapshot_taken_again_leaves_the_relation_as_the_database_has_it(seeds: range) -> None:
    replaced = 0
    for seed in seeds:
        world = World(seed)
        world.records += world.works(lost=0.4)
        world.records += (rows := world.snapshot())
        world.log.lsn += CLOCKS_MS
        world.records += world.works()
        world.records += world.log.commit([("entry", "c", None, row(2))])
        results = world.delivered()
        if '"op": "r"' in (rows[0][1] or ""):  # an empty table cannot tell what came after it
            assert results.rows(ACCOUNT) == sorted(world.table.items()), f"seed {seed}"
            said = [note for one in results for note in one.notices]
            assert len(said) == 1, f"seed {seed}: {said}"
        replaced += sum(len(one.controls) for one in results)
    assert replaced > 0


def test_an_incremental_snapshot_makes_good_what_it_names_and_leaves_the_rest() -> None:
    """It names every row that is left, and no row that is gone: no delete is lost here."""
    replaced = 0
    for seed in range(15, 30):
        world = World(seed)
        world.records += world.works()
        world.works(lost=1.0, deletes=False)
        world.records += [*world.passing(), *world.works()]
        results = world.delivered()
        assert results.rows(ACCOUNT) == sorted(world.table.items()), f"seed {seed}"
        replaced += sum(len(one.controls) for one in results)
    assert replaced > 0


def test_the_initial_snapshot_is_the_attempt_that_was_completed() -> None:
    for seed in range(15):
        world = World(seed)
        world.records = [one for _ in range(world.rng.randrange(3)) for one in world.broken()]
        rows = [world.log.row("account", "r", None, row(*one)) for one in world.table.items()]
        world.records += [*rows, *world.log.scanned({"account": len(rows), "entry": 0})]
        world.records += world.works()
        world.log.lsn += CLOCKS_MS
        world.records += world.log.commit([("entry", "c", None, row(2))])
        assert world.delivered().rows(ACCOUNT) == sorted(world.table.items()), f"seed {seed}"
