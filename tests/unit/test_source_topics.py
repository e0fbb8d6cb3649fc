"""The topics of a source: names that clash, partitions, and what Kafka deletes (oddities 21 and 36)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from streaming.captured.captured_schema import CapturedSource, captured
from streaming.captured.source_topics import WEEK_MS, TopicFacts, check_names, check_topics
from streaming.errors import FrescoError
from tests.intakeworld import insert, key_change, make, net, relations, row
from tests.sourcelog import Record, SourceLog, Topics

PLAIN = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
SOURCE = CapturedSource("north", "north")
TOPICS = [one.topic for one in relations()] + ["north.transaction", "north.notifications"]


def found(source: CapturedSource = SOURCE, **odd: TopicFacts) -> list[tuple[str, str, str]]:
    """(topic, level, code) of what is found where the topics in `odd` (dots as __) are not plain."""
    facts = {topic: TopicFacts(1, PLAIN) for topic in TOPICS}
    facts |= {topic.replace("__", "."): fact for topic, fact in odd.items()}
    checks = check_topics([source], relations(), facts)
    return [(one.check.removeprefix("topic "), one.level, one.code) for one in checks]


def test_plain_topics_are_right_and_so_are_rows_in_many_partitions() -> None:
    assert found() == []
    assert found(north__public__entry=TopicFacts(3, PLAIN)) == []


@pytest.mark.parametrize("topic", ["north__transaction", "north__notifications"])
def test_oddity_21_an_ordered_topic_of_three_partitions_is_refused(topic: str) -> None:
    told = [(topic.replace("__", "."), "wrong", "KAFKA_PARTITIONS")]
    assert found(**{topic: TopicFacts(3, PLAIN)}) == told


def test_topics_that_a_source_does_not_use_may_be_as_they_like() -> None:
    each = replace(SOURCE, transactions="per-event", snapshot=False)
    three = TopicFacts(3, PLAIN)
    assert found(each, north__transaction=three, north__notifications=three) == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("topic", [one.replace(".", "__") for one in TOPICS])
def test_a_compacted_topic_is_refused(topic: str, policy: str) -> None:
    told = [(topic.replace("__", "."), "wrong", "KAFKA_COMPACTED")]
    assert found(**{topic: TopicFacts(1, {**PLAIN, "cleanup.policy": policy})}) == told


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("retention.ms", str(WEEK_MS), []),
        ("retention.ms", str(WEEK_MS - 1), ["KAFKA_RETENTION"]),
        ("retention.bytes", "1000000", ["KAFKA_RETENTION"]),
    ],
)
def test_a_topic_that_forgets_soon_is_warned_of(setting: str, value: str, told: list[str]) -> None:
    checks = found(north__transaction=TopicFacts(1, {**PLAIN, setting: value}))
    assert checks == [("north.transaction", "warning", code) for code in told]


def test_settings_that_may_not_be_read_are_no_fault() -> None:
    assert found(north__transaction=TopicFacts(1, {})) == []


# Names ------------------------------------------------------------------------------------------


def table(source: str, name: str, topic: str) -> Any:
    return captured(f"{source}.{name}", topic, [("id", "int4")], collection=f"public.{name}")


def test_oddity_36_two_tables_of_one_topic_are_refused_by_name() -> None:
    one, other = (table("north", name, "north.public.a_b") for name in ("a b", "a_b"))
    with pytest.raises(FrescoError, match="SOURCE_TOPIC_CLASH") as refused:
        check_names([SOURCE], [one, other])
    assert all(name in refused.value.what for name in ("public.a b", "public.a_b"))


def test_two_sources_of_one_prefix_are_refused() -> None:
    with pytest.raises(FrescoError, match=r"source north.*source south"):
        check_names([SOURCE, CapturedSource("south", "north")], [])


def test_topics_of_their_own_are_right() -> None:
    check_names([SOURCE, CapturedSource("south", "south")], relations())


# Partitions -------------------------------------------------------------------------------------


def test_oddity_21_a_transaction_topic_that_gets_partitions_later_ends_the_step() -> None:
    batch = Topics().batch(SourceLog("north").commit([insert("account", 1)]))
    moved = pa.array([int(topic.endswith("transaction")) for topic in batch["topic"].to_pylist()])
    intake = make()
    with pytest.raises(FrescoError, match=r"KAFKA_PARTITIONS.*north\.transaction"):
        intake.step(batch.set_column(1, "partition", moved.cast(pa.int32())), 0)
    assert intake.step(batch, 0).last == 1, "the state is as before"


def history(rng: random.Random) -> list[list[Record]]:
    """Transactions over two tables: many rows, keys that change, rows that come again, TRUNCATE."""
    log, told, next_id = SourceLog("north"), [], 1
    live: list[int] = []
    for _ in range(rng.randrange(4, 12)):
        kind = rng.random()
        if kind < 0.1:
            told.append(log.commit([("account", "t", None, None), insert("account", next_id)]))
            live = [next_id]
            next_id += 1
        elif kind < 0.3 and live:
            old = live.pop(rng.randrange(len(live)))
            log.transaction += 1
            moved = key_change(log, row(old), row(next_id))
            log.lsn += 20
            key = str(log.transaction)
            told.append([log.begin(key), *moved, log.end(key, {"account": 2})])
            live.append(next_id)
            next_id += 1
        else:
            changes = []
            for _ in range(rng.randrange(1, 6)):
                changes += [insert("account", next_id), insert("entry", rng.randrange(3))]
                live.append(next_id)
                next_id += 1
            if len(live) > 2:
                gone = live.pop(0)
                changes.append(("account", "d", row(gone), None))
            told.append(log.commit(changes))
    return told


def scattered(records: list[Record], rng: random.Random, partitions: int) -> list[pa.Table]:
    """The records in batches: each topic's rows over partitions, in adverse order.

    Not even a row's own events share a partition. Each partition keeps its order, and the partitions
    are read at their own speeds: one may be far ahead of another, and of the ENDs.
    """
    batch, placed, ends = Topics().batch(records), [], Counter[tuple[str, int]]()
    for one in batch.to_pylist():
        partition = 0
        if not one["topic"].endswith(".transaction"):
            partition = crc32(one["value"] or b"") % partitions
        place = (one["topic"], partition)
        placed.append(one | {"partition": partition, "offset": ends[place]})
        ends[place] += 1
    queues = [[r for r in placed if (r["topic"], r["partition"]) == place] for place in ends]
    batches, rows = [], []
    while any(queues):
        queue = rng.choice([one for one in queues if one])
        for _ in range(rng.randrange(1, 8)):
            if queue:
                rows.append(queue.pop(0))
        if rng.random() < 0.3:
            batches.append(pa.Table.from_pylist(rows, schema=batch.schema))
            rows = []
    return [*batches, pa.Table.from_pylist(rows, schema=batch.schema)]


@pytest.mark.parametrize("seed", range(12))
def test_rows_may_lie_in_any_partition_and_come_in_any_order(seed: int) -> None:
    """The oracle is the same log in topics of one partition, read in one go and in commit order."""
    rng = random.Random(seed)
    records = [record for told in history(rng) for record in told]
    wanted = net(make().step(Topics().batch(records), 0))
    intake = make()
    results = [intake.step(batch, 0) for batch in scattered(records, rng, 3)]
    assert net(*results) == wanted
    assert results[-1].incomplete == {} and not any(result.bad for result in results)
