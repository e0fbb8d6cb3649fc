"""The mediator of a view over other views: RMQ, UMQ and figure 9's UpdateView (ryco-pyco 3.2, 3.3).

A view may scan views of the pipeline, its *parents*, beside base relations. Its mediator stands between
what comes in and any view manager: the manager is handed `Updates` in which the parents' deltas stand
as relations, under the parents' names, and cannot tell them from base relations. The DU-ids of the
paper are the integrator's numbers, its update-message-order is the numbering.

* UMQ: the ordered numbers that are not maintained yet (`ordered`). Relevance is inherited, so REL tells
  for which of them a list of each parent comes: those that name it and do not spare it the work. The
  paper's mediators send a NULL extent for every other DU-id; here nobody waits for one.
* RMQ: the parents' action lists; their rows stay references until a part of them is needed.
* UpdateView: a number is maintained when every list awaited for it is in RMQ. All numbers for which that
  holds go on at once, whole messages where possible, so a batch stays a batch. The manager's list
  goes on under the same numbers, empty ones included.

Why it is right (lemmas 1 and 2). By induction over the levels (definition 11) the rows that a parent
lists under n are its change from n-1 to n. All of them are handed on with the base relations' rows of n
and nothing else is, so the manager sees every relation and every parent at one state at every number.

A parent whose list is not complete changes from one state to another over [a..b] as one. Overlapping
ranges of that kind make one *unit*: everything in it is handed on under its last number and the view's
own list covers the same range, not complete either, and crosses the cuts in it. Only the numbers at
which the parent really works count, so a strong list that brings one number makes no unit.

Managers that ask. A manager may ask a parent's rows like a source's: the parent is a source of its own
name, whose transactions are its numbers, and `answer` is the paper's ProcessQuery, from a mirror kept
here at the state of the last number handed on. `overviews` says which modes can do with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import source_of
from streaming.algebra.source_queries import Seen, SourceAnswer, SourceQuery
from streaming.algebra.tree import Scan, relations, walk
from streaming.errors import FrescoError, ProtocolError
from streaming.messages import ActionList, Rows, Suspend, Updates
from streaming.viewmanagers.base import (
    ManagedView,
    ManagerProgress,
    check_updates,
    suspension,
    works,
)
from streaming.viewmanagers.mirror import HeldMirror
from streaming.viewmanagers.over_views.umq import (
    Ordered,
    QueuedUnit,
    Range,
    as_one,
    clipped,
    ordered,
    overlapping,
    since_truncate,
    told_as_sources,
    within,
)

V = TypeVar("V")
Keep = Callable[[Rows], Rows]
"""The same rows by a reference to a file."""


@dataclass(frozen=True)
class Piece:
    """Rows with numbers in [first..last].

    Attributes:
        at_once: they all belong to `last`, whatever numbers they carry.
    """

    rows: Rows
    first: int
    last: int
    at_once: bool = False


class Mediator(Generic[V]):
    """RMQ and UMQ of one view.

    Args:
        spec: the view.
        views: the pipeline's views and their groups; those that the tree scans are the parents.
        operators: what can be done with relations.
        asks: the manager asks, so rows of the parents are kept and their transactions told.

    Raises:
        FrescoError: VIEW_NAMED_LIKE_SOURCE, a parent to be asked has the name of a source.
    """

    def __init__(
        self,
        spec: ManagedView,
        views: Mapping[str, str],
        operators: Operators[V],
        asks: bool = False,
    ) -> None:
        self.spec, self.operators, self.asks = spec, operators, asks
        self.scanned = relations(spec.tree)
        self.parents = {name: views[name] for name in self.scanned if name in views}
        self.umq: tuple[Ordered, ...] = ()
        self.rmq: dict[str, tuple[ActionList, ...]] = {parent: () for parent in self.parents}
        self.heard = {parent: spec.start - 1 for parent in self.parents}
        """The last number that a parent's lists have covered."""
        self.number = spec.start - 1
        """The last number handed to the manager."""
        self.ended: dict[str, Suspend] = {}
        self.units: tuple[QueuedUnit, ...] = ()
        """Ranges handed on as one whose list the manager has not sent yet."""
        self.owed = self.sent = spec.start - 1
        """The last number handed on that wants a list, and the last that a list has covered."""
        self.suspended_after: int | None = None
        schemas = {s.relation: s.schema for s in walk(spec.tree) if isinstance(s, Scan)}
        kept = self.parents if asks else ()
        self.mirrors = {name: HeldMirror(operators, schemas[name]) for name in kept}
        sources = {source_of(name) for name in self.scanned if name not in self.parents}
        for parent in sources.intersection(kept):
            raise FrescoError(
                "VIEW_NAMED_LIKE_SOURCE",
                f"view {spec.view} would ask the view {parent} and a source of the same name",
                where=spec.view,
                todo=f"rename the view {parent}, or use `USING replica` for {spec.view}",
            )

    # Messages -------------------------------------------------------------------------------------

    def handle(self, message: Updates | ActionList | Suspend) -> list[Updates | Suspend]:
        """One message in: LogUpdateIds, LogUpdates, then UpdateView.

        Returns:
            what the manager is to be handed, in order; at the end Suspend, to be sent, where a parent's
            suspension has been reached.

        Raises:
            ProtocolError: see `base.check_updates`; REL asks a parent for work and not the view; a list
                or suspension of a view that is no parent or of another group, from the past, of a
                suspended parent, one that skips an awaited number, or brings rows though none of
                its numbers is awaited; anything after the view's own suspension. Nothing has changed.
        """
        match message:
            case Updates():
                self.umq += (self._entry_of(message),)
            case ActionList():
                self._check_list(message)
                self.rmq[message.view] += (message,)
                self.heard[message.view] = message.last
            case Suspend():
                self._check_suspend(message)
                self.ended[message.view] = message
                self.heard[message.view] = message.after
        return self.update_view()

    def passed_on(self, message: ActionList | Suspend) -> list[ActionList | Suspend]:
        """What the manager has sent, in the form in which it goes to the merge and the children.

        Raises:
            ProtocolError: it is another view's.
        """
        if (message.view, message.group) != (self.spec.view, self.spec.group):
            rule = f"the manager is that of {self.spec.view} in {self.spec.group}"
            raise ProtocolError("mediator", message, rule)
        if isinstance(message, Suspend):
            halved = [u.first for u in self.units if u.first <= message.after < u.last]
            after = min([message.after, *(a - 1 for a in halved)])
            self._stop(after)
            return [message.model_copy(update={"after": after})]
        first, last, complete = message.first, message.last, message.complete
        across = message.across
        for a, b, crosses in self.units:
            if a <= last < b:  # up to an error at b: the numbers before it cannot be had alone
                last = a - 1
            elif first <= b <= last:
                first, complete, across = min(first, a), False, across or crosses
        if last < first:
            return []
        self.units = tuple(unit for unit in self.units if unit.last > last)
        self.sent = last
        changed = {"first": first, "last": last, "complete": complete, "across": across}
        return [message.model_copy(update=changed), *self._ending()]

    def answer(self, query: SourceQuery[V]) -> SourceAnswer[V]:
        """ProcessQuery at a parent: the parts over its rows after the last number handed on.

        Raises:
            ProtocolError: the parent is none, or its rows are not kept.
        """
        mirror = self.mirrors.get(query.source)
        if mirror is None or query.view != self.spec.view:
            brief = f"statement {query.view}/{query.id}.{query.step} to {query.source}"
            raise ProtocolError("mediator", brief, f"no rows for {self.spec.view} to be asked here")
        here = {query.source: mirror.rows()}
        rows = tuple(self.operators.evaluate(p.tree, {**here, **p.inputs}) for p in query.parts)
        state = Seen(self.number)
        return SourceAnswer(query.view, query.id, query.step, query.source, rows, state)

    # The protocol: parents' lists may overtake the numbering. So a list is checked against REL where UMQ
    # has its numbers already, and otherwise when they come.

    def _entry_of(self, updates: Updates) -> Ordered:
        """The next message of the numbering, as an entry of UMQ.

        Raises:
            ProtocolError: see `handle`.
        """
        spec, parents = self.spec, self.parents
        at = self.umq[-1].updates.last if self.umq else self.number
        check_updates(spec, ManagerProgress(at, self.suspended_after), updates)
        brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"
        for run in updates.runs:
            for parent in parents:
                if works(run, parent) and not works(run, spec.view):
                    raise _broken(
                        brief,
                        f"REL asks {parent} for work at {run.first} and not its child {spec.view}",
                    )
        entry = ordered(updates, spec.view, parents, spec.start)
        for parent in parents:
            heard = min(self.heard[parent], updates.last)
            lists = self.rmq[parent]
            covered = [(one.first, one.last) for one in lists]
            lacking = _first_outside(within(entry.awaited[parent], updates.first, heard), covered)
            if lacking is not None:
                raise _broken(brief, f"{parent} has sent no list for number {lacking}")
            for one in lists:
                if updates.first <= one.last <= updates.last and _brings(one):
                    before = self.awaited(parent, one.first, one.last)
                    if not before and not within(entry.awaited[parent], one.first, one.last):
                        raise _broken(brief, f"REL has {parent} at none of {one.first}..{one.last}")
        return entry

    def _check_list(self, message: ActionList) -> None:
        """The next list of a parent.

        Raises:
            ProtocolError: see `handle`.
        """
        self._check_parent(message)
        parent, first, last = message.view, message.first, message.last
        heard = self.heard[parent]
        if last < first:
            raise _broken(message, "a list ends before it begins")
        if first <= heard:
            raise _broken(
                message, f"numbers from the past; {parent} has sent its lists up to {heard}"
            )
        lacking = self.awaited(parent, heard + 1, first - 1)
        if lacking:
            raise _broken(message, f"{parent} has sent no list for number {lacking[0][0]}")
        at = self.umq[-1].updates.last if self.umq else self.number
        if last <= at and _brings(message) and not self.awaited(parent, first, last):
            raise _broken(message, f"REL has {parent} at none of its numbers")

    def _check_suspend(self, message: Suspend) -> None:
        """A parent is suspended once, at the number where its lists end.

        Raises:
            ProtocolError: see `handle`.
        """
        self._check_parent(message)
        heard = self.heard[message.view]
        if message.after < heard:
            raise _broken(message, f"{message.view} has sent lists up to {heard}")
        lacking = self.awaited(message.view, heard + 1, message.after)
        if lacking:
            raise _broken(message, f"{message.view} has sent no list for number {lacking[0][0]}")

    def _check_parent(self, message: ActionList | Suspend) -> None:
        spec, group = self.spec, self.parents.get(message.view)
        if group is None:
            raise _broken(message, f"{message.view} is no parent of {spec.view}")
        if message.group != group:
            raise _broken(message, f"{message.view} belongs to group {group}")
        if self.suspended_after is not None:
            raise _broken(message, f"{spec.view} is suspended after number {self.suspended_after}")
        if message.view in self.ended:
            raise _broken(message, f"{message.view} is suspended")

    # UpdateView -----------------------------------------------------------------------------------

    def update_view(self) -> list[Updates | Suspend]:
        """Hand on every number for which nothing is awaited any more."""
        end, units = self._ready(), self._units()
        end = min([end, *(a - 1 for a, b in units if b > end)])
        firsts = dict(units)
        out: list[Updates | Suspend] = []
        while self.number < end:
            first = self.number + 1
            head = self.umq[0].updates.last
            last = min([end, head, *(a - 1 for a in firsts if a > first)])
            out.append(self._handed(first, firsts.get(first, last), first in firsts))
        return [*out, *self._ending()]

    def _ready(self) -> int:
        """The last number for which all is in, units aside."""
        end = min([self._ordered(), *(max(s.after, self.number) for s in self.ended.values())])
        for parent, heard in self.heard.items():
            lacking = self.awaited(parent, heard + 1, end)
            end = min([end, *(first - 1 for first, _ in lacking)])
        return end

    def _ordered(self) -> int:
        return self.umq[-1].updates.last if self.umq else self.number

    def awaited(self, parent: str, first: int, last: int) -> list[Range]:
        """The numbers of UMQ in [first..last] for which a parent's list must come, or has come."""
        first = max(first, self.number + 1)
        return [r for entry in self.umq for r in within(entry.awaited[parent], first, last)]

    def _span(self, one: ActionList) -> Range | None:
        """The numbers that a list really brings; as far as it says where UMQ ends before it."""
        found, end = self.awaited(one.view, one.first, one.last), self._ordered()
        if one.last > end:
            return (found[0][0] if found else max(one.first, end + 1)), one.last
        return (found[0][0], found[-1][1]) if found else None

    def _units(self) -> list[Range]:
        """Ranges to be handed on as one."""
        lists = [one for found in self.rmq.values() for one in found if not one.complete]
        spans = [span for one in lists if (span := self._span(one)) and span[0] < span[1]]
        return overlapping(spans)

    def _handed(self, first: int, last: int, one: bool) -> Updates:
        """The numbers [first..last], as one or apart; they leave the queues."""
        found = [entry.updates for entry in self.umq if entry.updates.first <= last]
        pieces = [clipped(u, max(u.first, first), min(u.last, last)) for u in found]
        message = as_one(self.spec.view, pieces) if one else pieces[0]
        rows = {name: self._rows(name, found, first, last, one) for name in self.scanned}
        given = {name: reference for name, reference in rows.items() if reference is not None}
        changed: dict[str, Any] = {"relations": given}
        if self.asks:
            worked = {parent: self.awaited(parent, first, last) for parent in self.parents}
            logs = told_as_sources(worked, self.spec.start, last if one else None)
            changed["logs"] = {**message.logs, **logs}
            changed["delivered"] = {**message.delivered, **dict.fromkeys(self.parents, last)}
        for parent in self.mirrors.keys() & given.keys():
            self.mirrors[parent].add(self.operators.open(given[parent]))
        own = [r for entry in self.umq for r in within(entry.own, first, last)]
        self.owed = last if one else max([self.owed, *(b for _, b in own)])
        self.units += (QueuedUnit(first, last, any(u.last < last for u in found)),) if one else ()
        self.number = last
        self.umq = tuple(entry for entry in self.umq if entry.updates.last > last)
        for parent, lists in self.rmq.items():
            self.rmq[parent] = tuple(each for each in lists if self._span(each) is not None)
        return message.model_copy(update=changed)

    def _rows(
        self, name: str, found: list[Updates], first: int, last: int, one: bool
    ) -> Rows | None:
        """A relation's or a parent's rows of [first..last]; a reference as it came, if it fits."""
        pieces = [Piece(u.relations[name], u.first, u.last) for u in found if name in u.relations]
        for each in self.rmq.get(name, ()):
            span = (each.first, each.last) if each.complete else self._span(each)
            if span is not None and each.delta is not None:
                pieces.append(Piece(each.delta, *span, at_once=not each.complete))
        since = since_truncate(found, name, first, last) if one else first
        return _gathered(self.operators, pieces, since, last, one)

    # Suspension -----------------------------------------------------------------------------------

    def _ending(self) -> list[Suspend]:
        """The view's own Suspend, once all is sent that can be had without a suspended parent."""
        if self.suspended_after is not None or not self.ended or self.sent < self.owed:
            return []
        parent = min(self.ended, key=lambda name: self.ended[name].after)
        cause = self.ended[parent]
        if self._ready() < max(cause.after, self.number):
            return []
        error = {
            "code": "VIEW_PARENT_SUSPENDED",
            "what": f"its parent {parent} is suspended after number {cause.after}:"
            f" {cause.error.get('what', '')}",
            "where": self.spec.view,
            "todo": f"`fresco view resume {parent}` first, then `fresco view resume NAME`",
        }
        self._stop(self.number)
        return [suspension(self.spec, self.number, error)]

    def _stop(self, after: int) -> None:
        self.suspended_after, self.umq, self.units = after, (), ()
        self.rmq = {parent: () for parent in self.parents}

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "view": self.spec.view,
            "number": self.number,
            "umq": [entry.updates for entry in self.umq],
            "rmq": {p: list(q) for p, q in self.rmq.items()},
            "heard": dict(self.heard),
            "ended": dict(self.ended),
            "units": [list(unit) for unit in self.units],
            "owed": self.owed,
            "sent": self.sent,
            "suspended_after": self.suspended_after,
            "mirrors": {parent: mirror.snapshot() for parent, mirror in self.mirrors.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view, or of other parents.
        """
        if saved["view"] != self.spec.view or set(saved["rmq"]) != set(self.parents):
            rule = f"not of view {self.spec.view} over {', '.join(self.parents)}"
            raise ProtocolError("mediator", saved["view"], rule)
        messages = [Updates.model_validate(note) for note in saved["umq"]]
        self.number, self.heard = saved["number"], dict(saved["heard"])
        self.umq = tuple(
            ordered(one, self.spec.view, self.parents, self.spec.start) for one in messages
        )
        self.rmq = {
            parent: tuple(ActionList.model_validate(note) for note in notes)
            for parent, notes in saved["rmq"].items()
        }
        self.ended = {p: Suspend.model_validate(note) for p, note in saved["ended"].items()}
        self.units = tuple(QueuedUnit(*unit) for unit in saved["units"])
        self.owed, self.sent = saved["owed"], saved["sent"]
        self.suspended_after = saved["suspended_after"]
        for parent, mirror in self.mirrors.items():
            mirror.restore(saved["mirrors"][parent])

    def put_aside(self, limit: int, keep: Keep) -> None:
        """Where more than `limit` characters of rows wait inside messages, refer to files instead.

        A parent that is slow, because its source is, leaves its children's UMQ and RMQ to grow, and a
        mediator's whole state goes into each manifest.

        Args:
            keep: the same rows by a reference to a file.
        """
        entries = [rows for entry in self.umq for rows in entry.updates.relations.values()]
        lists = [one.delta for found in self.rmq.values() for one in found if one.delta is not None]
        if sum(len(rows.ipc or "") for rows in (*entries, *lists)) <= limit:
            return
        self.umq = tuple(_entry_aside(entry, keep) for entry in self.umq)
        self.rmq = {
            parent: tuple(_list_aside(one, keep) for one in found)
            for parent, found in self.rmq.items()
        }


def _gathered(
    operators: Operators[V], pieces: Sequence[Piece], first: int, last: int, one: bool
) -> Rows | None:
    """The rows of [first..last]; a reference as it came where one fits.

    Args:
        one: whether all rows become rows of `last`.

    Returns:
        None where there are none.
    """
    near = [p for p in pieces if p.rows.rows and p.first <= last and first <= p.last]
    if len(near) == 1 and not one and not near[0].at_once:
        (piece,) = near
        if first <= piece.first and piece.last <= last:
            return piece.rows
    values = []
    for piece in near:
        value = operators.open(piece.rows)
        if piece.at_once:
            value = operators.renumbered(value, piece.last)
        values.append(operators.between(value, first, last))
    if not values:
        return None
    total = operators.plus(*values)
    total = operators.renumbered(total, last) if one else total
    return operators.pack(total) if operators.size(total) else None


def _first_outside(ranges: Iterable[Range], covered: list[Range]) -> int | None:
    """The first number of the ranges that no covered range has; both ascend."""
    for first, last in ranges:
        for a, b in covered:
            if a <= first <= b:
                first = b + 1
        if first <= last:
            return first
    return None


def _brings(one: ActionList) -> bool:
    return one.delta is not None and one.delta.rows > 0


def _entry_aside(entry: Ordered, keep: Keep) -> Ordered:
    found = {
        name: keep(rows) if rows.ipc is not None else rows
        for name, rows in entry.updates.relations.items()
    }
    return replace(entry, updates=entry.updates.model_copy(update={"relations": found}))


def _list_aside(one: ActionList, keep: Keep) -> ActionList:
    if one.delta is None or one.delta.ipc is None:
        return one
    return one.model_copy(update={"delta": keep(one.delta)})


def _broken(message: object, rule: str) -> ProtocolError:
    return ProtocolError("mediator", message, rule)
