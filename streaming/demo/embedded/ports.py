"""Loopback ports: free ones for new servers, the same again for a folder that is used again."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from streaming.errors import FrescoError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """True when a server could listen on `port` of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """True when something listens on `port` of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def choose_ports(folder: Path, wanted: dict[str, int | None]) -> dict[str, int]:
    """A port for each name in `wanted`: the one asked for, else the last one used in `folder` while
    it is free, else any free one. The choice is kept in `<folder>/ports.json`.

    Raises FrescoError EMBEDDED_PORT_IN_USE for a port that was asked for and is taken.
    """
    kept_in = folder / "ports.json"
    kept: dict[str, int] = json.loads(kept_in.read_text()) if kept_in.exists() else {}
    chosen: dict[str, int] = {}
    with _Reserved() as reserved:
        for name, asked in wanted.items():
            if asked is not None and not is_free(asked):
                raise FrescoError(
                    "EMBEDDED_PORT_IN_USE",
                    f"port {asked} for {name} is in use",
                    where=LOOPBACK,
                    todo="stop what listens there, or leave the port out to get a free one",
                )
            before = kept.get(name)
            if asked is None and before is not None and is_free(before):
                asked = before
            chosen[name] = reserved.take() if asked is None else asked
    kept_in.write_text(json.dumps(kept | chosen, indent=2) + "\n")
    return chosen


class _Reserved:
    """Holds the sockets of the free ports it gave out until the whole choice is made."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> _Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def take(self) -> int:
        """A free port that no other call has got."""
        one = socket.socket()
        one.bind((LOOPBACK, 0))
        self._sockets.append(one)
        return int(one.getsockname()[1])
