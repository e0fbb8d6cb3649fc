"""The integrator's machine beside one that is made anew from its snapshot after every message.

Snapshots that close late, global transactions whose parts come late or never, time that passes, units
that are too large: the restarted machine numbers as the other does, and what it refuses changes nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.errors import ProtocolError
from streaming.integrator.integrator_machine import Completed, IntegratorMachine
from streaming.integrator.knots import Touched
from streaming.integrator.window import Closed, PartOfGlobal
from tests.numberedlogs import touched_of

seeds = st.integers(min_value=0, max_value=2**40)


@dataclass
class Logs:
    """What the sources will log, from a seed: (keys touched, global id or None) each."""

    rng: random.Random
    logs: dict[str, list[tuple[set[int], str | None]]] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    seen: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng
        for source in "abc"[: rng.randint(1, 3)]:
            self.logs[source], self.seen[source] = [], []
        for n in range(rng.randint(0, 6)):
            places = [source for source in self.logs if rng.random() < 0.7]
            lost = rng.random() < 0.2
            self.parts[f"g{n}"] = max(len(places) + lost, 1)
            for source in places:
                if n < 2 and rng.random() < 0.3:
                    self.seen[source].append((f"g{n}", self.parts[f"g{n}"], 1))
                else:
                    log = self.logs[source]
                    log.insert(rng.randint(0, len(log)), (self._keys(), f"g{n}"))
        for log in self.logs.values():
            for _ in range(rng.randint(0, 5)):
                log.insert(rng.randint(0, len(log)), (self._keys(), None))

    def _keys(self) -> set[int]:
        return {self.rng.randint(0, 3) for _ in range(self.rng.randint(1, 2))}

    def keys(self, source: str, first: int, last: int) -> Touched:
        return touched_of(self.logs, source, first, last)

    def messages(self) -> Iterator[Completed]:
        """All of it in pieces, and time at the end for what never comes."""
        rng, now = self.rng, 0
        sent = dict.fromkeys(self.logs, 0)
        still_open = list(self.logs)
        while still_open or any(sent[source] < len(log) for source, log in self.logs.items()):
            now += rng.choice((0, 0, 4, 9))
            closing = [source for source in still_open if rng.random() < 0.4]
            still_open = [source for source in still_open if source not in closing]
            blocks = {}
            for source, log in self.logs.items():
                last = min(sent[source] + rng.randint(0, 3), len(log))
                blocks[source], sent[source] = (sent[source] + 1, last), last
            parts = [
                PartOfGlobal(source, ordinal, name, self.parts[name])
                for source, (first, last) in blocks.items()
                for ordinal in range(first, last + 1)
                if (name := self.logs[source][ordinal - 1][1]) is not None
            ]
            closed = tuple(Closed(source, tuple(self.seen[source])) for source in closing)
            yield Completed(now, blocks, tuple(parts), closed, self.keys)
        for _ in range(3):
            now += 30
            yield Completed(now, keys=self.keys)


def breaches(message: Completed) -> Iterator[Completed]:
    """The message with one thing wrong."""
    source, (first, last) = next(iter(message.blocks.items()), ("a", (1, 0)))
    yield replace(message, blocks={**message.blocks, source: (first + 99, first + 99)})
    yield replace(message, blocks={**message.blocks, "unknown": (1, 1)})
    yield replace(message, parts=(*message.parts, PartOfGlobal(source, last + 1, "g", 2)))
    yield replace(message, closed=(*message.closed, Closed(source), Closed(source)))
    yield replace(message, closed=(*message.closed, Closed("unknown")))


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_a_restart_after_any_message_and_a_refused_message_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    logs = Logs(rng)
    timeout, most = rng.choice((10, 40)), rng.choice((1, 2, 1000))
    machine, other = (IntegratorMachine(tuple(logs.logs), timeout, most) for _ in range(2))
    numbers = 0
    for message in logs.messages():
        before = json.dumps(machine.snapshot())
        for breach in breaches(message):
            with pytest.raises(ProtocolError):
                other.handle(breach)
            assert json.dumps(other.snapshot()) == before, f"seed {seed}: refused, and yet taken"
        result = machine.handle(message)
        assert other.handle(message) == result, f"seed {seed}"
        if result.first > result.last and result.first and rng.random() < 0.3:
            result = machine.pass_over(result, 2)
            other.pass_over(result, 2)
        assert result.first == numbers or result.first > result.last
        numbers = max(numbers, result.last + 1)
        saved = json.dumps(machine.snapshot())
        assert json.dumps(other.snapshot()) == saved, f"seed {seed}"
        other = IntegratorMachine(tuple(logs.logs), timeout, most)
        other.restore(json.loads(saved))
    assert result.held == 0 and not result.overdue, f"seed {seed}"
