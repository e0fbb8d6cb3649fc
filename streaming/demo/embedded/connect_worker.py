"""Kafka Connect with one Debezium connector per database, in one process.

Connectors are put through Connect's REST interface, the same way as in the docker stack. Passwords
reach the worker in a file that only its user can read; the connectors refer to it.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming.embedded import jars
from streaming.embedded.description import FILE_PROVIDER, WORKER_SETTINGS
from streaming.embedded.java import LOG_OPTIONS, SHORT_LIVED, java_command
from streaming.embedded.ports import LOOPBACK
from streaming.embedded.process import Command, ManagedProcess
from streaming.errors import FrescoError

_HEAP = ("-Xms128m", "-Xmx768m", *SHORT_LIVED)
_READY_SECONDS = 90


class ConnectRest:
    """The part of Connect's REST interface that Fresco uses, at one worker."""

    def __init__(self, address: str) -> None:
        """Take the worker's URL, with `user:password@` where it asks for them."""
        parts = urllib.parse.urlsplit(address)
        user, at, host = parts.netloc.rpartition("@")
        self._address = parts._replace(netloc=host).geturl().rstrip("/")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if at:
            given = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
            self._headers["Authorization"] = f"Basic {given}"

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """One request; the answer's JSON, None when it is empty. Raises OSError on refusal."""
        request = urllib.request.Request(
            f"{self._address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def put(self, connector: str, config: Mapping[str, str]) -> None:
        """Create or change a connector. Raises FrescoError EMBEDDED_START_FAILED when refused."""
        try:
            self.ask("PUT", f"/connectors/{connector}/config", config)
        except urllib.error.HTTPError as refused:
            said = self.complaints(config) or [refused.read().decode(errors="replace")]
            raise FrescoError(
                "EMBEDDED_START_FAILED",
                f"Kafka Connect refused the connector: {'; '.join(said)}",
                where=connector,
                todo="correct the connector's options",
            ) from refused

    def complaints(self, config: Mapping[str, str]) -> list[str]:
        """What is wrong with a configuration, one text per option.

        Asked for apart, because Connect 4.2 answers a refused `put` of a Debezium connector with
        an error of its own (500) that hides the reason.
        """
        plugin = config["connector.class"]
        try:
            said = self.ask("PUT", f"/connector-plugins/{plugin}/config/validate", config)
        except urllib.error.HTTPError:
            return []
        values = [option["value"] for option in said["configs"] if option["value"]]
        return [f"{one['name']}: {text}" for one in values for text in one["errors"]]

    def connectors(self) -> list[str]:
        """Names of the connectors of this worker."""
        return list(self.ask("GET", "/connectors"))

    def running(self, connector: str) -> bool:
        """True when the connector and its task run.

        Raises FrescoError EMBEDDED_START_FAILED with its trace when one of them has failed.
        """
        status = self.ask("GET", f"/connectors/{connector}/status")
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part["state"] == "FAILED":
                raise FrescoError(
                    "EMBEDDED_START_FAILED",
                    f"connector failed:\n{part.get('trace', '')}",
                    where=connector,
                    todo="remove the cause and restart the connector",
                )
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)


class Connect:
    """The Connect worker of the stack in `folder`; offsets stay in `<folder>/connect`."""

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
