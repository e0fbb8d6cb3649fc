"""A view whose rows the table cannot take is suspended alone, wherever the driver ends (G5, DESIGN 11).

The rows are wrong because something was lost before Fresco: a delete that never came, and then the key
again. The others go on, and nothing of what they show depends on where a crash fell.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from test_view_changes import rows

from streaming.errors import FrescoError
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.view_states import view_states
from streaming.viewchanges.asked_changes import ask_to_resume
from streaming.viewchanges.requests import Requests
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.snapshot import open_group, suspended_views
from tests.changingviews import NAME, Driver, Shop
from tests.stepworld import Crash


def lost_delete(shop: Shop, id_: int) -> None:
    """The row goes in the database, and no event tells of it."""
    del shop.rows[id_]


def began(folder: Path) -> tuple[Shop, Driver]:
    shop = Shop(folder)
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    driver = Driver(shop)
    driver.round()
    driver.round()
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20)]
    return shop, driver


def trouble(shop: Shop) -> None:
    """Two good transactions, one that lacks a delete before it, and one more."""
    shop.put(3, 2, 30)
    lost_delete(shop, 2)
    shop.put(2, 5, 21)
    shop.put(4, 2, 40)


def told(shop: Shop, view: str) -> dict[str, str]:
    (status,) = (one for one in view_states(shop.warehouse) if one.view == view)
    assert status.state.startswith("suspended"), status
    return dict(status.error or {})


def test_the_view_with_the_row_is_suspended_and_the_others_go_on(tmp_path: Path) -> None:
    shop, driver = began(tmp_path)
    trouble(shop)
    for _ in range(3):
        driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
    error = told(shop, "entries")
    assert error["code"] == "WAREHOUSE_KEY" and "id=2" in error["what"]
    assert "`fresco view resume entries`" in error["todo"]
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1)]
    with pytest.raises(FrescoError, match="READ_SUSPENDED"):
        Warehouse(shop.warehouse).read("entries")
    assert rows(shop, "entries", transaction=3) == [(1, 1, 10), (2, 1, 20), (3, 2, 30)]
    driver.close()


def test_the_next_start_goes_on_as_well(tmp_path: Path) -> None:
    shop, driver = began(tmp_path)
    trouble(shop)
    driver.round()
    driver.close()
    shop.put(5, 5, 50)
    driver = Driver(shop)
    driver.round()
    driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 71, 2)]
    driver.close()


def test_rel_that_rides_on_its_lists_still_reaches_the_others(tmp_path: Path) -> None:
    """The merge hears no list of a refused view, and all REL that rides on them."""
    shop = Shop(tmp_path, rel="with-actions")
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    driver = Driver(shop)
    driver.round()
    trouble(shop)
    driver.round()
    shop.put(6, 6, 60)
    driver.round()
    shop.other(1, "of no view")
    for _ in range(3):
        driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1), (6, 60, 1)]
    assert open_group(TableFolder.of(shop.warehouse), NAME)[1].frontier == 7
    driver.close()


def moments(folder: Path) -> list[str]:
    """What happens from the trouble on, in order."""
    shop, driver = began(folder)
    driver.close()
    trouble(shop)
    seen: list[str] = []
    driver = Driver(shop, seen.append)
    driver.round()
    driver.round()
    driver.close()
    return seen


@pytest.mark.parametrize("some", [4, pytest.param(None, marks=pytest.mark.deep)])
def test_a_crash_anywhere_ends_in_the_same_state(tmp_path: Path, some: int | None) -> None:
    """At some of its moments, drawn, and in the deep run at each."""
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FRESCO_SEED={seed}")
    count = len(moments(tmp_path / "whole"))
    assert count > 10
    for at in random.Random(seed).sample(range(count), some or count):
        shop, driver = began(tmp_path / str(at))
        driver.close()
        trouble(shop)
        left = [at]

        def reach(moment: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise Crash(moment)

        with pytest.raises(Crash):
            driver = Driver(shop, reach)
            driver.round()
            driver.round()
        driver = Driver(shop)
        driver.round()
        driver.round()
        assert suspended_views(shop.warehouse, NAME) == {"entries": 3}, at
        assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1)], at
        assert rows(shop, "entries", transaction=3) == [(1, 1, 10), (2, 1, 20), (3, 2, 30)], at
        frontier = open_group(TableFolder.of(shop.warehouse), NAME)[1].frontier
        assert frontier == 5, at
        driver.close()


def test_it_comes_back_when_the_row_is_mended(tmp_path: Path) -> None:
    shop, driver = began(tmp_path)
    trouble(shop)
    driver.round()
    driver.round()
    shop.rows[2] = (1, 20)
    shop.delete(2)  # what was lost comes after all
    back(driver, "entries")
    assert suspended_views(shop.warehouse, NAME) == {}
    assert rows(shop, "entries") == [(1, 1, 10), (2, 5, 21), (3, 2, 30), (4, 2, 40)]
    shop.put(4, 9, 41)
    driver.round()
    driver.round()
    assert rows(shop, "entries")[-1] == (4, 9, 41)
    driver.close()


def test_views_over_it_are_told_and_all_come_back(tmp_path: Path) -> None:
    """A view over it would wait for ever for lists of a stage that has made room for the next one."""
    shop = Shop(tmp_path)
    shop.write("over", "SELECT id, amount FROM entries WHERE amount > 20")
    for id_ in (1, 2):
        shop.put(id_, 1, 10 * id_)
    driver = Driver(shop)
    driver.round()
    driver.round()
    trouble(shop)
    for _ in range(4):
        driver.round()
    shop.put(6, 6, 60)
    for _ in range(3):
        driver.round()
    assert "entries" in suspended_views(shop.warehouse, NAME)
    assert "id=2" in told(shop, "entries")["what"]
    shop.rows[2] = (1, 20)
    shop.delete(2)
    for view in ("entries", "over"):
        back(driver, view)
    shop.put(7, 7, 70)
    driver.round()
    driver.round()
    assert suspended_views(shop.warehouse, NAME) == {}
    assert rows(shop, "over") == [(2, 21), (3, 30), (4, 40), (6, 60), (7, 70)]
    assert rows(shop, "totals") == [(1, 10, 1), (2, 70, 2), (5, 21, 1), (6, 60, 1), (7, 70, 1)]
    driver.close()
    proved_but_for_gaps(shop)


def test_a_view_that_comes_back_too_soon_stays_as_it_was(tmp_path: Path) -> None:
    shop, driver = began(tmp_path)
    trouble(shop)
    for _ in range(2):
        driver.round()
    for _ in range(2):
        ask_to_resume(shop.warehouse, "entries")
        driver.settle()
        assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
        assert "id=2" in told(shop, "entries")["what"]
        assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20), (3, 2, 30)]
    shop.rows[2] = (1, 20)
    shop.delete(2)
    back(driver, "entries")
    assert rows(shop, "entries") == [(1, 1, 10), (2, 5, 21), (3, 2, 30), (4, 2, 40)]
    driver.close()
    proved_but_for_gaps(shop)


def back(driver: Driver, view: str) -> None:
    """Ask for the view, unless the service has, until it is there."""
    warehouse = driver.shop.warehouse
    for _ in range(12):
        driver.round()
        if view not in suspended_views(warehouse, NAME):
            return
        if not any(one.view == view for one in Requests(warehouse).open()):
            ask_to_resume(warehouse, view)
    raise AssertionError(f"{view} does not come back: {told(driver.shop, view)}")


def proved_but_for_gaps(shop: Shop) -> None:
    """The recorded updates give what the views show, at every number at which they go on."""
    assert verify_pipeline(shop.warehouse).problems == ()
