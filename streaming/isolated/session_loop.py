"""When sessions of an isolated group begin: at a notification, and by the clock (moro-sartori 5.1, 5.6).

A notification says only that there may be something to do. The clock starts a session anyway, so one
that is lost is made good, and repeated or reordered ones start sessions that find nothing. So a channel
that is broken costs time and nothing else, and is opened again quietly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from streaming.errors import FrescoError
from streaming.isolated.isolated_stage import IsolatedStage
from streaming.metrics import Metrics
from streaming.runtime.pulse import NOTHING
from streaming.runtime.restarts import Restarts
from streaming.runtime.step import Stepper
from streaming.stages.asking_stage import WAITS
from streaming.stages.dialogue import is_trouble
from streaming.stages.stage_trouble import forget_trouble, tell_trouble

log = logging.getLogger("fresco")

REOPEN_SECONDS = 5.0
"""Between attempts to listen."""
LISTENED = 0.5
"""Seconds a listener waits before it looks whether it should stop."""


class Listener:
    """Listens at one source; calls `wake` at a notification, and whenever one may have been lost."""

    def __init__(self, dsn: str, channel: str, wake: Callable[[], object]) -> None:
        self._dsn, self._channel, self._wake = dsn, channel, wake
        self._stopping = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                self.listening.clear()
                log.debug("no notifications on %s: %s", self._channel, type(error).__name__)
                self._stopping.wait(REOPEN_SECONDS)

    def _listen(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            self.listening.set()
            self._wake()  # what was said before was not heard
            while not self._stopping.is_set():
                for _ in connection.notifies(timeout=LISTENED, stop_after=1):
                    self._wake()


class SessionLoop:
    """Runs the sessions of one group in a thread of its own, one after the other.

    Args:
        stepper: the stage's; a step that failed is taken back by the next one.
        channels: (connection string, channel) of each source.
        seconds: between two looks at the sources, where no notification comes.
        failed: told the error when the group cannot go on.
    """

    def __init__(
        self,
        stage: IsolatedStage,
        stepper: Stepper,
        channels: Sequence[tuple[str, str]],
        seconds: float,
        failed: Callable[[FrescoError], None],
        metrics: Metrics,
        state: Path,
    ) -> None:
        self._stage, self._stepper = stage, stepper
        self._seconds, self._failed, self._metrics, self._state = seconds, failed, metrics, state
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._said = ""
        forget_trouble(state)
        self._listeners = [Listener(dsn, name, self._woken.set) for dsn, name in channels]
        self._thread = threading.Thread(target=self._run, name=stage.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def stop(self) -> None:
        """The round under way has ended when this returns, unless a source is stuck."""
        self._stopping.set()
        self._woken.set()
        for listener in self._listeners:
            listener.stop()
        self._thread.join(timeout=60)
        self._stage.close()
        self._stage.writer.close()

    def _run(self) -> None:
        troubles, restarts = 0, Restarts()
        while not self._stopping.is_set():
            try:
                self._session()
                troubles, restarts = 0, Restarts()
            except FrescoError as error:
                if not is_trouble(error):
                    self._failed(error)
                    return
                self._tell(error)
                self._stopping.wait(WAITS[min(troubles, len(WAITS) - 1)])
                troubles += 1
                continue
            except Exception as error:
                wait = restarts.failed()
                if wait is None:
                    self._failed(restarts.gave_up(self._stage.name, error))
                    return
                log.exception("stage %s failed and starts again in %g s", self._stage.name, wait)
                self._stopping.wait(wait)
                continue
            self._woken.wait(self._seconds)
            self._woken.clear()

    def _session(self) -> None:
        """One session, to its end."""
        while not self._stopping.is_set():
            started = time.perf_counter()
            self._stepper.batch(NOTHING)
            self._metrics.batch_seconds.labels(self._stage.name).observe(
                time.perf_counter() - started
            )
            if self._said:
                self._tell(None)
            if not self._stage.busy:
                return

    def _tell(self, error: FrescoError | None) -> None:
        """Say what the group waits for, or that it goes on; each thing once."""
        said = "" if error is None else str(error)
        if said == self._said:
            return
        self._said = said
        for view in self._stage.group.trees:
            self._metrics.waiting.labels(view).set(error is not None)
        if error is None:
            log.warning("group %s goes on", self._stage.group.group)
            forget_trouble(self._state)
            return
        log.warning("group %s waits: %s", self._stage.group.group, error)
        tell_trouble(self._state, error)
