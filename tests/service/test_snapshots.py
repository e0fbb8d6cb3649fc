"""A folder of snapshots, and a table that is read whole, become verified views; killed in between."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import yaml
from conftest import Bank
from services import BANK_CONFIG, Pipeline, Process, until, write_pipeline

from streaming.demo.embedded.parts import POSTGRES_USER
from streaming.demo.embedded.postgres_server import create_databases
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse

SEED = 411
ITEMS = 3000
VIEWS = {
    "stocked": "SELECT i.id, i.name, i.price, s.place, s.pieces"
    " FROM legacy.item i JOIN legacy.stock s ON s.item = i.id",
    "booked": "SELECT l.account, SUM(l.amount) AS total FROM ledger.line l GROUP BY l.account",
}
SOURCES = {
    "legacy": {
        "snapshots": {"folder": "legacy", "settle_seconds": 0},
        "tables": {"item": "old.item", "stock": "old.stock"},
        "columns": {
            "item": {"id": "bigint", "name": "text", "price": "numeric(12,2)"},
            "stock": {"item": "bigint", "place": "text", "pieces": "int"},
        },
        "keys": {"item": ["id"]},
    },
    "ledger": {
        "snapshots": {"every_seconds": 0.2},
        "tables": {"line": "public.line"},
        "connection": "${LEDGER}",
    },
}


def write_snapshot(folder: Path, number: int) -> None:
    """Two tables, one in CSV and one in Parquet; the second has no key and doubled rows."""
    folder = folder / f"day-{number}"
    draft = folder.with_name(f".{folder.name}")
    draft.mkdir(parents=True)
    with duckdb.connect() as engine:
        engine.execute(
            f"COPY (SELECT i AS id, CASE WHEN i % 7 > 0 THEN 'item ' || i || ', \"' || (i % {number})"
            f" END AS name, (i * {number} % 1000)::DECIMAL(12,2) / 4 AS price FROM range({number},"
            f" {ITEMS} + {number}) t(i)) TO '{draft}/item.csv' (HEADER, FORCE_QUOTE (name))"
        )
        engine.execute(
            f"COPY (SELECT i % {ITEMS} AS item, 'p' || (i % 3) AS place, (i % {number + 1})::INT AS"
            f" pieces FROM range({ITEMS + 100 * number}) t(i)) TO '{draft}/stock.parquet'"
        )
    draft.rename(folder)


def expected(folder: Path, number: int) -> list[tuple[Any, ...]]:
    """The first view over a snapshot, by DuckDB itself."""
    read = {
        "legacy.item": f"read_csv('{folder}/day-{number}/item.csv', types = {{'price':"
        " 'DECIMAL(12,2)', 'name': 'VARCHAR'}, allow_quoted_nulls = false)",
        "legacy.stock": f"read_parquet('{folder}/day-{number}/stock.parquet')",
    }
    query = VIEWS["stocked"]
    for name, files in read.items():
        query = query.replace(f"{name} ", f"{files} ")
    with duckdb.connect() as engine:
        return sorted(engine.execute(query).fetchall(), key=repr)


def published(pipeline: Pipeline, source: str) -> list[dict[str, Any]]:
    """What `fresco snapshots --once` says."""
    log = pipeline.config.parent / f"{source}.json"
    log.unlink(missing_ok=True)
    words = pipeline.command("snapshots", "--source", source, "--once", "--json")
    command = Process(words, log, pipeline.environment)
    assert command.ends() == 0, command.tail()
    lines = log.read_text().splitlines()  # standard error goes there too
    return [json.loads(line) for line in lines if line.startswith("{")]


def killed(pipeline: Pipeline, rng: random.Random) -> None:
    """A monitor that is killed at some moment."""
    words = pipeline.command("snapshots", "--source", "legacy")
    monitor = Process(words, pipeline.config.parent / "killed.log", pipeline.environment)
    place = pipeline.warehouse / "_state" / "snapshots-legacy"
    until(lambda: place.is_dir() and any(place.glob("[0-9]*")), "a form", alive=monitor)
    monitor.ended_within(rng.random() * 0.3)
    monitor.kill()


def rows(pipeline: Pipeline, view: str) -> list[tuple[Any, ...]]:
    table = Warehouse(pipeline.warehouse).read(view)
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)


def test_from_snapshots_to_verified_views(bank: Bank, tmp_path: Path) -> None:
    stack, rng = bank.stack.stack, random.Random(SEED)
    create_databases(stack.dsn(POSTGRES_USER), ["ledger"])
    dsn, folder = stack.dsn("ledger"), tmp_path / "snapshots"
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE TABLE line (account bigint, amount numeric(18,2), at timestamptz)"
        )
        connection.execute("INSERT INTO line SELECT i % 5, i, now() FROM generate_series(1, 100) i")
    for view, query in VIEWS.items():
        (folder / "views").mkdir(parents=True, exist_ok=True)
        text = f"CREATE MATERIALIZED VIEW {view} AS {query}\n"
        (folder / "views" / f"{view}.sql").write_text(text)
    settings = {"pipeline": "legacies", "views": str(folder / "views"), "sources": SOURCES}
    settings |= {"kafka": yaml.safe_load(BANK_CONFIG.read_text())["kafka"], "metrics": {"port": 0}}
    pipeline = write_pipeline(folder, settings, {**bank.environment, "LEDGER": dsn})
    write_snapshot(folder / "legacy", 1)
    killed(pipeline, rng)
    assert published(pipeline, "ledger")[0]["inserted"] == 100
    published(pipeline, "legacy")
    with pipeline.running() as service:
        until(pipeline.newest, "the first epoch", alive=service)
        assert rows(pipeline, "stocked") == expected(folder / "legacy", 1)
        for number in (2, 3):
            write_snapshot(folder / "legacy", number)
            killed(pipeline, rng)
        published(pipeline, "legacy")
        assert published(pipeline, "legacy") == [], "what is published is not published again"
        with psycopg.connect(dsn) as connection:
            connection.execute("DELETE FROM line WHERE account = 3")
            connection.execute("UPDATE line SET amount = amount + 1 WHERE account = 4")
        (one,) = published(pipeline, "ledger")
        assert (one["inserted"], one["updated"], one["deleted"]) == (20, 0, 40), "no key: a bag"
        wanted = expected(folder / "legacy", 3)
        until(lambda: rows(pipeline, "stocked") == wanted, "the last snapshot", alive=service)
        until(lambda: len(rows(pipeline, "booked")) == 4, "the ledger", alive=service)
        assert service.stops() == 0
    verdict = verify_pipeline(pipeline.warehouse)
    assert verdict.holds and verdict.frontier == {"legacies": 3}, (verdict, SEED)
    assert {line.achieved for line in verdict.lines} == {"complete"}
