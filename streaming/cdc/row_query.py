"""The one query that turns a topic's texts into rows, and the judgement of each value.

Three layers of SQL: parse the JSON once into text fields, name the fields (an unchanged TOAST value
takes the old row's), cast them. Struct fields are taken by position, because DuckDB does not tell
`Id` from `id`. A field that is missing and one that is null look alike in the first layer; only rows
with a null are asked for their keys. A value that is missing or does not fit comes out as NULL, and
the row lists its column: `missing` and `unfit` are null in every row that is right. Beside `unfit` stands
what each such column adds to the print of all images that cannot be read there: a hash of the new image's
texts less one of the old image's. A value that is corrected later takes away what it had added, so the
prints of a column add up to 0 exactly when every image that could not be read is gone again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.json_values import casts
from streaming.captured.log_format import LogFormat
from streaming.cdc import placeholder
from streaming.scalars.types import arrow_type

KEYS = ("kb", "ka")
"""The names of the fields in an image of a row that has a NULL: before and after."""
PASSING = "i"
"""Op of a row that an incremental snapshot read between the log's own events; Debezium's is r, and it
has no position."""
READ = ("r", PASSING)
_PRESENT = "s -> s IS NOT NULL"


def row_query(
    captured: CapturedRelation,
    log: LogFormat,
    wrapped: bool,
    timed: bool = False,
    retyped: bool = False,
) -> str:
    """SQL over `texts(p, o, v)`; a row whose event has no `op` comes out with op NULL.

    Args:
        timed: with `committed_ms`, as the event says it, where no transaction does.
        retyped: columns whose values are of another type now are among them (`finish_rows`).
    """
    schema = captured.relation.schema
    comes = captured.comes
    fields = list(dict.fromkeys(schema[at].name for at in comes))
    row = dict.fromkeys(fields, "VARCHAR")
    place = {**log.place, "snapshot": "VARCHAR", **({"ts_ms": "VARCHAR"} if timed else {})}
    time = "TRY_CAST(e.source.ts_ms AS BIGINT) AS committed_ms, " if timed else ""
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
    olds, news = casts(captured, "x"), casts(captured, "y")
    texts, stale, doubtful = _images(captured, log, fields)
    values = []
    checks: dict[str, dict[int, list[str]]] = {"b": {}, "a": {}}
    unread: dict[str, list[str]] = {"b": [], "a": []}
    for position in range(len(schema)):
        for text, name, cast in (
            (f"x{position}", f"b{position}", olds[position]),
            (f"y{position}", f"a{position}", news[position]),
        ):
            values += [f"{sql} AS {name}_{part}" for part, sql in enumerate(cast.columns)]
            if len(cast.columns) == 1:
                wrong = f"({text} IS NOT NULL AND {name}_0 IS NULL)"
                checks[name[0]][position] = [wrong]
                unread[name[0]].append(wrong)
            else:
                values.append(f"{text} IS NOT NULL AS {name}_text")
                unread[name[0]].append(f"{text} IS NOT NULL")
    values += _named_fields(comes, path)
    toast = "NULL::INTEGER[]"
    if stale:
        marked = ", ".join(stale)
        toast = (
            f"CASE WHEN e.before IS NULL AND e.op = 'c' AND coalesce({marked}) IS NOT NULL "
            f"THEN list_filter([{marked}], {_PRESENT}) END"
        )
    id_ = 'e."transaction".id'
    key = log.transaction.format(id=id_)
    return (
        f"SELECT * EXCLUDE (v, ka, kb{_excluded(len(schema))}), {_hashes(unread, len(schema), retyped)}, "
        f"{_missing(captured)} AS missing, {_listed(checks['b'])} AS lb, {_listed(checks['a'])} AS la "
        f"FROM (SELECT *, {', '.join(values)} FROM ("
        f"SELECT p, o, v, CASE WHEN e.op = 'r' AND e.source.snapshot = 'incremental' "
        f"THEN '{PASSING}' ELSE e.op END AS op, "
        f'{key} AS "transaction", {log.position} AS position, '
        f'TRY_CAST(e."transaction".total_order AS BIGINT) AS total_order, '
        f"e.before IS NOT NULL AS has_before, e.after IS NOT NULL AS has_after, "
        f"{toast} AS toast, {doubtful} AS doubtful, {time}{', '.join(texts)} "
        f"FROM (SELECT p, o, v, {event} AS e FROM "
        f"(SELECT p, o, v, from_json(v, '{structure}') AS j FROM texts))))"
    )


def _images(
    captured: CapturedRelation, log: LogFormat, fields: Sequence[str]
) -> tuple[list[str], list[str], str]:
    """SQL of the texts of both images, x0.. and y0..; where a new one stands for an unchanged value, its
    position; and whether nobody can tell that it does (`placeholder`)."""
    texts, stale, doubts, marks = [], [], [], []
    width = len(captured.relation.schema)
    olds = [_field("e.before", captured, position, fields) for position in range(width)]
    for position, (old, column) in enumerate(zip(olds, captured.relation.schema, strict=True)):
        new = _field("e.after", captured, position, fields)
        texts.append(f"{old} AS x{position}")
        mark = placeholder.mark(captured, column.type) if log.marks_unchanged else ""
        if not mark:
            texts.append(f"{new} AS y{position}")
            continue
        least = placeholder.INLINE if column.type == "string" else (placeholder.INLINE + 2) // 3 * 4
        marked = f"{new} = {_quoted(mark)}"
        kept = f"e.op = 'u' AND strlen({old}) > {least}"
        # Each CASE looks at the rows that come so far only, and hardly any does.
        value = f"CASE WHEN {kept} THEN {old} ELSE {new} END"
        texts.append(f"CASE WHEN {marked} THEN {value} ELSE {new} END AS y{position}")
        stale.append(f"CASE WHEN {marked} THEN {position} END")
        doubts.append(f"({marked} AND {kept} AND {old} <> {new})")
        marks.append(marked)
    if not doubts:
        return texts, stale, "false"
    narrow = placeholder.narrow_sql(captured, olds)
    doubtful = f"coalesce(({' OR '.join(doubts)}) AND {narrow}, false)"
    return texts, stale, f"CASE WHEN {' OR '.join(marks)} THEN {doubtful} ELSE false END"


def _field(image: str, captured: CapturedRelation, position: int, fields: Sequence[str]) -> str:
    """SQL: the text of a column in an image of the row; none of one that does not come any more."""
    if position in captured.lost:
        return "NULL::VARCHAR"
    return (
        f"struct_extract_at({image}, {fields.index(captured.relation.schema[position].name) + 1})"
    )


def _named_fields(comes: Sequence[int], path: str) -> list[str]:
    """SQL: the names of the fields in each image that has a NULL, as `KEYS`."""
    cells = []
    for has, text, keys, side in (
        ("has_before", "x", "kb", "before"),
        ("has_after", "y", "ka", "after"),
    ):
        null = " OR ".join(f"{text}{i} IS NULL" for i in comes)
        fields = f"json_keys(v, '{path}.{side}')"
        cells.append(f"CASE WHEN {has} AND ({null}) THEN {fields} END AS {keys}")
    return cells


def _hashes(unread: dict[str, list[str]], width: int, always: bool) -> str:
    """SQL: a hash of each image's texts, `hb` and `ha`, where some value of it may not be readable."""
    cells = []
    for side, text in (("b", "x"), ("a", "y")):
        hashed = f"CAST(hash({', '.join(f'{text}{i}' for i in range(width))}) >> 2 AS BIGINT)"
        may = "true" if always else " OR ".join(unread[side])
        cells.append(f"CASE WHEN {may} THEN {hashed} END AS h{side}")
    return ", ".join(cells)


