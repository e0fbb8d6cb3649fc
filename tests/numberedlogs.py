"""Logs of several sources as (keys touched, global id or None), and whether numbers fit them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streaming.integrator.integrator_machine import Assignment
from streaming.integrator.knots import Touched

Logs = dict[str, list[tuple[set[int], str | None]]]
"""Per source its transactions, in log order."""
Numbers = dict[tuple[str, int], int]
"""(source, ordinal) -> number."""


def touched_of(logs: Logs, source: str, first: int, last: int) -> Touched:
    """What the transactions [first..last] of a source touch."""
    pairs = [(n, key) for n in range(first, last + 1) for key in logs[source][n - 1][0]]
    return Touched(np.array([n for n, _ in pairs]), np.array([key for _, key in pairs]))


def collect(numbers: Numbers, assignments: Iterable[Assignment]) -> None:
    """Add assignments; none twice."""
    for a in assignments:
        for ordinal in range(a.first, a.last + 1):
            assert (a.source, ordinal) not in numbers
            numbers[(a.source, ordinal)] = a.number + a.step * (ordinal - a.first)


def check_order(logs: Logs, numbers: Numbers) -> None:
    """No gaps, each key's order at its source kept, one number for each global transaction."""
    assert len(numbers) == sum(len(log) for log in logs.values())
    assert set(numbers.values()) == set(range(1, max(numbers.values()) + 1))
    for source, log in logs.items():
        newest: dict[int, int] = {}
        for ordinal, (touched, _) in enumerate(log, 1):
            number = numbers[(source, ordinal)]
            for key in touched:
                assert newest.get(key, 0) <= number, "a key's order at its source is kept"
                newest[key] = number
    whole: dict[str, set[int]] = {}
    for source, log in logs.items():
        for ordinal, (_, id_) in enumerate(log, 1):
            if id_ is not None:
                whole.setdefault(id_, set()).add(numbers[(source, ordinal)])
    assert all(len(found) == 1 for found in whole.values()), "one number for each"
