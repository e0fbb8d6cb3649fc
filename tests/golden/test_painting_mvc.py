"""Golden examples of painting-mvc (Zhuge, Wiener, Garcia-Molina): 1, 2, 3, 4, 4.3, 5 and 6.2.

The paper's updates are numbered from 1; number 0 is the initial state here, so each example begins
with an empty REL for 0. AL_i^x of the paper is `al(x, i)`; one that covers several updates is
`al(x, first, last)`.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from streaming.merge.batching import NONE, BatchedTransaction, Batching, bound
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun, Rows


def rel(number: int, *views: str, last: int | None = None) -> Rel:
    last = number if last is None else last
    return Rel(
        group="g",
        first=number,
        last=last,
        runs=(RelRun(first=number, last=last, views=views),),
    )


def rels(*sets: tuple[str, ...]) -> Rel:
    """REL_1, REL_2, ... before one cut: lists may cover several of them."""
    runs = tuple(RelRun(first=i, last=i, views=views) for i, views in enumerate(sets, start=1))
    return Rel(group="g", first=1, last=len(sets), runs=runs)


def al(view: str, first: int, last: int | None = None, complete: bool = True) -> ActionList:
    last = first if last is None else last
    delta = Rows(rows=1, path=f"{view}-{last}")
    return ActionList(group="g", view=view, first=first, last=last, complete=complete, delta=delta)


def merge_of(*views: str, algorithm: str = "spa", batching: Batching = NONE) -> MergeMachine:
    """A merge that has seen the initial state; each warehouse transaction by itself."""
    merge = MergeMachine("g", views, algorithm, batching)  # type: ignore[arg-type]
    merge.handle(rel(0))
    assert merge.take_batch() is not None
    return merge


def colours(merge: MergeMachine) -> list[str]:
    """The VUT's rows as the paper prints them, without the runs."""
    rows = [row for row in merge.table() for _ in range(row.first, row.last + 1)]
    return [" ".join(row.colours) for row in rows]


def states(merge: MergeMachine) -> list[str]:
    """The same with the state, as in Example 5: (w,0)(r,1)(b,0); a black cell's state is 0."""
    return [
        "".join(
            f"({colour},{state})" for colour, state in zip(row.colours, row.states, strict=True)
        )
        for row in merge.table()
    ]


def applied(batch: BatchedTransaction | None) -> list[str]:
    """The lists of one warehouse transaction as "view-last"."""
    assert batch is not None
    return [str(batch.delta(part.list_id).path) for part in batch.parts]


def submit(merge: MergeMachine) -> list[list[str]]:
    """All warehouse transactions that are due."""
    taken = []
    while (batch := merge.take_batch()) is not None:
        taken.append(applied(batch))
    return taken


def test_example_1_both_views_move_at_once_for_every_order_of_the_messages() -> None:
    """V1 = R join S, V2 = S join T; insert S(2,3): ({}, {}), then both; never V1 alone."""
    rows = {"V1-1": ("V1", (1, 2, 3)), "V2-1": ("V2", (2, 3, 4))}
    for order in permutations([rel(1, "V1", "V2"), al("V1", 1), al("V2", 1)]):
        merge = merge_of("V1", "V2")
        contents: dict[str, set[tuple[int, ...]]] = {"V1": set(), "V2": set()}
        seen = []
        for message in order:
            merge.handle(message)
            for lists in submit(merge):
                for name in lists:
                    view, row = rows[name]
                    contents[view].add(row)
            seen.append((set(contents["V1"]), set(contents["V2"])))
        assert seen == [(set(), set()), (set(), set()), ({(1, 2, 3)}, {(2, 3, 4)})]


