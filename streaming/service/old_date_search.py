"""Looks through the databases' tables for what snapshots tell as something else (`cdc.old_dates`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from streaming.ask.postgres.pg_catalog import connected, split_name
from streaming.ask.source_kinds import kind_of_source
from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.checked import Checked
from streaming.cdc.old_dates import NOT_LOOKED, OLD, OLD_DATES, Look
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError


def looking(config: Config) -> Look:
    """At the databases themselves, each table for as long as a query may take."""

    def look(captured: CapturedRelation, tests: Mapping[str, str]) -> Sequence[str]:
        source = config.sources[captured.source]
        kind = kind_of_source(captured.source, source)
        if not kind.old_calendar or source.snapshots is not None:
            return ()
        if (connection := source.secret()) is None:
            raise FrescoError("SOURCE_CONNECTION", "there is no connection", todo="give one")
        return columns_with(
            connection, captured.source, captured.counted_as, tests, source.query_timeout
        )

    return look


def check_dates(
    dsn: str,
    source: str,
    columns: Mapping[str, Sequence[str]],
    read: Mapping[str, Sequence[str]],
    seconds: float,
) -> list[Checked]:
    """What tables hold of such days: wrong where a view reads the column, else doubtful.

    Args:
        columns: "schema.table" -> its columns of type date.
        read: those of them that views read.
        seconds: that looking through one table may take.
    """
    found = []
    for table, names in columns.items():
        check = f"dates of {source}"
        try:
            old = columns_with(dsn, source, table, dict.fromkeys(names, OLD), seconds)
        except FrescoError as error:
            says = f"{table} could not be looked through for days that a snapshot tells as others"
            todo = f"see that it has none: {error.what}; {error.todo}"
            found.append(NOT_LOOKED.found(check, says, todo))
            continue
        for level, some in (
            ("wrong", [name for name in old if name in read.get(table, ())]),
            ("warning", [name for name in old if name not in read.get(table, ())]),
        ):
            if some:
                found.append(_found(check, level == "wrong", table, some))
    return found


def columns_with(
    dsn: str, source: str, table: str, wanted: Mapping[str, str], seconds: float
) -> list[str]:
    """The columns that hold what their test looks for."""
    tests = [sql.SQL(test).format(sql.Identifier(name)) for name, test in wanted.items()]
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        sql.SQL(", ").join(sql.SQL("bool_or({})").format(test) for test in tests),
        sql.Identifier(*split_name(table)),
        sql.SQL(" OR ").join(tests),
    )
    with connected(dsn, source) as connection:
        connection.execute(f"SET statement_timeout = '{int(seconds * 1000)}ms'")
        row = connection.execute(query).fetchone()
    return [name for name, old in zip(wanted, row or (), strict=False) if old]


def _found(check: str, read: bool, table: str, columns: Sequence[str]) -> Checked:
    names = ", ".join(columns)
    place = sql.Identifier(*split_name(table)).as_string()
    column = sql.Identifier(columns[0]).as_string()
    return OLD_DATES.found(
        check,
        f"{table} has days in {names} before the year 1 or from 1582-10-05 to 1582-10-14: a snapshot of"
        " Debezium's tells them as others (0044-03-15 BC as 0044-03-15)",
        f"ALTER TABLE {place} ALTER COLUMN {column} TYPE timestamp; (it tells those right), or correct"
        " the days; then let the connector take a new snapshot",
        "wrong" if read else "warning",
    )
