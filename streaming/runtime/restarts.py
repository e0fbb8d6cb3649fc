"""When a stage that has failed for a reason of its surroundings is started again, and when no more.

At once the first time, which is all that a hiccup needs; then after waits that grow, so that a broker
that is restarted does not use up the attempts while it comes up. The waits add up to more than three
minutes. Failures that are long past do not count. Nobody sleeps here: whoever watches the stage asks
whether it is time, so a stop is never waited for and the other stages go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from streaming.errors import FrescoError

WAITS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0)
"""Seconds before each further start; one failure more ends the service."""
WINDOW_SECONDS = 600.0
"""For so long a failure counts."""


class Restarts:
    """Of one stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: list[float] = []
        self._last = ""
        self._at_step: tuple[str, str, int] | None = None
        self._at: float | None = None

    @property
    def waits(self) -> bool:
        """Whether the stage is to be started again and has not been yet."""
        return self._at is not None

    @property
    def due(self) -> bool:
        """Whether it is time to start it again."""
        return self._at is not None and self._clock() >= self._at

    def failed(self, error: BaseException | None = None) -> float | None:
        """It has failed: the seconds after which it is due; None when it has failed too often."""
        now, self._last = self._clock(), first_line(error)
        self._failures = [at for at in self._failures if now - at < WINDOW_SECONDS] + [now]
        if len(self._failures) > len(WAITS):
            self._at = None
            return None
        wait = WAITS[len(self._failures) - 1]
        self._at = now + wait
        return wait

    def repeated(self, error: BaseException, step: int) -> bool:
        """Whether the failure before was this one, at this step; it is the one before from now on."""
        before, self._at_step = self._at_step, (type(error).__name__, first_line(error), step)
        return before == self._at_step

    def started(self) -> None:
        """It runs again."""
        self._at = None

    def waiting(self, stage: str) -> FrescoError:
        """The error of one that is to start again."""
        left = max(0.0, (self._at or 0.0) - self._clock())
        return FrescoError(
            "STAGE_RESTARTS",
            f"{stage} has failed {len(self._failures)} times and starts again in {left:.0f} s: "
            f"{self._last}",
            where=stage,
            todo="see the log for the first failure; it starts again by itself, and nothing is lost",
        )

    def gave_up(self, stage: str, error: BaseException | None) -> FrescoError:
        """The error of one that has failed too often."""
        return FrescoError(
            "STAGE_FAILED",
            f"failed {len(self._failures)} times: {error}",
            where=stage,
            todo="see the log for the first failure; nothing is lost, start again when mended",
        )


def first_line(error: BaseException | None, longest: int = 300) -> str:
    """What an error says, without what Spark and Java put below it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:longest]
