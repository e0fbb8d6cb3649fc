"""Disjoint groups, one of mixed managers, under the merge's other settings (MVC 4.3, 6; DESIGN 5).

Replica COMPLETE views and an aggregate stand beside views that ask: number by number, by batch, and one
that is refreshed as a whole every few transactions; the other group is complete every N. REL rides on the
lists, batches are bounded, rows keep their order, and a batch waits for the one before. Transfers between
the databases span the groups, and a relation is truncated under all modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from conftest import Bank
from proofs import assert_equal
from services import BANK_CONFIG, Pipeline, until, write_pipeline

from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.recorded_levels import reaches
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.service.status import pipeline_status

JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN north.entry e ON e.account = a.id"""
TAGS = """SELECT g.id AS tag, g.parts, a.owner
FROM north.fresco_global g JOIN north.account a ON a.id = g.parts"""
SOUTH_SIDE = "SELECT account, COUNT(*) AS entries FROM south.entry GROUP BY account"
BLOCK, EVERY = 4, 8
"""N of the views that are complete every N, and transactions between two refreshes: a multiple of it."""
VIEWS: Mapping[str, tuple[str, str]] = {
    "kept": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED),
    "balance": (
        "COMPLETE CONSISTENCY USING replica",
        "SELECT account, SUM(amount) AS balance FROM north.entry GROUP BY account",
    ),
    "tags_kept": ("COMPLETE CONSISTENCY USING replica", TAGS),
    "tags_swept": ("STRONG CONSISTENCY USING sweep", TAGS),  # complete, but for truncates
    "tags_by_eca": ("STRONG CONSISTENCY USING eca", TAGS),
    "tags_refreshed": (f"STRONG CONSISTENCY USING recompute EVERY '{EVERY} transactions'", TAGS),
    "south_side": (f"COMPLETE EVERY {BLOCK} CONSISTENCY USING replica", SOUTH_SIDE),
}
SETTINGS: Mapping[str, Any] = {
    "grouping": "disjoint",
    "on_span": "warn",
    "rel": "with-actions",
    "batching": {"rows": 2000, "age_ms": 200},
    "order": "prefix",
    "submission": "sequential",
    "metrics": {"port": 0},
}
NORTH, SOUTH = "mixed_asked", "mixed_south_side"
SAME = (("kept", "asked"), ("tags_kept", "tags_swept", "tags_by_eca", "tags_refreshed"))


def mixed_pipeline(folder: Path, bank: Bank) -> Pipeline:
    views = folder / "views"
    views.mkdir(parents=True)
    for view, (how, query) in VIEWS.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (views / f"{view}.sql").write_text(text)
    own = {"pipeline": "mixed", "views": str(views), **SETTINGS}
    settings = yaml.safe_load(BANK_CONFIG.read_text()) | own
    return write_pipeline(folder, settings, bank.environment)


def frontier(pipeline: Pipeline, group: str) -> int:
    """-1 before the first epoch."""
    try:
        return Warehouse(pipeline.warehouse).epochs(group)[-1].frontier
    except FrescoError:
        return -1


@pytest.mark.timeout(900)
def test_mixed_managers_move_together_beside_another_group_while_people_work(
    bank: Bank, tmp_path: Path
) -> None:
    pipeline = mixed_pipeline(tmp_path / "mixed", bank)
    with pipeline.running() as service:
        with bank.at_work(pipeline, rate=20, seed=8):
            until(
                lambda: min(frontier(pipeline, NORTH), frontier(pipeline, SOUTH)) >= 0,
                "the first epochs",
                alive=service,
            )
            begun = frontier(pipeline, NORTH)
            until(
                lambda: frontier(pipeline, NORTH) > begun + 100,
                "cuts under steady load, which end what the strong views tie together",
                alive=service,
            )
            with psycopg.connect(bank.dsns["north"], autocommit=True) as connection:
                connection.execute("TRUNCATE fresco_global")
        bank.rests(pipeline, service, period=EVERY)
        spanned = {one.stage: one.spanned for one in pipeline_status(pipeline.warehouse).stages}
        assert spanned["integrator"] > 0, "transfers between the databases"
        assert "GROUP_SPAN" in service.says
        assert service.stops() == 0
    assert "Traceback" not in service.says
    verdict = verify_pipeline(pipeline.warehouse, 100)
    assert verdict.problems == () and verdict.holds, [*map(str, verdict.lines)]
    achieved = {line.name: line.achieved for line in verdict.lines}
    assert reaches(achieved[NORTH], "strong") and achieved[SOUTH] == "complete-N"
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    for first, *others in SAME:
        for other in others:
            assert pipeline.rows(other) == pipeline.rows(first), other
    epochs = Warehouse(pipeline.warehouse).epochs(NORTH)
    for before, after in pairwise(epochs):
        assert after.is_prefix and after.frontier >= before.frontier
    assert any(before.epoch in after.dependencies for before, after in pairwise(epochs))
