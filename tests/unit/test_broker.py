"""What the broker must hold before a service starts, and where a stage begins to read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from streaming.configuration.pipeline_config import parse_config
from streaming.errors import FrescoError
from streaming.runtime.kafka import Broker, Topics
from streaming.runtime.kafka_clients import client_options, spark_options


class Cluster:
    """A consumer that answers from a table: topic -> (earliest, latest) of its one partition."""

    slow_ms = 0
    """How long it takes to answer."""

    def __init__(self, held: dict[str, tuple[int, int]]) -> None:
        self._held = held

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic in self._held else None

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self._held[one.topic][0] for one in partitions}

    def end_offsets(
        self, partitions: list[TopicPartition], timeout_ms: int = 30_000
    ) -> dict[TopicPartition, int]:
        if self.slow_ms > timeout_ms:
            raise KafkaTimeoutError(f"no answer in {timeout_ms} ms")
        return {one: self._held[one.topic][1] for one in partitions}

    def list_topics(self) -> list[str]:
        return list(self._held)


def config(warehouse: Path | str = "w", **kafka: Any) -> Any:
    raw = {"pipeline": "bank", "warehouse": str(warehouse), "views": "v", "kafka": kafka}
    return parse_config(raw | {"sources": {"north": {"tables": {}}}}, folder="/p")  # type: ignore[arg-type]


def broker(held: dict[str, tuple[int, int]], warehouse: Path | str = "w") -> Broker:
    made = Broker.__new__(Broker)
    made.config = config(warehouse)
    made._admin = made._consumer = Cluster(held)
    made._lock = threading.RLock()
    return made


def test_topics_are_named_after_pipeline_and_group() -> None:
    assert Topics("bank").of_group("g") == ("bank.updates.g", "bank.rel.g", "bank.actions.g")


def test_nobody_listening_is_a_coded_error_with_the_place() -> None:
    with pytest.raises(FrescoError) as caught:
        Broker(config(bootstrap="127.0.0.1:1", options={"bootstrap.timeout.ms": "300"}))
    assert caught.value.code == "KAFKA_UNREACHABLE"
    assert caught.value.where == "127.0.0.1:1"


def test_a_missing_source_topic_is_named_with_what_makes_it() -> None:
    with pytest.raises(FrescoError) as caught:
        broker({"a": (0, 0)}).require_source_topics(["a", "c", "b"])
    assert caught.value.code == "KAFKA_TOPIC_MISSING"
    assert "b, c" in caught.value.what
    assert "create_source_topics" in caught.value.todo


def test_a_stage_begins_after_what_it_has_consumed_and_else_at_the_earliest() -> None:
    found = broker({"a": (5, 20), "b": (3, 9)}).starting_offsets(["a", "b"], {"a:0": 12})
    assert found == {"a": {"0": 12}, "b": {"0": 3}}


def test_a_broker_that_is_away_is_not_waited_for_as_long_as_an_answer_may_take() -> None:
    """A stage that is started again would hold up the others' watch, and a stop."""
    there = broker({"a": (5, 20)})
    there.reach(["a"])
    there._consumer.slow_ms = 20_000
    assert there.ends(["a"]) == {"a:0": 20}
    with pytest.raises(KafkaTimeoutError):
        there.reach(["a"])


def test_a_stage_may_have_consumed_everything() -> None:
    assert broker({"a": (5, 20)}).starting_offsets(["a"], {"a:0": 20}) == {"a": {"0": 20}}


@pytest.mark.parametrize("consumed", [4, 21], ids=["expired", "made anew"])
def test_a_record_that_is_needed_and_gone_is_a_coded_error(consumed: int) -> None:
    with pytest.raises(FrescoError) as caught:
        broker({"a": (5, 20)}).starting_offsets(["a"], {"a:0": consumed})
    assert caught.value.code == "KAFKA_EXPIRED"
    assert caught.value.where == "a:0"
    assert str(consumed) in caught.value.what


def test_a_new_warehouse_does_not_take_the_messages_of_another_for_its_own(tmp_path: Path) -> None:
    topics = Topics("bank").of_group("g")
    broker(dict.fromkeys(topics, (0, 0)), warehouse=tmp_path).claim(topics)
    another = broker(dict.fromkeys(topics, (0, 0)) | {topics[1]: (7, 7)}, warehouse=tmp_path)
    with pytest.raises(FrescoError, match=r"bank\.rel\.g") as caught:
        another.claim(topics)
    assert caught.value.code == "KAFKA_TOPICS_USED"
    manifests = tmp_path / "_state" / "integrator" / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "000000000001.json").touch()
    another.claim(topics)  # this warehouse's own


def test_client_properties_reach_every_client() -> None:
    options = {"security.protocol": "SSL", "request.timeout.ms": "900"}
    made = config(bootstrap="a:1,b:2", options=options)
    assert client_options(made) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "bootstrap_timeout_ms": 10_000,
        "reconnect_backoff_max_ms": 1_000,
        "security_protocol": "SSL",
        "request_timeout_ms": 900,
    }
    spark = spark_options(made)
    assert spark["kafka.bootstrap.servers"] == "a:1,b:2"
    assert spark["kafka.security.protocol"] == "SSL"
    assert spark["kafka.isolation.level"] == "read_committed"
    assert spark["failOnDataLoss"] == "true"


def test_a_user_and_password_are_given_to_each_client_in_its_own_way() -> None:
    made = config(
        options={"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"'}
    )
    python, spark = client_options(made), spark_options(made)
    assert (python["sasl_plain_username"], python["sasl_plain_password"]) == ("u", 'p"')
    assert spark["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="u" password="p\\"";'
    )
    assert not {"kafka.sasl.username", "kafka.sasl.password"} & set(spark)


def test_an_authority_is_given_to_each_client_in_its_own_way() -> None:
    made = config(options={"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"})
    assert client_options(made)["ssl_cafile"] == "/ca.pem"
    spark = spark_options(made)
    assert spark["kafka.ssl.truststore.type"] == "PEM"
    assert spark["kafka.ssl.truststore.location"] == "/ca.pem"
    assert "kafka.ssl.ca.location" not in spark


@pytest.mark.parametrize("key", ["sasl.jaas.config", "no.such.property"])
def test_a_property_that_a_client_does_not_know_is_no_absent_broker(key: str) -> None:
    with pytest.raises(
        FrescoError, match=f"CONFIG_VALUE.*{key}|CONFIG_VALUE.*no_such_prop"
    ) as found:
        Broker(config(bootstrap="127.0.0.1:1", options={key: "password=s3cret-word"}))
    assert found.value.where == "kafka.options" and "s3cret-word" not in str(found.value)
