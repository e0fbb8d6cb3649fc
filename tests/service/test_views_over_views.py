"""Views over views in the running service: four deep, over parents of several modes, one epoch for all.

Point by point: a child joins a view with a base relation, a grandchild aggregates it, another view joins
both with a relation of the other database; beside them children of views that ask the source. The driver
is killed while people work, and at the end a view over views joins.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
from conftest import Bank
from proofs import assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import specified_pipeline, until

from streaming.pipeline.plan import plan_pipeline
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.viewchanges.asked_changes import ask_to_add
from streaming.viewchanges.requests import Requests

COMPLETE = "COMPLETE CONSISTENCY USING replica"
JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.account a JOIN north.entry e ON e.account = a.id"""
EXACT = {
    "balance": (
        COMPLETE,
        "SELECT account, SUM(amount) AS balance, COUNT(*) AS n FROM north.entry GROUP BY account",
    ),
    "owned": (
        COMPLETE,
        "SELECT a.id, a.branch, b.balance FROM north.account a JOIN balance b ON b.account = a.id",
    ),
    "branches": (
        COMPLETE,
        "SELECT branch, SUM(balance) AS total, COUNT(*) AS members FROM owned GROUP BY branch",
    ),
    "shares": (
        COMPLETE,
        "SELECT o.id, o.balance, b.members, s.owner FROM owned o JOIN branches b ON o.branch = b.branch"
        " JOIN south.account s ON s.id = o.id",
    ),
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED),
    "owners": (COMPLETE, "SELECT owner, SUM(amount) AS total FROM asked GROUP BY owner"),
}
BY_BATCH = {
    "by_eca": ("STRONG CONSISTENCY USING eca", JOINED),
    "over_eca": (
        "STRONG CONSISTENCY USING replica",
        "SELECT e.account, b.balance, SUM(e.amount) AS total FROM by_eca e"
        " JOIN balance b ON b.account = e.account GROUP BY e.account, b.balance",
    ),
}

LATE = """SELECT b.branch, b.total, COUNT(*) AS n FROM shares s
JOIN branches b ON s.members = b.members WHERE s.id <= 5 GROUP BY b.branch, b.total"""


@pytest.mark.timeout(1800)
def test_views_over_views_keep_their_levels_while_people_work_and_through_a_kill(
    bank: Bank, tmp_path: Path
) -> None:
    views = {**EXACT, **BY_BATCH}
    pipeline = specified_pipeline(tmp_path / "over", "over", views, bank.environment)
    with mock.patch.dict(os.environ, bank.environment):
        choices = plan_pipeline(pipeline.read_config()).choices
    levels = {view: choice.gives.text for view, choice in choices.items()}
    assert levels == {**dict.fromkeys(EXACT, "complete"), **dict.fromkeys(BY_BATCH, "strong")}
    with bank.at_work(pipeline, rate=20, seed=7) as workload:
        with pipeline.running() as service:
            until(pipeline.newest, "an epoch", alive=service)
            after = pipeline.epochs()[-1].frontier + 60
            until(
                lambda: pipeline.epochs()[-1].frontier > after,
                "transactions in the views",
                alive=service,
            )
            service.kill()
        with pipeline.running() as service:
            before = pipeline.epochs()[-1].epoch
            until(lambda: pipeline.epochs()[-1].epoch > before, "an epoch more", alive=service)
            file = tmp_path / "late.sql"
            file.write_text(f"CREATE MATERIALIZED VIEW late AS {LATE}")
            request, requests = (
                ask_to_add(pipeline.read_config(), file),
                Requests(pipeline.warehouse),
            )
            told = until(
                lambda: requests.told(request.number, "done"),
                "the view to join",
                600,
                alive=service,
            )
            assert "error" not in told, told
            workload.stop()
            bank.rests(pipeline, service)
            assert service.stops() == 0
            assert "Traceback" not in service.says
    verdict = verify_pipeline(pipeline.warehouse, 100)
    assert verdict.problems == () and verdict.holds, verdict.lines
    reached = {line.name: line.achieved for line in verdict.lines if line.kind == "view"}
    assert {reached[view] for view in (*EXACT, "late")} == {"complete"}, reached
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    assert not Warehouse(pipeline.warehouse).epochs(pipeline.group)[-1].suspended
    assert all(pipeline.rows(view) for view in (*EXACT, *BY_BATCH, "late"))
