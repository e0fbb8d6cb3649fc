"""Requests, and what the integrator makes of them: every state in between (DESIGN 5)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.catalog import (
    Catalog,
    Joined,
    ViewSpec,
    catalog_held,
    load_catalog,
    parse_view,
    replace_catalog,
)
from streaming.runtime.stage_names import stage_name
from streaming.viewchanges.announcements import Live, ViewChanges
from streaming.viewchanges.requests import Requests, phase
from tests.golden.bank_relations import BANK

SELECT = "SELECT id FROM north.account"


def spec(name: str) -> ViewSpec:
    return parse_view(f"CREATE MATERIALIZED VIEW {name} AS {SELECT}", BANK)


@pytest.fixture
def requests(tmp_path: Path) -> Requests:
    return Requests(tmp_path)


@pytest.fixture
def changes(requests: Requests) -> ViewChanges:
    return ViewChanges(requests, {"g": ("a", "b")}, spec, lambda view: ())


def added(requests: Requests, view: str, loaded: bool = True) -> int:
    number = requests.put("add", view, {"group": "g", "mode": "replica"}).number
    if loaded:
        requests.say(number, "loaded", number=0)
    return number


def test_requests_made_at_once_stand_in_one_order(tmp_path: Path) -> None:
    names = [f"v{n}" for n in range(8)]
    threads = [
        threading.Thread(target=lambda name=name: Requests(tmp_path).put("drop", name))
        for name in names
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    made = Requests(tmp_path).all()
    assert [one.number for one in made] == list(range(1, 9))
    assert sorted(one.view for one in made) == names


def test_a_view_changes_once_at_a_time_and_what_is_to_join_may_be_dropped(
    requests: Requests,
) -> None:
    requests.put("drop", "a")
    with pytest.raises(FrescoError, match="VIEW_CHANGE_PENDING"):
        requests.put("resume", "a")
    added(requests, "c", loaded=False)
    with pytest.raises(FrescoError, match="VIEW_CHANGE_PENDING"):
        requests.put("add", "c", {})
    requests.put("drop", "c")
    with pytest.raises(FrescoError, match="VIEW_CHANGE_PENDING"):
        requests.put("drop", "c")


def test_a_word_is_said_once_and_the_request_ends_with_the_last(requests: Requests) -> None:
    number = added(requests, "c", loaded=False)
    request = requests.all()[0]
    assert phase(requests, request) == "is to join; loads its rows"
    requests.say(number, "loaded", number=7)
    requests.say(number, "loaded", number=9)
    assert phase(requests, request) == "is to join; loaded as of number 7"
    requests.say(number, "announced", cut=8)
    assert phase(requests, request) == "is to join at number 8"
    assert requests.joining("c") == request
    requests.say(number, "done", cut=8)
    assert phase(requests, request) == "done" and requests.open() == []
    assert requests.joining("c") is None


def test_a_damaged_request_is_named(tmp_path: Path, requests: Requests) -> None:
    requests.put("drop", "a")
    (tmp_path / "_state" / "requests" / "00000002.json").write_text("{")
    with pytest.raises(FrescoError, match=r"STATE_DAMAGED.*00000002"):
        requests.all()


def test_nothing_is_announced_before_there_is_a_number(
    requests: Requests, changes: ViewChanges
) -> None:
    requests.put("drop", "a")
    assert changes.announce(-1) == []
    (change,) = changes.announce(0)
    assert (change.view, change.change, change.number, change.group) == ("a", "drop", 0, "g")
    assert changes.groups() == {"g": ("b",)}
    assert changes.announce(1) == [], "it has been announced"


@pytest.mark.parametrize(
    ("change", "view", "said"),
    [
        ("add", "a", "view a is maintained already"),
        ("resume", "c", "view c is not maintained"),
    ],
)
def test_a_request_that_has_become_impossible_is_told_so_and_ends(
    requests: Requests, changes: ViewChanges, change: str, view: str, said: str
) -> None:
    """The catalog, by which a request is judged, follows the integrator by a few commits."""
    number = requests.put(change, view, {"group": "g", "mode": "replica"}).number
    requests.say(number, "loaded", number=0)
    assert changes.announce(5) == [] and set(changes.live) == {"a", "b"}
    told = requests.told(number, "done")
    assert told is not None and told["error"] == {
        "code": "VIEW_CHANGE_REFUSED",
        "what": said,
        "where": f"request {number}",
        "todo": "see `fresco view list`",
    }
    assert requests.open() == [] and phase(requests, requests.all()[0]) == "refused"


def test_a_first_step_that_fails_takes_back_what_it_would_have_announced(
    requests: Requests, changes: ViewChanges
) -> None:
    number = requests.put("drop", "a").number
    assert len(changes.announce(0)) == 1
    changes.restore(None)
    assert changes.groups() == {"g": ("a", "b")}
    assert [one.view for one in changes.announce(0)] == ["a"]
    assert requests.told(number, "done") is None


def test_a_view_is_announced_when_its_stage_says_so(
    requests: Requests, changes: ViewChanges
) -> None:
    number = added(requests, "c", loaded=False)
    assert changes.announce(4) == []
    requests.say(number, "loaded", number=4)
    (change,) = changes.announce(5)
    assert (change.view, change.change, change.number, change.manager) == (
        "c",
        "add",
        5,
        "complete",
    )
    assert changes.live["c"] == Live("g", 5, number)
    assert changes.live["c"].stage("c") == stage_name("c", number) == f"view:c@{number}"
    assert [view.name for view in changes.views()] == ["a", "b", "c"]


def test_a_name_comes_back_two_numbers_later_whoever_commits(
    requests: Requests, changes: ViewChanges
) -> None:
    dropped = requests.put("drop", "a").number
    changes.announce(10)
    requests.say(dropped, "done", cut=10)
    added(requests, "a")
    assert changes.idle_numbers(10) == 2 and changes.announce(10) == []
    assert changes.idle_numbers(11) == 1 and changes.announce(11) == []
    assert changes.idle_numbers(12) == 0
    (change,) = changes.announce(12)
    assert (change.view, change.number) == ("a", 12)


def test_a_drop_calls_off_what_has_not_been_announced(
    requests: Requests, changes: ViewChanges
) -> None:
    number = added(requests, "c")
    drop = requests.put("drop", "c").number
    assert changes.announce(5) == []
    told = requests.told(number, "done")
    assert told == {"cancelled_by": drop} and requests.open() == []


def test_what_was_announced_and_not_yet_committed_is_dropped_at_a_later_cut(
    requests: Requests, changes: ViewChanges
) -> None:
    added(requests, "c")
    changes.announce(5)
    requests.put("drop", "c")
    (change,) = changes.announce(6)
    assert (change.view, change.change, change.number) == ("c", "drop", 6)
    assert "c" not in changes.live


def test_a_suspended_view_joins_again_under_another_stage(
    requests: Requests, changes: ViewChanges
) -> None:
    number = requests.put("resume", "a").number
    requests.say(number, "loaded", number=3)
    (change,) = changes.announce(4)
    assert (change.change, change.group, change.number) == ("add", "g", 4)
    assert changes.live["a"] == Live("g", 4, number)


def test_the_state_is_what_a_manifest_says_and_a_word_lost_is_said_again(
    requests: Requests, changes: ViewChanges
) -> None:
    number = added(requests, "c")
    changes.announce(5)
    saved = changes.snapshot()
    assert requests.told(number, "announced") is None
    again = ViewChanges(requests, {"g": ("a", "b")}, spec, lambda view: (f"source of {view}",))
    again.restore(saved)
    assert again.snapshot() == saved and again.announce(6) == []
    again.tell(saved)
    assert requests.told(number, "announced") == {"cut": 5}
    assert again.asked() == {"g": frozenset({"source of a", "source of b", "source of c"})}
    again.restore(None)
    assert set(again.live) == {"a", "b"}


def test_groups_that_change_the_catalog_at_once_lose_nothing(tmp_path: Path) -> None:
    replace_catalog(tmp_path, Catalog((spec("a"),), {"g": ("a",), "h": ()}, BANK))

    def join(name: str, group: str) -> None:
        with catalog_held(tmp_path):
            catalog = load_catalog(tmp_path)
            joined = catalog.with_view(spec(name), group, Joined(3, 1))
            replace_catalog(tmp_path, joined)

    threads = [threading.Thread(target=join, args=(f"v{n}", "gh"[n % 2])) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    stored = load_catalog(tmp_path)
    assert {view.name for view in stored.views} == {"a", *(f"v{n}" for n in range(8))}
    assert stored.joined["v3"] == Joined(3, 1) and stored.group_of("v3") == "h"


def test_a_view_that_comes_back_keeps_its_place_before_its_children(tmp_path: Path) -> None:
    parent = spec("p")
    known = {**BANK, "p": parent.relation}
    child = parse_view("CREATE MATERIALIZED VIEW c AS SELECT id FROM p", known)
    catalog = Catalog((parent, child), {"g": ("p", "c")}, BANK)
    replace_catalog(tmp_path, catalog.with_view(parent, "g", Joined(9, 2)))
    assert [view.name for view in load_catalog(tmp_path).views] == ["p", "c"]


def test_no_view_joins_between_parts_of_a_global_transaction_that_are_numbered_apart(
    requests: Requests, changes: ViewChanges
) -> None:
    """Of those before the cut its manager would never hear, and wait for them for ever."""
    added(requests, "c")
    requests.put("drop", "b")
    assert [(one.view, one.change) for one in changes.announce(4, split=True)] == [("b", "drop")]
    assert [(one.view, one.number) for one in changes.announce(6)] == [("c", 6)]
