"""What Debezium's notifications say of snapshots after the initial one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class SnapshotNotes:
    """What a source's notifications say of its newest snapshot of one kind.

    Attributes:
        scanned: collection -> rows.
        completed: nothing more will come of it.
        at: when that was, by the connector's clock, milliseconds since 1970.
        starts: snapshots begun, and `positions` those of which rows have come: a snapshot is not
            measured by the notifications of the one before.
        heard: when the last row or notification of it was read, by our clock.
    """

    scanned: Mapping[str, int] = field(default_factory=dict)
    completed: bool = False
    at: int = 0
    starts: int = 0
    positions: int = 0
    heard: int = 0


def heard(told: SnapshotNotes, note: Mapping[str, Any], now_ms: int) -> SnapshotNotes:
    """After one more notification, read at `now_ms`: most say themselves when they were made."""
    told = replace(told, heard=now_ms)
    match note["type"]:
        case "STARTED":
            return replace(told, scanned={}, completed=False, starts=told.starts + 1)
        case "TABLE_SCAN_COMPLETED":
            rows = int(note.get("total_rows_scanned", 0))
            return replace(told, scanned={**told.scanned, str(note["scanned_collection"]): rows})
        case "COMPLETED" | "SKIPPED" | "ABORTED":
            return replace(told, completed=True, at=int(note.get("timestamp") or now_ms))
    return told
