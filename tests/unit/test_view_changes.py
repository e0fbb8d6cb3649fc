"""Views that join a running pipeline and leave it, through the service's own stages (DESIGN 5)."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.catalog import load_catalog
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.view_states import view_states
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_drop
from tests.changingviews import Driver, Shop
from tests.stepworld import Countdown, Crash

KILLS = 3
LARGE = "SELECT id, amount FROM north.entry WHERE amount > 10"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    for id_ in range(6):
        made.put(id_, id_ % 2, id_ * 4)
    return made


@pytest.fixture
def driver(shop: Shop) -> Iterator[Driver]:
    made = Driver(shop)
    made.round()
    yield made
    made.close()


def rows(shop: Shop, view: str, **at: int) -> list[tuple[Any, ...]]:
    table = Warehouse(shop.warehouse).read(view, **at, suspended_as_of=True)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def large(shop: Shop) -> list[tuple[int, int]]:
    return sorted((id_, amount) for id_, (_, amount) in shop.rows.items() if amount > 10)


def proved(shop: Shop) -> None:
    verdict = verify_pipeline(shop.warehouse)
    assert verdict.problems == ()
    assert {line.name: line.achieved for line in verdict.lines} == {
        line.name: "complete" for line in verdict.lines
    }, verdict.lines


def names(shop: Shop) -> list[str]:
    return Warehouse(shop.warehouse).views()


def test_a_dropped_view_leaves_in_one_commit_and_the_others_go_on(
    shop: Shop, driver: Driver
) -> None:
    before = Warehouse(shop.warehouse).epochs("shop")[-1]
    ask_to_drop(shop.warehouse, "totals", shop.views)
    assert view_states(shop.warehouse)[1].state == "waits; is to leave", "no service runs"
    shop.put(7, 1, 70)
    driver.settle()
    assert names(shop) == ["entries"]
    assert (shop.views / "totals.sql.dropped").exists()
    with pytest.raises(FrescoError, match=r"READ_VIEW_DROPPED.*after transaction"):
        rows(shop, "totals", transaction=0)
    after = Warehouse(shop.warehouse).epochs("shop")[-1]
    assert dict(before.views) == {"entries": 0, "totals": 0} and dict(after.views) == {"entries": 0}
    assert len(rows(shop, "entries")) == 7
    assert driver.views() == ["view:entries"]
    assert not (shop.warehouse / "_state" / "view-totals").exists()
    proved(shop)


def test_a_view_is_dropped_although_no_transaction_comes(shop: Shop, driver: Driver) -> None:
    ask_to_drop(shop.warehouse, "totals")
    driver.settle()
    assert names(shop) == ["entries"]


def test_a_drop_asked_for_while_nothing_runs_is_made_by_the_next_start(
    shop: Shop, driver: Driver
) -> None:
    ask_to_drop(shop.warehouse, "totals", shop.views)
    again = Driver(shop)
    again.settle()
    again.close()
    assert names(shop) == ["entries"]
    proved(shop)


def test_a_view_joins_with_the_content_it_would_have_had(shop: Shop, driver: Driver) -> None:
    file = shop.write("large", LARGE, shop.folder)
    ask_to_add(shop.config, file)
    shop.put(3, 1, 33)
    driver.settle()
    assert names(shop) == ["entries", "large", "totals"]
    assert rows(shop, "large") == large(shop)
    since = load_catalog(shop.warehouse).joined["large"].since
    shop.put(8, 1, 80)
    shop.delete(5)
    driver.round()
    assert rows(shop, "large") == large(shop)
    assert rows(shop, "large", transaction=since) != rows(shop, "large")
    with pytest.raises(FrescoError, match="READ_VIEW_NOT_THERE"):
        rows(shop, "large", transaction=since - 1)
    metered = {
        sample.labels.get("stage")
        for family in driver.metrics.registry.collect()
        for sample in family.samples
    }
    assert {"view:entries", "view:large"} <= metered, "whatever brought it, it has one series"
    proved(shop)


def test_a_view_asked_for_while_nothing_runs_joins_at_the_next_start(
    shop: Shop, driver: Driver
) -> None:
    ask_to_add(shop.config, shop.write("large", LARGE))
    shop.put(9, 0, 90)
    again = Driver(shop)
    again.settle()
    again.close()
    assert rows(shop, "large") == large(shop)
    proved(shop)


def test_a_load_that_takes_long_holds_up_nobody(shop: Shop, driver: Driver) -> None:
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.follow()
    for id_ in range(20, 25):
        shop.put(id_, 1, id_)
        for name in ("integrator", "view:entries", "view:totals", "merge:shop"):
            driver.step(name)
        assert (25 - 20 - (24 - id_)) + 6 == len(rows(shop, "entries")), "in the next commit"
    assert names(shop) == ["entries", "totals"]
    driver.settle()
    assert rows(shop, "large") == large(shop)
    proved(shop)


def test_from_its_cut_on_a_view_has_every_list_in_time(shop: Shop, driver: Driver) -> None:
    """Announced, and then other numbers before its own stage has taken a step."""
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.follow()
    driver.step("view:large@1")
    driver.step("integrator")
    for id_ in (30, 31):
        shop.put(id_, 0, id_)
        for name in ("integrator", "view:entries", "view:totals", "merge:shop"):
            driver.step(name)
    assert "large" not in names(shop)
    driver.settle()
    assert rows(shop, "large") == large(shop)
    proved(shop)


def test_a_view_comes_back_under_its_name_with_other_columns(shop: Shop, driver: Driver) -> None:
    ask_to_drop(shop.warehouse, "totals", shop.views)
    driver.settle()
    text = "SELECT CAST(account AS STRING) AS account, amount FROM north.entry"
    ask_to_add(shop.config, shop.write("totals", text))
    driver.settle()
    assert rows(shop, "totals") == sorted((str(a), amount) for a, amount in shop.rows.values())
    assert load_catalog(shop.warehouse).joined["totals"].column.startswith("totals@")
    proved(shop)


def test_dropped_while_its_lists_are_under_way(shop: Shop, driver: Driver) -> None:
    shop.put(10, 1, 1)
    driver.step("integrator")
    driver.step("view:totals")
    driver.step("view:entries")
    ask_to_drop(shop.warehouse, "totals")
    shop.put(11, 1, 1)
    driver.step("integrator")
    driver.step("view:totals")
    driver.settle()
    assert names(shop) == ["entries"] and len(rows(shop, "entries")) == 8
    proved(shop)


def test_a_view_that_is_dropped_before_it_has_joined_never_does(shop: Shop, driver: Driver) -> None:
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.follow()
    ask_to_drop(shop.warehouse, "large", shop.views)
    driver.settle()
    assert names(shop) == ["entries", "totals"]
    assert driver.views() == ["view:entries", "view:totals"]
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.settle()
    assert rows(shop, "large") == large(shop)


def test_a_view_over_views_joins_and_its_parent_cannot_go_before_it(
    shop: Shop, driver: Driver
) -> None:
    text = "SELECT account, total FROM totals WHERE total > 20"
    ask_to_add(shop.config, shop.write("rich", text))
    with pytest.raises(FrescoError, match="VIEW_HAS_CHILDREN"):
        ask_to_drop(shop.warehouse, "totals")
    driver.settle()
    shop.put(21, 0, 300)
    driver.round()
    totals = Counter(dict.fromkeys(range(2), 0))
    for account, amount in shop.rows.values():
        totals[account] += amount
    assert rows(shop, "rich") == sorted(one for one in totals.items() if one[1] > 20)
    with pytest.raises(FrescoError, match="VIEW_HAS_CHILDREN"):
        ask_to_drop(shop.warehouse, "totals")
    proved(shop)


def test_a_view_that_cannot_be_computed_is_refused_and_the_others_go_on(
    shop: Shop, driver: Driver
) -> None:
    ask_to_add(shop.config, shop.write("ratio", "SELECT id, 100 / amount AS r FROM north.entry"))
    driver.settle()
    (refused,) = (one for one in driver.members.requests.all() if one.view == "ratio")
    told = driver.members.requests.told(refused.number, "done")
    assert told is not None and told["error"]["code"] == "VIEW_ARITHMETIC"
    assert "row of north.entry: id = " in told["error"]["where"]
    assert "amount = 0" in told["error"]["where"] and "number " in told["error"]["where"]
    todo = told["error"]["todo"]
    assert "view resume" not in todo and "view drop" not in todo, "nobody has such a view"
    assert "`fresco view add FILE`" in todo
    shop.put(3, 1, 34)
    driver.round()
    assert driver.views() == ["view:entries", "view:totals"]
    assert rows(shop, "entries") == sorted((i, *row) for i, row in shop.rows.items())


def test_a_view_that_fails_as_it_joins_leaves_again_unseen(shop: Shop, driver: Driver) -> None:
    shop.delete(0)
    shop.put(1, 1, 0)
    shop.put(1, 1, 1)
    driver.round()
    ask_to_add(shop.config, shop.write("ratio", "SELECT id, 100 / amount AS r FROM north.entry"))
    driver.follow()
    driver.step("view:ratio@1")
    shop.put(1, 1, 0)
    driver.settle()
    requests = driver.members.requests
    told = requests.told(1, "done")
    assert told is not None and told["error"]["code"] == "VIEW_SUSPENDED"
    assert [(one.change, one.view) for one in requests.all()] == [
        ("add", "ratio"),
        ("drop", "ratio"),
    ]
    assert names(shop) == ["entries", "totals"]
    shop.put(1, 1, 5)
    driver.round()
    assert driver.views() == ["view:entries", "view:totals"]
    assert rows(shop, "entries") == sorted((i, *row) for i, row in shop.rows.items())
    ask_to_add(shop.config, shop.views / "ratio.sql")
    driver.settle()
    assert len(rows(shop, "ratio")) == len(shop.rows)
    proved(shop)


def _add_and_drop(shop: Shop, driver: Driver) -> None:
    ask_to_add(shop.config, shop.write("large", LARGE, shop.folder))
    ask_to_drop(shop.warehouse, "totals", shop.views)
    shop.put(12, 1, 120)
    driver.settle()


def _small(folder: Path) -> Shop:
    shop = Shop(folder)
    shop.put(1, 1, 11)
    shop.put(2, 0, 2)
    return shop


def test_killed_at_any_moment_the_next_start_ends_it(tmp_path: Path) -> None:
    """Moments drawn among all: manifests, messages and commits while one view joins and one leaves."""
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    passed: list[str] = []
    whole = Driver(_small(tmp_path / "whole"), passed.append)
    whole.round()
    first = len(passed)
    _add_and_drop(whole.shop, whole)
    whole.close()
    assert {"commit of changes", "commit of state"} <= set(passed[first:]), seed
    for at in random.Random(seed).sample(range(first, len(passed)), KILLS):
        shop = _small(tmp_path / f"killed_{at}")
        driver = Driver(shop, Countdown(at, Crash))
        driver.round()
        with pytest.raises(Crash):
            _add_and_drop(shop, driver)
        again = Driver(shop)
        shop.put(13, 0, 130)
        again.settle()
        again.round()
        where = f"FRESCO_SEED={seed}, killed at {at}: {passed[at]}"
        assert names(shop) == ["entries", "large"], where
        assert rows(shop, "large") == large(shop), where
        assert len(rows(shop, "entries")) == len(shop.rows), where
        proved(shop)
        again.close()
