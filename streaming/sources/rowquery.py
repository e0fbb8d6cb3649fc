"""The one query that turns a topic's texts into rows, and the judgement of each row.

Three layers of SQL: parse the JSON once into text fields, name the fields (an unchanged TOAST value
takes the old row's), cast them. Struct fields are taken by position, because DuckDB does not tell
`Id` from `id`. A field that is lacking and one that is null look alike in the first layer; only rows
with a null are asked for their keys.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from streaming.algebra.types import arrow_type
from streaming.sources.schema import CapturedRelation
from streaming.sources.values import UNAVAILABLE, UNAVAILABLE_BASE64, casts

ROW_FIELDS = ("has_before", "has_after", "lacks", "misfit")
"""Columns of the query that only `finish_rows` reads."""


def row_query(captured: CapturedRelation, dialect: str, wrapped: bool) -> str:
    """SQL over `texts(p, o, v)`; a row whose event has no `op` comes out with op NULL."""
    schema = captured.relation.schema
    row = {column.name: "VARCHAR" for column in schema}
    place = {"lsn": "VARCHAR"} if dialect == "postgres" else {"file": "VARCHAR", "pos": "VARCHAR"}
    shape = {
        "op": "VARCHAR",
        "before": row,
        "after": row,
        "source": place,
        "transaction": {"id": "VARCHAR", "total_order": "VARCHAR"},
    }
    structure = json.dumps({"payload": shape} if wrapped else shape).replace("'", "''")
    event = "j.payload" if wrapped else "j"
    path = "$.payload" if wrapped else "$"
    olds = casts(captured, "x")
    news = casts(captured, "y")
    texts, checks, values, stale = [], [], [], []
    for position in range(len(schema)):
        texts.append(f"struct_extract_at(e.before, {position + 1}) AS x{position}")
        new = f"struct_extract_at(e.after, {position + 1})"
        if news[position].toasted:
            marks = f"('{UNAVAILABLE}', '{UNAVAILABLE_BASE64}')"
            old = f"struct_extract_at(e.before, {position + 1})"
            texts.append(f"CASE WHEN {new} IN {marks} THEN {old} ELSE {new} END AS y{position}")
            stale.append(f"CASE WHEN {new} IN {marks} THEN {position} END")
        else:
            texts.append(f"{new} AS y{position}")
        for text, name, cast in (
            (f"x{position}", f"b{position}", olds[position]),
            (f"y{position}", f"a{position}", news[position]),
        ):
            values += [f"{sql} AS {name}_{part}" for part, sql in enumerate(cast.columns)]
            if len(cast.columns) == 1:
                side = "before" if name[0] == "b" else "after"
                label = f"{side} {position}"
                checks.append(f"WHEN {text} IS NOT NULL AND {name}_0 IS NULL THEN '{label}'")
            else:
                values.append(f"{text} IS NOT NULL AS {name}_text")
    keys = "[" + ", ".join(_quoted(column.name) for column in schema) + "]"
    lacks = " OR ".join(
        f"({has} AND {' AND '.join(f'{t}{i} IS NOT NULL' for i in range(len(schema)))} IS NOT TRUE "
        f"AND NOT list_has_all(json_keys(v, '{path}.{side}'), {keys}))"
        for has, t, side in (("has_before", "x", "before"), ("has_after", "y", "after"))
    )
    toast = "NULL::INTEGER[]"
    if stale:
        marked = ", ".join(stale)
        toast = (
            f"CASE WHEN e.before IS NULL AND coalesce({marked}) IS NOT NULL "
            f"THEN list_filter([{marked}], s -> s IS NOT NULL) END"
        )
    key = 'e."transaction".id'
    key = f"split_part({key}, ':', 1)" if dialect == "postgres" else key
    position_sql = "TRY_CAST(e.source.lsn AS BIGINT)"
    if dialect == "mysql":
        position_sql = (
            "TRY_CAST(regexp_extract(e.source.file, '[.]([0-9]+)', 1) AS BIGINT) * 4294967296 "
            "+ TRY_CAST(e.source.pos AS BIGINT)"
        )
    misfit = f"CASE {' '.join(checks)} END" if checks else "NULL::VARCHAR"
    return (
        f"SELECT * EXCLUDE (v{_excluded(len(schema))}), {misfit} AS misfit, ({lacks}) AS lacks "
        f"FROM (SELECT *, {', '.join(values)} FROM ("
        f'SELECT p, o, v, e.op AS op, {key} AS "transaction", {position_sql} AS position, '
        f'TRY_CAST(e."transaction".total_order AS BIGINT) AS total_order, '
        f"e.before IS NOT NULL AS has_before, e.after IS NOT NULL AS has_after, "
        f"{toast} AS toast, {', '.join(texts)} "
        f"FROM (SELECT p, o, v, {event} AS e FROM "
        f"(SELECT p, o, v, from_json(v, '{structure}') AS j FROM texts))))"
    )


def _excluded(width: int) -> str:
    return "".join(f", x{i}, y{i}" for i in range(width))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def row_schema(captured: CapturedRelation) -> pa.Schema:
    """Schema of a relation's rows as decoded (see `Decoded.rows`)."""
    fields = [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("op", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("total_order", pa.int64()),
        pa.field("toast", pa.list_(pa.int32())),
    ]
    for side in "ba":
        for position, column in enumerate(captured.relation.schema):
            fields.append(pa.field(f"{side}{position}", arrow_type(column.type)))
    return pa.schema(fields)


def finish_rows(
    captured: CapturedRelation, raw: pa.Table, metadata: bool
) -> tuple[pa.Table, pa.Array | None]:
    """The rows in their types, and for each a fault ("code\\nwhat\\ntodo") or null.

    Args:
        metadata: whether rows must say their transaction.

    Returns:
        The table (same length as `raw`) and the faults, None when there is none.
    """
    schema = row_schema(captured)
    columns: dict[str, pa.Array] = {}
    misfit = raw["misfit"].combine_chunks()
    for side, prefix in (("b", "x"), ("a", "y")):
        label = "before" if side == "b" else "after"
        for position, cast in enumerate(casts(captured, prefix)):
            parts = tuple(
                raw[f"{side}{position}_{part}"].combine_chunks()
                for part in range(len(cast.columns))
            )
            value = cast.finish(parts)
            columns[f"{side}{position}"] = value
            if len(parts) > 1:
                text = raw[f"{side}{position}_text"].combine_chunks()
                wrong = pc.and_(text, pc.is_null(value))
                if pc.any(wrong).as_py():
                    misfit = pc.if_else(wrong, pa.scalar(f"{label} {position}"), misfit)
    for name in ("partition", "offset", "op", "transaction", "position", "total_order", "toast"):
        columns[name] = raw[name].combine_chunks()
    if not metadata:
        place = [columns[n].cast(pa.string()) for n in ("partition", "offset")]
        columns["transaction"] = pc.binary_join_element_wise(captured.topic, *place, "/")
    table = pa.table([columns[field.name] for field in schema], schema=schema)
    return table, _faults(captured, raw, misfit, metadata)


def _faults(
    captured: CapturedRelation, raw: pa.Table, misfit: pa.Array, metadata: bool
) -> pa.Array | None:
    op = raw["op"].combine_chunks()
    streamed = pc.not_equal(op, "r")
    truncate = pc.equal(op, "t")
    needs_before = pc.is_in(op, pa.array(["u", "d"]))
    needs_after = pc.is_in(op, pa.array(["c", "u", "r"]))
    name = captured.relation.name
    replica = f"ALTER TABLE {captured.counted_as} REPLICA IDENTITY FULL"
    rules: list[tuple[pa.Array, str]] = [
        (
            pc.invert(pc.is_in(op, pa.array(["c", "u", "d", "r", "t"]))),
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
        (pc.is_null(raw["position"]), "SOURCE_FIELD_MISSING\nlacks its position, source.lsn\n"),
        (
            pc.and_(pc.invert(truncate), pc.fill_null(raw["lacks"], False)),
            f"SOURCE_FIELD_MISSING\nlacks a column of {name}\n"
            "if the column was dropped, suspend and re-create the views that use it",
        ),
    ]
    if metadata:
        lost = pc.or_(pc.is_null(raw["transaction"]), pc.is_null(raw["total_order"]))
        rules.append(
            (
                pc.and_(streamed, lost),
                "SOURCE_TRANSACTION_MISSING\nsays no transaction\n"
                "set provide.transaction.metadata=true, or transactions: per-event for this source",
            )
        )
    faults: pa.Array | None = None
    for wrong, text in rules:
        if pc.any(wrong).as_py():
            empty = pa.nulls(len(op), pa.string()) if faults is None else faults
            chosen = wrong.combine_chunks() if isinstance(wrong, pa.ChunkedArray) else wrong
            faults = pc.coalesce(empty, pc.if_else(chosen, text, pa.scalar(None, pa.string())))
    for label in pc.unique(misfit.drop_null()).to_pylist():
        side, _, position = label.partition(" ")
        column = captured.relation.schema[int(position)]
        text = (
            f"SOURCE_VALUE_UNFIT\nhas a value of {column.name} ({side}) that does not fit "
            f"{column.type} exactly ({captured.source_types[int(position)]} at the source)\n"
            "change the value or the column's type, or leave the column out of every view"
        )
        chosen = pc.if_else(pc.equal(misfit, label), text, pa.scalar(None, pa.string()))
        faults = chosen if faults is None else pc.coalesce(faults, chosen)
    return faults
