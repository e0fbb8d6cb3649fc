"""A snapshot taken again, against what the log has told: `replace(R, rows)` (DESIGN 5).

The rows were read at a source state that nobody knows exactly, while the log went on. What need not be
known is where: a key that an event after the rows names has the event's row, which is whole; any other
key has stood still since, so the snapshot's row is right. That is the watermark rule of incremental
snapshots (DBLog), and it is exact for whatever lies between the rows and the number at which they take
effect, as long as everything the snapshot may have seen has a number by then.

Where nothing was lost the outcome is what the log had told, and nothing happens, in no mode: the
snapshot has confirmed the relation. Else the relation is emptied and filled under one number, as by a
TRUNCATE and inserts in one transaction. Where it cannot be told the snapshot is like a record that cannot
be read: the relation's views stop before that number, and people decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.held_rows import HeldRows
from streaming.cdc.records import BadRecord
from streaming.cdc.row_query import row_schema
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.scalars.expression import MULTIPLICITY, column_name

REPEATED = "SOURCE_SNAPSHOT_REPEATED"
Contents = Callable[[CapturedRelation, int], pa.Table]
"""A relation's rows after a number, as a delta; raises FrescoError where they cannot be had."""
_PLACED = ("partition", "offset", "total_order", "op", "toast")


@dataclass(frozen=True)
class Replaced:
    """What snapshots taken again make of their relations, all under one number.

    Attributes:
        rows: relation -> a truncate and its rows, with `number` in front.
        refused: for each relation that nobody can tell, the record that stands for the snapshot.
        notices: what a person should know, each once.
        controls: the taints of columns that the snapshots have not told right (`old_dates`).
    """

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    refused: tuple[BadRecord, ...] = ()
    notices: tuple[str, ...] = ()
    controls: tuple[Control, ...] = ()

    @property
    def numbers(self) -> int:
        """How many numbers it takes."""
        return int(bool(self.rows or self.refused))


def touched_schema(captured: CapturedRelation) -> pa.Schema:
    """What is remembered of the events after a snapshot's first row.

    Number and place, op, toast, k0.. of the key, and a0.. of the new row, null where there is none.
    """
    rows = row_schema(captured)
    fields = [pa.field("number", pa.int64()), *(rows.field(name) for name in _PLACED)]
    fields += [pa.field(f"k{i}", rows.field(f"a{i}").type) for i in _identity(captured)]
    return pa.schema([*fields, *(rows.field(name) for name in _images(captured))])


def touched(captured: CapturedRelation, rows: pa.Table) -> pa.Table:
    """What numbered events name; a key does not change in an update, so its old row names nothing new.

    A value that could not be read counts as one that is not told (`toast`).
    """
    untold = pc.coalesce(rows["toast"], rows["missing"], rows["unfit"])
    rows = rows.set_column(rows.schema.get_field_index("toast"), "toast", untold)
    schema, found = touched_schema(captured), []
    gone = ("d",) if captured.relation.key else ("d", "u")
    for side, ops in (("b", gone), ("a", ("c", "u", "t"))):
        chosen = rows.filter(pc.is_in(rows["op"], pa.array(ops)))
        columns = [chosen[name] for name in ("number", *_PLACED)]
        columns += [chosen[f"{side}{i}"] for i in _identity(captured)]
        columns += [chosen[name] for name in _images(captured)]
        found.append(pa.table(columns, schema=schema))
    return pa.concat_tables(found)


def replacement(
    captured: CapturedRelation,
    rows: pa.Table,
    later: pa.Table,
    contents: pa.Table,
    whole: bool,
    duck: duckdb.DuckDBPyConnection,
) -> pa.Table | None:
    """What the relation holds, where that is not what the log has told.

    Args:
        rows: the snapshot's, as decoded (`row_schema`), repeats included.
        later: of the events that have a number, those after the first of them (`touched_schema`).
        contents: the relation as the log has told it, as a delta.
        whole: the rows are all that the relation had; else those of some keys.
        duck: where it is worked out.

    Returns:
        A truncate and the rows, as decoded; None where there is no difference.

    Raises:
        FrescoError: SOURCE_SNAPSHOT_REPEATED, for a relation without a key that changed meanwhile.
    """
    places = range(len(captured.relation.schema))
    names = {"rows": rows, "later": later, "contents": contents}
    for name, table in names.items():
        duck.register(f"again_{name}", table)
    try:
        held = ", ".join(f"c.{column_name(i)} AS a{i}" for i in places)
        identity = ", ".join(column_name(i) for i in _identity(captured))
        # A row that is gone may have been told with other values than it had come with.
        duck.execute(
            f"CREATE OR REPLACE TEMP TABLE again_held AS SELECT {held} FROM (SELECT *, "
            f"sum({MULTIPLICITY}) OVER (PARTITION BY {identity}) AS left_ FROM again_contents) AS c, "
            f"range(greatest(c.{MULTIPLICITY}, 0)) WHERE left_ > 0"
        )
        if captured.relation.key:
            duck.execute(f"CREATE OR REPLACE TEMP TABLE again_new AS {_keyed(captured, whole)}")
        else:
            duck.execute(f"CREATE OR REPLACE TEMP TABLE again_new AS {_unkeyed(captured)}")
        if not _differences(duck, captured):
            return None
        if not captured.relation.key and (later.num_rows or not whole):
            raise unclear(captured, rows)
        new = duck.execute("SELECT * FROM again_new").to_arrow_table()
        tells_all = whole and not pc.any(new["told"]).as_py()
        return _as_decoded(captured, new.drop_columns(["told"]), -1 if tells_all else 0)
    finally:
        for name in names:
            duck.unregister(f"again_{name}")
        for name in ("again_held", "again_new"):
            duck.execute(f"DROP TABLE IF EXISTS {name}")


