"""The simulated network: channels that keep the order of each pair and no other (strobe-family 3.3).

What is sent from one node to another arrives in the order sent. Which channel delivers next is drawn,
so messages of different pairs arrive in any order. A source's own transactions wait in a channel of
their own; how eagerly the sources run compared with everything else is drawn once per history, so that
some histories are calm and in others many transactions happen while one query is under way.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

WORLD = "world"
"""Sends the sources their transactions."""
INTEGRATOR, MERGE, WAREHOUSE = "integrator", "merge", "warehouse"
LAUNCH = "launch"
"""Whoever starts the managers of views that join."""
Out = list[tuple[str, Any]]
"""What a node sends: (receiver, message) each."""
EAGERNESS = (0.05, 0.2, 0.4, 0.7)


class Network:
    """All channels, and the draw of the next message."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._channels: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)
        self._ready: list[tuple[str, str]] = []
        self._waiting: list[tuple[str, str]] = []
        self._eager = rng.choice(EAGERNESS)

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Puts a message at the end of its channel."""
        pair = (sender, receiver)
        channel = self._channels[pair]
        if not channel:
            (self._waiting if sender == WORLD else self._ready).append(pair)
        channel.append(message)

    def __bool__(self) -> bool:
        return bool(self._ready or self._waiting)

    def next(self) -> tuple[str, str, Any]:
        """The next message to be delivered: sender, receiver, message."""
        draw = self._rng.random
        pairs = self._ready
        if self._waiting and (not pairs or draw() < self._eager):
            pairs = self._waiting
        at = int(draw() * len(pairs))
        pair = pairs[at]
        channel = self._channels[pair]
        message = channel.popleft()
        if not channel:
            pairs[at] = pairs[-1]
            pairs.pop()
        return *pair, message
