"""The mediator refuses what is out of its protocol, and stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.errors import ProtocolError
from streaming.messages import Control, RelRun
from tests.unit.mediatedworld import World, parent_stops, spans

# Protocol -----------------------------------------------------------------------------------------


def waiting() -> World:
    """UMQ has 1..4; p's lists up to 2 and q's up to 1 are in, q's list for 7 and 8 came early."""
    world = World().begun()
    world.handle(world.updates(1, 4, (1, 3, "pqv"), (4, 4, "v")))
    world.handle(world.al("p", 1, 2))
    world.handle(world.al("q", 1, 1))
    return world


LIST_BREACHES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "a list of no parent": (("w", 3, 3), {}, "w is no parent of v"),
    "the view's own list": (("v", 3, 3), {}, "v is no parent of v"),
    "another group": (("p", 3, 3), {"group": "h"}, "p belongs to group g"),
    "numbers from the past": (("p", 2, 3), {}, "p has sent its lists up to 2"),
    "a list again": (("q", 1, 1), {}, "numbers from the past"),
    "a list that skips a number": (("q", 3, 3), {}, "q has sent no list for number 2"),
    "a list that ends before it begins": (("p", 4, 3), {}, "ends before it begins"),
}


@pytest.mark.parametrize("breach", LIST_BREACHES)
def test_a_list_out_of_its_protocol_changes_nothing(breach: str) -> None:
    (name, first, last), more, rule = LIST_BREACHES[breach]
    world = waiting()
    world.refused(world.al(name, first, last, **more), rule)


def test_rows_for_numbers_that_rel_does_not_name_change_nothing() -> None:
    world = waiting()
    world.handle(world.al("p", 3, 3))
    world.refused(world.al("p", 4, 4, {4: (1, 1)}), "REL has p at none of its numbers")
    world.handle(world.al("p", 4, 4))


UPDATES_BREACHES: dict[str, tuple[dict[str, Any], str]] = {
    "another group": ({"group": "h"}, "belongs to group g"),
    "numbers from the past": ({"first": 4, "last": 4}, "numbers from the past"),
    "a gap": ({"first": 6}, "number 5 is missing"),
    "runs that stop": ({"last": 9}, "runs end at 8"),
    "a control elsewhere": (
        {"controls": (Control(number=9, relation="x.r", kind="truncate"),)},
        "outside of the message",
    ),
    "relevance not inherited": (
        {"runs": (RelRun(first=5, last=8, views=("p",)),)},
        "REL asks p for work at 5 and not its child v",
    ),
    "idle without its parent": (
        {"runs": (RelRun(first=5, last=8, views=("p", "v"), idle=("v",)),)},
        "REL asks p for work at 5 and not its child v",
    ),
}


@pytest.mark.parametrize("breach", UPDATES_BREACHES)
def test_updates_out_of_their_protocol_change_nothing(breach: str) -> None:
    changed, rule = UPDATES_BREACHES[breach]
    world = waiting()
    world.refused(world.updates(5, 8, (5, 8, "pqv")).model_copy(update=changed), rule)


def test_a_list_that_came_early_is_checked_when_its_numbers_come() -> None:
    world = waiting()
    world.handle(world.al("q", 2, 3))
    world.handle(world.al("q", 7, 8, {7: (1, 1)}))
    world.refused(world.updates(5, 8, (5, 8, "qv")), "q has sent no list for number 5")
    world.refused(world.updates(5, 8, (5, 8, "v")), "REL has q at none of 7..8")
    assert world.handle(world.updates(5, 8, (5, 6, "v"), (7, 8, "qv"))) == []
    assert spans(world.handle(world.al("p", 3, 3))) == [(3, 4), (5, 8)]


SUSPEND_BREACHES = {
    "no parent": (parent_stops(2, "w"), "w is no parent of v"),
    "another group": (parent_stops(2).model_copy(update={"group": "h"}), "belongs to group g"),
    "before its lists": (parent_stops(1), "p has sent lists up to 2"),
    "a list lacks": (parent_stops(3), "p has sent no list for number 3"),
}


@pytest.mark.parametrize("breach", SUSPEND_BREACHES)
def test_a_suspension_out_of_its_protocol_changes_nothing(breach: str) -> None:
    message, rule = SUSPEND_BREACHES[breach]
    waiting().refused(message, rule)


def test_a_suspended_parent_says_no_more() -> None:
    world = waiting()
    world.handle(parent_stops(2))
    world.refused(parent_stops(2), "p is suspended")
    world.refused(world.al("p", 3, 3), "p is suspended")


def test_what_the_manager_sends_must_be_the_view_s() -> None:
    world = waiting()
    for message in (world.al("p", 1, 1), world.al("v", 1, 1, group="h"), parent_stops(1, "w")):
        before = world.mediator.snapshot()
        with pytest.raises(ProtocolError, match="the manager is that of v in g"):
            world.mediator.passed_on(message)
        assert world.mediator.snapshot() == before


def test_a_snapshot_of_another_view_or_of_other_parents_is_refused() -> None:
    world = waiting()
    saved = world.mediator.snapshot()
    for other in ({**saved, "view": "w"}, {**saved, "rmq": {"p": []}}):
        with pytest.raises(ProtocolError, match="not of view v over p, q"):
            world.mediator.restore(other)
        assert world.mediator.snapshot() == saved
