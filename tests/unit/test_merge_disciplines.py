"""Submission disciplines (MVC 4.3): which transactions may run beside which, by the paper's example.

WT1 touches V1 and V2, WT2 touches V3, WT3 touches V2: WT3 depends on WT1, WT2 on neither.
"""

from __future__ import annotations

import pytest
from merge_messages import add, al, drop, rel, told

from streaming.errors import ProtocolError
from streaming.merge.batching import GREEDY, NONE, BatchedTransaction, Batching, bound
from streaming.merge.machine import MergeMachine
from streaming.messages import Rel, RelRun

EXAMPLE = (
    rel(0, 3, (0, 0, ""), (1, 1, "ab"), (2, 2, "c"), (3, 3, "b")),
    *(al("a", 1, 1), al("b", 1, 1), al("c", 2, 2), al("b", 3, 3)),
)
"""V1, V2, V3 are a, b, c."""


def merge_of(discipline: str, batching: Batching = NONE, *messages: object) -> MergeMachine:
    machine = MergeMachine("g", ("a", "b", "c"), "spa", batching, discipline=discipline)  # type: ignore[arg-type]
    merge: MergeMachine = told(machine, *(messages or EXAMPLE))
    if not messages:
        zero = merge.take_batch() if batching == NONE else None
        if zero is not None and discipline != "declared":
            merge.committed(zero.sequence)
    return merge


def submitted(merge: MergeMachine) -> list[tuple[tuple[int, int], ...]]:
    """The numbers of every transaction that may be submitted now."""
    return [batch.ranges for batch in iter(merge.take_batch, None)]


def test_sequential_submits_one_after_the_other_has_committed() -> None:
    merge = merge_of("sequential")
    for sequence, number in ((2, 1), (3, 2), (4, 3)):
        assert submitted(merge) == [((number, number),)]
        assert submitted(merge) == []
        merge.committed(sequence)
    assert submitted(merge) == []
    assert merge.submission.commits.covered.frontier == 3


def test_dependent_runs_wt2_beside_wt1_and_wt3_after_it() -> None:
    merge = merge_of("dependent")
    assert submitted(merge) == [((1, 1),), ((2, 2),)]
    merge.committed(3)
    assert submitted(merge) == [], "WT2 says nothing of WT1"
    assert merge.submission.commits.covered.ahead == [(2, 2)]
    merge.committed(2)
    assert submitted(merge) == [((3, 3),)]
    assert merge.submission.commits.covered.frontier == 2


def test_guarded_rows_depend_on_each_other() -> None:
    """T1 on r, T2 on r and q, T3 on q and s; views over r and s, none over q: T3 comes after T2."""
    runs = (
        RelRun(first=0, last=0, views=("a", "b", "c")),
        RelRun(first=1, last=1, views=("a",)),
        RelRun(first=2, last=2, views=("a",), guarded=True),
        RelRun(first=3, last=3, views=("b",), guarded=True),
    )
    lists = [al(view, 0, 0) for view in "abc"] + [al("a", 1, 1), al("a", 2, 2), al("b", 3, 3)]
    messages = (Rel(group="g", first=0, last=3, runs=runs), *lists)
    declared = list(iter(merge_of("declared", NONE, *messages).take_batch, None))
    assert [batch.depends_on for batch in declared] == [(), (1,), (2,), (1, 3)]
    merge = merge_of("dependent", NONE, *messages)
    for sequence, number in ((1, 0), (2, 1), (3, 2), (4, 3)):
        assert submitted(merge) == [((number, number),)]
        merge.committed(sequence)


def test_a_state_that_does_not_say_what_guarded_rows_come_after_makes_them_wait_for_all() -> None:
    runs = (RelRun(first=1, last=1, views=("b",)), RelRun(first=2, last=2, views=("c",)))
    merge = merge_of("declared", NONE, rel(0, 0, (0, 0, "abc")), *(al(v, 0, 0) for v in "abc"))
    told(merge, Rel(group="g", first=1, last=2, runs=runs), al("b", 1, 1), al("c", 2, 2))
    assert submitted(merge) == [((0, 0),), ((1, 1),), ((2, 2),)]
    saved = merge.snapshot()
    del saved["guard"], saved["initial"]
    merge = merge_of("declared", NONE, rel(0, 0, (0, 0, "abc")))
    merge.restore(saved)
    guarded = RelRun(first=3, last=3, views=("a",), guarded=True)
    told(merge, Rel(group="g", first=3, last=3, runs=(guarded,)), al("a", 3, 3))
    batch = merge.take_batch()
    assert batch is not None and batch.depends_on == (1, 2, 3)


