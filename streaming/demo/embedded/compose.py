"""Renders docker-compose.yml: the embedded stack's parts and settings, for people with docker.

`python -m streaming.demo.embedded.compose` writes the file; a test checks that the one in the repository
is what this module renders. Every port is bound to the loopback address, every password comes from
the environment and has no default.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from streaming.demo.embedded.parts import (
    BROKER_SETTINGS,
    CONNECT_IMAGE,
    DATABASES,
    ENVIRONMENT_PROVIDER,
    GRAFANA_IMAGE,
    KAFKA_IMAGE,
    MARIADB_IMAGE,
    MARIADB_SETTINGS,
    MARIADB_USER,
    METRICS_PORT,
    PASSWORD_VARIABLE,
    POSTGRES_IMAGE,
    POSTGRES_INITDB_OPTIONS,
    POSTGRES_SETTINGS,
    POSTGRES_USER,
    PROMETHEUS_IMAGE,
    PYTHON_IMAGE,
    WORKER_SETTINGS,
)

COMPOSE_FILE = Path("docker-compose.yml")

_HEADER = """\
# Written by `python -m streaming.demo.embedded.compose`; change the settings in
# streaming/demo/embedded/parts.py. Start it with passwords of your own (the first becomes part of
# a URL: letters and digits):
#   POSTGRES_PASSWORD=... GRAFANA_PASSWORD=... docker compose up --build
"""
_INSIDE = "kafka:19092"
_PASSWORD = f"${{{PASSWORD_VARIABLE}:?set a password for PostgreSQL}}"
_DOCKERFILE = f"""\
FROM {PYTHON_IMAGE}
RUN apt-get update \\
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \\
 && rm -rf /var/lib/apt/lists/*
ENV FRESCO_CACHE=/opt/fresco/cache
WORKDIR /opt/fresco
COPY pyproject.toml constraints.txt README.md ./
COPY streaming streaming
RUN pip install --no-cache-dir -c constraints.txt . && python -m streaming.spark.jars
COPY conf conf
RUN useradd fresco && mkdir /warehouse && chown fresco /warehouse
USER fresco
"""


def environment_names(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as the images of Kafka and Connect read them: a.b.c becomes PREFIX_A_B_C."""
    return {f"{prefix}_{key.upper().replace('.', '_')}": value for key, value in settings.items()}


def render() -> str:
    """The text of docker-compose.yml."""
    services = {
        "kafka": _kafka(),
        "postgres": _postgres(),
        "mariadb": _mariadb(),
        "connect": _connect(),
        "register": _register(),
        "fresco": _fresco(),
        "prometheus": _prometheus(),
        "grafana": _grafana(),
    }
    volumes: dict[str, Any] = {
        name: {}
        for name in ("kafka-data", "postgres-data", "mariadb-data", "warehouse", "grafana-data")
    }
    document = {"name": "fresco", "services": services, "volumes": volumes}
    return _HEADER + yaml.safe_dump(document, sort_keys=False, width=96)


def _kafka() -> dict[str, Any]:
    node = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "INSIDE://:19092,HOST://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"INSIDE://{_INSIDE},HOST://127.0.0.1:9092",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "log.dirs": "/var/lib/kafka/data",
    }
    return {
        "image": KAFKA_IMAGE,
        "environment": environment_names("KAFKA", node | dict(BROKER_SETTINGS)),
        "ports": ["127.0.0.1:9092:9092"],
        "volumes": ["kafka-data:/var/lib/kafka/data"],
        "healthcheck": _check(
            f"/opt/kafka/bin/kafka-topics.sh --bootstrap-server {_INSIDE} --list"
        ),
    }


def _postgres() -> dict[str, Any]:
    command = ["postgres"]
    for name, value in POSTGRES_SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    return {
        "image": POSTGRES_IMAGE,
        "command": command,
        "environment": {
            "POSTGRES_USER": POSTGRES_USER,
            "POSTGRES_PASSWORD": _PASSWORD,
            "POSTGRES_INITDB_ARGS": " ".join(POSTGRES_INITDB_OPTIONS),
        },
        "ports": ["127.0.0.1:5432:5432"],
        "volumes": ["postgres-data:/var/lib/postgresql"],
        "healthcheck": _check(f"pg_isready -h 127.0.0.1 -U {POSTGRES_USER}"),
    }


def _mariadb() -> dict[str, Any]:
    """A source for `fresco capture`; no part of the demo, so it starts under its profile alone."""
    return {
        "image": MARIADB_IMAGE,
        "profiles": ["mariadb"],
        "command": [f"--{name}={value}" for name, value in MARIADB_SETTINGS.items()],
        "environment": {
            "MARIADB_RANDOM_ROOT_PASSWORD": "yes",
            "MARIADB_USER": MARIADB_USER,
            "MARIADB_PASSWORD": _PASSWORD,
            "MARIADB_DATABASE": "store",
        },
        "ports": ["127.0.0.1:3306:3306"],
        "volumes": ["mariadb-data:/var/lib/mysql"],
        "healthcheck": _check("healthcheck.sh --connect --innodb_initialized"),
    }


def _connect() -> dict[str, Any]:
    providers = {
        "config.providers": "env",
        "config.providers.env.class": ENVIRONMENT_PROVIDER,
        "config.providers.env.param.allowlist.pattern": PASSWORD_VARIABLE,
    }
    return {
        "image": CONNECT_IMAGE,
        "depends_on": _after("kafka", "postgres"),
        "environment": {
            "BOOTSTRAP_SERVERS": _INSIDE,
            "GROUP_ID": "fresco-connect",
            "CONFIG_STORAGE_TOPIC": "connect.configs",
            "OFFSET_STORAGE_TOPIC": "connect.offsets",
            "STATUS_STORAGE_TOPIC": "connect.statuses",
            # The image reads the converters without the prefix, and overrides them if unset.
            "KEY_CONVERTER": WORKER_SETTINGS["key.converter"],
            "VALUE_CONVERTER": WORKER_SETTINGS["value.converter"],
            **environment_names("CONNECT", dict(WORKER_SETTINGS) | providers),
            PASSWORD_VARIABLE: _PASSWORD,
        },
        "ports": ["127.0.0.1:8083:8083"],
        "healthcheck": _check("curl -sf http://localhost:8083/connectors"),
    }


def _register() -> dict[str, Any]:
    return {
        "build": {"context": ".", "dockerfile_inline": _DOCKERFILE},
        "image": "fresco:local",
        "command": ["python", "-m", "streaming.demo.embedded.register"],
        "restart": "no",
        "depends_on": _after("kafka", "postgres", "connect"),
        "environment": {
            "FRESCO_KAFKA": _INSIDE,
            "FRESCO_CONNECT": "http://connect:8083",
            "FRESCO_POSTGRES": "postgres:5432",
            PASSWORD_VARIABLE: _PASSWORD,
        },
    }


def _fresco() -> dict[str, Any]:
    databases = {
        f"FRESCO_{name.upper()}": f"postgresql://{POSTGRES_USER}:{_PASSWORD}@postgres:5432/{name}"
        for name in DATABASES
    }
    return {
        "image": "fresco:local",
        "command": ["fresco", "run", "--config", "conf/bank.yaml"],
        "depends_on": {"register": {"condition": "service_completed_successfully"}},
        "environment": {
            "FRESCO_KAFKA": _INSIDE,
            "FRESCO_CONNECT": "http://connect:8083",
            "FRESCO_WAREHOUSE": "/warehouse",
            "FRESCO_METRICS_HOST": "0.0.0.0",
            "FRESCO_METRICS_PORT": str(METRICS_PORT),
            **databases,
        },
        "ports": [f"127.0.0.1:{METRICS_PORT}:{METRICS_PORT}"],
        "volumes": ["warehouse:/warehouse"],
        "restart": "on-failure",
    }


def _prometheus() -> dict[str, Any]:
    return {
        "image": PROMETHEUS_IMAGE,
        "ports": ["127.0.0.1:9090:9090"],
        "volumes": [
            f"./conf/{name}:/etc/prometheus/{name}:ro" for name in ("prometheus.yml", "alerts.yml")
        ],
    }


def _grafana() -> dict[str, Any]:
    return {
        "image": GRAFANA_IMAGE,
        "depends_on": ["prometheus"],
        "environment": {
            "GF_SECURITY_ADMIN_PASSWORD": "${GRAFANA_PASSWORD:?set a password for Grafana}",
            "GF_USERS_ALLOW_SIGN_UP": "false",
        },
        "ports": ["127.0.0.1:3000:3000"],
        "volumes": ["./conf/grafana:/etc/grafana/provisioning:ro", "grafana-data:/var/lib/grafana"],
    }


def _check(command: str) -> dict[str, Any]:
    return {
        "test": ["CMD-SHELL", command],
        "interval": "5s",
        "timeout": "10s",
        "retries": 30,
        "start_period": "20s",
    }


def _after(*services: str) -> dict[str, Any]:
    return {service: {"condition": "service_healthy"} for service in services}


if __name__ == "__main__":
    COMPOSE_FILE.write_text(render())
    print(f"wrote {COMPOSE_FILE}", file=sys.stderr)
