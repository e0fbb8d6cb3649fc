"""What a source's topics must be like: their names, partitions and what Kafka deletes from them.

ENDs and notifications mean something by their order alone: an END at or below the highest seen is a
repeat (`log`), and a topic has an order within one partition only. Rows may lie in any partition: a
transaction's rows are ordered by their own total order, and nothing of it is taken before all are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.captured.checked import Checked, Rule
from streaming.errors import FrescoError

WEEK_MS = 7 * 86_400_000
"""A service may be away so long, by Kafka's own default, before events it needs are deleted."""

SEVERAL_PARTITIONS = Rule(
    "KAFKA_PARTITIONS",
    "wrong",
    "a topic whose order means something (`<prefix>.transaction`, the notifications) with more than one"
    " partition; rows may lie in any",
)
COMPACTED = Rule(
    "KAFKA_COMPACTED", "wrong", "a topic that Kafka compacts: all but a key's last event goes"
)
RETENTION = Rule(
    "KAFKA_RETENTION", "warning", "a topic that keeps events for less than a week, or by its size"
)
CLASH = Rule(
    "SOURCE_TOPIC_CLASH", "wrong", 'two tables with one topic, as `"a b"` and `a_b`, or two sources'
)
RULES = (SEVERAL_PARTITIONS, COMPACTED, RETENTION, CLASH)


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the broker describes it.

    Attributes:
        settings: Kafka's names and values, defaults included; empty where they may not be read.
    """

    partitions: int
    settings: Mapping[str, str]


def capture_topic(prefix: str) -> str:
    """Where `fresco capture` keeps how far it has come."""
    return f"{prefix}.capture"


def check_names(sources: Sequence[CapturedSource], relations: Sequence[CapturedRelation]) -> None:
    """Refuse topics that would hold the records of two tables, or of two sources.

    Raises:
        FrescoError: SOURCE_TOPIC_CLASH.
    """
    owners: dict[str, str] = {}
    of_sources = [
        (topic, f"source {source.name}")
        for source in sources
        for topic in dict.fromkeys((source.transaction_topic, source.notification_topic))
    ]
    of_tables = [(one.topic, f"table {one.counted_as} of source {one.source}") for one in relations]
    for topic, owner in (*of_sources, *of_tables):
        if topic in owners:
            raise FrescoError(
                CLASH.code,
                f"{owners[topic]} and {owner} have one topic, {topic}: a connector writes '_' for"
                " each character of a name that Kafka does not allow",
                where=f"topic {topic}",
                todo="rename one of the tables, or take one of them out of the configuration and out"
                " of the connector's table.include.list; two sources need prefixes of their own, and"
                " a table that is listed twice is taken once",
            )
        owners[topic] = owner


def check_topics(
    sources: Sequence[CapturedSource],
    relations: Sequence[CapturedRelation],
    facts: Mapping[str, TopicFacts],
) -> Iterator[Checked]:
    """What is wrong or doubtful of the topics that exist."""
    for source in sources:
        ordered = [source.transaction_topic] if source.transactions == "metadata" else []
        ordered += [source.notification_topic] if source.snapshot else []
        for topic in ordered:
            if topic in facts and facts[topic].partitions > 1:
                yield several(topic, facts[topic].partitions)
        rows = [one.topic for one in relations if one.source == source.name]
        for topic in (*ordered, *rows):
            if topic in facts:
                yield from _kept(topic, facts[topic].settings)


def several(topic: str, partitions: int) -> Checked:
    """An ordered topic of more than one partition."""
    return SEVERAL_PARTITIONS.found(
        f"topic {topic}",
        f"has {partitions} partitions, and its records mean something by their order alone:"
        " transactions would be taken for repeats and lost",
        "a topic's partitions cannot become fewer: stop the connector, delete its topics, make this"
        f" one with `kafka-topics.sh --create --partitions 1 --topic {topic}`, let the connector take"
        " its snapshot anew (delete its offsets and its slot), and begin with an empty warehouse;"
        " set topic.creation.default.partitions=1 in the connector",
    )


def _kept(topic: str, settings: Mapping[str, str]) -> Iterator[Checked]:
    alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"
    if "compact" in settings.get("cleanup.policy", ""):
        yield COMPACTED.found(
            f"topic {topic}",
            "is compacted: Kafka deletes all but the last event of a key",
            f"{alter} cleanup.policy=delete; where events are gone already, let the connector take a"
            " new snapshot",
        )
    if 0 < (kept := int(settings.get("retention.ms", "-1"))) < WEEK_MS:
        yield RETENTION.found(
            f"topic {topic}",
            f"keeps events for {kept / 3_600_000:g} hours: a service that is away for longer cannot"
            " go on",
            f"{alter} retention.ms={WEEK_MS}",
        )
    if int(settings.get("retention.bytes", "-1")) > 0:
        yield RETENTION.found(
            f"topic {topic}",
            f"keeps {settings['retention.bytes']} bytes of each partition, read or not",
            f"{alter} retention.bytes=-1",
        )
