"""Every ALTER of a captured PostgreSQL table, with the service running and away meanwhile (DESIGN 11).

Whoever reads other columns goes on, equal to the database; who reads an altered one goes on where nothing
of it changed, else is suspended with VIEW_COLUMN_CHANGED and comes back by being dropped and added. No
start is refused. Judged by the database's own SELECT.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import askedpostgres as asked
import pytest
from alteredpostgres import AlteredTable, both_ways

from streaming.demo.embedded.postgres_server import Postgres
from tests.changingviews import Driver

COLUMNS = {
    "id": "int",
    "a": "int",
    "b": "numeric(10,2)",
    "c": "varchar(10)",
    "d": "timestamp(6)",
    "e": "text",
}
VIEWS = {
    "ids": "SELECT id FROM north.entry",
    "counted": "SELECT COUNT(*) AS n FROM north.entry",
    **{f"of_{one}": f"SELECT id, {one} FROM north.entry" for one in "abcde"},
}
ROW = "{}, {}, {}.25, 'c{}', timestamp '2026-01-02 03:04:05.678901' + interval '{} s', '7{}'"


@dataclass(frozen=True)
class Alter:
    """A change of the table and what becomes of its readers.

    Attributes:
        stops: the views that are suspended by it.
        then: view -> its SQL for the table as it is afterwards, where it is another.
        insert: the values of new rows afterwards, `{}` for their number.
    """

    statements: tuple[str, ...]
    stops: frozenset[str] = frozenset()
    then: dict[str, str] = field(default_factory=dict)
    insert: str = ROW


def alter(text: str, *stops: str, insert: str = ROW, **then: str) -> Alter:
    statements = tuple(f"ALTER TABLE entry {one}" for one in text.split("; "))
    return Alter(statements, frozenset(stops), then, insert)


ID_Z = "SELECT id, z FROM north.entry"
QUICK = {
    "wider": alter("ALTER a TYPE bigint"),
    "rename": alter("RENAME a TO z", "of_a", of_a=ID_Z),
    "made anew": alter(
        "DROP a; ADD a int DEFAULT 5",
        "of_a",
        insert="{}, {}.25, 'c{}', '2026-01-02 03:04:05.678901', '7{}', 9",
    ),
    "rounded": alter("ALTER b TYPE numeric(10,1)", "of_b"),
    "rounded and back": alter("ALTER b TYPE numeric(10,1); ALTER b TYPE numeric(10,2)", "of_b"),
}
DEEP = {
    "add": alter("ADD z int", insert=ROW + ", 3"),
    "add with a default": alter("ADD z int DEFAULT 4", insert=ROW + ", 3"),
    "drop": alter(
        "DROP a", "of_a", of_a=VIEWS["ids"], insert=ROW.replace("{}, {}, {}.25", "{}, {}.25", 1)
    ),
    "wider key": alter("ALTER id TYPE bigint"),
    "narrower": alter("ALTER a TYPE smallint", "of_a"),
    "another kind": alter(
        "ALTER a TYPE text USING 'n' || a", "of_a", insert=ROW.replace("{}, {}", "{}, 'n{}'", 1)
    ),
    "more digits": alter("ALTER b TYPE numeric(14,2)"),
    "more decimals": alter("ALTER b TYPE numeric(14,4)", "of_b"),
    "any number": alter("ALTER b TYPE numeric", "of_b"),
    "longer": alter("ALTER c TYPE varchar(20)"),
    "endless": alter("ALTER c TYPE text"),
    "shorter": alter(
        "ALTER c TYPE varchar(2) USING left(c, 2)", "of_c", insert=ROW.replace("'c{}'", "'x'")
    ),
    "padded": alter("ALTER c TYPE char(12)", "of_c"),
    "moments rounded": alter("ALTER d TYPE timestamp(3)", "of_d"),
    "moments with a zone": alter("ALTER d TYPE timestamptz USING d AT TIME ZONE 'UTC'", "of_d"),
    "text to number": alter(
        "ALTER e TYPE int USING e::int", "of_e", insert=ROW.replace("'7{}'", "7")
    ),
    "renamed in a circle": alter("RENAME a TO z; RENAME e TO a; RENAME z TO e", "of_a", "of_e"),
    "renamed and made anew": alter(
        "RENAME a TO z; ADD a int DEFAULT 8", "of_a", insert=ROW + ", 8"
    ),
    "rewritten": alter("SET WITHOUT CLUSTER; SET (fillfactor = 50)"),
    "constrained": alter("ALTER a SET NOT NULL; ADD CHECK (a > -100)"),
    "widened twice": alter("ALTER c TYPE varchar(30); ALTER c TYPE text; ALTER a TYPE bigint"),
    "to and fro": alter("ALTER a TYPE bigint; ALTER a TYPE int", "of_a"),
    "to and fro beside others": alter(
        "ALTER a SET STATISTICS 50; ALTER e SET DEFAULT 'x'; ALTER c TYPE varchar(30); "
        "ADD z int DEFAULT 4",
        insert=ROW + ", 3",
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("altered")) as running:
        yield running


def insert(table: AlteredTable, number: int, values: str = ROW) -> None:
    table.run(f"INSERT INTO entry VALUES ({values.replace('{}', str(number))})")


def walk(table: AlteredTable, one: Alter, again: bool) -> None:
    """Rows, the change, rows; then back, rows, a start, rows."""
    for number in range(1, 5):
        insert(table, number)
    driver = Driver(table)
    table.rounds(driver)
    if again:
        driver.close()
    table.run(*one.statements)
    if again:
        driver = Driver(table)
    table.rounds(driver)
    assert set(table.suspended()) == one.stops, table.suspended()
    insert(table, 11, one.insert)
    table.run("UPDATE entry SET id = 12 WHERE id = 2", "DELETE FROM entry WHERE id = 1")
    table.rounds(driver)
    suspended = table.suspended()
    assert set(suspended) == one.stops and set(suspended.values()) <= {"VIEW_COLUMN_CHANGED"}
    same(table, *VIEWS.keys() - one.stops)
    for view in sorted(one.stops):
        table.anew(driver, view, one.then.get(view))
    insert(table, 21, one.insert)
    table.run("DELETE FROM entry WHERE id = 3", "UPDATE entry SET id = 30 WHERE id = 11")
    table.rounds(driver)
    assert table.suspended() == {}
    same(table, *VIEWS)
    table.proved()
    driver.close()
    driver = Driver(table)
    table.run("UPDATE entry SET id = 40 WHERE id = 4")
    table.rounds(driver)
    same(table, *VIEWS)
    table.proved()
    driver.close()


def same(table: AlteredTable, *views: str) -> None:
    for view in views:
        assert table.shown(view) == table.truth(view), view


@pytest.mark.parametrize(("name", "again"), both_ways(QUICK))
def test_a_table_is_altered(server: Postgres, tmp_path: Path, name: str, again: bool) -> None:
    with closing(AlteredTable(tmp_path, server.dsn("north"), COLUMNS, VIEWS)) as table:
        walk(table, QUICK[name], again)


@pytest.mark.deep
@pytest.mark.parametrize("again", [False, True], ids=["running", "away"])
@pytest.mark.parametrize("name", DEEP)
def test_every_alter(server: Postgres, tmp_path: Path, name: str, again: bool) -> None:
    with closing(AlteredTable(tmp_path, server.dsn("north"), COLUMNS, VIEWS)) as table:
        walk(table, DEEP[name], again)