def test_dependent_holds_back_what_depends_on_something_held_back() -> None:
    """4 touches V2 and V3: it waits for WT3, which waits for WT1, though WT2 has committed."""
    merge = merge_of("dependent")
    told(merge, rel(4, 5, (4, 4, "bc"), (5, 5, "c")))
    told(merge, al("b", 4, 4), al("c", 4, 4), al("c", 5, 5))
    assert submitted(merge) == [((1, 1),), ((2, 2),)]
    merge.committed(3)
    assert submitted(merge) == [], "5 touches only V3, and must not overtake 4"
    merge.committed(2)
    assert submitted(merge) == [((3, 3),)]
    merge.committed(4)
    assert submitted(merge) == [((4, 4),)]


def test_batching_wt1_and_wt2_makes_wt3_and_what_follows_wt2_depend_on_the_batch() -> None:
    merge = merge_of("dependent", bound(3, 0))
    told(merge, rel(4, 4, (4, 4, "c")), al("c", 4, 4))
    assert submitted(merge) == [((0, 2),)], "0 is empty, so the batch is WT1 and WT2"
    merge.committed(1)
    assert submitted(merge) == [((3, 4),)]


def test_greedy_batches_take_all_that_is_free() -> None:
    merge = merge_of("dependent", GREEDY, EXAMPLE[0])
    assert submitted(merge) == [((0, 0),)]
    told(merge, EXAMPLE[3])
    assert submitted(merge) == [], "everything waits for number 0"
    merge.committed(1)
    told(merge, *EXAMPLE[1:3])
    assert submitted(merge) == [((1, 2),)]
    told(merge, EXAMPLE[4])
    assert submitted(merge) == [], "WT3 waits for the batch"
    merge.committed(2)
    assert submitted(merge) == [((3, 3),)]


def test_declared_submits_all_with_their_dependencies() -> None:
    merge = merge_of("declared")
    batches = list(iter(merge.take_batch, None))
    assert [(batch.ranges[0][0], batch.depends_on) for batch in batches] == [
        (1, (1,)),
        (2, (1,)),
        (3, (2,)),
    ]


def test_a_view_joins_after_everything_its_content_reflects_has_committed() -> None:
    merge = merge_of("dependent", NONE, rel(0, 1, (0, 0, ""), (1, 1, "a")), add("d", 1))
    told(merge, rel(2, 2, (2, 2, "b")))
    assert submitted(merge) == [((0, 0),)]
    merge.committed(1)
    told(merge, al("a", 1, 1), al("d", 1, 1), al("b", 2, 2))
    assert submitted(merge) == [((1, 1),), ((2, 2),)], "d waits for 1; 2 does not concern it"
    merge.committed(2)
    batch = merge.take_batch()
    assert batch is not None and batch.added == (("d", 1),)


def test_a_column_closes_after_its_last_transaction_has_committed() -> None:
    merge = merge_of("dependent", NONE, rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0))
    assert submitted(merge) == [((0, 0),)]
    told(merge, drop("b", 0))
    assert submitted(merge) == []
    merge.committed(1)
    batch = merge.take_batch()
    assert batch is not None and batch.dropped == (("b", 0),)


def test_nothing_goes_ahead_of_a_column_that_is_to_close() -> None:
    """T1 on p, T2 on p and s, views over each; with one view left REL says nothing of p any more."""
    merge = merge_of("dependent", NONE, rel(0, 0, (0, 0, "ab")), al("a", 0, 0), al("b", 0, 0))
    assert submitted(merge) == [((0, 0),)]
    told(merge, rel(1, 1, (1, 1, "a")), drop("a", 1), rel(2, 2, (2, 2, "b")), al("b", 2, 2))
    assert submitted(merge) == []
    merge.committed(1)
    batch = merge.take_batch()
    assert batch is not None and batch.dropped == (("a", 1),)
    assert merge.take_batch() is None, "a, without T1, is shown until this has committed"
    merge.committed(2)
    assert submitted(merge) == [((2, 2),)]


@pytest.mark.parametrize("discipline", ["sequential", "dependent", "declared"])
@pytest.mark.parametrize("sequence", [0, 2, 7])
def test_a_commit_that_is_not_waited_for_is_refused(discipline: str, sequence: int) -> None:
    """0 and 7 were never submitted, 2 has committed already (or never says so, declared)."""
    merge = merge_of(discipline)
    assert isinstance(merge.take_batch(), BatchedTransaction)
    if discipline != "declared":
        merge.committed(2)
    before = merge.snapshot()
    with pytest.raises(ProtocolError, match=f"commit of {sequence} in group 'g'") as error:
        merge.committed(sequence)
    assert error.value.code == "PROTOCOL_MERGE"
    assert merge.snapshot() == before
