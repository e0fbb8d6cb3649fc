"""REL: which views a transaction is relevant to, and which of them it leaves no work (DESIGN 5).

REL_i is by relation: every view, and every descendant, that uses a relation T_i changed; that is what
orders the VUT. Selections pushed down to the scans, judged on the old and the new version of each row,
and "no column the view reads has changed" spare the work only: such a view is `idle` at i. To call a
view not idle is always safe, and so is an empty list of a view that REL need not have named; both are
used to keep the runs few.

A part of a global transaction that is numbered apart is relevant to every view of the group, and work
for it: G-Strobe changes MV only when it has processed all parts (strobe-family 6.2, condition 3), those
of relations it does not use among them. So each view has one list over all parts, and PA's closure brings
all views past the transaction at once. By relation alone, parts that no view has in common would be rows
that nothing ties: with v over r and w over s, w would show its part without v's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from streaming.algebra.scans import ScanNeed, scan_needs
from streaming.algebra.tree import Tree
from streaming.messages import RelRun
from streaming.scalars.expression import Scalar
from streaming.scalars.failure import duck_text, tested

IDLE_RUNS = 64
"""Runs up to which `idle` may cut a batch; above, neighbours are merged."""
MOST_RUNS = 1024
"""Runs up to which relations may cut a batch; above, neighbours are merged."""

Query = Callable[[str, pa.Table], pa.Table]
"""Runs SQL over a table named `rows`, keeping its order."""


class RelevantView(Protocol):
    """A view as far as relevance needs it."""

    @property
    def name(self) -> str: ...

    @property
    def tree(self) -> Tree: ...


@dataclass(frozen=True)
class ViewNeed:
    """A view's scans of base relations, its parent views, and all base relations below it."""

    name: str
    scans: tuple[ScanNeed, ...]
    parents: tuple[str, ...]
    relations: frozenset[str]


def view_needs(views: Iterable[RelevantView]) -> dict[str, ViewNeed]:
    """What each view reads; parents before children."""
    scans = {view.name: scan_needs(view.tree) for view in views}
    needs: dict[str, ViewNeed] = {}

    def add(name: str) -> ViewNeed:
        if name not in needs:
            own = tuple(scan for scan in scans[name] if scan.relation not in scans)
            parents = tuple(
                dict.fromkeys(scan.relation for scan in scans[name] if scan.relation in scans)
            )
            below = [add(parent).relations for parent in parents]
            relations = frozenset(scan.relation for scan in own).union(*below)
            needs[name] = ViewNeed(name, own, parents, relations)
        return needs[name]

    for name in scans:
        add(name)
    return needs


def work_of(need: ScanNeed, rows: pa.Table, query: Query) -> np.ndarray:
    """For each row change, whether the scan may see it (bool).

    Args:
        rows: op, before b0.., after a0..; an update that changes nothing is not among them.
        query: runs the SQL; where it fails, every row counts as work and the evaluator reports.
    """
    width = len(need.schema)
    partial = len(need.columns) < width
    if not need.conditions and not partial:
        return np.ones(rows.num_rows, bool)
    before = _holds(need.conditions, [f"b{i}" for i in range(width)])
    after = _holds(need.conditions, [f"a{i}" for i in range(width)])
    sides = f"(op IN ('u', 'd') AND {before} OR op IN ('c', 'u', 'r') AND {after})"
    differs = [f"b{i} IS DISTINCT FROM a{i}" for i in sorted(need.columns)] if partial else []
    differs += [
        f"coalesce(signbit(b{i}) <> signbit(a{i}), false)"
        for i in sorted(need.columns)
        if partial and need.schema[i].type in ("float", "double")
    ]
    changed = f" AND (op <> 'u' OR {' OR '.join(differs) or 'false'})" if partial else ""
    try:
        result = query(f"SELECT {sides}{changed} AS work FROM rows", rows)
    except Exception:
        return np.ones(rows.num_rows, bool)
    found: np.ndarray = result["work"].to_numpy()
    return found


def _holds(conditions: Sequence[Scalar], columns: Sequence[str]) -> str:
    """Whether all hold; one that fails counts as holding, so that the evaluator meets it."""
    texts = []
    for condition in conditions:
        for value, failed in (duck_text(part, columns) for part in tested(condition)):
            texts.append(f"coalesce({value if failed is None else f'{failed} OR {value}'}, false)")
    return f"({' AND '.join(texts) or 'true'})"


