"""Whether the triggers of the delta tables have been in place all the time (moro-sartori 5.5).

A view kept by sessions is right only while no change passes the triggers by. So each session looks them
up in the catalog in the very snapshot in which it reads, and keeps what it saw as a *mark*: the
objects' ids, and of the triggers and the function also the transactions that wrote their catalog rows.
A catalog row is written anew by every ALTER or CREATE OR REPLACE; so an equal mark means that the same
trigger, enabled, was there without a gap since it was seen last, and another one that there may have
been a gap, however short: then the view must be computed anew. A delta table that was emptied by
TRUNCATE has another file, which is part of the mark as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from streaming.errors import FrescoError
from streaming.isolated.delta_tables import DeltaTable

_STATE = """
SELECT b.oid, b.relkind::text, b.relrowsecurity,
  EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE b.oid IN (i.inhparent, i.inhrelid)),
  d.oid, d.relfilenode, a.attnum IS NOT NULL, f.oid, f.xmin::text, f.prosrc,
  r.oid, r.xmin::text, r.tgenabled::text, t.oid, t.xmin::text, t.tgenabled::text
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
  WITH ORDINALITY AS w(base_schema, base, home, name, on_rows, on_truncate, place)
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = w.base_schema
LEFT JOIN pg_catalog.pg_class b ON b.relnamespace = n.oid AND b.relname = w.base
LEFT JOIN pg_catalog.pg_namespace h ON h.nspname = w.home
LEFT JOIN pg_catalog.pg_class d ON d.relnamespace = h.oid AND d.relname = w.name AND d.relkind = 'r'
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = d.oid AND a.attname = '_row' AND NOT a.attisdropped AND a.atttypid = b.reltype
LEFT JOIN pg_catalog.pg_proc f ON f.pronamespace = h.oid AND f.proname = w.name AND f.pronargs = 0
LEFT JOIN pg_catalog.pg_trigger r
  ON r.tgrelid = b.oid AND r.tgname = w.on_rows AND r.tgfoid = f.oid
LEFT JOIN pg_catalog.pg_trigger t
  ON t.tgrelid = b.oid AND t.tgname = w.on_truncate AND t.tgfoid = f.oid
ORDER BY w.place
"""


@dataclass(frozen=True)
class RelationObjects:
    """What the catalog says of one relation's objects.

    Attributes:
        base: the table's kind; None when there is no such table.
        whole: rows come and go under triggers only: it is neither partitioned nor part of a family.
        hidden: row level security may keep rows from a reader.
        delta: whether the delta table is there, with its row column.
        text: of the function; None when it is missing.
        enabled: of the row trigger and the one for TRUNCATE: "A" always, None when it is missing.
        mark: see above.
    """

    relation: str
    base: str | None
    whole: bool
    hidden: bool
    delta: bool
    text: str | None
    enabled: tuple[str | None, str | None]
    mark: str

    @property
    def function(self) -> bool:
        return self.text is not None

    @property
    def missing(self) -> str:
        """What keeps changes from being recorded, in words; "" when nothing does."""
        if self.base is None:
            return "there is no such table"
        if not self.delta:
            return "its delta table is not there"
        if not self.function:
            return "its trigger function is not there"
        for name, enabled in zip(
            ("row trigger", "trigger for TRUNCATE"), self.enabled, strict=True
        ):
            if enabled is None:
                return f"its {name} is not there"
            if enabled != "A":
                return f"its {name} is not enabled always"
        return ""


def watch(
    connection: psycopg.Connection[Any], tables: Sequence[DeltaTable]
) -> dict[str, RelationObjects]:
    """By relation, in the transaction's snapshot."""
    columns = [
        [one.base[0] for one in tables],
        [one.base[1] for one in tables],
        [one.home for one in tables],
        [one.name for one in tables],
        [one.triggers[0] for one in tables],
        [one.triggers[1] for one in tables],
    ]
    rows = connection.execute(_STATE, columns).fetchall()
    return {one.relation: _watched(one, row) for one, row in zip(tables, rows, strict=True)}


def _watched(one: DeltaTable, row: tuple[Any, ...]) -> RelationObjects:
    base, kind, secured, family, delta, file, typed, function, f_xmin, text = row[:10]
    rows, r_xmin, r_enabled, emptied, t_xmin, t_enabled = row[10:]
    mark = (
        f"{base} {delta}.{file} {function}.{f_xmin} {rows}.{r_xmin}.{r_enabled}"
        f" {emptied}.{t_xmin}.{t_enabled}"
    )
    return RelationObjects(
        one.relation,
        kind,
        kind == "r" and not family,
        bool(secured),
        delta is not None and bool(typed),
        text if function is not None else None,
        (r_enabled, t_enabled),
        mark,
    )


def refuse_unfit(one: RelationObjects) -> None:
    """Refuse a table whose changes triggers cannot tell in full.

    Raises:
        FrescoError: SOURCE_TABLE_MISSING, SOURCE_TABLE_UNFIT.
    """
    if one.base is None:
        raise FrescoError(
            "SOURCE_TABLE_MISSING",
            f"there is no table for {one.relation}",
            where=one.relation,
            todo="correct the table's name in the configuration (schema.table, case counts)",
        )
    if not one.whole:
        raise FrescoError(
            "SOURCE_TABLE_UNFIT",
            f"{one.relation} is no plain table by itself (a view, partitioned, or with parents or"
            " children): rows can come and go there without a trigger",
            where=one.relation,
            todo="use a mode that reads the log (USING replica, USING compensating) for its views",
        )


def broken(
    found: Mapping[str, RelationObjects], marks: Mapping[str, str]
) -> dict[str, FrescoError]:
    """By relation, why what its triggers recorded cannot be relied on.

    Args:
        marks: what was seen last; a relation without one has no past to compare with.
    """
    wrong = {}
    for name, one in found.items():
        if one.missing:
            wrong[name] = FrescoError(
                "SOURCE_TRIGGER_MISSING",
                f"changes of {name} are not recorded: {one.missing}",
                where=name,
                todo="run `fresco isolated install`; its views are then "
                "computed anew by themselves",
            )
        elif marks.get(name, one.mark) != one.mark:
            wrong[name] = FrescoError(
                "SOURCE_TRIGGER_GAP",
                f"the triggers of {name} were away or switched off for a while, so changes may be"
                " missing",
                where=name,
                todo="nothing: its views are computed anew",
            )
    return wrong
