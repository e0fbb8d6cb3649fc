"""`verify --source` against a real PostgreSQL: what was lost before `_updates` shows here."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from streaming.demo.embedded.ports import choose_ports
from streaming.demo.embedded.postgres_server import Postgres, create_databases
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.proof.verdicts import Database, verify_sources
from streaming.warehouse.upkeep import drop_below
from tests.unit.verified_bank import Bank, transfers

TABLES = {"entry": "bank.Entry, odd"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("stack")
    postgres = Postgres(folder, choose_ports(folder, {"postgres": None})["postgres"])
    postgres.start()
    try:
        create_databases(postgres.dsn("postgres"), ["north", "south"])
        for name in ("north", "south"):
            with psycopg.connect(postgres.dsn(name)) as connection:
                connection.execute("CREATE SCHEMA bank")
                connection.execute(
                    'CREATE TABLE bank."Entry, odd"'
                    " (id bigint PRIMARY KEY, account int, amount numeric(18,2))"
                )
        yield postgres
    finally:
        postgres.stop()


@pytest.fixture
def databases(server: Postgres) -> dict[str, Database]:
    return {name: Database(server.dsn(name), TABLES) for name in ("north", "south")}


def recorded(folder: Path, server: Postgres) -> Bank:
    """A warehouse of ten transfers, and databases that hold the same."""
    bank = Bank(folder, transfers(10, 4))
    bank.record_updates()
    bank.commit(0, 10)
    for name in ("north", "south"):
        rows = {}
        for changes in bank.history:
            for relation, multiplicity, row in changes:
                if relation == f"{name}.entry":
                    rows[row] = rows.get(row, 0) + multiplicity
        with psycopg.connect(server.dsn(name)) as connection, connection.cursor() as cursor:
            cursor.execute('TRUNCATE bank."Entry, odd"')
            kept = [row for row, n in rows.items() if n]
            cursor.executemany('INSERT INTO bank."Entry, odd" VALUES (%s, %s, %s)', kept)
    return bank


def test_views_and_relations_equal_the_databases(
    tmp_path: Path, server: Postgres, databases: dict[str, Database]
) -> None:
    recorded(tmp_path, server)
    verdict = verify_sources(tmp_path, databases)
    assert verdict.holds
    assert {(line.kind, line.achieved) for line in verdict.lines} == {
        ("relation", "equal"),
        ("view", "equal"),
    }
    assert len(verdict.lines) == 5


def test_without_the_beginning_of_the_updates_the_views_are_compared_alone(
    tmp_path: Path, server: Postgres, databases: dict[str, Database]
) -> None:
    bank = recorded(tmp_path, server)
    assert drop_below(bank.updates.table, len(bank.history)) > 0
    verdict = verify_sources(tmp_path, databases)
    assert verdict.holds
    assert [line.kind for line in verdict.lines] == ["view"] * 3


def test_a_row_that_the_warehouse_never_saw_is_named(
    tmp_path: Path, server: Postgres, databases: dict[str, Database]
) -> None:
    recorded(tmp_path, server)
    with psycopg.connect(server.dsn("south")) as connection:
        connection.execute('INSERT INTO bank."Entry, odd" VALUES (4711, 9, NULL)')
    verdict = verify_sources(tmp_path, databases)
    assert not verdict.holds
    found = {line.name: line for line in verdict.lines}
    assert found["north.entry"].holds and found["balance"].holds
    witness = found["south.entry"].witness
    assert witness is not None
    assert (witness.row, witness.expected, witness.found) == ((4711, 9, None), 1, 0)
    assert not found["doubles"].holds and not found["total"].holds


def test_oddity_17_a_column_that_was_dropped_is_left_out_of_the_comparison(
    tmp_path: Path, server: Postgres, databases: dict[str, Database]
) -> None:
    opening = [("south.entry", 1, (1, 1, Decimal(5))), ("south.entry", 1, (2, 1, Decimal(6)))]
    closing = [("south.entry", -1, (1, 1, Decimal(5)))]
    bank = Bank(tmp_path, [opening, closing], names=("doubles",))
    bank.history[1] = [("south.entry", -1, (1, 1, None))]
    lost = Control(number=1, relation="south.entry", kind="tainted", columns=(2,), what="gone")
    bank.record_updates([lost])
    bank.commit(0, 1)
    for name in ("north", "south"):
        with psycopg.connect(server.dsn(name)) as connection:
            connection.execute('TRUNCATE bank."Entry, odd"')
    with psycopg.connect(server.dsn("south")) as connection:
        connection.execute('ALTER TABLE bank."Entry, odd" DROP COLUMN amount')
        connection.execute('INSERT INTO bank."Entry, odd" VALUES (2, 1)')
    try:
        verdict = verify_sources(tmp_path, databases)
        assert verdict.holds, verdict
        assert {line.name for line in verdict.lines} >= {"south.entry", "doubles"}
    finally:
        with psycopg.connect(server.dsn("south")) as connection:
            connection.execute('ALTER TABLE bank."Entry, odd" ADD COLUMN amount numeric(18,2)')


def test_a_database_without_a_connection_is_named(
    tmp_path: Path, server: Postgres, databases: dict[str, Database]
) -> None:
    recorded(tmp_path, server)
    with pytest.raises(FrescoError, match=r"VERIFY_SOURCE.*no connection") as error:
        verify_sources(tmp_path, {"north": databases["north"]})
    assert error.value.where == "south"
    unknown = {**databases, "south": Database(server.dsn("nowhere"), TABLES)}
    with pytest.raises(FrescoError, match=r"VERIFY_SOURCE.*cannot be read"):
        verify_sources(tmp_path, unknown)
