"""Kafka Connect's REST interface: connectors are put, read and waited for there, whoever runs Connect."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from streaming.errors import FrescoError


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
