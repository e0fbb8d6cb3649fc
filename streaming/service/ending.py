"""How a driver ends: in a bounded time, with one line that says why, and nobody left behind.

It is told to stop by a signal (SIGINT, SIGTERM, SIGHUP) or by a terminal that nobody reads any more; or
an error ends it. While it starts, a signal breaks off whatever it waits for; later the steps under way
come to their end first. What has not ended `STOP_SECONDS` after that, and everything at a second signal,
is ended by force, which loses nothing: every step is exactly once through any crash (DESIGN 9).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Protocol

from streaming.service.terminal import Terminal

log = logging.getLogger("fresco")

STOP_SECONDS = 20.0
"""From the wish to stop to the end by force."""
WATCH_SECONDS = 0.2
"""Between two looks at signals, terminal and clock."""
CHILDREN_SECONDS = 10.0
"""For the children's own end."""
FORCE_SECONDS = 2.0
"""For saying that it ends by force, and for ending its children."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OUTPUT_CLOSED = 128 + signal.SIGPIPE
"""Exit status where nobody reads the output any more, as a shell says it."""


class Stoppable(Protocol):
    """A service as far as its end is concerned.

    Attributes:
        starting: whether a wish to stop may break off what is under way, by an exception.
        stopping: set once it stops.
    """

    starting: bool
    stopping: threading.Event

    def request_stop(self) -> None: ...


class StopAsked(BaseException):
    """Raised into a start that a signal breaks off."""


class Ending:
    """Of one driver.

    Attributes:
        service: once it is made.
        shows: says what the views show.
        children: ends what would outlive this process, by force after so many seconds.
        starts: cleared once nothing is to be broken off any more.
        reason: what it was told to stop by; "" while it was not.
        status: the exit status.
    """

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.service: Stoppable | None = None
        self.shows: Callable[[], str] = lambda: "nothing has begun"
        self.children: Callable[[float], object] = lambda _: None
        self.starts, self.reason, self.status = True, "", 1
        self._closed = False
        self._again = 0
        """The signal that came after the first."""
        self._due: float | None = None
        self._over = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[Ending]:
        """Signals and terminal are listened to, by the main thread."""
        before = {}
        for one in SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:  # as nohup has it
                before[one] = signal.signal(one, self._signalled)
        watch = threading.Thread(target=self._watch, name="ending", daemon=True)
        watch.start()
        try:
            yield self
        finally:
            self._over.set()
            for one, handler in before.items():
                signal.signal(one, handler)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        """Only notes it: the main thread may hold any lock, so the watch does what there is to do."""
        if self.reason:
            self._again = number
            return
        name = signal.Signals(number).name
        self.status = OUTPUT_CLOSED if self._closed else 0
        self.reason = "the end of whoever read its output" if self._closed else name
        if self.starts and (self.service is None or self.service.starting):
            raise StopAsked(self.reason)

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            if self._again:
                name = signal.Signals(self._again).name
                self._force(f"stopped at once: {name} came after {self.reason}", 128 + self._again)
            if not self._closed and not self.reason and self.terminal.gone:
                self._closed = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            service = self.service
            if self.reason and service is not None:
                service.request_stop()
            if self._due is None:
                if self.reason or (service is not None and service.stopping.is_set()):
                    self._due = time.monotonic() + STOP_SECONDS
            elif time.monotonic() >= self._due:
                self._force(
                    f"stopped by {self.reason or 'an error'}, by force: something had not ended "
                    f"{STOP_SECONDS:.0f} s later",
                    self.status,
                )

    def _force(self, line: str, status: int) -> None:
        """Neither a pipe that nobody empties nor a lock that somebody holds is waited for."""

        def tell() -> None:
            log.warning("%s; %s; nothing is lost", line, self.shows())

        for step in (tell, partial(self.children, 0)):
            thread = threading.Thread(target=step, daemon=True)
            thread.start()
            thread.join(FORCE_SECONDS)
        os._exit(status)
