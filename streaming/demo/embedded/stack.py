"""The embedded stack: PostgreSQL and Kafka at once, Debezium when asked, all in one folder.

Capture starts by an explicit call, because a demo wants its workload to run before the connectors
do: only then does a snapshot have transactions around it. A folder that is used again goes on with
its data, its topics and its connectors' offsets.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from streaming.demo.embedded.connect_worker import Connect
from streaming.demo.embedded.kafka_broker import KafkaBroker, create_topics
from streaming.demo.embedded.parts import (
    DATABASES,
    POSTGRES_USER,
    StackSource,
    bank_sources,
    connector_config,
)
from streaming.demo.embedded.ports import LOOPBACK, choose_ports
from streaming.demo.embedded.postgres_server import Postgres, create_databases
from streaming.errors import FrescoError
from streaming.spark import jars
from streaming.spark.artifacts import CONNECT_SET, DEBEZIUM_SET, KAFKA_SET

Server = TypeVar("Server", KafkaBroker, Postgres, Connect)


class Stack:
    """Kafka, PostgreSQL and, after `capture`, Kafka Connect with Debezium, below `folder`.

    Use as a context manager, or call `start` and `stop`. Ports that are not given are chosen.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        databases: Sequence[str] = DATABASES,
        kafka_port: int | None = None,
        postgres_port: int | None = None,
        progress: jars.Progress = jars.print_progress,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.databases = tuple(databases)
        self._asked = {
            "kafka": kafka_port,
            "kafka-controller": None,
            "postgres": postgres_port,
            "connect": None,
        }
        self._progress = progress
        self._connect_port = 0
        self._lock: int | None = None
        self._kafka: KafkaBroker | None = None
        self._postgres: Postgres | None = None
        self._connect: Connect | None = None

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kafka(self) -> KafkaBroker:
        """The broker. Raises RuntimeError before `start`."""
        return _started(self._kafka)

    @property
    def postgres(self) -> Postgres:
        """The database server. Raises RuntimeError before `start`."""
        return _started(self._postgres)

    @property
    def connect(self) -> Connect:
        """The Connect worker. Raises RuntimeError before `capture`."""
        return _started(self._connect)

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        return self.kafka.bootstrap

    @property
    def connect_url(self) -> str:
        """Where the Connect worker answers once `capture` has been called."""
        return f"http://{LOOPBACK}:{self._connect_port}"

    @property
    def logs(self) -> Path:
        """Folder of every server's log."""
        return self.folder / "logs"

    def dsn(self, database: str) -> str:
        """Connection string of one database, password included: do not print it."""
        return self.postgres.dsn(database)

    def start(self) -> Stack:
        """Start PostgreSQL and Kafka side by side and create the databases that are missing.

        Raises FrescoError, with everything stopped that had started.
        """
        self._take_folder()
        try:
            jars.resolve([KAFKA_SET, CONNECT_SET, DEBEZIUM_SET], self._progress)
            ports = choose_ports(self.folder, self._asked)
            self._postgres = Postgres(self.folder, ports["postgres"])
            self._kafka = KafkaBroker(self.folder, ports["kafka"], ports["kafka-controller"])
            self._connect_port = ports["connect"]
            with ThreadPoolExecutor(max_workers=2) as pool:
                starts = [pool.submit(self._kafka.start), pool.submit(self._postgres.start)]
            for one in starts:
                one.result()
            create_databases(self.dsn(POSTGRES_USER), self.databases)
        except BaseException:
            self.stop()
            raise
        return self

    def capture(self, sources: Sequence[StackSource] | None = None) -> None:
        """Start Debezium on `sources` (the bank in every database by default).

        Returns when every connector runs; its snapshot may still be under way. The topics are made
        first, so a table without rows has one too. Raises FrescoError.
        """
        captured = bank_sources() if sources is None else tuple(sources)
        create_topics(self.bootstrap, [topic for one in captured for topic in one.topics])
        self._connect = Connect(self.folder, self._connect_port, self.bootstrap)
        configs = {
            source.connector: connector_config(
                source,
                host=LOOPBACK,
                port=self.postgres.port,
                user=POSTGRES_USER,
                password=self._connect.secret("password"),
            )
            for source in captured
        }
        self._connect.start(configs, {"password": self.postgres.password})

    def check(self) -> None:
        """Raise FrescoError EMBEDDED_SERVER_ENDED when a started server has ended, and
        EMBEDDED_START_FAILED with its trace when a connector has failed: Kafka Connect calls one
        RUNNING a moment before it finds out that it cannot."""
        for server in (self._postgres, self._kafka, self._connect):
            if server is not None and server.pid is None:
                raise FrescoError(
                    "EMBEDDED_SERVER_ENDED",
                    f"{server.TITLE} has ended by itself",
                    where=str(self.logs),
                    todo="read its log, remove the cause, start the stack again",
                )
        if self._connect is not None:
            for connector in self._connect.rest.connectors():
                self._connect.rest.running(connector)

    def stop(self) -> None:
        """Stop Connect, then Kafka, then PostgreSQL, so that none misses what it needs to end."""
        for server in (self._connect, self._kafka, self._postgres):
            if server is not None:
                server.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_folder(self) -> None:
        """Hold the folder for this process: two stacks on one folder would damage it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as held:
            os.close(lock)
            raise FrescoError(
                "EMBEDDED_START_FAILED",
                "another process runs the stack of this folder",
                where=str(self.folder),
                todo="stop that process, or use another folder",
            ) from held
        self._lock = lock


def _started(server: Server | None) -> Server:
    if server is None:
        raise RuntimeError("the stack was not started that far")
    return server
