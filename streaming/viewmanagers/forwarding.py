"""A view manager's part in the alternative REL routing (MVC 3.2): it forwards REL with its lists.

The integrator sends `Updates.rel` along with the numbers. A manager that has work in them puts it on
its first list of them. There may be no such list: REL is empty, all views are idle, or the one view that
had work is suspended. So one manager, the carrier, forwards REL always: with its first list, or by
itself, at once when it has no work and when its view is suspended before that list. The carrier is the
view that has been longest in the group, the first by name among those; all managers hear of added and
dropped views in the same order, so they agree on it. Forwarding needs no view: it goes on when the view
is suspended.
"""

from __future__ import annotations

from typing import Any

from streaming.messages import ActionList, Rel, Suspend, Updates, ViewChange, decode, encode
from streaming.viewmanagers.base import works

Sent = Rel | ViewChange | ActionList | Suspend


class Forwarding:
    """Stands between a view manager and the merge.

    Args:
        view: the manager's view.
        views: the group's views when the manager begins, those that came first first.
    """

    def __init__(self, view: str, views: tuple[str, ...]) -> None:
        self.view = view
        self.views = list(views)
        self.suspended = False
        self.waiting: list[tuple[int, tuple[Rel | ViewChange, ...]]] = []
        """(first number, REL) of messages whose first list has not been sent."""

    @property
    def carrier(self) -> bool:
        """Whether this manager forwards REL where it has no list."""
        return bool(self.views) and self.views[0] == self.view

    def heard(self, updates: Updates) -> list[Sent]:
        """A message on its way to the manager; returns what goes to the merge at once."""
        out: list[Sent] = []
        for change in (one for one in updates.rel if isinstance(one, ViewChange)):
            out += self.changed(change)
        working = not self.suspended and any(works(run, self.view) for run in updates.runs)
        if updates.rel and working:
            self.waiting.append((updates.first, updates.rel))
        elif self.carrier:
            out += updates.rel
        return out

    def changed(self, change: ViewChange) -> list[Sent]:
        """A view comes or goes, as the merge hears by itself; returns what goes to it at once."""
        out: list[Sent] = []
        if change.change == "drop":
            if change.view == self.view:
                out = self._bare()
            self.views = [view for view in self.views if view != change.view]
        elif change.view not in self.views:
            self.views.append(change.view)
        elif change.view == self.view:
            self.suspended = False
        return out

    def sent(self, message: ActionList | Suspend) -> list[Sent]:
        """A message of the manager; returns what goes to the merge."""
        if isinstance(message, Suspend):
            self.suspended = True
            return [*self._bare(), message]
        rel: tuple[Rel | ViewChange, ...] = ()
        while self.waiting and self.waiting[0][0] <= message.last:
            rel += self.waiting.pop(0)[1]
        return [message.model_copy(update={"rel": rel})]

    def _bare(self) -> list[Sent]:
        waiting, self.waiting = self.waiting, []
        return [one for _, rel in waiting for one in rel] if self.carrier else []

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "views": list(self.views),
            "suspended": self.suspended,
            "waiting": [
                [first, [encode(one).decode() for one in rel]] for first, rel in self.waiting
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a saved state."""
        self.views, self.suspended = list(saved["views"]), saved["suspended"]
        self.waiting = [
            (first, tuple(one for one in map(_decoded, texts))) for first, texts in saved["waiting"]
        ]


def _decoded(text: str) -> Rel | ViewChange:
    message = decode(text.encode())
    assert isinstance(message, Rel | ViewChange)
    return message
