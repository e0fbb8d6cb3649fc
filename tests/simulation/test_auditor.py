"""The auditor itself: hand-made histories for every level, and for every way not to reach it."""

from __future__ import annotations

import pytest

from streaming.simulator.lattice import Place, Shown
from streaming.viewmanagers.levels import Level
from tests.simulation.handmade import a_world, judge, rows, states

ONE_KEY = a_world(
    "copies",
    {},
    {"x": ["+x.r1[1,1]", "x.r1[1,1]->[1,2]", "x.r1[1,2]->[1,3]", "-x.r1[1,3]"]},
)
"""Four transactions on one key: they have one order only. V = r1."""
EACH = ("", "[1,1]", "[1,2]", "[1,3]", "")


def level(*shown: str, every: int = 1) -> Level:
    return judge(ONE_KEY, "single", ["v1"], every=every).level(states(*shown))


def test_all_states_in_order_are_complete() -> None:
    assert level(*EACH) is Level.COMPLETE


def test_a_state_shown_twice_is_shown_once() -> None:
    assert level("", "", "[1,1]", "[1,1]", "[1,2]", "[1,3]", "", "") is Level.COMPLETE


@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_a_state_left_out_is_strong(left_out: int) -> None:
    assert level(*EACH[:left_out], *EACH[left_out + 1 :]) is Level.STRONG


def test_the_initial_state_left_out_is_not_complete() -> None:
    assert level(*EACH[1:]) is Level.STRONG


def test_going_back_is_weak() -> None:
    assert level("", "[1,2]", "[1,1]", "[1,3]", "") is Level.WEAK


def test_a_state_that_never_was_is_convergent() -> None:
    assert level("", "[1,9]", "") is Level.CONVERGENT


def test_a_row_that_stands_twice_or_minus_once_never_was() -> None:
    assert level("", "[1,1] [1,1]", "") is Level.CONVERGENT
    auditor = judge(ONE_KEY, "single", ["v1"])
    assert auditor.level([({},), ({(1, 1): -1},), ({},)]) is Level.CONVERGENT


def test_a_wrong_end_is_nothing() -> None:
    assert level(*EACH[:-1]) is Level.NONE
    assert level() is Level.NONE


def test_every_second_state_is_complete_2() -> None:
    assert level("", "[1,2]", "", every=2) is Level.COMPLETE_N
    assert level("", "[1,1]", "[1,2]", "", every=2) is Level.COMPLETE_N
    assert level("", "[1,1]", "[1,3]", "", every=2) is Level.STRONG


def test_a_last_block_that_is_not_full_counts() -> None:
    assert level("", "[1,3]", "", every=3) is Level.COMPLETE_N
    assert level("", "", every=5) is Level.COMPLETE_N
    assert level("", "[1,1]", "", every=3) is Level.STRONG


def test_complete_n_counts_the_transactions_that_touch_the_view() -> None:
    world = a_world(
        "copies",
        {},
        {"x": ["+x.r1[1,1]", "+x.r2[5,5]", "x.r1[1,1]->[1,2]"], "y": ["+y.r3[1,1]"]},
    )
    auditor = judge(world, "single", ["v1"], every=2)
    assert auditor.level(states("", "[1,2]")) is Level.COMPLETE_N


def test_a_state_left_for_later_may_be_needed_before_it() -> None:
    """a b a b, every second shown as `a b`: b is mapped to the last state, not to the second."""
    log = ["+x.r1[1,1]", "-x.r1[1,1]", "+x.r1[1,1]"]
    auditor = judge(a_world("copies", {}, {"x": log}), "single", ["v1"], every=2)
    assert auditor.level(states("", "[1,1]")) is Level.COMPLETE_N


def test_transactions_without_a_key_in_common_may_be_shown_in_either_order() -> None:
    log = {"x": ["+x.r1[1,1]", "+x.r1[2,2]"]}
    auditor = judge(a_world("copies", {}, log), "single", ["v1"])
    assert auditor.level(states("", "[2,2]", "[1,1] [2,2]")) is Level.COMPLETE
    assert auditor.level(states("", "[1,1]", "[1,1] [2,2]")) is Level.COMPLETE


def test_a_truncate_commutes_with_nothing_of_its_relation() -> None:
    log = {"x": ["+x.r1[1,1]", "truncate x.r1", "+x.r1[2,2]"]}
    auditor = judge(a_world("copies", {}, log), "single", ["v1"])
    assert auditor.level(states("", "[1,1]", "", "[2,2]")) is Level.COMPLETE
    assert auditor.level(states("", "[1,1] [2,2]", "[2,2]")) is Level.CONVERGENT


