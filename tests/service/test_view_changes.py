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
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Bank
from proofs import assert_complete, assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import BANK_CONFIG, ROOT, Pipeline, until, write_pipeline

from streaming.catalog import load_catalog
from streaming.readers import Warehouse
from streaming.runtime.plan import databases
from streaming.runtime.requests import Requests
from streaming.verify import verify_pipeline, verify_sources

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
    """A command's answer as JSON."""
    done = subprocess.run(
        pipeline.command(*words, "--json"),
        env={**os.environ, **pipeline.environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def views(pipeline: Pipeline) -> list[str]:
    return Warehouse(pipeline.warehouse).views()


def gaps(pipeline: Pipeline, after: int) -> list[float]:
    """Seconds between the commits since an epoch."""
    written = [one.written_ms or 0 for one in pipeline.epochs() if one.epoch >= after]
    return [(b - a) / 1000 for a, b in itertools.pairwise(written)]


def test_views_come_and_go_under_load_and_through_kills(
    bank: Bank, pipeline: Pipeline, tmp_path: Path
) -> None:
    requests = Requests(pipeline.warehouse)
    held = tmp_path / "held.sql"
    held.write_text(HELD)
    with bank.at_work(rate=10), pipeline.running() as service:
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
        fresco(pipeline, "view", "add", str(small), "--wait", "0")
        until(lambda: requests.told(3, "loaded"), "a view that is about to join", alive=service)
        service.kill()
        assert fresco(pipeline, "view", "drop", "total", "--wait", "0")["state"] == "is to leave"
        states = {one["view"]: one["state"] for one in fresco(pipeline, "view", "list")}
        assert states["total"] == "maintained; is to leave" and states["held"] == "maintained"
        assert states["large_entry"].startswith("is to join")
    asked = tmp_path / "asked.sql"
    asked.write_text(ASKED)
    with pipeline.running("again") as service:
        until(lambda: not requests.open(), "both requests", alive=service)
        assert views(pipeline) == [
            "balance", "branch_total", "held", "large_entry", "owner_entries",
        ]  # fmt: skip
        with bank.at_work(rate=10, seed=7):
            added = fresco(pipeline, "view", "add", str(asked), "--wait", PATIENCE)
        assert added["state"] == "done" and "asked" in views(pipeline)
        bank.rests(pipeline, service)
        assert service.stops() == 0
    assert_complete(verify_pipeline(pipeline.warehouse, 100))
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    assert since > 0 and not (pipeline.warehouse / "_state" / "view-total").exists()
