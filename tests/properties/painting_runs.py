"""Plays a random history of a merge group (`painting_worlds`) and judges what the warehouse shows.

`Warehouse` judges by base facts: which transactions share a relation, and which columns a reader sees. It
knows neither the VUT nor its guards. `play` runs a machine beside one that is made anew from its snapshot
after every message, and gives that one messages that are none of the history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from painting_worlds import NAMES, Column, Sent, World

from streaming.errors import ProtocolError
from streaming.merge.algorithms import founded_like
from streaming.merge.batching import BatchedTransaction, Batching
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import Event, MergeMachine
from streaming.messages import ActionList, Rel, Suspend, ViewChange

Merge = MergeMachine | BlockMerge


class Warehouse:
    """What the commits have made visible so far.

    The judgement of a commit is made with the suspensions that were known when its batch was made.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.before = world.before()
        self.committed: set[int] = set()
        self.shown: dict[str, int] = {c.view: -1 for c in world.columns if c.number < 0}
        self.parts: dict[tuple[str, int], list[str]] = {}

    def commit(self, batch: BatchedTransaction, ends: dict[Column, int]) -> None:
        """One commit.

        Args:
            ends: the columns that were suspended when the batch was made, with their last good number.
        """
        for view, _ in batch.dropped:
            del self.shown[view]
        for view, number in batch.added:
            self.shown[view] = number
        new = {n for first, last in batch.ranges for n in range(first, last + 1)}
        assert not new & self.committed, f"{sorted(new & self.committed)} are committed twice"
        self.committed |= new
        assert not new or 0 in self.committed, "a state without the initial one"
        for j in sorted(new):
            if self.seen(j, ends):
                self._complete(f"T{j} shows", self.before[j], ends)
        for view, number in batch.added:
            self._complete(f"{view} joins at {number}", set(range(number + 1)), ends)
        for part in batch.parts:
            assert part.view in self.shown, f"rows of {part.list_id} for a view that is not there"
            applied = self.parts.setdefault((part.view, self.shown[part.view]), [])
            path = batch.delta(part.list_id).path or ""
            if applied[-1:] != [path]:
                assert path not in applied, f"{path} comes after a later list"
                applied.append(path)

    def _complete(self, what: str, before: set[int], ends: dict[Column, int]) -> None:
        missing = [i for i in sorted(before - self.committed) if self.seen(i, ends)]
        assert not missing, f"{what} without T{missing}, which every schedule has before it"

    def seen(self, n: int, ends: dict[Column, int]) -> bool:
        """Whether a view that promises an order shows, or will show, a transaction."""
        return any(
            column.orders
            and self.shown.get(column.view) == column.number
            and n <= ends.get(column, n)
            for column in self.world.named[n]
        )


