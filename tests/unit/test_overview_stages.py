"""Views over views in the service's stages: three deep, crashes between any two steps (ryco-pyco 3).

The stages, manifests, files and tables are the service's; a random schedule says which stage goes next,
and where the driver dies, also between a manifest and its messages. `verify` judges what is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streaming import packed_rows as packing
from streaming.captured.captured_schema import CapturedRelation
from streaming.pipeline.catalog import ViewSpec, parse_view, save_catalog
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.stages import overview_stage
from tests.sourcelog import Record, SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages
from tests.unit.test_debezium_events import bank

VIEWS = {
    "entries": "SELECT id, account, amount FROM north.entry",
    "balance": "SELECT account, SUM(amount) AS balance, COUNT(*) AS n FROM north.entry GROUP BY account",
    "owned": "SELECT a.id, a.branch, b.balance FROM north.account a JOIN balance b ON b.account = a.id",
    "branches": "SELECT branch, SUM(balance) AS total, COUNT(*) AS members FROM owned GROUP BY branch",
    "shares": "SELECT o.id, e.amount, o.balance, b.total FROM owned o JOIN branches b"
    " ON o.branch = b.branch JOIN north.entry e ON e.account = o.id",
    "rich": "SELECT id FROM owned WHERE balance > 20",
}
OVER_ACCOUNT = ("owned", "branches", "shares", "rich")
SEEDS = range(2)
NUMBERS = 16


class Crash(BaseException):
    """The driver is gone."""


class Mortal(SteppedStages):
    """Stages that die before their `left`-th message."""

    left: int | None = None

    def reach(self, producer: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash


def captured() -> list[CapturedRelation]:
    return [one for one in bank() if one.source == "north"]


def specified() -> list[ViewSpec]:
    known: dict[str, Any] = {one.relation.name: one.relation for one in captured()}
    views = []
    for name, sql in VIEWS.items():
        views.append(parse_view(f"CREATE MATERIALIZED VIEW {name} AS {sql}", known))
        known[name] = views[-1].relation
    return views


class Bank:
    """Random transactions on accounts and entries, as events."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.log = rng, SourceLog("north")
        self.rows: dict[str, dict[int, dict[str, Any]]] = {"account": {}, "entry": {}}

    def transaction(self) -> list[Record]:
        found = []
        for _ in range(self.rng.randint(1, 4)):
            table = self.rng.choice(("account", "entry", "entry", "entry"))
            key = self.rng.randrange(5 if table == "account" else 12)
            rows = self.rows[table]
            before = rows.get(key)
            if before is not None and self.rng.random() < 0.4:
                found.append((table, "d", rows.pop(key), None))
                continue
            rows[key] = self._row(table, key)
            found.append((table, "c" if before is None else "u", before, rows[key]))
        return self.log.commit(found)

    def _row(self, table: str, key: int) -> dict[str, Any]:
        if table == "account":
            return {
                "id": key,
                "owner": f"o{self.rng.randrange(3)}",
                "branch": self.rng.choice("xy"),
            }
        amount = f"{self.rng.randrange(-999, 2000) / 100:.2f}"
        return {"id": key, "account": self.rng.randrange(5), "amount": amount}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[], Mortal]]:
    """The stages of a new pipeline."""
    made: list[Mortal] = []

    def make() -> Mortal:
        views = specified()
        relations = {one.relation.name: one.relation for one in captured()}
        save_catalog(tmp_path, views, {GROUP: [view.name for view in views]}, relations)
        made.append(Mortal(tmp_path, captured(), views, folds=4))
        return made[-1]

    yield make
    for one in made:
        one.close()


def settled(stages: Mortal) -> Mortal:
    """Everything that is under way arrives."""
    for _ in range(len(VIEWS) + 1):
        for name in (*stages.stages, f"merge:{GROUP}"):
            stages.step(name)
    return stages


def play(stages: Mortal, rng: random.Random, bank: Bank, numbers: int) -> Mortal:
    """A random schedule with crashes, to its end."""
    topics, waiting, crashes = Topics(), [bank.transaction() for _ in range(numbers)], 0
    names = (*stages.stages, f"merge:{GROUP}")
    batch = None
    while waiting or batch is not None:
        stages.left = rng.randrange(3) if rng.random() < 0.2 else None
        try:
            if batch is not None or rng.random() < 0.25:
                if batch is None:
                    batch = topics.batch(
                        [r for _ in range(rng.randint(1, 3)) if waiting for r in waiting.pop(0)]
                    )
                stages.number(batch)
                batch = None
            else:
                stages.step(rng.choice(names))
            if rng.random() < 0.3:
                stages.collect()
        except Crash:
            crashes += 1
            stages = stages.again()
    assert crashes, "a schedule without a crash proves little"
    return settled(stages.again())


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_of_every_view_is_complete_after_any_crash(
    seed: int, made: Callable[[], Mortal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # rows in files instead of messages and manifests
        monkeypatch.setattr(packing, "INLINE_LIMIT", 600)
        monkeypatch.setattr(overview_stage, "SMALL", 100)
        monkeypatch.setattr(overview_stage, "WAITING", 100)
    rng = random.Random(seed)
    stages = made()
    stages.feed(Topics().batch([]))
    stages = play(stages, rng, Bank(rng), NUMBERS)
    verdict = verify_pipeline(tmp_path)
    assert verdict.problems == (), (seed, verdict.problems)
    assert {line.achieved for line in verdict.lines} == {"complete"}, (seed, verdict.lines)
    frontier = Warehouse(tmp_path).epochs(GROUP)[-1].frontier
    assert frontier == verdict.frontier[GROUP] == NUMBERS, seed
    assert all(rows_of(tmp_path, name) for name in ("owned", "branches", "shares")), seed


def rows_of(folder: Path, view: str) -> list[Mapping[str, Any]]:
    return Warehouse(folder).read(view, suspended_as_of=True).to_pylist()


def test_a_truncate_passes_and_a_damaged_record_stops_the_view_and_all_over_it(
    made: Callable[[], Mortal], tmp_path: Path
) -> None:
    stages, topics, bank = made(), Topics(), Bank(random.Random(3))

    def feed(*records: Record) -> None:
        stages.feed(topics.batch(records))

    feed()
    for _ in range(6):
        feed(*bank.transaction())
    feed(*bank.log.commit([("entry", "t", None, None)]))
    bank.rows["entry"].clear()
    assert rows_of(tmp_path, "balance") == rows_of(tmp_path, "shares") == []
    for _ in range(6):
        feed(*bank.transaction())
    assert rows_of(tmp_path, "shares")
    begin, (topic, _), end = bank.log.commit([("account", "c", None, {"id": 99})])
    feed(begin, (topic, '{"op": "c", "source": {"lsn": 1}}'), end)
    stages = stages.again()
    for _ in range(4):
        feed(*bank.transaction())

    last = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert (last.frontier, last.suspended) == (18, dict.fromkeys(OVER_ACCOUNT, 13))
    codes = {name: stages.stages[f"view:{name}"].suspended for name in VIEWS}
    assert {name for name, error in codes.items() if error} == set(OVER_ACCOUNT)
    assert codes["owned"] and codes["owned"]["code"] == "VIEW_INPUT_DAMAGED"
    for child in ("branches", "rich"):
        error = codes[child]
        assert error and error["code"] == "VIEW_PARENT_SUSPENDED" and "owned" in error["what"]
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds, verdict
    assert {line.achieved for line in verdict.lines} == {"complete"}, verdict.lines
