"""Suspended views: how they come back, by a person's word and by themselves (DESIGN 11)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_view_changes import names, proved, rows

from streaming.cdc.later_snapshots import CLOCKS_MS
from streaming.cdc.records import APART
from streaming.cdc.replacement import cannot_tell
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.service import building
from streaming.service.status import pipeline_status
from streaming.service.view_states import view_states
from streaming.viewchanges.asked_changes import ask_to_drop, ask_to_resume
from streaming.viewchanges.requests import Requests
from streaming.viewchanges.skip import skip
from streaming.warehouse.decisions import bad_records, decisions
from tests.changingviews import Driver, Shop

RATIO = "SELECT id, 100 / amount AS ratio FROM north.entry"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("ratio", RATIO)
    made.write("words", "SELECT id, words FROM north.other")
    for id_ in range(1, 5):
        made.put(id_, id_ % 2, id_ * 4)
    return made


@pytest.fixture
def driver(shop: Shop) -> Iterator[Driver]:
    made = Driver(shop)
    made.round()
    yield made
    made.close()


def suspended(shop: Shop) -> dict[str, int]:
    return dict(Warehouse(shop.warehouse).epochs("shop")[-1].suspended)


def entries(shop: Shop) -> list[tuple[int, int, int]]:
    return sorted((id_, *row) for id_, row in shop.rows.items())


def refusal(shop: Shop) -> str:
    """The code of the last request's error."""
    requests = Requests(shop.warehouse)
    told = requests.told(requests.all()[-1].number, "done")
    assert told is not None
    return str(told["error"]["code"])


def test_a_row_that_is_put_right_brings_the_view_back_by_itself(shop: Shop, driver: Driver) -> None:
    shop.put(2, 0, 0)
    driver.round()
    last = suspended(shop)["ratio"]
    shop.put(3, 1, 5)
    driver.round()
    driver.settle()
    assert refusal(shop) == "VIEW_ARITHMETIC", "it was tried, and the row is still there"
    assert suspended(shop) == {"ratio": last}
    assert entries(shop) == rows(shop, "entries"), "the others go on"
    shop.put(2, 0, 50)
    driver.round()
    driver.stages.recovery._next.clear()  # its time has come
    driver.settle()
    assert suspended(shop) == {}
    assert rows(shop, "ratio") == sorted((i, 100 / amount) for i, (_, amount) in shop.rows.items())
    assert [one.view for one in view_states(shop.warehouse)] == sorted(names(shop))
    proved(shop)


def test_a_row_that_is_put_right_before_anybody_saw_the_view_stop_brings_it_back(
    shop: Shop, driver: Driver
) -> None:
    shop.put(2, 0, 0)
    shop.put(2, 0, 50)
    driver.round()
    driver.settle()
    assert suspended(shop) == {}
    assert rows(shop, "ratio") == sorted((i, 100 / amount) for i, (_, amount) in shop.rows.items())
    proved(shop)


def test_a_view_whose_cause_is_there_stays_as_it_was(shop: Shop, driver: Driver) -> None:
    shop.put(2, 0, 0)
    driver.round()
    before = rows(shop, "ratio")
    ask_to_resume(shop.warehouse, "ratio")
    driver.settle()
    assert refusal(shop) == "VIEW_ARITHMETIC"
    assert "ratio" in suspended(shop) and rows(shop, "ratio") == before
    state = next(one for one in view_states(shop.warehouse) if one.view == "ratio")
    assert state.state == "suspended" and state.error is not None
    assert state.error["code"] == "VIEW_ARITHMETIC"


def test_a_record_that_people_skip_lets_its_views_come_back(shop: Shop, driver: Driver) -> None:
    shop.spoiled()
    shop.put(7, 1, 70)
    driver.round()
    assert set(suspended(shop)) == {"entries", "totals", "ratio"}
    ask_to_resume(shop.warehouse, "entries")
    driver.settle()
    assert refusal(shop) == "VIEW_INPUT_DAMAGED"
    topic, offset = "north.public.entry", 4
    decision = skip(shop.warehouse, topic, 0, offset, "a test record of the producer's")
    assert decision["by"]["user"] and decision["record"]["error"]["code"] == "SOURCE_NOT_JSON"
    assert list(decisions(shop.warehouse)) == [f"{topic}-0-{offset}.json"]
    (bad,) = pipeline_status(shop.warehouse).bad_records
    assert bad["skipped"].endswith("a test record of the producer's")
    driver.round()
    assert {one.view for one in Requests(shop.warehouse).open()} == {"entries", "totals", "ratio"}
    driver.settle()
    assert suspended(shop) == {} and rows(shop, "entries") == entries(shop)
    shop.put(8, 0, 80)
    driver.round()
    assert rows(shop, "entries") == entries(shop)
    proved(shop)