@dataclass(frozen=True)
class BatchChanges:
    """Where a batch of numbers first..last changed what.

    Attributes:
        changed: relation -> bool per number.
        work: (relation, scan) -> bool per number; a lacking entry means wherever it changed.
        parts: bool per number, whether it is a part of a global transaction that is numbered apart; None
            where none is.
    """

    first: int
    last: int
    changed: Mapping[str, np.ndarray]
    work: Mapping[ScanNeed, np.ndarray]
    parts: np.ndarray | None = None


def runs(
    changes: BatchChanges, needs: Mapping[str, ViewNeed], views: Sequence[str]
) -> tuple[RelRun, ...]:
    """The REL entries of a merge group's views, run-length encoded, in order and without gaps."""
    length = changes.last - changes.first + 1
    if length <= 0:
        return ()
    names = sorted(views)
    nothing = np.zeros(length, bool)
    parts = nothing if changes.parts is None else changes.parts
    relevant = parts | np.stack(
        [
            np.logical_or.reduce([changes.changed.get(r, nothing) for r in needs[v].relations])
            if needs[v].relations
            else nothing
            for v in names
        ]
        or [nothing]
    )
    busy: dict[str, np.ndarray] = {}
    for view in names:
        busy[view] = _busy(view, needs, changes, nothing)
    idle = ~parts & np.stack([relevant[i] & ~busy[v] for i, v in enumerate(names)] or [nothing])
    guarded = _guarded(changes, needs, names, nothing) & relevant.any(axis=0)
    ordering = np.concatenate([relevant, guarded[np.newaxis]])
    starts = _starts(ordering)
    if len(starts) > MOST_RUNS:
        starts = _thinned(starts, np.zeros(0, np.int64), MOST_RUNS)
    if idle.any():
        starts = _thinned(_starts(np.concatenate([ordering, idle])), starts, IDLE_RUNS)
    stops = np.append(starts[1:], length)
    any_relevant = np.logical_or.reduceat(relevant, starts, axis=1)
    any_guarded = np.logical_or.reduceat(guarded, starts)
    all_idle = np.logical_and.reduceat(idle | ~relevant, starts, axis=1) & any_relevant
    result = []
    for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        chosen = tuple(n for n, yes in zip(names, any_relevant[:, place], strict=False) if yes)
        spared = tuple(n for n, yes in zip(names, all_idle[:, place], strict=False) if yes)
        result.append(
            RelRun(
                first=changes.first + start,
                last=changes.first + stop - 1,
                views=chosen,
                idle=spared,
                guarded=bool(any_guarded[place]),
            )
        )
    return tuple(result)


def _guarded(
    changes: BatchChanges, needs: Mapping[str, ViewNeed], views: Sequence[str], nothing: np.ndarray
) -> np.ndarray:
    """Where a relation changes that no view uses, which may be all that orders two rows.

    MVC 6.2 takes disjoint REL sets for transactions that commute. Smallest history: T1 on r and q, T2
    on q and s, views over r and over s: T2 after T1 because of q, and nothing in the VUT says so.
    """
    used = frozenset().union(*(needs[view].relations for view in views))
    unused = [flags for relation, flags in changes.changed.items() if relation not in used]
    return np.logical_or.reduce(unused) if unused and len(views) > 1 else nothing


def _busy(
    view: str, needs: Mapping[str, ViewNeed], changes: BatchChanges, nothing: np.ndarray
) -> np.ndarray:
    need = needs[view]
    found = nothing
    for scan in need.scans:
        changed = changes.changed.get(scan.relation, nothing)
        found = found | changes.work.get(scan, changed)
    for parent in need.parents:
        found = found | _busy(parent, needs, changes, nothing)
    return found


def _starts(matrix: np.ndarray) -> np.ndarray:
    """Where a column differs from the one before it."""
    differs = (matrix[:, 1:] != matrix[:, :-1]).any(axis=0)
    return np.concatenate(([0], np.flatnonzero(differs) + 1))


def _thinned(fine: np.ndarray, kept: np.ndarray, most: int) -> np.ndarray:
    """`kept` and as many of `fine`, evenly, as stay within `most` (at least `kept`)."""
    if len(fine) <= most:
        return fine if not len(kept) else np.union1d(fine, kept)
    room = max(most - len(kept), 1)
    picked = fine[np.linspace(0, len(fine) - 1, room).astype(np.int64)]
    return np.union1d(np.concatenate(([0], picked if len(kept) < most else kept[:1])), kept)