def _missing(captured: CapturedRelation) -> str:
    """SQL: the columns that an image of the row does not name, null when it names them all."""
    names = {at: _quoted(captured.relation.schema[at].name) for at in captured.comes}
    every = f"[{', '.join(dict.fromkeys(names.values()))}]"
    lacking = " OR ".join(f"({k} IS NOT NULL AND NOT list_has_all({k}, {every}))" for k in KEYS)
    checks = {
        position: [f"({k} IS NOT NULL AND NOT list_contains({k}, {name}))" for k in KEYS]
        for position, name in names.items()
    }
    return f"CASE WHEN {lacking} THEN {_listed(checks)} END"


def _listed(checks: dict[int, list[str]]) -> str:
    """SQL: the list of positions for which a check is true, null when there is none."""
    if not checks:
        return "NULL::INTEGER[]"
    wrong = {position: " OR ".join(each) for position, each in checks.items()}
    cells = ", ".join(f"CASE WHEN {check} THEN {position} END" for position, check in wrong.items())
    return f"CASE WHEN {' OR '.join(wrong.values())} THEN list_filter([{cells}], {_PRESENT}) END"


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
        pa.field("missing", pa.list_(pa.int32())),
        pa.field("unfit", pa.list_(pa.int32())),
        pa.field("prints", pa.list_(pa.int64())),
    ]
    for side in "ba":
        for position, column in enumerate(captured.relation.schema):
            fields.append(pa.field(f"{side}{position}", arrow_type(column.type)))
    return pa.schema(fields)


