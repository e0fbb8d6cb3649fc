"""Bad records and what people have decided about them (DESIGN 11).

`_state/bad_records/<topic>-<partition>-<offset>.json` says what is wrong with a record, and
`_state/decisions/` holds, under the same name, who has decided that the pipeline goes on without it,
when and why. A decision is written once and never changed: it is what an audit reads.

A transaction that lacks records of a relation taints it at its number, and the views of the relation
stop there. The taint is lifted for whoever reads it once every bad record that may be behind it has been
decided: those that say the transaction, and those of the relation that say none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streaming.messages import Control
from streaming.warehouse.updates import UpdatesReader

BAD, DECIDED = "bad_records", "decisions"


def place_name(topic: str, partition: int, offset: int) -> str:
    """The file of a record, in either folder."""
    return f"{topic}-{partition}-{offset}.json"


def decisions(warehouse: Path) -> dict[str, dict[str, Any]]:
    """What has been decided, by the record's file name."""
    return _read(warehouse, DECIDED)


def bad_records(warehouse: Path) -> dict[str, dict[str, Any]]:
    """What is wrong with which record, by its file name."""
    return _read(warehouse, BAD)


def standing(
    warehouse: Path, reader: UpdatesReader, taints: Iterable[Control]
) -> tuple[Control, ...]:
    """The taints that no decision has lifted.

    Args:
        taints: of whole relations, or of columns, which no decision lifts.
    """
    given = tuple(taints)
    decided = decisions(warehouse)
    if not decided or not given:
        return given
    bad = _read(warehouse, BAD)
    return tuple(one for one in given if one.columns or not _lifted(one, reader, bad, decided))


def _lifted(
    taint: Control,
    reader: UpdatesReader,
    bad: Mapping[str, Mapping[str, Any]],
    decided: Mapping[str, Any],
) -> bool:
    source = taint.relation.partition(".")[0]
    numbered = reader.transactions(taint.number - 1, taint.number).to_pylist()
    own = {one["transaction"] for one in numbered if one["source"] == source}
    behind = [
        name
        for name, one in bad.items()
        if one.get("relation") == taint.relation
        and not one.get("lost")
        and (one.get("transaction") is None or one["transaction"] in own)
    ]
    return bool(behind) and all(name in decided for name in behind)


def _read(warehouse: Path, folder: str) -> dict[str, dict[str, Any]]:
    files = sorted((warehouse / "_state" / folder).glob("[!.]*.json"))
    return {file.name: json.loads(file.read_bytes()) for file in files}
