"""SQL that gives each view of a warehouse its own name and plain columns, for engines of the
user's.

The statements read the group's one Delta table, expand duplicates by `_n`, and give the columns
their true names back; where an engine ignores case and two names differ in nothing else, the
physical names. Whether two of the views in one query show one state is the engine's matter: Spark
pins one version of a table per query, DuckDB per transaction when the table is attached (two
`delta_scan`s in one query can differ), Trino per query.

A suspended view's rows stand still, and an engine cannot refuse to show them: the companion
`fresco_views` tells of every view whether it is maintained, or suspended after which number, and why. It
is read from the same table, so in one query it is of the same epoch as the views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streaming.errors import FrescoError
from streaming.plain import controls, plain
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import TableHandle, ViewTable
from streaming.warehouse.described import Described, read_catalog
from streaming.warehouse.names import distinct_names, physical_names
from streaming.warehouse.standing import STANDING


def ddl(warehouse: str, engine: str) -> list[str]:
    """Statements, in order, without closing semicolons.

    Args:
        engine: "spark" (a metastore for persistent views), "duckdb" (the delta extension loaded;
            the views are temporary because the attachment is), or "trino" (a delta_lake catalog
            named `delta` with a schema `default`).
    Raises:
        FrescoError: DDL_ENGINE for another engine; DDL_NAME; READ_NO_WAREHOUSE, READ_CATALOG.
    """
    if engine not in _ENGINES:
        raise FrescoError(
            "DDL_ENGINE", f"no statements for {engine}", todo=f"use one of {', '.join(_ENGINES)}"
        )
    place = TableFolder.of(warehouse)
    catalog = read_catalog(place)
    groups = sorted(set(catalog.groups.values()))
    speech = _ENGINES[engine](place)
    statements = [one for group in groups for one in speech.opening(group)]
    for name, view in sorted(catalog.views.items()):
        statements.append(speech.create(name, speech.select(view, catalog.groups[name])))
    told = [one for group in groups for one in _standing(speech, place, group, catalog)]
    statements.append(speech.create(STANDING.name, " UNION ALL ".join(told)))
    for statement in statements:
        if controls(statement):
            raise FrescoError(
                "DDL_NAME",
                "a name or a path holds control characters, which no statement may bring to a terminal",
                where=plain(statement),
                todo="let the view's SQL give its columns other names with AS, drop the view and add it",
            )
    return statements


def _standing(speech: _Engine, place: TableFolder, group: str, catalog: Described) -> list[str]:
    """What tells how a group's views stand; of a table that does not say it yet, that it is unknown."""
    table = TableHandle.open(place.below(group), "view")
    if table is None or STANDING.struct in {field.name for field in table.handle.schema().fields}:
        return [speech.select(STANDING, group)]
    views = sorted(view for view, its in catalog.groups.items() if its == group)
    return [speech.unknown(view) for view in views]


class _Engine:
    """How an engine says it; DuckDB's way where it is everybody's."""

    mark, texts = '"', "VARCHAR"

    def __init__(self, place: TableFolder) -> None:
        self.uri = place.uri

    def opening(self, group: str) -> list[str]:
        """What makes a group's table known."""
        path = _text(f"{self.uri}/{group}")
        return [f"ATTACH IF NOT EXISTS {path} AS {_q(_alias(group))} (TYPE delta)"]

    def create(self, name: str, select: str) -> str:
        """A view over a query."""
        return f"CREATE OR REPLACE TEMP VIEW {_q(name)} AS {select}"

    def select(self, view: ViewTable, group: str) -> str:
        """A view's rows, duplicates expanded, under its columns' own names."""
        table = _q(_alias(group))
        rows = table if view.key else f"(SELECT *, unnest(range(_n)) AS _copy FROM {table})"
        fields = _fields(view, '"', f"t.{_q(view.struct)}.")
        return f'SELECT {fields} FROM {rows} AS t WHERE t."view" = {_text(view.name)}'

    def unknown(self, view: str) -> str:
        """One row of `fresco_views` about a view of which nothing is said."""
        reason = "no commit of a version of Fresco that tells it"
        nothing = f"CAST(NULL AS {self.texts})"
        given = (_text(view), "'unknown'", "CAST(NULL AS BIGINT)", nothing, _text(reason))
        names = (_q(column.name, self.mark) for column in STANDING.schema)
        pairs = zip(given, names, strict=True)
        return "SELECT " + ", ".join(f"{value} AS {name}" for value, name in pairs)


class _Spark(_Engine):
    mark, texts = "`", "STRING"

    def opening(self, group: str) -> list[str]:
        return []

    def create(self, name: str, select: str) -> str:
        return f"CREATE OR REPLACE VIEW {_q(name, '`')} AS {select}"

    def select(self, view: ViewTable, group: str) -> str:
        fields = _fields(view, "`", f"{_q(view.struct, '`')}.")
        table = f"delta.{_q(f'{self.uri}/{group}', '`')}"
        copies = "" if view.key else " LATERAL VIEW explode(sequence(1, CAST(_n AS INT))) AS _copy"
        return f"SELECT {fields} FROM {table}{copies} WHERE view = {_spark_text(view.name)}"


class _Trino(_Engine):
    def opening(self, group: str) -> list[str]:
        return [
            "CALL delta.system.register_table(schema_name => 'default', "
            f"table_name => {_text(group)}, table_location => {_text(f'{self.uri}/{group}')})"
        ]

    def create(self, name: str, select: str) -> str:
        return f"CREATE OR REPLACE VIEW delta.default.{_q(name)} AS {select}"

    def select(self, view: ViewTable, group: str) -> str:
        copies = "" if view.key else " CROSS JOIN UNNEST(sequence(1, t._n)) AS copies (_copy)"
        fields = _fields(view, '"', f"t.{_q(view.struct)}.")
        table = f"delta.default.{_q(group)}"
        return f'SELECT {fields} FROM {table} AS t{copies} WHERE t."view" = {_text(view.name)}'


_ENGINES: dict[str, Callable[[TableFolder], _Engine]] = {
    "spark": _Spark,
    "duckdb": _Engine,
    "trino": _Trino,
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
