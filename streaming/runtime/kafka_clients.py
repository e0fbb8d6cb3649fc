"""The properties of Kafka's clients: `kafka.options` gives each of them what it wants, by its own names.

Spark has Java's client, the stages' producers and consumers are kafka-python's; names of properties are
librdkafka's, which `fresco capture` hands on as they are.
"""

from __future__ import annotations

from typing import Any

from kafka.errors import KafkaConfigurationError, KafkaError

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError

_BOOTSTRAP_MS = 10_000
_RECONNECT_MS = 1_000
"""Most milliseconds between attempts at a broker that is away, as in Java's client."""
_JAAS = "sasl.jaas.config"
_AUTHORITY = "ssl.ca.location"
_PYTHON_NAMES = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    _AUTHORITY: "ssl_cafile",
}
"""kafka-python's names where they are not the property's with underscores."""


def client_options(config: Config) -> dict[str, Any]:
    """Keyword arguments of every kafka-python client; `security.protocol` is `security_protocol`.

    Raises:
        FrescoError: CONFIG_VALUE, a property that only the Java client knows.
    """
    if _JAAS in config.kafka.options:
        raise _option(f"{_JAAS} is a property of the Java client alone")
    given = {key: value.get_secret_value() for key, value in config.kafka.options.items()}
    options: dict[str, Any] = {
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "reconnect_backoff_max_ms": _RECONNECT_MS,
    }
    for key, value in given.items():
        number = key.endswith(".ms")
        options[_PYTHON_NAMES.get(key, key.replace(".", "_"))] = int(value) if number else value
    return {"bootstrap_servers": config.kafka.bootstrap.split(","), **options}


def _option(what: str) -> FrescoError:
    return FrescoError(
        "CONFIG_VALUE",
        what,
        where="kafka.options",
        todo='write sasl.username and sasl.password for a user; see "A Kafka that asks who you are" in'
        " docs/operations.md",
    )


def unreachable(config: Config, error: KafkaError) -> FrescoError:
    """The error of a client that cannot be made: of no broker, or of properties it does not know."""
    if isinstance(error, KafkaConfigurationError):
        return _option(f"a client does not take the properties: {error}")
    return FrescoError(
        "KAFKA_UNREACHABLE",
        f"no broker answers: {error}",
        where=config.kafka.bootstrap,
        todo="start Kafka, or set kafka.bootstrap in the configuration",
    )


def spark_options(config: Config) -> dict[str, str]:
    """Options of Spark's Kafka source for the same cluster; small fetch waits for freshness.

    The Java client takes a user's name and password inside `sasl.jaas.config` only, and a certificate's
    authority as a truststore.
    """
    given = {key: value.get_secret_value() for key, value in config.kafka.options.items()}
    name, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if name is not None and password is not None:
        scram = given.get("sasl.mechanism", "PLAIN").startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in (name, password)]
        given[_JAAS] = (
            f"org.apache.kafka.common.security.{module} required "
            f'username="{quoted[0]}" password="{quoted[1]}";'
        )
    if (authority := given.pop(_AUTHORITY, None)) is not None:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return {
        "kafka.bootstrap.servers": config.kafka.bootstrap,
        "kafka.fetch.max.wait.ms": "10",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **{f"kafka.{key}": value for key, value in given.items()},
    }
