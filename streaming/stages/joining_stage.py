"""The stage of a view that joins a running pipeline: its content first, then its place in the group.

Four phases, each a step or more with a manifest of its own, so that a crash repeats one step at most:

    load      the relations as they were after a number s, read in one piece, and the view over them.
              It may take minutes; only this stage takes part in it.
    catch up  from s on through `_updates`, until the end is near. Then the stage says so
              (`requests`) and stands still: the cut may be any number from here on.
    join      the integrator has announced a cut n. The stage goes up to n, which is in `_updates` by
              then, and sends its first list: [n..n], all that it has added up. Nothing that concerns the
              view is held up longer than this takes.
    go on     as every other view's stage.

A view that cannot be computed ends its request with the error before it has joined; a suspended view
that tries to come back so stays as it was. After it has said that it is near the end it has to join,
and is suspended there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout
from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError, about
from streaming.messages import ActionList, RelRun, Rows, Suspend, Updates, ViewChange
from streaming.metrics import Metrics
from streaming.packed_rows import pack, unpack
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.inbox import Inbox
from streaming.runtime.snapshots import Phase, Reached, ReplicaState
from streaming.runtime.stage_names import stage_name
from streaming.runtime.step import Manifest, StepResult
from streaming.scalars.types import delta_schema
from streaming.stages.asking_stage import Access
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.evaluators import Evaluators
from streaming.stages.first_rows import FirstRows
from streaming.stages.view_stage import ViewStage
from streaming.viewchanges.requests import Request, Requests
from streaming.viewmanagers.base import ManagedView, suspension
from streaming.warehouse.initial import folded, taints
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")

NEAR_SECONDS = 2.0
"""The end is near when a step takes no longer, and a further one would come to it."""
NUMBERS_PER_STEP = 100_000
"""Most numbers that a step catches up with."""


class JoiningStage(ViewStage):
    """Stage `view:<name>@<request>`."""

    def __init__(
        self,
        spec: ManagedView,
        request: Request,
        evaluators: Evaluators,
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
        checkpoint_batches: int,
        relations: Mapping[str, Relation],
        access: Mapping[str, Access],
        layouts: Mapping[str, Layout] | None = None,
    ) -> None:
        """Args:
        relations: as they are captured now.
        access: how those of the view's sources are asked that can be.
        layouts: all columns that the relations have had.
        """
        self.request, self._requests = request, Requests(warehouse)
        self._given = spec
        self._content: list[Rows] = []
        self.joined: int | None = None
        """The cut at which it has joined."""
        self.begin: dict[str, int] = {}
        """Where it begins to read its topics: after all that was there when it was made."""
        self._failed: FrescoError | None = None
        self._near = False
        super().__init__(
            spec,
            evaluators,
            warehouse,
            actions_topic,
            metrics,
            checkpoint_batches,
            stage_name(spec.view, request.number),
        )
        self._first = FirstRows(
            warehouse, spec.view, spec.tree, self._captured(), relations, access, layouts
        )

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The phase and what it has come to."""
        saved = ReplicaState.loaded(snapshot) if snapshot else None
        phase = saved.joining if saved and saved.joining else Phase(begin=self.begin)
        self.spec = replace(self._given, start=phase.start)
        self.joined, self.begin = phase.joined, dict(phase.begin)
        self._content, self._near = list(phase.content), phase.near
        self._failed = FrescoError(**phase.failed) if phase.failed else None
        loaded = saved is not None and (self.joined is not None or saved.checkpoint is not None)
        super().restore(snapshot if loaded else None)  # before it is loaded it replays nothing
        self._inbox = Inbox(saved.inbox if saved else None, late=True)
        if not loaded:
            self.needed = 0  # nothing may be dropped from `_updates` before it is loaded

    def run(self, records: pa.Table) -> StepResult | None:
        """The next step of the phase it is in."""
        if self.joined is not None:
            return super().run(records)
        messages = self._inbox.take(records) if records.num_rows else []
        at = next((i for i, one in enumerate(messages) if self._is_cut(one)), None)
        if at is not None:
            change = messages[at]
            assert isinstance(change, ViewChange)
            later = [one for one in messages[at + 1 :] if isinstance(one, Updates)]
            return self._result(*self._join(change, later))
        if self._near or self._requests.is_over(self.request.number):
            return None if not records.num_rows else self._result()
        began = time.monotonic()
        try:
            worked = self._load() if self._checkpoint is None else self._catch_up()
        except Exception as error:
            own = of_its_view(error, self.spec.view)
            if own is None:
                raise
            return self._give_up(own, error)
        left = UpdatesReader(str(self._warehouse)).last - self._manager.number
        quick = time.monotonic() - began < NEAR_SECONDS
        # Also where there was nothing to do: after a long load perhaps nobody commits any more.
        self._near = self._checkpoint is not None and quick and left <= NUMBERS_PER_STEP
        return self._result() if worked or self._near or records.num_rows else None

    def applied(self, manifest: Manifest) -> None:
        """Say when the end is near; the view's metrics are another stage's until it has joined."""
        saved = ReplicaState.loaded(manifest.snapshot)
        assert saved.joining is not None
        if saved.joining.joined is not None:
            super().applied(manifest)
            return
        self.handled = saved.number
        self.needed = saved.needed(self.spec.start)
        if saved.joining.near:
            self._requests.say(self.request.number, "loaded", number=self.handled)

    def collect(self, passed: int) -> None:
        """Nothing goes before the view's own content is committed, whatever others have."""
        if self._requests.is_over(self.request.number):
            super().collect(passed)

    def broken(self, error: FrescoError) -> BrokenStage | None:
        return None if self.joined is None else super().broken(error)

    # Phases ---------------------------------------------------------------------------------------

    def _load(self) -> bool:
        """All that the view's relations hold after the last number that is recorded, and the view."""
        found = self._first.take(UpdatesReader(str(self._warehouse)))
        if found is None:
            return False
        number, rows = found
        self.spec = replace(self.spec, start=number)
        self._manager = self._new_manager()
        self._work(self._message(number, rows))
        self._checkpoint = self._fold()
        log.info("view %s is loaded as of number %d", self.spec.view, number)
        return True

    def _catch_up(self, upto: int | None = None) -> bool:
        """Up to a number, or as far as a step goes; False when there is nothing new."""
        reader = UpdatesReader(str(self._warehouse))
        number, end = self._manager.number, reader.last if upto is None else upto
        while number < end:
            last = min(end, number + NUMBERS_PER_STEP)
            message = self._recorded(number + 1, last)
            lost = taints(self._warehouse, reader, self._captured(), number, last)
            kept = tuple(one for one in message.controls if one.kind == "truncate")
            self._work(message.model_copy(update={"controls": (*kept, *lost)}))
            self._since_checkpoint += 1
            number = last
            if upto is None:
                return True
        return False

    def _join(self, change: ViewChange, later: Sequence[Updates]) -> tuple[Any, ...]:
        """What is sent at the cut: the announcement's echo, the content, and what follows it."""
        number = self.joined = change.number
        try:
            if self._failed is not None:
                failed = self._failed
                raise ViewError(failed.code, failed.what, where=failed.where, todo=failed.todo)
            self._catch_up(number)
        except Exception as raised:
            error = of_its_view(raised, self.spec.view)
            if error is None:
                raise
            log.error("view %s cannot join", self.spec.view, exc_info=raised)
            self._content = []
            self.suspended = about(error.as_dict(), self.spec.view)
            self._control = self._control.model_copy(update={"number": number})
            return (change, self._suspended_before(number, error))
        schema = self.spec.tree.schema
        pieces = [unpack(rows, self._warehouse) for rows in self._content]
        content = folded(
            pa.concat_tables([delta_schema(schema).empty_table(), *pieces]), schema, number
        )
        self._pack = partial(pack, stage=self._staging.keeper(number))
        delta = self._pack(content) if content.num_rows else None
        first = ActionList(
            group=self.spec.group, view=self.spec.view, first=number, last=number, delta=delta
        )
        self._content = []
        sent = self._handle(list(later)) if later else []
        self._control = Reached.model_validate(self._manager.snapshot())
        for one in sent:
            if isinstance(one, Suspend):
                self.suspended = one.error
        log.info(
            "view %s joins at number %d with %d rows", self.spec.view, number, content.num_rows
        )
        return (change, first, *sent)

    def _give_up(self, error: FrescoError, cause: BaseException) -> StepResult | None:
        """The request ends here, or the view will be suspended where it joins."""
        trace = None if isinstance(cause, FrescoError) else cause
        log.error("view %s cannot join: %s", self.spec.view, error, exc_info=trace)
        if self._requests.told(self.request.number, "loaded") is None:
            self._requests.say(self.request.number, "done", error=self._told(error))
            return None
        self._failed, self._near = error, True
        return self._result()

    def _told(self, error: FrescoError) -> dict[str, str]:
        """Why the request has come to nothing: a view that has never joined cannot be resumed."""
        told = about(error.as_dict(), self.spec.view)
        if self.request.change == "add":
            resume = f"`fresco view resume {self.spec.view}`"
            told["todo"] = told["todo"].replace(resume, "`fresco view add FILE` again")
            told["todo"] = told["todo"].replace(f"`fresco view drop {self.spec.view}` and ", "")
        return told

    # Parts ----------------------------------------------------------------------------------------

    def _is_cut(self, message: object) -> bool:
        return (
            isinstance(message, ViewChange)
            and message.change == "add"
            and message.view == self.spec.view
        )

    def _work(self, message: Updates) -> None:
        """One message's list into the content, and its rows into the state.

        Raises:
            ViewError: the view cannot be computed; state and content are as they were.
        """
        self._pack = partial(pack, stage=self._staging.keeper(message.last))
        self._evaluators.fit(self._manager, [message])
        lists = self._manager.handle_all([message])
        self._manager.advance()
        self._content += [one.delta for one in lists if one.delta is not None]
        self._control = Reached.model_validate(self._manager.snapshot())

    def _message(self, number: int, rows: Mapping[str, pa.Table]) -> Updates:
        """Rows under one number."""
        stage = self._staging.keeper(number)
        return Updates(
            group=self.spec.group,
            first=number,
            last=number,
            runs=(RelRun(first=number, last=number, views=(self.spec.view,)),),
            relations={name: pack(table, stage) for name, table in rows.items() if table.num_rows},
        )

    def _suspended_before(self, number: int, error: ViewError) -> Suspend:
        return suspension(self.spec, number - 1, error.as_dict())

    def _kept_state(self) -> dict[str, Any]:
        joining = Phase(
            start=self.spec.start,
            joined=self.joined,
            begin=self.begin,
            content=tuple(self._content),
            failed=self._failed.as_dict() if self._failed else None,
            near=self._near,
        )
        return {**super()._kept_state(), "joining": joining}
