"""Atomic groups, with the parts of global transactions numbered apart (ryco-pyco 4; strobe-family 6.2).

Each view is a group of its own, though two of them read one relation, and each is right by itself, over
both databases. Transfers between the databases span the groups, which is what was asked for. A part
that does not come is released as local, and what waited for it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from conftest import Bank
from proofs import assert_equal, assert_no_change_twice
from services import Pipeline, specified_pipeline, until

from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.recorded_levels import reaches
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse

STROBE = "STRONG CONSISTENCY USING strobe"
JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM {}.account a JOIN {}.entry e ON e.account = a.id"""
VIEWS: Mapping[str, tuple[str, str]] = {
    "there": (STROBE, JOINED.format("north", "south")),
    "back": (STROBE, JOINED.format("south", "north")),
    "twins": (
        STROBE,
        "SELECT a.id, b.id AS other, a.owner, b.branch FROM north.account a"
        " JOIN south.account b ON b.id = a.id",
    ),
}
PATIENT, IMPATIENT = {"PART_TIMEOUT": "300000"}, {"PART_TIMEOUT": "1500"}
LOST = "apart-lost"
NUMBER = 8_800_000_000


def pipeline_of(bank: Bank, folder: Path) -> Pipeline:
    settings = {
        "globals": "apart",
        "grouping": "atomic",
        "limits": {"global_timeout_ms": "${PART_TIMEOUT}"},
    }
    environment = {**bank.environment, **PATIENT}
    return specified_pipeline(folder, "apart", VIEWS, environment, **settings)


def part(bank: Bank, source: str, amount: int) -> None:
    """One side of a transfer between the databases."""
    with psycopg.connect(bank.dsns[source]) as connection:
        connection.execute("INSERT INTO entry VALUES (%s, 1, %s)", [NUMBER, amount])
        connection.execute("INSERT INTO fresco_global VALUES (%s, 2)", [LOST])


def frontiers(pipeline: Pipeline) -> list[int]:
    """Of every group; empty before all have an epoch."""
    try:
        opened = Warehouse(pipeline.warehouse)
        return [opened.epochs(f"apart_{view}")[-1].frontier for view in VIEWS]
    except (FrescoError, IndexError):
        return []


@pytest.mark.timeout(900)
def test_each_view_is_right_by_itself_while_transfers_span_the_groups(
    bank: Bank, tmp_path: Path
) -> None:
    pipeline = pipeline_of(bank, tmp_path / "apart")
    with pipeline.running() as service:
        with bank.at_work(pipeline, rate=15, seed=9):
            until(lambda: len(frontiers(pipeline)) == 3, "the first epochs", alive=service)
            begun = min(frontiers(pipeline))
            until(lambda: min(frontiers(pipeline)) > begun + 60, "transfers", alive=service)
        bank.rests(pipeline, service)
        assert service.stops() == 0
    assert "Traceback" not in service.says and "GROUP_SPAN" not in service.says
    verdict = verify_pipeline(pipeline.warehouse, 60)
    assert verdict.problems == () and verdict.holds, [*map(str, verdict.lines)]
    groups = {one.name: one.achieved for one in verdict.lines if one.kind == "group"}
    assert set(groups) == {f"apart_{view}" for view in VIEWS}
    assert all(reaches(level, "strong") for level in groups.values()), groups
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    for view in VIEWS:
        assert_no_change_twice(replace(pipeline, group=f"apart_{view}"))

    part(bank, "north", -7)
    impatient = replace(pipeline, environment={**pipeline.environment, **IMPATIENT})
    try:
        with impatient.running() as service:
            opened = Warehouse(pipeline.warehouse)
            until(
                lambda: NUMBER in opened.read("back")["entry"].to_pylist(),
                "what waited for the lost part",
                alive=service,
            )
            assert any(LOST in epoch.released for epoch in opened.epochs("apart_back"))
            part(bank, "south", 7)
            bank.rests(impatient, service)
            assert service.stops() == 0
    finally:
        complete(bank)
    assert "Traceback" not in service.says
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))


def complete(bank: Bank) -> None:
    """Others read these logs too: no part is missing in them."""
    with psycopg.connect(bank.dsns["south"]) as connection:
        known = connection.execute("SELECT FROM fresco_global WHERE id = %s", [LOST]).fetchone()
    if known is None:
        part(bank, "south", 7)
