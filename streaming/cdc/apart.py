"""Parts of global transactions that are numbered apart, and which is a part of which (strobe-family 6.2).

With `globals: apart` the integrator holds nothing back: each local transaction has its number as soon as
it is complete, and updates say which numbers are parts. G-Strobe waits for the other parts itself (its
condition 3). A part that a snapshot holds has no number, so the others are announced without it.

A part that does not come would keep the view as it is for ever. After the timeout the transaction is
released as local, as with parts that share a number: each missing part is announced at a number that
stands for nothing, so that the count is reached, and what comes of it later is a local transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streaming.integrator.integrator_machine import Assignment, numbers_of
from streaming.integrator.window import Closed, PartOfGlobal
from streaming.messages import GlobalPart


@dataclass(frozen=True)
class PartsApart:
    """What is known of parts whose transactions have no number yet.

    Attributes:
        waiting: their tags.
        seen: global transaction -> how many of its parts snapshots hold, where it is not all.
        open: global transaction of which not all parts have come -> how many are missing, how many
            there are to announce, and when the first came, milliseconds since 1970.
        released: global transaction -> how many parts it was released without.
    """

    waiting: tuple[PartOfGlobal, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)
    open: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    released: Mapping[str, int] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether there may be a transaction of which some parts have numbers and others have not."""
        return bool(self.open or self.waiting)

    def told(
        self, parts: Sequence[PartOfGlobal], closed: Sequence[Closed], now_ms: int
    ) -> PartsApart:
        """With the tags of transactions that have become complete, and of closed snapshots."""
        seen, open_, released = dict(self.seen), dict(self.open), dict(self.released)
        for snapshot in closed:
            for id_, every, count in snapshot.seen:
                seen[id_] = seen.get(id_, 0) + count
                if seen[id_] >= every:
                    del seen[id_]  # none of it is in any log
                if id_ in open_:  # one came before the snapshot of another's source was closed
                    missing, every, since = open_.pop(id_)
                    if missing > count:
                        open_[id_] = (missing - count, every - count, since)
        waiting = list(self.waiting)
        for part in parts:
            if part.id in released:
                released[part.id] -= 1
                if not released[part.id]:
                    del released[part.id]
                continue
            held = seen.get(part.id, 0)
            every = part.parts - held
            missing, every, since = open_.pop(part.id, (every, every, now_ms))
            waiting.append(replace(part, parts=every + held))  # whatever the others say
            if missing > 1:
                open_[part.id] = (missing - 1, every, since)
        return PartsApart(tuple(waiting), seen, open_, released)

    def late(
        self, now_ms: int, timeout_ms: int, first: int
    ) -> tuple[PartsApart, tuple[GlobalPart, ...]]:
        """Without what has waited too long, and the parts that are announced in its place.

        Args:
            first: the number of the first of them; the others follow.
        """
        late = {id_: one for id_, one in self.open.items() if now_ms - one[2] >= timeout_ms}
        if not late:
            return self, ()
        ids = [(id_, every) for id_, (missing, every, _) in late.items() for _ in range(missing)]
        parts = tuple(
            GlobalPart(number=number, id=id_, parts=every)
            for number, (id_, every) in enumerate(ids, first)
        )
        open_ = {id_: one for id_, one in self.open.items() if id_ not in late}
        released = {**self.released, **{id_: one[0] for id_, one in late.items()}}
        return PartsApart(self.waiting, self.seen, open_, released), parts

    def numbered(
        self, assignments: Sequence[Assignment]
    ) -> tuple[PartsApart, tuple[GlobalPart, ...]]:
        """Without the tags whose transactions have got numbers, and these as parts, by number."""
        ordinals: dict[str, list[int]] = {one.source: [] for one in assignments}
        for part in self.waiting:
            ordinals.setdefault(part.source, []).append(part.ordinal)
        given = numbers_of(assignments, {s: np.array(o, np.int64) for s, o in ordinals.items()})
        numbers = {
            (source, ordinal): int(number)
            for source, found in given.items()
            for ordinal, number in zip(ordinals[source], found, strict=True)
        }
        waiting, parts = list[PartOfGlobal](), dict[int, GlobalPart]()
        for part in self.waiting:
            number = numbers[part.source, part.ordinal]
            if number < 0:
                waiting.append(part)
            elif (left := part.parts - self.seen.get(part.id, 0)) > 1 and number not in parts:
                parts[number] = GlobalPart(number=number, id=part.id, parts=left)
        left_ = PartsApart(tuple(waiting), self.seen, self.open, self.released)
        return left_, tuple(parts[n] for n in sorted(parts))

    def note(self) -> dict[str, Any]:
        """As JSON values."""
        waiting = [[p.source, p.ordinal, p.id, p.parts] for p in self.waiting]
        return {
            "waiting": waiting,
            "seen": dict(self.seen),
            "open": {id_: list(one) for id_, one in self.open.items()},
            "released": dict(self.released),
        }

    @classmethod
    def back(cls, note: Mapping[str, Any]) -> PartsApart:
        """What `note` described."""
        waiting = tuple(PartOfGlobal(*one) for one in note["waiting"])
        open_ = {id_: tuple(one) for id_, one in note.get("open", {}).items()}
        return cls(waiting, dict(note["seen"]), open_, dict(note.get("released", {})))
