"""REL of simulated transactions, by the integrator's own rules (`integrator.relevance`).

What `relevance.runs` says of a batch depends on which relations and scans its numbers change, not on
the numbers, so each such pattern is worked out once and moved to the numbers at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from streaming.algebra.scans import ScanNeed
from streaming.integrator.relevance import BatchChanges, ViewNeed, runs, view_needs
from streaming.messages import RelRun
from streaming.scalars.meanings import evaluate
from streaming.simulator.small_views import CaseCatalog
from streaming.simulator.workload import WorkloadChange

Pattern = tuple[frozenset[str], frozenset[int], bool]
"""The relations a number changes, which of the catalog's scans may see it, and whether it is a part of a
global transaction that is numbered apart."""


@lru_cache(maxsize=256)
def needs(catalog: CaseCatalog) -> dict[str, ViewNeed]:
    """What each view reads."""
    return view_needs(catalog.views)


@lru_cache(maxsize=256)
def scans(catalog: CaseCatalog) -> tuple[ScanNeed, ...]:
    """All scans of all views, each once."""
    return tuple(dict.fromkeys(s for need in needs(catalog).values() for s in need.scans))


def pattern(catalog: CaseCatalog, changes: Iterable[WorkloadChange], part: bool = False) -> Pattern:
    """The pattern of one number's row changes; an update that changes nothing is dropped."""
    changes = [change for change in changes if not change.idles]
    changed = frozenset([change.relation for change in changes])
    return changed, frozenset().union(*[seeing(catalog, change) for change in changes]), part


@lru_cache(maxsize=65536)
def seeing(catalog: CaseCatalog, change: WorkloadChange) -> frozenset[int]:
    """Which of the catalog's scans may see a row change."""
    return frozenset([place for place, scan in enumerate(scans(catalog)) if sees(scan, change)])


def sees(scan: ScanNeed, change: WorkloadChange) -> bool:
    """Whether a scan may see a row change: `relevance.work_of` for one row in plain Python."""
    if change.relation != scan.relation or (change.before == change.after and not change.truncates):
        return False
    before, after = change.before, change.after
    if change.truncates:
        return True
    if before is not None and after is not None and len(scan.columns) < len(scan.schema):
        changed = any(before[i] != after[i] for i in scan.columns)
    else:
        changed = True
    if not changed:
        return False
    return any(
        row is not None and all(evaluate(c, row) is True for c in scan.conditions)
        for row in (before, after)
    )


@lru_cache(maxsize=65536)
def rel_runs(catalog: CaseCatalog, first: int, patterns: tuple[Pattern, ...]) -> tuple[RelRun, ...]:
    """REL of the numbers from `first` on, one pattern each."""
    return tuple(
        [
            RelRun(first=first + start, last=first + stop, views=views, idle=idle, guarded=guarded)
            for start, stop, views, idle, guarded in _from_zero(catalog, patterns)
        ]
    )


@lru_cache(maxsize=65536)
def _from_zero(
    catalog: CaseCatalog, patterns: tuple[Pattern, ...]
) -> tuple[tuple[int, int, tuple[str, ...], tuple[str, ...], bool], ...]:
    changed = {
        name: np.array([name in one for one, _, _ in patterns]) for name in catalog.relations
    }
    work = {
        scan: np.array([place in seen for _, seen, _ in patterns])
        for place, scan in enumerate(scans(catalog))
    }
    parts = np.array([part for _, _, part in patterns])
    found = runs(
        BatchChanges(0, len(patterns) - 1, changed, work, parts),
        needs(catalog),
        [view.name for view in catalog.views],
    )
    return tuple((run.first, run.last, run.views, run.idle, run.guarded) for run in found)
