"""The databases' own rows, beside what was recorded of them (`fresco verify --source`).

All tables of one database are read in one REPEATABLE READ snapshot: PostgreSQL's as its own text, typed
by the catalog, MariaDB's by `mysqltables`. Two databases are read one after the other: the workload
must rest.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from streaming.algebra.tree import Relation
from streaming.ask.mariadb.mariadb_kind import MARIADB
from streaming.ask.postgres.pg_catalog import connected, split_name
from streaming.ask.source_kinds import kind_of_connection
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.proof import recorded
from streaming.proof.forgotten import Forgotten
from streaming.proof.layout_versions import LayoutVersions
from streaming.proof.mariadb_tables import read_tables
from streaming.proof.proof_engine import columns_of, open_engine
from streaming.proof.recomputed import (
    Difference,
    Recomputed,
    differences,
    offer_relation,
    parents_first,
)
from streaming.proof.recorded_levels import Judged, Witness
from streaming.proof.relation_history import History
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.scalars.types import arrow_type, duck_type
from streaming.warehouse.updates import UpdatesReader

EQUAL, DIFFERENT = "equal", "different"
_MICROS = (
    "CASE {0} WHEN 'infinity' THEN 9223372036825200000 WHEN '-infinity' THEN -9223372036832400000"
    " WHEN {0} THEN least(extract(epoch FROM {0}) * 1000000, 9223372036854775807) END::bigint"
)
_WRITTEN = {
    "date": "CASE {0} WHEN 'infinity' THEN 2147483647 WHEN '-infinity' THEN -2147483647"
    " ELSE {0} - DATE '1970-01-01' END",
    "timestamp": _MICROS,
    "timestamp_ntz": _MICROS,
}
"""SQL of days and microseconds since 1970: DuckDB reads years before 1 and infinities otherwise. A moment
beyond 64 bits becomes the last that they hold, which no row has."""


@dataclass(frozen=True)
class Database:
    """One source.

    Attributes:
        connection: PostgreSQL URL or connection string, or a mariadb:// URL; a reader of the tables is
            enough.
        tables: name in views -> table, "schema.table".
    """

    connection: str = field(repr=False)
    tables: Mapping[str, str]


def databases(config: Config) -> dict[str, Database]:
    """How `verify --source` reads each source.

    Raises:
        FrescoError: VERIFY_SOURCE when a source has no connection.
    """
    found = {}
    for name, source in config.sources.items():
        connection = source.secret()
        if connection is None:
            raise FrescoError(
                "VERIFY_SOURCE",
                "the source has no connection to ask",
                where=f"sources.{name}",
                todo="give it a connection",
            )
        found[name] = Database(connection, source.tables)
    return found


def judge_databases(
    warehouse: Warehouse, path: str, databases: Mapping[str, Database]
) -> list[Judged]:
    """One line per relation and view: equal to its database or not.

    Relations are left out when the beginning of `_updates` has been dropped, and those that nothing
    captures, which isolated views alone use.

    Raises:
        FrescoError: VERIFY_SOURCE, VERIFY_SQL.
    """
    engine = open_engine()
    updates = UpdatesReader(path)
    whole = updates.kept_from == 0
    truncated = recorded.truncations(path) if whole else {}
    relations = {relation.name: relation for relation in warehouse.relations()}
    specs = {name: warehouse.spec(name) for name in warehouse.views()}
    versions = LayoutVersions(warehouse.layouts(), specs)
    lines = []
    forgotten = Forgotten(path)
    lost = {name: forgotten.columns(relation) for name, relation in relations.items()}
    returned = versions.returned(specs, lost)
    unread = {name: lost[name].keys() - returned.get(name, frozenset()) for name in lost}
    tables = _read_all(engine, list(relations.values()), databases, unread)
    for at, relation in enumerate(relations.values()):
        if not whole or not updates.records(relation.name):
            offer_relation(engine, relation, tables[relation.name], columns_of(relation.schema))
            continue
        emptied = truncated.get(relation.name, [])
        rows = forgotten.exchanged(relation, warehouse.updates(relation.name), emptied)
        history = History(engine, f"__h{at}", relation.schema, rows, emptied)
        rows_there, untold = tables[relation.name], versions.untold(relation.name, emptied)
        nulls = untold | {relation.schema[at].name for at in lost[relation.name]}
        columns = ", ".join(
            f"CAST(NULL AS {duck_type(one.type)}) AS {name}" if one.name in nulls else name
            for name, one in zip(history.columns, relation.schema, strict=True)
        )
        there = f"(SELECT {columns}, count(*) AS _n FROM {rows_there} GROUP BY ALL)"
        kept = f"(SELECT {columns}, sum(_n) AS _n FROM {history.bag(recorded.EVERYTHING)} GROUP BY ALL)"
        found = differences(engine, there, kept, relation.schema, 3)
        count = engine.sql(f"FROM {rows_there}").shape[0]
        note = f"without {', '.join(sorted(untold))}: recorded only since the table was altered"
        lines.append(_line("relation", relation.name, found, count, -1, note if untold else ""))
        offer_relation(engine, relation, rows_there, history.columns)
        for generation, version in versions.of(relation).items():
            offer_relation(engine, version, rows_there, history.columns, generation)
    for at, name in enumerate(parents_first(specs)):
        lines.append(_judge_view(engine, warehouse, name, f"__v{at}", relations, versions))
    return lines


def _judge_view(
    engine: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    name: str,
    table: str,
    relations: Mapping[str, Relation],
    versions: LayoutVersions,
) -> Judged:
    spec = warehouse.spec(name)
    schema = tuple(Column(one["name"], one["type"]) for one in spec["schema"])
    generation = versions.generation(name)
    known = versions.relations(generation) or relations
    recomputed = Recomputed(engine, name, table, schema, spec["sql"], known, generation)
    recomputed.prepare()
    if recomputed.unable is not None:
        raise recomputed.unable
    try:
        rows = warehouse.read(name, expanded=False, suspended_as_of=True)
    except FrescoError as error:
        if error.code != "READ_VIEW_NO_STATE":
            raise
        return Judged("view", name, EQUAL, DIFFERENT, False, 0, 0, 0, None, error.what)
    facts = rows.schema.metadata or {}
    after = facts.get(b"fresco.suspended_after")
    found = recomputed.differences(recomputed.take_rows(rows))
    counted = recomputed.print()
    if counted is None:
        assert recomputed.unable is not None
        raise recomputed.unable
    note = f"suspended after {after.decode()}" if after is not None else ""
    number = int(facts.get(b"fresco.number", b"-1"))
    return _line("view", name, found, counted[0], number, note)


def _line(
    kind: str, name: str, found: list[Difference], rows: int, number: int, note: str
) -> Judged:
    witness = None
    if found:
        one = found[0]
        witness = Witness(number, None, one.row, one.expected, one.found)
    level = DIFFERENT if found else EQUAL
    return Judged(kind, name, EQUAL, level, not found, 1, 0, rows, witness, note)


def _read_all(
    engine: duckdb.DuckDBPyConnection,
    relations: list[Relation],
    databases: Mapping[str, Database],
    unread: Mapping[str, Collection[int]],
) -> dict[str, str]:
    """Relation -> DuckDB table with the database's rows, NULL in the columns that are not read."""
    tables: dict[str, str] = {}
    for source in sorted({relation.name.partition(".")[0] for relation in relations}):
        if source not in databases:
            raise FrescoError(
                "VERIFY_SOURCE",
                "no connection is configured",
                where=source,
                todo=f"set sources.{source}.connection",
            )
        own = [one for one in relations if one.name.partition(".")[0] == source]
        if kind_of_connection(databases[source].connection) is MARIADB:
            found = read_tables(source, databases[source], own, unread)
            for relation in own:
                tables[relation.name] = f"__d{len(tables)}"
                engine.register("__read", found[relation.name])
                engine.execute(f"CREATE TEMP TABLE {tables[relation.name]} AS FROM __read")
                engine.unregister("__read")
            continue
        try:
            with connected(databases[source].connection, source) as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute("SET TIME ZONE 'UTC'")
                connection.execute("SET DateStyle = 'ISO'")
                connection.execute("SET bytea_output = 'hex'")
                for relation in own:
                    lost = unread[relation.name]
                    text = _read_text(connection, relation, databases[source], lost)
                    tables[relation.name] = _typed(engine, f"__d{len(tables)}", relation, text)
        except (FrescoError, duckdb.Error) as error:
            coded = isinstance(error, FrescoError)
            said = error.what if coded else str(error).splitlines()[0]
            raise FrescoError(
                "VERIFY_SOURCE",
                f"the database cannot be read: {said}",
                where=source,
                todo=error.todo if coded else "check the connection and the right to SELECT",
            ) from error
    return tables


