"""The merge process of one merge group as a pure machine (MVC 4 and 5, DESIGN 5).

Two kinds of events drive it: REL runs from the integrator, in order and without gaps, and action
lists from the view managers, in order per view; a list may come before its REL. `Suspend` paints
what is left of a view's column black, `ViewChange` opens or closes a column (`changes`). Nothing
here has a clock or does I/O. Every message is checked against the protocol before anything changes:

    message     must hold                                                        else
    Rel         first = last seen + 1, runs without gaps, known views            ProtocolError
    list        known view, not suspended, first > the column's red part,        ProtocolError
                inside one cut (but see `crossing`), paints a white cell and
                skips none
    Suspend     known view, once, every cell up to `after` has its list          ProtocolError
    ViewChange  the rules in `changes`                                           ProtocolError
    committed   a batch that was taken and has not committed                     ProtocolError

What the check of a list needs to know of a REL that has not come yet is checked when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from streaming.errors import FrescoError, ProtocolError
from streaming.merge import changes, crossing, pa, protocol, relrows, spa
from streaming.merge.batching import GREEDY, BatchedTransaction, Batching, Submission
from streaming.merge.disciplines import Discipline
from streaming.merge.picture import TableRow, cells_by_colour, paint_table, read_table
from streaming.merge.rows import (
    Block,
    HeldList,
    Kind,
    RelSet,
    Row,
    Shape,
    Span,
    WarehouseTransaction,
    in_blocks,
)
from streaming.merge.state import Ahead, Joining, load, restore, snapshot
from streaming.merge.vut import VUT
from streaming.messages import ActionList, Rel, Suspend, ViewChange

Event = Rel | ActionList | Suspend | ViewChange


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
        algorithm: Literal["spa", "pa"] = "spa",
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
        self.founded = (names, algorithm, tuple(sorted(through)))
        """The views, algorithm and views to pass through that it was made with."""
        self.seen = -1
        """The last number a REL has named."""
        self.suspended: dict[str, int] = {}
        self.refused: frozenset[str] = frozenset()
        """Suspended views whose managers do not know it (`refuse`): what they send is not heard."""
        self.joining: dict[str, Joining] = {}
        """Views that no batch has shown yet."""
        self.opened: dict[str, list[int]] = {}
        """At which cuts a view was added."""
        self.dropped: dict[str, int] = {}
        """At which cut a view was last dropped."""
        self.ahead: list[Ahead] = []
        """Additions whose cut has not been seen."""
        self.crossing: dict[str, list[ActionList | Suspend]] = {}
        """Per view a list across a cut that REL has not named whole, and what came after it."""
        self.submission = Submission(group, names, batching, discipline)
        self.lay_out(names, algorithm, frozenset(through))

    def lay_out(
        self, views: tuple[str, ...], algorithm: Literal["spa", "pa"], through: frozenset[str]
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
        self.shapes: dict[Kind, dict[RelSet, Shape]] = {
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
            self.crossing or (self.ahead and message.last >= changes.cut(self))
        ):
            return self.receive(message)
        before = self.snapshot()
        try:
            ready = self.receive(message) + changes.receive_early(self)
            return ready + crossing.receive_waiting(self)
        except ProtocolError:
            load(self, before)
            raise

    def receive(self, message: Event) -> list[WarehouseTransaction]:
        """`handle`, but for what waits for a cut."""
        match message:
            case Rel():
                ready = self._receive_rel(message)
            case ViewChange():
                ready = changes.receive_change(self, message)
            case _ if changes.is_late(self, message):
                ready = []
            case _ if (ahead := changes.early_for(self, message)) is not None:
                ahead.held.append(message)
                ready = []
            case _ if message.view in self.refused:
                ready = []
            case _ if crossing.waits(self, message):
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
        return changes.refuse(self, view, number)

    def take_batch(self, now_ms: int = 0) -> BatchedTransaction | None:
        """The next BWT, None when none may be submitted now; its rows leave the table.

        Args:
            now_ms: any clock's milliseconds; only batching by age looks at it.
        """
        if not self.submission.due(now_ms):
            return None
        batch = self.submission.take(self.vut, changes.told_suspended(self))
        if batch is None or not batch.added:
            return batch
        for view, _ in batch.added:
            del self.joining[view]
        return replace(batch, suspended=changes.told_suspended(self))

    def committed(self, sequence: int) -> None:
        """The warehouse has committed a BWT; "sequential" and "dependent" wait to hear it.

        Raises:
            ProtocolError: no such BWT is waited for.
        """
        self.submission.commits.committed(sequence)

    def _receive_rel(self, rel: Rel) -> list[WarehouseTransaction]:
        protocol.check_rel(self, rel)
        rows = relrows.rows_of(self, rel)
        blocks = in_blocks(rows, rel.last, rel.first)
        for x, held, state in protocol.match_early_lists(self, rel, blocks):
            held.state = state
            if state is None:
                self.vut.lists[x].remove(held)
        for run in rel.runs:
            for view in run.idle:
                self.passed[self.column[view]] = run.last
        self.seen = rel.last
        self.submission.rels.add(rel)
        return self._add(rows, blocks.values())

    def _receive_list(self, message: ActionList) -> list[WarehouseTransaction]:
        x = protocol.check_list(self, message)
        vut = self.vut
        state = vut.paint(x, message.last)
        if state is not None or message.last > self.seen:
            name = f"{message.view}[{message.first}..{message.last}]"
            vut.lists[x].append(
                HeldList(name, message.first, message.last, message.complete, message.delta, state)
            )
        if self.algorithm == "pa":
            return pa.process_columns(vut, (x,))
        row = vut.top[x]
        return spa.process_rows(vut, (row,)) if row is not None else []

    def _receive_suspend(self, message: Suspend) -> list[WarehouseTransaction]:
        protocol.check_suspend(self, message)
        saved = self.snapshot()
        changes.blacken(saved, message.view, message.after)
        return load(self, saved)

    def place(self, rows: list[Row]) -> list[WarehouseTransaction]:
        """Fills the empty table with rows, ascending in each lane, and looks at all of them."""
        by_cut: dict[int, list[Row]] = {}
        for row in rows:
            by_cut.setdefault(self.submission.rels.cut_after(row.first), []).append(row)
        blocks = [in_blocks(inside, cut).values() for cut, inside in sorted(by_cut.items())]
        return self._add(rows, [block for lanes in blocks for block in lanes])

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

    def shape(self, views: tuple[str, ...], idle: tuple[str, ...], kind: Kind = "counted") -> Shape:
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
            known = shapes[views, idle] = Shape(columns + guard, busy, kind, views)
        return known

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; lists by reference, inline rows included."""
        return snapshot(self)

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a state that a machine of the same group, views, algorithm and order saved.

        Raises:
            FrescoError: MERGE_SNAPSHOT when it is of another group or another format.
        """
        restore(self, saved)

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
        return cells_by_colour(self)

    def table(self) -> list[TableRow]:
        """The VUT as the paper prints it, equal neighbours as one row; gray rows included."""
        return read_table(self)

    def painted(self) -> str:
        """The VUT as text, for people."""
        return paint_table(self)
