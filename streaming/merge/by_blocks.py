"""SPA for complete-N view managers with one N: a row is a block of N transactions (MVC 6.3).

The managers send one list for each block in which REL has their view; the merge "collects all lists
corresponding to every N updates". That is SPA with blocks for numbers (`blocks`). So this machine
renumbers: it says to a `MergeMachine` what happened in terms of blocks and tells its batches in terms of
numbers. REL of a block is what its numbers have together; a view is idle in it when it is idle in all.

A block is a cut. REL messages may end inside one; its row comes when all of its numbers have. The last,
incomplete block of an input that rests waits, as the level says: a state after every N transactions.
Rules beside those of the `MergeMachine`, in numbers:

    list        inside one block, with every number of it at which the view has work   ProtocolError
    ViewChange  at the end of a block, of a manager with the same N                    ProtocolError
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from streaming.errors import FrescoError, ProtocolError
from streaming.merge.batching import GREEDY, BatchedTransaction, Batching
from streaming.merge.blocks import Blocks, Cover, Facts, lacks, rel_of, within, work_of
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import Event, MergeMachine
from streaming.merge.picture import TableRow, paint_rows
from streaming.merge.vut_rows import Span, WarehouseTransaction
from streaming.messages import ActionList, Rel, Suspend, ViewChange


class BlockMerge:
    """A merge group of complete-N managers; used like a `MergeMachine`.

    Args:
        every: N.
    """

    def __init__(
        self,
        group: str,
        views: tuple[str, ...] | list[str],
        every: int,
        batching: Batching = GREEDY,
        order: Literal["overtake", "prefix"] = "overtake",
        discipline: Discipline = "declared",
    ) -> None:
        self.group, self.every = group, every
        self.blocks = Blocks(every)
        self.inner = MergeMachine(group, views, "spa", batching, order, discipline=discipline)
        self.seen = -1
        self.open = Facts()
        self.work: dict[str, dict[int, Cover]] = {}
        """Per view and block whose list has not come: where it has work."""
        self.early: dict[str, dict[int, Cover]] = {}
        """Per view and block whose REL has not come: what its list covers."""
        self.listed: dict[str, int] = {}
        """Per view the last number of its last list."""

    @property
    def algorithm(self) -> str:
        return "spa-n"

    @property
    def views(self) -> tuple[str, ...]:
        return self.inner.views

    @property
    def frontier(self) -> int:
        """Every number up to it is in a batch; -1 before number 0 is."""
        return self.blocks.last_of(self.inner.frontier)

    @property
    def settled(self) -> int:
        """Every list up to it has been in a batch."""
        return self.blocks.last_of(self.inner.settled)

    @property
    def waiting(self) -> int:
        """Blocks that are ready and not in a batch yet."""
        return self.inner.waiting

    # Events ---------------------------------------------------------------------------------------

    def handle(self, message: Event) -> list[WarehouseTransaction]:
        """One message; returns what became ready, by numbers.

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
            case ViewChange():
                ready = self._receive_change(message)
        return [
            WarehouseTransaction(
                (Span(self.blocks.first_of(block), self.blocks.last_of(block), span.shape),), True
            )
            for spans, _ in ready
            for span in spans
            for block in range(span.first, span.last + 1)
        ]

    def take_batch(self, now_ms: int = 0) -> BatchedTransaction | None:
        """The next BWT, its numbers whole blocks; None when none may be submitted now."""
        batch = self.inner.take_batch(now_ms)
        return None if batch is None else self.blocks.by_number(batch)

    def refuse(self, view: str, number: int) -> None:
        """The warehouse cannot apply the view's rows from `number` on: it ends before that block."""
        self.inner.refuse(view, self.blocks.block_of(number))
        self._forget(view)

    def last_listed(self, view: str) -> int:
        """The last number of the view's last list that was taken, or after which it is suspended."""
        return self.blocks.last_of(self.inner.last_listed(view))

    def committed(self, sequence: int) -> None:
        """The warehouse has committed a BWT.

        Raises:
            ProtocolError: no such BWT is waited for.
        """
        self.inner.committed(sequence)

    def _receive_rel(self, rel: Rel) -> list[WarehouseTransaction]:
        self.inner.check_runs(self.seen, rel)
        blocks, rest = self.blocks.cut((*self.open.runs, *rel.runs))
        work = {k: work_of(runs) for k, runs in blocks.items()}
        # A suspended view may come back in this message; what is early is of its new manager.
        suspended = set(self.inner.suspended)
        for k, by_view in work.items():
            for view, wanted in by_view.items():
                covered = None if view in suspended else self.early.get(view, {}).get(k)
                if covered is not None and not within(wanted, covered):
                    raise ProtocolError("merge", rel, lacks(view, covered, wanted))
        ready: list[WarehouseTransaction] = []
        said = self.open.and_of(rel)
        if blocks:
            ended = replace(self.open, released=said.released) if rest else said
            ready = self._tell(rel, rel_of(self.group, blocks, work, ended))
            said = (
                Facts(positions=rel.positions, committed_ms=rel.committed_ms) if rest else Facts()
            )
        self.open = replace(said, runs=tuple(rest))
        self.seen = rel.last
        for k, by_view in work.items():
            for view, wanted in by_view.items():
                if view not in suspended and self.early.get(view, {}).get(k) is None:
                    self.work.setdefault(view, {})[k] = wanted
        for covers in self.early.values():
            for k in [k for k in covers if k <= self.inner.seen]:
                del covers[k]
        return ready

    def _receive_list(self, message: ActionList) -> list[WarehouseTransaction]:
        view, cover = message.view, (message.first, message.last)
        k = self.blocks.block_of(message.first)
        if message.last < message.first or self.blocks.block_of(message.last) != k:
            raise ProtocolError("merge", message, f"a list lies in one block of {self.every}")
        wanted = self.work.get(view, {}).get(k)
        if wanted is not None and not within(wanted, cover):
            raise ProtocolError("merge", message, lacks(view, cover, wanted))
        turned = {"first": k, "last": k, "complete": True}
        ready = self._tell(message, message.model_copy(update=turned))
        if k > self.inner.seen:
            self.early.setdefault(view, {})[k] = cover
        self.work.get(view, {}).pop(k, None)
        self.listed[view] = message.last
        return ready

    def _receive_suspend(self, message: Suspend) -> list[WarehouseTransaction]:
        after, listed = message.after, self.listed.get(message.view, -1)
        k = after // self.every
        if after >= listed:
            k = max(k, self.blocks.block_of(listed))
        ready = self._tell(message, message.model_copy(update={"after": k}))
        self._forget(message.view)
        return ready

    def _receive_change(self, message: ViewChange) -> list[WarehouseTransaction]:
        k, view = message.number // self.every, message.view
        echo = message.change == "add" and k in self.inner.opened.get(view, ())
        if message.number % self.every:
            raise ProtocolError("merge", message, f"no block of {self.every} ends there")
        if message.change == "add" and (message.manager, message.every) != (
            "complete-N",
            self.every,
        ):
            rule = f"this group takes managers that are complete-{self.every}"
            raise ProtocolError("merge", message, rule)
        if message.number < self.seen and not echo:
            raise ProtocolError("merge", message, f"numbers up to {self.seen} have been seen")
        if message.change == "drop" and message.number != self.seen:
            raise ProtocolError("merge", message, f"a view is dropped at the last cut, {self.seen}")
        turned = {"number": k, "manager": "complete", "every": None}
        ready = self._tell(message, message.model_copy(update=turned))
        if not echo:
            self._forget(view)
        return ready

    def _tell(self, message: Event, turned: Event) -> list[WarehouseTransaction]:
        """The message by blocks; a refusal names the message as it came."""
        try:
            return self.inner.handle(turned)
        except ProtocolError as error:
            rule = error.what.partition("; message:")[0]
            raise ProtocolError("merge", message, f"by blocks of {self.every}, {rule}") from None

    def _forget(self, view: str) -> None:
        for by_view in (self.work, self.early, self.listed):
            by_view.pop(view, None)

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "every": self.every,
            "inner": self.inner.snapshot(),
            "seen": self.seen,
            "open": self.open.as_json(),
            "work": _dump(self.work),
            "early": _dump(self.early),
            "listed": dict(self.listed),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes over a saved state.

        Raises:
            FrescoError: MERGE_SNAPSHOT when it is of another machine.
        """
        if saved.get("every") != self.every:
            raise FrescoError(
                "MERGE_SNAPSHOT",
                f"the saved state is of blocks of {saved.get('every')}, not {self.every}",
                where=f"merge {self.group}",
                todo="start with the view files of the saved state",
            )
        self.inner.restore(saved["inner"])
        self.seen = saved["seen"]
        self.open = Facts.from_json(saved["open"])
        self.work, self.early = _load(saved["work"]), _load(saved["early"])
        self.listed = dict(saved["listed"])

    def cells_by_colour(self) -> dict[str, int]:
        """Cells of the table by colour, counted by block."""
        return self.inner.cells_by_colour()

    def table(self) -> list[TableRow]:
        """The VUT as the paper prints it, by numbers."""
        return [
            row._replace(
                first=self.blocks.first_of(row.first),
                last=self.blocks.last_of(row.last),
                states=tuple(self.blocks.last_of(state) for state in row.states),
            )
            for row in self.inner.table()
        ]

    def painted(self) -> str:
        """The VUT as text, for people."""
        return paint_rows(self.views, self.table())


def _dump(covers: dict[str, dict[int, Cover]]) -> dict[str, list[list[int]]]:
    return {view: [[k, *cover] for k, cover in by.items()] for view, by in covers.items() if by}


def _load(saved: dict[str, list[list[int]]]) -> dict[str, dict[int, Cover]]:
    return {view: {k: (first, last) for k, first, last in by} for view, by in saved.items()}
