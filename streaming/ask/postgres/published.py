"""Whether PostgreSQL hands all of a captured table's changes to its connector, from the catalog.

A table's snapshot is read by a query and its changes come from the log, through a publication, so each
can see rows that the other does not: of partitions, of tables that inherit, of foreign and unlogged ones,
of operations, rows and columns that a publication leaves out. What differs is refused with the statement
that mends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from streaming.ask.postgres.pg_catalog import char, connected, split_name
from streaming.captured.checked import Checked, Rule

Named = tuple[str, str]
"""Schema and table."""

_TABLE = """
SELECT c.oid, c.relkind, c.relpersistence, c.relispartition, c.relrowsecurity
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_PARTS = """
SELECT n.nspname, c.relname, c.relkind, c.relpersistence
FROM pg_partition_tree(%s) AS t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.level > 0 ORDER BY 1, 2
"""
_ABOVE = """
SELECT n.nspname, c.relname FROM pg_partition_ancestors(%s) AS t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid <> %s
"""
_HEIRS = """
SELECT n.nspname, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = %s AND NOT c.relispartition ORDER BY 1, 2
"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_PUBLICATIONS = "SELECT to_jsonb(p) FROM pg_publication p ORDER BY p.pubname"
_PUBLISHED = "SELECT to_jsonb(t) FROM pg_publication_tables t"  # its columns differ by version
_OTHER_PLUGINS = """
SELECT count(*) > 0 AND bool_and(plugin <> 'pgoutput') FROM pg_replication_slots
WHERE slot_type = 'logical' AND database = current_database()
"""
_TWINS = """
SELECT n.nspname, t.typname, coalesce(c.relkind, 'c') <> 'c'
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE n.nspname <> 'pg_catalog' AND t.typname IN (
  SELECT own.typname FROM unnest(%s::text[], %s::text[]) AS captured(schema, name)
  JOIN pg_namespace s ON s.nspname = captured.schema
  JOIN pg_class r ON r.relnamespace = s.oid AND r.relname = captured.name
  JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_type own ON own.oid = a.atttypid AND own.typnamespace = 'pg_catalog'::regnamespace)
