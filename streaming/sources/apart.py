"""Parts of global transactions that are numbered apart, and which is a part of which (strobe-family 6.2).

With `globals: apart` the integrator holds nothing back: each local transaction has its number as soon as
it is complete, and updates say which numbers are parts. G-Strobe waits for the other parts itself (its
condition 3). A part that a snapshot holds has no number, so the others are announced without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streaming.integrator.machine import Assignment, numbers_of
from streaming.integrator.waiting import Closed, Part
from streaming.messages import GlobalPart


@dataclass(frozen=True)
class Apart:
    """What is known of parts whose transactions have no number yet.

    Attributes:
        waiting: their tags.
        seen: global transaction -> how many of its parts snapshots hold.
    """

    waiting: tuple[Part, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)

    def told(self, parts: Sequence[Part], closed: Sequence[Closed]) -> Apart:
        """With the tags of transactions that have become complete, and of closed snapshots."""
        seen = dict(self.seen)
        for snapshot in closed:
            for id_, _, count in snapshot.seen:
                seen[id_] = seen.get(id_, 0) + count
        return Apart((*self.waiting, *parts), seen)

    def numbered(self, assignments: Sequence[Assignment]) -> tuple[Apart, tuple[GlobalPart, ...]]:
        """Without the tags whose transactions have got numbers, and these as parts, by number."""
        ordinals: dict[str, list[int]] = {}
        for part in self.waiting:
            ordinals.setdefault(part.source, []).append(part.ordinal)
        given = numbers_of(assignments, {s: np.array(o, np.int64) for s, o in ordinals.items()})
        numbers = {
            (source, ordinal): int(number)
            for source, found in given.items()
            for ordinal, number in zip(ordinals[source], found, strict=True)
        }
        waiting, parts = list[Part](), dict[int, GlobalPart]()
        for part in self.waiting:
            number = numbers[part.source, part.ordinal]
            if number < 0:
                waiting.append(part)
            elif (left := part.parts - self.seen.get(part.id, 0)) > 1 and number not in parts:
                parts[number] = GlobalPart(number=number, id=part.id, parts=left)
        return Apart(tuple(waiting), self.seen), tuple(parts[n] for n in sorted(parts))

    def note(self) -> dict[str, Any]:
        """As JSON values."""
        waiting = [[p.source, p.ordinal, p.id, p.parts] for p in self.waiting]
        return {"waiting": waiting, "seen": dict(self.seen)}

    @classmethod
    def back(cls, note: Mapping[str, Any]) -> Apart:
        """What `note` described."""
        return cls(tuple(Part(*one) for one in note["waiting"]), dict(note["seen"]))
