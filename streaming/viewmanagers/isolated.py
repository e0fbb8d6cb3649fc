"""`isolated`: views kept by sessions over delta tables with transaction ids (moro-sartori 5.5 and 5.6).

One machine keeps all views of a merge group. It needs no CDC: triggers at the sources fill two delta
tables for each relation, each row with the id of its transaction. A session has four steps.

    1  ids       read the ids in each source's delta tables, in one statement for each source, and keep
                 them: TID(old). They say, once and for all, which state the session goes to.
    2  evaluate  ADD(Q) and DEL(Q) of each view (`propagation`), every table in the state its rule names,
                 reconstructed at its source from the current table and the delta tables (`adddel`).
    3  install   all views in one warehouse transaction: REL and the lists of one number, the session's.
    4  delete    exactly those ids' rows from the delta tables, once 3 is durable.

**Several sources.** The ids of source x fix the state of x, whenever they were read; together they are a
vector of valid states, and every later vector has more of each. Transactions span no two sources
(section 2), so each vector is a state of some serial schedule: strong consistency. What commits at x
after its ids were read is in the table and in the delta tables, and is undone in the same statement; so
it does not matter at which moments the sources are asked, nor that the moments differ.

**Crashes.** What has been learnt is kept: ids, partial results, lists. After a crash `resume` says again
what has had no answer. Each step may be repeated: ids read again are not what was kept, so the first
answer counts and others are dropped; an expression of step 2 has the same value at any time until step
4; the warehouse drops a session's lists that it has; ids are never used twice, so deleting them again
finds nothing. No step begins before all answers of the one before it are there, and 4 after 3 is what
keeps a result that was never installed from being lost.

**Notifications** only start a session. A lost one is made good by the next, or by the clock; repeated and
reordered ones start sessions that find nothing. Such a session gives its number back: all that may
still arrive for it are empty sets of ids, and an empty set was that source's state too.

Session 0 brings the initial state: Q in the state old, from nothing. The triggers come before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from streaming.algebra.adddel import IDS, ids_read
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, Psj, psj_of, source_of
from streaming.algebra.query import Part
from streaming.algebra.tree import Scan, Tree, walk
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Rel, RelRun, Rows
from streaming.viewmanagers.propagation import (
    Walk,
    advanced,
    next_places,
    statement,
    walk_back,
    walk_note,
    walks,
    whole,
)
from streaming.viewmanagers.sessions import (
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    Installed,
    ReadIds,
    Received,
    StartSession,
)

V = TypeVar("V")
Step = Literal["idle", "ids", "evaluate", "install", "delete"]
Sent = ReadIds[V] | Evaluate[V] | DeleteIds[V] | Rel | ActionList


class Isolated(Generic[V]):
    """The sessions of one merge group.

    Args:
        views: name -> tree of select, project and inner join.

    Raises:
        FrescoError: VIEW_NOT_PSJ.
    """

    def __init__(self, group: str, views: Mapping[str, Tree], operators: Operators[V]) -> None:
        self.group = group
        self.operators = operators
        self.psjs: dict[str, Psj] = {name: psj_of(views[name]) for name in sorted(views)}
        self.scans = _scans(self.psjs)
        """By source, the relations whose delta tables are read."""
        self.session = -1
        """The session in hand, or the last one."""
        self.step: Step = "idle"
        self.again = False
        """Whether a notification came that this session may have been too early for."""
        self._clear()

    def _clear(self) -> None:
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

    # Messages -------------------------------------------------------------------------------------

    def handle(self, message: Received[V]) -> list[Sent[V]]:
        """One message; returns what is to be sent once the new state is durable.

        A message that repeats what is known, or belongs to an earlier session, changes nothing.

        Raises:
            ProtocolError: an answer to what was not asked. Nothing has changed.
        """
        if isinstance(message, StartSession):
            return self._started()
        if self._is_known(message):
            return []
        match message:
            case Ids():
                return self._ids(message)
            case Evaluated():
                return self._evaluated(message)
            case Installed():
                return self._installed()
            case Deleted():
                return self._deleted(message)

    def resume(self) -> list[Sent[V]]:
        """What has been sent and not been answered, to be sent again; after a crash or a long wait."""
        match self.step:
            case "ids":
                return [self._read(source) for source in self.scans if source not in self.ids]
            case "evaluate":
                return [self._request(request) for request in sorted(self.asked)]
            case "install":
                return self._lists()
            case "delete":
                return [self._delete(source) for source in self.to_delete]
        return []

    def _is_known(self, message: Ids[V] | Evaluated[V] | Installed | Deleted) -> bool:
        """Whether there is nothing new in it; raises when there never can have been cause for it."""

        def broken(rule: str) -> ProtocolError:
            return ProtocolError("isolated", message, f"group {self.group}: {rule}")

        if message.session > self.session:
            raise broken(f"session {message.session} has not begun")
        source = None if isinstance(message, Installed) else message.source
        if source is not None and source not in self.scans:
            raise broken(f"no view uses source {source}")
        if message.session < self.session or self.step == "idle":
            return True
        match message:
            case Ids():
                return message.source in self.ids
            case Evaluated():
                if message.request > self.requests:
                    raise broken(f"an answer to request {message.request}, which was not made")
                if message.request not in self.asked:
                    return True
                asked, parts = self.asked[message.request]
                if asked != message.source or len(parts) != len(message.rows):
                    raise broken(f"request {message.request} was {len(parts)} parts for {asked}")
                return False
            case Installed():
                if self.step in ("ids", "evaluate"):
                    raise broken("installed before it was evaluated")
                return self.step == "delete"
            case Deleted():
                if self.step != "delete":
                    raise broken("ids deleted that were not to be deleted yet")
                return message.source not in self.to_delete

    # Step 1 ---------------------------------------------------------------------------------------

    def _started(self) -> list[Sent[V]]:
        if self.step != "idle":
            self.again = True
            return []
        self._clear()
        self.session += 1
        self.step, self.again = "ids", False
        return self.resume()

    def _read(self, source: str) -> ReadIds[V]:
        return ReadIds(self.session, source, Part(ids_read(self.scans[source]), {}))

    def _ids(self, message: Ids[V]) -> list[Sent[V]]:
        self.ids[message.source] = message.ids
        if len(self.ids) < len(self.scans):
            return []
        changed = self._changed()
        if not changed and self.session > 0:
            self.session -= 1
            return self._ended()
        self.step = "evaluate"
        for view, psj in self.psjs.items():
            found = walks(view, psj, changed) if self.session else [whole(view, psj)]
            if found:
                self.results[view] = self.operators.empty(psj.schema)
            self.waiting += found
        return self._go_on()

    def _changed(self) -> list[str]:
        """The sources with ids."""
        return [source for source, ids in self.ids.items() if self.operators.size(ids)]

    # Step 2 ---------------------------------------------------------------------------------------

    def _go_on(self) -> list[Sent[V]]:
        """Statements for sources that have none in hand; when all walks have ended, step 3."""
        busy = {source for source, _ in self.asked.values()}
        ready: dict[str, list[Walk[V]]] = {}
        for each in self.waiting:
            source = self._next_source(each)
            if source not in busy:
                ready.setdefault(source, []).append(each)
        sent: list[Sent[V]] = []
        for source, found in ready.items():
            self.waiting = [each for each in self.waiting if each not in found]
            self.requests += 1
            self.asked[self.requests] = (source, tuple(found))
            sent.append(self._request(self.requests))
        if self.asked:
            return sent
        self.step = "install"
        return self._lists()

    def _next_source(self, each: Walk[V]) -> str:
        psj = self.psjs[each.view]
        return source_of(psj.relations[next_places(psj, each)[0]])

    def _request(self, request: int) -> Evaluate[V]:
        source, found = self.asked[request]
        parts = []
        for each in found:
            psj = self.psjs[each.view]
            inputs = {IDS: self.ids[source]}
            if each.rows is not None:
                inputs[LEFT] = each.rows
            parts.append(Part(statement(psj, each, next_places(psj, each)), inputs))
        return Evaluate(self.session, request, source, tuple(parts))

    def _evaluated(self, message: Evaluated[V]) -> list[Sent[V]]:
        _, found = self.asked.pop(message.request)
        for each, rows in zip(found, message.rows, strict=True):
            psj = self.psjs[each.view]
            after = advanced(each, next_places(psj, each), rows)
            if not self.operators.size(rows):
                continue
            if after.have == psj.places:
                self._sum(each.view, each.sign, rows)
            else:
                self.waiting.append(after)
        return self._go_on()

    def _sum(self, view: str, sign: int, rows: V) -> None:
        of = self.operators.plus if sign > 0 else self.operators.minus
        self.results[view] = of(self.results[view], rows)

    # Steps 3 and 4 --------------------------------------------------------------------------------

    def _lists(self) -> list[Sent[V]]:
        """REL and all lists of the session's number: one row of the VUT, one warehouse transaction."""
        n, views = self.session, tuple(self.psjs)
        idle = tuple(view for view in views if view not in self.results)
        run = RelRun(first=n, last=n, views=views, idle=idle)
        sent: list[Sent[V]] = [Rel(group=self.group, first=n, last=n, runs=(run,))]
        for view, rows in self.results.items():
            delta = self.operators.renumbered(rows, n)
            packed = self.operators.pack(delta) if self.operators.size(delta) else None
            sent.append(ActionList(group=self.group, view=view, first=n, last=n, delta=packed))
        return sent

    def _installed(self) -> list[Sent[V]]:
        self.step, self.to_delete = "delete", self._changed()
        return self.resume() if self.to_delete else self._ended()

    def _delete(self, source: str) -> DeleteIds[V]:
        names = tuple(scan.relation for scan in self.scans[source])
        return DeleteIds(self.session, source, names, self.ids[source])

    def _deleted(self, message: Deleted) -> list[Sent[V]]:
        self.to_delete.remove(message.source)
        return [] if self.to_delete else self._ended()

    def _ended(self) -> list[Sent[V]]:
        self.step = "idle"
        self._clear()
        return self._started() if self.again else []

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        ops = self.operators

        def packed(values: Mapping[str, V]) -> dict[str, Any]:
            return {name: ops.pack(value).model_dump() for name, value in values.items()}

        return {
            "group": self.group,
            "session": self.session,
            "step": self.step,
            "again": self.again,
            "ids": packed(self.ids),
            "waiting": [walk_note(ops, each) for each in self.waiting],
            "asked": [
                [request, source, [walk_note(ops, each) for each in found]]
                for request, (source, found) in self.asked.items()
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

        self.session, self.step, self.again = saved["session"], saved["step"], saved["again"]
        self.ids, self.results = opened(saved["ids"]), opened(saved["results"])
        self.waiting = [walk_back(ops, note) for note in saved["waiting"]]
        self.asked = {
            request: (source, tuple(walk_back(ops, note) for note in found))
            for request, source, found in saved["asked"]
        }
        self.requests, self.to_delete = saved["requests"], list(saved["to_delete"])


def _scans(psjs: Mapping[str, Psj]) -> dict[str, tuple[Scan, ...]]:
    """By source the relations that the views use, each once; sources and relations in order."""
    found = {
        node.relation: node
        for psj in psjs.values()
        for leaf in psj.leaves
        for node in walk(leaf)
        if isinstance(node, Scan)
    }
    by_source: dict[str, list[Scan]] = {}
    for name in sorted(found):
        by_source.setdefault(source_of(name), []).append(found[name])
    return {source: tuple(scans) for source, scans in by_source.items()}