ORDER BY 1, 2
"""
OPERATIONS = ("insert", "update", "delete", "truncate")
_AGAIN = "then let the connector take a new snapshot: what has changed until then is lost to it"

REPLICA_IDENTITY = Rule(
    "SOURCE_REPLICA_IDENTITY",
    "wrong",
    "a table, or partition, without REPLICA IDENTITY FULL: the log lacks rows' old values",
)
TABLE_KIND = Rule(
    "SOURCE_TABLE_KIND", "wrong", "a view, a sequence or the like has no rows in the log"
)
INHERITED = Rule(
    "SOURCE_INHERITED",
    "wrong",
    "tables inherit from the captured one: a snapshot of it holds their rows, the log has them under"
    " their own names",
)
FOREIGN = Rule(
    "SOURCE_FOREIGN", "wrong", "a foreign table, or partition: its changes are in no log here"
)
UNLOGGED = Rule(
    "SOURCE_UNLOGGED",
    "wrong",
    "an unlogged table, or partition: a snapshot holds its rows, the log has none",
)
PARTITIONS = Rule(
    "SOURCE_PARTITIONS",
    "warning",
    "a partitioned table: TRUNCATE, ATTACH and DETACH of a partition are in no log",
)
ROW_SECURITY = Rule(
    "SOURCE_ROW_SECURITY",
    "warning",
    "row security: a snapshot holds what the connector's user may see, the log has all",
)
NOT_PUBLISHED = Rule(
    "SOURCE_NOT_PUBLISHED",
    "either",
    "a table that the connector's publication lacks, or has under another name"
    " (`publish_via_partition_root`); warned of where there is none yet",
)
PUBLICATION = Rule(
    "SOURCE_PUBLICATION", "wrong", "a publication that leaves out operations, rows or columns"
)
TYPE_NAME = Rule(
    "SOURCE_TYPE_NAME",
    "wrong",
    "a user's type, or table, with the name of a built-in type that a captured column has: Debezium knows"
    " types by their names alone",
)
RULES = (
    REPLICA_IDENTITY, TABLE_KIND, INHERITED, FOREIGN, UNLOGGED, PARTITIONS, ROW_SECURITY, NOT_PUBLISHED,
    PUBLICATION, TYPE_NAME,
)  # fmt: skip
"""`postgres` refuses the first two."""


@dataclass(frozen=True)
class PublishedTable:
    """A captured table as the catalog has it.

    Attributes:
        parts: its partitions below it, as (schema, table, kind, persistence).
        above: the tables it is a partition of.
        heirs: the tables that inherit from it.
        columns: those that are stored and not generated.
    """

    name: Named
    kind: str
    persistence: str
    secured: bool
    parts: tuple[tuple[str, str, str, str], ...]
    above: tuple[Named, ...]
    heirs: tuple[Named, ...]
    columns: frozenset[str]

    @property
    def text(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True)
class Publication:
    """A publication, and of each table in it what it leaves out.

    Attributes:
        left_out: operations that it does not publish.
        tables: table -> (columns that it publishes, None for all; whether it filters rows).
    """

    name: str
    left_out: tuple[str, ...]
    tables: Mapping[Named, tuple[frozenset[str] | None, bool]]

    def concerns(self, table: PublishedTable) -> bool:
        """Whether it has the table, or its rows by way of partitions."""
        return any(one in self.tables for one in (table.name, *_names(table.parts), *table.above))


def check_published(
    dsn: str, source: str, tables: Sequence[str], publication: str | None = None
) -> list[Checked]:
    """The checks of a PostgreSQL's captured tables.

    Args:
        tables: "schema.table" of each.
        publication: the connector's, where it is known; else a table may be in any that has it.

    Raises:
        FrescoError: see `connected`.
    """
    check = f"publication of {source}"
    with connected(dsn, source) as connection:
        found = [_table(connection, split_name(one)) for one in tables]
        publications = list(_publications(connection))
        other = connection.execute(_OTHER_PLUGINS).fetchone()
        names = [split_name(one) for one in tables]
        both = ([schema for schema, _ in names], [name for _, name in names])
        twins = connection.execute(_TWINS, both).fetchall()
    if publication is not None:
        publications = [one for one in publications if one.name == publication]
    wrong = [_twin(check, (schema, name), table) for schema, name, table in twins]
    wrong += [one for table in found if table for one in _kind(check, table)]
    if publications or publication is not None or not (other and other[0]):
        for table in found:
            if table:
                wrong += _published(check, table, publications, publication)
    return wrong or [Checked(check, "ok", f"{len(tables)} tables, every change of them")]


def _table(connection: psycopg.Connection, name: Named) -> PublishedTable | None:
    row = connection.execute(_TABLE, name).fetchone()
    if row is None:
        return None
    oid, kind, persistence, partition, secured = row
    parts = connection.execute(_PARTS, (oid,)).fetchall() if char(kind) == "p" else []
    above = connection.execute(_ABOVE, (oid, oid)).fetchall() if partition else []
    heirs = connection.execute(_HEIRS, (oid,)).fetchall()
    columns = connection.execute(_COLUMNS, (oid,)).fetchall()
    return PublishedTable(
        name,
        char(kind),
        char(persistence),
        bool(secured),
        tuple((one[0], one[1], char(one[2]), char(one[3])) for one in parts),
        tuple((one[0], one[1]) for one in above),
        tuple((one[0], one[1]) for one in heirs),
        frozenset(one[0] for one in columns),
    )


def _publications(connection: psycopg.Connection) -> Iterator[Publication]:
    tables: dict[str, dict[Named, tuple[frozenset[str] | None, bool]]] = {}
    for (row,) in connection.execute(_PUBLISHED).fetchall():
        columns = None if row.get("attnames") is None else frozenset(row["attnames"])
        name = (row["schemaname"], row["tablename"])
        filtered = row.get("rowfilter") is not None
        tables.setdefault(row["pubname"], {})[name] = (columns, filtered)
    for (row,) in connection.execute(_PUBLICATIONS).fetchall():
        left_out = tuple(one for one in OPERATIONS if not row.get(f"pub{one}", True))
        yield Publication(row["pubname"], left_out, tables.get(row["pubname"], {}))


def _twin(check: str, name: Named, is_table: bool) -> Checked:
    """A type of a user's with the name of a built-in one: Debezium knows types by their names alone."""
    kind = "TABLE" if is_table else "TYPE"
    whose = "table" if is_table else "type"
    return TYPE_NAME.found(
        check,
        f"{whose} {_text(name)} has the name of a built-in type, which captured columns have: Debezium"
        " takes one for the other, and their values come as texts or not at all",
        f"ALTER {kind} {_quoted(name)} RENAME TO another name; then restart the connector, and let it"
        " take a new snapshot",
    )


