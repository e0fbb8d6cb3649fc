"""Days that Debezium's snapshots tell as other days, looked for before one is trusted.

In a snapshot Debezium (seen with 3.6.1) reads a PostgreSQL `date` through Java's old calendar: a day
before the year 1 comes as that of the same number after it, and one from 1582-10-05 to 1582-10-14, which
that calendar has not, ten days later. The events do not show it. The log tells all days right, so only
what stood in the table before the snapshot matters; what was deleted since is told of by its retraction,
which finds no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from streaming.ask.postgres.pg_catalog import connected, split_name
from streaming.captured.checked import Checked, Rule
from streaming.errors import FrescoError

_OLD = "({0} < '0001-01-01' AND {0} > '-infinity' OR {0} BETWEEN '1582-10-05' AND '1582-10-14') IS TRUE"


OLD_DATES = Rule(
    "SOURCE_OLD_DATES",
    "either",
    "days before the year 1, or from 1582-10-05 to 1582-10-14, which a snapshot tells as others; looked"
    " for until the pipeline has begun",
)
NOT_LOOKED = Rule(
    "SOURCE_OLD_DATES_UNKNOWN", "warning", "a table could not be looked through for such days"
)
RULES = (OLD_DATES, NOT_LOOKED)


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
            old = _old_columns(dsn, source, table, names, seconds)
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


def _old_columns(
    dsn: str, source: str, table: str, names: Sequence[str], seconds: float
) -> list[str]:
    """The columns that hold such days, as far as the first row that has any shows."""
    tests = [sql.SQL(_OLD).format(sql.Identifier(name)) for name in names]
    query = sql.SQL("SELECT {} FROM {} WHERE {} LIMIT 1").format(
        sql.SQL(", ").join(tests),
        sql.Identifier(*split_name(table)),
        sql.SQL(" OR ").join(tests),
    )
    with connected(dsn, source) as connection:
        connection.execute(f"SET statement_timeout = '{int(seconds * 1000)}ms'")
        row = connection.execute(query).fetchone()
    return [name for name, old in zip(names, row or (), strict=False) if old]


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
