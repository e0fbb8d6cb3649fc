"""Staged updates go when nobody reads them any more, also where all views are suspended (DESIGN 9)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from test_view_changes import proved, rows

from streaming import packed_rows as packing
from streaming.runtime.snapshots import view_state
from streaming.runtime.stage_progress import view_progress
from streaming.viewchanges.asked_changes import ask_to_resume
from streaming.viewchanges.requests import Requests
from streaming.viewchanges.skip import skip
from streaming.warehouse.decisions import bad_records, decisions
from tests.changingviews import Driver, Shop
from tests.stepworld import Countdown, Crash

VIEWS = ["entries", "totals"]


@pytest.fixture(autouse=True)
def _every_row_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "INLINE_LIMIT", 0)


def staged(shop: Shop) -> int:
    """The integrator's staged files."""
    return len(list((shop.warehouse / "_staging" / "integrator").iterdir()))


def spoiled(folder: Path) -> Shop:
    """Two entries, then a record that suspends both views."""
    shop = Shop(folder)
    shop.put(1, 1, 11)
    shop.put(2, 0, 2)
    shop.spoiled()
    return shop


def decide(shop: Shop) -> None:
    """The bad record is skipped, once."""
    for bad in bad_records(shop.warehouse).values():
        if not decisions(shop.warehouse):
            skip(shop.warehouse, bad["topic"], bad["partition"], bad["offset"], "a test's")


def come_back(shop: Shop, driver: Driver) -> None:
    """A person decides about the record; both views join again while transactions come."""
    decide(shop)
    asked = {one.view for one in Requests(shop.warehouse).open()}
    for view in VIEWS:
        if view not in asked and view in driver.stages.merges["shop"].machine.suspended:
            ask_to_resume(shop.warehouse, view)
    for id_ in range(20, 23):
        shop.put(id_, id_ % 2, id_)
        driver.round()
    driver.settle()


def right(shop: Shop, where: str = "") -> None:
    assert rows(shop, "entries") == sorted((id_, *row) for id_, row in shop.rows.items()), where
    proved(shop)


def test_nothing_piles_up_while_every_view_is_suspended(tmp_path: Path) -> None:
    shop = spoiled(tmp_path)
    driver = Driver(shop)
    driver.round()
    driver.round()
    found = []
    for id_ in range(3, 9):
        shop.put(id_, 1, id_)
        driver.step("integrator")
        assert staged(shop) > 0, "it is published by reference"
        driver.round(number=False)
        found.append(staged(shop))
    assert set(found) == {0}
    come_back(shop, driver)
    driver.round()
    assert staged(shop) == 0
    right(shop)
    driver.close()


def test_a_view_that_comes_back_holds_what_is_numbered_from_its_request_on(tmp_path: Path) -> None:
    shop = spoiled(tmp_path)
    driver = Driver(shop)
    driver.round()
    driver.settle()  # both have tried by themselves
    decide(shop)
    ask_to_resume(shop.warehouse, "entries")
    shop.put(3, 1, 3)
    driver.step("integrator")
    driver.stages.collect()
    assert staged(shop) > 0
    driver.settle()
    driver.round()
    assert staged(shop) == 0
    right(shop)
    driver.close()


def test_a_suspension_that_no_manifest_tells_of_counts_for_nothing(tmp_path: Path) -> None:
    """The stage has failed between its step and its manifest: the next start takes the step again."""
    shop = Shop(tmp_path)
    driver = Driver(shop)
    driver.round()
    shop.put(1, 1, 11)
    shop.spoiled()
    shop.put(2, 0, 2)
    driver.step("integrator")
    before = staged(shop)
    for view in VIEWS:
        with pytest.raises(Crash):
            driver._reach = Countdown(0)  # as it is about to write its manifest
            driver.steppers[f"view:{view}"].store._reach = driver._reach  # type: ignore[attr-defined]
            driver.step(f"view:{view}")
    assert all(view.suspended is not None for view in driver.stages.views)
    driver.stages.collect()
    assert staged(shop) == before > 0
    driver.close()
    again = Driver(shop)
    again.round()
    come_back(shop, again)
    right(shop)
    again.close()


def test_killed_at_any_moment_the_views_come_back_with_everything(tmp_path: Path) -> None:
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    passed: list[str] = []

    def play(shop: Shop, driver: Driver) -> None:
        for id_ in range(3, 6):
            driver.round()
            shop.put(id_, 1, id_)
        come_back(shop, driver)

    whole = Driver(spoiled(tmp_path / "whole"), passed.append)
    play(whole.shop, whole)
    right(whole.shop)
    whole.close()
    for at in random.Random(seed).sample(range(len(passed)), 2):
        where = f"FRESCO_SEED={seed}, killed at {at}: {passed[at]}"
        shop = spoiled(tmp_path / f"killed_{at}")
        driver = Driver(shop, Countdown(at, Crash))
        with pytest.raises(Crash):
            play(shop, driver)
        driver.stages.collect()  # the service's watch may have come to it just then
        driver.close()
        again = Driver(shop)
        again.round()
        come_back(shop, again)
        again.round()
        assert staged(shop) == 0, where
        right(shop, where)
        again.close()


def test_a_view_that_asks_and_is_to_come_back_needs_all_that_is_recorded() -> None:
    """In another driver too: the retention must not take what its first list is made of."""
    snapshot = {"control": {"number": 40}, "suspended": None, "machines": None}
    assert (
        view_progress(view_state({**snapshot, "joining": {"joined": None}}), "view:a@2").needed == 0
    )
    assert (
        view_progress(view_state({**snapshot, "joining": {"joined": 38}}), "view:a@2").needed == 41
    )
