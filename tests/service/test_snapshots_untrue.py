"""A snapshot that is taken again tells some days and numbers as others: the service looks.

Oddities 10 and 32: Debezium's snapshot has 0044-03-15 BC as a day of the year 44, and NaN under `precise`
as NULL, and no event shows it. The log has lost what was written, so the snapshot takes effect while the
service runs; the views that read such a column are suspended by name, and come back with what is there.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from conftest import Bank
from services import Pipeline, Process, until, write_pipeline
from test_altered_service import fresco

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_sources
from streaming.readers import Warehouse

NAME = "untrue"
TABLE = """
CREATE TABLE price (id int PRIMARY KEY, price numeric(10,2), d date);
ALTER TABLE price REPLICA IDENTITY FULL;
INSERT INTO price VALUES (1, 1.50, '2024-01-01');
"""
LOST = """
DELETE FROM price WHERE id = 1;
INSERT INTO price VALUES (3, 'NaN', '2024-02-02');
"""
VIEWS = {
    "ids": "SELECT id FROM untrue.price",
    "priced": "SELECT id, price FROM untrue.price",
    "dated": "SELECT id, d FROM untrue.price",
}


def day(text: str) -> int:
    return int(np.datetime64(text, "D").astype(int))


def states(pipeline: Pipeline) -> dict[str, str]:
    newest = pipeline.newest()
    return {} if newest is None else {v: newest.causes[v]["code"] for v in newest.suspended}


def shows(pipeline: Pipeline, service: Process, view: str, *rows: object) -> None:
    def there() -> bool:
        return pipeline.newest() is not None and view not in states(pipeline) and found() == [*rows]

    def found() -> list[object]:
        table = Warehouse(pipeline.warehouse).read(view)
        if "d" in table.column_names:  # Python has no such days
            table = table.set_column(1, "d", table["d"].cast(pa.int32()))
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    until(there, f"{rows} in {view}", 240, service)


@pytest.mark.timeout(900)
def test_what_a_later_snapshot_tells_as_something_else_suspends_who_reads_it(
    bank: Bank, tmp_path: Path
) -> None:
    stack = bank.stack.stack
    create_databases(stack.dsn(POSTGRES_USER), [NAME])
    dsn, rest = stack.dsn(NAME), stack.connect.rest
    source = StackSource(NAME, ("public.price",), options=(("decimal.handling.mode", "precise"),))

    def does(statements: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(statements.encode())

    does(TABLE)
    create_topics(bank.bootstrap, source.topics)
    config = connector_config(
        source, host=LOOPBACK, port=stack.postgres.port, user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )  # fmt: skip
    rest.put(source.connector, config)
    stack.connect.wait_running([source.connector])
    views = tmp_path / "views"
    views.mkdir()
    for name, text in VIEWS.items():
        (views / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {text}\n")
    settings = {
        "pipeline": NAME,
        "views": str(views),
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {NAME: {"tables": {"price": "public.price"}, "connection": dsn}},
        "metrics": {"port": 0},
    }
    pipeline = write_pipeline(tmp_path, settings, {})
    path = f"/connectors/{source.connector}"
    with pipeline.running() as service:
        shows(pipeline, service, "ids", (1,))
        does("INSERT INTO price VALUES (2, 2.00, '0044-03-15 BC')")
        shows(pipeline, service, "dated", (1, day("2024-01-01")), (2, day("-0043-03-15")))
        rest.ask("PUT", f"{path}/stop")
        until(lambda: rest.ask("GET", f"{path}/status")["tasks"] == [], "its end", 60)
        rest.ask("DELETE", f"{path}/offsets")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"SELECT pg_drop_replication_slot('fresco_{NAME}')".encode())
        does(LOST)
        rest.ask("PUT", f"{path}/resume")
        until(lambda: "RUNNING" in str(rest.ask("GET", f"{path}/status")["tasks"]), "its task", 90)
        serial = iter(range(100, 1000))

        def told() -> bool:
            does(f"INSERT INTO price VALUES ({next(serial)}, 0, NULL)")
            return {"priced", "dated"} <= states(pipeline).keys()

        until(told, "the suspensions", 240, service)
        assert set(states(pipeline).values()) == {"VIEW_COLUMN_CHANGED"}
        does("DELETE FROM price WHERE id >= 100; UPDATE price SET price = 3 WHERE id = 3")
        shows(pipeline, service, "ids", (2,), (3,))
        for view in ("dated", "priced"):
            if view in states(pipeline):
                fresco(pipeline, "view", "resume", view)
        shows(pipeline, service, "dated", (2, day("-0043-03-15")), (3, day("2024-02-02")))
        shows(pipeline, service, "priced", (2, Decimal("2.00")), (3, Decimal("3.00")))
        assert "SOURCE_OLD_DATES" in service.says
        does("UPDATE price SET d = '0045-03-15 BC' WHERE id = 2")
        shows(pipeline, service, "dated", (2, day("-0044-03-15")), (3, day("2024-02-02")))
    against = verify_sources(pipeline.warehouse, databases(pipeline.read_config()))
    assert against.holds, against
