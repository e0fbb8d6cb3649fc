"""A table is altered under a running service: the documented way, from commands and readers' side.

The whole stack is real (PostgreSQL, Debezium, Kafka, Spark, Delta). What each ALTER does to which view is
`test_altered_postgres`'s.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Bank
from services import ROOT, Pipeline, Process, until, write_pipeline
from shop import capture_shop

from streaming.plain import plain
from streaming.proof.verdicts import verify_pipeline

VIEWS = {
    "sums": "SELECT SUM(pieces) AS pieces FROM tailor.orders",
    "amounts": "SELECT id, amount FROM tailor.orders",
}


def fresco(pipeline: Pipeline, *words: str) -> Any:
    """A command's answer as JSON; the last of several."""
    done = subprocess.run(
        pipeline.command(*words, "--json", "--wait", "300"),
        env={**os.environ, **pipeline.environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, plain(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def shows(pipeline: Pipeline, service: Process, view: str, rows: list[tuple[Any, ...]]) -> None:
    def there() -> bool:
        return pipeline.newest() is not None and pipeline.rows(view) == rows

    until(there, f"{rows} in {view}", alive=service)


@pytest.mark.timeout(1200)
def test_oddities_26_28_and_37_a_table_is_altered_under_a_running_service(
    bank: Bank, tmp_path: Path
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    for name, text in VIEWS.items():
        (views / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {text}\n")
    dsn = capture_shop(bank, "tailor")
    settings = {
        "pipeline": "tailored",
        "views": str(views),
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {"tailor": {"tables": {"orders": "public.orders"}, "connection": dsn}},
        "metrics": {"port": 0},
    }
    pipeline = write_pipeline(tmp_path, settings, {})
    other = tmp_path / "amounts.sql"
    other.write_text("CREATE MATERIALIZED VIEW amounts AS SELECT id, price FROM tailor.orders\n")

    def run(*statements: str) -> None:
        with psycopg.connect(dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    with pipeline.running() as service:
        shows(pipeline, service, "sums", [(3,)])
        run(
            "ALTER TABLE orders ALTER pieces TYPE bigint",
            "ALTER TABLE orders RENAME amount TO price",
        )
        fresco(pipeline, "view", "drop", "amounts")
        fresco(pipeline, "view", "add", str(other))
        run("INSERT INTO orders VALUES (2, 1.25, 4)", "UPDATE orders SET price = 9 WHERE id = 1")
        shows(pipeline, service, "sums", [(7,)])
        until(
            lambda: [(i, float(p)) for i, p in pipeline.rows("amounts")] == [(1, 9.0), (2, 1.25)],
            "the amounts by their new name",
            alive=service,
        )
    run(
        "ALTER TABLE orders DROP price",
        "ALTER TABLE orders ADD price numeric(18,2) DEFAULT 5",
    )
    with pipeline.running() as service:
        until(
            lambda: "amounts" in (newest.suspended if (newest := pipeline.newest()) else ()),
            "the suspension",
            alive=service,
        )
        run("UPDATE orders SET pieces = 10 WHERE id = 2")
        shows(pipeline, service, "sums", [(13,)])
        fresco(pipeline, "view", "drop", "amounts")
        fresco(pipeline, "view", "add", str(other))
        until(
            lambda: [(i, float(p)) for i, p in pipeline.rows("amounts")] == [(1, 5.0), (2, 5.0)],
            "the amounts made anew",
            alive=service,
        )
    verdict = verify_pipeline(pipeline.warehouse)
    assert verdict.holds, (verdict.problems, verdict.lines)
