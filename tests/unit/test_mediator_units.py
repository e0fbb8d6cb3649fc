"""The mediator: strong parents and suspended ones."""

from __future__ import annotations

from streaming.messages import Control, SourceLog, Suspend
from tests.unit.mediatedworld import World, parent_stops, spans

# Strong parents -----------------------------------------------------------------------------------


def test_the_numbers_of_a_strong_list_go_on_as_one_and_the_view_s_list_covers_them() -> None:
    world = World().begun()
    world.handle(world.updates(1, 6, (1, 1, "v"), (2, 6, "pqv"), r={1: (1, 1), 3: (3, 3)}))
    world.handle(world.al("q", 1, 6, {2: (2, 2), 6: (6, 6)}))
    assert spans(world.handle(world.al("p", 2, 2))) == [(2, 2)]
    unit, last = world.handle(world.al("p", 3, 5, {4: (7, 7)}, complete=False)) + world.handle(
        world.al("p", 6, 6)
    )
    assert (unit.first, unit.last) == (3, 5)
    assert unit.relations == {"x.r": {(5, (3, 3)): 1}, "p": {(5, (7, 7)): 1}}
    assert [(run.first, run.last, run.views) for run in unit.runs] == [(3, 4, ()), (5, 5, ("v",))]
    assert (last.first, last.relations) == (6, {"q": {(6, (6, 6)): 1}})
    assert world.passed(1, 1) + world.passed(2, 2) == [(1, 1, True), (2, 2, True)]
    assert world.passed(5, 5) == [(3, 5, False)], "sweep sends [5..5], replica [3..5]"
    assert world.passed(6, 6) == [(6, 6, True)]
    assert world.mediator.units == ()


def test_strong_lists_that_straddle_each_other_make_one_unit() -> None:
    world = World().begun()
    world.handle(world.updates(1, 9, (1, 9, "pqv")))
    world.handle(world.al("p", 1, 5, {5: (1, 1)}, complete=False))
    assert world.handle(world.al("q", 1, 3)) == []
    assert world.handle(world.al("q", 4, 8, {8: (1, 1)}, complete=False)) == [], "p lacks 6 to 8"
    (unit,) = world.handle(world.al("p", 6, 8, {7: (2, 2)}))
    assert (unit.first, unit.last) == (1, 8)
    assert unit.relations == {"p": {(8, (1, 1)): 1, (8, (2, 2)): 1}, "q": {(8, (1, 1)): 1}}
    assert world.passed(1, 8) == [(1, 8, False)]


def test_a_strong_list_that_brings_one_number_makes_no_unit() -> None:
    world = World().begun()
    world.handle(world.updates(1, 5, (1, 3, "v"), (4, 4, "pv"), (5, 5, "v"), r={5: (1, 1)}))
    (message,) = world.handle(world.al("p", 1, 5, {5: (1, 1)}, complete=False))
    assert (message.first, message.last) == (4, 5)
    assert message.relations["p"] == {(4, (1, 1)): 1}, "its rows belong to the one number"
    assert world.passed(4, 5) == [(4, 5, True)]


def test_a_unit_may_cross_a_cut_as_lists_do_after_a_lost_truncate() -> None:
    world = World().begun()
    world.handle(world.updates(1, 2, (1, 2, "pv"), r={2: (2, 2)}))
    assert world.handle(world.al("p", 1, 3, {3: (1, 1)}, complete=False)) == [], (
        "3 is not known yet"
    )
    (unit,) = world.handle(world.updates(3, 3, (3, 3, "pv"), r={3: (3, 3)}))
    assert (unit.first, unit.last) == (1, 3)
    assert unit.relations == {"x.r": {(3, (2, 2)): 1, (3, (3, 3)): 1}, "p": {(3, (1, 1)): 1}}
    (sent,) = world.mediator.passed_on(world.al("v", 1, 3))
    assert (sent.first, sent.last, sent.complete, sent.across) == (1, 3, False, True)


