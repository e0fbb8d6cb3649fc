"""Delta tables with transaction ids at a PostgreSQL source: their names and SQL (moro-sartori 5.5).

The paper has two delta tables for each relation, one of insertions and one of deletions; here they are
one with a sign. A row trigger fills it, and a statement trigger where a TRUNCATE takes all rows.

**The application must not feel it.** The changed row is stored as a value of the table's own row type, so
that a column that is added, dropped or renamed never makes a statement of the application fail in the
trigger. What changes the rows themselves, another type or a new column with a default, is refused by
PostgreSQL while the type is in use: `fresco isolated remove` comes first and `install` after it, and the
views are computed anew. The function runs with its owner's rights, so that writers need none on the delta
tables, and names everything with its schema. An update that changes nothing is left out.

**Nothing passes it by.** The triggers are ENABLE ALWAYS, so they also fire for replicated changes and
where a session has switched triggers off for itself. Tables whose rows come and go without triggers,
partitioned ones and parents of others, are refused.

The delta tables of a pipeline are in a schema of its own, `fresco_<pipeline>`, so that two pipelines over
one database do not delete each other's rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from psycopg import sql

from streaming.ask.postgres.pg_catalog import split_name
from streaming.captured.captured_schema import CapturedRelation

LONGEST = 63
"""Bytes of a name in PostgreSQL; what is longer is cut without a word."""


@dataclass(frozen=True)
class DeltaTable:
    """The objects of one relation at its source.

    Attributes:
        relation: its name in views, "north.entry".
        base: schema and name of the table itself.
        home: the schema of the delta table and of the trigger function; both are called `name`.
        triggers: the row trigger's name, and that of the one for TRUNCATE.
        channel: where the triggers notify.
    """

    relation: str
    base: tuple[str, str]
    home: str
    name: str
    triggers: tuple[str, str]
    channel: str

    @property
    def base_sql(self) -> sql.Identifier:
        return sql.Identifier(*self.base)

    @property
    def table_sql(self) -> sql.Identifier:
        """The delta table, and the function."""
        return sql.Identifier(self.home, self.name)


def delta_table_of(captured: CapturedRelation, pipeline: str) -> DeltaTable:
    """The names that a pipeline's objects of a relation have."""
    return DeltaTable(
        captured.relation.name,
        split_name(captured.counted_as),
        home_of(pipeline),
        fitting(captured.counted_as),
        (fitting(f"fresco_{pipeline}", "_rows"), fitting(f"fresco_{pipeline}", "_truncate")),
        home_of(pipeline),
    )


def home_of(pipeline: str) -> str:
    """The schema of a pipeline's delta tables, and its channel."""
    return fitting(f"fresco_{pipeline}")


def fitting(text: str, suffix: str = "") -> str:
    """The name, cut where PostgreSQL would cut it, but so that different ones stay different."""
    if len((text + suffix).encode()) <= LONGEST:
        return text + suffix
    mark = "~" + hashlib.sha256(text.encode()).hexdigest()[:8] + suffix
    return text.encode()[: LONGEST - len(mark)].decode(errors="ignore") + mark


def creations(one: DeltaTable, notify: bool) -> list[sql.Composed]:
    """What makes the table, its index and the function; may be run again.

    The function is left as it is where it is the same: a new version of it would look like a gap.
    """
    return [
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(one.home)),
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (_tid xid8 NOT NULL, _sign int2 NOT NULL, _row {})"
        ).format(one.table_sql, one.base_sql),
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (_tid)").format(
            sql.Identifier(fitting(one.name, "_tid")), one.table_sql
        ),
        sql.SQL(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {}"
        ).format(one.table_sql, sql.Literal(body(one, notify))),
        sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(one.table_sql),
    ]


_BODY = """
BEGIN
  IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
    INSERT INTO {delta} (_tid, _sign, _row)
      SELECT pg_catalog.pg_current_xact_id(), -1, r FROM ONLY {base} AS r;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
    INSERT INTO {delta} (_tid, _sign, _row) VALUES (pg_catalog.pg_current_xact_id(), 1, NEW);
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
    INSERT INTO {delta} (_tid, _sign, _row) VALUES (pg_catalog.pg_current_xact_id(), -1, OLD);
  ELSIF OLD OPERATOR(pg_catalog.*<>) NEW THEN
    INSERT INTO {delta} (_tid, _sign, _row) VALUES
      (pg_catalog.pg_current_xact_id(), -1, OLD), (pg_catalog.pg_current_xact_id(), 1, NEW);
  END IF;{notify}
  RETURN NULL;
END
"""


def body(one: DeltaTable, notify: bool) -> str:
    """The function's text: what a row, or a TRUNCATE, adds to the delta table."""
    said = sql.SQL("\n  PERFORM pg_catalog.pg_notify({}, '');").format(sql.Literal(one.channel))
    text = sql.SQL(_BODY).format(
        delta=one.table_sql, base=one.base_sql, notify=said if notify else sql.SQL("")
    )
    return text.as_string()


def trigger_creations(one: DeltaTable) -> tuple[sql.Composed, sql.Composed]:
    """The row trigger and the one for TRUNCATE."""
    rows, emptied = (sql.Identifier(name) for name in one.triggers)
    return (
        sql.SQL(
            "CREATE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW"
            " EXECUTE FUNCTION {}()"
        ).format(rows, one.base_sql, one.table_sql),
        sql.SQL(
            "CREATE TRIGGER {} BEFORE TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}()"
        ).format(emptied, one.base_sql, one.table_sql),
    )


def trigger_enabling(one: DeltaTable, name: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(
        one.base_sql, sql.Identifier(name)
    )


def grants(one: DeltaTable, role: str) -> list[sql.Composed]:
    """What the service needs beside SELECT on the table itself, and no more."""
    reader = sql.Identifier(role)
    return [
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(one.home), reader),
        sql.SQL("GRANT SELECT, DELETE ON {} TO {}").format(one.table_sql, reader),
        sql.SQL("GRANT SELECT ON {} TO {}").format(one.base_sql, reader),
    ]


def removals(one: DeltaTable, base_exists: bool) -> list[sql.Composed]:
    """What takes a relation's objects away; may be run again."""
    found = [
        sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(name), one.base_sql)
        for name in one.triggers
        if base_exists
    ]
    found.append(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(one.table_sql))
    found.append(sql.SQL("DROP TABLE IF EXISTS {}").format(one.table_sql))
    return found
