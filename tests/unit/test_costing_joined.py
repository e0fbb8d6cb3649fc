"""`fresco plan` in a pipeline whose views have come, gone and stood still: what their steps say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from streaming.pipeline.catalog import Joined, load_catalog, replace_catalog
from streaming.pipeline.costing import plan_costs
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.service.members import settle_catalog
from streaming.viewchanges.asked_changes import ask_to_add
from streaming.warehouse.updates import UpdatesWriter
from tests.changingviews import Driver, Shop, relations

LARGE = "SELECT id FROM north.entry WHERE amount > 10"


def test_the_steps_of_views_that_joined_and_of_those_that_stand_still_are_told_apart(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    driver = Driver(shop)
    for id_ in range(1, 4):
        shop.log.lsn = id_ * 1000  # milliseconds of its commit too
        shop.put(id_, 1, id_ * 10)
        driver.round()
    ask_to_add(shop.config, shop.write("large", LARGE))
    driver.settle()
    for id_ in range(4, 8):
        shop.log.lsn = id_ * 1000
        shop.put(id_, 1, id_ * 10)
        driver.round()
    driver.close()
    found = plan_costs(shop.config, shop.planned())
    assert found.measured
    assert set(found.rates.compute) == {"entries", "large", "totals"} == set(found.rates.wait)
    assert all(delay > 0 for one in found.choices for delay in one.delay.values())


class Told:
    """Manifests as stages have left them, each written at a second of its own."""

    def __init__(self, warehouse: Path) -> None:
        self._state = warehouse / "_state"

    def put(self, stage: str, written: float, step: int, seconds: float, **said: Any) -> None:
        folder = self._state / stage.replace(":", "-") / "manifests"
        writes = said.pop("writes", {})
        manifest = Manifest(
            stage=stage,
            step=step,
            generation=1,
            offsets={},
            snapshot=said,
            writes=writes,
            seconds=seconds,
        )
        ManifestStore(folder).put(manifest)
        os.utime(folder / f"{step:012d}.json", (written, written))

    def numbers(self, step: int, written: float, last: int) -> None:
        self.put("integrator", written, step, 0.1, number=last, writes={"last": last})

    def view(
        self, stage: str, step: int, written: float, seconds: float, number: int, **more: Any
    ) -> None:
        snapshot = {"control": {"number": number}, "suspended": None, **more}
        self.put(stage, written, step, seconds, **snapshot)


@pytest.fixture
def told(tmp_path: Path) -> tuple[Shop, Told]:
    shop = Shop(tmp_path)
    shop.write("large", LARGE)
    settle_catalog(shop.warehouse, shop.planned())
    catalog = load_catalog(shop.warehouse)
    large = next(view for view in catalog.views if view.name == "large")
    group = catalog.group_of("large")
    catalog = catalog.without_view("large").with_view(large, group, Joined(3, 5))
    replace_catalog(shop.warehouse, catalog)
    writer = UpdatesWriter(str(shop.warehouse), "shop", [one.relation for one in relations()])
    writer.close()
    made = Told(shop.warehouse)
    for number in range(1, 5):
        made.numbers(number, 1000.0 + number * 10, number)
    made.put("integrator", 1200.0, 5, 0.1, number=4)  # a view's cut, and no number
    return shop, made


def steps(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The measured rates; how often relations change is another matter."""
    monkeypatch.setattr(
        "streaming.pipeline.costing._updates_per_second", lambda *_: {"north.entry": 1.0}
    )
    return plan_costs(shop.config, shop.planned()).rates


def test_loading_and_joining_are_no_work_of_a_view(
    told: tuple[Shop, Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, made = told
    made.view("view:large", 1, 1015.0, 3.0, 1)  # of a view of that name that is gone
    stage, near = "view:large@5", {"joined": None}
    made.view(stage, 1, 900.0, 600.0, 1, joining=near)
    made.view(stage, 2, 1100.0, 60.0, 2, joining=near)
    made.view(stage, 3, 1100.0, 30.0, 3, joining={"joined": 3})
    made.view(stage, 4, 1042.5, 0.5, 4, joining={"joined": 3})
    rates = steps(shop, monkeypatch)
    assert rates.compute == {"large": pytest.approx(0.5)}
    assert rates.transmission == pytest.approx(2.0), "from 1040 to the beginning of the step"


def test_a_view_that_stands_still_waits_for_nothing(
    told: tuple[Shop, Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, made = told
    for number in (1, 2):
        made.view("view:entries", number, 1001.25 + number * 10, 0.25, number)
        made.view("view:totals", number, 1005.25 + number * 10, 0.25, number)
    error = {"code": "VIEW_ARITHMETIC", "what": "no value"}
    for step in range(3, 9):
        made.view("view:entries", step, 1000.0 + step * 10, 0.0, 2, suspended=error)
        made.view("view:totals", step, 1000.0 + step * 10, 0.0, 2)  # messages without numbers
    rates = steps(shop, monkeypatch)
    assert rates.compute == {"entries": 0.25, "totals": 0.25}
    assert rates.transmission == pytest.approx(1.0)
    assert rates.wait == {"entries": pytest.approx(0.0), "totals": pytest.approx(4.0)}
