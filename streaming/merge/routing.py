"""REL that rides on action lists (MVC 3.2's alternative; DESIGN 5: `rel: with-actions`).

The integrator sends REL with the updates only (`Updates.rel`), and the view managers forward it
(`viewmanagers.forwarding`): each with its first list of those numbers, and one of them, the carrier,
also without a list, because there may be none. So every REL message comes at least once, and may come
from several managers. This machine takes each from the first that brings it and hands on, in order, what
the merge would have heard directly: REL messages and drops in the order of numbers; lists, suspensions
and additions as they come, for they may come before their REL. What it hands on is a possible
arrival order of the direct scheme; nothing waits longer than for the first list of an earlier message.

Rules: a REL message overlaps none that is known; two that bring the same numbers say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming.errors import ProtocolError
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.machine import Event, MergeMachine
from streaming.merge.vut_rows import WarehouseTransaction
from streaming.messages import ActionList, Rel, ViewChange, encode


class RelRouting:
    """Puts REL messages in order that come with lists, repeated, and in any order of senders."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.seen = -1
        """The last number whose REL was handed on."""
        self.rels: dict[int, Rel] = {}
        """REL messages that came too early, by first number."""
        self.drops: list[ViewChange] = []
        """Drops that came too early."""
        self.dropped: dict[str, int] = {}
        """Per view the last drop that was handed on."""

    def handle(self, message: Event) -> list[Event]:
        """One message of a view manager; returns what the merge hears of it.

        Raises:
            ProtocolError: PROTOCOL_MERGE, a rule is broken; nothing has changed.
        """
        if message.group != self.group:
            raise ProtocolError("merge", message, f"this is the merge of group {self.group!r}")
        match message:
            case ActionList():
                riding: Sequence[Rel | ViewChange] = message.rel
                rest: list[Event] = [message.model_copy(update={"rel": ()})]
            case Rel() | ViewChange():
                riding, rest = (message,), []
            case _:
                riding, rest = (), [message]
        for each in riding:
            if isinstance(each, Rel):
                self._check(message, each)
        out: list[Event] = []
        for each in riding:
            if isinstance(each, Rel):
                if each.first > self.seen:
                    self.rels[each.first] = each
            elif each.change == "add":
                out.append(each)
            elif each.number > self.dropped.get(each.view, -1) and each not in self.drops:
                self.drops.append(each)
        return [*out, *self._in_order(), *rest]

    def _check(self, message: Event, rel: Rel) -> None:
        if rel.group != self.group:
            raise ProtocolError("merge", message, f"this is the merge of group {self.group!r}")
        if rel.first <= self.seen < rel.last:
            rule = f"REL of [{rel.first}..{rel.last}] overlaps what is known up to {self.seen}"
            raise ProtocolError("merge", message, rule)
        for known in self.rels.values() if rel.first > self.seen else ():
            overlap = known.first <= rel.last and rel.first <= known.last
            if overlap and known != rel:
                rule = f"another REL of [{known.first}..{known.last}] says something else"
                raise ProtocolError("merge", message, rule)

    def _in_order(self) -> list[Event]:
        out: list[Event] = []
        while True:
            for drop in [drop for drop in self.drops if drop.number <= self.seen]:
                self.drops.remove(drop)
                self.dropped[drop.view] = drop.number
                out.append(drop)
            rel = self.rels.pop(self.seen + 1, None)
            if rel is None:
                return out
            self.seen = rel.last
            out.append(rel)

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "seen": self.seen,
            "rels": [encode(rel).decode() for rel in self.rels.values()],
            "drops": [encode(drop).decode() for drop in self.drops],
            "dropped": dict(self.dropped),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a saved state."""
        rels = [Rel.model_validate_json(text) for text in saved["rels"]]
        self.seen = saved["seen"]
        self.rels = {rel.first: rel for rel in rels}
        self.drops = [ViewChange.model_validate_json(text) for text in saved["drops"]]
        self.dropped = dict(saved["dropped"])


class RoutedMerge:
    """A merge that hears REL from its view managers; `merge` is asked for everything else.

    Args:
        merge: the group's machine, of any algorithm.
    """

    def __init__(self, merge: MergeMachine | BlockMerge) -> None:
        self.merge = merge
        self.routing = RelRouting(merge.group)

    def handle(self, message: Event) -> list[WarehouseTransaction]:
        """One message of a view manager; returns what became ready, in order.

        Raises:
            ProtocolError: PROTOCOL_MERGE, a rule is broken; nothing has changed.
        """
        before = self.routing.snapshot()
        heard = self.routing.handle(message)
        saved = self.merge.snapshot() if len(heard) > 1 else None
        ready: list[WarehouseTransaction] = []
        try:
            for each in heard:
                ready += self.merge.handle(each)
        except ProtocolError:
            self.routing.restore(before)
            if saved is not None:
                self.merge.restore(saved)
            raise
        return ready

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {"routing": self.routing.snapshot(), "merge": self.merge.snapshot()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a saved state.

        Raises:
            FrescoError: MERGE_SNAPSHOT when it is of another machine.
        """
        self.merge.restore(saved["merge"])
        self.routing.restore(saved["routing"])
