"""`isolated`: a crash at every message, repeated and late messages, and messages without cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.errors import ProtocolError
from streaming.isolated.session_messages import (
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    Installed,
)
from tests.isolatedworld import VIEWS, World, described, ids, in_step

# Crashes and repetitions --------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_crash_after_every_message_changes_nothing(restarts: bool) -> None:
    world = World(restarts)
    world.session()
    changes = [("x.r", None, (5, 2)), ("y.s", (2, 3), (2, 4)), ("x.r", (1, 2), None)]
    for change in changes:
        world.commit(*change)
        world.session()
        for name in VIEWS:
            assert world.contents(name) == world.true(name)
    assert world.machine.number == 3


STEPS = ("ids", "evaluate", "install", "delete")
REPEATED: list[tuple[str, Callable[[World], Any]]] = [
    ("evaluate", lambda world: Ids(2, "x", ids("later"))),
    ("install", lambda world: Ids(2, "y", ids("later"))),
    ("install", lambda world: Evaluated(2, 1, "x", ({}, {}, {}, {}))),
    ("delete", lambda world: Installed(1)),
    ("delete", lambda world: Deleted(2, "y")),
    *((step, lambda world: Ids(1, "x", ids("older"))) for step in STEPS),
    *((step, lambda world: Evaluated(1, 1, "x", ())) for step in STEPS),
    *((step, lambda world: Deleted(1, "x")) for step in STEPS),
    *((step, lambda world: Installed(0)) for step in STEPS),
]


@pytest.mark.parametrize(("step", "message"), REPEATED)
def test_what_is_repeated_or_late_changes_nothing(step: str, message: Callable) -> None:
    world = in_step(step)
    before = described(world.machine)
    assert world.handle(message(world)) == []
    assert described(world.machine) == before
    world.settle(world.machine.resume())
    assert world.contents("joined") == world.true("joined")


def test_steps_repeated_at_the_sources_and_the_warehouse_are_harmless() -> None:
    world = in_step("delete")
    (delete,) = world.machine.resume()
    assert isinstance(delete, DeleteIds)
    first = world.sources["x"].answer(delete)
    left = world.sources["x"].tables
    assert world.sources["x"].answer(delete) == first
    assert world.sources["x"].tables == left
    world = in_step("evaluate")
    (asked,) = world.machine.resume()
    assert isinstance(asked, Evaluate)
    rows = world.sources["x"].answer(asked).rows
    world.commit("x.r", (1, 2), (1, 7))
    assert world.sources["x"].answer(asked).rows == rows, "the state asked for does not move"


# Bad input ----------------------------------------------------------------------------------------

BAD: list[tuple[str, Any, str]] = [
    ("ids", Ids(3, "x", {}), "session 3 has not begun"),
    ("ids", Ids(2, "z", {}), "no view uses source z"),
    ("ids", Evaluated(2, 1, "x", ()), "request 1 was not made"),
    ("evaluate", Evaluated(2, 0, "x", ()), "request 0 was not made"),
    ("evaluate", Evaluated(2, 9, "x", ()), "request 9 was not made"),
    ("evaluate", Evaluated(2, 1, "x", ({},)), "request 1 was 4 parts for x"),
    ("evaluate", Evaluated(2, 1, "y", ({}, {}, {}, {})), "request 1 was 4 parts for x"),
    ("evaluate", Evaluated(7, 1, "x", ()), "session 7 has not begun"),
    ("evaluate", Evaluated(2, 1, "z", ()), "no view uses source z"),
    ("ids", Installed(1), "no lists of number 1 were sent"),
    ("evaluate", Installed(1), "no lists of number 1 were sent"),
    ("install", Installed(2), "no lists of number 2 were sent"),
    ("ids", Installed(-1), "no lists of number -1 were sent"),
    ("ids", Deleted(2, "x"), "ids were not to be deleted yet"),
    ("evaluate", Deleted(2, "x"), "ids were not to be deleted yet"),
    ("install", Deleted(2, "x"), "ids were not to be deleted yet"),
    ("delete", Deleted(2, "z"), "no view uses source z"),
    ("delete", Deleted(3, "x"), "session 3 has not begun"),
]


@pytest.mark.parametrize(("step", "message", "rule"), BAD)
def test_a_message_without_cause_is_refused_and_changes_nothing(
    step: str, message: Any, rule: str
) -> None:
    world = in_step(step)
    before = described(world.machine)
    with pytest.raises(ProtocolError) as raised:
        world.machine.handle(message)
    assert raised.value.code == "PROTOCOL_ISOLATED"
    assert rule in raised.value.what and type(message).__name__ in raised.value.what
    assert described(world.machine) == before
    world.settle(world.machine.resume())
    assert world.contents("joined") == world.true("joined")


def test_a_snapshot_of_another_group_is_refused() -> None:
    machine = World().machine
    saved = {**machine.snapshot(), "group": "other"}
    with pytest.raises(ProtocolError, match="not of group g"):
        machine.restore(saved)
