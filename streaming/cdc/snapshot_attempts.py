"""Which of the snapshot rows that came are the initial snapshot's (DESIGN 6).

A connector that is ended in the middle begins its snapshot again, at a later position of the log. Nothing
is streamed between two attempts, so the last attempt counts, also where an earlier one had come to its
last row: what was changed between the two no log tells. How many attempts there were is told by STARTED.
A snapshot after the initial one may lie in the topics by then: it is none of the attempts, or the log
tells of transactions before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.held_rows import HeldRows

Masks = dict[str, np.ndarray]
"""Relation -> which of the rows that wait."""


def initial(
    held: Mapping[str, HeldRows],
    relations: Sequence[CapturedRelation],
    scanned: Mapping[str, int],
    bad: Mapping[str, int],
    attempts: int,
    streamed: int | None,
) -> tuple[int, Masks] | None:
    """The position of the initial snapshot and its rows; None while they are not all in.

    Args:
        held: relation -> all snapshot rows so far.
        relations: of the source.
        scanned: collection -> rows, as notified.
        bad: relation -> undecodable records so far.
        attempts: snapshots begun until one was completed.
        streamed: position of the first transaction that the log tells of, None without one.
    """
    places = {r.relation.name: positions_of(held[r.relation.name]) for r in relations}
    positions = {p for column in places.values() for p in np.unique(column).tolist()}
    found: tuple[int, Masks] | None = None
    for nth, position in enumerate((-1, *sorted(positions))):
        if found is not None and (
            nth > attempts or (streamed is not None and position >= streamed)
        ):
            break
        masks: Masks = {}
        for captured in relations:
            name, wanted = captured.relation.name, scanned.get(captured.counted_as, 0)
            mask = _filled(held[name], places[name] == position, captured, wanted, bad.get(name, 0))
            if mask is None:
                break
            masks[name] = mask
        if len(masks) == len(relations):
            found = position, masks
    return found


def lacking(
    held: Mapping[str, HeldRows],
    relations: Sequence[CapturedRelation],
    scanned: Mapping[str, int],
    completed: bool,
) -> str:
    """What has come of an initial snapshot that is not all in, in words."""
    if not completed:
        rows = sum(held[one.relation.name].rows for one in relations)
        return f"{rows} rows have come, and no notification that it is complete"
    wanted = {one.relation.name: scanned.get(one.counted_as, 0) for one in relations}
    counts = [
        f"{held[name].rows} of {many} rows of {name}"
        for name, many in wanted.items()
        if held[name].rows != many
    ]
    return f"it is complete, and {', '.join(counts) or 'rows of several attempts'} have come"


def positions_of(held: HeldRows) -> np.ndarray:
    """Of each row."""
    found: np.ndarray = held.read(columns=["position"])["position"].to_numpy()
    return found


def _filled(
    held: HeldRows, mask: np.ndarray, captured: CapturedRelation, wanted: int, bad: int
) -> np.ndarray | None:
    """Those of some rows that are not repeats, if they are as many as were scanned.

    Undecodable ones count. A row delivered twice has the same key; a table without one cannot tell,
    and waits.
    """
    rows = int(np.count_nonzero(mask))
    if rows > wanted and captured.relation.key:
        keys = [f"a{i}" for i in captured.relation.key]
        table = held.read(mask, keys).append_column("row", pa.array(np.flatnonzero(mask)))
        first = table.group_by(keys).aggregate([("row", "min")])["row_min"].to_numpy()
        mask = np.zeros(len(mask), bool)
        mask[first] = True
        rows = len(first)
    return mask if rows <= wanted <= rows + bad else None
