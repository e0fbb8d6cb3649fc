"""The merge process of one merge group as a pure machine (MVC 4 and 5, DESIGN 5).

Two kinds of events drive it: REL runs from the integrator, in order and without gaps, and action
lists from the view managers, in order per view; a list may come before its REL. `Suspend` paints
what is left of a view's column black, `ViewChange` opens or closes a column (`changes`). Nothing
here has a clock or does I/O. Every message is checked against the protocol before anything changes:

    message     must hold                                                        else
    Rel         first = last seen + 1, runs without gaps, known views            ProtocolError
    list        known view, not suspended, first > the column's red part,        ProtocolError
                inside one cut (but see below), paints a white cell and
                skips none
    Suspend     known view, once, every cell up to `after` has its list          ProtocolError
    add         at the last number seen, or later (then it waits for that cut);  ProtocolError
                the view is not in the group, or suspended; one that was
                dropped at d comes back at d + 2 or later
    drop        at the last number seen; the view is in the group                ProtocolError
    committed   a batch that was taken and has not committed                     ProtocolError

No REL message of other numbers crosses the number of an addition or a drop; the second announcement of
an addition is an echo. d + 2, so that no late word of the view's first manager can be taken for one of
its second.

A REL message ends at a cut and no list crosses one, which is what bounds PA's closures. So a list lies
wholly in what REL has named, and is checked when it comes, or wholly beyond it, and is checked when its
REL comes. Two lists cannot help crossing a cut: that of a truncate which an answer saw too early takes
the rows that the state at the cut needs, and a global transaction whose parts are numbered apart may
straddle it. They say `across`. Such a list waits, and what follows it in its column behind it, until REL
has named its last number; then its rows are all in the table, and PA's closure under `state` does the
rest. It is as long as its manager makes it, so the bound is the manager's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from streaming.errors import FrescoError, ProtocolError
from streaming.merge import changes, pa, spa
from streaming.merge.batching import GREEDY, BatchedTransaction, Batching, Submission
from streaming.merge.disciplines import Discipline
from streaming.merge.picture import TableRow, cells_by_colour, paint_rows, read_table
from streaming.merge.state import (
    FORMAT,
    Ahead,
    Algorithm,
    ColumnState,
    Founded,
    Joining,
    MergeState,
    NamedShape,
    NamedSpan,
    Ready,
    from_json,
    to_json,
)
from streaming.merge.vut import VUT
from streaming.merge.vut_rows import (
    Block,
    HeldList,
    Kind,
    RelSet,
    RelShape,
    Row,
    Span,
    WarehouseTransaction,
    in_blocks,
)
from streaming.messages import ActionList, Rel, RelRun, Suspend, ViewChange

Event = Rel | ActionList | Suspend | ViewChange


class EarlyList(NamedTuple):
    """A list that came before its REL, and the last number it paints there (None: none)."""

    x: int
    held: HeldList
    state: int | None


class MergeMachine:
    """Keeps one group's VUT; `handle` paints it, `take_batch` submits what is ready.

    `algorithms.merge_of` makes the one that a group's view managers need.

    Args:
        group: the merge group's name.
        views: the views it begins with; their sorted order is the columns' order.
        algorithm: "spa" when all view managers are complete, else "pa".
        batching: when and how many ready rows form a batch.
        order: "overtake" as the paper allows, or "prefix": no row before an earlier one.
        through: views whose lists are passed through (MVC 6.3); they hold no row back. Only with PA.
        discipline: what may be submitted before what has committed.

    Raises:
        FrescoError: MERGE_ALGORITHM, views to pass through under SPA.
    """

    def __init__(
        self,
        group: str,
        views: tuple[str, ...] | list[str],
        algorithm: Algorithm = "spa",
        batching: Batching = GREEDY,
        order: Literal["overtake", "prefix"] = "overtake",
        through: tuple[str, ...] = (),
        discipline: Discipline = "declared",
    ) -> None:
        if through and (algorithm == "spa" or not set(through) <= set(views)):
            raise FrescoError(
                "MERGE_ALGORITHM",
                f"{', '.join(through)} cannot be passed through by {algorithm} of {group}",
                where=f"merge {group}",
                todo="let algorithm_for choose",
            )
        names = tuple(sorted(views))
        self.group = group
        self.order = order
        self.founded = Founded(group, names, algorithm, tuple(sorted(through)), order, discipline)
        self.seen = -1
        """The last number a REL has named."""
        self.suspended: dict[str, int] = {}
        self.refused: frozenset[str] = frozenset()
        """Suspended views whose managers do not know it (`refuse`): what they send is not heard."""
        self.joining: dict[str, Joining] = {}
        """Views that no batch has shown yet."""
        self.opened: dict[str, tuple[int, ...]] = {}
        """At which cuts a view was added."""
        self.dropped: dict[str, int] = {}
        """At which cut a view was last dropped."""
        self.ahead: tuple[Ahead, ...] = ()
        """Additions whose cut has not been seen."""
        self.crossing: dict[str, list[ActionList | Suspend]] = {}
        """Per view a list across a cut that REL has not named whole, and what came after it."""
        self.submission = Submission(group, names, batching, discipline)
        self._lay_out(names, algorithm, frozenset(through))

    def _lay_out(
        self, views: tuple[str, ...], algorithm: Algorithm, through: frozenset[str]
    ) -> None:
        """An empty table with these columns."""
        self.views, self.algorithm, self.through = views, algorithm, through
        self.column = {view: x for x, view in enumerate(views)}
        self.guard = (len(views),)
        """A column in which guarded rows (`order` "prefix": all) have an idle cell."""
        self.vut = VUT(len(views) + 1, whole_columns=algorithm == "pa")
        self.submission.columns(views)
        self.passed = [-1] * len(views)
        """Per column the last number at which the view was idle in a REL."""
        self.shapes: dict[Kind, dict[RelSet, RelShape]] = {
            "counted": {},
            "guarded": {},
            "passed": {},
            "joining": {},
        }

    # Events ---------------------------------------------------------------------------------------

    def handle(self, message: Event) -> list[WarehouseTransaction]:
        """One message; returns the warehouse transactions that became ready, in order.

        Raises:
            ProtocolError: PROTOCOL_MERGE, the message breaks a rule; nothing has changed.
        """
        if message.group != self.group:
            raise ProtocolError("merge", message, f"this is the merge of group {self.group!r}")
        if not isinstance(message, Rel) or not (
            self.crossing or (self.ahead and message.last >= self._next_cut())
        ):
            return self._receive(message)
        before = self.state()
        try:
            ready = self._receive(message) + self._receive_early()
            return ready + self._receive_waiting()
        except ProtocolError:
            self._load(before)
            raise

    def _receive(self, message: Event) -> list[WarehouseTransaction]:
        """`handle`, but for what waits for a cut."""
        match message:
            case Rel():
                ready = self._receive_rel(message)
            case ViewChange():
                ready = self._receive_change(message)
            case _ if self._is_late(message):
                ready = []
            case _ if (ahead := self._early_for(message)) is not None:
                held = Ahead(ahead.change, (*ahead.held, message))
                self.ahead = tuple(held if one is ahead else one for one in self.ahead)
                ready = []
            case _ if message.view in self.refused:
                ready = []
            case _ if self._waits(message):
                ready = []
            case ActionList():
                ready = self._receive_list(message)
            case Suspend():
                ready = self._receive_suspend(message)
        self.submission.put(ready)
        return ready

    def refuse(self, view: str, number: int) -> list[WarehouseTransaction]:
        """The warehouse cannot apply the view's rows from `number` on: it is suspended before that.

        None of them is in a batch. Returns what became ready.
        """
        ready = self._load(changes.refuse(self.state(), view, number))
        self.submission.put(ready)
        return ready

    def last_listed(self, view: str) -> int:
        """The last number of the view's last list that was taken, or after which it is suspended."""
        painted = self.vut.painted[self.column[view]]
        return min(painted, self.suspended.get(view, painted))

    def take_batch(self, now_ms: int = 0) -> BatchedTransaction | None:
        """The next BWT, None when none may be submitted now; its rows leave the table.

        Args:
            now_ms: any clock's milliseconds; only batching by age looks at it.
        """
        if not self.submission.due(now_ms):
            return None
        batch = self.submission.take(self.vut, self._told_suspended())
        if batch is None or not batch.added:
            return batch
        for view, _ in batch.added:
            del self.joining[view]
        return replace(batch, suspended=self._told_suspended())

    def committed(self, sequence: int) -> None:
        """The warehouse has committed a BWT; "sequential" and "dependent" wait to hear it.

        Raises:
            ProtocolError: no such BWT is waited for.
        """
        self.submission.commits.committed(sequence)

    def _receive_rel(self, rel: Rel) -> list[WarehouseTransaction]:
        self._check_rel(rel)
        rows = self._rows_of(rel)
        blocks = in_blocks(rows, rel.last, rel.first)
        for x, held, state in self._match_early_lists(rel, blocks):
            self.vut.match(x, held, state)
        for run in rel.runs:
            for view in run.idle:
                self.passed[self.column[view]] = run.last
        self.seen = rel.last
        self.submission.rels.add(rel)
        return self._add(rows, blocks.values())

    def _receive_list(self, message: ActionList) -> list[WarehouseTransaction]:
        x = self._check_list(message)
        vut = self.vut
        state = vut.paint(x, message.last)
        if state is not None or message.last > self.seen:
            name = f"{message.view}[{message.first}..{message.last}]"
            held = HeldList(
                name, message.first, message.last, message.complete, message.delta, state
            )
            vut.hold(x, held)
        if self.algorithm == "pa":
            return pa.process_columns(vut, (x,))
        row = vut.top[x]
        return spa.process_rows(vut, (row,)) if row is not None else []

    def _receive_suspend(self, message: Suspend) -> list[WarehouseTransaction]:
        self._check_suspend(message)
        return self._load(changes.suspend(self.state(), message.view, message.after))

    def _add(self, rows: list[Row], blocks: Iterable[Block]) -> list[WarehouseTransaction]:
        empty = tuple([Span(r.first, r.last, r.shape) for r in rows if not r.shape.views])
        if empty:
            rows = [row for row in rows if row.shape.views]
        self.vut.add(rows)
        for block in blocks:
            self.vut.add_block(block)
        ready = [WarehouseTransaction(empty, False)] if empty else []
        return ready + self._process(rows)

    def _process(self, rows: list[Row]) -> list[WarehouseTransaction]:
        if self.algorithm == "spa":
            return spa.process_rows(self.vut, rows)
        return pa.process_columns(self.vut, {x for row in rows for x in row.shape.views})

    def _shape(
        self, views: tuple[str, ...], idle: tuple[str, ...], kind: Kind = "counted"
    ) -> RelShape:
        """The one object for a REL set; views that are passed through have rows of their own."""
        shapes = self.shapes[kind]
        known = shapes.get((views, idle))
        if known is None:
            counts = kind in ("counted", "guarded")
            here = self.through if counts else ()
            columns = tuple(sorted(self.column[view] for view in views if view not in here))
            busy = tuple(x for x in columns if self.views[x] not in idle)
            keeps_order = self.order == "prefix" or len(columns) < len(views)
            ordered = counts and keeps_order and (columns or self.order == "prefix")
            guard = self.guard if kind == "guarded" or ordered else ()
            known = shapes[views, idle] = RelShape(columns + guard, busy, kind, views)
        return known

    # The protocol ---------------------------------------------------------------------------------

    def check_runs(self, seen: int, rel: Rel) -> None:
        """REL goes on after `seen`; its runs follow each other and name views of the group.

        Raises:
            ProtocolError: it does not.
        """
        known = self.shapes["counted"].keys() | self.shapes["guarded"].keys()
        if rel.first <= seen:
            raise ProtocolError("merge", rel, f"a second REL for number {rel.first}")
        if rel.first != seen + 1:
            raise ProtocolError("merge", rel, f"REL must go on at number {seen + 1}")
        number = rel.first
        for run in rel.runs:
            if run.first != number or run.last < number:
                raise ProtocolError("merge", rel, f"the runs must go on at number {number}")
            number = run.last + 1
        for views, idle in {(run.views, run.idle) for run in rel.runs} - known:
            for view in views:
                self._column_of(view, rel)
            if len(set(views)) < len(views) or not set(idle) <= set(views):
                raise ProtocolError(
                    "merge", rel, "views of a run are distinct, idle ones among them"
                )
        if number != rel.last + 1 or not rel.runs:
            raise ProtocolError("merge", rel, f"the runs must end at number {rel.last}")

    def _column_of(self, view: str, message: object) -> int:
        """The view's column.

        Raises:
            ProtocolError: the view is not in the group.
        """
        x = self.column.get(view)
        if x is None:
            raise ProtocolError("merge", message, f"view {view!r} is not in group {self.group!r}")
        return x

    def _check_rel(self, rel: Rel) -> None:
        """The runs are right, a cut is where a view joins, and no list is needed of a suspended view.

        Raises:
            ProtocolError: a rule is broken.
        """
        self.check_runs(self.seen, rel)
        if self.ahead and rel.first <= self._next_cut() < rel.last:
            rule = f"a view joins at {self._next_cut()}, which must be a cut"
            raise ProtocolError("merge", rel, rule)
        for view, after in self.suspended.items():
            white = max(self.vut.painted[self.column[view]] + 1, rel.first)
            for run in rel.runs if white <= after else ():
                busy = view in run.views and view not in run.idle
                if busy and max(run.first, white) <= min(run.last, after):
                    rule = f"{view!r} is suspended; no list for {max(run.first, white)}"
                    raise ProtocolError("merge", rel, rule)

    def _check_list(self, message: ActionList) -> int:
        """A list begins below its column's red part, skips no white cell, paints one, crosses no cut.

        An empty list over numbers at which the view was idle is harmless and passes.

        Returns:
            the column.

        Raises:
            ProtocolError: a rule is broken.
        """
        x = self._column_of(message.view, message)
        view, first, last = message.view, message.first, message.last
        if view in self.suspended:
            raise ProtocolError("merge", message, f"view {view!r} is suspended")
        if last < first:
            raise ProtocolError("merge", message, "a list ends before it begins")
        if first <= self.vut.painted[x]:
            rule = f"a list for {view!r} must begin after number {self.vut.painted[x]}"
            raise ProtocolError("merge", message, rule)
        if self.algorithm == "spa" and not message.complete:
            raise ProtocolError("merge", message, "SPA takes lists of complete view managers only")
        joins = self.joining.get(view)
        if joins is not None and first <= joins.number < last:
            rule = f"{view!r} joins with a list of number {joins.number} alone"
            raise ProtocolError("merge", message, rule)
        white = self.vut.first_white(x)
        if white is not None and white < first:
            raise ProtocolError("merge", message, f"{view!r} has no list for number {white}")
        if first <= self.seen:
            cut = self.submission.rels.cut_after(first)
            if last > cut and not message.across:
                raise ProtocolError("merge", message, f"the list crosses the cut at {cut}")
            empty = message.delta is None or not message.delta.rows
            if (white is None or white > last) and not (empty and self.passed[x] >= first):
                raise ProtocolError("merge", message, f"REL has {view!r} at none of its numbers")
        return x

    def _check_suspend(self, message: Suspend) -> int:
        """A view is suspended once, at the number where its lists end.

        Returns:
            the column.

        Raises:
            ProtocolError: a rule is broken.
        """
        x = self._column_of(message.view, message)
        if message.view in self.suspended:
            raise ProtocolError("merge", message, f"view {message.view!r} is suspended already")
        white = self.vut.first_white(x)
        painted = self.vut.painted[x]
        if message.after < painted or (white is not None and white <= message.after):
            rule = f"the lists of {message.view!r} end at {painted}, not at `after`"
            raise ProtocolError("merge", message, rule)
        return x

    def _match_early_lists(self, rel: Rel, blocks: Mapping[str, Block]) -> list[EarlyList]:
        """Checks the lists that came before this REL against its rows, `blocks` by lane.

        Returns:
            each of them with the last number it paints.

        Raises:
            ProtocolError: one crosses the cut, skips a number, or is needed at none of its numbers.
        """
        matches: list[EarlyList] = []
        nothing = Block(rel.last, rel.first)
        for x, view in enumerate(self.views):
            painted = self.vut.painted[x]
            if painted < rel.first:
                continue
            block = blocks.get(view if view in self.through else "", nothing)
            idle = any(view in run.idle for run in rel.runs)
            unlisted = rel.first
            for held in (held for held in self.vut.lists[x] if held.state is None):
                if held.first > rel.last:
                    break
                if held.last > rel.last:
                    raise ProtocolError(
                        "merge", rel, f"list {held.id} crosses the cut at {rel.last}"
                    )
                state = block.last_busy(x, held.first, held.last)
                if state is None and (not idle or (held.delta is not None and held.delta.rows)):
                    raise ProtocolError("merge", rel, f"REL has the view at no number of {held.id}")
                missing = block.last_busy(x, unlisted, held.first - 1)
                if missing is not None:
                    raise ProtocolError("merge", rel, f"{view!r} has no list for number {missing}")
                unlisted = held.last + 1
                matches.append(EarlyList(x, held, state))
            missing = block.last_busy(x, unlisted, min(rel.last, painted))
            if missing is not None:
                raise ProtocolError("merge", rel, f"{view!r} has no list for number {missing}")
        return matches

    # Rows of REL ----------------------------------------------------------------------------------

    def _rows_of(self, rel: Rel) -> list[Row]:
        """The message's rows; a view that is passed through has a row to itself.

        A row that names a suspended view is guarded, and so is one of views that are painted and views
        that are passed through. Two rows may be in order because of a relation that only such a view
        reads; smallest history: T1 on r and q, T2 on q and s, views over each of the three. Without the
        column of the view over q nothing else keeps T2 behind T1. `changes` guards the rows that are
        there when a column closes.
        """
        through = self.through
        rows = []
        for run in _cut_at_ends(self.suspended, rel.runs) if self.suspended else rel.runs:
            first, last, views, idle = run.first, run.last, run.views, run.idle
            kind: Kind = "guarded" if run.guarded else "counted"
            shape = self.shapes[kind].get((views, idle)) or self._shape(views, idle, kind)
            rows.append(Row(first, last, shape))
            for view in sorted(through.intersection(views)) if through else ():
                alone = self._shape((view,), (view,) if view in idle else (), "passed")
                rows.append(Row(first, last, alone))
        return rows

    # Lists across a cut ---------------------------------------------------------------------------

    def _waits(self, message: ActionList | Suspend) -> bool:
        """Keeps a list across a cut that REL has not named whole, and all that follows it.

        Raises:
            ProtocolError: a list across a cut that is complete, or in a group under SPA.
        """
        crosses = isinstance(message, ActionList) and message.across
        if crosses and isinstance(message, ActionList):
            self._column_of(message.view, message)
            if message.complete or self.algorithm == "spa":
                rule = "only a strong list crosses a cut, and only PA takes it"
                raise ProtocolError("merge", message, rule)
        early = isinstance(message, ActionList) and message.last > self.seen
        if message.view not in self.crossing and not (crosses and early):
            return False
        self.crossing.setdefault(message.view, []).append(message)
        return True

    def _receive_waiting(self) -> list[WarehouseTransaction]:
        """What no longer waits, now that REL has gone on.

        Raises:
            ProtocolError: a message that waited breaks a rule.
        """
        ready: list[WarehouseTransaction] = []
        for view, held in sorted(self.crossing.items()):
            del self.crossing[view]
            for message in held:
                ready += self._receive(message)
        return ready

    # Views that join and leave ------------------------------------------------------------------------

    def _receive_change(self, change: ViewChange) -> list[WarehouseTransaction]:
        """Opens or closes a column.

        Raises:
            ProtocolError: a rule is broken.
        """
        if change.change == "drop":
            self._check_drop(change)
            return self._load(changes.drop(self.state(), change))
        if change.number in (*self.opened.get(change.view, ()), *self._expected(change.view)):
            return []
        self._check_add(change)
        if change.number > self.seen:
            self.ahead = (*self.ahead, Ahead(change))
            return []
        return self._load(changes.add(self.state(), change))

    def _check_add(self, change: ViewChange) -> None:
        view, number = change.view, change.number
        if change.manager == "complete-N":
            rule = "complete-N managers have a group of their own with one N (MVC 6.3)"
            raise ProtocolError("merge", change, rule)
        if number < max(self.seen, 0):
            rule = f"a view joins at the last cut, {self.seen}, or a later one"
            raise ProtocolError("merge", change, rule)
        if near := [other for other in self._expected(view) if abs(other - number) < 2]:
            raise ProtocolError("merge", change, f"{view!r} is to join at {near[0]} already")
        if number <= self.dropped.get(view, -2) + 1:
            rule = f"{view!r} was dropped at {self.dropped[view]} and comes back too soon"
            raise ProtocolError("merge", change, rule)
        if number > self.seen:
            return
        if view in self.column and view not in self.suspended:
            raise ProtocolError("merge", change, f"view {view!r} is in the group already")

    def _check_drop(self, change: ViewChange) -> None:
        self._column_of(change.view, change)
        if change.number != self.seen:
            rule = f"a view is dropped at the last cut, {self.seen}"
            raise ProtocolError("merge", change, rule)

    def _is_late(self, message: ActionList | Suspend) -> bool:
        """Whether a dropped view's manager sent it before it had heard of the drop."""
        last = message.last if isinstance(message, ActionList) else message.after
        return message.view in self.dropped and last <= self.dropped[message.view]

    def _early_for(self, message: ActionList | Suspend) -> Ahead | None:
        """The addition, waiting for its cut, whose manager sent the message."""
        first = message.first if isinstance(message, ActionList) else message.after + 1
        found = [
            ahead
            for ahead in self.ahead
            if ahead.change.view == message.view and ahead.number <= first
        ]
        return max(found, key=lambda ahead: ahead.number, default=None)

    def _receive_early(self) -> list[WarehouseTransaction]:
        """What was held for the cut that has been reached.

        Raises:
            ProtocolError: a held message breaks a rule.
        """
        ready: list[WarehouseTransaction] = []
        for ahead in [ahead for ahead in self.ahead if ahead.number == self.seen]:
            self.ahead = tuple(one for one in self.ahead if one.change != ahead.change)
            for message in (ahead.change, *ahead.held):
                ready += self._receive(message)
        return ready

    def _expected(self, view: str) -> list[int]:
        """The cuts at which additions of the view wait."""
        return [ahead.number for ahead in self.ahead if ahead.change.view == view]

    def _next_cut(self) -> int:
        """The first number at which an addition waits, which must be a cut."""
        return min(ahead.number for ahead in self.ahead)

    def _told_suspended(self) -> tuple[tuple[str, int], ...]:
        """(view, last good number) for views that the warehouse shows and that do not go on."""
        told = {view: after for view, after in self.suspended.items() if view not in self.joining}
        for view, joining in self.joining.items():
            if joining.shown is not None:
                told[view] = joining.shown
        return tuple(sorted(told.items()))

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; lists by reference, inline rows included."""
        return to_json(self.state())

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a state that a machine of the same group, views, algorithm and order saved.

        Raises:
            FrescoError: MERGE_SNAPSHOT when it is of another group or another format.
        """
        state = from_json(saved) if saved.get("format") == FORMAT else None
        if state is None or not state.follows(self.founded):
            raise FrescoError(
                "MERGE_SNAPSHOT",
                f"the saved state is of {saved.get('config')!r}, this merge is {self.founded!r}",
                where=f"merge {self.group}",
                todo="start with the view files of the saved state; `fresco view add FILE` changes a"
                " group",
            )
        self.founded = state.founded
        self._load(state)

    def state(self) -> MergeState:
        """Everything that the machine remembers."""
        vut, submission = self.vut, self.submission
        return MergeState(
            founded=self.founded,
            views=self.views,
            through=self.through,
            algorithm=self.algorithm,
            seen=self.seen,
            suspended=dict(self.suspended),
            refused=self.refused,
            joining=dict(self.joining),
            opened=dict(self.opened),
            dropped=dict(self.dropped),
            ahead=self.ahead,
            crossing={view: tuple(held) for view, held in self.crossing.items()},
            columns={
                view: ColumnState(
                    painted=vut.painted[x],
                    passed=self.passed[x],
                    lists=tuple(replace(held) for held in vut.lists[x]),
                    taken=submission.taken[x],
                    latest=submission.latest[x],
                )
                for x, view in enumerate(self.views)
            },
            rows=tuple(self._named(row.first, row.last, row.shape) for row in vut.rows()),
            ready=tuple(
                Ready(together, tuple(self._named(*span) for span in spans))
                for spans, together in submission.queued
            ),
            submission=submission.state(),
        )

    def _named(self, first: int, last: int, shape: RelShape) -> NamedSpan:
        idle = tuple(view for view in shape.names if self.column[view] not in shape.busy)
        return NamedSpan(first, last, NamedShape(shape.kind, shape.names, idle))

    def _load(self, state: MergeState) -> list[WarehouseTransaction]:
        """Makes the table with the state's columns and fills it.

        Returns:
            what is ready and was not in that state: nothing, unless columns were changed.
        """
        self._lay_out(state.views, state.algorithm, state.through)
        self.seen = state.seen
        self.suspended, self.refused = dict(state.suspended), state.refused
        self.joining, self.opened = dict(state.joining), dict(state.opened)
        self.dropped, self.ahead = dict(state.dropped), state.ahead
        self.crossing = {view: list(held) for view, held in state.crossing.items()}
        columns = [state.columns[view] for view in self.views]
        self.passed = [column.passed for column in columns]
        for x, column in enumerate(columns):
            self.vut.load_column(x, column.painted, column.lists)
        ready = [
            WarehouseTransaction(tuple(Span(*self._here(span)) for span in spans), together)
            for together, spans in state.ready
        ]
        taken, latest = [c.taken for c in columns], [c.latest for c in columns]
        self.submission.load(state.submission, taken, latest, ready)
        return self._place([Row(*self._here(span)) for span in state.rows])

    def _here(self, span: NamedSpan) -> tuple[int, int, RelShape]:
        kind, views, idle = span.shape
        return span.first, span.last, self._shape(views, idle, kind)

    def _place(self, rows: list[Row]) -> list[WarehouseTransaction]:
        """Fills the empty table with rows, ascending in each lane, and looks at all of them."""
        by_cut: dict[int, list[Row]] = {}
        for row in rows:
            by_cut.setdefault(self.submission.rels.cut_after(row.first), []).append(row)
        blocks = [in_blocks(inside, cut).values() for cut, inside in sorted(by_cut.items())]
        return self._add(rows, [block for lanes in blocks for block in lanes])

    @property
    def frontier(self) -> int:
        """Every number up to it is in a batch; -1 before number 0 is."""
        return self.submission.covered.frontier

    @property
    def waiting(self) -> int:
        """Transactions that are ready and not in a batch yet."""
        return self.submission.waiting

    @property
    def settled(self) -> int:
        """Every list up to it has been in a batch, those of passed and joining views included."""
        if not self.through and not self.joining:
            return self.frontier
        left = [row.first for row in self.vut.rows() if not row.shape.counts]
        for transaction in self.submission.ready:
            left += [span.first for span in transaction.spans if not span.shape.counts]
        return min([self.frontier, *(first - 1 for first in left)])

    def cells_by_colour(self) -> dict[str, int]:
        """Cells of the table by colour, counted by transaction."""
        return cells_by_colour(self.vut, self.submission.queued, len(self.views))

    def table(self) -> list[TableRow]:
        """The VUT as the paper prints it, equal neighbours as one row; gray rows included."""
        return read_table(self.vut, self.submission.queued, len(self.views))

    def painted(self) -> str:
        """The VUT as text, for people."""
        return paint_rows(self.views, self.table())


def _cut_at_ends(suspended: Mapping[str, int], runs: tuple[RelRun, ...]) -> Iterator[RelRun]:
    """The runs, cut at each suspended view's last good number and without the view below it."""
    for run in runs:
        first = run.first
        ends = {after for after in suspended.values() if run.first <= after < run.last}
        for last in (*sorted(ends), run.last):
            black = [view for view, after in suspended.items() if after < first]
            yield RelRun.model_construct(
                first=first,
                last=last,
                views=tuple(view for view in run.views if view not in black),
                idle=tuple(view for view in run.idle if view not in black),
                guarded=run.guarded or any(view in run.views for view in suspended),
            )
            first = last + 1