def _identity(captured: CapturedRelation) -> tuple[int, ...]:
    return tuple(captured.relation.key or range(len(captured.relation.schema)))


def _images(captured: CapturedRelation) -> list[str]:
    return [f"a{i}" for i in range(len(captured.relation.schema))]


def _keyed(captured: CapturedRelation, whole: bool) -> str:
    """SQL: the snapshot's rows that no later event names, and what is there of the other keys.

    A new row that lacks a value is as the log has told it (`told`). Events of a key lie in one
    partition of the topic, a TRUNCATE in any; all of a whole snapshot is before what comes after its
    first row.
    """
    key = _identity(captured)
    images = ", ".join(_images(captured))
    keys = ", ".join(f"a{i}" for i in key)
    named = ", ".join(f"k{i}" for i in key)
    same = " AND ".join(f"x.a{i} IS NOT DISTINCT FROM y.k{i}" for i in key)
    equal = " AND ".join(f"x.a{i} IS NOT DISTINCT FROM y.a{i}" for i in key)
    lists = "NULL AS missing, NULL AS unfit, NULL AS prints"
    told = f"SELECT {images}, {lists}, true AS told FROM again_held AS x"
    others = f"UNION ALL {told} ANTI JOIN fresh AS y ON {equal} ANTI JOIN last AS y ON {same}"
    return f"""
        WITH emptied AS (
          SELECT max((number, coalesce(total_order, 0), "offset")) AS place FROM again_later
          WHERE op = 't'
        ), last AS MATERIALIZED (
          SELECT *, coalesce(
            (number, coalesce(total_order, 0), "offset") > (SELECT place FROM emptied), true) AS stands
          FROM again_later WHERE op <> 't'
          QUALIFY row_number() OVER (PARTITION BY {named} ORDER BY number DESC, "offset" DESC) = 1
        ), fresh AS MATERIALIZED (
          SELECT x.* FROM (
            SELECT * FROM again_rows
            QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY "offset" DESC) = 1
          ) AS x LEFT JOIN last AS y ON {same}
          WHERE coalesce(y."offset", -1) < x."offset" AND NOT EXISTS (
            SELECT 1 FROM again_later AS t WHERE t.op = 't' AND ({whole} OR t."offset" > x."offset"))
        ), known AS MATERIALIZED (
          SELECT x.* FROM last AS x ANTI JOIN fresh AS y ON {equal.replace("x.a", "x.k")}
          WHERE x.op <> 'd' AND x.stands
        )
        SELECT {images}, missing, unfit, prints, false AS told FROM fresh
        UNION ALL SELECT {images}, NULL, NULL, NULL, false FROM known WHERE toast IS NULL
        UNION ALL {told} SEMI JOIN (SELECT * FROM known WHERE toast IS NOT NULL) AS y ON {same}
        {"" if whole else others}"""


def _unkeyed(captured: CapturedRelation) -> str:
    """SQL: the snapshot's rows; what later events name cannot be told apart, and is left as told."""
    places = range(len(captured.relation.schema))
    images = ", ".join(f"a{i}" for i in places)
    same = " AND ".join(f"x.a{i} IS NOT DISTINCT FROM y.k{i}" for i in places)
    named = (
        "(EXISTS (SELECT 1 FROM again_later WHERE op = 't') "
        f"OR EXISTS (SELECT 1 FROM again_later AS y WHERE {same}))"
    )
    return (
        f"SELECT {images}, missing, unfit, prints, false AS told FROM again_rows AS x "
        f"WHERE NOT {named} "
        f"UNION ALL SELECT {images}, NULL, NULL, NULL, true FROM again_held AS x WHERE {named}"
    )


def _differences(duck: duckdb.DuckDBPyConnection, captured: CapturedRelation) -> int:
    images = ", ".join(f"a{i}" for i in range(len(captured.relation.schema)))
    one, other = (f"SELECT {images} FROM again_{name}" for name in ("held", "new"))
    found = duck.execute(
        f"SELECT (SELECT count(*) FROM ({one} EXCEPT ALL {other})) + "
        f"(SELECT count(*) FROM ({other} EXCEPT ALL {one})) + "
        f"(SELECT count(*) FROM again_contents WHERE {MULTIPLICITY} < 0)"
    ).fetchone()
    return int(found[0]) if found else 0