def test_transactions_of_different_sources_may_be_shown_in_either_order() -> None:
    world = a_world("copies", {}, {"x": ["+x.r1[1,1]"], "y": ["+y.r2[2,2]"]}, sources=3)
    order: list[Place] = [("x", 1, 0), ("y", 1, 0)]
    auditor = judge(world, "single", ["v1", "v2"], order)
    assert auditor.level(states("|", "[1,1]|", "[1,1]|[2,2]")) is Level.COMPLETE
    assert auditor.level(states("|", "|[2,2]", "[1,1]|[2,2]")) is Level.COMPLETE
    assert auditor.level(states("|", "[1,1]|", "|[2,2]", "[1,1]|[2,2]")) is Level.WEAK


def test_a_transaction_of_another_relation_need_not_show() -> None:
    world = a_world("copies", {}, {"x": ["+x.r2[1,1]", "+x.r1[1,1]"]})
    assert judge(world, "single", ["v1"]).level(states("", "[1,1]")) is Level.COMPLETE


def test_strobe_example_3_shows_the_middle_of_a_transaction() -> None:
    world = a_world("copies", {"x.r1": "[1,2]"}, {"x": ["-x.r1[1,2]; +x.r1[3,4]"]})
    strobe = states("[1,2]", "", "[3,4]")
    assert judge(world, "local", ["v1"]).level(strobe) is Level.CONVERGENT
    assert judge(world, "local", ["v1"]).level(states("[1,2]", "[3,4]")) is Level.COMPLETE


def test_strobe_example_4_is_weak_and_complete_if_the_parts_are_local() -> None:
    """V = r1 join r2; T1 inserts [1,3], T2 deletes [3,4] at y and inserts [2,3] at x."""
    logs = {
        "x": ["+x.r1[1,3]", "G1/2: +x.r1[2,3]"],
        "y": ["G1/2: -y.r2[3,4]"],
    }
    world = a_world("pair", {"y.r2": "[3,4] [3,5]"}, logs, sources=3, keys="fanout")
    t_strobe = states("", "[1,3,5]", "[1,3,5] [2,3,5]")
    g_strobe = states("", "[1,3,5] [2,3,5]")
    assert judge(world, "global", ["v1"]).level(t_strobe) is Level.WEAK
    assert judge(world, "local", ["v1"]).level(t_strobe) is Level.COMPLETE
    assert judge(world, "global", ["v1"]).level(g_strobe) is Level.STRONG


def test_mvc_example_1_two_views_at_different_states() -> None:
    """V1 = r1 join r2, V2 = r2 join r3; insert [2,3] into r2."""
    initial = {"x.r1": "[1,2]", "z.r3": "[3,4]"}
    world = a_world("pair", initial, {"y": ["+y.r2[2,3]"]}, sources=3)
    group = judge(world, "single", ["v1", "v2"])
    assert group.level(states("|", "[1,2,3]|[2,3,4]")) is Level.COMPLETE
    apart = states("|", "[1,2,3]|", "[1,2,3]|[2,3,4]")
    assert group.level(apart) is Level.CONVERGENT
    alone = judge(world, "single", ["v1"])
    assert alone.level([values[:1] for values in apart]) is Level.COMPLETE


def test_an_order_that_is_in_two_places_at_once() -> None:
    """PAPERS 1: T1 open -> moving, T2 moving -> archived; `archived` alone applies T2 first."""
    logs = {"x": ["x.orders[1,0]->[1,1]", "x.orders[1,1]->[1,2]"]}
    world = a_world("orders", {"x.orders": "[1,0]"}, logs)
    group = judge(world, "single", ["open", "moving", "archived"])
    assert group.level(states("[1,0]||", "|[1,1]|", "||[1,2]")) is Level.COMPLETE
    twice = states("[1,0]||", "[1,0]||[1,2]", "||[1,2]")
    assert group.level(twice) is Level.CONVERGENT
    for place, name in enumerate(("open", "moving", "archived")):
        alone = [values[place : place + 1] for values in twice]
        assert judge(world, "single", [name]).level(alone) >= Level.STRONG


def test_global_transactions_that_contradict_each_other_are_one() -> None:
    """x runs G1 before G2 on one key, y G2 before G1 on one key: no order of the two exists."""
    logs = {
        "x": ["G1/2: +x.r1[1,1]", "G2/2: x.r1[1,1]->[1,2]"],
        "y": ["G2/2: +y.r2[1,1]", "G1/2: y.r2[1,1]->[1,2]"],
    }
    auditor = judge(a_world("copies", {}, logs, sources=3), "global", ["v1", "v2"])
    assert auditor.lattice.before == [0]
    assert auditor.level(states("|", "[1,2]|[1,2]")) is Level.COMPLETE
    assert auditor.level(states("|", "[1,1]|[1,2]", "[1,2]|[1,2]")) is Level.WEAK


