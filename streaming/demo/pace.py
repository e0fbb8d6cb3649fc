"""Writers that wait for their reader: none of them is ever more than so many transactions ahead of it.

People who write for as long as somebody reads would, on a machine that is busy with something else, write
faster than he reads, and never let him come to an end. So each writer asks before every transaction, and
waits while too much has not been read. Without a reader it is a fixed number of transactions.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections.abc import Callable

ASK_SECONDS = 0.2
"""Between two questions to a reader that does not tell by itself how far he is, whoever asks."""


class Pace:
    """Of all that write for one reader.

    Args:
        ahead: transactions that may be written and not be read yet; each writer may be at one more.
        reader: how many have been read, asked only while somebody waits; None of one who tells (`read`).
    """

    def __init__(self, ahead: int, reader: Callable[[Pace], int] | None = None) -> None:
        self._ahead, self._reader = ahead, reader
        self._changed = threading.Condition()
        self._times: list[float] = []
        self._read = self._waiting = 0
        self._asked = -math.inf
        self._ended = False

    @property
    def written(self) -> int:
        """Transactions so far."""
        return len(self._times)

    @property
    def waits(self) -> bool:
        """Whether somebody waits for the reader."""
        return self._waiting > 0

    def may_write(self) -> bool:
        """True once there is room for a transaction more; False when writing has ended."""
        with self._changed:
            while not self._ended and not self._has_room():
                self._waiting += 1
                self._changed.wait(None if self._reader is None else ASK_SECONDS)
                self._waiting -= 1
            return not self._ended

    def _has_room(self) -> bool:
        behind = self.written - self._read >= self._ahead
        if behind and self._reader is not None and time.monotonic() >= self._asked + ASK_SECONDS:
            self._asked = time.monotonic()
            self.read(self._reader(self))
        return self.written - self._read < self._ahead

    def wrote(self) -> None:
        """A transaction has been committed."""
        with self._changed:
            self._times.append(time.time())

    def read(self, count: int) -> None:
        """The reader has come to the transaction `count`, from 1."""
        with self._changed:
            if count > self._read:
                self._read = count
                self._changed.notify_all()

    def until(self, committed_ms: int | None) -> int:
        """How many were committed at or before a time, milliseconds since 1970."""
        return 0 if committed_ms is None else bisect.bisect(self._times, committed_ms / 1000)

    def end(self) -> None:
        """Nobody writes any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
