"""`fresco snapshots` over real files and a Kafka that is a list: changed tables, and a Kafka away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from streaming.capture import monitor as differing
from streaming.capture.envelope import Message
from streaming.capture.monitor import Monitor, Published
from streaming.capture.position import PublishedPosition
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.errors import FrescoError


class Broker:
    """What a writer has committed."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.progress: PublishedPosition | None = None
        self.fail: Callable[[], None] = lambda: None

    def writer(self, *_: Any) -> _Writer:
        return _Writer(self)

    def events(self, table: str = "item") -> list[tuple[str, Any, Any]]:
        """(op, before, after) of a table's events."""
        values = [json.loads(v or b"") for t, _, v in self.messages if t == f"old.old.{table}"]
        return [(value["op"], value["before"], value["after"]) for value in values]


class _Writer:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._open = broker, list[Message]()

    def progress(self) -> PublishedPosition | None:
        return self._broker.progress

    def send(self, messages: Iterable[Message]) -> int:
        before = len(self._open)
        self._open += messages
        return len(self._open) - before

    def commit(self, progress: PublishedPosition) -> None:
        self._broker.fail()
        self._broker.messages += self._open
        self._broker.progress, self._open = progress, []

    def close(self) -> None:
        self._open = []


class Given:
    """A source of snapshots in a folder."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker, self.number = folder, broker, 0
        self.tables = {"item": "old.item"}
        self.columns = {"item": {"id": "bigint", "name": "text", "price": "int"}}
        self.keys = {"item": ["id"]}

    def snapshot(self, **texts: str) -> None:
        self.number += 1
        place = self.folder / "given" / str(self.number)
        place.mkdir(parents=True)
        for table, text in texts.items():
            (place / f"{table}.csv").write_text(text)

    def config(self) -> Config:
        snapshots = {"folder": "given", "settle_seconds": 0, "every_seconds": 0.01}
        source = {"snapshots": snapshots, "tables": self.tables, "columns": self.columns}
        raw: dict[str, Any] = {"pipeline": "old", "warehouse": "warehouse", "views": "views"}
        raw |= {"sources": {"old": source | {"keys": self.keys}}}
        return parse_config(raw, folder=self.folder)

    def monitor(self, told: list[Published] | None = None) -> Monitor:
        return Monitor(self.config(), "old", (told if told is not None else []).append)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    broker = Broker()
    monkeypatch.setattr(differing, "Writer", broker.writer)
    return Given(tmp_path, broker)


def first(given: Given) -> None:
    given.snapshot(item="id,name,price\n1,a,10\n2,b,20\n")
    given.monitor().run(once=True)
    assert [op for op, _, _ in given.broker.events()] == ["r", "r"]
    given.broker.messages.clear()


def test_columns_that_came_and_went_are_compared_by_name(given: Given) -> None:
    first(given)
    given.columns["item"] = {"id": "bigint", "price": "int", "label": "text"}
    given.snapshot(item="id,price,label\n1,10,\n2,21,x\n3,30,y\n")
    given.monitor().run(once=True)
    assert given.broker.events() == [
        ("u", {"id": 2, "price": 20, "label": None}, {"id": 2, "price": 21, "label": "x"}),
        ("c", None, {"id": 3, "price": 30, "label": "y"}),
    ]


def test_a_snapshot_taken_before_a_change_is_published_as_it_was_taken(given: Given) -> None:
    first(given)
    given.snapshot(item="id,name,price\n1,a,11\n2,b,20\n")

    def away() -> None:
        raise FrescoError("KAFKA_UNREACHABLE", "away", todo="wait")

    given.broker.fail = away
    with pytest.raises(FrescoError, match="KAFKA_UNREACHABLE"):
        given.monitor().run(once=True)
    given.broker.fail = lambda: None
    given.columns["item"] = {"price": "int", "id": "bigint"}
    given.snapshot(item="id,price\n1,12\n2,20\n")
    given.monitor().run(once=True)
    assert given.broker.events() == [
        (
            "u",
            {"id": 1, "name": "a", "price": 10},
            {"id": 1, "name": "a", "price": 11},
        ),
        ("u", {"price": 11, "id": 1}, {"price": 12, "id": 1}),
    ]


def test_a_table_that_joins_later_comes_as_inserts(given: Given) -> None:
    first(given)
    given.tables["stock"] = "old.stock"
    given.columns["stock"] = {"pieces": "int"}
    given.snapshot(item="id,name,price\n1,a,10\n2,b,20\n", stock="pieces\n7\n")
    given.monitor().run(once=True)
    assert given.broker.events() == []
    assert given.broker.events("stock") == [("c", None, {"pieces": 7})]


@pytest.mark.parametrize("change", ["type", "key"])
def test_another_type_or_key_is_refused_and_nothing_is_published(given: Given, change: str) -> None:
    first(given)
    if change == "type":
        given.columns["item"]["price"] = "text"
    else:
        given.keys["item"] = ["name"]
    given.snapshot(item="id,name,price\n1,a,10\n2,b,21\n")
    with pytest.raises(FrescoError, match="SNAPSHOT_COLUMNS"):
        given.monitor().run(once=True)
    assert not given.broker.messages


def test_a_monitor_waits_for_a_kafka_that_is_away(given: Given) -> None:
    first(given)
    given.snapshot(item="id,name,price\n1,a,10\n")
    told: list[Published] = []
    monitor = given.monitor(told)
    fails = 0

    def away_twice() -> None:
        nonlocal fails
        fails += 1
        if fails <= 2:
            raise FrescoError("KAFKA_UNREACHABLE", "away", todo="wait")
        monitor.request_stop()

    given.broker.fail = away_twice
    monitor.run()
    assert [one.deleted for one in told] == [1]
    assert given.broker.events() == [("d", {"id": 2, "name": "b", "price": 20}, None)]


def test_one_monitor_runs_for_a_source_which_has_snapshots(given: Given) -> None:
    running = given.monitor()
    with pytest.raises(FrescoError, match="SNAPSHOT_RUNNING"):
        given.monitor()
    running.request_stop()
    running.run()
    again = given.monitor()
    again.request_stop()
    again.run()
    with pytest.raises(FrescoError, match="SNAPSHOT_SOURCE"):
        Monitor(given.config(), "new", lambda _: None)


def test_without_the_form_of_what_is_published_nothing_is_compared(given: Given) -> None:
    first(given)
    shutil.rmtree(given.folder / "warehouse" / "_state" / "snapshots-old")
    given.snapshot(item="id,name,price\n1,a,10\n")
    with pytest.raises(FrescoError, match="SNAPSHOT_STATE"):
        given.monitor().run(once=True)
    assert not given.broker.messages
