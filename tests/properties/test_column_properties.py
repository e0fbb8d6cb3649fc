"""Views join and leave in mid-stream: the runs equal the closure, for every arrival order (MVC 1.2)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from painting_columns import Changing, ColumnClosure, changing, join_row
from painting_histories import GROUP

from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.merge.batching import GREEDY, NONE, BatchedTransaction, Batching, bound
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, ViewChange

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=300, deadline=None)


def machine(h: Changing, batching: Batching = GREEDY) -> MergeMachine:
    return MergeMachine(GROUP, h.views, "pa" if h.strong else "spa", batching)


def groups_of(merge: MergeMachine, event: object) -> list[tuple[float, ...]]:
    """What one message made ready, as groups of rows of the oracle."""
    groups: list[tuple[float, ...]] = []
    for spans, together in merge.handle(event):  # type: ignore[arg-type]
        numbers: list[float] = []
        for first, last, shape in spans:
            joins = shape.joins and join_row(shape.names[0], first)
            numbers += [joins] if joins else range(first, last + 1)
        groups.extend([tuple(sorted(numbers))] if together else [(n,) for n in numbers])
    return groups


@many
@given(seeds, st.booleans())
def test_columns_open_and_close_as_the_closure_says(seed: int, strong: bool) -> None:
    h = changing(seed, strong)
    merge, oracle = machine(h), ColumnClosure(h.views)
    for event in h.events:
        before = len(oracle.applied)
        oracle.event(event)
        assert sorted(groups_of(merge, event)) == sorted(oracle.applied[before:])
    assert oracle.rows == []
    batch = merge.take_batch()
    assert batch is not None and merge.frontier == h.last
    assert set(merge.views) == set(h.members)


@many
@given(seeds, st.booleans(), st.sampled_from([GREEDY, NONE, bound(3, 0)]))
def test_a_restart_after_any_message_changes_nothing(
    seed: int, strong: bool, batching: Batching
) -> None:
    h = changing(seed, strong)
    steady, restarted = machine(h, batching), machine(h, batching)
    rng = random.Random(seed)
    for event in h.events:
        assert groups_of(steady, event) == groups_of(restarted, event)
        if rng.random() < 0.5:
            assert steady.take_batch() == restarted.take_batch()
        saved = as_json(restarted.snapshot())
        assert saved == as_json(steady.snapshot())
        restarted = machine(h, batching)
        restarted.restore(saved)


@many
@given(seeds, st.booleans(), st.sampled_from([GREEDY, NONE]))
def test_a_column_shows_whole_content_first_and_never_before_the_others(
    seed: int, strong: bool, batching: Batching
) -> None:
    h = changing(seed, strong)
    merge = machine(h, batching)
    batches: list[BatchedTransaction] = []
    for event in h.events:
        merge.handle(event)  # type: ignore[arg-type]
        while (batch := merge.take_batch()) is not None:
            batches.append(batch)
    shown = dict.fromkeys(h.views, -1)
    applied: dict[str, list[str]] = {view: [] for view in h.views}
    for batch in batches:
        for view, _ in batch.dropped:
            del shown[view], applied[view]
        for view, number in batch.added:
            assert batch.frontier >= number, (
                f"seed {seed}: {view} came before the others at {number}"
            )
            shown[view], applied[view] = number, []
        for part in batch.parts:
            applied[part.view].append(batch.delta(part.list_id).path or "")
    assert shown == h.members, f"seed {seed}"
    for view, number in h.members.items():
        lists = [e for e in h.events if isinstance(e, ActionList) and e.view == view]
        expected = [e.delta.path for e in lists if e.delta and e.first >= number]
        assert list(dict.fromkeys(applied[view])) == expected, f"seed {seed}: {view}"


def test_others_do_not_wait_for_a_view_that_joins() -> None:
    """Without the joining view's first list, rows that do not name it are applied all the same."""
    for seed in range(200):
        h = changing(seed, strong=False)
        late = [e for e in h.events if isinstance(e, ViewChange) and e.change == "add"]
        if not late or any(e.change == "drop" for e in h.events if isinstance(e, ViewChange)):
            continue
        names = {change.view for change in late}
        merge = machine(h)
        for event in h.events:
            if not (isinstance(event, ActionList) and event.view in names):
                merge.handle(event)  # type: ignore[arg-type]
        left = {row.first for row in merge.vut.rows() if row.shape.counts}
        rels = [run for e in h.events if isinstance(e, Rel) for run in e.runs]
        blocked = {n for n in left if not _needs(rels, n, names)}
        assert not blocked, f"seed {seed}: {blocked} wait for {names}"


def _needs(rels: list, number: int, names: set[str]) -> bool:  # type: ignore[type-arg]
    """Whether a row waits for the joining views, itself or through a row above it in a column."""
    waits: set[str] = set(names)
    for run in sorted(rels, key=lambda run: run.first):
        if waits & set(run.views):
            waits |= set(run.views)
            if run.first == number:
                return True
    return False


@pytest.mark.parametrize("strong", [False, True])
def test_a_refused_change_changes_nothing(strong: bool) -> None:
    """Every change once more at another number: a breach each time."""
    tried = 0
    for seed in range(100):
        h = changing(seed, strong)
        merge = machine(h)
        for event in h.events:
            merge.handle(event)  # type: ignore[arg-type]
            if not isinstance(event, ViewChange):
                continue
            before = merge.snapshot()
            for number in {event.number - 1, merge.seen - 1}:
                if number in merge.opened.get(event.view, ()):
                    continue  # an echo
                with pytest.raises(ProtocolError):
                    merge.handle(event.model_copy(update={"number": number}))
                assert merge.snapshot() == before
                tried += 1
    assert tried > 50
