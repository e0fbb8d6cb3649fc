"""A MariaDB's log as Debezium's messages: whole, counted, and resumed after any event."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture.envelope import CapturedTable, Envelope, Message
from streaming.capture.log_events import (
    Begin,
    Commit,
    Ddl,
    LogEvent,
    Passed,
    Refill,
    RowChange,
    Truncate,
)
from streaming.capture.position import PublishedPosition, progress_from_json
from streaming.capture.publishing import LogPublisher
from streaming.captured.captured_schema import CapturedSource, captured
from streaming.cdc.debezium import Decoder
from tests.sourcelog import Topics

TABLES = {
    ("bank", "entry"): CapturedTable("bank", "entry", "shop.bank.entry", ("id",)),
    ("bank", "loose"): CapturedTable("bank", "loose", "shop.bank.loose", ()),
}
ENVELOPE = Envelope("shop", "shop.notifications")
START = PublishedPosition(LogPlace("binlog.000001", 100), server=7, snapshot="done")


class Log:
    """Writes a log, event by event."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.at = START.at

    def _next(self) -> LogPlace:
        self.at = LogPlace(self.at.file, self.at.offset + 10)
        return self.at

    def begin(self) -> None:
        self.events.append(Begin(self.at, f"0-7-{len(self.events)}", 5))

    def commit(self) -> None:
        self.events.append(Commit(self._next(), 5))

    def change(self, op: str, before: Any, after: Any, table: str = "entry") -> None:
        at = self._next()
        self.events.append(RowChange(("bank", table), op, before, after, at, 0, 7, 5))

    def rotate(self) -> None:
        number = int(self.at.file.rpartition(".")[2]) + 1
        self.at = LogPlace(f"binlog.{number:06}", 4)
        self.events.append(Passed(self.at))


def row(id_: int, amount: str = "AA==") -> dict[str, Any]:
    return {"id": id_, "amount": amount}


def published(publisher: LogPublisher, events: list[LogEvent]) -> list[Message]:
    return [message for event in events for message in publisher.handle(event)]


def values(messages: list[Message], topic: str) -> list[Any]:
    return [None if v is None else json.loads(v) for name, _, v in messages if name == topic]


def read_from(events: list[LogEvent], at: LogPlace) -> list[LogEvent]:
    """The log from a transaction's beginning on."""
    begins = [n for n, event in enumerate(events) if isinstance(event, Begin) and event.at >= at]
    return events[begins[0] :] if begins else []


def random_log(rng: random.Random) -> list[LogEvent]:
    log = Log()
    for number in range(12):
        if rng.random() < 0.15:
            log.rotate()
        log.begin()
        kind = rng.random()
        if kind < 0.1:
            log.events.append(Ddl("bank", "TRUNCATE entry", log._next(), 7, 5))
            log.events.append(Truncate(("bank", "entry"), log.at, 7, 5))
        elif kind > 0.2:
            for n in range(rng.randrange(4)):
                id_ = number * 10 + n
                match rng.randrange(4):
                    case 0:
                        log.change("c", None, row(id_))
                    case 1:
                        log.change("u", row(id_), row(id_, "AQ=="))
                    case 2:
                        log.change("u", row(id_), row(-id_ - 1))
                    case 3:
                        log.change("d", row(id_), None, rng.choice(["entry", "loose"]))
        log.commit()
    return log.events


def test_a_capture_that_ends_after_any_event_goes_on_with_exactly_what_is_missing() -> None:
    for seed in range(60):
        events = random_log(random.Random(seed))
        whole = published(LogPublisher(ENVELOPE, TABLES, START), events)
        for cut in range(len(events) + 1):
            first = LogPublisher(ENVELOPE, TABLES, START)
            before = published(first, events[:cut])
            saved = progress_from_json(first.progress.to_json(), "test")
            after = published(LogPublisher(ENVELOPE, TABLES, saved), read_from(events, saved.at))
            assert before + after == whole, (seed, cut)


def test_end_counts_what_stands_before_it_a_key_change_twice_and_a_truncate_once() -> None:
    log = Log()
    log.begin()
    log.change("u", row(1), row(2))
    log.change("u", row(2), row(2, "AQ=="))
    log.change("d", row(3), None)
    log.commit()
    messages = published(LogPublisher(ENVELOPE, TABLES, START), log.events)
    events = values(messages, "shop.bank.entry")
    assert [e and e["op"] for e in events] == ["d", None, "c", "u", "d", None]
    orders = [e["transaction"]["total_order"] for e in events if e]
    assert orders == [1, 2, 3, 4]
    begin, end = values(messages, "shop.transaction")
    assert (
        begin["id"] == end["id"] == events[0]["transaction"]["id"] == "file=binlog.000001,pos=100"
    )
    assert end["event_count"] == 4
    assert end["data_collections"] == [{"data_collection": "bank.entry", "event_count": 4}]
    assert end["end"] == {"file": "binlog.000001", "pos": 140}


def test_a_transaction_without_captured_rows_shows_only_where_the_log_is_waited_for() -> None:
    log = Log()
    for _ in range(3):
        log.begin()
        log.commit()
    publisher = LogPublisher(ENVELOPE, TABLES, START)
    assert published(publisher, log.events) == []
    assert publisher.progress.at == log.at
    begin, end = values(list(publisher.pause()), "shop.transaction")
    assert (begin["status"], end["status"], end["event_count"]) == ("BEGIN", "END", 0)
    assert end["end"]["pos"] == log.at.offset
    assert end["id"] == "file=binlog.000001,pos=129", "where no transaction begins"
    assert list(publisher.pause()) == []


