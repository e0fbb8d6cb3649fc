"""The stage of a view manager that asks: manifests, sources in trouble, damaged input (DESIGN 7, 9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming import packed_rows as packing
from streaming.algebra.bag import Numbered
from streaming.algebra.source_queries import SourceAnswer, SourceQuery
from streaming.ask.postgres.pg_state import PgState
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.messages import Control, RelRun, Rows, SourceLog, Suspend, Updates, decode
from streaming.metrics import Metrics
from streaming.pipeline.choosing import Choice
from streaming.runtime.kafka import headers
from streaming.runtime.pulse import NOTHING
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stepper
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse
from streaming.stages import asking_stage
from streaming.stages.asking_stage import Access, AskingStage, StageStopped
from streaming.stages.stage_trouble import told_trouble
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.levels import Level
from tests.golden.bank_relations import BANK

SQL = "SELECT e.id, a.owner FROM north.account a JOIN north.entry e ON e.account = a.id"
Row = tuple[Any, ...]


class World:
    """A source whose answers see everything committed, and the messages that tell of it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Row, int]] = {
            "north.account": {(1, "ann", "x"): 1, (2, "bob", "x"): 1},
            "north.entry": {(1, 1, None): 1},
        }
        self.number = self.statements = 0
        self.trouble: FrescoError | None = None
        self.pins = False
        whole = {n: {(0, row): 1 for row in rows} for n, rows in self.rows.items()}
        self.messages = [self._message(whole, ())]

    def commit(self, relation: str, *changes: tuple[int, Row], **more: Any) -> Updates:
        self.number += 1
        for sign, row in changes:
            self.rows[relation][row] = self.rows[relation].get(row, 0) + sign
        rows = {(self.number, row): sign for sign, row in changes}
        self.messages.append(self._message({relation: rows}, (self.number,), **more))
        return self.messages[-1]

    def _message(self, rows: dict[str, Numbered], numbers: tuple[int, ...], **more: Any) -> Updates:
        names = tuple(str(700 + n) for n in numbers)
        return Updates(
            group="g",
            first=self.number,
            last=self.number,
            runs=(RelRun(first=self.number, last=self.number, views=("v",)),),
            relations={name: packed(name, found) for name, found in rows.items()},
            logs={"north": SourceLog(numbers=numbers, transactions=names, positions=numbers)},
            delivered={"north": self.number},
            **more,
        )

    @property
    def state(self) -> PgState:
        return PgState(self.number, 701 + self.number, 701 + self.number)


def packed(name: str, rows: Numbered) -> Rows:
    table = Signed(delta_schema(BANK[name].schema), bag=rows).table
    return packing.pack(table, lambda content: pytest.fail("a large table"))


