"""Prepares the docker stack, once: databases, the bank, topics and connectors.

`docker compose` runs this as a service that ends. It puts the same connectors as the embedded
stack, through the same interface, and may be run again: what exists stays.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

import psycopg

from streaming.cdc.connect_rest import ConnectRest
from streaming.demo.bank import create_bank
from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import (
    DATABASES,
    PASSWORD_VARIABLE,
    POSTGRES_USER,
    bank_sources,
    connector_config,
)
from streaming.demo.embedded.postgres_server import create_databases
from streaming.errors import FrescoError

_READY_SECONDS = 120


def register(environment: Mapping[str, str]) -> None:
    """Prepare the stack that `environment` names: FRESCO_KAFKA (host:port), FRESCO_CONNECT (URL),
    FRESCO_POSTGRES (host:port) and the password's variable.

    Raises FrescoError EMBEDDED_START_FAILED when a connector does not run in the end.
    """
    host, _, port = environment["FRESCO_POSTGRES"].partition(":")
    password = environment[PASSWORD_VARIABLE]

    def dsn(database: str) -> str:
        return psycopg.conninfo.make_conninfo(
            host=host, port=port, user=POSTGRES_USER, password=password, dbname=database
        )

    create_databases(dsn(POSTGRES_USER), DATABASES)
    for database in DATABASES:
        create_bank(dsn(database))
    sources = bank_sources()
    create_topics(environment["FRESCO_KAFKA"], [topic for one in sources for topic in one.topics])
    rest = ConnectRest(environment["FRESCO_CONNECT"])
    for source in sources:
        config = connector_config(
            source,
            host=host,
            port=int(port),
            user=POSTGRES_USER,
            # Resolved inside the worker: the secret does not travel through its interface.
            password=f"${{env:{PASSWORD_VARIABLE}}}",
        )
        rest.put(source.connector, config)
    deadline = time.monotonic() + _READY_SECONDS
    while not all(rest.running(source.connector) for source in sources):
        if time.monotonic() > deadline:
            raise FrescoError(
                "EMBEDDED_START_FAILED",
                f"the connectors do not run after {_READY_SECONDS} s",
                where=environment["FRESCO_CONNECT"],
                todo="read the log of Kafka Connect",
            )
        time.sleep(0.5)


if __name__ == "__main__":
    try:
        register(os.environ)
    except FrescoError as failure:
        sys.exit(str(failure))
