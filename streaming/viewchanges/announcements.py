"""The integrator's part of adding and dropping views: which there are, and from which cut (DESIGN 5).

The integrator's manifests say which views are maintained and since which number; the catalog says what
readers see, which follows a few commits later. A request takes effect at the end of an integrator's
step, which is a cut: the change is announced on the group's `rel` and `updates` topics between the
message that ends at the cut and the next one, and from the next number on REL names the view, or does
not. A view that joins is announced once its own stage says that its content is there and nearly caught
up; until then nobody but that stage does anything for it.

A view that comes back under a dropped one's name joins two numbers later at the earliest, so that no
late word of the first one's manager can be taken for the second's (`merge.changes`). Where no
transaction comes, the integrator gives out two numbers that stand for none; so it does where a view has
been suspended by what is no transaction, until a commit tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streaming.errors import FrescoError
from streaming.messages import ViewChange
from streaming.pipeline.catalog import ViewSpec
from streaming.runtime.stage_names import stage_name
from streaming.viewchanges.requests import Request, Requests

APART = 2
"""Numbers between a drop and the return of the name."""


@dataclass(frozen=True)
class Live:
    """A view that is maintained.

    Attributes:
        since: the cut at which it joined; 0 from the beginning.
        request: the request that brought it; 0 from the beginning.
    """

    group: str
    since: int = 0
    request: int = 0

    def stage(self, view: str) -> str:
        """The name of its stage."""
        return stage_name(view, self.request)


class ViewChanges:
    """The views that the integrator knows of, and the requests that it has announced.

    Args:
        groups: merge group -> its views, as they were at the first start.
        spec: a view's specification by name: of the catalog, or of an open request.
        sources: those that a view's manager asks.
        untold: whether a view's suspension waits for a number, by whose commit it is told.
    """

    def __init__(
        self,
        requests: Requests,
        groups: Mapping[str, Sequence[str]],
        spec: Callable[[str], ViewSpec],
        sources: Callable[[str], Iterable[str]],
        untold: Callable[[], bool] = lambda: False,
    ) -> None:
        self._requests, self._spec, self._sources = requests, spec, sources
        self._untold = untold
        self._founded = {view: Live(group) for group, views in groups.items() for view in views}
        self._group_names = tuple(groups)
        self.restore(None)

    # State ----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Back to what a manifest says; None: the beginning."""
        live = snapshot["live"] if snapshot else {}
        self.live = {view: Live(**one) for view, one in live.items()}
        if snapshot is None:
            self.live = dict(self._founded)
        self.dropped: dict[str, int] = dict(snapshot["dropped"]) if snapshot else {}
        """View -> the cut at which it was last dropped."""
        announced = snapshot["announced"] if snapshot else {}
        self.announced = {int(number): int(cut) for number, cut in announced.items()}
        """Request -> the cut at which it takes effect; of those that are open."""

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "live": {view: asdict(one) for view, one in self.live.items()},
            "dropped": dict(self.dropped),
            "announced": {str(number): cut for number, cut in self.announced.items()},
        }

    def views(self) -> list[ViewSpec]:
        """What is maintained."""
        return [self._spec(view) for view in self.live]

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Merge group -> its views, sorted; a group whose views were all dropped is empty."""
        found: dict[str, list[str]] = {group: [] for group in self._group_names}
        for view, one in self.live.items():
            found.setdefault(one.group, []).append(view)
        return {group: tuple(sorted(views)) for group, views in found.items()}

    def asked(self) -> dict[str, frozenset[str]]:
        """Merge group -> the sources that its view managers ask; only groups that ask any."""
        found: dict[str, frozenset[str]] = {}
        for view, one in self.live.items():
            if sources := frozenset(self._sources(view)):
                found[one.group] = found.get(one.group, frozenset()) | sources
        return found

    # Steps ----------------------------------------------------------------------------------------

    def idle_numbers(self, last: int) -> int:
        """How many numbers a view waits for that comes back or goes, where no transaction brings them."""
        waits = [
            self.dropped[one.view] + APART - last
            for one in self._due()
            if one.change == "add" and one.view in self.dropped and one.view not in self.live
        ]
        return max(0, *waits, int(last >= 0 and self._untold()))

    def announce(self, last: int, split: bool = False) -> list[ViewChange]:
        """The changes that take effect at the cut `last`, in the order they were asked for.

        Args:
            split: the cut may lie between parts of a global transaction that are numbered apart. A view
                that joined there would wait for the parts before it for ever (`g_strobe`).
        """
        if last < 0:
            return []
        done = {number for number in self.announced if self._requests.is_over(number)}
        self.announced = {k: cut for k, cut in self.announced.items() if k not in done}
        # A later drop may just have called off an earlier one of them.
        due = [one for one in self._due() if self._requests.told(one.number, "done") is None]
        due = [one for one in due if not (split and one.joins)]
        return [change for one in due if (change := self._change(one, last)) is not None]

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """Say on the requests what a durable manifest has announced."""
        for number, cut in snapshot["announced"].items():
            self._requests.say(int(number), "announced", cut=cut)

    def _due(self) -> list[Request]:
        """Open requests that can be announced; what cannot ever be is told so."""
        due: list[Request] = []
        for one in self._requests.open():
            if one.number in self.announced:
                continue
            if one.change == "drop":
                if one.view in self.live:
                    due.append(one)
                else:
                    self._call_off(one)
            elif self._requests.told(one.number, "loaded") is not None:
                due.append(one)
        return due

    def _change(self, one: Request, last: int) -> ViewChange | None:
        live = self.live.get(one.view)
        if one.change == "drop":
            assert live is not None
            del self.live[one.view]
            self.dropped[one.view] = last
            self.announced[one.number] = last
            return ViewChange(group=live.group, view=one.view, change="drop", number=last)
        if one.change == "add" and last < self.dropped.get(one.view, -APART) + APART:
            return None
        if (one.change == "add") == (live is not None):
            said = "is maintained already" if live else "is not maintained"
            self._requests.say(one.number, "done", error=_refused(one, said).as_dict())
            return None
        group = str(one.entry["group"]) if one.entry else live.group if live else ""
        self.live[one.view] = Live(group, last, one.number)
        self.announced[one.number] = last
        return ViewChange(
            group=group,
            view=one.view,
            change="add",
            number=last,
            manager=one.sends,
            every=one.every,
        )

    def _call_off(self, drop: Request) -> None:
        """A view that is dropped before it has joined never does; so it is with one that is gone."""
        for one in self._requests.open():
            if one.view == drop.view and one.joins and one.number not in self.announced:
                self._requests.say(one.number, "done", cancelled_by=drop.number)
        self._requests.say(drop.number, "done", cut=None)


def _refused(request: Request, said: str) -> FrescoError:
    return FrescoError(
        "VIEW_CHANGE_REFUSED",
        f"view {request.view} {said}",
        where=f"request {request.number}",
        todo="see `fresco view list`",
    )


def refused_routing() -> FrescoError:
    """Of every request where REL rides on the action lists: later managers have no part in it."""
    return FrescoError(
        "VIEW_CHANGE_ROUTING",
        "views cannot come and go while REL rides on the action lists",
        where="rel: with-actions",
        todo="use rel: direct in a new warehouse",
    )
