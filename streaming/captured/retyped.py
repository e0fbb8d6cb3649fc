"""What the schema part of events says of columns that were retyped at the source (DESIGN 6, 11).

The same JSON value means different things under different types: 1234 is a number, a day or a
microsecond, and four base64 digits are another number at another scale. Where Kafka Connect puts the
schema beside each event, a column whose values would be misread is told by it, before a value is
looked at; without it only a value that does not fit shows. All events of a topic carry the same text
of the schema until the table changes, so one comparison of prefixes finds the events that differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, connect_type, source_type

_BEGINNING = re.compile(r'\s*\{\s*"schema"\s*:\s*')
SOURCE_TYPE = "__debezium.source.column.type"
"""The parameter of a field that names its type at the source (column.propagate.source.type)."""
_INTEGERS = ("int2", "int4", "int8", "smallint", "integer", "int", "bigint")
_FLOATS = ("float4", "float8", "real", "double precision")
_READ_AS: Mapping[str, frozenset[str]] = {
    "text": frozenset(("text", "integer", "signed", "boolean")),
    "integer": frozenset(("integer", "signed", "text", "float")),
    "unsigned": frozenset(("integer", "text")),
    "float": frozenset(("float", "integer", "signed", "text")),
    "boolean": frozenset(("boolean", "text")),
    "variable": frozenset(("variable", "integer", "signed", "float", "text")),
}
"""Kinds of values that are read right, or refused one by one, as another kind.

Of a BIGINT UNSIGNED the larger half comes as negative numbers. Where an event says which of both it
has (`signed`, `unsigned`), the one is not read as the other.
"""


def by_schema(
    captured: CapturedRelation, texts: pa.Table
) -> Iterator[tuple[pa.Table, tuple[int, ...]]]:
    """The texts (p, o, v) cut by their schema part, each piece with its retyped columns' positions."""
    while texts.num_rows:
        prefix = _prefix(texts["v"][0].as_py())
        if prefix is None:
            same = pc.invert(pc.match_substring_regex(texts["v"], "^" + _BEGINNING.pattern))
        else:
            same = pc.starts_with(texts["v"], prefix)
        if pc.all(same).as_py():
            yield texts, _retyped(captured, prefix)
            return
        first = pa.array([True] + [False] * (texts.num_rows - 1))
        same = pc.or_(first, same)
        yield texts.filter(same), _retyped(captured, prefix)
        texts = texts.filter(pc.invert(same))


def _prefix(text: str) -> str | None:
    """The text up to the end of its schema part; None without one."""
    beginning = _BEGINNING.match(text)
    if beginning is None:
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(text, beginning.end())
    except ValueError:
        return None
    return text[:end]


def _retyped(captured: CapturedRelation, prefix: str | None) -> tuple[int, ...]:
    """Positions of the columns whose values are of a kind that would be misread."""
    schema = json.loads(prefix + "}")["schema"] if prefix is not None else None
    if not isinstance(schema, dict):
        return ()
    images = [one for one in schema.get("fields") or () if one.get("field") in ("before", "after")]
    fields: dict[str, Any] = {f["field"]: f for one in images for f in one.get("fields") or ()}
    return tuple(
        position
        for position, column in enumerate(captured.relation.schema)
        if column.name in fields
        and position not in captured.lost
        and not _readable(captured, position, _field_kind(fields[column.name]))
    )


def _field_kind(field: Mapping[str, Any]) -> str:
    said = str((field.get("parameters") or {}).get(SOURCE_TYPE, "")).upper()
    if said.startswith("BIGINT") and field.get("type") == "int64":
        return "unsigned" if "UNSIGNED" in said else "signed"
    return written_as(connect_type(field))


def _readable(captured: CapturedRelation, position: int, kind: str) -> bool:
    expected = written_as(captured.source_types[position])
    if kind == expected:
        return True
    if expected.startswith("decimal"):
        # Where digits and base64 could be taken for one another, digits come in string mode only.
        written = captured.decimals == "string"
        return (
            kind == "float"
            or (kind == "text" and (written or expected != "decimal 0"))
            or (kind in ("integer", "signed") and written)
        )
    return kind in _READ_AS.get(expected, ())


def written_as(database: str) -> str:
    """How JSON carries the values of a database type."""
    parts = source_type(database)
    if parts.base in ("numeric", "decimal"):
        scale = parts.arguments[1] if len(parts.arguments) > 1 else 0
        return f"decimal {scale}" if parts.arguments else "variable"
    if parts.base in ("timestamptz", "timestamp with time zone"):
        return "zoned"
    if parts.base.startswith("timestamp"):
        return "milliseconds" if parts.arguments and parts.arguments[0] <= 3 else "microseconds"
    if parts.base in _INTEGERS:
        return "integer"
    if parts.base == "bigint unsigned":
        return "unsigned"
    if parts.base == "bits":
        return f"bits {parts.arguments}"
    if parts.base in _FLOATS:
        return "float"
    return {"date": "days", "bool": "boolean", "boolean": "boolean", "bytea": "bytes"}.get(
        parts.base, "text"
    )