def test_global_transactions_that_cross_without_conflict_have_both_orders() -> None:
    logs = {
        "x": ["G1/2: +x.r1[1,1]", "G2/2: +x.r1[2,2]"],
        "y": ["G2/2: +y.r2[2,2]", "G1/2: +y.r2[1,1]"],
    }
    auditor = judge(a_world("copies", {}, logs, sources=3), "global", ["v1", "v2"])
    both = "[1,1] [2,2]|[1,1] [2,2]"
    assert auditor.level(states("|", "[1,1]|[1,1]", both)) is Level.COMPLETE
    assert auditor.level(states("|", "[2,2]|[2,2]", both)) is Level.COMPLETE
    assert auditor.level(states("|", "[1,1]|", both)) is Level.WEAK


def test_the_numbering_is_only_a_hint() -> None:
    """An order that the sources do not allow is not followed."""
    wrong: list[Place] = [("x", n, 0) for n in (4, 3, 2, 1)]
    auditor = judge(ONE_KEY, "single", ["v1"], wrong)
    assert auditor.level(states(*EACH)) is Level.COMPLETE
    assert auditor.level(states("", "[1,3]", "[1,2]", "[1,1]", "")) is Level.WEAK


@pytest.mark.parametrize(
    ("shown", "asked", "place", "expected"),
    [
        (EACH[:-1], Level.CONVERGENT, 3, [""]),
        (("", "[1,9]", ""), Level.WEAK, 1, ["", "[1,1]", "[1,2]", "[1,3]"]),
        (("", "[1,2]", "[1,1]", ""), Level.STRONG, 2, ["[1,3]", ""]),
        (("", "[1,1]", "[1,3]", ""), Level.COMPLETE, 2, ["[1,2]"]),
    ],
)
def test_a_witness_names_the_state_and_what_could_have_stood_there(
    shown: tuple[str, ...], asked: Level, place: int, expected: list[str]
) -> None:
    auditor = judge(ONE_KEY, "single", ["v1"])
    witness = auditor.witness(states(*shown), asked)
    assert witness is not None
    assert (witness.level, witness.place) == (asked, place)
    assert witness.shown == states(*shown)[place]
    assert list(witness.expected) == states(*expected)


def test_there_is_no_witness_against_a_level_that_is_reached() -> None:
    auditor = judge(ONE_KEY, "single", ["v1"])
    assert all(auditor.witness(states(*EACH), each) is None for each in Level)


# Views that come and go ----------------------------------------------------------------------------


def shown(*texts: str) -> list[Shown]:
    """States of several views with " | " between them; - is a view that is not there."""
    return [
        tuple(None if part.strip() == "-" else rows(part) for part in text.split("|"))
        for text in texts
    ]


COMING = {
    "joins in the second state": (("|-", "[1,1]|-", "[1,1]|", "[1,1]|[2,2]", "|[2,2]"), "complete"),
    "joins in the third": (("|-", "[1,1]|-", "[1,1]|[2,2]", "|[2,2]"), "complete"),
    "leaves and comes back": (("|", "[1,1]|", "[1,1]|-", "|-", "|[2,2]"), "complete"),
    "is not there at the end": (("|", "[1,1]|", "[1,1]|-", "|-"), "complete"),
    "a state is left out": (("|-", "[1,1]|", "|[2,2]"), "strong"),
    "comes while the other is ahead": (("-|", "|[2,2]", "[1,1]|[2,2]", "|[2,2]"), "complete"),
    "comes with what never was": (("|-", "[1,1]|-", "[1,1]|[3,3]", "|[2,2]"), "convergent"),
    "ends wrong": (("|-", "[1,1]|-", "|"), "none"),
}


@pytest.mark.parametrize("name", COMING)
def test_a_state_shows_the_views_that_are_there_at_one_source_state(name: str) -> None:
    logs = {"x": ["+x.r1[1,1]", "+x.r2[2,2]", "-x.r1[1,1]"]}
    texts, level = COMING[name]
    found = judge(a_world("copies", {}, logs), "local", ["v1", "v2"])
    assert found.level(shown(*texts)).text == level


def test_what_one_transaction_did_to_two_views_shows_in_both_from_the_first_state_on() -> None:
    found = judge(a_world("copies", {}, {"x": ["+x.r1[1,1]; +x.r2[2,2]"]}), "local", ["v1", "v2"])
    assert found.level(shown("|-", "[1,1]|-", "[1,1]|[2,2]")) is Level.COMPLETE
    half = shown("|-", "[1,1]|-", "[1,1]|", "[1,1]|[2,2]")
    assert found.level(half) is Level.CONVERGENT
    witness = found.witness(half, Level.STRONG)
    assert witness is not None and witness.place == 2
