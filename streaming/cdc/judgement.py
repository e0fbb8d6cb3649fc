"""Which decoded rows cannot be used at all, and why (DESIGN 11).

A column that is missing in an event, or whose value does not fit, is lost alone: the row goes on with
NULL there. Not so a column of the primary key, by which rows are told apart, nor any column of the
table that tags global transactions; a row without them is not used, and neither is one that names no
column of its relation.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import GLOBAL_TABLE, CapturedRelation
from streaming.captured.log_format import LogFormat
from streaming.cdc.placeholder import doubt
from streaming.cdc.row_query import PASSING, READ

Rule = tuple[pa.Array, str]
"""Where it is broken, and "code\\nwhat\\ntodo"."""


def faults(
    captured: CapturedRelation, raw: pa.Table, table: pa.Table, metadata: bool, log: LogFormat
) -> pa.Array | None:
    """For each row the first rule it breaks ("code\\nwhat\\ntodo") or null; None when none breaks any.

    Args:
        raw: what `rowquery.row_query` made, with has_before and has_after.
        table: the same rows finished.
        metadata: whether rows must say their transaction.
        log: of the source.
    """
    found: pa.Array | None = None
    for wrong, text in [*_rules(captured, raw, metadata, log), *_lost(captured, table)]:
        if pc.any(wrong).as_py():
            empty = pa.nulls(table.num_rows, pa.string()) if found is None else found
            chosen = wrong.combine_chunks() if isinstance(wrong, pa.ChunkedArray) else wrong
            found = pc.coalesce(empty, pc.if_else(chosen, text, pa.scalar(None, pa.string())))
    return found


def _rules(captured: CapturedRelation, raw: pa.Table, metadata: bool, log: LogFormat) -> list[Rule]:
    op = raw["op"].combine_chunks()
    streamed = pc.invert(pc.is_in(op, pa.array(READ)))
    needs_before = pc.is_in(op, pa.array(["u", "d"]))
    needs_after = pc.is_in(op, pa.array(["c", "u", *READ]))
    unplaced = pc.and_(pc.is_null(raw["position"]), pc.not_equal(op, PASSING))
    name = captured.relation.name
    replica = log.whole_rows.format(table=captured.counted_as)
    place = " and ".join(f"source.{name}" for name in log.place)
    rules: list[Rule] = [
        (
            pc.invert(pc.is_in(op, pa.array(["c", "u", "d", "t", *READ]))),
            "SOURCE_OP_UNKNOWN\nhas an operation that is none of c, u, d, r, t, m\n",
        ),
        (
            pc.and_(needs_before, pc.invert(raw["has_before"])),
            f"SOURCE_BEFORE_MISSING\nchanges a row of {name} and does not say the old one\n{replica}",
        ),
        (
            pc.and_(needs_after, pc.invert(raw["has_after"])),
            f"SOURCE_FIELD_MISSING\nlacks `after`, the new row of {name}\n",
        ),
        (raw["doubtful"], doubt(captured)),
        (unplaced, f"SOURCE_FIELD_MISSING\nlacks its position, {place}\n"),
    ]
    if metadata:
        unsaid = pc.or_(pc.is_null(raw["transaction"]), pc.is_null(raw["total_order"]))
        rules.append(
            (
                pc.and_(pc.equal(op, "t"), unsaid),
                f"SOURCE_TRANSACTION_MISSING\nis a TRUNCATE of {name} without a transaction, so it has "
                "no place among them (Debezium's MySQL connector gives it none)\n"
                "capture with `fresco capture --source SOURCE`, or empty tables with "
                "DELETE; after a TRUNCATE let the "
                "connector take a blocking snapshot (execute-snapshot), then "
                "`fresco skip TOPIC PARTITION OFFSET --reason WHY`",
            )
        )
        rules.append(
            (
                pc.and_(streamed, unsaid),
                "SOURCE_TRANSACTION_MISSING\nsays no transaction\n"
                "set provide.transaction.metadata=true, or transactions: per-event for this source",
            )
        )
    return rules


def _lost(captured: CapturedRelation, table: pa.Table) -> list[Rule]:
    """Rows that lack a column without which no other column is of use."""
    relation = captured.relation
    needed = relation.key
    if relation.name.endswith(f".{GLOBAL_TABLE}"):
        needed = captured.comes
    rules: list[Rule] = []
    for name in ("missing", "unfit"):
        lists = table[name].combine_chunks()
        if lists.null_count == len(lists):
            continue
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        for position in np.intersect1d(values, needed).tolist():
            mask = np.zeros(len(lists), bool)
            mask[rows[values == position]] = True
            rules.append((pa.array(mask), _broken(captured, position, name == "missing")))
        if name == "missing":
            everything = pc.equal(pc.list_value_length(lists), len(captured.comes))
            text = f"SOURCE_FIELD_MISSING\nhas no column of {relation.name}\n"
            rules.append((pc.fill_null(everything, False), text))
    return rules


def _broken(captured: CapturedRelation, position: int, missing: bool) -> str:
    column = captured.relation.schema[position]
    if missing:
        return (
            f"SOURCE_FIELD_MISSING\nlacks {column.name}, which tells rows of "
            f"{captured.relation.name} apart\nstart a new pipeline over the table as it is now"
        )
    return (
        f"SOURCE_VALUE_UNFIT\nhas a value of {column.name} that does not fit {column.type} exactly "
        f"({captured.source_types[position]} at the source)\n"
        "correct the value, or start a new pipeline over the table as it is now"
    )
