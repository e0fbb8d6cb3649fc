"""Cuts bound PA's closures under endless load; without them it starves (PAPERS 1; DESIGN 5, cuts).

Three strong managers, all in every REL, with lists of about ten numbers that end where they please.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from painting_histories import GROUP, rows

from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun

VIEWS = ("v1", "v2", "v3")


def lists(rng: random.Random, view: str, first: int, last: int) -> Iterator[ActionList]:
    """A strong manager's lists of about ten numbers over [first..last]."""
    while first <= last:
        end = min(last, first + rng.randint(7, 12))
        yield ActionList(
            group=GROUP,
            view=view,
            first=first,
            last=end,
            complete=False,
            delta=rows(f"{view}-{first}"),
        )
        first = end + 1


def rel(rng: random.Random, first: int, last: int, all_views: bool) -> Rel:
    runs = []
    for n in range(first, last + 1):
        named = VIEWS if all_views else tuple(v for v in VIEWS if rng.random() < 0.7)
        runs.append(RelRun(first=n, last=n, views=named))
    return Rel(group=GROUP, first=first, last=last, runs=tuple(runs))


def sizes(ready: object) -> list[int]:
    """Numbers in each warehouse transaction."""
    return [
        sum(last - first + 1 for first, last, _ in spans) if together else 1
        for spans, together in ready  # type: ignore[attr-defined]
    ]


def test_without_cuts_150_numbers_end_up_in_one_warehouse_transaction() -> None:
    alone = 0
    for seed in range(40):
        rng = random.Random(seed)
        merge = MergeMachine(GROUP, VIEWS, "pa")
        merge.handle(rel(rng, 0, 149, all_views=True))
        sent = [message for view in VIEWS for message in lists(rng, view, 0, 149)]
        found = [
            size
            for message in sorted(sent, key=lambda m: m.last)
            for size in sizes(merge.handle(message))
        ]
        assert sum(found) == 150
        alone += found == [150]
    assert alone > 25, "all of it waited for the last list of all"


def test_without_cuts_nothing_is_committed_as_long_as_the_load_goes_on() -> None:
    """The REL of 1,500 numbers without a cut: what is applied lags further and further behind."""
    rng = random.Random(7)
    merge = MergeMachine(GROUP, VIEWS, "pa")
    merge.handle(rel(rng, 0, 1_499, all_views=True))
    sent = [message for view in VIEWS for message in lists(rng, view, 0, 1_499)]
    largest, lag = 0, 0
    for message in sorted(sent, key=lambda m: m.last):
        largest = max([largest, *sizes(merge.handle(message))])
        merge.take_batch()
        lag = max(lag, message.last - merge.frontier)
    assert largest > 150 and lag > 150


@pytest.mark.parametrize("seed", range(12))
def test_with_cuts_every_closure_is_bounded_and_something_is_always_committed(seed: int) -> None:
    """2,000 numbers, cuts 1 to 40 apart, the managers up to three cuts apart from each other."""
    rng = random.Random(seed)
    merge = MergeMachine(GROUP, VIEWS, "pa")
    by_number: dict[int, int] = {}
    queues: dict[str, list[ActionList]] = {view: [] for view in VIEWS}
    done = dict.fromkeys(VIEWS, -1)
    first = 0
    while first < 2_000:
        last = first + rng.randint(0, 39)
        message = rel(rng, first, last, all_views=False)
        by_number |= dict.fromkeys(range(first, last + 1), last - first + 1)
        apply(merge, message, by_number, seed)
        for view in VIEWS:
            busy = [run.first for run in message.runs if view in run.views]
            queues[view] += trimmed(rng, view, busy)
        for view in VIEWS:
            while (queues[view] and queues[view][0].first < last - 80) or rng.random() < 0.7:
                if not queues[view]:
                    break
                apply(merge, queues[view].pop(0), by_number, seed)
            done[view] = queues[view][0].first - 1 if queues[view] else last
        merge.take_batch()
        cut = max((c for c in cuts(by_number) if c <= min(done.values())), default=-1)
        assert merge.frontier >= cut, f"seed {seed}: all lists to {cut} are there"
        first = last + 1
    assert merge.frontier > 1_850, f"seed {seed}"


def apply(
    merge: MergeMachine, message: Rel | ActionList, by_number: dict[int, int], seed: int
) -> None:
    for spans, together in merge.handle(message):
        if together:
            numbers = [n for first, last, _ in spans for n in range(first, last + 1)]
            between = by_number[numbers[0]]
            assert len(numbers) <= between, f"seed {seed}: {numbers} is longer than its cut"


def trimmed(rng: random.Random, view: str, busy: list[int]) -> Iterator[ActionList]:
    """Lists of about ten numbers that tile the numbers at which the view has work."""
    while busy:
        size = min(len(busy), rng.randint(7, 12))
        yield ActionList(
            group=GROUP,
            view=view,
            first=busy[0],
            last=busy[size - 1],
            complete=False,
            delta=rows(f"{view}-{busy[0]}"),
        )
        busy = busy[size:]


def cuts(by_number: dict[int, int]) -> Iterator[int]:
    """The last numbers of the REL messages."""
    at = 0
    while at in by_number:
        at += by_number[at]
        yield at - 1
