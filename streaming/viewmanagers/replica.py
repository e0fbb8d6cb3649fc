"""The replica view manager (SC in hacid-slides): it keeps what the view needs of its relations.

It asks no source. For a message with the updates of [first..last] it evaluates the view's delta
rule once, over the state before `first` and the message's rows, and answers with one complete
action list: the rows are tagged number by number, so each number's list can be applied alone
(DESIGN 4, 5). A message in which no run asks for work on the view needs no evaluation; number
`start` always is evaluated, because an aggregate without keys has a row over an empty input too.

Its durable form is a checkpoint (each leaf's bag, folded, as Parquet) and the relations' numbered
updates since; the evaluator's own state is a cache that a restart rebuilds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from streaming.algebra.delta import leaves
from streaming.algebra.scans import columns_read
from streaming.algebra.tree import relations
from streaming.engines.evaluator import Batch, Evaluator, ViewError
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Suspend, Updates
from streaming.scalars.expression import NUMBER
from streaming.viewmanagers.base import (
    Codec,
    ManagedView,
    ManagerProgress,
    check_updates,
    suspension,
    works,
)
from streaming.viewmanagers.taint import refuse_tainted

Files = Mapping[str, object]
"""A checkpoint's reference, JSON-able: {"number": n, "leaves": k, "files": [[name, ...] per leaf]}.
"""


class ReplicaManager:
    """One view's manager.

    Args:
        spec: the view.
        evaluator: empty; `restore` fills it from a checkpoint.
        codec: rows to and from messages.
    """

    def __init__(self, spec: ManagedView, evaluator: Evaluator, codec: Codec) -> None:
        self.spec = spec
        self.evaluator = evaluator
        self._codec = codec
        self._relations = relations(spec.tree)
        self._reads = columns_read(spec.tree)
        self._progress = ManagerProgress(spec.start - 1)
        self._proposed: tuple[ManagerProgress, bool] | None = None

    @property
    def number(self) -> int:
        """The last number that is part of the state."""
        return self._progress.number

    # Messages -------------------------------------------------------------------------------------

    def handle(self, updates: Updates) -> ActionList | None:
        """The view's action list for [first..last], complete; `delta` is None when it is empty.

        None when REL asks for no work on the view at any of the numbers: the merge waits for
        nothing.

        Raises:
            ProtocolError: see `base.check_updates`.
            ViewError: the view cannot go on; `suspend` says up to where it is good.
        """
        lists = self.handle_all([updates])
        return lists[0] if lists else None

    def handle_all(self, messages: Sequence[Updates]) -> list[ActionList]:
        """As `handle`, for several messages in one evaluation; at most one list for each."""
        self._check(messages)
        self.discard()
        refuse_tainted(self._reads, messages)
        return self._handle(messages, messages[-1].last)

    def suspend(
        self, messages: Sequence[Updates], error: ViewError
    ) -> tuple[list[ActionList], Suspend]:
        """What is sent when `handle` raised: the lists of the numbers before the error, and
        Suspend.

        When the number of the error is not known, nothing of the messages is kept. A taint is told of
        before anything is computed, so there may be an error below it yet, which then counts.
        """
        self._check(messages)
        self.discard()
        first = messages[0].first
        after = first - 1 if error.number is None else error.number - 1
        good = [updates for updates in messages if updates.first <= after]
        try:
            lists = self._handle(good, after) if good else []
        except ViewError as earlier:
            if earlier.number is not None and earlier.number > after:
                raise
            return self.suspend(messages, earlier)
        worked = self._proposed is not None and self._proposed[1]
        self._proposed = (ManagerProgress(after, suspended_after=after), worked)
        return lists, suspension(self.spec, after, error.as_dict())

    def _check(self, messages: Sequence[Updates]) -> None:
        progress = self._progress
        for updates in messages:
            check_updates(self.spec, progress, updates)
            progress = replace(progress, number=updates.last)

    def _handle(self, messages: Sequence[Updates], last: int) -> list[ActionList]:
        asked = [updates for updates in messages if self._asks(updates, last)]
        worked = bool(asked)
        lists = []
        if worked:
            delta = self.evaluator.evaluate(self._batch(messages).until(last))
            for updates in asked:
                lists.append(self._list(updates, last, delta, len(messages) > 1))
        self._proposed = (ManagerProgress(last), worked)
        return lists

    def _asks(self, updates: Updates, last: int) -> bool:
        """Whether REL asks for work on the view up to `last`; its first state always does."""
        if updates.first <= self.spec.start <= updates.last:
            return True
        return any(works(run, self.spec.view) for run in updates.runs if run.first <= last)

    def _list(self, updates: Updates, last: int, delta: pa.Table, split: bool) -> ActionList:
        if split:
            numbers = delta.column(NUMBER)
            within = pc.and_(
                pc.greater_equal(numbers, updates.first), pc.less_equal(numbers, updates.last)
            )
            delta = delta.filter(within)
        return ActionList(
            group=self.spec.group,
            view=self.spec.view,
            first=updates.first,
            last=min(last, updates.last),
            delta=self._codec.pack(delta) if delta.num_rows else None,
        )

    def _batch(self, messages: Sequence[Updates]) -> Batch:
        opened: dict[str, tuple[pa.Table | Path, ...]] = {}
        truncates = []
        for updates in messages:
            for relation, rows in updates.relations.items():
                if relation in self._relations and rows.rows:
                    pieces = opened.get(relation, ())
                    opened[relation] = (*pieces, self._codec.open(rows))
            for control in updates.controls:
                if control.kind == "truncate" and control.relation in self._relations:
                    truncates.append((control.number, control.relation))
        return Batch(messages[0].first, messages[-1].last, opened, tuple(truncates))

    def advance(self) -> None:
        """Make the handled message part of the state.

        Raises:
            ProtocolError: no message is handled.
        """
        if self._proposed is None:
            raise ProtocolError(
                "view_manager", None, f"view {self.spec.view}: advance before handle"
            )
        progress, worked = self._proposed
        if worked:
            self.evaluator.advance()
        self._progress, self._proposed = progress, None

    def discard(self) -> None:
        """Forget the handled message; the state is as if it had never come."""
        if self._proposed is not None:
            self.evaluator.discard()
        self._proposed = None

    # Durable form ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, object]:
        """Control state as it will be once the handled messages are advanced, for the manifest."""
        progress = self._proposed[0] if self._proposed is not None else self._progress
        return {
            "view": self.spec.view,
            "number": progress.number,
            "suspended_after": progress.suspended_after,
        }

    def checkpoint(self, folder: Path, keep: Callable[[Path], str]) -> dict[str, object]:
        """Write the state's folded form; returns its reference, JSON-able, for the manifest.

        Args:
            folder: an empty local folder for the files.
            keep: makes a file durable and names it for good.

        Raises:
            ProtocolError: messages are handled but not advanced.
        """
        if self._proposed is not None:
            raise ProtocolError("view_manager", None, "checkpoint while messages are not advanced")
        names = self.evaluator.export(folder)
        files = [[keep(folder / name) for name in leaf] for leaf in names]
        return {**self.snapshot(), "leaves": len(leaves(self.spec.tree)), "files": files}

    def move(self, evaluator: Evaluator, folder: Path) -> None:
        """Go on with another, empty evaluator, where `evaluator.choose` asks for it.

        Args:
            folder: an empty folder that both evaluators see.

        Raises:
            ProtocolError: messages are handled but not advanced.
        """
        if self._proposed is not None:
            raise ProtocolError("view_manager", None, "move while messages are not advanced")
        number = self.evaluator.number
        if number is not None:
            names = self.evaluator.export(folder)
            evaluator.load([[folder / name for name in leaf] for leaf in names], number)
        self.evaluator = evaluator

    def restore(
        self, checkpoint: Files | None, tail: Iterable[Updates], open_: Callable[[str], Path]
    ) -> None:
        """Rebuild the state of an empty evaluator from a checkpoint and the messages since.

        Args:
            checkpoint: what `checkpoint` returned; None to begin at the view's start.
            tail: the messages after it, in order; nothing is sent for them.
            open_: a kept file's path from its name.

        Raises:
            ProtocolError: the checkpoint is another view's, or the tail has a gap.
        """
        if checkpoint is not None:
            self._take_over(checkpoint, open_)
        for updates in tail:
            check_updates(self.spec, self._progress, updates)
            if self.evaluator.number is None:
                self.handle(updates)
                self.advance()
            else:
                self.evaluator.replay(self._batch([updates]))
                self._progress = ManagerProgress(updates.last)

    def _take_over(self, checkpoint: Files, open_: Callable[[str], Path]) -> None:
        if checkpoint["view"] != self.spec.view:
            raise ProtocolError("view_manager", checkpoint, f"not a checkpoint of {self.spec.view}")
        if checkpoint["leaves"] != len(leaves(self.spec.tree)):
            raise ProtocolError("view_manager", checkpoint, "a checkpoint of another definition")
        number, after = checkpoint["number"], checkpoint["suspended_after"]
        files = checkpoint["files"]
        assert isinstance(number, int) and isinstance(files, list)
        assert after is None or isinstance(after, int)
        if number >= self.spec.start:
            self.evaluator.load([[open_(name) for name in leaf] for leaf in files], number)
        self._progress = ManagerProgress(number, after)
