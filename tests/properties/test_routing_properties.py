"""REL with the action lists gives what REL sent directly gives, for every arrival order (MVC 3.2)."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from painting_columns import Changing, changing
from painting_histories import GROUP, history, senders, shuffle

from streaming.durable import as_json
from streaming.merge.machine import MergeMachine
from streaming.merge.routing import RoutedMerge
from streaming.messages import ActionList, Rel, Suspend, Updates, ViewChange
from streaming.viewmanagers.forwarding import Forwarding

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=300, deadline=None)


def manager_sends(
    rng: random.Random, forwarding: Forwarding, updates: list[Updates], lists: list[Any]
) -> list[Any]:
    """What one manager sends when it hears the updates and makes these lists at some time after."""
    out: list[Any] = []
    heard = -1
    updates, lists = list(updates), list(lists)
    while updates or lists:
        ready = bool(lists) and _number(lists[0]) <= heard
        if updates and (not ready or rng.random() < 0.5):
            update = updates.pop(0)
            heard = update.last
            out += forwarding.heard(update)
        else:
            sent = lists.pop(0)
            out += [sent] if isinstance(sent, ViewChange) else forwarding.sent(sent)
    return out


def _number(message: Any) -> int:
    """Up to where a manager must have heard before it sends this."""
    match message:
        case ActionList():
            return message.last
        case Suspend():
            return message.after
    return message.number


def updates_of(told: list[Rel | ViewChange]) -> list[Updates]:
    """What the integrator sends instead of these."""
    made, riding = [], []
    for one in told:
        riding.append(one)
        if isinstance(one, Rel):
            made.append(
                Updates(
                    group=GROUP,
                    first=one.first,
                    last=one.last,
                    runs=one.runs,
                    relations={},
                    rel=tuple(riding),
                )
            )
            riding = []
    return made


def drained(merge: MergeMachine) -> tuple[Any, ...]:
    batch = merge.take_batch()
    assert batch is not None and merge.take_batch() is None
    return batch.ranges, batch.parts, batch.frontier, batch.suspended, batch.committed_ms


@many
@given(seeds, st.booleans(), st.booleans())
def test_rel_with_actions_ends_where_rel_sent_directly_ends(
    seed: int, strong: bool, suspend: bool
) -> None:
    h = history(seed, strong=strong, suspend=suspend)
    rng = random.Random(seed)
    algorithm = "pa" if strong else "spa"
    direct = MergeMachine(GROUP, h.views, algorithm)  # type: ignore[arg-type]
    for event in h.events:
        direct.handle(event)
    by_sender = {
        sender[0].view: sender for sender in senders(h.events) if not isinstance(sender[0], Rel)
    }
    updates = updates_of([event for event in h.events if isinstance(event, Rel)])
    queues = [
        manager_sends(rng, Forwarding(view, h.views), updates, by_sender.get(view, []))
        for view in h.views
    ]
    routed = RoutedMerge(MergeMachine(GROUP, h.views, algorithm))  # type: ignore[arg-type]
    for event in shuffle(rng, queues):
        routed.handle(event)
        again = RoutedMerge(MergeMachine(GROUP, h.views, algorithm))  # type: ignore[arg-type]
        again.restore(as_json(routed.snapshot()))
        assert again.snapshot() == routed.snapshot()
        routed = again
    assert drained(routed.merge) == drained(direct), f"seed {seed}"  # type: ignore[arg-type]


def changing_managers(h: Changing, rng: random.Random) -> list[list[Any]] | None:
    """What the managers of a changing group send; None when it has no views for a while."""
    updates = updates_of(h.integrator)  # type: ignore[arg-type]
    views = list(h.views)
    before: list[tuple[str, ...]] = []
    for update in updates:
        before.append(tuple(views))
        for change in (one for one in update.rel if isinstance(one, ViewChange)):
            if change.change == "add":
                views.append(change.view)
            else:
                views.remove(change.view)
        if not views:
            return None
    queues = []
    for view, added, lists in h.managers:
        own = [at for at, update in enumerate(updates) if update.first > added]
        gone = [
            at
            for at in own
            for one in updates[at].rel
            if isinstance(one, ViewChange) and (one.view, one.change) == (view, "drop")
        ]
        own = [at for at in own if at <= min(gone, default=len(updates))]
        forwarding = Forwarding(view, before[own[0]])
        queues.append(manager_sends(rng, forwarding, [updates[at] for at in own], lists))
    return queues


@many
@given(seeds, st.booleans())
def test_rel_with_actions_carries_added_and_dropped_views_too(seed: int, strong: bool) -> None:
    h = changing(seed, strong)
    rng = random.Random(seed)
    queues = changing_managers(h, rng) if h.views else None
    if queues is None:
        return
    algorithm = "pa" if strong else "spa"
    direct = MergeMachine(GROUP, h.views, algorithm)  # type: ignore[arg-type]
    for event in h.events:
        direct.handle(event)  # type: ignore[arg-type]
    routed = RoutedMerge(MergeMachine(GROUP, h.views, algorithm))  # type: ignore[arg-type]
    for event in shuffle(rng, queues):
        routed.handle(event)
    assert routed.merge.views == direct.views, f"seed {seed}"
    ends = []
    for merge in (routed.merge, direct):
        batch = merge.take_batch()
        assert batch is not None
        views = [view for view, number in h.members.items() if number >= 0]
        parts = [part for part in batch.parts if part.view in views]
        ends.append((batch.ranges, batch.frontier, batch.added, parts))
    assert ends[0] == ends[1], f"seed {seed}"