def finish_rows(
    captured: CapturedRelation, raw: pa.Table, metadata: bool, retyped: tuple[int, ...] = ()
) -> pa.Table:
    """The rows in their types (`row_schema`), as many as in `raw`.

    Args:
        metadata: whether rows say their transaction; otherwise each is one, named by its place.
        retyped: positions of columns whose values are of another type now: only NULL fits.
    """
    schema = row_schema(captured)
    columns: dict[str, pa.Array] = {}
    wrong = _found_in_text(raw)
    for side, prefix in (("b", "x"), ("a", "y")):
        for position, cast in enumerate(casts(captured, prefix)):
            parts = tuple(
                raw[f"{side}{position}_{part}"].combine_chunks()
                for part in range(len(cast.columns))
            )
            value = cast.finish(parts)
            columns[f"{side}{position}"] = value
            if len(parts) > 1 or value.null_count > parts[0].null_count:
                there = pc.is_valid(parts[0])
                if len(parts) > 1:
                    there = raw[f"{side}{position}_text"].combine_chunks()
                misfit = pc.and_(there, pc.is_null(value))
                if pc.any(misfit).as_py():
                    found = wrong.get((position, side), False)
                    wrong[position, side] = misfit.to_numpy(zero_copy_only=False) | found
            if position in retyped and value.null_count < len(value):
                misread = pc.is_valid(value).to_numpy(zero_copy_only=False)
                wrong[position, side] = misread | wrong.get((position, side), False)
                columns[f"{side}{position}"] = pa.nulls(len(value), value.type)
    columns["unfit"], columns["prints"] = _listed_with_prints(raw, wrong)
    for field in schema:
        if field.name not in columns:
            columns[field.name] = raw[field.name].combine_chunks()
    if not metadata:
        place = [columns[n].cast(pa.string()) for n in ("partition", "offset")]
        columns["transaction"] = pc.binary_join_element_wise(captured.topic, *place, "/")
    return pa.table([columns[field.name] for field in schema], schema=schema)


def _found_in_text(raw: pa.Table) -> dict[tuple[int, str], np.ndarray]:
    """Position and image -> the rows in which the query found that its text does not fit."""
    wrong: dict[tuple[int, str], np.ndarray] = {}
    for side in "ba":
        lists = raw[f"l{side}"].combine_chunks()
        if lists.null_count == len(lists):
            continue
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        for position in np.unique(values).tolist():
            mask = np.zeros(raw.num_rows, bool)
            mask[rows[values == position]] = True
            wrong[position, side] = mask
    return wrong


def _listed_with_prints(
    raw: pa.Table, wrong: dict[tuple[int, str], np.ndarray]
) -> tuple[pa.Array, pa.Array]:
    """`unfit` and `prints` of rows; null in those that are right.

    Args:
        wrong: position and image -> the rows in which its value does not fit.
    """
    count = raw.num_rows
    if not wrong:
        return pa.nulls(count, pa.list_(pa.int32())), pa.nulls(count, pa.list_(pa.int64()))
    hashes = {
        side: pc.fill_null(raw[f"h{side}"].combine_chunks(), 0).to_numpy(zero_copy_only=False)
        for side in "ba"
    }
    positions = sorted({position for position, _ in wrong})
    listed = np.zeros((count, len(positions)), bool)
    prints = np.zeros((count, len(positions)), np.int64)
    for (position, side), mask in wrong.items():
        at = positions.index(position)
        listed[:, at] |= mask
        prints[mask, at] += hashes[side][mask] if side == "a" else -hashes[side][mask]
    ends = pa.array(np.concatenate(([0], np.cumsum(listed.sum(axis=1)))), pa.int32())
    right = pa.array(~listed.any(axis=1))
    named = np.broadcast_to(np.array(positions, np.int32), listed.shape)[listed]
    lists = ((named, pa.int32()), (prints[listed], pa.int64()))
    unfit, printed = (
        pa.ListArray.from_arrays(ends, pa.array(values, type_), mask=right)
        for values, type_ in lists
    )
    return unfit, printed
