"""The merge process of one merge group as a pure machine (MVC 4 and 5, DESIGN 5).

Two kinds of events drive it: REL runs from the integrator, in order and without gaps, and action
lists from the view managers, in order per view; a list may come before its REL. A third, `Suspend`,
paints what is left of a view's column black. Nothing here has a clock or does I/O. Every message is
checked against the protocol before anything changes:

    message   must hold                                                        else
    Rel       first = last seen + 1, runs without gaps, known views            ProtocolError
    list      known view, not suspended, first > the column's red part,        ProtocolError
              inside one cut, paints a white cell and skips none
    Suspend   known view, once, every cell up to `after` has its list          ProtocolError

What the check of a list needs to know of a REL that has not come yet is checked when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from streaming.errors import ProtocolError
from streaming.merge import pa, protocol, spa
from streaming.merge.batching import GREEDY, BatchedTransaction, Batching, Submission
from streaming.merge.picture import TableRow, paint_table, read_table
from streaming.merge.state import restore, snapshot
from streaming.merge.vut import VUT, Block, HeldList, Row, Shape, Span, WarehouseTransaction
from streaming.messages import ActionList, Rel, RelRun, Suspend


class MergeMachine:
    """Keeps one group's VUT; `handle` paints it, `take_batch` submits what is ready.

    Args:
        group: the merge group's name.
        views: the group's views; their sorted order is the columns' order.
        algorithm: "spa" when all view managers are complete, else "pa".
        batching: when and how many ready rows form a batch.
        order: "overtake" as the paper allows, or "prefix": no row before an earlier one.
    """

    def __init__(
        self,
        group: str,
        views: tuple[str, ...] | list[str],
        algorithm: Literal["spa", "pa"] = "spa",
        batching: Batching = GREEDY,
        order: Literal["overtake", "prefix"] = "overtake",
    ) -> None:
        self.group = group
        self.views = tuple(sorted(views))
        self.algorithm = algorithm
        self.order = order
        self.seen = -1
        """The last number a REL has named."""
        self.suspended: dict[str, int] = {}
        self.column = {view: x for x, view in enumerate(self.views)}
        self.guard = (len(self.views),) if order == "prefix" else ()
        """A column in which every row has an idle cell: it lets no row overtake another."""
        self.vut = VUT(len(self.views) + len(self.guard), whole_columns=algorithm == "pa")
        self.submission = Submission(self.views, batching)
        self.passed = [-1] * len(self.views)
        """Per column the last number at which the view was idle in a REL."""
        self.shapes: dict[tuple[tuple[str, ...], tuple[str, ...]], Shape] = {}

    # Events ---------------------------------------------------------------------------------------

    def handle(self, message: Rel | ActionList | Suspend) -> list[WarehouseTransaction]:
        """One message; returns the warehouse transactions that became ready, in order.

        Raises:
            ProtocolError: PROTOCOL_MERGE, the message breaks a rule; nothing has changed.
        """
        if message.group != self.group:
            raise ProtocolError("merge", message, f"this is the merge of group {self.group!r}")
        match message:
            case Rel():
                ready = self._receive_rel(message)
            case ActionList():
                ready = self._receive_list(message)
            case Suspend():
                ready = self._receive_suspend(message)
        self.submission.put(ready)
        return ready

    def take_batch(self, now_ms: int = 0) -> BatchedTransaction | None:
        """The next BWT, None when none is due; its rows leave the table.

        Args:
            now_ms: any clock's milliseconds; only batching by age looks at it.
        """
        if not self.submission.due(now_ms):
            return None
        return self.submission.take(self.vut, tuple(sorted(self.suspended.items())))

    def _receive_rel(self, rel: Rel) -> list[WarehouseTransaction]:
        protocol.check_rel(self, rel)
        block, spans = self._spans(rel)
        for x, held, state in protocol.match_early_lists(self, rel, block):
            held.state = state
            if state is None:
                self.vut.lists[x].remove(held)
        for run in rel.runs:
            for view in run.idle:
                self.passed[self.column[view]] = run.last
        self.seen = rel.last
        self.submission.rels.add(rel)
        return self._add(spans, [block])

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
        x = protocol.check_suspend(self, message)
        self.suspended[message.view] = message.after
        rows = self.vut.rows()
        self.vut.clear_rows()
        return self.place([s for row in rows for s in self._blacken(row, x, message.after)])

    def place(self, rows: list[tuple[int, int, Shape]]) -> list[WarehouseTransaction]:
        """Fills the empty table with rows, ascending, and looks at all of them."""
        blocks = {cut: Block(cut) for cut in self.submission.rels.cuts}
        spans = []
        for first, last, shape in rows:
            blocks[self.submission.rels.cut_after(first)].add(first, last, shape)
            spans.append(Span(first, last, shape))
        return self._add(spans, list(blocks.values()))

    def _spans(self, rel: Rel) -> tuple[Block, list[Span]]:
        shapes, block, spans = self.shapes, Block(rel.last), []
        for first, last, views, idle in self._runs(rel.runs):
            shape = shapes.get((views, idle)) or self.shape(views, idle)
            block.add(first, last, shape)
            spans.append(Span(first, last, shape))
        return block, spans

    def _add(self, spans: list[Span], blocks: list[Block]) -> list[WarehouseTransaction]:
        empty = tuple(span for span in spans if not span.shape.views)
        add = self.vut.add
        rows = [add(first, last, shape) for first, last, shape in spans if shape.views]
        for block in blocks:
            self.vut.add_block(block)
        ready = [WarehouseTransaction(empty, False)] if empty else []
        return ready + self._process(rows)

    def _process(self, rows: list[Row]) -> list[WarehouseTransaction]:
        if self.algorithm == "spa":
            return spa.process_rows(self.vut, rows)
        return pa.process_columns(self.vut, {x for row in rows for x in row.shape.views})

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

    def cells_by_colour(self) -> dict[str, int]:
        """Cells of the table by colour, counted by transaction."""
        rows = self.vut.rows()
        ready = [span for transaction in self.submission.ready for span in transaction.spans]
        cells = [(row.last - row.first + 1, self._width(row.shape)) for row in rows]
        gray = sum((span.last - span.first + 1) * self._width(span.shape) for span in ready)
        white = self.vut.white_cells()
        coloured = sum(count * width for count, width in cells)
        total = len(self.views) * (sum(count for count, _ in cells) + self.waiting)
        return {
            "white": white,
            "red": coloured - white,
            "gray": gray,
            "black": total - coloured - gray,
        }

    def table(self) -> list[TableRow]:
        """The VUT as the paper prints it, equal neighbours as one row; gray rows included."""
        return read_table(self)

    def painted(self) -> str:
        """The VUT as text, for people."""
        return paint_table(self)

    # Rows -----------------------------------------------------------------------------------------

    def shape(self, views: tuple[str, ...], idle: tuple[str, ...]) -> Shape:
        """The one object for a REL set."""
        known = self.shapes.get((views, idle))
        if known is None:
            columns = tuple(sorted(self.column[view] for view in views))
            busy = tuple(x for x in columns if self.views[x] not in idle)
            known = self.shapes[views, idle] = Shape(columns + self.guard, busy)
        return known

    def _runs(
        self, runs: tuple[RelRun, ...]
    ) -> Iterator[tuple[int, int, tuple[str, ...], tuple[str, ...]]]:
        """The runs, cut at each suspended view's last good number and without the view below it."""
        if not self.suspended:
            for run in runs:
                yield run.first, run.last, run.views, run.idle
            return
        for run in runs:
            first = run.first
            ends = {after for after in self.suspended.values() if run.first <= after < run.last}
            for last in (*sorted(ends), run.last):
                black = [view for view, after in self.suspended.items() if after < first]
                views, idle = run.views, run.idle
                if black:
                    views = tuple(view for view in views if view not in black)
                    idle = tuple(view for view in idle if view not in black)
                yield first, last, views, idle
                first = last + 1

    def _width(self, shape: Shape) -> int:
        return len(shape.views) - len(self.guard)

    def _blacken(self, row: Row, x: int, after: int) -> Iterator[Span]:
        if x not in row.shape.views or row.last <= after:
            yield Span(row.first, row.last, row.shape)
            return
        if row.first <= after:
            yield Span(row.first, after, row.shape)
        views = tuple(self.views[y] for y in row.shape.views if y != x and y < len(self.views))
        idle = tuple(view for view in views if self.column[view] not in row.shape.busy)
        shape = self.shape(views, idle)
        yield Span(max(row.first, after + 1), row.last, shape)
