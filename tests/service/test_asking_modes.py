"""Modes that ask the sources, in the running service beside replica views (DESIGN 5 and 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from conftest import Bank
from proofs import assert_complete, assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import BANK_CONFIG, Pipeline, until, write_pipeline

from streaming.readers import Warehouse
from streaming.runtime.plan import databases
from streaming.runtime.step import ManifestStore
from streaming.verify import verify_pipeline, verify_sources

JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN north.entry e ON e.account = a.id"""
OVER_BOTH = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN south.entry e ON e.account = a.id"""
BALANCE = "SELECT account, SUM(amount) AS balance FROM north.entry GROUP BY account"
Views = Mapping[str, tuple[str, str]]
"""View -> its level and mode, and its SELECT."""
BESIDE: Views = {
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED),
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "balance": ("COMPLETE CONSISTENCY USING replica", BALANCE),
}
BY_BATCH: Views = {
    "by_eca": ("STRONG CONSISTENCY USING eca", JOINED),
    "by_recompute": ("STRONG CONSISTENCY USING recompute", JOINED),
    "over_both": ("COMPLETE CONSISTENCY USING compensating", OVER_BOTH),
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
}


def asking_pipeline(folder: Path, name: str, bank: Bank, specified: Views) -> Pipeline:
    """The bank's sources under a few views of which one asks."""
    views = folder / "views"
    views.mkdir(parents=True)
    for view, (how, query) in specified.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (views / f"{view}.sql").write_text(text)
    settings = yaml.safe_load(BANK_CONFIG.read_text()) | {"pipeline": name, "views": str(views)}
    settings["metrics"] = {"port": 0}
    return write_pipeline(folder, settings, bank.environment)


@pytest.mark.timeout(900)
def test_a_compensating_view_is_complete_beside_a_replica_while_people_work_and_after_a_kill(
    bank: Bank, tmp_path: Path
) -> None:
    pipeline = asking_pipeline(tmp_path / "asking", "asking", bank, BESIDE)
    with bank.at_work(rate=40, seed=5):
        with pipeline.running() as service:
            until(pipeline.newest, "the first epoch", alive=service)
            frontier = pipeline.epochs()[-1].frontier
            until(
                lambda: pipeline.epochs()[-1].frontier > frontier + 150,
                "transactions in the views",
                alive=service,
            )
            service.kill()
        again = pipeline.start()
        frontier = pipeline.epochs()[-1].frontier
        until(lambda: pipeline.epochs()[-1].frontier > frontier + 50, "more", alive=again)
    try:
        bank.rests(pipeline, again)
        assert again.stops() == 0
    finally:
        again.kill()
    assert "Traceback" not in again.says
    assert_complete(verify_pipeline(pipeline.warehouse, 100))
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    assert pipeline.rows("asked") == pipeline.rows("kept")
    assert not Warehouse(pipeline.warehouse).epochs(pipeline.group)[-1].suspended
    latest = ManifestStore(pipeline.warehouse / "_state" / "view-asked" / "manifests").latest()
    assert latest is not None and latest.snapshot["machines"]["adapter"]["step"] > 2, "it asked"


@pytest.mark.timeout(900)
def test_modes_that_work_by_batch_keep_their_levels_in_one_group_while_people_work(
    bank: Bank, tmp_path: Path
) -> None:
    pipeline = asking_pipeline(tmp_path / "modes", "modes", bank, BY_BATCH)
    with pipeline.running() as service:
        with bank.at_work(rate=20, seed=6):
            until(pipeline.newest, "the first epoch", alive=service)
            frontier = pipeline.epochs()[-1].frontier
            until(
                lambda: pipeline.epochs()[-1].frontier > frontier + 100,
                "transactions in the views",
                alive=service,
            )
        bank.rests(pipeline, service)
        assert service.stops() == 0
    verdict = verify_pipeline(pipeline.warehouse, 100)
    assert verdict.problems == () and verdict.holds, verdict.lines
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    for view, (_, query) in BY_BATCH.items():
        if query == JOINED:
            assert pipeline.rows(view) == pipeline.rows("kept"), view
