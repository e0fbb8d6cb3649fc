"""Days that Debezium's snapshots tell as other days, looked for when one is to be trusted.

In a snapshot Debezium (seen with 3.6.1) reads a PostgreSQL `date` through Java's old calendar: a day
before the year 1 comes as that of the same number after it, and one from 1582-10-05 to 1582-10-14, which
that calendar has not, ten days later. The events do not show it. The log tells all days right, so only
what stood in the table before the snapshot matters; what was deleted since is told of by its retraction,
which finds no row. A start looks through the tables before the pipeline has begun; the service does when
a snapshot's rows take effect, later ones among them, and taints the columns that hold such days. So it
does with numbers that come as NULL under `decimals: precise`: NaN and the infinities (in a column that is
NOT NULL they end the connector instead).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from psycopg import sql

from streaming.ask.postgres.pg_catalog import connected, split_name
from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.checked import Checked, Rule
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.scalars.types import is_decimal

_OLD = "({0} < '0001-01-01' AND {0} > '-infinity' OR {0} BETWEEN '1582-10-05' AND '1582-10-14') IS TRUE"


OLD_DATES = Rule(
    "SOURCE_OLD_DATES",
    "either",
    "days before the year 1, or from 1582-10-05 to 1582-10-14, which a snapshot tells as others; looked"
    " for until the pipeline has begun, and when a later snapshot changes what is known",
)
NOT_LOOKED = Rule(
    "SOURCE_OLD_DATES_UNKNOWN", "warning", "a table could not be looked through for such days"
)
RULES = (OLD_DATES, NOT_LOOKED)
_NAN = "({0}::text IN ('NaN', 'Infinity', '-Infinity')) IS TRUE"
_SAID = {
    _OLD: "days before the year 1 or from 1582-10-05 to 1582-10-14, which a snapshot tells as others",
    _NAN: "NaN or infinities, which a snapshot tells as NULL",
}
Look = Callable[[CapturedRelation, Mapping[str, str]], Sequence[str]]
"""Which of these columns of a relation hold now what their test finds; raises FrescoError where nobody
can say."""


def looking(config: Config) -> Look:
    """At the databases themselves, each table for as long as a query may take."""

    def look(captured: CapturedRelation, tests: Mapping[str, str]) -> Sequence[str]:
        source = config.sources[captured.source]
        if source.database != "postgres" or source.snapshots is not None:
            return ()
        if (connection := source.secret()) is None:
            raise FrescoError("SOURCE_CONNECTION", "there is no connection", todo="give one")
        return columns_with(
            connection, captured.source, captured.counted_as, tests, source.query_timeout
        )

    return look


def told_as_others(
    captured: CapturedRelation, number: int, look: Look
) -> tuple[tuple[Control, ...], str]:
    """The taints of the columns that a snapshot may not have told right, and what to say of it.

    Args:
        number: under which the snapshot's rows take effect.
    """
    schema, name = captured.relation.schema, captured.relation.name
    places = {schema[at].name: at for at in captured.comes if not schema[at].hidden}
    tests = {
        column: _OLD if schema[at].type == "date" else _NAN
        for column, at in places.items()
        if schema[at].type == "date"
        or (is_decimal(schema[at].type) and captured.decimals == "precise")
    }
    if not tests:
        return (), ""
    try:
        found = look(captured, tests)
    except FrescoError as error:
        return (), (
            f"{NOT_LOOKED.code}: {name} could not be looked through for days and numbers that a "
            f"snapshot tells as others, and has one under number {number}: {error.what} -> compare with "
            "`fresco verify --source`"
        )
    if not found:
        return (), ""
    where = f"topic {captured.topic}, the snapshot under number {number}"
    controls = [
        Control(
            number=number, relation=name, kind="tainted", columns=(places[column],), where=where,
            what=f"column {column} of {name} has {_SAID[tests[column]]}",
        )
        for column in found
    ]  # fmt: skip
    return tuple(controls), (
        f"{OLD_DATES.code}: {'; '.join(one.what for one in controls)}: views that read the column stop "
        f"before number {number} [topic {captured.topic}] -> `fresco view resume NAME` begins with what "
        "the source has"
    )


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
            old = columns_with(dsn, source, table, dict.fromkeys(names, _OLD), seconds)
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
