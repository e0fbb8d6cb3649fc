"""Views join and leave a running service while people work, and whatever is killed (DESIGN 5).

One pipeline goes through it all: a view dropped and one added under load, a name that comes back with
other SQL, requests made while nothing runs, a service killed while a view joins. At the end everything
is judged from `_updates` and from the databases.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from conftest import Bank
from proofs import assert_complete, assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import BANK_CONFIG, ROOT, Pipeline, Process, until, write_pipeline
from writers import writing

from streaming.pipeline.catalog import load_catalog
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.viewchanges.requests import Requests
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import Conflict, TableHandle
from streaming.warehouse.updates import UpdatesReader
from streaming.warehouse.upkeep import drop_below

HELD = """
CREATE MATERIALIZED VIEW held AS
SELECT a.owner, COUNT(*) AS entries, SUM(e.amount) AS total
FROM north.entry e JOIN north.account a ON e.account = a.id
GROUP BY a.owner
"""
ASKED = """
CREATE MATERIALIZED VIEW asked USING compensating AS
SELECT e.id, a.owner, e.amount FROM south.entry e JOIN south.account a ON e.account = a.id
"""
EPOCHS = 10
"""That the other views publish while a view loads."""
GAP_SECONDS = 15.0
"""Most between two commits meanwhile, on a machine that is busy."""
PATIENCE = "300"
"""Seconds; for a machine that is busy."""
SMALL = "CREATE MATERIALIZED VIEW large_entry AS SELECT id FROM south.entry WHERE amount < 500"


@pytest.fixture
def pipeline(bank: Bank, tmp_path: Path) -> Pipeline:
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    views = tmp_path / "views"
    shutil.copytree(BANK_CONFIG.parent / settings["views"], views)
    return write_pipeline(
        tmp_path / "changing",
        settings | {"pipeline": "changing", "views": str(views)},
        bank.environment,
    )


def fresco(pipeline: Pipeline, *words: str, status: int = 0) -> Any:
    """A command's answer as JSON; the last of several."""
    done = subprocess.run(
        pipeline.command(*words, "--json"),
        env={**os.environ, **pipeline.environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def views(pipeline: Pipeline) -> list[str]:
    return Warehouse(pipeline.warehouse).views()


def gaps(pipeline: Pipeline, after: int) -> list[float]:
    """Seconds between the commits since an epoch."""
    written = [one.written_ms or 0 for one in pipeline.epochs() if one.epoch >= after]
    return [(b - a) / 1000 for a, b in itertools.pairwise(written)]


@pytest.mark.timeout(1200)
def test_views_come_and_go_under_load_and_through_kills(
    bank: Bank, pipeline: Pipeline, tmp_path: Path
) -> None:
    requests = Requests(pipeline.warehouse)
    held = tmp_path / "held.sql"
    held.write_text(HELD)
    with bank.at_work(pipeline, rate=10), pipeline.running() as service:
        until(pipeline.newest, "the first epoch", alive=service)
        before = (pipeline.newest() or pytest.fail("no epoch")).epoch
        dropped = fresco(pipeline, "view", "drop", "large_entry", "--wait", PATIENCE)
        assert dropped["state"] == "done" and "large_entry" not in views(pipeline)
        added = fresco(pipeline, "view", "add", str(held), "--wait", PATIENCE)
        assert added["state"] == "done" and "held" in views(pipeline)
        since = load_catalog(pipeline.warehouse).joined["held"].since
        longest = max(gaps(pipeline, before))
        print(f"longest time between two commits while views changed: {longest:.2f} s")
        small = tmp_path / "views" / "large_entry.sql"
        small.write_text(SMALL)
        with ThreadPoolExecutor() as beside:  # the command may end after the view has joined
            adding = beside.submit(fresco, pipeline, "view", "add", str(small), "--wait", "0")
            until(lambda: requests.told(3, "loaded"), "a view that is about to join", alive=service)
            service.kill()
            adding.result()
        joined = requests.told(3, "done") is not None
        assert fresco(pipeline, "view", "drop", "total", "--wait", "0")["state"] == "is to leave"
        states = {one["view"]: one["state"] for one in fresco(pipeline, "view", "list")}
        assert states["total"] == "waits; is to leave" and states["held"] == "waits"
        assert states["large_entry"].startswith("waits" if joined else "is to join")
    asked = tmp_path / "asked.sql"
    asked.write_text(ASKED)
    with pipeline.running("again") as service:
        until(lambda: not requests.open(), "both requests", alive=service)
        assert views(pipeline) == [
            "balance", "branch_total", "held", "large_entry", "owner_entries",
        ]  # fmt: skip
        with bank.at_work(pipeline, rate=10, seed=7):
            added = fresco(pipeline, "view", "add", str(asked), "--wait", PATIENCE)
        assert added["state"] == "done" and "asked" in views(pipeline)
        bank.rests(pipeline, service)
        assert_complete(verify_pipeline(pipeline.warehouse, 100))
        assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
        assert since > 0 and not (pipeline.warehouse / "_state" / "view-total").exists()
        add_a_view_whose_load_is_held(bank, pipeline, service, tmp_path / "late.sql")
        assert service.stops() == 0
    assert "Traceback" not in service.says
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)


def add_a_view_whose_load_is_held(
    bank: Bank, pipeline: Pipeline, service: Process, file: Path
) -> None:
    """Its first rows come from the source, whose table is locked while the others go on.

    The view is `held` by another name, so what it shows at every epoch is known.
    """
    file.write_text(HELD.replace("VIEW held", "VIEW late"))
    last = pipeline.epochs()[-1]
    with entries_come(bank, pipeline, "north"):
        until(lambda: pipeline.epochs()[-1].epoch > last.epoch, "an epoch", alive=service)
        until(lambda: begins_at(pipeline, last.frontier), "the retention's cut", alive=service)
        with psycopg.connect(bank.dsns["north"]) as locking:
            locking.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")
            fresco(pipeline, "view", "add", str(file), "--wait", "0")
            until(lambda: waits_for_account(bank), "the load to wait", alive=service)
            before = (pipeline.newest() or pytest.fail("no epoch")).epoch
            until(lambda: pipeline.epochs()[-1].epoch >= before + EPOCHS, "epochs", 120, service)
            assert waits_for_account(bank) and "late" not in views(pipeline)
            held = max(gaps(pipeline, before))
            look_into(pipeline)
        until(lambda: "late" in views(pipeline), "the view to join", alive=service)
    bank.rests(pipeline, service)
    longest = max(gaps(pipeline, before))
    print(f"longest time between commits: {held:.2f} s while it loads, {longest:.2f} s in all")
    assert held < GAP_SECONDS and longest < 2 * GAP_SECONDS
    since = load_catalog(pipeline.warehouse).joined["late"].since
    warehouse = Warehouse(pipeline.warehouse)
    shown = [one.epoch for one in pipeline.epochs() if one.frontier > since]
    assert shown
    for epoch in shown:
        late, known = (warehouse.read(view, epoch=epoch).to_pylist() for view in ("late", "held"))
        assert sorted(late, key=str) == sorted(known, key=str), epoch


def look_into(pipeline: Pipeline) -> None:
    """What the stages say, and what the doctor says, of a pipeline that runs."""
    for kind in ("updates", "rel", "actions"):
        told = fresco(pipeline, "topics", "tail", kind, "--last", "1", "--rows", "3")
        assert told["topic"] == f"changing.{kind}.changing" and told["kind"] == kind, told
        assert told["says"] and told["producer"] and int(told["sequence"]) > 0, told
    found = {one["check"]: one for one in fresco(pipeline, "doctor")}
    published = found.pop("publication of north")
    assert (published["level"], published["code"]) == ("warning", "SOURCE_TABLE_LOCKED"), published
    assert {one["level"] for one in found.values()} == {"ok"}, found
    assert "settings that matter are right" in found["connector fresco-north of north"]["says"]
    assert found["captured topics"]["says"] == "10 topics", found
    assert found["the pipeline's topics"]["says"].startswith("3 of 3 exist"), found
    assert found["sources and views"]["says"].endswith("views over 6 relations"), found


def begins_at(pipeline: Pipeline, number: int) -> bool:
    """Drop from `_updates` what the retention would; False where a commit came in between."""
    updates = TableHandle.open(
        TableFolder.of(str(pipeline.warehouse)).below("_updates"), "relation"
    )
    assert updates is not None
    with suppress(Conflict):
        drop_below(updates, number)
    return UpdatesReader(str(pipeline.warehouse)).kept_from > 0


def waits_for_account(bank: Bank) -> bool:
    """Whether somebody waits for the lock."""
    with psycopg.connect(bank.dsns["north"]) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE relation = 'account'::regclass AND NOT granted"
        ).fetchone()
    return found is not None and found[0] > 0


def entries_come(bank: Bank, pipeline: Pipeline, source: str) -> AbstractContextManager[None]:
    """Somebody who needs no account inserts entries, one a transaction, until the block ends."""
    numbers = itertools.count(7_700_000_000)
    inserts = (f"INSERT INTO entry VALUES ({n}, {1 + n % 5}, 1)" for n in numbers)
    return writing(pipeline, bank.dsns[source], inserts, 0.05)
