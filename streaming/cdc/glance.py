"""What one event of a topic's batch tells of all: its envelope, its connector, its table's columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa


def first_event(texts: pa.Table) -> dict[str, Any]:
    """The first value that is a JSON object, of the first few."""
    for value in texts["v"].slice(0, 10).to_pylist():
        try:
            event = json.loads(value)
        except ValueError:
            continue
        if isinstance(event, dict):
            return event
    return {}


def is_wrapped(texts: pa.Table) -> bool:
    """Whether events come with Kafka Connect's schema part."""
    event = first_event(texts)
    return "payload" in event and "schema" in event


def version(texts: pa.Table) -> str:
    """The connector's version as the first event says it."""
    event = first_event(texts)
    payload = event.get("payload") or event
    source = payload.get("source") if isinstance(payload, dict) else None
    return str(source.get("version", "unknown")) if isinstance(source, dict) else "unknown"


def fields_of(texts: pa.Table) -> frozenset[str]:
    """The columns that the last event names: every event names all its table has at that time."""
    event = first_event(texts.slice(max(texts.num_rows - 1, 0)))
    payload = event.get("payload") or event
    if not isinstance(payload, dict):
        return frozenset()
    images = [payload.get(side) for side in ("before", "after")]
    return frozenset(name for image in images if isinstance(image, dict) for name in image)
