"""How often a suspended view tries to come back: ever more rarely, also if it falls again (DESIGN 11)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streaming.viewchanges.recovery import FALLS, STEADY, Recovery
from streaming.viewchanges.requests import Requests

SLOW = {"v": {"code": "SOURCE_QUERY_TIMEOUT", "what": "a query took longer than 60 s"}}
DAMAGED = {"v": {"code": "VIEW_INPUT_DAMAGED", "what": "a record cannot be read"}}
GONE: dict[str, dict[str, str]] = {}


class Days:
    """A recovery whose clock is set by hand; `tried` says at which seconds the view tried."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.tried: list[float] = []
        self._decisions = folder / "_state" / "decisions"
        self._requests = Requests(folder)
        self._recovery = Recovery(folder, self._requests, lambda _: 1 / 0, lambda: self.now)  # type: ignore[arg-type, return-value]

    def decide(self, record: str) -> None:
        self._decisions.mkdir(parents=True, exist_ok=True)
        (self._decisions / f"north.public.entry-0-{record}.json").write_text("{}")

    def pass_by(self, seconds: int, suspended: Mapping[str, Mapping[str, str]]) -> None:
        for _ in range(seconds):
            self.now += 1
            if self._recovery.look(suspended, dict.fromkeys(suspended, 0)):
                self.tried.append(self.now)
                self._requests.say(self._requests.open()[0].number, "done", cut=1)


def test_a_source_that_stays_away_is_tried_less_and_less(tmp_path: Path) -> None:
    days = Days(tmp_path)
    days.pass_by(400, SLOW)
    assert days.tried[:6] == [1, 3, 8, 18, 38, 78]
    assert [b - a for a, b in zip(days.tried[6:], days.tried[7:], strict=False)] == [60] * 4


def test_a_view_that_falls_as_soon_as_it_is_back_does_not_hold_up_its_group_for_ever(
    tmp_path: Path,
) -> None:
    """Its source answers when it is asked for nothing, and is too slow for the view's own query."""
    days = Days(tmp_path)
    waited = []
    for _ in range(6):
        fell = days.now
        while len(days.tried) == len(waited):
            days.pass_by(1, SLOW)
        waited.append(days.tried[-1] - fell)
        days.pass_by(70, GONE)
    waits = [*FALLS, *[FALLS[-1]] * (5 - len(FALLS))]
    assert waited == [1, *(1 + seconds for seconds in waits)], "from the look that sees it fall"
    days.pass_by(int(STEADY), GONE)
    days.pass_by(1, SLOW)
    assert len(days.tried) == 7, "it had been there for long: tried at once"


def test_a_decision_made_while_a_view_that_fell_again_has_to_wait_brings_it_back(
    tmp_path: Path,
) -> None:
    days = Days(tmp_path)
    days.pass_by(1, DAMAGED)
    assert days.tried == [1], "a start tries once"
    days.pass_by(5, GONE)
    days.pass_by(2, DAMAGED)
    days.decide("7")
    days.pass_by(int(FALLS[0]), DAMAGED)
    assert days.tried == [1, 7 + FALLS[0]]


def test_a_decision_made_before_anybody_saw_the_view_stop_brings_it_back(tmp_path: Path) -> None:
    days = Days(tmp_path)
    days.pass_by(1, GONE)
    days.decide("7")
    days.pass_by(1, DAMAGED)
    assert days.tried == [2]


def test_a_damaged_view_is_not_tried_while_nothing_was_decided(tmp_path: Path) -> None:
    days = Days(tmp_path)
    days.pass_by(1, GONE)
    days.pass_by(20, DAMAGED)
    assert days.tried == []
