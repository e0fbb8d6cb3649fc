"""Global transactions of many threads that cross at two sources (DESIGN 6): ordered by keys, few units.

Each thread commits one global transaction after the other, its two parts in any order and between those
of all other threads, as two databases under load do. Log order alone percolates; keys keep units of one.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from streaming.integrator.integrator_machine import (
    Closed,
    Completed,
    IntegratorMachine,
    Numbered,
)
from streaming.integrator.knots import Touched
from streaming.integrator.window import PartOfGlobal
from tests.numberedlogs import Logs, Numbers, check_order, collect, touched_of

ACCOUNTS = 1_000


def under_load(threads: int, transfers: int, rng: random.Random) -> Logs:
    """The logs of sources a and b; each transfer touches one account at either."""
    logs: Logs = {"a": [], "b": []}
    open_: list[list[str]] = [[] for _ in range(threads)]
    names = [""] * threads
    begun = 0
    while begun < transfers or any(open_):
        thread = rng.randrange(threads)
        if not open_[thread]:
            if begun == transfers:
                continue
            open_[thread], names[thread] = rng.sample(("a", "b"), 2), f"g{begun}"
            begun += 1
        source = open_[thread].pop()
        logs[source].append(({rng.randrange(ACCOUNTS)}, names[thread]))
    return logs


def numbered(logs: Logs, by_keys: bool) -> tuple[Numbers, list[Numbered]]:
    """The numbers, in messages of up to 500 transactions of each source."""
    machine = IntegratorMachine(tuple(logs), max_unit=10**9)
    machine.handle(Completed(0, closed=tuple(Closed(source) for source in logs)))
    numbers: Numbers = {}
    said = []
    sent = dict.fromkeys(logs, 0)

    def keys(source: str, first: int, last: int) -> Touched:
        if by_keys:
            return touched_of(logs, source, first, last)
        ordinals = np.arange(first, last + 1)
        return Touched(ordinals, np.zeros(len(ordinals), np.int64))

    while any(sent[source] < len(log) for source, log in logs.items()):
        blocks = {s: (sent[s] + 1, min(sent[s] + 500, len(log))) for s, log in logs.items()}
        sent = {source: last for source, (_, last) in blocks.items()}
        parts = tuple(
            PartOfGlobal(source, n, str(logs[source][n - 1][1]), 2)
            for source, (first, last) in blocks.items()
            for n in range(first, last + 1)
        )
        said.append(machine.handle(Completed(0, blocks, parts, keys=keys)))
        collect(numbers, said[-1].assignments)
    return numbers, said


@pytest.mark.parametrize("threads", [4, 16, 64])
def test_crossing_transactions_of_many_threads_are_ordered_by_keys(threads: int) -> None:
    seed = random.randrange(2**32)
    logs = under_load(threads, 2_000, random.Random(seed))
    numbers, _ = numbered(logs, by_keys=True)
    check_order(logs, numbers)
    sizes = Counter(Counter(numbers.values()).values())
    alone = sizes[2]  # both parts of one transaction share its number
    assert alone >= 1_980, f"seed {seed}, {threads} threads: parts per number {dict(sizes)}"


def test_log_order_alone_makes_a_few_units_of_everything() -> None:
    logs = under_load(8, 1_000, random.Random(1))
    numbers, _ = numbered(logs, by_keys=False)
    check_order(logs, numbers)
    assert max(numbers.values()) < 50, "1,000 transactions"
