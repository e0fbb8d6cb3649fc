"""Random histories for the merge: REL messages, lists and interleavings, all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from streaming.messages import ActionList, Rel, RelRun, Rows, Suspend

GROUP = "g"
Event = Rel | ActionList | Suspend


@dataclass(frozen=True)
class History:
    """What each process sends, in order; `events` is one order in which all of it may arrive."""

    views: tuple[str, ...]
    rels: dict[int, RelRun]
    events: list[Event]


def rows(name: str) -> Rows:
    """A reference to rows that nobody reads."""
    return Rows(rows=1, path=name)


def history(seed: int, strong: bool = False, idle: bool = True, suspend: bool = False) -> History:
    """A history of up to 12 transactions over up to 4 views."""
    rng = random.Random(seed)
    views = tuple(f"v{n}" for n in range(1, rng.randint(1, 4) + 1))
    count = rng.randint(1, 12)
    cuts = sorted({rng.randrange(count) for _ in range(rng.randint(0, 3))} | {count - 1})
    rels, by_number, first = [], {}, 0
    for cut in cuts:
        runs = _runs(rng, views, first, cut, idle)
        rels.append(Rel(group=GROUP, first=first, last=cut, runs=runs, committed_ms=cut))
        by_number.update({n: run for run in runs for n in range(run.first, run.last + 1)})
        first = cut + 1
    queues: list[list[Event]] = [list(rels)]
    leaver = rng.choice(views) if suspend else None
    for view in views:
        lists: list[Event] = list(_lists(rng, view, cuts, by_number, strong))
        if view == leaver:
            lists = lists[: rng.randint(0, len(lists))]
            sent = [event.last for event in lists if isinstance(event, ActionList)]
            after = max(sent, default=-1)
            lists.append(Suspend(group=GROUP, view=view, after=after, error={"code": "X"}))
        queues.append(lists)
    return History(views, by_number, shuffle(rng, queues))


def shuffle(rng: random.Random, queues: list[list[Event]]) -> list[Event]:
    """An arrival order that keeps each sender's own order."""
    queues = [list(queue) for queue in queues if queue]
    events: list[Event] = []
    while queues:
        queue = rng.choice(queues)
        events.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return events


def senders(events: list[Event]) -> list[list[Event]]:
    """The events by sender again."""
    queues: dict[str, list[Event]] = {}
    for event in events:
        queues.setdefault("" if isinstance(event, Rel) else event.view, []).append(event)
    return list(queues.values())


def _runs(
    rng: random.Random, views: tuple[str, ...], first: int, last: int, idle: bool
) -> tuple[RelRun, ...]:
    runs = []
    while first <= last:
        end = min(last, first + rng.choice((0, 0, 0, 1, 3)))
        named = tuple(view for view in views if rng.random() < 0.55)
        spared = tuple(view for view in named if idle and rng.random() < 0.25)
        runs.append(RelRun(first=first, last=end, views=named, idle=spared))
        first = end + 1
    return tuple(runs)


def _lists(
    rng: random.Random, view: str, cuts: list[int], rels: dict[int, RelRun], strong: bool
) -> list[ActionList]:
    busy = [n for n, run in sorted(rels.items()) if view in run.views and view not in run.idle]
    complete = not strong or rng.random() < 0.3
    lists: list[ActionList] = []
    begin = 0
    for cut in cuts:
        while inside := [n for n in busy if begin <= n <= cut]:
            last = rng.choice(inside)
            following = min([n for n in busy if n > last and n <= cut], default=cut + 1)
            end = rng.randint(last, following - 1)
            first = rng.randint(begin, inside[0])
            lists.append(
                ActionList(
                    group=GROUP,
                    view=view,
                    first=first,
                    last=end,
                    complete=complete,
                    delta=rows(f"{view}-{first}") if rng.random() < 0.8 else None,
                )
            )
            begin = end + 1
        begin = cut + 1
    return lists
