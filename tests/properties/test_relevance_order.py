"""REL by relation is right, REL by selection breaks MVC under SPA (PAPERS 1; DESIGN 5, Integrator).

An order goes from open to moving (T1), then to archived (T2). Views `open` and `archived` select
by state. By selection REL_1 = {open} and REL_2 = {archived}, so SPA may apply T2 alone, and the order
stands in both views; no schedule equivalent to T1, T2 has such a state. By relation both are in both,
and the selections spare the work only.
"""

from __future__ import annotations

import random
from itertools import permutations

from painting_histories import GROUP, Event, rows, shuffle

from streaming.merge.batching import NONE
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel, RelRun

STATES = ("open", "moving", "archived")
VIEWS = ("archived", "open")
Content = tuple[tuple[int, ...], ...]
"""Per view the orders in it."""


def history(rng: random.Random, orders: int) -> list[tuple[int, str, str]]:
    """(order, old state, new state) of transactions 1, 2, ...; each order goes open to archived."""
    left = [order for order in range(orders) for _ in range(2)]
    rng.shuffle(left)
    moved = dict.fromkeys(range(orders), 0)
    steps = []
    for order in left:
        steps.append((order, STATES[moved[order]], STATES[moved[order] + 1]))
        moved[order] += 1
    return steps


def rel(steps: list[tuple[int, str, str]], by_relation: bool) -> Rel:
    runs = [RelRun(first=0, last=0, views=())]
    for n, (_, old, new) in enumerate(steps, start=1):
        seen = tuple(view for view in VIEWS if view in (old, new))
        idle = tuple(view for view in VIEWS if view not in seen)
        named = (VIEWS, idle) if by_relation else (seen, ())
        runs.append(RelRun(first=n, last=n, views=named[0], idle=named[1]))
    return Rel(group=GROUP, first=0, last=len(steps), runs=tuple(runs))


def states(steps: list[tuple[int, str, str]], orders: int) -> list[Content]:
    """The views over every source state."""
    now = dict.fromkeys(range(orders), "open")
    found = [content(now)]
    for order, _, new in steps:
        now[order] = new
        found.append(content(now))
    return found


def content(now: dict[int, str]) -> Content:
    return tuple(tuple(o for o, state in now.items() if state == view) for view in VIEWS)


def shown(steps: list[tuple[int, str, str]], orders: int, events: list[Event]) -> list[Content]:
    """What the warehouse shows, transaction by transaction, when the messages come like this."""
    merge = MergeMachine(GROUP, VIEWS, "spa", NONE)
    now = {"open": set(range(orders)), "archived": set()}
    found = []
    for event in events:
        merge.handle(event)
        for batch in iter(merge.take_batch, None):
            for part in batch.parts:
                for n in range(part.first, part.last + 1):
                    order, old, new = steps[n - 1]
                    if part.view == old:
                        now[old].remove(order)
                    elif part.view == new:
                        now[new].add(order)
            found.append(tuple(tuple(sorted(now[view])) for view in VIEWS))
    return found


def lists(steps: list[tuple[int, str, str]], view: str) -> list[Event]:
    return [
        ActionList(group=GROUP, view=view, first=n, last=n, delta=rows(f"{view}-{n}"))
        for n, (_, old, new) in enumerate(steps, start=1)
        if view in (old, new)
    ]


def test_the_smallest_case_in_every_order_of_its_messages() -> None:
    steps = [(0, "open", "moving"), (0, "moving", "archived")]
    right = states(steps, 1)
    assert right == [((), (0,)), ((), ()), ((0,), ())]
    (archived,), (opened,) = lists(steps, "archived"), lists(steps, "open")
    wrong = 0
    for order in permutations((0, 1, 2)):
        for by_relation in (True, False):
            messages: list[Event] = [rel(steps, by_relation), opened, archived]
            found = shown(steps, 1, [messages[at] for at in order])
            if by_relation:
                assert all(state in right for state in found)
            else:
                wrong += ((0,), (0,)) in found
    assert wrong, "by selection, the order stands in both views at once"


def test_by_relation_every_state_is_one_of_the_sources_and_by_selection_it_is_not() -> None:
    broken = 0
    for seed in range(300):
        rng = random.Random(seed)
        steps = history(rng, 3)
        right = states(steps, 3)
        queues = [lists(steps, view) for view in VIEWS]
        for by_relation in (True, False):
            events = shuffle(rng, [[rel(steps, by_relation)], *queues])
            found = shown(steps, 3, events)
            assert found[-1] == right[-1], f"seed {seed}"
            if by_relation:
                assert all(state in right for state in found), f"seed {seed}"
            else:
                broken += any(state not in right for state in found)
    assert broken > 50
