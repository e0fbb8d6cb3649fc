"""Transactions per second through the merge machine, and what it keeps (DESIGN 5, 15).

Run: python -m bench.merge_machine [--long]. Messages are made before the clock starts, and it
counts CPU time: the machine is pure. Two loads with ten complete views: one REL set for all
("equal"), and no two neighbours alike ("mixed"); lists of 10,000 numbers. `--long` goes up to 10^7
transactions, 10^6 of the mixed load.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Iterator

from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun, Rows

VIEWS = tuple(f"view{n}" for n in range(10))
BLOCK = 10_000


def messages(start: int, mixed: bool) -> list[Rel | ActionList]:
    """One cut: REL for a block of numbers and one list per view."""
    last = start + BLOCK - 1
    if mixed:
        sets = [VIEWS[: 5 + n % 2 * 5] if n % 3 else VIEWS[3:] for n in range(6)]
        runs = tuple(
            RelRun.model_construct(first=n, last=n, views=sets[n % 6], idle=())
            for n in range(start, last + 1)
        )
    else:
        runs = (RelRun(first=start, last=last, views=VIEWS),)
    rel = Rel.model_construct(group="g", first=start, last=last, runs=runs, committed_ms=last)
    lists = [
        ActionList(group="g", view=view, first=start, last=last, delta=Rows(rows=1, path="p"))
        for view in VIEWS
    ]
    return [rel, *lists]


def blocks(count: int, mixed: bool) -> Iterator[list[Rel | ActionList]]:
    """The load, block by block, so that it needs no memory of its own."""
    for start in range(0, count, BLOCK):
        yield messages(start, mixed)


def measure(count: int, mixed: bool) -> tuple[float, int, int]:
    """(seconds, bytes kept at the end, bytes of the snapshot)."""
    merge = MergeMachine("g", VIEWS)
    seconds = 0.0
    for block in blocks(count, mixed):
        begin = time.process_time()
        for message in block:
            merge.handle(message)
        merge.take_batch()
        seconds += time.process_time() - begin
    assert merge.frontier == count - 1
    return seconds, kept(mixed, count), len(str(merge.snapshot()))


def kept(mixed: bool, count: int) -> int:
    """Bytes that the machine holds after a load (measured apart: tracing is slow)."""
    tracemalloc.start()
    merge = MergeMachine("g", VIEWS)
    base = tracemalloc.get_traced_memory()[0]
    for block in blocks(min(count, 20 * BLOCK), mixed):
        for message in block:
            merge.handle(message)
        merge.take_batch()
    del block, message
    held = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    return held


def main() -> None:
    """Prints the table."""
    long = "--long" in sys.argv
    print(
        f"{'load':<8}{'transactions':>14}{'per CPU second':>16}{'kept bytes':>12}{'snapshot':>10}"
    )
    for mixed, top in ((False, 7 if long else 6), (True, 6 if long else 5)):
        for count in (10**power for power in range(4, top + 1)):
            seconds, held, saved = measure(count, mixed)
            name = "mixed" if mixed else "equal"
            print(f"{name:<8}{count:>14,}{count / seconds:>16,.0f}{held:>12,}{saved:>10,}")


if __name__ == "__main__":
    main()
