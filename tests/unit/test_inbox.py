"""What a stage takes from its topics: each message once, in order, from the newest producer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streaming.errors import FrescoError
from streaming.messages import Message, Suspend, encode
from streaming.runtime.inbox import Inbox
from streaming.runtime.kafka import headers
from streaming.runtime.step import Outgoing

TOPIC = "bank.actions.bank"


def message(number: int) -> Message:
    return Suspend(group="bank", view="balance", after=number, error={"code": "X"})


def record(sequence: int, producer: str = "view:balance", generation: int = 1) -> dict[str, Any]:
    """A record as Spark's Kafka source gives it; the message says its sequence."""
    body = encode(message(sequence)).decode()
    outgoing = Outgoing(
        topic=TOPIC, sequence=sequence, first=sequence, last=sequence, kind="suspend", body=body
    )
    fields = headers("bank", producer, generation, outgoing)
    return {
        "topic": TOPIC,
        "partition": 0,
        "offset": 40 + sequence,
        "value": body.encode(),
        "headers": [{"key": key, "value": value} for key, value in fields],
    }


def taken(inbox: Inbox, *records: dict[str, Any]) -> list[int]:
    found = inbox.take(pa.Table.from_pylist(list(records)))
    return [one.after for one in found if isinstance(one, Suspend)]


def refused(inbox: Inbox, *records: dict[str, Any]) -> FrescoError:
    """The error, after which the inbox is as it was."""
    before = inbox.snapshot()
    with pytest.raises(FrescoError) as caught:
        inbox.take(pa.Table.from_pylist(list(records)))
    assert inbox.snapshot() == before
    return caught.value


def with_header(name: str, value: bytes | None) -> dict[str, Any]:
    made = record(1)
    kept = [item for item in made["headers"] if item["key"] != name]
    return made | {"headers": [*kept, {"key": name, "value": value}]}


def test_messages_come_in_the_order_of_the_topic() -> None:
    assert taken(Inbox(), record(1), record(2), record(3)) == [1, 2, 3]


def test_records_are_put_into_the_order_of_the_topic_first() -> None:
    assert taken(Inbox(), record(3), record(1), record(2)) == [1, 2, 3]


def test_a_repeated_message_is_dropped_within_a_batch_and_after_it() -> None:
    inbox = Inbox()
    assert taken(inbox, record(1), record(1), record(2), record(1), record(2)) == [1, 2]
    assert taken(inbox, record(1), record(2), record(3)) == [3]


def test_what_was_seen_survives_a_restart() -> None:
    inbox = Inbox()
    taken(inbox, record(1), record(2))
    assert taken(Inbox(inbox.snapshot()), record(2), record(3)) == [3]


def test_a_snapshot_stands_still_while_the_inbox_goes_on() -> None:
    inbox = Inbox()
    taken(inbox, record(1))
    snapshot = inbox.snapshot()
    taken(inbox, record(2))
    assert snapshot == {f"{TOPIC} view:balance": (1, 1)}


def test_each_producer_and_topic_has_sequences_of_its_own() -> None:
    inbox = Inbox()
    other = record(1) | {"topic": "bank.rel.bank"}
    assert taken(inbox, record(1), record(1, producer="view:total"), other) == [1, 1, 1]
    assert len(inbox.snapshot()) == 3


def test_a_gap_is_refused_with_the_place_and_what_is_missing() -> None:
    error = refused(Inbox(), record(1), record(3))
    assert error.code == "KAFKA_SEQUENCE_GAP"
    assert error.what == "message 3 of view:balance follows 1"
    assert error.where == f"topic {TOPIC}, partition 0, offset 43"
    assert error.todo


def test_a_topic_that_has_lost_its_first_message_is_refused() -> None:
    assert refused(Inbox(), record(2)).code == "KAFKA_SEQUENCE_GAP"


def test_a_newer_generation_repeats_and_goes_on() -> None:
    inbox = Inbox()
    assert taken(inbox, record(1), record(2)) == [1, 2]
    assert taken(inbox, record(2, generation=3), record(3, generation=3)) == [3]
    assert inbox.snapshot() == {f"{TOPIC} view:balance": (3, 3)}


def test_an_older_generation_is_dropped_even_with_the_next_sequence() -> None:
    """A driver that was paused and wakes up: what it sends, its successor sends too."""
    inbox = Inbox()
    taken(inbox, record(1, generation=2))
    assert taken(inbox, record(2, generation=1)) == []
    assert taken(inbox, record(2, generation=2)) == [2]


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"type": "rel"}', b"\xff\xfe", None])
def test_a_damaged_body_is_named_with_its_place(value: bytes | None) -> None:
    error = refused(Inbox(), record(1) | {"value": value})
    assert error.code == "KAFKA_MESSAGE_DAMAGED"
    assert error.where == f"topic {TOPIC}, partition 0, offset 41"
    assert "\n" not in error.what


@pytest.mark.parametrize("name", ["producer", "sequence", "generation", "format"])
def test_a_missing_header_is_named_with_its_place(name: str) -> None:
    made = record(1)
    made["headers"] = [item for item in made["headers"] if item["key"] != name]
    error = refused(Inbox(), record(1, producer="view:total"), made)
    assert error.code == "KAFKA_MESSAGE_DAMAGED"
    assert name in error.what


@pytest.mark.parametrize(
    "made",
    [
        record(1) | {"headers": None},
        record(1) | {"headers": []},
        with_header("sequence", b"one"),
        with_header("generation", None),
        with_header("producer", b"\xff"),
        with_header("format", b"2"),
    ],
    ids=["null", "none", "not a number", "no value", "not text", "another format"],
)
def test_damaged_headers_are_refused(made: dict[str, Any]) -> None:
    assert refused(Inbox(), record(1, producer="view:x"), made).code == "KAFKA_MESSAGE_DAMAGED"


def test_an_empty_batch_is_nothing() -> None:
    empty = pa.Table.from_pylist([record(1)]).slice(0, 0)
    assert Inbox().take(empty) == []
