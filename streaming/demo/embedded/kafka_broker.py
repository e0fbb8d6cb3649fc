"""A Kafka broker of one node, in KRaft mode, on a loopback port."""

from __future__ import annotations

import base64
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.demo.embedded.parts import BROKER_SETTINGS, TOPIC_SETTINGS
from streaming.demo.embedded.ports import LOOPBACK, accepts
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.errors import FrescoError
from streaming.spark import jars
from streaming.spark.java import LOG_OPTIONS, SHORT_LIVED, java_command

_HEAP = ("-Xms256m", "-Xmx512m", *SHORT_LIVED)
_READY_SECONDS = 60


class KafkaBroker:
    """The broker of the stack in `folder`; its data stay in `<folder>/kafka` between starts."""

    TITLE = "Kafka"

    def __init__(self, folder: Path, port: int, controller_port: int) -> None:
        self.folder = folder
        self.port = port
        self._controller_port = controller_port
        self._home = folder / "kafka"
        self._process: ManagedProcess | None = None

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker."""
        return self._process.pid if self._process and self._process.running else None

    def start(self) -> None:
        """Format the storage the first time, start, and wait until the broker answers.

        Raises FrescoError EMBEDDED_START_FAILED, EMBEDDED_JAVA_MISSING or EMBEDDED_JARS_FAILED.
        """
        classpath = jars.kafka_classpath()
        self._home.mkdir(parents=True, exist_ok=True)
        if not (self._home / "data").is_dir():
            self._format(classpath)
        config = self._write_config(self._home / "data")
        command = Command("kafka", self._java(classpath, "kafka.Kafka", str(config)))
        self._process = ManagedProcess(command, self.folder).start()
        self._process.wait_healthy(self._answers, _READY_SECONDS)

    def stop(self) -> None:
        """Stop the broker cleanly; nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop()

    def _format(self, classpath: str) -> None:
        """Format into a folder that gets its name only when it is whole."""
        fresh = self._home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        config = self._write_config(fresh)
        words = self._java(
            classpath,
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={_cluster_id()}",
            "-c",
            str(config),
        )
        ManagedProcess(Command("kafka-format", words), self.folder).start().wait_done(60)
        os.rename(fresh, self._home / "data")

    def _write_config(self, data: Path) -> Path:
        controller = f"{LOOPBACK}:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data),
            **BROKER_SETTINGS,
        }
        path = self._home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _java(self, classpath: str, main: str, *arguments: str) -> list[str]:
        return [java_command(), *_HEAP, *LOG_OPTIONS, "-cp", classpath, main, *arguments]

    def _answers(self) -> bool:
        if not accepts(self.port):
            return False
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=2000)
        try:
            return bool(admin.describe_cluster()["brokers"])
        finally:
            admin.close()


def create_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Create those of `names` that are missing, each with one partition, and wait for them.

    Raises FrescoError EMBEDDED_START_FAILED.
    """
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        there = set(admin.list_topics())
        missing = {
            name: {
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": dict(TOPIC_SETTINGS),
            }
            for name in names
            if name not in there
        }
        if missing:
            admin.create_topics(missing, wait_for_metadata=True)
    except KafkaError as failure:
        raise FrescoError(
            "EMBEDDED_START_FAILED",
            f"the topics were not created: {failure}",
            where=bootstrap,
            todo="read the broker's log",
        ) from failure
    finally:
        admin.close()


def _cluster_id() -> str:
    """A random id in Kafka's form; it must not begin with a dash."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn
