"""Kafka Connect with one Debezium connector per database, in one process.

Connectors are put through Connect's REST interface, the same way as in the docker stack. Passwords
reach the worker in a file that only its user can read; the connectors refer to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from streaming.cdc.connect_rest import ConnectRest
from streaming.demo.embedded.parts import FILE_PROVIDER, WORKER_SETTINGS
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.spark import jars
from streaming.spark.java import LOG_OPTIONS, SHORT_LIVED, java_command

_HEAP = ("-Xms128m", "-Xmx768m", *SHORT_LIVED)
_READY_SECONDS = 90


class Connect:
    """The Connect worker of the stack in `folder`; offsets stay in `<folder>/connect`."""

    TITLE = "Connect"

    def __init__(self, folder: Path, port: int, bootstrap: str) -> None:
        self.folder = folder
        self.port = port
        self.rest = ConnectRest(f"http://{LOOPBACK}:{port}")
        self._bootstrap = bootstrap
        self._home = folder / "connect"
        self._process: ManagedProcess | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running worker."""
        return self._process.pid if self._process and self._process.running else None

    def start(
        self, connectors: Mapping[str, Mapping[str, str]], secrets: Mapping[str, str]
    ) -> None:
        """Start the worker with `connectors` (name to configuration) and wait until all run.

        `secrets` go into the file that `secret()` refers to. Raises FrescoError.
        """
        classpath = jars.connect_classpath()
        self._home.mkdir(parents=True, exist_ok=True)
        _write_properties(self._home / "secrets.properties", secrets)
        _write_properties(self._home / "worker.properties", self._worker())
        words = [
            java_command(),
            *_HEAP,
            *LOG_OPTIONS,
            "-cp",
            classpath,
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self._home / "worker.properties"),
        ]
        self._process = ManagedProcess(Command("connect", words), self.folder).start()
        self._process.wait_healthy(self._answers, _READY_SECONDS)
        try:
            for name, config in connectors.items():
                self.rest.put(name, config)
            self.wait_running(list(connectors))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the worker, offsets flushed; nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop()

    def secret(self, key: str) -> str:
        """The reference that stands for the secret `key` in a connector's configuration."""
        return f"${{file:{self._home / 'secrets.properties'}:{key}}}"

    def wait_running(self, connectors: Sequence[str], seconds: float = _READY_SECONDS) -> None:
        """Return once every connector and its task is RUNNING. Raises FrescoError."""
        if self._process is None:
            raise RuntimeError("Kafka Connect was not started")
        self._process.wait_until(
            lambda: all(self.rest.running(name) for name in connectors), seconds
        )

    def _worker(self) -> dict[str, str]:
        return {
            **WORKER_SETTINGS,
            "bootstrap.servers": self._bootstrap,
            "listeners": f"http://{LOOPBACK}:{self.port}",
            "offset.storage.file.filename": str(self._home / "offsets"),
            "plugin.path": str(jars.plugin_path()),
            "config.providers": "file",
            "config.providers.file.class": FILE_PROVIDER,
            "config.providers.file.param.allowed.paths": str(self._home),
        }

    def _answers(self) -> bool:
        return self.rest.connectors() is not None


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write a properties file that only this user can read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{key}={value}\n" for key, value in settings.items())
