"""A view that comes back under its name with other SQL is the new one to everybody (DESIGN 5)."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_view_changes import proved, rows

from streaming.errors import FrescoError
from streaming.pipeline.catalog import load_catalog, replace_catalog
from streaming.service.members import Members, settle_catalog
from streaming.stages import joining_stage
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_drop, set_aside
from tests.changingviews import Driver, Shop

LARGE = "SELECT id FROM north.entry WHERE amount > 10"


def test_a_later_change_of_views_still_knows_what_the_new_one_reads(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.put(1, 1, 4)
    shop.other(1, "one")
    driver = Driver(shop)
    driver.round()
    ask_to_drop(shop.warehouse, "totals", shop.views)
    driver.settle()
    ask_to_add(shop.config, shop.write("totals", "SELECT id, words FROM north.other"))
    driver.settle()
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.settle()
    shop.other(2, "two")
    shop.put(2, 1, 40)
    driver.round()
    driver.round()
    assert rows(shop, "totals") == [(1, "one"), (2, "two")]
    assert rows(shop, "large") == [(2,)]
    driver.close()
    proved(shop)


def test_a_view_that_no_longer_fitted_comes_back_with_sql_that_does(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    error = FrescoError("VIEW_COLUMN_CHANGED", "the view no longer fits its relations")
    planned = replace(shop.planned(), broken={"totals": error})
    settle_catalog(shop.warehouse, planned)
    members = Members(shop.config, planned)
    assert members.plan().broken == {"totals": error}
    drop = ask_to_drop(shop.warehouse, "totals", shop.views)
    replace_catalog(shop.warehouse, load_catalog(shop.warehouse).without_view("totals"))
    members.requests.say(drop.number, "done", cut=1)
    ask_to_add(shop.config, shop.write("totals", "SELECT id, words FROM north.other"))
    assert members.plan().broken == {}
    assert members.plan().view("totals").relations == ("north.other",)


def test_a_view_that_is_far_behind_does_not_say_that_it_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left when it says so holds up its group as it joins."""
    shop = Shop(tmp_path)
    shop.put(1, 1, 40)
    driver = Driver(shop)
    driver.round()
    request = ask_to_add(shop.config, shop.write("large", LARGE)).number
    driver.follow()
    monkeypatch.setattr(joining_stage, "NEAR_SECONDS", -1.0)  # to load takes long
    driver.step("view:large@1")
    for id_ in range(2, 12):
        shop.put(id_, 1, id_ * 4)
    driver.step("integrator")
    monkeypatch.setattr(joining_stage, "NEAR_SECONDS", 60.0)
    monkeypatch.setattr(joining_stage, "NUMBERS_PER_STEP", 3)
    steps = 0
    while (told := driver.members.requests.told(request, "loaded")) is None:
        driver.step("view:large@1")
        steps += 1
    assert steps == 3 and told["number"] == 10, "of ten numbers a step's are left"
    driver.settle()
    assert rows(shop, "large") == [(id_,) for id_ in (1, *range(3, 12))]
    driver.close()
    proved(shop)


def test_a_view_whose_load_took_long_joins_though_nobody_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.put(1, 1, 40)
    driver = Driver(shop)
    driver.round()
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.follow()
    monkeypatch.setattr(joining_stage, "NEAR_SECONDS", -1.0)
    driver.step("view:large@1")
    monkeypatch.undo()
    driver.settle()
    assert rows(shop, "large") == [(1,)]
    driver.close()


def test_a_driver_of_some_roles_tidies_up_after_its_own_stages_only(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    settle_catalog(shop.warehouse, shop.planned())
    members = Members(shop.config, shop.planned())
    stages = ("view:totals", "view:totals@3", "view:entries@5")
    for stage in stages:
        for place in ("_state", "_staging"):
            (shop.warehouse / place / stage.replace(":", "-")).mkdir(parents=True)
    assert members.tidy(members.wanted(), ("view:totals", "merge:shop")) == ["view:totals@3"]
    assert members.tidy(members.wanted()) == ["view:entries@5"]
    left = sorted(one.name for one in (shop.warehouse / "_staging").iterdir())
    assert left == ["view-totals"]


def test_a_file_that_is_set_aside_leaves_older_ones_as_they_are(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    queries = [f"SELECT id FROM north.entry WHERE amount > {least}" for least in range(4)]
    for query in queries:
        shop.write("large", query)
        set_aside(shop.views, "large")
    names = ["large.sql.dropped", *(f"large.sql.dropped.{number}" for number in (2, 3, 4))]
    assert sorted(one.name for one in shop.views.glob("large*")) == names
    for name, query in zip(names, queries, strict=True):
        assert query in (shop.views / name).read_text()
    (shop.views / names[1]).unlink()
    shop.write("large", LARGE)
    set_aside(shop.views, "large")
    assert LARGE in (shop.views / names[1]).read_text(), "the first number that is free"
    assert [view.name for view in shop.planned().views] == ["entries", "totals"]


def test_a_file_that_two_set_aside_at_once_is_there_once(tmp_path: Path) -> None:
    shop, errors = Shop(tmp_path), list[BaseException]()
    text = shop.write("large", LARGE).read_text()
    gate = threading.Barrier(8)

    def aside() -> None:
        gate.wait(timeout=10)
        try:
            set_aside(shop.views, "large")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=aside) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert [file.read_text() for file in shop.views.glob("large*")] == [text]