class Source:
    """`PostgresSource` over a world; a pinned state is kept where the world has `pins`."""

    durable = 0

    def __init__(self, world: World, name: str, dsn: str, relations: Any, operators: Any) -> None:
        self.world, self.name, self.operators = world, name, operators
        self.pinned: tuple[dict[str, dict[Row, int]], PgState] | None = None

    def answer(self, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        if self.world.trouble is not None:
            raise self.world.trouble
        self.world.statements += 1
        tables, state = self.pinned or (self.world.rows, self.world.state)
        base = {
            name: Signed(
                delta_schema(BANK[name].schema), bag={(0, r): n for r, n in rows.items() if n}
            )
            for name, rows in tables.items()
        }
        rows = tuple(self.operators.evaluate(p.tree, {**base, **p.inputs}) for p in query.parts)
        return SourceAnswer(query.view, query.id, query.step, self.name, rows, state)

    def pin(self) -> PgState:
        if not self.world.pins:
            raise FrescoError("SOURCE_UNREACHABLE", "no state is kept")
        tables = {name: dict(rows) for name, rows in self.world.rows.items()}
        self.pinned = tables, self.world.state
        return self.world.state

    def release(self) -> None:
        self.pinned = None

    def mark(self) -> None: ...

    def close(self) -> None: ...


class Driver:
    """One start of the stage; what it publishes is kept by the test."""

    def __init__(
        self, folder: Path, mode: str, sent: dict[int, Any], patience: float = 60.0
    ) -> None:
        spec = ManagedView("v", "g", parse(SQL, BANK))
        choice = Choice(mode, Level.COMPLETE, "one-local", sources=("north",))
        access = {"north": Access("", (), patience=patience)}
        self.stage = AskingStage(spec, choice, access, folder, "actions", Metrics())
        self.store = ManifestStore(folder / "manifests")
        self.folder, self._sent = folder, sent
        fence = Fence(folder / "generations", {"process": "a test"})
        self.stepper = Stepper(self.stage, self.store, fence, self._publish)

    def take(self, *messages: Updates) -> None:
        records = []
        for one in messages:
            out = Outgoing(
                topic="updates",
                sequence=one.first + 1,
                first=one.first,
                last=one.last,
                kind="updates",
                body=one.model_dump_json(),
            )
            fields = [{"key": k, "value": v} for k, v in headers("g", "integrator", 1, out)]
            place = {"topic": "updates", "partition": 0, "offset": one.first}
            records.append({**place, "value": out.body.encode(), "headers": fields})
        self.stepper.batch(pa.Table.from_pylist(records))

    def rest(self) -> None:
        self.stepper.batch(NOTHING)

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        self._sent.update({one.sequence: decode(one.body.encode()) for one in messages})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def source(name: str, dsn: str, relations: Any, operators: Any, **_: Any) -> Source:
        return Source(made, name, dsn, relations, operators)

    monkeypatch.setattr(asking_stage, "asked_source", source)
    monkeypatch.setattr(asking_stage, "WAITS", (0.01,))
    return made


def states(sent: dict[int, Any]) -> Iterator[tuple[int, list[Row]]]:
    """The view's rows after each list."""
    rows: dict[Row, int] = {}
    for _, one in sorted(sent.items()):
        for _, count, *row in table_rows(one):
            rows[tuple(row)] = rows.get(tuple(row), 0) + count
        yield one.last, sorted(row for row, count in rows.items() if count)


def table_rows(message: Any) -> list[list[Any]]:
    if message.delta is None:
        return []
    return [list(r.values()) for r in packing.unpack(message.delta, Path()).to_pylist()]


@pytest.mark.parametrize("mode", ["compensating", "sweep"])
@pytest.mark.parametrize("pins", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_each_state_is_the_source_s_although_answers_are_ahead_and_the_stage_starts_again(
    mode: str, pins: bool, restarted: bool, world: World, tmp_path: Path
) -> None:
    world.pins = pins
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, mode, sent)
    world.commit("north.entry", (1, (2, 2, None)))
    world.commit("north.account", (-1, (2, "bob", "x")), (1, (2, "eve", "x")))
    world.commit("north.entry", (-1, (1, 1, None)))
    for message in world.messages:
        driver.take(message)
        if restarted:
            asked, published = world.statements, dict(sent)
            driver = Driver(tmp_path, mode, sent)
            assert (world.statements, sent) == (asked, published), "a restart asks nothing"
    assert list(states(sent)) == [
        (0, [(1, "ann")]),
        (1, [(1, "ann"), (2, "bob")]),
        (2, [(1, "ann"), (2, "eve")]),
        (3, [(2, "eve")]),
    ]
    assert world.statements > 0 and driver.stage.handled == 3


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_state_has_not_seen_waits_for_the_next_one_or_for_a_quiet_moment(
    restarted: bool, world: World, tmp_path: Path
) -> None:
    world.pins = True
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, "sweep", sent)
    driver.take(world.messages[0])
    driver.take(world.commit("north.entry", (1, (2, 2, None))))
    assert [number for number, _ in states(sent)] == [0], "the state is that of number 0"
    driver.take(world.commit("north.account", (-1, (2, "bob", "x")), (1, (2, "eve", "x"))))
    assert list(states(sent))[1:] == [(1, [(1, "ann"), (2, "bob")])]
    if restarted:
        driver = Driver(tmp_path, "sweep", sent)
    assert driver.stage.number == 2
    for _ in range(2):
        driver.rest()
    assert list(states(sent))[2:] == [(2, [(1, "ann"), (2, "eve")])]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_source_in_trouble_holds_up_the_step_until_it_answers(
    world: World, tmp_path: Path
) -> None:
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, "compensating", sent)
    driver.take(world.messages[0])
    world.trouble = FrescoError("SOURCE_UNREACHABLE", "the source is away")
    message = world.commit("north.entry", (1, (2, 2, None)))
    step = threading.Thread(target=driver.take, args=(message,))
    step.start()
    folder = tmp_path / "_state" / "view-v"
    until(lambda: told_trouble(folder))
    assert (told_trouble(folder) or {})["code"] == "SOURCE_UNREACHABLE"
    assert not driver.stepper.lock.acquire(blocking=False), "a pulse passes it by"
    world.trouble = None
    step.join(20)
    assert told_trouble(folder) is None
    assert list(states(sent))[-1] == (1, [(1, "ann"), (2, "bob")])