def _read_text(
    connection: psycopg.Connection[tuple[object, ...]],
    relation: Relation,
    database: Database,
    lost: Collection[int],
) -> pa.Table:
    """All rows, every column as PostgreSQL writes it, days and moments counted from 1970; NULL for the
    lost ones."""
    name = relation.name.partition(".")[2]
    query = sql.SQL(
        "COPY (SELECT {columns} FROM {table}) TO STDOUT "
        "WITH (FORMAT csv, NULL '\\N', FORCE_QUOTE *)"
    ).format(
        columns=sql.SQL(", ").join(
            sql.SQL("NULL")
            if position in lost
            else sql.SQL(_WRITTEN.get(column.type, "{0}")).format(sql.Identifier(column.name))
            for position, column in enumerate(relation.schema)
        ),
        table=sql.Identifier(*split_name(database.tables[name])),
    )
    buffer = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for block in copy:
            buffer.write(block)
    names = columns_of(relation.schema)
    if not buffer.tell():
        return pa.table({name: pa.array([], pa.string()) for name in names})
    buffer.seek(0)
    return pyarrow.csv.read_csv(
        buffer,
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=["\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _typed(
    engine: duckdb.DuckDBPyConnection, table: str, relation: Relation, text: pa.Table
) -> str:
    """A table of the rows, in the relation's types."""
    columns = columns_of(relation.schema)
    typed = ", ".join(
        f"unhex(substr({column}, 3)) AS {column}"
        if one.type == "binary"
        # Of a column that was widened the narrower one has no value where it does not fit.
        else f"{'TRY_CAST' if one.hidden else 'CAST'}({column} AS {duck_type(one.type)}) AS {column}"
        for column, one in zip(columns, relation.schema, strict=True)
    )
    for at, one in enumerate(relation.schema):
        if one.type in _WRITTEN:
            wanted = arrow_type(one.type)
            whole = pa.int32() if wanted.bit_width == 32 else pa.int64()
            counted = text.column(at).cast(whole).combine_chunks().view(wanted)
            text = text.set_column(at, text.column_names[at], counted)
    engine.register(f"{table}_text", text)
    engine.execute(f"CREATE TEMP TABLE {table} AS SELECT {typed} FROM {table}_text")
    engine.unregister(f"{table}_text")
    return table
