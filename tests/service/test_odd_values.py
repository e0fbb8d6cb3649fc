"""Values that cannot be read come and go at a real database: their views stop, and come back (DESIGN 11).

Oddity 29: a NaN is corrected one transaction later. Oddity 30: one stands in the snapshot, so that a view
never had a state. Oddity 31: infinities and years that Python has not are shown and compared meanwhile.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Bank
from proofs import assert_complete
from services import Pipeline, until, write_pipeline
from typer.testing import CliRunner

from streaming.cli.commands import app
from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases
from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse

ODD = StackSource("odd", tables=("public.price", "public.early"))
TABLES = """
CREATE TABLE price (id int PRIMARY KEY, price numeric(10,2), d date, t timestamp, z timestamptz,
  note text);
CREATE TABLE early (id int PRIMARY KEY, price numeric(10,2));
ALTER TABLE price REPLICA IDENTITY FULL; ALTER TABLE early REPLICA IDENTITY FULL;
INSERT INTO price VALUES
  (1, 1.50, 'infinity', '-infinity', 'infinity', 'one'),
  (2, NULL, '12000-01-01', '0044-03-15 12:00 BC', '0044-03-15 12:00+00 BC',
   '__debezium_unavailable_value');
INSERT INTO early VALUES (1, 'NaN'), (2, 2.00);
"""
VIEWS = {
    "priced": "SELECT id, price FROM odd.price",
    "dated": "SELECT id, d, t, z FROM odd.price",
    "noted": "SELECT id, note FROM odd.price",
    "early_priced": "SELECT id, price FROM odd.early",
}
FAR = [
    {"id": 1, "d": "infinity", "t": "-infinity", "z": "infinity"},
    {"id": 2, "d": "+12000-01-01", "t": "-0043-03-15 12:00:00", "z": "-0043-03-15 12:00:00+00:00"},
]


def fresco(pipeline: Pipeline, *words: str) -> tuple[int, str]:
    """A command in this process: its status, and what it says on standard output."""
    done = CliRunner().invoke(app, [*words, "--config", str(pipeline.config)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def captured(bank: Bank) -> str:
    stack = bank.stack.stack
    create_databases(stack.dsn(POSTGRES_USER), [ODD.name])
    with psycopg.connect(stack.dsn(ODD.name)) as connection:
        connection.execute(TABLES)
    create_topics(bank.bootstrap, ODD.topics)
    config = connector_config(
        ODD, host=LOOPBACK, port=stack.postgres.port, user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )  # fmt: skip
    stack.connect.rest.put(ODD.connector, config)
    stack.connect.wait_running([ODD.connector])
    return stack.dsn(ODD.name)


def states(pipeline: Pipeline) -> dict[str, Any]:
    newest = pipeline.newest()
    return dict(newest.suspended) if newest else {}


def shown(pipeline: Pipeline, view: str) -> list[Any]:
    """Its rows at the newest state; why it has none where it is suspended."""
    try:
        table = Warehouse(pipeline.warehouse).read(view)
    except FrescoError as error:
        return [error.code]
    return sorted(zip(*(column.to_pylist() for column in table.columns[:2]), strict=True), key=repr)


@pytest.mark.timeout(900)
def test_values_that_cannot_be_read_come_and_go(bank: Bank, tmp_path: Path) -> None:
    dsn = captured(bank)
    views = tmp_path / "views"
    views.mkdir()
    for name, text in VIEWS.items():
        (views / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {text}\n")
    source = {"tables": {"price": "public.price", "early": "public.early"}, "connection": dsn}
    settings = {
        "pipeline": "odd",
        "views": str(views),
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {"odd": {**source, "decimals": "string"}},
        "metrics": {"port": 0},
    }
    pipeline = write_pipeline(tmp_path / "odd", settings, {})

    def does(statement: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(statement)

    def comes(view: str, *rows: Any) -> None:
        wanted = [(i, None if p is None else str(p)) for i, p in rows]

        def there() -> bool:
            found = shown(pipeline, view)
            return [(r[0], r[1] and str(r[1])) for r in found if isinstance(r, tuple)] == wanted

        until(there, f"{rows} in {view}, not {shown(pipeline, view)}", 240, service)

    with pipeline.running() as service:
        comes("priced", (1, "1.50"), (2, None))
        # The snapshot's NaN: a view that never had a state has none to read.
        assert shown(pipeline, "early_priced") == ["READ_VIEW_NO_STATE"]
        for words in ((), ("--json",), ("--suspended-as-of",)):
            assert fresco(pipeline, "sql", "SELECT * FROM early_priced", *words)[0] == 1
        status, said = fresco(pipeline, "sql", "SELECT * FROM dated ORDER BY id", "--json")
        assert status == 0 and [json.loads(line) for line in said.splitlines()] == FAR
        assert fresco(pipeline, "sql", "SELECT * FROM dated")[0] == 0
        does("DELETE FROM early WHERE id = 1")
        comes("early_priced", (2, "2.00"))
        # A NaN in the log, corrected one transaction later, and another view goes on.
        does("UPDATE price SET price = 'NaN' WHERE id = 1")
        until(lambda: "priced" in states(pipeline), "the suspension", alive=service)
        assert shown(pipeline, "priced") == ["READ_SUSPENDED"]
        assert Warehouse(pipeline.warehouse).read("dated").num_rows == 2
        does("UPDATE price SET price = NULL, note = 'mended' WHERE id = 1")
        comes("priced", (1, None), (2, None))
        # Again, and the view is dropped and added instead.
        does("UPDATE price SET price = 'NaN' WHERE id = 2")
        until(lambda: "priced" in states(pipeline), "the suspension", alive=service)
        status, said = fresco(pipeline, "view", "drop", "priced", "--json")
        assert status == 0, said
        does("UPDATE price SET price = 4 WHERE id = 2")
        until(
            lambda: "priced" not in Warehouse(pipeline.warehouse).views(), "its end", 120, service
        )
        file = tmp_path / "priced.sql"
        file.write_text(f"CREATE MATERIALIZED VIEW priced AS {VIEWS['priced']}\n")
        status, said = fresco(pipeline, "view", "add", str(file), "--json")
        assert status == 0, said
        comes("priced", (1, None), (2, "4.00"))
        does("INSERT INTO price VALUES (3, 9.99, '-infinity', 'infinity', '-infinity', 'three')")
        comes("priced", (1, None), (2, "4.00"), (3, "9.99"))
        comes("noted", (1, "mended"), (2, "__debezium_unavailable_value"), (3, "three"))
    verdict = verify_pipeline(pipeline.warehouse)
    assert_complete(verdict)
    against = verify_sources(pipeline.warehouse, databases(pipeline.read_config()))
    assert against.holds, against
