"""Steps without records, so that a stage can see to what no message brings: timeouts, held answers.

A pulse has a thread of its own and never waits for a step under way: a view that waits for its source
holds up neither the service's watch nor the other views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from streaming.runtime.step import Stepper

PULSE_SECONDS = 1.0
NOTHING = pa.table(
    {
        "topic": pa.array([], pa.string()),
        "partition": pa.array([], pa.int32()),
        "offset": pa.array([], pa.int64()),
        "value": pa.array([], pa.binary()),
    }
)
"""A batch without records."""


class Pulse:
    """One stage's.

    Args:
        stepper: the one that runs now; None while there is none.
        failed: told the error when a step raises; the stage is then in the caller's hands.
    """

    def __init__(
        self,
        stepper: Callable[[], Stepper | None],
        failed: Callable[[BaseException], object],
        seconds: float = PULSE_SECONDS,
    ) -> None:
        self._stepper, self._failed, self._seconds = stepper, failed, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    @property
    def beats(self) -> bool:
        """Whether there may be further steps."""
        return self._thread.is_alive()

    def end(self) -> None:
        """No step begins after the one under way."""
        self._stopping.set()

    def stop(self) -> None:
        """The last pulse has ended when this returns, unless it is stuck."""
        self.end()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            stepper = self._stepper()
            if stepper is None or not stepper.lock.acquire(blocking=False):
                continue
            try:
                if self._stepper() is stepper:  # else its query has been stopped since
                    stepper.batch(NOTHING)
            except Exception as error:
                if self._stepper() is stepper:  # else it was told to stop
                    self._failed(error)
            finally:
                stepper.lock.release()