def test_a_unit_within_two_cuts_makes_a_list_that_crosses_none() -> None:
    world = World().begun()
    world.handle(world.updates(1, 2, (1, 2, "pv")))
    world.handle(world.updates(3, 3, (3, 3, "v")))
    world.handle(world.al("p", 1, 2, {2: (1, 1)}, complete=False))
    (sent,) = world.mediator.passed_on(world.al("v", 1, 2))
    assert (sent.complete, sent.across) == (False, False)
    assert world.passed(3, 3) == [(3, 3, True)]


def test_in_a_unit_a_truncate_takes_what_came_before_it_and_a_taint_counts_from_the_first() -> None:
    world = World().begun()
    controls = (
        Control(number=2, relation="x.r", kind="truncate"),
        Control(number=3, relation="x.r", kind="tainted", what="bad"),
    )
    rows = {1: (1, 1), 2: (2, 2), 3: (3, 3)}
    log = SourceLog(numbers=(1, 3), transactions=("a", "b"), positions=(1, 2))
    message = world.updates(1, 3, (1, 3, "pv"), r=rows, controls=controls, logs={"x": log})
    world.handle(message)
    (unit,) = world.handle(world.al("p", 1, 3, complete=False))
    assert unit.relations == {"x.r": {(3, (2, 2)): 1, (3, (3, 3)): 1}}
    assert {(c.kind, c.number) for c in unit.controls} == {("truncate", 3), ("tainted", 1)}
    assert unit.logs["x"].numbers == (3, 3)


def test_a_manager_that_fails_in_a_unit_ends_before_it() -> None:
    world = World().begun()
    world.handle(world.updates(1, 3, (1, 3, "pv")))
    world.handle(world.al("p", 1, 1))
    world.handle(world.al("p", 2, 3, complete=False))
    assert world.passed(1, 1) == [(1, 1, True)]
    assert world.passed(2, 2) == [], "up to the error at 3"
    failed = Suspend(group="g", view="v", after=2, error={"code": "VIEW_ARITHMETIC"})
    assert world.mediator.passed_on(failed) == [failed.model_copy(update={"after": 1})]
    world.refused(world.updates(4, 4, (4, 4, "v")), "suspended after number 1")


# Suspension ---------------------------------------------------------------------------------------


def test_a_view_is_suspended_where_its_parent_is_once_its_lists_are_sent() -> None:
    world = World().begun()
    world.handle(world.updates(1, 4, (1, 4, "pqv")))
    world.handle(world.al("p", 1, 2))
    assert world.handle(parent_stops(2)) == [], "q's lists are awaited"
    assert spans(world.handle(world.al("q", 1, 3))) == [(1, 2)]
    sent = world.mediator.passed_on(world.al("v", 1, 2))
    assert [type(one).__name__ for one in sent] == ["ActionList", "Suspend"]
    suspend = sent[1]
    assert isinstance(suspend, Suspend)
    assert (suspend.view, suspend.after) == ("v", 2)
    assert suspend.error["code"] == "VIEW_PARENT_SUSPENDED"
    assert "p is suspended after number 2: bad" in suspend.error["what"]
    world.refused(world.al("q", 4, 4), "v is suspended after number 2")


def test_a_suspension_behind_the_view_takes_effect_at_once() -> None:
    world = World().begun()
    assert spans(world.handle(world.updates(1, 3, (1, 2, "v"), (3, 3, "pv")))) == [(1, 2)]
    world.passed(1, 2)
    (suspend,) = world.handle(parent_stops(0))
    assert suspend.after == 2, "p did not change in 1 and 2"


def test_a_unit_that_reaches_beyond_a_suspended_parent_cannot_be_had() -> None:
    world = World().begun()
    world.handle(world.updates(1, 4, (1, 4, "pqv")))
    world.handle(world.al("p", 1, 3))
    world.handle(world.al("q", 1, 1))
    world.passed(1, 1)
    assert world.handle(parent_stops(3)) == []
    (suspend,) = world.handle(world.al("q", 2, 4, complete=False))
    assert suspend.after == 1
