"""`isolated` in the service: beside a replica over a captured database, and without any capture."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import askedpostgres as asked
import psycopg
import yaml
from conftest import Bank
from services import BANK_CONFIG, Pipeline, Process, until, write_pipeline

from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.service.status import pipeline_status

JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN north.entry e ON e.account = a.id"""
VIEWS = {
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "isolated": ("STRONG CONSISTENCY USING isolated", JOINED),
    "owners": ("STRONG CONSISTENCY USING isolated", "SELECT a.id, a.owner FROM north.account a"),
}


def with_views(folder: Path, views: dict[str, tuple[str, str]], settings: dict[str, Any]) -> Any:
    """The settings with these view files."""
    (folder / "views").mkdir(parents=True)
    for view, (how, query) in views.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (folder / "views" / f"{view}.sql").write_text(text)
    return {**settings, "views": str(folder / "views"), "metrics": {"port": 0}}


def said(pipeline: Pipeline, *words: str) -> Any:
    """What a command answers with --json."""
    log = pipeline.config.parent / f"{words[-1]}.json"
    log.unlink(missing_ok=True)
    command = Process([*pipeline.command(*words), "--json"], log, pipeline.environment)
    assert command.ends() == 0, command.tail()
    return json.loads(log.read_text())


def group_epochs(pipeline: Pipeline) -> Callable[[], int]:
    """How many epochs the isolated group has."""

    def count() -> int:
        try:
            return len(Warehouse(pipeline.warehouse).epochs(f"{pipeline.group}_isolated"))
        except Exception as error:
            assert getattr(error, "code", "").startswith("READ_NO"), error
            return 0

    return count


def stage_error(pipeline: Pipeline) -> Any:
    """Why an isolated view is suspended, as `fresco status` says."""
    stages = pipeline_status(pipeline.warehouse).stages
    (found,) = [one for one in stages if one.stage.startswith("isolated:")]
    return found.error


def test_beside_a_replica_killed_and_with_a_trigger_away(bank: Bank, tmp_path: Path) -> None:
    settings = yaml.safe_load(BANK_CONFIG.read_text()) | {"pipeline": "sessions"}
    settings = with_views(tmp_path / "sessions", VIEWS, settings)
    pipeline = write_pipeline(tmp_path / "sessions", settings, bank.environment)
    epochs = group_epochs(pipeline)
    done = said(pipeline, "isolated", "install")
    assert [(one["relation"], one["what"]) for one in done] == [
        ("north.account", "installed"),
        ("north.entry", "installed"),
    ]
    try:
        with pipeline.running() as service, bank.at_work(pipeline, rate=8, seed=91):
            until(lambda: epochs() > 5 and pipeline.newest(), "both groups", alive=service)
        with pipeline.running() as service:
            with bank.at_work(pipeline, rate=8, seed=92):
                before = epochs()
                until(lambda: epochs() > before + 2, "sessions after SIGKILL", alive=service)
                with psycopg.connect(bank.dsns["north"], autocommit=True) as connection:
                    connection.execute("DROP TRIGGER fresco_sessions_rows ON entry")
                error = until(lambda: stage_error(pipeline), "the loss to be told", alive=service)
                assert error["code"] == "SOURCE_TRIGGER_MISSING" and "isolated" in error["what"]
                frontier, before = pipeline.epochs()[-1].frontier, epochs()
                until(lambda: pipeline.epochs()[-1].frontier > frontier, "others", alive=service)
                until(lambda: epochs() > before, "owners goes on", alive=service)
                assert {one["what"] for one in said(pipeline, "isolated", "install")} == {
                    "mended",
                    "present",
                }
                until(lambda: stage_error(pipeline) is None, "its return", alive=service)
            bank.rests(pipeline, service)
            until(lambda: equal_to_the_databases(pipeline), "the last session", alive=service)
            assert service.stops() == 0
    finally:
        removed = said(pipeline, "isolated", "remove")
    assert {one["what"] for one in removed} == {"removed"}


def equal_to_the_databases(pipeline: Pipeline) -> bool:
    """Both proofs hold, and the two views that are one query have the same rows."""
    if not verify_sources(pipeline.warehouse, databases(pipeline.read_config())).holds:
        return False
    verdict = verify_pipeline(pipeline.warehouse, 50)
    assert verdict.holds, verdict
    assert pipeline.rows("isolated") == pipeline.rows("kept")
    return True


def test_without_capture_there_is_no_kafka(tmp_path: Path) -> None:
    """One database, isolated views only; killed, it goes on where it was."""
    with asked.server(tmp_path / "server") as server:
        dsn = server.dsn("north")
        asked.execute(
            dsn,
            "CREATE TABLE part (id bigint PRIMARY KEY, price numeric(18,2), made timestamptz)",
            "INSERT INTO part SELECT i, i + 0.5, now() FROM generate_series(1, 1000) i",
        )
        source = {"connection": dsn, "capture": "none", "tables": {"part": "public.part"}}
        how = "STRONG CONSISTENCY USING isolated"
        views = {
            "dear": (how, "SELECT * FROM north.part WHERE price > 9"),
            "shares": (how, "SELECT id, 10 / price AS share FROM north.part"),
        }
        settings = {
            "pipeline": "alone",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "sources": {"north": source},
            "limits": {"session_ms": 200},
        }
        settings = with_views(tmp_path / "alone", views, settings)
        pipeline = write_pipeline(tmp_path / "alone", settings, {})
        assert [one["what"] for one in said(pipeline, "isolated", "install")] == ["installed"]
        epochs = group_epochs(pipeline)
        with pipeline.running() as service:
            asked.execute(dsn, "UPDATE part SET price = price + 1 WHERE id % 3 = 0")
            until(lambda: epochs() > 0, "the sessions", alive=service)
        with pipeline.running() as service:
            for turn in (1, 2):
                asked.execute(dsn, f"UPDATE part SET price = price + 1 WHERE id % 3 = {turn}")
                until(lambda n=turn: epochs() > n, "the sessions", alive=service)  # type: ignore[misc]
            asked.execute(dsn, "UPDATE part SET price = 0 WHERE id = 1")
            error = until(lambda: stage_error(pipeline), "a row without a value", alive=service)
            assert error["code"] == "VIEW_ARITHMETIC", error
            assert "view shares" in error["what"]
            before = epochs()
            asked.execute(dsn, "UPDATE part SET price = 3 WHERE id = 1")
            until(lambda: epochs() > before, "dear goes on", alive=service)
            until(lambda: stage_error(pipeline) is None, "shares comes back", alive=service)
            until(
                lambda: verify_sources(pipeline.warehouse, databases(pipeline.read_config())).holds,
                "what the database holds",
                alive=service,
            )
            assert service.stops() == 0
        assert verify_pipeline(pipeline.warehouse).holds
        (row,) = subprocess.run(
            [*pipeline.command("sql", "SELECT count(*) AS n FROM dear"), "--json"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()
        assert json.loads(row) == {"n": 993}
