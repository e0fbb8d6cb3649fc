"""`fresco skip`: the decision to go on without a bad record, written down once (DESIGN 11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.runtime.manifests import ManifestExists, put_if_absent
from streaming.viewchanges.requests import asked_by
from streaming.warehouse.decisions import DECIDED, bad_records, decisions, place_name


def skip(warehouse: Path, topic: str, partition: int, offset: int, reason: str) -> dict[str, Any]:
    """Record it, with who decided, from where and when; returns what was recorded.

    Raises:
        FrescoError: RECORD_NOT_BAD, RECORD_DECIDED, RECORD_COLUMN.
    """
    name = place_name(topic, partition, offset)
    where = f"topic {topic}, partition {partition}, offset {offset}"
    bad = bad_records(warehouse).get(name)
    if bad is None:
        raise FrescoError(
            "RECORD_NOT_BAD",
            "the pipeline has no such bad record",
            where=where,
            todo="see `fresco status` for topic, partition and offset of those it has",
        )
    if bad.get("lost"):
        raise FrescoError(
            "RECORD_COLUMN",
            "the record is used, but for a column that it lacks: there is nothing to skip",
            where=where,
            todo="write the SQL of the views that stopped for the table as it is now, drop and add them",
        )
    folder = warehouse / "_state" / DECIDED
    folder.mkdir(parents=True, exist_ok=True)
    decision = {
        "decision": "skip",
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "reason": reason,
        "by": asked_by(),
        "record": bad,
    }
    try:
        put_if_absent(folder / name, json.dumps(decision).encode())
    except ManifestExists:
        told = decisions(warehouse)[name]
        raise FrescoError(
            "RECORD_DECIDED",
            f"this was decided already, by {told['by']}: {told['reason']}",
            where=where,
            todo="a decision stands; views that stopped there come back by `fresco view resume NAME`",
        ) from None
    return decision
