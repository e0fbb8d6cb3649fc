"""What a capture tells of itself, now and then."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from streaming.capture.publishing import LogPublisher


@dataclass(frozen=True)
class Status:
    """What a capture tells of itself.

    Attributes:
        phase: snapshot, streaming or waiting.
        rows: rows of the snapshot so far.
        transactions, events: published since the start.
        behind_ms: age of the newest transaction published, None before one is.
        error: what it waits for.
    """

    phase: str
    place: str
    rows: int = 0
    transactions: int = 0
    events: int = 0
    behind_ms: int | None = None
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def streaming_status(publisher: LogPublisher) -> Status:
    """Of a capture that follows the log."""
    behind = int(time.time() * 1000) - publisher.newest_ms if publisher.newest_ms else None
    return Status(
        "streaming",
        str(publisher.progress.at),
        transactions=publisher.transactions,
        events=publisher.events,
        behind_ms=behind,
    )
