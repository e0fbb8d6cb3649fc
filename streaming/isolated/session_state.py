"""What `isolated` knows in the middle of a session, and which messages it has cause to expect.

"TID(old) and each ADD(Q) and DEL(Q) are stored until the end of a session in order to ensure a
consistent recovery" (moro-sartori 5.6): `snapshot` is what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Psj, psj_of, source_of
from streaming.algebra.tree import Scan, Tree, walk
from streaming.errors import ProtocolError
from streaming.isolated.propagation import Walk, walk_back, walk_note
from streaming.isolated.session_messages import Answer, Deleted, Evaluated, Ids, Installed
from streaming.messages import Rows

V = TypeVar("V")
Step = Literal["idle", "ids", "evaluate", "install", "delete"]


class SessionState(Generic[V]):
    """The state of the sessions of one merge group.

    Args:
        views: name -> tree of select, project and inner join.

    Raises:
        FrescoError: VIEW_NOT_PSJ.
    """

    def __init__(self, group: str, views: Mapping[str, Tree], operators: Operators[V]) -> None:
        self.group = group
        self.operators = operators
        self.psjs: dict[str, Psj] = {name: psj_of(views[name]) for name in sorted(views)}
        self.fresh: set[str] = set(self.psjs)
        """Views with nothing to go on from: the next session computes them whole."""
        self.away: set[str] = set()
        """Views that are suspended and left out of the sessions."""
        self._sources = frozenset(_scans(tuple(self.psjs.values())))
        self.session = 0
        """The session in hand, or the last one; from 1."""
        self.number = -1
        """The number of the last lists sent: of the sessions that found something, from 0."""
        self.step: Step = "idle"
        self.again = False
        """Whether a notification came that this session may have been too early for."""
        self.clear()

    def clear(self) -> None:
        """Nothing is known of a session."""
        self.ids: dict[str, V] = {}
        """TID(old), by source."""
        self.waiting: list[Walk[V]] = []
        """Walks that wait for their source, which answers one statement at a time."""
        self.asked: dict[int, tuple[str, tuple[Walk[V], ...]]] = {}
        """By request, the source and the walks that wait for its answer."""
        self.requests = 0
        self.results: dict[str, V] = {}
        """ADD(Q) - DEL(Q), by view, for views that can have changed."""
        self.to_delete: list[str] = []
        """Sources that have not said that their delta tables are rid of the ids."""

    # Views that leave and come back ---------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The views that the sessions keep."""
        return tuple(view for view in self.psjs if view not in self.away)

    @property
    def scans(self) -> Mapping[str, tuple[Scan, ...]]:
        """By source, the relations whose delta tables are read."""
        return _scans(tuple([self.psjs[view] for view in self.present]))

    def leave(self, view: str) -> None:
        """The session in hand is abandoned, and those that follow are without this view."""
        self.abandon()
        self.away.add(view)
        self.fresh.discard(view)

    def renew(self, view: str) -> None:
        """The session in hand is abandoned, and the next one computes this view whole.

        Its list then stands for all of its rows, in place of those it had.
        """
        self.abandon()
        self.away.discard(view)
        self.fresh.add(view)

    def abandon(self) -> None:
        """Forget the session in hand, of which nothing has been installed; its ids are read again.

        Raises:
            ProtocolError: its lists have been sent.
        """
        if self.step in ("install", "delete"):
            raise ProtocolError("isolated", self.step, f"group {self.group}: lists have been sent")
        self.number -= self.step == "evaluate"
        self.step = "idle"
        self.clear()

    def withdraw(self) -> None:
        """As `abandon`, before the lists that were made have gone anywhere.

        Raises:
            ProtocolError: there are none.
        """
        if self.step != "install":
            raise ProtocolError("isolated", self.step, f"group {self.group}: there are no lists")
        self.step = "evaluate"
        self.abandon()

    # Messages -------------------------------------------------------------------------------------

    def is_known(self, message: Answer[V]) -> bool:
        """Whether there is nothing new in an answer: it repeats one, or its session is over.

        Raises:
            ProtocolError: nothing was ever asked that it could answer.
        """

        def broken(rule: str) -> ProtocolError:
            return ProtocolError("isolated", message, f"group {self.group}: {rule}")

        if isinstance(message, Installed):
            sent = self.number - (self.step == "evaluate")
            if not 0 <= message.number <= sent:
                raise broken(f"no lists of number {message.number} were sent")
            return message.number < self.number or self.step != "install"
        if message.source not in self._sources:
            raise broken(f"no view uses source {message.source}")
        if message.session > self.session:
            raise broken(f"session {message.session} has not begun")
        if message.session < self.session or self.step == "idle":
            return True
        match message:
            case Ids():
                return message.source in self.ids
            case Deleted():
                if self.step != "delete":
                    raise broken("ids were not to be deleted yet")
                return message.source not in self.to_delete
            case Evaluated():
                if not 1 <= message.request <= self.requests:
                    raise broken(f"request {message.request} was not made")
                if message.request not in self.asked:
                    return True
                source, walks = self.asked[message.request]
                if source != message.source or len(walks) != len(message.rows):
                    raise broken(f"request {message.request} was {len(walks)} parts for {source}")
                return False

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        ops = self.operators

        def packed(values: Mapping[str, V]) -> dict[str, Any]:
            return {name: ops.pack(value) for name, value in values.items()}

        return {
            "group": self.group,
            "session": self.session,
            "number": self.number,
            "step": self.step,
            "again": self.again,
            "fresh": sorted(self.fresh),
            "away": sorted(self.away),
            "ids": packed(self.ids),
            "waiting": [walk_note(ops, each) for each in self.waiting],
            "asked": [
                [request, source, [walk_note(ops, each) for each in walks]]
                for request, (source, walks) in self.asked.items()
            ],
            "requests": self.requests,
            "results": packed(self.results),
            "to_delete": list(self.to_delete),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described; `resume` says what to send again.

        Raises:
            ProtocolError: a snapshot of another group.
        """
        if saved["group"] != self.group:
            raise ProtocolError("isolated", saved["group"], f"not of group {self.group}")
        ops = self.operators

        def opened(values: Mapping[str, Any]) -> dict[str, V]:
            return {name: ops.open(Rows.model_validate(rows)) for name, rows in values.items()}

        self.session, self.number = saved["session"], saved["number"]
        self.step, self.again = saved["step"], saved["again"]
        self.fresh, self.away = set(saved["fresh"]), set(saved["away"])
        self.ids, self.results = opened(saved["ids"]), opened(saved["results"])
        self.waiting = [walk_back(ops, note) for note in saved["waiting"]]
        self.asked = {
            request: (source, tuple(walk_back(ops, note) for note in walks))
            for request, source, walks in saved["asked"]
        }
        self.requests, self.to_delete = saved["requests"], list(saved["to_delete"])


@lru_cache(maxsize=256)
def _scans(psjs: tuple[Psj, ...]) -> Mapping[str, tuple[Scan, ...]]:
    """By source the relations that the views use, each once; sources and relations in order."""
    found = {
        node.relation: node
        for psj in psjs
        for leaf in psj.leaves
        for node in walk(leaf)
        if isinstance(node, Scan)
    }
    by_source: dict[str, list[Scan]] = {}
    for name in sorted(found):
        by_source.setdefault(source_of(name), []).append(found[name])
    return {source: tuple(scans) for source, scans in by_source.items()}
