"""Rows that their table cannot take suspend their view alone, whoever sends them (G5, DESIGN 11).

What `test_rows_that_conflict` shows of replica views, of those that ask their source, of groups that go
by blocks of N transactions, and of stages that run in drivers of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_rows_that_conflict import back, proved_but_for_gaps, told, trouble
from test_view_changes import rows

from streaming.stages import asking_stage
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.snapshot import open_group, suspended_views
from tests.changingviews import NAME, VIEWS, Driver, Shop
from tests.keptwarehouse import NOWHERE, Asked

ENTRIES = VIEWS["entries"]


def asked_shop(folder: Path, monkeypatch: pytest.MonkeyPatch, entries: str) -> Shop:
    shop = Shop(folder, connection=NOWHERE, views={**VIEWS, "entries": entries})
    monkeypatch.setattr(
        asking_stage,
        "asked_source",
        lambda name, dsn, relations, operators, **_: Asked(shop, name, operators),
    )
    return shop


def begun(shop: Shop) -> Driver:
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    driver = Driver(shop)
    driver.round()
    driver.round()
    return driver


@pytest.mark.parametrize("mode", ["compensating", "strobe", "c_strobe", "sweep", "eca"])
def test_a_view_that_asks_its_source_is_suspended_and_ends(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its last list: lists of `eca` and `strobe` stand for several numbers, and go whole."""
    strong = mode in ("strobe", "eca")
    level = "WITH STRONG CONSISTENCY " if strong else ""
    shop = asked_shop(tmp_path, monkeypatch, f"{level}USING {mode} AS {ENTRIES}")
    driver = begun(shop)
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20)]
    trouble(shop)
    driver.recovers = False
    for _ in range(3):
        driver.round()
    at = 2 if strong else 3
    assert suspended_views(shop.warehouse, NAME) == {"entries": at}
    code = "VIEW_KEY_TAKEN" if mode == "strobe" else "WAREHOUSE_KEY"
    assert told(shop, "entries")["code"] == code
    good = [(1, 1, 10), (2, 1, 20), (3, 2, 30)][:at]
    assert rows(shop, "entries") == good
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1)]
    (stage,) = (one for one in driver.stages.views if one.spec.view == "entries")
    assert stage.left, "it takes no more updates"
    driver.recovers = True
    shop.rows[2] = (1, 20)
    shop.delete(2)  # what was lost comes after all
    shop.put(7, 5, 70)
    back(driver, "entries")
    shop.put(8, 5, 80)
    driver.round()
    driver.round()
    wanted = [(1, 1, 10), (2, 5, 21), (3, 2, 30), (4, 2, 40), (7, 5, 70), (8, 5, 80)]
    assert rows(shop, "entries") == wanted
    driver.close()
    proved_but_for_gaps(shop)


def test_in_a_group_by_blocks_it_ends_before_the_block(tmp_path: Path) -> None:
    how = "WITH COMPLETE EVERY 3 CONSISTENCY AS "
    shop = Shop(tmp_path, views={name: how + text for name, text in VIEWS.items()})
    driver = begun(shop)  # 1, 2
    trouble(shop)  # 3; 4, the row; 5
    driver.round()
    assert suspended_views(shop.warehouse, NAME) == {}, "the block is not whole"
    driver.close()
    driver = Driver(shop)
    for id_ in range(6, 11):  # 6 to 10
        shop.put(id_, 6, id_)
        driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
    assert "id=2" in told(shop, "entries")["what"]
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20), (3, 2, 30)]
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1), (6, 30, 4)]
    assert open_group(TableFolder.of(shop.warehouse), NAME)[1].frontier == 9
    driver.close()
    driver = Driver(shop)
    for id_ in (11, 12):
        shop.put(id_, 6, id_)
        driver.round()
    assert rows(shop, "totals")[-1] == (6, 63, 7)
    driver.close()
    proved_but_for_gaps(shop)


def test_stages_in_drivers_of_their_own_hear_of_it(tmp_path: Path) -> None:
    """The merge's word to a view's stage is a file of the warehouse."""
    shop = Shop(tmp_path)
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    others = Driver(shop, roles=("integrator", f"merge:{NAME}", "view:totals"))
    entries = Driver(shop, roles=("view:entries",))
    for _ in range(2):
        others.round()
        entries.round()
        others.round()
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20)]
    trouble(shop)
    others.recovers = entries.recovers = False
    for _ in range(3):
        others.round()
        entries.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 3}
    assert rows(shop, "totals") == [(1, 30, 2), (2, 70, 2), (5, 21, 1)]
    (stage,) = entries.stages.views
    assert stage.left, "it has heard of it"
    others.close()
    entries.close()
