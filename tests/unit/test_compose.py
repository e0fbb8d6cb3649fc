"""docker-compose.yml is the embedded stack in another form: same versions, same settings."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from streaming.captured.captured_schema import CapturedSource
from streaming.captured.source_topics import TopicFacts, check_topics
from streaming.cdc.connector_settings import Wanted, check_connector
from streaming.demo.embedded import (
    compose,
    connect_worker,
    kafka_broker,
    mariadb_server,
    parts,
    postgres_server,
    register,
    stack,
)
from streaming.spark.artifacts import DEBEZIUM_SET

ROOT = Path(__file__).parents[2]


@pytest.fixture
def services() -> dict[str, Any]:
    """The services of the file in the repository."""
    document = yaml.safe_load((ROOT / compose.COMPOSE_FILE).read_text())
    return dict(document["services"])


def test_the_file_in_the_repository_is_what_the_module_renders() -> None:
    assert (ROOT / compose.COMPOSE_FILE).read_text() == compose.render()


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("BROKER_SETTINGS", (compose, kafka_broker)),
        ("POSTGRES_SETTINGS", (compose, postgres_server)),
        ("POSTGRES_INITDB_OPTIONS", (compose, postgres_server)),
        ("MARIADB_SETTINGS", (compose, mariadb_server)),
        ("WORKER_SETTINGS", (compose, connect_worker)),
        ("connector_config", (register, stack)),
        ("bank_sources", (register, stack)),
    ],
)
def test_both_stacks_use_the_same_object(name: str, users: tuple[ModuleType, ModuleType]) -> None:
    described = getattr(parts, name)
    assert all(getattr(user, name) is described for user in users)


def test_every_server_setting_reaches_its_container(services: dict[str, Any]) -> None:
    broker = compose.environment_names("KAFKA", parts.BROKER_SETTINGS)
    assert broker.items() <= services["kafka"]["environment"].items()
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert int(broker["KAFKA_MESSAGE_MAX_BYTES"]) >= 16 << 20
    worker = compose.environment_names("CONNECT", parts.WORKER_SETTINGS)
    assert worker.items() <= services["connect"]["environment"].items()
    command = services["postgres"]["command"]
    for name, value in parts.POSTGRES_SETTINGS.items():
        assert f"{name}={value}" in command
    assert "wal_level=logical" in command
    command = services["mariadb"]["command"]
    assert {f"--{name}={value}" for name, value in parts.MARIADB_SETTINGS.items()} == set(command)
    assert {"--binlog-format=ROW", "--binlog-row-metadata=FULL"} < set(command)


def test_images_carry_the_versions_of_the_embedded_stack(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"].endswith(f":{parts.KAFKA_VERSION}")
    assert services["connect"]["image"].endswith(f":{parts.DEBEZIUM_VERSION}")
    versions = {one.version for one in DEBEZIUM_SET.artifacts}
    assert versions == {parts.DEBEZIUM_VERSION}


def test_ports_are_on_the_loopback_address_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_passwords_come_from_the_environment_without_a_default(services: dict[str, Any]) -> None:
    text = (ROOT / compose.COMPOSE_FILE).read_text()
    references = re.findall(r"\$\{\w*PASSWORD\w*([^}]*)\}", text)
    assert len(references) >= 5
    assert all(reference.startswith(":?") for reference in references)
    settings = services["postgres"]["environment"]
    assert settings[parts.PASSWORD_VARIABLE].startswith("${")


def test_prometheus_scrapes_the_fresco_service(services: dict[str, Any]) -> None:
    settings = yaml.safe_load((ROOT / "conf" / "prometheus.yml").read_text())
    (job,) = settings["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"fresco:{parts.METRICS_PORT}"]
    assert job["metrics_path"] == "/metrics"
    assert any("prometheus.yml" in volume for volume in services["prometheus"]["volumes"])
    for volume in services["prometheus"]["volumes"] + services["grafana"]["volumes"]:
        source = volume.split(":")[0]
        assert not source.startswith("./") or (ROOT / source).exists()


def test_a_connector_loses_nothing_by_its_options() -> None:
    source = parts.StackSource("north", options=(("snapshot.mode", "no_data"),))
    config = parts.connector_config(
        source, host="h", port=1, user="u", password="${file:f:password}"
    )
    assert config["provide.transaction.metadata"] == "true"
    assert config["skipped.operations"] == "none"
    assert config["decimal.handling.mode"] == "string"
    assert config["tombstones.on.delete"] == "true"
    assert config["plugin.name"] == "pgoutput"
    assert config["topic.creation.default.partitions"] == "1"
    assert config["notification.sink.topic.name"] == source.notification_topic
    assert config["snapshot.mode"] == "no_data"
    assert config["value.converter.schemas.enable"] == "false"
    assert "public.fresco_global" in config["table.include.list"].split(",")


def test_the_docker_stack_passes_its_own_doctor(services: dict[str, Any]) -> None:
    """Its connectors, its topics and who tells of the connectors, without a warning."""
    for source in parts.bank_sources():
        wanted = Wanted(
            source.name,
            source.name,
            source.notification_topic,
            source.tables,
            (),
            decimals="string",
        )
        config = parts.connector_config(
            source, host="postgres", port=5432, user="u", password="${env:P}"
        )
        assert [one.level for one in check_connector("c", config, wanted)] == ["ok"]
        captured = CapturedSource(source.name, source.name)
        facts = {topic: TopicFacts(1, parts.TOPIC_SETTINGS) for topic in source.topics}
        assert list(check_topics([captured], [], facts)) == []
    assert services["fresco"]["environment"]["FRESCO_CONNECT"] == "http://connect:8083"
    bank = yaml.safe_load((ROOT / "conf" / "bank.yaml").read_text())
    assert all("FRESCO_CONNECT" in one["connect"] for one in bank["sources"].values())
