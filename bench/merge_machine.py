"""Transactions per second through the merge machine alone, and what it keeps (DESIGN 5, 15).

Run: python -m bench.merge_machine [--long]. Messages are made before the clock starts, and it counts CPU
time: the machine is pure. Ten views, lists of 10,000 numbers, a cut after each 10,000. Loads:

* equal: one REL set for all numbers, in one run;
* cycled: six REL sets in turn, no two neighbours alike;
* random: any of the 1,023 REL sets, no two neighbours alike;
* PA: the random load, all lists complete, under PA; strong: lists of 100 numbers that are not.

`--long` goes up to 10^7 transactions and writes results/merge_machine.md.
"""

from __future__ import annotations

import os
import platform
import random
import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun, Rows

VIEWS = tuple(f"view{n}" for n in range(10))
BLOCK = 10_000
SIX = tuple(VIEWS[: 5 + n % 2 * 5] if n % 3 else VIEWS[3:] for n in range(6))
RESULT = Path(__file__).parent / "results" / "merge_machine.md"


@dataclass(frozen=True)
class Load:
    """A load.

    Attributes:
        sets: the REL sets in turn; () for one set in one run.
        size: numbers in a list.
        top: measured up to 10^top transactions, with --long.
    """

    name: str
    sets: tuple[tuple[str, ...], ...] = ()
    algorithm: Literal["spa", "pa"] = "spa"
    size: int = BLOCK
    complete: bool = True
    top: int = 7


def drawn(count: int) -> tuple[tuple[str, ...], ...]:
    """REL sets from a seed, each another than the one before it, the last another than the first."""
    rng = random.Random(1)
    sets: list[tuple[str, ...]] = []
    while len(sets) < count:
        found = tuple(view for view in VIEWS if rng.random() < 0.5)
        if found and (not sets or found not in (sets[-1], sets[0])):
            sets.append(found)
    return tuple(sets)


RANDOM = drawn(4_999)
LOADS = (
    Load("equal"),
    Load("cycled", SIX, top=6),
    Load("random", RANDOM),
    Load("PA", RANDOM, "pa", top=6),
    Load("strong", RANDOM, "pa", size=100, complete=False, top=5),
)


def messages(load: Load, start: int) -> list[Rel | ActionList]:
    """One cut: REL for a block of numbers and each view's lists."""
    last = start + BLOCK - 1
    sets = load.sets
    runs = (RelRun(first=start, last=last, views=VIEWS),)
    if sets:
        runs = tuple(
            RelRun.model_construct(first=n, last=n, views=sets[n % len(sets)], idle=())
            for n in range(start, last + 1)
        )
    rel = Rel.model_construct(
        group="g", first=start, last=last, runs=runs, positions={}, committed_ms=last, released=()
    )
    lists = [
        ActionList(
            group="g",
            view=view,
            first=first,
            last=first + load.size - 1,
            complete=load.complete,
            delta=Rows(rows=1, path="p"),
        )
        for first in range(start, last + 1, load.size)
        for view in VIEWS
    ]
    return [rel, *lists]


def blocks(load: Load, count: int) -> Iterator[list[Rel | ActionList]]:
    """The load, block by block, so that it needs no memory of its own."""
    for start in range(0, count, BLOCK):
        yield messages(load, start)


def measure(load: Load, count: int) -> tuple[float, int]:
    """(CPU seconds, bytes of the snapshot at the end)."""
    merge = MergeMachine("g", VIEWS, load.algorithm)
    seconds = 0.0
    for block in blocks(load, count):
        begin = time.process_time()
        for message in block:
            merge.handle(message)
        merge.take_batch()
        seconds += time.process_time() - begin
    assert merge.frontier == count - 1
    return seconds, len(str(merge.snapshot()))


def aged(load: Load, count: int) -> tuple[float, float]:
    """Transactions per CPU second of a machine that has had `count`, and of a fresh one, in turn.

    Other processes slow both alike, so the ratio shows growth where the rates alone cannot.
    """
    machines = [MergeMachine("g", VIEWS, load.algorithm) for _ in range(2)]
    for block in blocks(load, count):
        for message in block:
            machines[0].handle(message)
        machines[0].take_batch()
    seconds = [0.0, 0.0]
    for at in range(0, 50 * BLOCK, BLOCK):
        for which, start in enumerate((count + at, at)):
            block = messages(load, start)
            begin = time.process_time()
            for message in block:
                machines[which].handle(message)
            machines[which].take_batch()
            seconds[which] += time.process_time() - begin
    return 50 * BLOCK / seconds[0], 50 * BLOCK / seconds[1]


def kept(load: Load, count: int) -> int:
    """Bytes that the machine holds after a load, 20 blocks at most (measured apart: it is slow)."""
    tracemalloc.start()
    merge = MergeMachine("g", VIEWS, load.algorithm)
    base = tracemalloc.get_traced_memory()[0]
    for block in blocks(load, min(count, 20 * BLOCK)):
        for message in block:
            merge.handle(message)
        merge.take_batch()
    del block, message
    held = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    return held


def main() -> None:
    """Prints the table; writes it with --long."""
    long = "--long" in sys.argv
    lines = [
        "| load | transactions | CPU s | transactions/CPU s | peak RSS MB | kept bytes | snapshot |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for load in LOADS:
        for count in (10**power for power in range(4, (load.top if long else 5) + 1)):
            seconds, saved = measure(load, count)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            held = f"{kept(load, count):,}" if count < 10**6 and load.complete else ""
            lines.append(
                f"| {load.name} | {count:,} | {seconds:.2f} | {count / seconds:,.0f} "
                f"| {peak:.0f} | {held} | {saved:,} |"
            )
            print(lines[-1], flush=True)
    if long:
        old, new = aged(LOADS[2], 10**7)
        lines += [
            "",
            f"Random load, 500,000 more after 10,000,000: {old:,.0f} transactions/CPU s; ",
        ]
        lines[-1] += f"a fresh machine in turn with it: {new:,.0f}."
        print(lines[-1])
        RESULT.write_text(report(lines), encoding="utf-8")


def report(lines: list[str]) -> str:
    """The table with what it says and where it was measured."""
    parts = (__doc__ or "").strip().split("\n\n")
    return "\n\n".join(
        [
            f"# Merge machine alone, {date.today()}",
            f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, one "
            "process, other processes on the machine. "
            + " ".join(parts[1].split("--long]. ")[1].split()),
            parts[2],
            "\n".join(lines),
            "Peak RSS is the process's since it began, the block of messages that is being measured "
            "included; kept is what the machine alone holds after the load.\n",
        ]
    )


if __name__ == "__main__":
    main()
