"""What Debezium writes for a TOAST value that an update left as it is, and what only reads like it.

PostgreSQL's log leaves such a value out of the new row, and Debezium writes its placeholder there; the
old row of REPLICA IDENTITY FULL has the value. A text may read like the placeholder all the same. It is
one where the old value is too short to be stored apart. In a row that is large enough for that the
placeholder is taken for what it nearly always is, an unchanged value; in any other nobody can tell, and
the record is refused by name. An insert and a snapshot hold no unchanged values. In a large row only a
placeholder that nobody can have written is sure: Debezium's own, which everybody knows, is warned of.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streaming.captured.captured_schema import CapturedRelation, source_type
from streaming.captured.checked import Checked, Rule

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder, as it is unless `unavailable.value.placeholder` says another."""
INLINE = 20
"""Octets that a value always has in its row: a reference to one stored apart is no smaller."""
ROW, VALUE = 32, 8
"""More octets than PostgreSQL adds to a row, and to each of its values."""

KNOWN = Rule(
    "SOURCE_PLACEHOLDER_KNOWN",
    "warning",
    "tables whose rows may be large, while what the connector writes for a value that did not change is"
    " Debezium's own text, or cannot be seen: setting a value in a large row to that text is read as no"
    " change",
)
RULES = (KNOWN,)


def check_placeholder(source: str, relations: Sequence[CapturedRelation]) -> Iterator[Checked]:
    """Whether a value of a PostgreSQL's tables may be taken for an unchanged one, unnoticed."""
    large = [one.counted_as for one in relations if one.placeholder == UNAVAILABLE and stores(one)]
    if large:
        more = ", ..." if len(large) > 5 else ""
        yield KNOWN.found(
            f"placeholder of {source}",
            f"a value in a large row of {', '.join(large[:5])}{more} that is set to {UNAVAILABLE} would"
            " be taken for one that did not change, and nobody could tell",
            f"set unavailable.value.placeholder=unchanged-{secrets.token_hex(8)}, or another text that is"
            f" in no row, at the connector, and sources.{source}.connect, which tells Fresco of it; where"
            " the connector has sent events, stop it first, let the service read them all, and start the"
            " service again after it",
        )


def stores(captured: CapturedRelation) -> bool:
    """Whether a row may have values that are stored apart and whose text may be the placeholder."""
    widths = [_most(type_) for type_ in captured.source_types]
    marked = any(mark(captured, column.type) for column in captured.relation.schema)
    if captured.refused or None in widths:
        return marked
    return (
        marked and ROW + sum(max(one or 0, VALUE) + VALUE for one in widths) >= captured.toasts_from
    )


def _most(type_: str) -> int | None:
    """Octets of the longest value of a database type; None where there is no such."""
    known = source_type(type_)
    if known.base in ("varchar", "character varying", "bpchar", "character", "char"):
        return 4 * known.arguments[0] if known.arguments else None
    if known.base == "uuid":
        return 36
    return None if known.base in ("text", "json", "jsonb", "bytea", "numeric") else 40


def mark(captured: CapturedRelation, spark: str) -> str:
    """What stands in a new row for an unchanged value of this Spark type; "" where nothing does."""
    said = captured.placeholder
    if spark == "binary":
        return base64.b64encode(said.encode()).decode()
    return said if spark == "string" else ""


def narrow_sql(captured: CapturedRelation, texts: Sequence[str]) -> str:
    """SQL: whether a row with these texts is too small for any of its values to be stored apart."""
    if captured.refused:
        return "false"  # nobody knows how wide the columns are that are left out
    sizes = [
        f"greatest(coalesce(strlen({text}), 0){_times(type_)}, {VALUE}) + {VALUE}"
        for text, type_ in zip(texts, captured.source_types, strict=True)
    ]
    # One list and no chain of sums: DuckDB's parser takes a chain of 1,000 for too deep.
    return f"({ROW} + list_sum([{', '.join(sizes)}]) < {captured.toasts_from})"


def narrow(captured: CapturedRelation, row: Mapping[int, Any]) -> bool:
    """The same of values by position."""
    if captured.refused:
        return False
    total = ROW
    for position, type_ in enumerate(captured.source_types):
        factor = 3 if type_ == "jsonb" else 1
        total += max(octets(row[position]) * factor, VALUE) + VALUE
    return total < captured.toasts_from


def octets(value: Any) -> int:
    """How long a value is."""
    if value is None:
        return 0
    return len(value) if isinstance(value, bytes) else len(str(value).encode())


def _times(type_: str) -> str:
    return " * 3" if type_ == "jsonb" else ""


def doubt(captured: CapturedRelation) -> str:
    """What is wrong with a row of which nobody can tell ("code\\nwhat\\ntodo")."""
    return (
        f"SOURCE_PLACEHOLDER\nhas in a row of {captured.relation.name} what the connector writes for a "
        "value that did not change, and it may be the value itself: nobody can tell\n"
        "let the connector write what no row has (unavailable.value.placeholder; sources.S.connect tells "
        "Fresco), then `fresco skip TOPIC PARTITION OFFSET --reason WHY` and let it take a blocking "
        "snapshot of the table (execute-snapshot)"
    )