def _as_decoded(captured: CapturedRelation, rows: pa.Table, place: int) -> pa.Table:
    """A truncate at a place that says what it is (`PLACES`), and the rows as in a snapshot after it."""
    schema = row_schema(captured)
    count = rows.num_rows + 1
    columns = []
    for wanted in schema:
        if wanted.name in rows.column_names:
            values = rows[wanted.name].cast(wanted.type).combine_chunks()
            columns.append(pa.chunked_array([pa.nulls(1, wanted.type), values], wanted.type))
        elif wanted.name == "op":
            columns.append(pa.array(["t"] + ["r"] * rows.num_rows))
        elif wanted.name == "position":
            columns.append(pa.array([place] + [1] * rows.num_rows, wanted.type))
        elif wanted.name in ("partition", "offset"):
            columns.append(pa.array(np.zeros(count), wanted.type))
        else:
            columns.append(pa.nulls(count, wanted.type))
    return pa.table(columns, schema=schema)


def cannot_tell(captured: CapturedRelation, number: int) -> pa.Table:
    """The contents of a relation where nobody keeps them. Raises FrescoError."""
    raise FrescoError(
        REPEATED,
        f"a second snapshot of {captured.relation.name} cannot be compared with what its log told",
        where=f"topic {captured.topic}, before number {number}",
        todo="start a new pipeline in an empty warehouse under another name",
    )


def may_hold(captured: CapturedRelation, contents: Contents, number: int) -> bool:
    """Whether the relation has rows, or nobody can say."""
    try:
        return bool(contents(captured, number).num_rows)
    except FrescoError as error:
        if error.code != REPEATED:
            raise
        return True


def unclear(captured: CapturedRelation, rows: pa.Table) -> FrescoError:
    """The error of a snapshot whose rows cannot be told from those of later events."""
    name = captured.relation.name
    return FrescoError(
        REPEATED,
        f"a second snapshot of {name} differs from what its log has told, and the relation has no "
        "key by which the rows that changed meanwhile could be told apart",
        where=f"topic {captured.topic}, partition {rows['partition'][0].as_py()}, "
        f"offset {rows['offset'][0].as_py()}",
        todo="take the snapshot again while nobody writes to the table, or go on with what the log has "
        f"told; then `fresco skip {captured.topic} {rows['partition'][0].as_py()} "
        f"{rows['offset'][0].as_py()} --reason WHY`",
    )


def refused(captured: CapturedRelation, rows: pa.Table, error: FrescoError) -> BadRecord:
    """The first of a snapshot's rows, as the record that cannot be used."""
    partition, offset = rows["partition"][0].as_py(), rows["offset"][0].as_py()
    told = {
        **error.as_dict(),
        "where": f"topic {captured.topic}, partition {partition}, offset {offset}",
    }
    return BadRecord(
        captured.topic, partition, offset, told, captured.source, captured.relation.name
    )


def outcome(captured: CapturedRelation, found: pa.Table | None, number: int) -> str:
    """What to say of a snapshot that was taken again."""
    name = captured.relation.name
    if found is None:
        return f"a snapshot of {name} was taken again: it agrees with what the log has told"
    return (
        f"SOURCE_SNAPSHOT_DIFFERS: a snapshot of {name} was taken again and differs from what the log "
        f"has told, which must have lost changes; the relation has its {found.num_rows - 1} rows from "
        f"number {number} on [topic {captured.topic}] -> compare with "
        "`fresco verify --source`"
    )


def found_empty(captured: CapturedRelation) -> str:
    """What to say of one that found no row where some are known."""
    name = captured.relation.name
    return (
        f"SOURCE_SNAPSHOT_EMPTY: a snapshot that was taken again found no row of {name}, and nothing "
        f"tells which of those that are known came after it [topic {captured.topic}] -> "
        f"`fresco verify --source` shows whether some are left over; "
        "then TRUNCATE the table at the source"
    )


def unfinished(captured: CapturedRelation, rows: int, scanned: int | None) -> str:
    """What to say of one of which no more comes; `scanned` is None where nobody has said."""
    of = "an unknown number of" if scanned is None else str(scanned)
    return (
        f"SOURCE_SNAPSHOT_UNFINISHED: a snapshot of {captured.relation.name} was taken again and never "
        f"came whole: {rows} of {of} rows can be used; the relation stays as the log has told it "
        f"[topic {captured.topic}] -> see `fresco status` for records that cannot be read, and take "
        "the snapshot again"
    )


def distinct(captured: CapturedRelation, rows: HeldRows) -> int:
    """Rows without repeats; a relation without a key cannot tell."""
    if not captured.relation.key:
        return -1
    keys = [f"a{i}" for i in captured.relation.key]
    return int(rows.read(columns=keys).group_by(keys).aggregate([]).num_rows)