def test_example_2_the_vut_before_and_after_al_1_2() -> None:
    """V1(R,S) V2(S,T,Q) V3(Q); U1 on S, U2 on Q."""
    merge = merge_of("V1", "V2", "V3")
    merge.handle(rel(1, "V1", "V2"))
    merge.handle(rel(2, "V2", "V3"))
    assert colours(merge) == ["w w b", "b w w"]
    assert [row.lists for row in merge.table()] == [(), ()]
    merge.handle(al("V2", 1))
    assert colours(merge) == ["w r b", "b w w"]
    assert [row.lists for row in merge.table()] == [("V2[1..1]",), ()]
    merge.handle(al("V1", 1))
    assert colours(merge) == ["g g b", "b w w"]
    assert submit(merge) == [["V1-1", "V2-1"]]
    assert colours(merge) == ["b w w"]


def test_example_3_spa_row_2_overtakes_and_row_3_waits_for_row_1() -> None:
    """V1 = R join S, V2 = S join T, V3 = Q; U1 on S, U2 on Q, U3 on T."""
    merge = merge_of("V1", "V2", "V3")
    merge.handle(rel(1, "V1", "V2"))
    assert colours(merge) == ["w w b"]
    merge.handle(al("V2", 1))
    assert colours(merge) == ["w r b"]
    merge.handle(rel(2, "V3"))
    merge.handle(rel(3, "V2"))
    assert colours(merge) == ["w r b", "b b w", "b w b"]
    assert submit(merge) == []
    merge.handle(al("V3", 2))
    assert colours(merge) == ["w r b", "b b g", "b w b"]
    batch = merge.take_batch()
    assert applied(batch) == ["V3-2"]
    assert batch is not None and (batch.frontier, batch.ahead) == (0, ((2, 2),))
    assert colours(merge) == ["w r b", "b w b"]
    merge.handle(al("V2", 3))
    assert colours(merge) == ["w r b", "b r b"]
    assert submit(merge) == [], "V2's row 1 is still red"
    merge.handle(al("V1", 1))
    assert colours(merge) == ["g g b", "b g b"]
    assert submit(merge) == [["V1-1", "V2-1"], ["V2-3"]]
    assert colours(merge) == []
    assert merge.frontier == 3


def test_section_4_3_wt3_depends_on_wt1_and_wt2_on_neither() -> None:
    merge = merge_of("V1", "V2", "V3")
    for message in (
        rels(("V1", "V2"), ("V3",), ("V2",)),
        *(al("V1", 1), al("V2", 1), al("V3", 2), al("V2", 3)),
    ):
        merge.handle(message)
    batches = [merge.take_batch() for _ in range(3)]
    depends = {batch.ranges[0][0]: batch.depends_on for batch in batches if batch is not None}
    sequence = {batch.ranges[0][0]: batch.sequence for batch in batches if batch is not None}
    initial = 1  # number 0, which the paper does not have; all depend on it
    assert depends == {1: (initial,), 2: (initial,), 3: (sequence[1],)}


def test_section_4_3_batching_wt1_and_wt2_makes_wt3_depend_on_the_batch() -> None:
    merge = merge_of("V1", "V2", "V3", batching=bound(2, 0))
    for message in (
        rels(("V1", "V2"), ("V3",), ("V2",)),
        *(al("V1", 1), al("V2", 1), al("V3", 2), al("V2", 3)),
    ):
        merge.handle(message)
    first, second = merge.take_batch(), merge.take_batch()
    assert applied(first) == ["V1-1", "V2-1", "V3-2"]
    assert applied(second) == ["V2-3"]
    assert first is not None and second is not None
    assert second.depends_on == (first.sequence,)


def test_section_4_3_dependent_submission_runs_wt2_beside_wt1_and_never_wt3_before_it() -> None:
    merge = MergeMachine("g", ("V1", "V2", "V3"), batching=NONE, discipline="dependent")
    for message in (
        rel(0),
        rels(("V1", "V2"), ("V3",), ("V2",)),
        *(al("V1", 1), al("V2", 1), al("V3", 2), al("V2", 3)),
    ):
        merge.handle(message)
    initial = merge.take_batch()
    assert initial is not None and initial.ranges == ((0, 0),)
    merge.committed(initial.sequence)
    running = {batch.ranges[0][0]: batch.sequence for batch in iter(merge.take_batch, None)}
    assert set(running) == {1, 2}
    merge.committed(running[2])
    assert merge.take_batch() is None
    merge.committed(running[1])
    batch = merge.take_batch()
    assert batch is not None and batch.ranges == ((3, 3),)


