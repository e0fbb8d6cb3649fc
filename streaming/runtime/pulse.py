"""Steps without records, so that a stage can see to what no message brings: timeouts, held answers.

A pulse has a thread of its own and never waits for a step under way: a view that waits for its source
holds up neither the service's watch nor the other views.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa

from streaming.errors import FrescoError
from streaming.runtime.step import Stepper

log = logging.getLogger("fresco")

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
    """

    def __init__(
        self, stepper: Callable[[], Stepper | None], seconds: float = PULSE_SECONDS
    ) -> None:
        self._stepper, self._seconds = stepper, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The last pulse has ended when this returns, unless it is stuck."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            stepper = self._stepper()
            if stepper is None or not stepper.lock.acquire(blocking=False):
                continue
            try:
                if self._stepper() is stepper:  # else its query has been stopped since
                    stepper.batch(NOTHING)
            except FrescoError as error:
                log.debug("a pulse ended early: %s", error)
            except Exception:
                log.exception("a pulse failed")  # the next step takes the last manifest's state
            finally:
                stepper.lock.release()
