"""Those who write wait for who reads: on a busy machine, too, a test comes to its end."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from streaming.demo import pace as pacing
from streaming.demo.pace import Pace

SERVICE = Path(__file__).parents[1] / "service"


def write(pace: Pace, writers: int) -> tuple[ThreadPoolExecutor, list[int]]:
    """So many threads that write as fast as they may; how far ahead of the reader each found itself."""
    ahead = list[int]()

    def work() -> None:
        while pace.may_write():
            pace.wrote()
            ahead.append(pace.written - pace._read)

    pool = ThreadPoolExecutor(writers)
    for _ in range(writers):
        pool.submit(work)
    return pool, ahead


@pytest.fixture
def ended() -> Iterator[list[Pace]]:
    paces = list[Pace]()
    yield paces
    for one in paces:
        one.end()


@pytest.mark.parametrize("writers", [1, 6])
def test_nobody_gets_further_ahead_of_a_reader_that_is_slow(
    ended: list[Pace], writers: int
) -> None:
    """The reader takes three at a time, and never looks before everybody has come to a stand."""
    pace = Pace(10)
    ended.append(pace)
    pool, ahead = write(pace, writers)
    for _ in range(40):
        assert_stands(pace, writers)
        pace.read(pace._read + 3)
    assert_stands(pace, writers)
    pace.end()
    pool.shutdown()
    assert pace.written >= 40 * 3 and max(ahead) <= 10 + writers


def assert_stands(pace: Pace, writers: int) -> None:
    """Everybody waits, no more than `ahead` in front, whatever the machine does."""
    done = threading.Event()
    for _ in range(6000):
        if pace._waiting == writers and not pace._has_room():
            return
        done.wait(0.01)
    raise AssertionError((pace.written, pace._read, pace._waiting))


def test_without_a_reader_it_is_a_fixed_number(ended: list[Pace]) -> None:
    pace = Pace(50)
    ended.append(pace)
    pool, _ = write(pace, 1)
    assert_stands(pace, 1)
    assert pace.written == 50 and pace.waits
    pace.end()
    pool.shutdown()
    assert pace.written == 50 and not pace.waits and not pace.may_write()


def test_a_reader_that_says_nothing_is_asked_by_those_who_wait(
    ended: list[Pace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service is, whose tables say until when they show what was committed."""
    monkeypatch.setattr(pacing, "ASK_SECONDS", 0.01)
    asked = threading.Semaphore(0)
    shown = [0]

    def reader(pace: Pace) -> int:
        asked.release()
        return pace.until(shown[0])

    pace = Pace(5, reader)
    ended.append(pace)
    pool, _ = write(pace, 1)
    for _ in range(8):
        assert_stands(pace, 1)
        before = pace.written
        shown[0] = int(pace._times[-1] * 1000) + 1
        assert asked.acquire(timeout=60)
        for _ in range(6000):
            if pace.written > before:
                break
            threading.Event().wait(0.01)
        assert pace.written > before
    pace.end()
    pool.shutdown()


def test_writers_who_wait_together_ask_no_more_often_than_one(
    ended: list[Pace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each who asked woke the others, who asked in turn: four had a core full meanwhile."""
    monkeypatch.setattr(pacing, "ASK_SECONDS", 0.05)
    asked = list[float]()
    enough = threading.Event()

    def reader(pace: Pace) -> int:
        asked.append(time.monotonic())
        if len(asked) == 6:
            enough.set()
        return 0

    pace = Pace(5, reader)
    ended.append(pace)
    pool, _ = write(pace, 4)
    assert enough.wait(60)
    pace.end()
    pool.shutdown()
    assert min(b - a for a, b in pairwise(asked)) > 0.9 * 0.05, asked


def test_in_the_service_tests_nobody_writes_until_somebody_else_stops() -> None:
    """A loop that an event ends and nothing else outruns whoever reads beside it."""
    endless = [
        f"{file.name}:{node.lineno}"
        for file in sorted(SERVICE.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.While)
        and any(
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr == "is_set"
            for one in ast.walk(node.test)
        )
        and "acquire" not in ast.unparse(node.test)
    ]
    assert endless == []
