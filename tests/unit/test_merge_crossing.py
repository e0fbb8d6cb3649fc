"""Lists across a cut, and guarded rows: what the papers leave out and the merge must take in."""

from __future__ import annotations

import pytest

from streaming.durable import as_json
from streaming.merge.batching import NONE
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun
from tests.unit.merge_messages import al, drop, refused, rel, suspend, taken, told


def across(view: str, first: int, last: int) -> ActionList:
    return al(view, first, last, complete=False).model_copy(update={"across": True})


def begun(algorithm: str = "pa") -> MergeMachine:
    """Views a and b, number 0 committed."""
    machine = MergeMachine("g", ("a", "b"), algorithm)  # type: ignore[arg-type]
    told(machine, rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0))
    assert machine.take_batch() is not None
    return machine


def again(machine: MergeMachine) -> MergeMachine:
    """The machine after a restart."""
    restarted = MergeMachine("g", ("a", "b"), machine.algorithm)
    restarted.restore(machine.snapshot())
    return restarted


def ranges(machine: MergeMachine) -> list[tuple[tuple[int, int], ...]]:
    """What the batches that are due cover."""
    found = []
    while (batch := machine.take_batch()) is not None:
        found.append(batch.ranges)
    return found


ROWS = [rel(1, 3, (1, 3, "ab")), rel(4, 6, (4, 6, "ab"))]


@pytest.mark.parametrize("rels_before", [0, 1, 2])
def test_a_list_across_a_cut_takes_its_rows_together_whenever_it_comes(rels_before: int) -> None:
    merge = told(begun(), *ROWS[:rels_before], al("a", 1, 1), across("a", 2, 5), al("a", 6, 6))
    merge = told(again(merge), *ROWS[rels_before:], al("b", 1, 3))
    assert ranges(merge) == [((1, 1),)], "row 2 leads to 5, whose b is white"
    assert ranges(told(merge, al("b", 4, 4))) == []
    assert ranges(told(again(merge), al("b", 5, 5))) == [((2, 5),)]
    assert ranges(told(merge, al("b", 5, 6))) == [((2, 6),)]


def test_what_follows_a_waiting_list_waits_behind_it() -> None:
    merge = told(begun(), ROWS[0], across("a", 1, 4), al("a", 5, 6), suspend("a", 6))
    assert merge.suspended == {}
    merge = told(again(merge), ROWS[1], al("b", 1, 3), al("b", 4, 6))
    assert merge.suspended == {"a": 6}
    assert ranges(merge) == [((1, 6),)]


def test_a_drop_forgets_a_waiting_list() -> None:
    merge = told(begun(), ROWS[0], across("a", 1, 4), al("b", 1, 3), drop("a", 3))
    assert merge.crossing == {}
    assert ranges(merge) == [((1, 3),)]


def test_only_a_strong_list_crosses_a_cut_and_only_under_pa() -> None:
    whole = al("a", 1, 4).model_copy(update={"across": True})
    refused(told(begun(), ROWS[0]), whole, "only a strong list crosses a cut")
    refused(told(begun("spa"), ROWS[0]), across("a", 1, 4), "only PA takes it")
    refused(told(begun(), ROWS[0]), across("c", 1, 4), "view 'c' is not in group")
    refused(told(begun(), ROWS[0]), al("a", 1, 4, complete=False), "crosses the cut at 3")


def test_a_waiting_list_that_breaks_a_rule_is_told_when_rel_comes_and_rel_is_not_taken() -> None:
    merge = told(begun(), ROWS[0], across("a", 2, 4))
    refused(merge, ROWS[1], "'a' has no list for number 1", names="ActionList")


# Guarded rows -------------------------------------------------------------------------------------


def guarded(first: int, last: int, views: str) -> RelRun:
    return RelRun(first=first, last=last, views=tuple(views), guarded=True)


@pytest.mark.parametrize("algorithm", ["spa", "pa"])
def test_guarded_rows_keep_their_order_and_others_overtake(algorithm: str) -> None:
    runs = (guarded(1, 1, "a"), RelRun(first=2, last=2, views=("b",)), guarded(3, 3, "b"))
    merge = told(begun(algorithm), Rel(group="g", first=1, last=3, runs=runs), al("b", 2, 3))
    assert ranges(merge) == [((2, 2),)], "T3 may depend on T1 by a relation that no view uses"
    merge = again(merge)
    assert ranges(told(merge, al("a", 1, 1))) == [((1, 1), (3, 3))]


