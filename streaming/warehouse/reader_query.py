"""One SELECT over tables in memory, by a DuckDB that can reach nothing else.

The tables come from one snapshot and are registered by name; files, networks, extensions and Python
variables are switched off, and the settings are locked, before the user's text is run.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from streaming.engines.duck_engine import duck_engine, offer
from streaming.errors import FrescoError
from streaming.warehouse.names import distinct_names


def tables(statement: str) -> list[str]:
    """The tables one SELECT reads, each once, in order; not its own WITH names.

    Raises FrescoError READ_SQL when it is not one SELECT.
    """
    try:
        parsed = sqlglot.parse(statement, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise _refused(str(error).splitlines()[0]) from error
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise _refused("only one SELECT statement can be run")
    own = {str(one.alias).casefold() for one in parsed[0].find_all(exp.CTE)}
    names: dict[str, None] = {}
    for table in parsed[0].find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        if table.db or table.name.casefold() not in own:
            names[f"{table.db}.{table.name}" if table.db else table.name] = None
    return list(names)


def run(statement: str, registered: Mapping[str, pa.Table]) -> pa.Table:
    """The result of one SELECT over the registered tables.

    Columns whose names differ only in case get their physical names (`names.distinct_names`).

    Raises FrescoError READ_SQL with DuckDB's message.
    """
    try:
        with duck_engine() as connection:
            for name, table in registered.items():
                distinct = table.rename_columns(list(distinct_names(table.column_names)))
                offer(connection, name, distinct)
            for setting in (
                "SET TimeZone = 'UTC'",
                "SET python_enable_replacements = false",
                "SET autoinstall_known_extensions = false",
                "SET autoload_known_extensions = false",
                "SET enable_external_access = false",
                "SET lock_configuration = true",
            ):
                connection.execute(setting)
            found = connection.extract_statements(statement)
            if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
                raise _refused("only one SELECT statement can be run")
            return connection.execute(statement).to_arrow_table()
    except duckdb.Error as error:
        raise _refused(str(error).splitlines()[0]) from error


def _refused(what: str) -> FrescoError:
    return FrescoError(
        "READ_SQL", what, todo="give one SELECT, in DuckDB's dialect, over the warehouse's views"
    )
