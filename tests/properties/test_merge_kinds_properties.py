"""Complete-N, mixed and convergent managers (MVC 6.3) against the oracles, in every arrival order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from painting_as_printed import Closure, PrintedSpa
from painting_histories import GROUP, Event, History, history, rows, shuffle

from streaming.durable import as_json
from streaming.merge.batching import NONE
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, Suspend

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=300, deadline=None)


def groups(ready: object) -> list[tuple[int, ...]]:
    """What one message made ready, as groups of numbers."""
    found: list[tuple[int, ...]] = []
    for spans, together in ready:  # type: ignore[attr-defined]
        numbers = tuple(n for first, last, _ in spans for n in range(first, last + 1))
        found.extend([numbers] if together else [(n,) for n in numbers])
    return sorted(found)


# complete-N ---------------------------------------------------------------------------------------


def by_blocks(seed: int, idle: bool) -> tuple[History, int, dict[int, list[int]]]:
    """A history whose managers send one list for each block of N, N itself, and block -> numbers."""
    h = history(seed, idle=idle)
    rng = random.Random(seed)
    every = rng.randint(1, 4)
    blocks: dict[int, list[int]] = {}
    for n in h.rels:
        blocks.setdefault(-(-n // every), []).append(n)
    if len(blocks[max(blocks)]) < every and max(blocks):
        del blocks[max(blocks)]  # it never becomes whole
    queues: list[list[Event]] = [[event for event in h.events if isinstance(event, Rel)]]
    for view in h.views:
        lists: list[Event] = []
        for numbers in blocks.values():
            busy = [n for n in numbers if needs(h, view, n)]
            if busy:
                first, last = rng.randint(numbers[0], busy[0]), rng.randint(busy[-1], numbers[-1])
                lists.append(
                    ActionList(
                        group=GROUP,
                        view=view,
                        first=first,
                        last=last,
                        complete=False,
                        delta=rows(f"{view}-{first}"),
                    )
                )
        queues.append(lists)
    return History(h.views, h.rels, shuffle(rng, queues)), every, blocks


def needs(h: History, view: str, n: int) -> bool:
    return view in h.rels[n].views and view not in h.rels[n].idle


def whole_blocks(
    h: History, blocks: dict[int, list[int]], rel: Rel
) -> Iterator[tuple[int, set[str], set[str]]]:
    """(block, views, views without work) for the blocks that a REL message makes whole."""
    for k, numbers in blocks.items():
        if rel.first <= numbers[-1] <= rel.last:
            views = {view for n in numbers for view in h.rels[n].views}
            yield k, views, {v for v in views if not any(needs(h, v, n) for n in numbers)}


@many
@given(seeds)
def test_complete_n_is_the_printed_spa_with_blocks_for_numbers(seed: int) -> None:
    h, every, blocks = by_blocks(seed, idle=False)
    merge, oracle = BlockMerge(GROUP, h.views, every), PrintedSpa(h.views, strong=True)
    for event in h.events:
        before = len(oracle.applied)
        if isinstance(event, Rel):
            for k, views, _ in whole_blocks(h, blocks, event):
                oracle.rel(k, views)
        elif isinstance(event, ActionList):
            oracle.action(-(-event.first // every), event.view)
        expected = [tuple(blocks[k]) for (k,) in oracle.applied[before:]]  # type: ignore[misc]
        assert groups(merge.handle(event)) == sorted(expected), f"seed {seed}"
    assert len(oracle.applied) == len(blocks)


@many
@given(seeds)
def test_complete_n_shows_every_nth_state_in_order_per_view_and_restarts(seed: int) -> None:
    h, every, blocks = by_blocks(seed, idle=True)
    merge, oracle = BlockMerge(GROUP, h.views, every, NONE), Closure(h.views)
    shown: list[tuple[int, int]] = []
    for event in h.events:
        before = len(oracle.applied)
        if isinstance(event, Rel):
            for k, views, idle in whole_blocks(h, blocks, event):
                oracle.rel(k, views, idle)
        elif isinstance(event, ActionList):
            k = -(-event.first // every)
            oracle.action(event.view, k, k, True)
        oracle.step()
        expected = [tuple(blocks[k]) for (k,) in oracle.applied[before:]]  # type: ignore[misc]
        assert groups(merge.handle(event)) == sorted(expected), f"seed {seed}"
        for batch in iter(merge.take_batch, None):
            shown += batch.ranges
            for part in batch.parts:
                assert part.last - part.first < every and part.last == batch.ranges[-1][1]
        again = BlockMerge(GROUP, h.views, every, NONE)
        again.restore(as_json(merge.snapshot()))
        assert again.snapshot() == merge.snapshot()
        merge = again
    assert sorted(shown) == [(numbers[0], numbers[-1]) for numbers in blocks.values()]


# convergent and mixed -----------------------------------------------------------------------------


@many
@given(seeds, st.booleans())
def test_convergent_views_hold_nobody_back_and_nobody_holds_them_back(
    seed: int, suspend: bool
) -> None:
    """Each convergent view is as if alone, and the others too, but for the order of its rows."""
    h = history(seed, strong=True, suspend=suspend)
    rng = random.Random(seed)
    through = tuple(view for view in h.views if rng.random() < 0.5)
    merge = MergeMachine(GROUP, h.views, "pa", through=through)
    painted = [view for view in h.views if view not in through]
    oracles = {view: Closure([view]) for view in through} | {"": Painted(painted)}
    for event in h.events:
        expected: list[tuple[int, ...]] = []
        for name, oracle in oracles.items():
            views = [name] if name else painted
            before = len(oracle.applied)
            feed(oracle, event, views)
            found = oracle.applied[before:]
            shown = [g for g in found if not name or oracle.colour[g[0], name] != "black"]
            expected += shown
        assert groups(merge.handle(event)) == sorted(expected), f"seed {seed}"
    assert merge.take_batch() is not None
    assert merge.frontier == merge.settled == len(h.rels) - 1


class Painted(Closure):
    """The closure over the views that are not passed through; their rows are in order by those too."""

    def __init__(self, views: Iterable[str]) -> None:
        super().__init__(views)
        self.uses: dict[int, set[str]] = {}
        self.ended: set[str] = set()

    def named(self, i: int, views: set[str]) -> None:
        self.uses[i] = views
        if (views & set(self.views) and views - set(self.views)) or views & self.ended:
            self.lost.add(i)

    def ends(self, view: str) -> None:
        self.ended.add(view)
        self.lost |= {i for i in self.rows if view in self.uses[i]}


def feed(oracle: Closure, event: Event, views: list[str]) -> None:
    match event:
        case Rel():
            for run in event.runs:
                named = set(run.views) & set(views)
                for n in range(run.first, run.last + 1):
                    oracle.rel(n, named, set(run.idle) & named)
                    if isinstance(oracle, Painted):
                        oracle.named(n, set(run.views))
        case ActionList() if event.view in views:
            oracle.action(event.view, event.first, event.last, event.complete)
        case Suspend():
            if isinstance(oracle, Painted):
                oracle.ends(event.view)
            if event.view in views:
                oracle.suspend(event.view, event.after)
    oracle.step()


@many
@given(seeds)
def test_a_complete_managers_list_counts_as_one_list_per_number(seed: int) -> None:
    """Complete, strong and periodic managers in one group: [a..b] is a, a + 1, ..., b."""
    h = history(seed, strong=True)
    whole, single = (MergeMachine(GROUP, h.views, "pa") for _ in range(2))
    for event in h.events:
        expected = groups(whole.handle(event))
        if isinstance(event, ActionList) and event.complete:
            numbers = [n for n in range(event.first, event.last + 1) if needs(h, event.view, n)]
            found = []
            for n in numbers:
                found += groups(single.handle(event.model_copy(update={"first": n, "last": n})))
        else:
            found = groups(single.handle(event))
        assert {n for g in found for n in g} == {n for g in expected for n in g}, f"seed {seed}"
