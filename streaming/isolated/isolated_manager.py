"""`isolated`: views kept by sessions over delta tables with transaction ids (moro-sartori 5.5 and 5.6).

One machine keeps all views of a merge group. It needs no CDC: triggers at the sources fill two delta
tables for each relation, each row with the id of its transaction. A session has four steps.

    1  ids       read the ids in each source's delta tables, in one statement for each source, and keep
                 them: TID(old). They say, once and for all, which state the session goes to.
    2  evaluate  ADD(Q) and DEL(Q) of each view (`propagation`), every table in the state its rule names,
                 reconstructed at its source from the current table and the delta tables (`adddel`).
    3  install   all views in one warehouse transaction: REL and the lists of one number.
    4  delete    exactly those ids' rows from the delta tables, once 3 is durable.

**Several sources.** The ids of source x fix the state of x, whenever they were read; together they are a
vector of valid states, and every later vector has more of each. Transactions span no two sources
(section 2), so each vector is a state of some serial schedule: strong consistency. What commits at x
after its ids were read is in the table and in the delta tables, and is undone in the same statement; so
it does not matter at which moments the sources are asked, nor that the moments differ.

**Crashes.** What has been learnt is kept: ids, partial results, lists. After a crash `resume` says again
what has had no answer. Each step may be repeated: ids read again are not what was kept, so the first
answer counts and others are dropped; an expression of step 2 has the same value at any time until step
4; the warehouse drops a number that it has; ids are never used twice, so deleting them again finds
nothing. No step begins before all answers of the one before it are there; 4 waits for 3, so until a
change is visible its rows are still at the source.

**Notifications** only start a session. A lost one is made good by the next, or by the clock; repeated and
reordered ones start sessions that find nothing and end with step 1. Sessions that find something number
their lists; number 0 is the initial state: Q in the state old, from nothing. The triggers come first.

**Gaps.** When triggers were away for a while, what the delta tables hold is not all that changed. The
views over that relation are then computed whole again, as at number 0 (`renew`); meanwhile they can be
left out (`leave`), and the others go on. Until lists are sent, a session can be abandoned: the next one
reads all its ids again, and more.
"""

from __future__ import annotations

from typing import TypeVar

from streaming.algebra.psj import LEFT, source_of
from streaming.algebra.source_queries import QueryPart
from streaming.isolated.add_del import IDS, ids_read
from streaming.isolated.propagation import Walk, advanced, next_places, statement, walks, whole
from streaming.isolated.session_messages import (
    Answer,
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    Installed,
    ReadIds,
    StartSession,
)
from streaming.isolated.session_state import SessionState
from streaming.messages import ActionList, Rel, RelRun

V = TypeVar("V")
Sent = ReadIds[V] | Evaluate[V] | DeleteIds[V] | Rel | ActionList


class Isolated(SessionState[V]):
    """The sessions of one merge group; see `SessionState` for its arguments."""

    # Messages -------------------------------------------------------------------------------------

    def handle(self, message: StartSession | Answer[V]) -> list[Sent[V]]:
        """One message; returns what is to be sent once the new state is durable.

        A message that repeats what is known, or belongs to an earlier session, changes nothing.

        Raises:
            ProtocolError: an answer to what was not asked. Nothing has changed.
        """
        if isinstance(message, StartSession):
            return self._started()
        if self.is_known(message):
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

    # Step 1 ---------------------------------------------------------------------------------------

    def _started(self) -> list[Sent[V]]:
        if self.step != "idle":
            self.again = True
            return []
        self.clear()
        self.session += 1
        self.step, self.again = "ids", False
        return self.resume()

    def _read(self, source: str) -> ReadIds[V]:
        return ReadIds(self.session, source, QueryPart(ids_read(self.scans[source]), {}))

    def _ids(self, message: Ids[V]) -> list[Sent[V]]:
        self.ids[message.source] = message.ids
        if len(self.ids) < len(self.scans):
            return []
        changed = self._changed()
        if not changed and not self.fresh:
            return self._ended()
        self.step = "evaluate"
        self.number += 1
        for view in self.present:
            psj = self.psjs[view]
            found = [whole(view, psj)] if view in self.fresh else walks(view, psj, changed)
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
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            source = self._next_source(each)
            (self.waiting if source in busy else ready.setdefault(source, [])).append(each)
        sent: list[Sent[V]] = []
        for source, found in ready.items():
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
            parts.append(QueryPart(statement(psj, each, next_places(psj, each)), inputs))
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
        """REL and all lists of one number: one row of the VUT, one warehouse transaction."""
        n, views = self.number, self.present
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
        self.fresh.clear()
        return self.resume() if self.to_delete else self._ended()

    def _delete(self, source: str) -> DeleteIds[V]:
        names = tuple(scan.relation for scan in self.scans[source])
        return DeleteIds(self.session, source, names, self.ids[source])

    def _deleted(self, message: Deleted) -> list[Sent[V]]:
        self.to_delete.remove(message.source)
        return [] if self.to_delete else self._ended()

    def _ended(self) -> list[Sent[V]]:
        self.step = "idle"
        self.clear()
        return self._started() if self.again else []