def test_of_many_bad_records_of_a_step_one_stands_for_the_rest(shop: Shop, driver: Driver) -> None:
    """Else a topic of rubbish would leave a file and a line in the log for every record."""
    for _ in range(APART + 30):
        shop.spoiled()
    driver.round()
    kept = bad_records(shop.warehouse)
    assert len(kept) == APART + 1
    error = kept["north.public.entry-0-24.json"]["error"]
    assert error["code"] == "SOURCE_MANY_BAD" and error["where"].endswith("offset 24 to 53")
    assert error["what"].startswith("30 more records cannot be used; the first: ")
    for offset in range(4, 4 + APART):
        skip(shop.warehouse, "north.public.entry", 0, offset, "rubbish")
    ask_to_resume(shop.warehouse, "entries")
    driver.settle()
    assert refusal(shop) == "VIEW_INPUT_DAMAGED", "the rest is not decided"
    skip(shop.warehouse, "north.public.entry", 0, 4 + APART, "rubbish too")
    ask_to_resume(shop.warehouse, "entries")
    driver.settle()
    assert "entries" not in suspended(shop) and rows(shop, "entries") == entries(shop)


def test_a_repeated_snapshot_that_cannot_be_told_is_decided_like_a_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        building, "contents_of", lambda _, captured, number: cannot_tell(captured, number)
    )
    shop = Shop(tmp_path, snapshot=True)
    shop.write("words", "SELECT id, words FROM north.other")
    driver = Driver(shop)
    shop.publish(shop.log.scanned({"entry": 0, "other": 0}))
    shop.put(1, 1, 4)
    driver.round()
    shop.log.lsn += 1
    read = shop.log.row("entry", "r", None, {"id": 1, "account": 1, "amount": 4})
    shop.publish([read, *shop.log.scanned({"entry": 1})])
    shop.log.lsn += CLOCKS_MS
    shop.other(1, "later")
    driver.round()
    driver.round()
    assert set(suspended(shop)) == {"entries", "totals"} and rows(shop, "words") == [(1, "later")]
    shop.put(2, 1, 5)
    skip(shop.warehouse, "north.public.entry", 0, 1, "what the log has told is right")
    driver.round()
    driver.settle()
    assert suspended(shop) == {} and rows(shop, "entries") == entries(shop)
    driver.close()
    proved(shop)


def test_only_a_bad_record_is_skipped_and_only_once(shop: Shop, driver: Driver) -> None:
    with pytest.raises(FrescoError, match="RECORD_NOT_BAD"):
        skip(shop.warehouse, "north.public.entry", 0, 4, "no reason")
    shop.spoiled()
    driver.round()
    skip(shop.warehouse, "north.public.entry", 0, 4, "a reason")
    with pytest.raises(FrescoError, match=r"RECORD_DECIDED.*a reason"):
        skip(shop.warehouse, "north.public.entry", 0, 4, "another reason")


def test_a_suspended_view_may_be_dropped(shop: Shop, driver: Driver) -> None:
    shop.put(2, 0, 0)
    driver.round()
    ask_to_drop(shop.warehouse, "ratio", shop.views)
    driver.settle()
    assert suspended(shop) == {} and "ratio" not in names(shop)
    with pytest.raises(FrescoError, match="VIEW_UNKNOWN"):
        ask_to_resume(shop.warehouse, "ratio")
    with pytest.raises(FrescoError, match="VIEW_NOT_SUSPENDED"):
        ask_to_resume(shop.warehouse, "entries")


def test_while_it_is_suspended_a_view_is_read_as_of_its_last_good_number(
    shop: Shop, driver: Driver
) -> None:
    shop.put(2, 0, 0)
    driver.round()
    last = suspended(shop)["ratio"]
    before = rows(shop, "ratio")
    assert not Requests(shop.warehouse).told(1, "done"), "no try has been refused"
    (state,) = (one for one in view_states(shop.warehouse) if one.after is not None)
    assert state.view == "ratio" and state.error is not None, "`fresco view list` says why"
    assert state.error["code"] == "VIEW_ARITHMETIC"
    assert "row of north.entry: id = 2, amount = 0" in state.error["where"]
    assert "`fresco view resume ratio`" in state.error["todo"]
    shop.put(2, 0, 50)
    driver.settle()
    driver.round()
    assert suspended(shop) == {}
    with pytest.raises(FrescoError, match="READ_VIEW_NOT_THERE"):
        rows(shop, "ratio", transaction=last)
    assert rows(shop, "ratio") != before


def test_where_rel_rides_on_the_lists_a_suspended_view_stays_so_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, rel="with-actions")
    shop.write("words", "SELECT id, words FROM north.other")
    shop.put(1, 1, 4)
    driver = Driver(shop)
    driver.round()
    shop.spoiled()
    driver.round()
    assert set(suspended(shop)) == {"entries", "totals"}
    skip(shop.warehouse, "north.public.entry", 0, 1, "a test record of the producer's")
    with pytest.raises(FrescoError, match="VIEW_CHANGE_ROUTING"):
        ask_to_drop(shop.warehouse, "entries")
    Requests(shop.warehouse).put("resume", "entries")
    again = Driver(shop)
    again.settle()
    assert refusal(shop) == "VIEW_CHANGE_ROUTING"
    shop.other(1, "one")
    again.round()
    again.round()
    assert set(suspended(shop)) == {"entries", "totals"}
    assert rows(shop, "words") == [(1, "one")] and names(shop) == ["entries", "totals", "words"]
    driver.close()
    again.close()
