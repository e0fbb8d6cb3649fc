"""The stage of one view manager: numbered updates in, the view's action lists out (MVC 3.3).

Each view has a query of its own, so a slow or a suspended view holds up no other. The manager's working
state lives in the driver; its durable form is a folded checkpoint every few batches plus the relations'
updates since, which the integrator has recorded in `_updates` before it published them.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Scan, walk
from streaming.errors import FrescoError
from streaming.messages import ActionList, RelRun, Rows, Suspend, Updates
from streaming.metrics import Metrics
from streaming.packed_rows import locate, pack
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.inbox import Inbox
from streaming.runtime.kafka import Topics
from streaming.runtime.restarts import first_line
from streaming.runtime.snapshots import Checkpoint, Reached, ReplicaState
from streaming.runtime.stage_names import role_of
from streaming.runtime.staging import Staging
from streaming.runtime.step import Manifest, StepResult
from streaming.scalars.expression import Schema
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.evaluators import Evaluators
from streaming.stages.stage_trouble import told_refused
from streaming.viewmanagers.base import Codec, ManagedView, suspension
from streaming.viewmanagers.replica import ReplicaManager
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")


class ViewStage:
    """Stage `view:<name>`."""

    def __init__(
        self,
        spec: ManagedView,
        evaluators: Evaluators,
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
        checkpoint_batches: int,
        name: str | None = None,
    ) -> None:
        self.spec = spec
        self.name = name or f"view:{spec.view}"
        self._evaluators, self._warehouse = evaluators, warehouse
        self._topic, self._metrics = actions_topic, metrics
        self._checkpoint_batches = checkpoint_batches
        self._staging = Staging(warehouse, self.name)
        self._pack: Callable[[pa.Table], Rows] = partial(pack, stage=self._staging.keeper(0))
        self._state = warehouse / "_state" / self.name.replace(":", "-")
        self._kept = self._state / "checkpoints"
        self._kept.mkdir(parents=True, exist_ok=True)
        self._checkpoint: Checkpoint | None = None
        self._kept_before: frozenset[str] = frozenset()
        self._left_over: frozenset[str] = frozenset()
        self._since_checkpoint = 0
        self._ran = False
        self._inbox = Inbox()
        self.suspended: dict[str, str] | None = None
        self._manager = self._new_manager()
        self._control = Reached.model_validate(self._manager.snapshot())
        self.handled = -1
        """The last number of a durable manifest."""
        self.needed = spec.start
        """The first number that a restart would replay."""
        self.left = False
        """Whether a durable manifest says that the view is suspended: it takes no more updates."""

    def topics(self, topics: Topics) -> tuple[str, ...]:
        """Those that it reads."""
        return (topics.updates(self.spec.group),)

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Rebuild the manager from its checkpoint and the updates recorded since."""
        saved = ReplicaState.loaded(snapshot) if snapshot else None
        self._inbox = Inbox(saved.inbox if saved else None)
        self._checkpoint = saved.checkpoint if saved else None
        self.suspended = saved.suspended if saved else None
        self._kept_before = frozenset(_files(self._checkpoint))
        self._left_over = self._files_there() - self._kept_before
        self._ran = False
        self.needed = self._first_after(self._checkpoint)
        self._since_checkpoint = 0
        self._manager = self._new_manager()
        self._control = saved.control if saved else Reached.model_validate(self._manager.snapshot())
        self.handled = saved.number if saved else -1
        self.left = self.suspended is not None
        if saved is None or self.suspended is not None:
            return
        number, needed = self.handled, self.needed
        tail = [self._recorded(needed, number)] if number >= needed else []
        try:
            folded = self._checkpoint.model_dump(mode="json") if self._checkpoint else None
            self._manager.restore(folded, tail, lambda name: self._warehouse / name)
        except FrescoError:
            raise
        except Exception as error:
            raise FrescoError(
                "STATE_CHECKPOINT",
                f"the view's saved state cannot be read: {first_line(error)}",
                where=self.name,
                todo="`fresco view resume NAME` computes it anew",
            ) from error

    def run(self, records: pa.Table) -> StepResult | None:
        """All new messages in one evaluation; the first error of the view's data suspends it."""
        messages = self._taken(records) if records.num_rows else None
        if self.is_refused:
            return self._end_refused()
        if messages is None:
            return None
        self._ran = True
        sent: list[ActionList | Suspend] = []
        if self.suspended is None:
            sent += self._passed_on(self._handle(messages) if messages else [])
            self._control = Reached.model_validate(self._manager.snapshot())
            for message in sent:
                if isinstance(message, Suspend):
                    self.suspended = message.error
                    log.error(
                        "view %s is suspended: %s", self.spec.view, FrescoError(**message.error)
                    )
        if self._since_checkpoint >= self._checkpoint_batches and self.suspended is None:
            self._checkpoint = self._fold()
            self._since_checkpoint = 0
        return self._result(*sent)

    def apply(self, manifest: Manifest) -> None:
        """Nothing to commit: a view manager only answers."""

    def applied(self, manifest: Manifest) -> None:
        """Tell the metrics and remove checkpoints that no manifest refers to any more."""
        saved = ReplicaState.loaded(manifest.snapshot)
        self.handled = saved.number
        self.left = saved.suspended is not None
        self._metrics.view_frontier.labels(self.spec.view).set(self.handled)
        self._metrics.suspended.labels(self.spec.view).set(self.suspended is not None)
        for message in manifest.messages:
            if message.kind == "actions":
                self._metrics.action_lists.labels(self.spec.view).inc()
        self.needed = saved.needed(self.spec.start)
        kept = frozenset(_files(saved.checkpoint))
        self._staging.drop(self._kept_before - kept)
        self._kept_before = kept
        if self._ran:  # no other driver can write the manifest that would name them any more
            self._staging.drop(self._left_over - kept)
            self._left_over = frozenset()

    def collect(self, passed: int) -> None:
        """Remove staged action lists that the merge has applied."""
        self._staging.collect(passed)

    @property
    def is_refused(self) -> bool:
        """Whether the table could not take its rows, and it has not ended for that yet."""
        return self.suspended is None and told_refused(self._state) is not None

    def broken(self, error: FrescoError) -> BrokenStage | None:
        """What takes its place when it cannot take a step; None while others wait for more of it."""
        topic, metrics = self._topic, self._metrics
        return BrokenStage(self.spec, self.name, error, self._warehouse, topic, metrics)

    # Parts of a step ------------------------------------------------------------------------------

    def _taken(self, records: pa.Table) -> list[Updates] | None:
        """What the manager is handed, in order; None where nothing of the records matters here."""
        return [one for one in self._inbox.take(records) if isinstance(one, Updates)]

    def _end_refused(self) -> StepResult:
        """Take no more updates, and say so to the views over this one; the merge does not listen."""
        self._ran = True
        self.suspended = told_refused(self._state)
        assert self.suspended is not None
        number = self._manager.number
        self._control = self._control.model_copy(update={"suspended_after": number})
        return self._result(suspension(self.spec, number, self.suspended))

    def _passed_on(self, sent: list[ActionList | Suspend]) -> list[ActionList | Suspend]:
        """What goes out of what the manager has sent, which may be nothing."""
        return sent

    def _kept_state(self) -> dict[str, Any]:
        """The fields of the `ReplicaState` that the manifest is to hold."""
        return {
            "inbox": self._inbox.snapshot(),
            "control": self._control,
            "checkpoint": self._checkpoint,
            "suspended": self.suspended,
        }

    def _result(self, *sent: Any) -> StepResult:
        messages = tuple((self._topic, message) for message in sent)
        return StepResult(snapshot=ReplicaState.of(**self._kept_state()), messages=messages)

    def _handle(self, messages: list[Updates]) -> list[ActionList | Suspend]:
        self._pack = partial(pack, stage=self._staging.keeper(messages[-1].last))
        answer: list[ActionList | Suspend] = []
        try:
            self._evaluators.fit(self._manager, messages)
            answer += self._manager.handle_all(messages)
        except Exception as error:
            own = of_its_view(error, self.spec.view)
            if own is None:
                raise
            if own is not error:
                log.exception("view %s cannot be maintained", self.spec.view)
            lists, suspend = self._manager.suspend(messages, own)
            answer += [*lists, suspend]
        self._manager.advance()
        self._since_checkpoint += 1
        for message in answer:
            if isinstance(message, ActionList) and message.delta:
                self._metrics.rows.labels(role_of(self.name)).inc(message.delta.rows)
        return answer

    def _new_manager(self) -> ReplicaManager:
        codec = Codec(
            pack=lambda table: self._pack(table), open=lambda rows: locate(rows, self._warehouse)
        )
        return ReplicaManager(self.spec, self._evaluators.first(), codec)

    def _fold(self) -> Checkpoint:
        with tempfile.TemporaryDirectory(prefix="fresco-fold-") as folder:
            return Checkpoint.model_validate(self._manager.checkpoint(Path(folder), self._keep))

    def _keep(self, file: Path) -> str:
        kept = self._kept / f"{uuid.uuid4().hex}{file.suffix}"
        shutil.copyfile(file, kept)
        handle = os.open(kept, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return str(kept.relative_to(self._warehouse))

    def _files_there(self) -> frozenset[str]:
        return frozenset(str(file.relative_to(self._warehouse)) for file in self._kept.iterdir())

    def _first_after(self, checkpoint: Checkpoint | None) -> int:
        return checkpoint.number + 1 if checkpoint else self.spec.start

    def _captured(self) -> dict[str, Schema]:
        """The relations whose updates a restart reads from `_updates`."""
        return {n.relation: n.schema for n in walk(self.spec.tree) if isinstance(n, Scan)}

    def _recorded(self, first: int, last: int) -> Updates:
        """The updates of [first..last] from `_updates`, as one message.

        Raises:
            FrescoError: STATE_UPDATES_DROPPED.
        """
        reader = UpdatesReader(str(self._warehouse))
        if first < reader.kept_from:
            raise FrescoError(
                "STATE_UPDATES_DROPPED",
                f"updates from number {first} on are needed, those below {reader.kept_from} "
                "are gone",
                where=self.name,
                todo="restore `_updates` and `_state` from one backup, or rebuild the pipeline",
            )
        stage = self._staging.keeper(last)
        found = {
            name: reader.updates(name, schema, first - 1, last)
            for name, schema in self._captured().items()
        }
        return Updates(
            group=self.spec.group,
            first=first,
            last=last,
            runs=(RelRun(first=first, last=last, views=(self.spec.view,)),),
            relations={name: pack(rows, stage) for name, rows in found.items() if rows.num_rows},
            controls=tuple(reader.controls(first - 1, last)),
        )


def _files(checkpoint: Checkpoint | None) -> Iterator[str]:
    """The files of a checkpoint, leaf by leaf."""
    if checkpoint is not None:
        for names in checkpoint.files:
            yield from names