def test_a_view_whose_source_stays_away_leaves_its_group_at_its_last_list(
    world: World, tmp_path: Path
) -> None:
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, "sweep", sent, patience=0.0)
    driver.take(world.messages[0])
    world.trouble = FrescoError("SOURCE_UNREACHABLE", "the source is away")
    driver.take(world.commit("north.entry", (1, (2, 2, None))))
    last = sent[max(sent)]
    assert isinstance(last, Suspend) and last.after == 0
    assert last.error["code"] == "SOURCE_UNREACHABLE"
    assert told_trouble(tmp_path / "_state" / "view-v") is None, "it does not wait any more"
    driver.take(world.commit("north.entry", (1, (3, 2, None))))
    assert sent[max(sent)] is last and driver.stage.suspended == last.error


def test_a_step_that_waits_ends_when_the_stage_is_halted_and_has_not_happened(
    world: World, tmp_path: Path
) -> None:
    driver = Driver(tmp_path, "compensating", {})
    driver.take(world.messages[0])
    world.trouble = FrescoError("SOURCE_QUERY_TIMEOUT", "the source is slow")
    message = world.commit("north.entry", (1, (2, 2, None)))
    ended: list[BaseException] = []

    def step() -> None:
        try:
            driver.take(message)
        except StageStopped as stopped:
            ended.append(stopped)

    waiting = threading.Thread(target=step)
    waiting.start()
    until(lambda: told_trouble(tmp_path / "_state" / "view-v"))
    driver.stepper.halt()
    waiting.join(20)
    latest = driver.store.latest()
    assert ended and latest is not None and latest.step == 1
    world.trouble = None
    sent: dict[int, Any] = {}
    Driver(tmp_path, "compensating", sent).take(message)
    assert list(states(sent))[-1] == (1, [(1, "ann"), (2, "bob")])


def test_damaged_input_suspends_the_view_after_its_last_list(world: World, tmp_path: Path) -> None:
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, "compensating", sent)
    taint = Control(number=2, relation="north.entry", kind="tainted")
    first = world.commit("north.entry", (1, (2, 2, None)))
    driver.take(world.messages[0], first)
    driver.take(world.commit("north.entry", controls=(taint,)))
    suspend = sent[max(sent)]
    assert (suspend.type, suspend.after) == ("suspend", 1)
    assert suspend.error["code"] == "VIEW_INPUT_DAMAGED"
    again = Driver(tmp_path, "compensating", sent)
    assert again.stage.suspended == suspend.error
    asked = world.statements
    again.take(world.commit("north.entry", (1, (3, 2, None))))
    assert world.statements == asked and sent[max(sent)] == suspend