def _kind(check: str, table: PublishedTable) -> Iterator[Checked]:
    """What no publication can mend: rows that a snapshot reads and the log does not have."""
    for name, heir in [(_text(one), one) for one in table.heirs]:
        yield INHERITED.found(
            check,
            f"{name} inherits from {table.text}: a snapshot of {table.text} holds its rows, the log has"
            " them under its own name",
            f"{_alter(heir)} NO INHERIT {_quoted(table.name)}; or capture {name} alone",
        )
    persistence = [(table.name, table.persistence, table.kind)]
    persistence += [((one[0], one[1]), one[3], one[2]) for one in table.parts]
    for one, kept, kind in persistence:
        if kind == "f":
            yield FOREIGN.found(
                check,
                f"{_text(one)} is a foreign table: its changes are in no log of this database",
                f"{_alter(table.name)} DETACH PARTITION {_quoted(one)};"
                if one != table.name
                else "capture it where its rows are",
            )
        elif kept != "p" and kind == "r":
            yield UNLOGGED.found(
                check,
                f"{_text(one)} is not logged: a snapshot holds its rows, the log has none",
                f"{_alter(one)} SET LOGGED; {_AGAIN}",
            )
    if table.kind == "p":
        yield PARTITIONS.found(
            check,
            f"{table.text} is partitioned: TRUNCATE, ATTACH and DETACH of one partition are in no log",
            "DELETE the rows of a partition before it is detached or truncated, and attach empty"
            " ones; `fresco verify --source` finds a difference, a new snapshot mends it",
        )
    if table.secured:
        yield ROW_SECURITY.found(
            check,
            f"{table.text} has row security: a snapshot holds what the connector's user may see, the"
            " log has all",
            "let the connector's user bypass it: ALTER ROLE ... BYPASSRLS",
        )


def _published(
    check: str, table: PublishedTable, publications: Sequence[Publication], wanted: str | None
) -> Sequence[Checked]:
    """What the publications leave out of a table; nothing where one of them leaves nothing out."""
    mine = [one for one in publications if wanted is not None or one.concerns(table)]
    faults = [list(_faults(check, table, one)) for one in mine]
    if not mine:
        name = wanted if wanted is not None else "any publication"
        there = wanted is None
        return [
            NOT_PUBLISHED.found(
                check,
                f"{table.text} is not in {name}" + ("" if there else ", which does not exist yet"),
                "a connector with plugin.name=pgoutput makes its publication when it starts; or:"
                f" CREATE PUBLICATION {_word(wanted or 'dbz_publication')} FOR TABLE"
                f" {_quoted(table.name)};",
                "warning",
            )
        ]
    return min(faults, key=len)


def _faults(check: str, table: PublishedTable, one: Publication) -> Iterator[Checked]:
    name, quoted = _word(one.name), _quoted(table.name)
    if table.name not in one.tables:
        if any(part in one.tables for part in _names(table.parts)):
            yield NOT_PUBLISHED.found(
                check,
                f"{one.name} publishes the partitions of {table.text} under their own names: nothing"
                f" comes as {table.text} but its snapshot",
                f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true); {_AGAIN}",
            )
            return
        root = next((above for above in table.above if above in one.tables), None)
        mend = f"ALTER PUBLICATION {name} ADD TABLE {quoted}; {_AGAIN}"
        says = f"{table.text} is not in publication {one.name}"
        if root is not None:
            says = f"{one.name} publishes the rows of {table.text} as those of {_text(root)}"
            mend = f"ALTER PUBLICATION {name} SET (publish_via_partition_root = false); {_AGAIN};"
            mend += f" or capture {_text(root)}"
        yield NOT_PUBLISHED.found(check, says, mend)
        return
    if one.left_out:
        yield PUBLICATION.found(
            check,
            f"{one.name} does not publish {', '.join(one.left_out)}",
            f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}'); {_AGAIN}",
        )
    columns, filtered = one.tables[table.name]
    lacking = sorted(table.columns - columns) if columns is not None else []
    if lacking or filtered:
        what = f"the columns {', '.join(lacking)}" if lacking else "the rows that its filter drops"
        yield PUBLICATION.found(
            check,
            f"{one.name} leaves out of {table.text} {what}",
            f"ALTER PUBLICATION {name} DROP TABLE {quoted}; ALTER PUBLICATION {name} ADD TABLE"
            f" {quoted}; {_AGAIN}",
        )


def _names(parts: Sequence[tuple[str, str, str, str]]) -> list[Named]:
    return [(schema, table) for schema, table, _, _ in parts]


def _text(name: Named) -> str:
    return ".".join(name)


def _quoted(name: Named) -> str:
    return sql.Identifier(*name).as_string(None)


def _word(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _alter(name: Named) -> str:
    return f"ALTER TABLE {_quoted(name)}"
