"""The run-length merge equals the paper per transaction, in every order; PA as printed does not."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from painting_as_printed import Closure, PrintedPa, PrintedSpa
from painting_histories import GROUP, Event, History, history, senders, shuffle

from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.merge.batching import GREEDY, NONE, BatchedTransaction, Batching, bound
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, Suspend

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=400, deadline=None)


def machine(h: History, algorithm: str = "spa", batching: Batching = GREEDY) -> MergeMachine:
    return MergeMachine(GROUP, h.views, algorithm, batching)  # type: ignore[arg-type]


def groups_of(merge: MergeMachine, event: Event) -> list[tuple[int, ...]]:
    """What one message made ready, as groups of numbers."""
    groups: list[tuple[int, ...]] = []
    for spans, together in merge.handle(event):
        numbers = tuple(n for first, last, _ in spans for n in range(first, last + 1))
        groups.extend([numbers] if together else [(n,) for n in numbers])
    return groups


def closure_groups(oracle: Closure, event: Event) -> list[tuple[int, ...]]:
    before = len(oracle.applied)
    match event:
        case Rel():
            for run in event.runs:
                for n in range(run.first, run.last + 1):
                    oracle.rel(n, run.views, run.idle)
        case ActionList():
            oracle.action(event.view, event.first, event.last, event.complete)
        case Suspend():
            oracle.suspend(event.view, event.after)
    oracle.step()
    return oracle.applied[before:]


def printed(oracle: PrintedSpa | PrintedPa, event: Event, h: History) -> set[int]:
    """Feeds a printed algorithm; complete lists number by number."""
    before = len(oracle.applied)
    if isinstance(event, Rel):
        for run in event.runs:
            for n in range(run.first, run.last + 1):
                oracle.rel(n, run.views)
    elif isinstance(event, ActionList):
        numbers = range(event.first, event.last + 1)
        relevant = [n for n in numbers if event.view in h.rels[n].views]
        for n in relevant if event.complete else relevant[-1:]:
            oracle.action(n, event.view)
    return {n for group in oracle.applied[before:] for n in group}


@many
@given(seeds)
def test_spa_over_runs_applies_what_the_printed_spa_applies_after_each_message(seed: int) -> None:
    h = history(seed, idle=False)
    merge = machine(h)
    weak, strong = PrintedSpa(h.views, strong=False), PrintedSpa(h.views, strong=True)
    for event in h.events:
        ready = {n for group in groups_of(merge, event) for n in group}
        assert ready == printed(weak, event, h)
        assert ready == printed(strong, event, h)
    assert len(weak.applied) == len(h.rels)


@many
@given(seeds, st.booleans())
def test_spa_over_runs_equals_the_closure_idle_and_suspended_views_included(
    seed: int, suspend: bool
) -> None:
    h = history(seed, suspend=suspend)
    merge, oracle = machine(h), Closure(h.views)
    for event in h.events:
        assert sorted(groups_of(merge, event)) == sorted(closure_groups(oracle, event))
    assert merge.take_batch() is not None
    assert merge.frontier == len(h.rels) - 1


@many
@given(seeds, st.booleans())
def test_pa_over_runs_equals_the_closure_after_each_message(seed: int, suspend: bool) -> None:
    h = history(seed, strong=True, suspend=suspend)
    merge, oracle = machine(h, "pa"), Closure(h.views)
    for event in h.events:
        assert sorted(groups_of(merge, event)) == sorted(closure_groups(oracle, event))
    assert merge.take_batch() is not None
    assert merge.frontier == len(h.rels) - 1


@many
@given(seeds)
def test_pa_and_spa_agree_where_all_view_managers_are_complete(seed: int) -> None:
    h = history(seed)
    spa, pa = machine(h), machine(h, "pa")
    for event in h.events:
        assert sorted(groups_of(spa, event)) == sorted(groups_of(pa, event))


@many
@given(seeds, st.booleans())
def test_the_same_messages_in_another_order_cover_the_same_numbers(seed: int, pa: bool) -> None:
    h = history(seed, strong=pa)
    other = shuffle(random.Random(seed + 1), senders(h.events))
    final = []
    for events in (h.events, other):
        merge = machine(h, "pa" if pa else "spa")
        for event in events:
            merge.handle(event)
        batch = merge.take_batch()
        assert batch is not None
        final.append((batch.ranges, batch.parts, batch.frontier))
    assert final[0] == final[1]


@many
@example(254243000, True, NONE)  # number 0 goes with 2 and 3, and 1 has been ready before it
@given(seeds, st.booleans(), st.sampled_from([GREEDY, NONE, bound(3, 0), bound(4, 7)]))
def test_parts_apply_each_list_once_and_in_order_and_exactly_on_the_covered_numbers(
    seed: int, pa: bool, batching: Batching
) -> None:
    h = history(seed, strong=pa)
    merge = machine(h, "pa" if pa else "spa", batching)
    rng = random.Random(seed)
    batches: list[BatchedTransaction] = []
    for now, event in enumerate([*h.events, None, None]):
        if event is not None:
            merge.handle(event)
        while rng.random() < 0.7 and (batch := merge.take_batch(now)) is not None:
            batches.append(batch)
    for now in range(1_000, 1_000 + 20 * len(h.rels), 10):
        if (batch := merge.take_batch(now)) is not None:
            batches.append(batch)
    check_batches(h, batches)
    assert merge.cells_by_colour() == dict.fromkeys(("white", "red", "gray", "black"), 0)
    assert not any(merge.vut.lists)


def check_batches(h: History, batches: list[BatchedTransaction]) -> None:
    lists = {f"{e.view}[{e.first}..{e.last}]": e for e in h.events if isinstance(e, ActionList)}
    covered: set[int] = set()
    applied: dict[str, list[int]] = {view: [] for view in h.views}
    for sequence, batch in enumerate(batches, start=1):
        assert batch.sequence == sequence
        new = {n for first, last in batch.ranges for n in range(first, last + 1)}
        assert not new & covered
        covered |= new
        assert set(range(batch.frontier + 1)) <= covered and batch.frontier + 1 not in covered
        assert {n for f, last in batch.ahead for n in range(f, last + 1)} == {
            n for n in covered if n > batch.frontier
        }
        assert [(p.last, p.view) for p in batch.parts] == sorted(
            (p.last, p.view) for p in batch.parts
        )
        for part in batch.parts:
            assert batch.delta(part.list_id) == lists[part.list_id].delta
            busy = [n for n in range(part.first, part.last + 1) if needs(h, part.view, n)]
            assert busy and set(busy) <= new
            applied[part.view] += busy
    assert covered == set(h.rels)
    for view, numbers in applied.items():
        filled = [e for e in lists.values() if e.view == view and e.delta is not None]
        expected = [n for e in filled for n in range(e.first, e.last + 1) if needs(h, view, n)]
        assert numbers == expected


def needs(h: History, view: str, n: int) -> bool:
    return view in h.rels[n].views and view not in h.rels[n].idle


@many
@given(seeds, st.booleans(), st.booleans(), st.sampled_from([GREEDY, NONE, bound(3, 0)]))
def test_a_restart_from_the_snapshot_after_any_message_changes_nothing(
    seed: int, pa: bool, suspend: bool, batching: Batching
) -> None:
    h = history(seed, strong=pa, suspend=suspend)
    algorithm = "pa" if pa else "spa"
    steady, restarted = machine(h, algorithm, batching), machine(h, algorithm, batching)
    rng = random.Random(seed)
    for event in h.events:
        take = rng.random() < 0.5
        for merge in (steady, restarted):
            merge.handle(event)
        if take:
            assert steady.take_batch() == restarted.take_batch()
        saved = as_json(restarted.snapshot())
        assert saved == as_json(steady.snapshot())
        assert steady.table() == restarted.table()
        restarted = machine(h, algorithm, batching)
        restarted.restore(saved)


def test_pa_as_printed_applies_lists_out_of_order_in_some_histories() -> None:
    broken = 0
    for seed in range(2_000):
        h = history(seed, strong=True, idle=False)
        oracle = PrintedPa(h.views)
        for event in h.events:
            printed(oracle, event, h)
        for view in h.views:
            numbers = [n for g in oracle.applied for n in g if view in h.rels[n].views]
            if numbers != sorted(numbers):
                broken += 1
                break
    assert broken > 20, "the printed PA was expected to fail; is the transcription still literal?"


def test_the_printed_pa_loses_example_4() -> None:
    """On AL_3^2 it applies rows 1 and 3 before row 2: V2 gets its list 3 before its list 2."""
    oracle = PrintedPa(["V1", "V2", "V3"])
    for i, rel in ((1, ("V1", "V2")), (2, ("V2", "V3")), (3, ("V1", "V2"))):
        oracle.rel(i, rel)
    for i, view in ((3, "V1"), (1, "V2"), (2, "V2"), (2, "V3")):
        oracle.action(i, view)
    assert oracle.applied == []
    oracle.action(3, "V2")
    assert oracle.applied == [(1, 3), (2,)]


def test_order_prefix_lets_no_row_overtake() -> None:
    overtaken = 0
    for seed in range(300):
        h = history(seed)
        prefix = MergeMachine(GROUP, h.views, "spa", order="prefix")
        free = machine(h)
        for event in h.events:
            prefix.handle(event)
            free.handle(event)
            batch, other = prefix.take_batch(), free.take_batch()
            assert batch is None or batch.ahead == ()
            overtaken += bool(other and other.ahead)
        assert prefix.frontier == len(h.rels) - 1
    assert overtaken


@pytest.mark.parametrize("pa", [False, True])
def test_a_refused_message_changes_nothing(pa: bool) -> None:
    """Every message of a history once more, after it was accepted: a breach each time."""
    for seed in range(200):
        h = history(seed, strong=pa, suspend=True)
        merge = machine(h, "pa" if pa else "spa")
        for event in h.events:
            merge.handle(event)
            before = merge.snapshot()
            with pytest.raises(ProtocolError) as error:
                merge.handle(event)
            assert error.value.code == "PROTOCOL_MERGE"
            assert merge.snapshot() == before
