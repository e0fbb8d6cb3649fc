"""The log read ahead by a thread of its own, and taken whole: two threads that share an interpreter
must not hand each other single events."""

from __future__ import annotations

import threading

from streaming.capture.binlog import LogReader
from streaming.capture.log_events import LogEvent
from streaming.errors import FrescoError

AHEAD = 20_000
"""Events that are read ahead at most; a transaction of any size goes through in pieces."""


class LogInbox:
    """What a reader has read and nobody has taken yet."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._events: list[LogEvent] = []
        self._failure: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._pump, name="log-reader", daemon=True).start()

    def take(self, seconds: float) -> list[LogEvent]:
        """Everything read so far; waits for something so long at most.

        Raises:
            FrescoError: the reader's, once everything before it is taken.
        """
        with self._changed:
            if not self._events and self._failure is None:
                self._changed.wait(seconds)
            events, self._events = self._events, []
            self._changed.notify_all()
        if not events and self._failure is not None:
            raise self._failure
        return events

    def close(self) -> None:
        """End the thread and leave the server."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._reader.close()

    def _pump(self) -> None:
        try:
            for event in self._reader.events():
                if event is not None and not self._put(event):
                    return
        except Exception as error:  # whatever it is, the capture must not go on without a log
            with self._changed:
                self._failure = error if isinstance(error, FrescoError) else _unknown(error)
                self._changed.notify_all()

    def _put(self, event: LogEvent) -> bool:
        with self._changed:
            while len(self._events) >= AHEAD and not self._closed:
                self._changed.wait()
            self._events.append(event)
            if len(self._events) == 1:
                self._changed.notify_all()
            return not self._closed


def _unknown(error: Exception) -> FrescoError:
    return FrescoError(
        "CAPTURE_LOG_UNREADABLE",
        f"the log cannot be read: {type(error).__name__}: {error}",
        todo="report it with the table's definition; leave the table out of the capture meanwhile",
    )
