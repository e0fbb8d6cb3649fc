"""REL for a step's numbers (DESIGN 5): by relation; selections and unused columns spare the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streaming.captured.captured_schema import GLOBAL_TABLE
from streaming.cdc.deltas import Query, RelationDelta
from streaming.integrator.integrator_machine import Numbered
from streaming.integrator.relevance import BatchChanges, ViewNeed, runs, work_of
from streaming.messages import GlobalPart, RelRun


def related(
    numbered: Numbered,
    batches: Mapping[str, RelationDelta],
    tainted: Mapping[int, tuple[str, ...]],
    views_of: Mapping[str, Sequence[str]],
    needs: Mapping[str, ViewNeed],
    used: frozenset[str],
    query: Query,
    parts: Sequence[GlobalPart] = (),
) -> dict[str, tuple[RelRun, ...]]:
    """REL of every merge group for the numbers of a step.

    Args:
        batches: relation -> its numbered changes.
        tainted: number -> relations that lack records there.
        views_of: merge group -> its views.
        used: the relations that any view uses.
        parts: numbers that are parts of global transactions, numbered apart.
    """
    first, last = numbered.first, numbered.last
    if first > last:
        return {}
    result: dict[str, list[RelRun]] = {group: [] for group in views_of}
    if first == 0:
        for group, names in views_of.items():
            result[group].append(RelRun(first=0, last=0, views=tuple(sorted(names))))
        first = 1
    length = last - first + 1
    changed, work = {}, {}
    for name, batch in batches.items():
        if name.endswith(f".{GLOBAL_TABLE}") and name not in used:
            continue  # each id is written once: it orders nothing
        changed[name] = _marked(batch.rows["number"].to_numpy(), first, length)
        whole = [n for n, names in tainted.items() if name in names]
        whole += [control.number for control in batch.controls]
        changed[name] |= _marked(np.array(whole, np.int64), first, length)
        for scan in {s for n in needs.values() for s in n.scans if s.relation == name}:
            seen = work_of(scan, batch.rows, query)
            numbers = batch.rows["number"].to_numpy()[seen]
            work[scan] = _marked(np.append(numbers, whole).astype(np.int64), first, length)
    for number, names in tainted.items():
        for name in names:
            if name not in changed and number >= first:
                changed[name] = _marked(np.array([number]), first, length)
    tagged = _marked(np.array([part.number for part in parts], np.int64), first, length)
    changes = BatchChanges(first, last, changed, work, tagged)
    for group, names in views_of.items():
        result[group] += runs(changes, needs, names)
    return {group: tuple(entries) for group, entries in result.items()}


def _marked(numbers: np.ndarray, first: int, length: int) -> np.ndarray:
    marks = np.zeros(length, bool)
    marks[numbers[numbers >= first] - first] = True
    return marks