def test_a_log_that_goes_on_in_a_new_file_without_a_transaction_says_so_too() -> None:
    log = Log()
    log.begin()
    log.change("c", None, row(1))
    log.commit()
    publisher = LogPublisher(ENVELOPE, TABLES, START)
    published(publisher, log.events)
    assert list(publisher.pause()) == [], "the row's own END has said it"
    at = LogPlace("binlog.000002", 379)
    assert published(publisher, [Passed(LogPlace("binlog.000002", 4)), Passed(at)]) == []
    _, end = values(list(publisher.pause()), "shop.transaction")
    assert end["end"] == {"file": "binlog.000002", "pos": 379}
    assert publisher.progress.at == at


def test_what_is_published_decodes_and_a_transaction_s_position_is_its_last_byte() -> None:
    log = Log()
    log.begin()
    log.change("c", None, row(1, "BNI="))
    log.commit()
    log.begin()
    log.change("u", row(1, "BNI="), row(1, "+zI="))
    log.commit()
    messages = published(LogPublisher(ENVELOPE, TABLES, START), log.events)
    relation = captured(
        "shop.entry",
        "shop.bank.entry",
        [("id", "bigint"), ("amount", "numeric(18,2)")],
        key=["id"],
        collection="bank.entry",
    )
    source = CapturedSource("shop", "shop", log=MYSQL_LOG)
    batch = Topics().batch([(topic, value.decode()) for topic, _, value in messages if value])
    decoded = Decoder([relation], [source]).decode(batch)
    assert decoded.bad == ()
    rows = decoded.rows["shop.entry"]
    assert [str(v) for v in rows["a1"].to_pylist()] == ["12.34", "-12.30"]
    ends = decoded.transactions["shop"].filter(
        [status == "END" for status in decoded.transactions["shop"]["status"].to_pylist()]
    )
    assert ends["position"].to_pylist() == [(1 << 32) + 119, (1 << 32) + 139]
    assert ends["transaction"].to_pylist() == rows["transaction"].to_pylist()
    seen = LogPlace("binlog.000001", 120).state
    assert [seen.saw("", position) for position in ends["position"].to_pylist()] == [True, False]
    assert seen.upto == ends["position"][0].as_py(), "no later transaction is waited for"


def test_debezium_s_own_end_without_the_place_counts_from_the_beginning() -> None:
    relation = captured("shop.t", "shop.bank.t", [("id", "bigint")], key=["id"])
    source = CapturedSource("shop", "shop", log=MYSQL_LOG)
    end = {"status": "END", "id": "file=binlog.000182,pos=339", "ts_ms": 1, "data_collections": []}
    batch = Topics().batch([("shop.transaction", json.dumps(end))])
    (position,) = Decoder([relation], [source]).decode(batch).transactions["shop"]["position"]
    assert position.as_py() == (182 << 32) + 339


def refilled(rng: random.Random, rows: dict[str, int], lost: bool = False) -> list[LogEvent]:
    """A statement that moves rows of one or two tables, whose rows come in any order; `lost`: it finds
    none of them any more."""
    log = Log()
    log.begin()
    log.events.append(Ddl("bank", "ALTER TABLE entry EXCHANGE PARTITION p", log._next(), 7, 5))
    for table, count in rows.items():
        count = 0 if lost else count
        last = table == list(rows)[-1]
        log.events.append(Refill(("bank", table), count, last, log.at, 7, 5))
        ids = rng.sample(range(count), count)
        for n, id_ in enumerate(ids):
            log.events.append(RowChange(("bank", table), "c", None, row(id_), log.at, n, 7, 5))
    log.commit()
    return log.events


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ({"entry": 3}, False),
        ({"entry": 3}, True),
        ({"entry": 0}, False),
        ({"entry": 3, "loose": 2}, False),
    ],
)
def test_a_table_that_is_told_anew_is_whole_wherever_the_capture_was_broken_off(
    rows: dict[str, int], lost: bool
) -> None:
    """The second start finds the rows in another order, or none since the table has gone."""
    rng = random.Random(4)
    for cut in range(1, len(refilled(rng, rows))):
        first = LogPublisher(ENVELOPE, TABLES, START)
        messages = published(first, refilled(rng, rows)[:cut])
        progress = first.progress
        second = LogPublisher(ENVELOPE, TABLES, progress)
        messages += published(second, refilled(rng, rows, lost))
        told = values(messages, ENVELOPE.transaction_topic)
        assert [one["status"] for one in told] == ["BEGIN", "END"], cut
        changes = [
            (json.loads(v), name) for name, _, v in messages if name.startswith("shop.bank.") and v
        ]
        orders = [one["transaction"]["total_order"] for one, _ in changes]
        assert orders == list(range(1, len(orders) + 1)) and told[1]["event_count"] == len(orders)
        held: dict[str, list[int]] = {}
        for one, name in changes:
            if one["op"] == "t":
                held[name] = []
            else:
                held[name].append(one["after"]["id"])
        for table, count in rows.items():
            got = sorted(held[f"shop.bank.{table}"])
            assert got == ([] if lost else list(range(count))), (cut, table)
        counts = {one["data_collection"]: one["event_count"] for one in told[1]["data_collections"]}
        for table in rows:
            assert counts[f"bank.{table}"] == sum(name.endswith(table) for _, name in changes)