ORDER = (RelRun(first=1, last=1, views=("a", "c")), RelRun(first=2, last=2, views=("b", "c")))
"""T1 on the relations of a and c, T2 on those of b and c: c alone knows that T2 comes after T1."""


def three(algorithm: str, through: tuple[str, ...] = ()) -> MergeMachine:
    """A merge of a, b and c that has shown number 0."""
    machine = MergeMachine("g", tuple("abc"), algorithm, NONE, through=through)  # type: ignore[arg-type]
    merge: MergeMachine = told(machine, rel(0, 0, (0, 0, "abc")))
    told(merge, *(al(view, 0, 0) for view in "abc"))
    assert taken(merge)
    return merge


@pytest.mark.parametrize("algorithm", ["spa", "pa"])
@pytest.mark.parametrize("end", [drop("c", 2), suspend("c", 0)], ids=["dropped", "suspended"])
def test_rows_that_lose_a_view_keep_the_order_it_gave_them(end: object, algorithm: str) -> None:
    merge = told(three(algorithm), Rel(group="g", first=1, last=2, runs=ORDER), end)
    told(merge, al("b", 2, 2))
    assert [batch.parts for batch in iter(merge.take_batch, None) if batch.parts] == []
    saved = as_json(merge.snapshot())
    merge = three(algorithm)
    merge.restore(saved)
    told(merge, al("a", 1, 1))
    assert taken(merge) == ["a1", "b2"]


@pytest.mark.parametrize("algorithm", ["spa", "pa"])
def test_rows_that_come_after_a_suspension_keep_the_order_too(algorithm: str) -> None:
    merge = told(three(algorithm), suspend("c", 0))
    told(merge, Rel(group="g", first=1, last=2, runs=ORDER), al("b", 2, 2))
    assert taken(merge) == []
    assert taken(told(merge, al("a", 1, 1))) == ["a1", "b2"]


@pytest.mark.parametrize("algorithm", ["spa", "pa"])
@pytest.mark.parametrize("late", [False, True], ids=["rel-first", "rel-last"])
def test_rows_that_keep_a_suspended_view_are_in_order_with_those_that_lose_it(
    algorithm: str, late: bool
) -> None:
    """a over q, b over r, c over s; T1 changes q and r, T2 q and s: T2 comes after T1 because of q."""
    runs = (RelRun(first=1, last=1, views=("a", "b")), RelRun(first=2, last=2, views=("a", "c")))
    order = Rel(group="g", first=1, last=2, runs=runs)
    first, then = (al("a", 1, 1), suspend("a", 1)), (al("c", 2, 2),)
    merge = told(three(algorithm), *((*first, order) if late else (order, *first)), *then)
    assert taken(merge) == [], "c2 before b1: no serial schedule shows that"
    assert taken(told(merge, al("b", 1, 1))) == ["a1 b1", "c2"]


def test_a_suspended_view_orders_what_is_ready_and_what_is_submitted_too() -> None:
    runs = (RelRun(first=1, last=1, views=("a", "b")), RelRun(first=2, last=2, views=("a", "c")))
    merge = MergeMachine("g", tuple("abc"), "spa", NONE, discipline="dependent")
    told(merge, rel(0, 0, (0, 0, "abc")), *(al(view, 0, 0) for view in "abc"))
    zero = merge.take_batch()
    assert zero is not None
    merge.committed(zero.sequence)
    told(merge, Rel(group="g", first=1, last=2, runs=runs), al("a", 1, 1), al("b", 1, 1))
    one = merge.take_batch()
    assert one is not None and one.ranges == ((1, 1),)
    told(merge, suspend("a", 1), al("c", 2, 2))
    assert merge.take_batch() is None, "T1 has not committed"
    merge.committed(one.sequence)
    two = merge.take_batch()
    assert two is not None and (two.ranges, two.depends_on) == (((2, 2),), (1, 2))


def test_a_view_that_is_passed_through_keeps_the_order_of_the_others() -> None:
    merge = told(three("pa", ("c",)), Rel(group="g", first=1, last=2, runs=ORDER), al("b", 2, 2))
    assert taken(merge) == []
    saved = as_json(merge.snapshot())
    merge = three("pa", ("c",))
    merge.restore(saved)
    assert merge.snapshot() == saved
    assert taken(told(merge, al("c", 1, 2))) == ["c1", "c2"], "it waits for nobody itself"
    assert taken(told(merge, al("a", 1, 1))) == ["a1", "b2"]
