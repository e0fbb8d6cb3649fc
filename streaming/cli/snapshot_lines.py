"""What `fresco snapshots` says: a line for each snapshot, and a bar while one is being published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.text import Text

from streaming.cli.reporting import err, out
from streaming.plain import plain

if TYPE_CHECKING:
    from streaming.capture.monitor import Published

Telling = tuple["Callable[[Published], None]", Callable[[str, int, int], None]]


@contextmanager
def published(as_json: bool) -> Iterator[Telling]:
    """Yields what a monitor tells its snapshots to, and its progress."""
    if as_json:
        yield lambda one: print(json.dumps(one.as_dict()), flush=True), lambda *_: None
        return
    with Progress(console=err, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(snapshot: str, done: int, total: int) -> None:
            if snapshot not in tasks:
                tasks[snapshot] = bar.add_task(escape(plain(snapshot)), total=total)
            bar.update(tasks[snapshot], completed=done)

        yield _tell, progress


def _tell(one: Published) -> None:
    text = (
        f"{one.source} {one.number}: {one.snapshot}, {one.inserted:,} inserted, {one.updated:,}"
        f" updated, {one.deleted:,} deleted in {one.seconds:.1f} s"
    )
    out.print(Text(text), soft_wrap=True)
