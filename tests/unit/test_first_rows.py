"""A view that is to join over what is no longer captured is refused; the others go on (DESIGN 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_returning_stage import Returning, recorded
from test_view_changes import proved, rows

from streaming.errors import FrescoError
from streaming.sql.parse import parse
from streaming.stages.first_rows import FirstRows
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_resume
from streaming.viewchanges.requests import Requests
from streaming.warehouse.updates import UpdatesReader
from tests import changingviews
from tests.changingviews import Driver, Shop
from tests.unit.test_asking_stage import World, world

__all__ = ["world"]
WORDS = "SELECT id, words FROM north.other"
LARGE = "SELECT id FROM north.entry WHERE amount > 10"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.put(1, 1, 40)
    made.other(1, "one")
    return made


@pytest.fixture
def driver(shop: Shop) -> Iterator[Driver]:
    made = Driver(shop)
    made.round()
    yield made
    made.close()


def refusals(shop: Shop) -> dict[str, dict[str, str]]:
    """View -> the error that its last request ended with."""
    requests = Requests(shop.warehouse)
    ends = {one.view: requests.told(one.number, "done") or {} for one in requests.all()}
    return {view: end["error"] for view, end in ends.items() if "error" in end}


def entries_go_on(shop: Shop, driver: Driver) -> None:
    shop.put(9, 1, 90)
    driver.round()
    assert rows(shop, "entries") == sorted((i, *row) for i, row in shop.rows.items())
    proved(shop)


def test_a_relation_that_is_gone_is_named_with_what_to_do(shop: Shop, driver: Driver) -> None:
    captured = {one.relation.name: one.relation for one in changingviews.relations()}
    schemas = {"north.other": captured.pop("north.other").schema}
    tree = parse(WORDS, {one.relation.name: one.relation for one in changingviews.relations()})
    first = FirstRows(shop.warehouse, "words", tree, schemas, captured, {})
    with pytest.raises(FrescoError) as caught:
        first.take(UpdatesReader(str(shop.warehouse)))
    error = caught.value
    assert (error.code, error.where) == ("VIEW_RELATION_UNCAPTURED", "view words")
    assert "north.other" in error.what and "tables" in error.todo


def test_its_request_ends_with_that_and_the_others_go_on(shop: Shop, driver: Driver) -> None:
    ask_to_add(shop.config, shop.write("words", WORDS))
    planned = driver.members._planned
    driver.members._planned = replace(planned, captured=planned.captured[:1])
    driver.settle()
    assert refusals(shop)["words"]["code"] == "VIEW_RELATION_UNCAPTURED"
    entries_go_on(shop, driver)


def test_a_suspended_view_that_tries_stays_as_it_was(shop: Shop) -> None:
    shop.write("both", "SELECT e.id, 100 / amount AS r, words FROM north.entry e, north.other o")
    driver = Driver(shop)
    driver.round()
    shop.put(2, 1, 0)
    driver.round()
    driver.settle()
    before = rows(shop, "both")
    shop.put(2, 1, 4)
    driver.step("integrator")
    planned = driver.members._planned
    driver.members._planned = replace(planned, captured=planned.captured[:1])
    if not Requests(shop.warehouse).open():
        ask_to_resume(shop.warehouse, "both")
    driver.settle()
    assert refusals(shop)["both"]["code"] == "VIEW_RELATION_UNCAPTURED"
    assert rows(shop, "both") == before
    shop.put(9, 1, 90)
    driver.round()
    assert rows(shop, "entries") == sorted((i, *row) for i, row in shop.rows.items())
    driver.close()


def test_a_request_that_no_longer_fits_the_configuration_ends_no_other(
    shop: Shop, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog still has the relation, so the command lets it through; the service has not."""
    left = changingviews.relations()[:1]
    monkeypatch.setattr(changingviews, "relations", lambda *_: left)
    again = Driver(shop)
    ask_to_add(shop.config, shop.write("large", LARGE))
    ask_to_add(shop.config, shop.write("words", WORDS))
    again.settle()
    assert set(refusals(shop)) == {"words"}
    assert refusals(shop)["words"]["code"] == "SQL_UNKNOWN_RELATION"
    assert rows(shop, "large") == [(1,)]
    entries_go_on(shop, again)
    again.close()


def test_a_view_that_asks_does_not_come_back_without_one_of_its_relations(
    world: World, tmp_path: Path
) -> None:
    recorded(world, tmp_path)
    sent: dict[int, Any] = {}
    number = Requests(tmp_path).put("resume", "v", by_itself=True).number
    stage = Returning(tmp_path, number, sent)
    access = stage.stage._access["north"]
    stage.stage._access = {"north": replace(access, relations=access.relations[:1])}
    stage.rest()
    told = Requests(tmp_path).told(number, "done") or {}
    assert told["error"]["code"] == "VIEW_RELATION_UNCAPTURED" and sent == {}
    assert "north.entry" in told["error"]["what"]
