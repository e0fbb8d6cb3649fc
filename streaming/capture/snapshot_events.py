"""A difference of two snapshots, or a first snapshot, as Debezium's events in JSON (DESIGN 6).

DuckDB writes them, a batch at a time: nothing is held, and no row passes through Python before it is a
message. A snapshot's number stands in the place of the log position and names the transaction; decimals
are strings (`decimals: string`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from streaming.capture.differential import difference_sql, form
from streaming.captured.captured_schema import CapturedRelation, source_type
from streaming.scalars.types import decimal_parts

CHUNK = 20_000
"""Events handed out at a time."""
VERSION = "3.6.1-fresco"
"""The version of the format, which tells a reader how passes and counts are to be understood."""


@dataclass(frozen=True)
class Stamp:
    """What all events of a publication share.

    Attributes:
        position: the snapshot's number; it stands for the log position, and names the transaction.
        before: events of the tables before this one, so that total_order goes on.
        ms: when the snapshot was taken, milliseconds since 1970.
    """

    prefix: str
    position: int
    before: int
    ms: int


def events(
    engine: duckdb.DuckDBPyConnection,
    captured: CapturedRelation,
    old: Path | None,
    new: Path,
    stamp: Stamp,
    skip: int = 0,
) -> Iterator[pa.RecordBatch]:
    """The events of a table as Debezium's JSON: batches of (key, value), texts.

    Args:
        old: None for the first snapshot, whose rows are read (op r).
        skip: events at the beginning that are left out.
    """
    names = [column.name for column in captured.relation.schema]
    before = _image(captured, "b", names)
    after = _image(captured, "a", names)
    if old is None:
        given = ", ".join(f"NULL AS b{at}, c{at} AS a{at}" for at in range(len(names)))
        rows = f"SELECT 'r' AS op, {given}, row_number() OVER () AS n FROM {form(new)}"
    else:
        rows = difference_sql(captured, old, new)
    schema, _, table = captured.counted_as.rpartition(".")
    source = {
        "version": VERSION,
        "connector": "postgresql",
        "name": stamp.prefix,
        "ts_ms": stamp.ms,
        "snapshot": "true" if old is None else "false",
        "db": stamp.prefix,
        "schema": schema,
        "table": table,
        "txId": stamp.position,
        "lsn": stamp.position,
    }
    place = "NULL"
    if old is not None:
        id_ = f"{stamp.position}:{stamp.position}"
        place = (
            f"json_object('id', '{id_}', 'total_order', {stamp.before} + n,"
            " 'data_collection_order', n)"
        )
    key = "NULL::VARCHAR"
    if captured.relation.key:
        chosen = [f"coalesce(b{at}, a{at})" for at in captured.relation.key]
        cells = ", ".join(
            f"{_literal(names[at])}, {_wire(captured, at, ref)}"
            for at, ref in zip(captured.relation.key, chosen, strict=True)
        )
        key = f"json_object({cells})::VARCHAR"
    value = (
        f"json_object('before', CASE WHEN op IN ('u', 'd') THEN {before} END,"
        f" 'after', CASE WHEN op IN ('c', 'u', 'r') THEN {after} END,"
        f" 'source', {_literal(json.dumps(source))}::JSON, 'transaction', {place}, 'op', op,"
        f" 'ts_ms', {stamp.ms})::VARCHAR"
    )
    query = f"SELECT {key} AS key, {value} AS value FROM ({rows}) WHERE n > {skip} ORDER BY n"
    yield from engine.execute(query).to_arrow_reader(CHUNK)


def _image(captured: CapturedRelation, side: str, names: Sequence[str]) -> str:
    cells = [f"{_literal(n)}, {_wire(captured, at, f'{side}{at}')}" for at, n in enumerate(names)]
    return f"json_object({', '.join(cells)})"


def _wire(captured: CapturedRelation, at: int, ref: str) -> str:
    """SQL of a form's value as Debezium sends it, with decimals as strings."""
    spark, base = captured.relation.schema[at].type, source_type(captured.source_types[at])
    if decimal_parts(spark) is not None:
        return f"{ref}::VARCHAR"
    match spark:
        case "float" | "double":
            words = f"CASE WHEN {ref} > 0 THEN 'Infinity' ELSE '-Infinity' END"
            special = f"CASE WHEN isnan({ref}) THEN 'NaN' ELSE {words} END"
            return f"CASE WHEN isfinite({ref}) THEN to_json({ref}) ELSE to_json({special}) END"
        case "timestamp":
            at_ = f"make_timestamp({ref})"
            return f"strftime({at_}, '%Y-%m-%dT%H:%M:%S.%fZ')"
        case "timestamp_ntz" if base.arguments and base.arguments[0] <= 3:
            return f"{ref} // 1000"
    return ref


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
