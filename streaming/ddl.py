"""SQL that gives each view of a warehouse its own name and plain columns, for engines of the
user's.

The statements read the group's one Delta table, expand duplicates by `_n`, and give the columns
their true names back; where an engine ignores case and two names differ in nothing else, the
physical names. Whether two of the views in one query show one state is the engine's matter: Spark
pins one version of a table per query, DuckDB per transaction when the table is attached (two
`delta_scan`s in one query can differ), Trino per query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streaming.errors import FrescoError
from streaming.warehouse.described import Described, read_catalog
from streaming.warehouse.files import Place
from streaming.warehouse.names import distinct_names, physical_names
from streaming.warehouse.table import ViewTable


def ddl(warehouse: str, engine: str) -> list[str]:
    """Statements, in order, without closing semicolons.

    Args:
        engine: "spark" (a metastore for persistent views), "duckdb" (the delta extension loaded;
            the views are temporary because the attachment is), or "trino" (a delta_lake catalog
            named `delta` with a schema `default`).
    Raises:
        FrescoError: DDL_ENGINE for another engine; READ_NO_WAREHOUSE, READ_CATALOG.
    """
    if engine not in _ENGINES:
        raise FrescoError(
            "DDL_ENGINE", f"no statements for {engine}", todo=f"use one of {', '.join(_ENGINES)}"
        )
    place = Place.of(warehouse)
    return _ENGINES[engine](place, read_catalog(place))


def _spark(place: Place, catalog: Described) -> list[str]:
    statements = []
    for name, view in sorted(catalog.views.items()):
        fields = _fields(view, "`", f"{_q(view.struct, '`')}.")
        table = f"delta.{_q(f'{place.uri}/{catalog.groups[name]}', '`')}"
        copies = "" if view.key else " LATERAL VIEW explode(sequence(1, CAST(_n AS INT))) AS _copy"
        statements.append(
            f"CREATE OR REPLACE VIEW {_q(name, '`')} AS SELECT {fields} FROM {table}{copies} "
            f"WHERE view = {_spark_text(name)}"
        )
    return statements


def _duckdb(place: Place, catalog: Described) -> list[str]:
    groups = sorted(set(catalog.groups.values()))
    statements = [
        f"ATTACH IF NOT EXISTS {_text(f'{place.uri}/{group}')} AS {_q(_alias(group))} (TYPE delta)"
        for group in groups
    ]
    for name, view in sorted(catalog.views.items()):
        table = f"{_q(_alias(catalog.groups[name]))}"
        fields = _fields(view, '"', f"t.{_q(view.struct)}.")
        statements.append(
            f"CREATE OR REPLACE TEMP VIEW {_q(name)} AS SELECT {fields} "
            f'FROM {_duckdb_rows(view, table)} AS t WHERE t."view" = {_text(name)}'
        )
    return statements


def _duckdb_rows(view: ViewTable, table: str) -> str:
    return table if view.key else f"(SELECT *, unnest(range(_n)) AS _copy FROM {table})"


def _trino(place: Place, catalog: Described) -> list[str]:
    groups = sorted(set(catalog.groups.values()))
    statements = [
        "CALL delta.system.register_table(schema_name => 'default', "
        f"table_name => {_text(group)}, table_location => {_text(f'{place.uri}/{group}')})"
        for group in groups
    ]
    for name, view in sorted(catalog.views.items()):
        fields = _fields(view, '"', f"t.{_q(view.struct)}.")
        copies = "" if view.key else " CROSS JOIN UNNEST(sequence(1, t._n)) AS copies (_copy)"
        statements.append(
            f"CREATE OR REPLACE VIEW delta.default.{_q(name)} AS SELECT {fields} "
            f"FROM delta.default.{_q(catalog.groups[name])} AS t{copies} "
            f'WHERE t."view" = {_text(name)}'
        )
    return statements


_ENGINES: dict[str, Callable[[Place, Described], list[str]]] = {
    "spark": _spark,
    "duckdb": _duckdb,
    "trino": _trino,
}


def _fields(view: ViewTable, mark: str, struct: str) -> str:
    true = [column.name for column in view.schema]
    pairs: Sequence[tuple[str, str]] = list(
        zip(physical_names(true), distinct_names(true), strict=True)
    )
    return ", ".join(f"{struct}{_q(inner, mark)} AS {_q(name, mark)}" for inner, name in pairs)


def _alias(group: str) -> str:
    return f"fresco_{group}"


def _q(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, mark * 2) + mark


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _spark_text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