def ends_of(world: World, delivered: list[Sent]) -> dict[Column, int]:
    """Columns that are suspended, with their last good number: of whole blocks in a complete-N group."""
    ends: dict[Column, int] = {}
    for sent in delivered:
        if isinstance(sent.event, Suspend) and sent.column is not None:
            after, every = sent.event.after, world.every
            if every is not None:
                lists = [s.event.last for s in sent.column.queue if isinstance(s.event, ActionList)]
                blocks = [after // every, *(-(-last // every) for last in lists)]
                after = max(blocks) * every
            ends[sent.column] = after
    return ends


def told(ready: Any) -> list[Any]:
    """What a message made ready, as values."""
    return [
        ([(s.first, s.last, s.shape.kind, s.shape.names) for s in spans], together)
        for spans, together in ready
    ]


def written(merge: Merge) -> str:
    """The state as text; in which order an object has its members says nothing."""
    return json.dumps(merge.snapshot(), sort_keys=True)


def again(make: Any, saved: str) -> Merge:
    """A new machine with the saved state: made as the first one was, or as the state says."""
    state = json.loads(saved)
    fresh: Merge = make()
    if len(saved) % 2:
        fresh = founded_like(fresh, state)
    fresh.restore(state)
    assert written(fresh) == saved
    return fresh


def strangers(world: World, rng: random.Random) -> Iterator[Event]:
    """Messages that the history does not have here: others of it, and what it has with other numbers."""
    while True:
        event = rng.choice(world.events).event
        shift = rng.choice((-3, -2, -1, 0, 1, 2))
        view = rng.choice(NAMES)
        match event:
            case Rel():
                first = event.first + shift
                runs = [
                    run.model_copy(update={"first": run.first + shift, "last": run.last + shift})
                    for run in event.runs
                ]
                runs[-1] = runs[-1].model_copy(update={"views": (view,), "idle": ()})
                moved = {"first": first, "last": event.last + shift, "runs": tuple(runs)}
                yield event.model_copy(update=moved)
            case ActionList():
                last = event.last + shift + rng.choice((0, 0, 0, 1))
                complete = rng.choice((event.complete, not event.complete))
                moved = {"first": event.first + shift, "last": last, "complete": complete}
                yield event.model_copy(update={**moved, "view": rng.choice((view, event.view))})
            case Suspend():
                yield event.model_copy(update={"after": event.after + shift, "view": view})
            case ViewChange():
                change = rng.choice(("add", "drop"))
                moved = {"number": event.number + shift, "change": change, "view": view}
                yield event.model_copy(update=moved)


def play(
    world: World, batching: Batching, order: str, discipline: Discipline, *, restarts: bool
) -> int:
    """Plays the history and judges every commit, in an order of commits that the discipline allows.

    Args:
        restarts: a second machine is restarted after every message, and hears messages that are none.

    Returns:
        how many messages were refused.
    """

    def make() -> Merge:
        return world.machine(batching, order, discipline)

    rng = random.Random(f"{world.seed} play")
    odd = strangers(world, rng)
    merge = make()
    other = make() if restarts else None
    warehouse, committed, refused = Warehouse(world), set(), 0
    running: list[tuple[BatchedTransaction, dict[Column, int]]] = []
    delivered: list[Sent] = []
    now = 0
    for sent in [*world.events, *[None] * (6 * world.last + 20)]:
        if sent is not None:
            ready = told(merge.handle(sent.event))
            delivered.append(sent)
            assert other is None or told(other.handle(sent.event)) == ready
        now += rng.choice((0, 0, 1, 3)) if sent is not None else 10
        while sent is None or rng.random() < 0.5:
            batch = merge.take_batch(now)
            assert other is None or other.take_batch(now) == batch
            if batch is None:
                break
            running.append((batch, ends_of(world, delivered)))
        for _ in range(rng.choice((0, 1, 2))):
            free = [one for one in running if may_commit(one[0], discipline, committed)]
            if free:
                done = rng.choice(free)
                running.remove(done)
                committed.add(done[0].sequence)
                warehouse.commit(*done)
                if discipline != "declared":
                    merge.committed(done[0].sequence)
                    if other is not None:
                        other.committed(done[0].sequence)
        if other is not None:
            saved = written(merge)
            assert written(other) == saved
            other = again(make, saved)
            if sent is not None:
                other, count = refuse(other, [next(odd) for _ in range(4)], make, saved)
                refused += count
    assert not running and merge.waiting == 0
    assert merge.frontier == merge.settled == world.last
    judge_end(world, warehouse)
    return refused


def may_commit(batch: BatchedTransaction, discipline: Discipline, committed: set[int]) -> bool:
    """Under "declared" who commits keeps to the dependencies, else the machine has seen to it."""
    return discipline != "declared" or set(batch.depends_on) <= committed


def refuse(other: Merge, odd: list[Event], make: Any, saved: str) -> tuple[Merge, int]:
    """Gives a machine strange messages; one that is refused has changed nothing."""
    refused = 0
    for message in odd:
        try:
            other.handle(message)
        except ProtocolError:
            assert written(other) == saved, f"refused, and yet taken: {message}"
            refused += 1
        else:
            other = again(make, saved)
    with pytest.raises(ProtocolError):
        other.committed(10**6)
    return other, refused


def judge_end(world: World, warehouse: Warehouse) -> None:
    """Everything is visible, each list once, in order, and to its end."""
    assert warehouse.committed == set(range(world.last + 1))
    for column in world.columns:
        if warehouse.shown.get(column.view) != column.number or column.closed:
            continue
        lists = [s.event for s in column.queue if isinstance(s.event, ActionList)]
        paths = [one.delta.path for one in lists if one.delta is not None]
        assert warehouse.parts.get((column.view, column.number), []) == paths
