"""All modes that ask the sources, in one running service beside replica views (DESIGN 5 and 7)."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from conftest import Bank
from proofs import assert_every_epoch_once, assert_no_change_twice
from services import BANK_CONFIG, Pipeline, Process, until, write_pipeline

from streaming.proof.databases import databases
from streaming.proof.recorded_levels import reaches
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse

JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN north.entry e ON e.account = a.id"""
OVER_BOTH = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN south.entry e ON e.account = a.id"""
EVERY = 20
"""Transactions between two refreshes."""
VIEWS: Mapping[str, tuple[str, str]] = {
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED),
    "swept": ("COMPLETE CONSISTENCY USING sweep", JOINED),
    "by_c_strobe": ("COMPLETE CONSISTENCY USING c_strobe", JOINED),
    "by_five": ("COMPLETE EVERY 5 USING c_strobe", JOINED),
    "by_strobe": ("STRONG CONSISTENCY USING strobe", JOINED),
    "by_eca": ("STRONG CONSISTENCY USING eca", JOINED),
    "refreshed": (f"STRONG CONSISTENCY USING recompute EVERY '{EVERY} transactions'", JOINED),
    "asked_both": ("COMPLETE CONSISTENCY USING compensating", OVER_BOTH),
    "swept_both": ("COMPLETE CONSISTENCY USING sweep", OVER_BOTH),
    "by_g_strobe": ("STRONG CONSISTENCY USING strobe", OVER_BOTH),
    "wrong": ("CONVERGENT CONSISTENCY USING naive", JOINED),
}
"""View -> its level and mode, and its SELECT; all in one group but `wrong`, for which nobody waits."""
RIGHT = [view for view in VIEWS if view != "wrong"]
ASKING = [view for view in RIGHT if view != "kept"]
UPDATES = 50
"""That every view has asked about at least, after the kill."""
COUNTED = re.compile(r'fresco_source_asked_total\{view="(\w+)",what="(\w+)"\} (\S+)')


def asking_pipeline(folder: Path, bank: Bank) -> Pipeline:
    """The bank's sources under the views."""
    views = folder / "views"
    views.mkdir(parents=True)
    for view, (how, query) in VIEWS.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (views / f"{view}.sql").write_text(text)
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    settings |= {"pipeline": "asking", "views": str(views), "allow_anomalies": True}
    settings["metrics"] = {"port": 0}
    return write_pipeline(folder, settings, bank.environment)


def counted(service: Process) -> dict[str, dict[str, float]]:
    """View -> what its manager asked, as /metrics tells."""
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", service.says)[-1:]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as said:
        text = said.read().decode()
    found: dict[str, dict[str, float]] = {}
    for view, what, value in COUNTED.findall(text):
        found.setdefault(view, {})[what] = float(value)
    return found


def fewest_updates(service: Process) -> float:
    """Of the views that ask: how many updates the one was told of that was told of the fewest."""
    asked = counted(service)
    return min(asked.get(view, {}).get("updates", 0.0) for view in ASKING)


@pytest.mark.timeout(900)
def test_every_mode_keeps_its_level_while_people_work_and_after_a_kill(
    bank: Bank, tmp_path: Path
) -> None:
    pipeline = asking_pipeline(tmp_path / "asking", bank)
    with bank.at_work(pipeline, rate=12, seed=5):
        with pipeline.running() as service:
            until(pipeline.newest, "the first epoch", alive=service)
            frontier = pipeline.epochs()[-1].frontier
            until(
                lambda: pipeline.epochs()[-1].frontier > frontier + 60,
                "transactions in the views",
                alive=service,
            )
            service.kill()
        again = pipeline.start()
        frontier = pipeline.epochs()[-1].frontier
        until(lambda: pipeline.epochs()[-1].frontier > frontier + 40, "more", alive=again)
        # What the first service had asked about is no work of the second one's.
        until(lambda: fewest_updates(again) > UPDATES, "updates in every view", alive=again)
    try:
        bank.rests(pipeline, again, period=EVERY)
        asked = counted(again)
        assert again.stops() == 0
    finally:
        again.kill()
    assert "Traceback" not in again.says
    check_levels(pipeline)
    check_asked(asked)


def check_levels(pipeline: Pipeline) -> None:
    """Judged by recomputation: all levels but the naive view's, which has none to keep."""
    verdict = verify_pipeline(pipeline.warehouse, 100)
    assert verdict.problems == ()
    lines = {line.name: line for line in verdict.lines if line.kind == "view"}
    for view in RIGHT:
        line = lines[view]
        assert line.holds and reaches(line.achieved, line.asked), (view, line)
    assert lines["by_five"].asked == "complete-N"
    group = next(line for line in verdict.lines if (line.kind, line.name) == ("group", "asking"))
    assert group.holds, group
    wrong = lines["wrong"]
    assert not reaches(wrong.achieved, "weak") and wrong.witness is not None, wrong
    equal = verify_sources(pipeline.warehouse, databases(pipeline.read_config()))
    assert [line.name for line in equal.lines if line.achieved != "equal"] in (["wrong"], [])
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    assert not Warehouse(pipeline.warehouse).epochs(pipeline.group)[-1].suspended
    for view in RIGHT:
        twin = "kept" if VIEWS[view][1] == JOINED else "asked_both"
        assert pipeline.rows(view) == pipeline.rows(twin), view


def check_asked(asked: Mapping[str, Mapping[str, float]]) -> None:
    """Each view asked, fewer times than it was told of updates, and what it was told is counted."""
    assert set(asked) == {*ASKING, "wrong"}
    print({view: {what: int(n) for what, n in one.items()} for view, one in asked.items()})
    for view in ASKING:
        one = asked[view]
        assert one["updates"] > UPDATES, (view, one)
        assert 0 < one["queries"] < one["updates"], (view, one)
        assert one["statements"] >= one["queries"] - one["again"], (view, one)
    assert asked["wrong"]["queries"] > asked["swept"]["queries"], "a query for each of its updates"
    assert sum(asked[view]["compensations"] for view in ASKING) > 0