def example_4(merge: MergeMachine) -> None:
    """V1(R,S) V2(S,T,Q) V3(Q); U1 on S, U2 on Q, U3 on S; AL_3^1 covers U1 and U3."""
    merge.handle(rels(("V1", "V2"), ("V2", "V3"), ("V1", "V2")))
    assert colours(merge) == ["w w b", "b w w", "w w b"]
    merge.handle(al("V1", 1, 3, complete=False))
    assert colours(merge) == ["r w b", "b w w", "r w b"]
    merge.handle(al("V2", 1, complete=False))
    merge.handle(al("V2", 2, complete=False))
    merge.handle(al("V3", 2, complete=False))


def test_example_4_intertwined_rows_are_applied_in_one_transaction() -> None:
    merge = merge_of("V1", "V2", "V3", algorithm="pa")
    example_4(merge)
    assert colours(merge) == ["r r b", "b r r", "r w b"]
    assert submit(merge) == []
    merge.handle(al("V2", 3, complete=False))
    assert submit(merge) == [["V2-1", "V2-2", "V3-2", "V1-3", "V2-3"]]
    assert colours(merge) == []


def test_example_4_spa_refuses_a_list_that_is_not_complete() -> None:
    merge = merge_of("V1", "V2", "V3")
    with pytest.raises(Exception, match="SPA takes lists of complete view managers only"):
        example_4(merge)


def test_example_5_pa_row_1_goes_alone_and_rows_2_and_3_together() -> None:
    """V1(R,S) V2(S,T,Q) V3(Q); U1 on S, U2 and U3 on Q."""
    merge = merge_of("V1", "V2", "V3", algorithm="pa")
    merge.handle(rels(("V1", "V2"), ("V2", "V3"), ("V2", "V3")))
    assert states(merge) == ["(w,0)(w,0)(b,0)", "(b,0)(w,0)(w,0)", "(b,0)(w,0)(w,0)"]
    merge.handle(al("V2", 1, complete=False))
    merge.handle(al("V2", 2, 3, complete=False))
    assert states(merge) == ["(w,0)(r,1)(b,0)", "(b,0)(r,3)(w,0)", "(b,0)(r,3)(w,0)"]
    merge.handle(al("V3", 2, complete=False))
    assert states(merge) == ["(w,0)(r,1)(b,0)", "(b,0)(r,3)(r,2)", "(b,0)(r,3)(w,0)"]
    assert submit(merge) == []
    merge.handle(al("V1", 1, complete=False))
    assert submit(merge) == [["V1-1", "V2-1"]]
    assert states(merge) == ["(b,0)(r,3)(r,2)", "(b,0)(r,3)(w,0)"]
    merge.handle(al("V3", 3, complete=False))
    assert submit(merge) == [["V3-2", "V2-3", "V3-3"]]
    assert colours(merge) == []


def test_section_6_2_a_transaction_over_two_views_shows_in_one_commit() -> None:
    """V1 = R, V2 = S; one transaction inserts into both."""
    for order in permutations([rel(1, "V1", "V2"), al("V1", 1), al("V2", 1)]):
        merge = merge_of("V1", "V2")
        commits = []
        for message in order:
            merge.handle(message)
            commits += submit(merge)
        assert commits == [["V1-1", "V2-1"]]


def test_section_6_2_a_global_transaction_over_two_databases_shows_in_one_commit() -> None:
    """R at north, S at south under one global transaction: the integrator gives it one number.

    Neighbours that touch one view only go by themselves before and after it.
    """
    merge = merge_of("north_r", "south_s")
    merge.handle(rels(("north_r",), ("north_r", "south_s"), ("south_s",)))
    merge.handle(al("south_s", 1, 3))
    assert submit(merge) == []
    merge.handle(al("north_r", 1, 3))
    commits = [batch.ranges for batch in iter(merge.take_batch, None)]
    assert commits == [((1, 1),), ((2, 2),), ((3, 3),)]
