"""What suspended views ask by themselves does not pile up, and nothing that people asked is lost."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from test_view_changes import proved, rows

from streaming.pipeline.catalog import load_catalog
from streaming.viewchanges import requests as module
from streaming.viewchanges.asked_changes import ask_to_resume
from streaming.viewchanges.requests import Requests
from tests.changingviews import Driver, Shop
from tests.stepworld import Crash

CUT, FAILED = {"cut": 7}, {"error": {"code": "SOURCE_ASKED", "what": "away"}}


def files(warehouse: Path) -> list[str]:
    return sorted(file.name for file in (warehouse / "_state" / "requests").iterdir())


def tries(
    requests: Requests, view: str, *ends: dict[str, Any], by_itself: bool = True
) -> list[int]:
    """Requests to come back, each ended before the next is made."""
    made = []
    for end in ends:
        made.append(requests.put("resume", view, by_itself=by_itself).number)
        requests.say(made[-1], "done", **end)
    return made


def test_a_view_whose_source_is_away_for_days_leaves_two_files(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    number = tries(requests, "v", *[FAILED] * 40)[-1]
    assert files(tmp_path) == [f"{number:08d}.done.json", f"{number:08d}.json"]
    assert requests.put("resume", "w").number == 41, "no number is given out twice"


def test_what_a_person_asked_stays_with_what_became_of_it(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    asked = tries(requests, "v", FAILED, CUT, FAILED, by_itself=False)
    tries(requests, "v", FAILED, FAILED)
    asked.append(requests.put("drop", "w").number)
    tries(requests, "v", *[FAILED] * 5)
    last = requests.all()[-1].number
    for those in (requests, Requests(tmp_path)):
        assert [one.number for one in those.all()] == [*asked, last]
        assert [those.told(one, "done") for one in asked] == [FAILED, CUT, FAILED, None]
        assert [one.number for one in those.open()] == [asked[-1]]


def test_the_request_of_a_view_s_stage_stays_until_it_has_another(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    (back,) = tries(requests, "v", CUT)
    tries(requests, "v", *[FAILED] * 4)
    assert back in [one.number for one in requests.all()]
    again = requests.put("resume", "v", by_itself=True).number
    assert back in [one.number for one in requests.all()], "it has not come back by this one yet"
    requests.say(again, "announced", cut=9)
    requests.say(again, "done", cut=9)
    last = tries(requests, "v", FAILED, FAILED)[-1]
    assert [one.number for one in requests.all()] == [again, last]


def test_a_request_that_is_open_stays(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    one = requests.put("resume", "v", by_itself=True).number
    tries(requests, "w", *[FAILED] * 3)
    assert one in [each.number for each in requests.open()]


def test_another_driver_that_knew_a_request_takes_it_for_over_not_for_open(tmp_path: Path) -> None:
    here, there = Requests(tmp_path), Requests(tmp_path)
    one = here.put("resume", "v", by_itself=True).number
    assert [each.number for each in there.open()] == [one] and not there.is_over(one)
    here.say(one, "done", **FAILED)
    tries(here, "v", FAILED)
    assert there.open() == [] and there.is_over(one)
    there.say(one, "loaded", number=4)
    assert not [name for name in files(tmp_path) if name.startswith(f"{one:08d}")]


@pytest.mark.parametrize("removed", range(4))
def test_a_crash_between_two_files_never_opens_a_request_again(
    tmp_path: Path, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Requests(tmp_path)
    one = requests.put("resume", "v", by_itself=True).number
    requests.say(one, "loaded", number=3)
    requests.say(one, "done", **FAILED)
    unlink, left = Path.unlink, [removed]

    def dying(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "requests" and not path.name.startswith("."):
            left[0] -= 1
            if left[0] < 0:
                raise Crash(path.name)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "unlink", dying)
        try:
            requests.put("resume", "v", by_itself=True)
        except Crash:
            assert removed < 3, "there are three files to remove"
    after = Requests(tmp_path)
    assert one not in [each.number for each in after.open()]
    (two,) = (each.number for each in after.open())
    after.say(two, "done", **FAILED)
    last = tries(after, "v", FAILED)[-1]
    assert {name[:8] for name in files(tmp_path)} == {f"{last:08d}"}


def test_a_view_that_comes_and_goes_keeps_its_stage_and_its_rows(tmp_path: Path) -> None:
    """Whole drivers, started anew now and then, over a view whose tries fail, succeed and fail again."""
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    rng, shop = random.Random(seed), Shop(tmp_path)
    shop.write("ratio", "SELECT id, 100 / amount AS ratio FROM north.entry")
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    driver = Driver(shop)
    driver.round()
    asked = []
    for at in range(3):
        shop.put(1, 1, 0)
        driver.round()
        if at == 1:
            requests = Requests(shop.warehouse)
            if not requests.open():
                asked.append(ask_to_resume(shop.warehouse, "ratio").number)
        for _ in range(2):
            shop.put(2, 1, rng.randint(1, 50))
            driver.round()
            if driver.stages.recovery is not None:
                driver.stages.recovery._next.clear()  # its time has come
            driver.settle()
        shop.put(1, 1, 10 + at)
        if rng.random() < 0.4:
            driver.close()
            driver = Driver(shop)
        driver.round()
        if driver.stages.recovery is not None:
            driver.stages.recovery._next.clear()
        driver.settle()
        driver.round()
    requests = Requests(shop.warehouse)
    where = f"FRESCO_SEED={seed}"
    assert {one.number for one in requests.all() if not one.by.get("by_itself")} == set(asked), (
        where
    )
    joined = load_catalog(shop.warehouse).joined["ratio"].request
    assert driver.views().count(f"view:ratio@{joined}") == 1, where
    assert len(requests.all()) <= 3 + len(asked), (where, files(shop.warehouse))
    assert requests.all()[-1].number > 5, where
    assert rows(shop, "ratio") == sorted((i, 100 / a) for i, (_, a) in shop.rows.items()), where
    driver.close()
    proved(shop)
