"""A line to a server that can be cut, mended, and turned to another server.

What stands between a service and its database: a network that fails, an address that a failover moves.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Line:
    """Forwards a port of its own to `port`; use as a context manager."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = _listening(0)
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._accept()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Connections end, new ones are refused."""
        _shut(
            self._listener
        )  # a shutdown wakes who waits for the next connection, a close does not
        self._drop()

    def mend(self) -> None:
        """New connections are taken again."""
        self._listener = _listening(self.port)
        self._accept()

    def turn(self, port: int) -> None:
        """Connections end, new ones reach another server."""
        self.target = port
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            _shut(end)

    def _accept(self) -> None:
        threading.Thread(target=self._forward, args=(self._listener,), daemon=True).start()

    def _forward(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                _shut(near)
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _listening(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while part := one.recv(65536):
            other.sendall(part)
    _shut(one)
    _shut(other)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
