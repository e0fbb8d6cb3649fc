"""What `fresco capture` says while it runs: one line that changes for people, JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from streaming.capture.capture_status import Status


@contextmanager
def capture_status(console: Console, as_json: bool) -> Iterator[Callable[[Status], None]]:
    """Yields what a capture tells its status to."""
    if as_json:
        yield lambda status: print(json.dumps(status.as_dict()), flush=True)
        return
    with console.status("connecting") as line:
        phase = ""

        def tell(status: Status) -> None:
            nonlocal phase
            said = status_line(status)
            if status.phase != phase:
                phase = status.phase
                console.print(Text(said), soft_wrap=True)
            line.update(Text(said))

        yield tell


def status_line(status: Status) -> str:
    """A status in words."""
    match status.phase:
        case "snapshot":
            return f"snapshot at {status.place}: {status.rows:,} rows"
        case "waiting":
            return f"waiting: {status.error}"
    age = "" if status.behind_ms is None else f", the newest {status.behind_ms / 1000:.1f} s old"
    return (
        f"streaming at {status.place}: {status.transactions:,} transactions, "
        f"{status.events:,} events{age}"
    )
