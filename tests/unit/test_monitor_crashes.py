"""`fresco snapshots` killed at any moment, and configured otherwise when it starts again (DESIGN 6).

Readers get the events of a snapshot once each, whatever was half published and whichever tables are
configured by then: at every moment at which something is committed the monitor dies, tables are taken
out, put in or put in another order, and the next start goes on.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_monitor import Broker, Given

from streaming.capture import monitor, snapshot_events
from streaming.errors import FrescoError
from tests.stepworld import Crash

TABLES = ("a", "b", "c")
SIZES = {"a": 3, "b": 4, "c": 2}
Change = Callable[[Given], None]


@pytest.fixture(autouse=True)
def _many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "COMMITTED", 2)
    monkeypatch.setattr(snapshot_events, "CHUNK", 1)


def configure(given: Given, *tables: str) -> None:
    given.tables = {table: f"old.{table}" for table in tables}
    given.columns = {table: {"id": "bigint", "v": "int"} for table in tables}
    given.keys = {table: ["id"] for table in tables if table != "b"}


def without(table: str) -> Change:
    return lambda given: configure(given, *(one for one in TABLES if one != table))


def reordered(given: Given) -> None:
    configure(given, *reversed(TABLES))


def one_more(given: Given) -> None:
    configure(given, "0", *TABLES)


def moved(given: Given) -> None:
    """Another table of the database under the same name."""
    given.tables["a"] = "old.another"


CHANGES = {
    "no a": without("a"),
    "no b": without("b"),
    "no c": without("c"),
    "reordered": reordered,
    "one more": one_more,
    "another topic": moved,
}


def texts(version: int) -> dict[str, str]:
    """Of every table: a row changes, one goes, one comes from version to version."""
    found = {}
    for table in TABLES:
        ids = range(version, version + SIZES[table])
        found[table] = "id,v\n" + "".join(f"{i},{i * 10 + version * (i % 2)}\n" for i in ids)
    return found


def start(folder: Path, broker: Broker, version: int) -> Given:
    """Snapshots up to a version are published; a further one is there."""
    given = Given(folder, broker)
    configure(given, *TABLES)
    for at in range(1, version + 1):
        broker.messages.clear()
        given.snapshot(**texts(at))
        for file in (folder / "given" / str(at)).iterdir():
            os.utime(file, (at * 1000, at * 1000))  # its time is part of the events
        if at < version:
            given.monitor().run(once=True)
    broker.messages.clear()
    return given


def die_at(broker: Broker, commits: int) -> None:
    """After so many commits the next one never happens."""
    left = [commits]

    def fail() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash("killed")

    broker.fail = fail


def judge(broker: Broker, version: int, whole: Broker) -> None:
    """What readers see is what one monitor without a crash publishes, and it is consistent in itself."""
    assert Counter(broker.messages) == Counter(whole.messages)
    for topic in {topic for topic, _, _ in whole.messages}:
        mine, its = ([m for m in each.messages if m[0] == topic] for each in (broker, whole))
        assert mine == its, topic
    values = [json.loads(v or b"") for t, _, v in broker.messages if t.startswith("old.old.")]
    counted = Counter(value["source"]["table"] for value in values)
    rest = [json.loads(v or b"") for t, _, v in broker.messages if not t.startswith("old.old.")]
    if version == 1:
        scans = {
            one["additional_data"]["scanned_collection"]: one["additional_data"][
                "total_rows_scanned"
            ]
            for one in rest
            if one["type"] == "TABLE_SCAN_COMPLETED"
        }
        assert scans == {f"old.{table}": str(count) for table, count in counted.items()}
        assert rest[-1]["type"] == "COMPLETED"
        return
    begin, end = rest
    assert (begin["status"], end["status"]) == ("BEGIN", "END")
    said = {one["data_collection"]: one["event_count"] for one in end["data_collections"]}
    assert said == {f"old.{table}": count for table, count in counted.items()}
    orders = sorted(value["transaction"]["total_order"] for value in values)
    assert orders == list(range(1, len(values) + 1))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("change", list(CHANGES))
def test_killed_at_any_commit_the_next_start_goes_on_with_the_tables_that_were_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, change: str
) -> None:
    whole = Broker()
    monkeypatch.setattr(monitor, "Writer", whole.writer)
    commits = [0]
    given = start(tmp_path / "whole", whole, version)

    def count() -> None:
        commits[0] += 1

    whole.fail = count
    given.monitor().run(once=True)
    assert commits[0] >= 4, "in several parts"
    for at in range(commits[0]):
        broker = Broker()
        monkeypatch.setattr(monitor, "Writer", broker.writer)
        given = start(tmp_path / str(at), broker, version)
        die_at(broker, at)
        with pytest.raises(Crash):
            given.monitor().run(once=True)
        CHANGES[change](given)
        die_at(broker, 1)
        try:
            given.monitor().run(once=True)
            pytest.fail("it has more than one commit to make") if at < commits[0] - 2 else None
        except Crash:
            configure(given, *TABLES)  # back again, while it is half published still
        broker.fail = lambda: None
        given.monitor().run(once=True)
        judge(broker, version, whole)


def rows(broker: Broker, table: str) -> Counter[str]:
    """What a reader of all events has of a table."""
    found: Counter[str] = Counter()
    for _, before, after in broker.events(table):
        found.update([json.dumps(after)] if after else [])
        found.subtract([json.dumps(before)] if before else [])
    return +found


def test_tables_that_come_and_go_are_never_doubled_or_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is read again is compared with what readers have of it."""
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    rng, broker = random.Random(seed), Broker()
    monkeypatch.setattr(monitor, "Writer", broker.writer)
    given = Given(tmp_path, broker)
    seen: dict[str, str] = {}
    for version in range(1, 9):
        tables = rng.sample(TABLES, rng.randint(1, 3))
        configure(given, *tables)
        now = texts(version)
        given.snapshot(**{table: now[table] for table in tables})
        seen |= {table: now[table] for table in tables}
        if rng.random() < 0.6:
            die_at(broker, rng.randint(0, 3))
            try:
                given.monitor().run(once=True)
            except Crash:
                configure(given, *rng.sample(TABLES, rng.randint(1, 3)))
            broker.fail = lambda: None
        given.monitor().run(once=True)
        for table, text in seen.items():
            lines = (map(int, line.split(",")) for line in text.splitlines()[1:])
            wanted = Counter(json.dumps({"id": i, "v": v}) for i, v in lines)
            assert rows(broker, table) == wanted, (f"FRESCO_SEED={seed}", version, table)


def test_a_form_that_did_not_note_its_topics_is_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    monkeypatch.setattr(monitor, "Writer", broker.writer)
    given = start(tmp_path, broker, 2)
    die_at(broker, 1)
    with pytest.raises(Crash):
        given.monitor().run(once=True)
    broker.fail = lambda: None
    noted = tmp_path / "warehouse" / "_state" / "snapshots-old" / "000000002" / "snapshot.json"
    about: dict[str, Any] = json.loads(noted.read_text())
    del about["places"], about["away"]
    noted.write_text(json.dumps(about))
    without("b")(given)
    published = list(broker.messages)
    with pytest.raises(FrescoError) as caught:
        given.monitor().run(once=True)
    assert caught.value.code == "SNAPSHOT_STATE" and caught.value.where == "old.b"
    assert broker.messages == published
    configure(given, *TABLES)
    given.monitor().run(once=True)
    whole = Broker()
    monkeypatch.setattr(monitor, "Writer", whole.writer)
    start(tmp_path / "whole", whole, 2).monitor().run(once=True)
    assert len(broker.messages) == len(whole.messages)
