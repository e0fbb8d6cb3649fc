"""The stage of a view that asks its sources and comes back to its group (DESIGN 5 and 11).

A view whose source stayed away has left its group. A request to come back first sees whether all of its
sources answer; one that does not ends the request, and the next comes later (`recovering`). Then:

    near      the stage says so and stands still: the cut may be any number from here on.
    join      the integrator has announced a cut n. What the view's relations held after n comes from
              `_updates`, so no source is asked for it; the view over it is the first list, [n..n].
    go on     as a stage that asks, from n on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.algebra.psj import psj_of, source_of
from streaming.algebra.scans import columns_read
from streaming.algebra.source_queries import SourceQuery
from streaming.captured.layout import unrecorded
from streaming.errors import FrescoError, about
from streaming.messages import RelRun, SourceLog, Suspend, Updates, ViewChange
from streaming.metrics import Metrics
from streaming.pipeline.choosing import Choice
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.inbox import Inbox
from streaming.runtime.snapshots import AskingState, Phase, Reached
from streaming.runtime.stage_names import stage_name
from streaming.runtime.step import Manifest, StepResult
from streaming.scalars.expression import Schema
from streaming.stages.asking_stage import Access, AskingStage
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.first_rows import refuse_uncaptured
from streaming.stages.source_logs import source_log
from streaming.viewchanges.requests import Request, Requests
from streaming.viewmanagers.base import ManagedView, suspension
from streaming.viewmanagers.taint import refuse_controls, refuse_tainted
from streaming.warehouse.described import layouts_of
from streaming.warehouse.initial import dropped, relations_at, taints
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")

RECENT = 10_000
"""Numbers before the cut whose transactions a snapshot may still lack, though the log has them."""


class ReturningStage(AskingStage):
    """Stage `view:<name>@<request>` of a mode that asks."""

    def __init__(
        self,
        spec: ManagedView,
        request: Request,
        choice: Choice,
        sources: Mapping[str, Access],
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
    ) -> None:
        self.request, self._requests = request, Requests(warehouse)
        self._given = spec
        self.joined: int | None = None
        """The cut at which it has joined."""
        self.begin: dict[str, int] = {}
        """Where it begins to read its topics: after all that was there when it was made."""
        self._near = False
        name = stage_name(spec.view, request.number)
        super().__init__(spec, choice, sources, warehouse, actions_topic, metrics, name)

    @property
    def needed(self) -> int:
        """Nothing may be dropped from `_updates` before it has joined."""
        return 0 if self.joined is None else super().needed

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The phase and what it has come to."""
        saved = AskingState.loaded(snapshot) if snapshot else None
        phase = saved.joining if saved and saved.joining else Phase(begin=self.begin)
        self.joined, self._near = phase.joined, phase.near
        self.begin = dict(phase.begin)
        self.spec = replace(self._given, start=self.joined or 0)
        if self.joined is not None:
            super().restore(snapshot)
        else:
            self._settle(saved)
        self._inbox = Inbox(saved.inbox if saved else None, late=True)

    def run(self, records: pa.Table) -> StepResult | None:
        """The next step of the phase it is in."""
        if self.joined is not None:
            return self._noted(super().run(records))
        messages = self._inbox.take(records) if records.num_rows else []
        at = next((i for i, one in enumerate(messages) if self._is_cut(one)), None)
        if at is not None:
            change = messages[at]
            assert isinstance(change, ViewChange)
            later = [one for one in messages[at + 1 :] if isinstance(one, Updates)]
            return self._join(change, later)
        if not self._near and not self._requests.is_over(self.request.number):
            self._near = self._answer()
            return self._waiting() if self._near or records.num_rows else None
        return self._waiting() if records.num_rows else None

    def applied(self, manifest: Manifest) -> None:
        """Say that the sources answer; the view's metrics are another stage's until it has joined."""
        saved = AskingState.loaded(manifest.snapshot)
        assert saved.joining is not None
        if saved.joining.joined is not None:
            super().applied(manifest)
            return
        self.number = self.handled = saved.number
        if saved.joining.near:
            self._requests.say(self.request.number, "loaded", number=self.handled)

    def collect(self, passed: int) -> None:
        """Nothing goes before the view's own content is committed, whatever others have."""
        if self._requests.is_over(self.request.number):
            super().collect(passed)

    def broken(self, error: FrescoError) -> BrokenStage | None:
        return None if self.joined is None else super().broken(error)

    # Phases ---------------------------------------------------------------------------------------

    def _answer(self) -> bool:
        """Whether all sources answer; the request ends with the error of the first that does not."""
        sources = self._new_sources(self._new_operators(), {})
        try:
            self._check_recorded()
            for name, source in sources.items():
                source.answer(SourceQuery(self.spec.view, 0, 1, name, ()))
        except FrescoError as error:
            self._requests.say(self.request.number, "done", error=error.as_dict())
            log.warning("view %s cannot come back yet: %s", self.spec.view, error)
            return False
        finally:
            for source in sources.values():
                source.close()
        return True

    def _join(self, change: ViewChange, later: Sequence[Updates]) -> StepResult | None:
        """What is sent at the cut: the announcement's echo, the content, and what follows it."""
        number = self.joined = change.number
        self.spec = replace(self._given, start=number)
        self._stage = self._staging.keeper(number)
        self.suspended, self.number = None, number - 1
        sent: tuple[ViewChange | Suspend, ...] = (change,)
        try:
            first = self._initial(number)
        except Exception as raised:  # something was damaged after it had said that it is near
            error = of_its_view(raised, self.spec.view)
            if error is None:
                raise
            self.suspended = about(error.as_dict(), self.spec.view)
            log.error("view %s is suspended: %s", self.spec.view, error, exc_info=raised)
            sent = (change, suspension(self.spec, number - 1, self.suspended))
            result = self._worked(later)
        else:
            log.info("view %s comes back at number %d", self.spec.view, number)
            self._dialogue = self._new_dialogue({})
            result = self._worked([first, *later])
        messages = (*((self._topic, one) for one in sent), *result.messages)
        return self._noted(result.model_copy(update={"messages": messages}))

    def _initial(self, number: int) -> Updates:
        """The relations as they were after the cut, and the transactions before it.

        Raises:
            ViewError: VIEW_INPUT_DAMAGED, VIEW_COLUMN_CHANGED.
        """
        reader = UpdatesReader(str(self._warehouse))
        schemas = self._schemas()
        lost = taints(self._warehouse, reader, schemas, -1, number)
        recent = reader.transactions(number - RECENT, number)
        logs = {}
        for source in sorted({source_of(name) for name in schemas}):
            found = source_log(recent, source)
            logs[source] = SourceLog(
                numbers=(number,) * len(found.numbers),
                transactions=found.transactions,
                positions=found.positions,
            )
        rows = relations_at(reader, schemas, number)
        pack = partial(packing.pack, stage=self._stage)
        updates = Updates(
            group=self.spec.group,
            first=number,
            last=number,
            runs=(RelRun(first=number, last=number, views=(self.spec.view,)),),
            relations={name: pack(table) for name, table in rows.items() if table.num_rows},
            controls=lost,
            logs=logs,
        )
        refuse_tainted(columns_read(self.spec.tree), [updates])
        return updates.model_copy(update={"controls": ()})

    def _check_recorded(self) -> None:
        """What the first list is made of is in `_updates`, and nothing of it is lacking.

        Raises:
            FrescoError: VIEW_INITIAL_ROWS, VIEW_INPUT_DAMAGED, VIEW_COLUMN_CHANGED,
                VIEW_RELATION_UNCAPTURED.
        """
        reader, schemas = UpdatesReader(str(self._warehouse)), self._schemas()
        refuse_uncaptured(self.spec.view, psj_of(self.spec.tree).relations, schemas)
        if reader.kept_from > 0:
            raise dropped(reader)
        emptied = {
            one.relation: one.number
            for one in reader.controls(-1, reader.last)
            if one.kind == "truncate"
        }
        layouts = layouts_of(self._warehouse)
        for name, at in unrecorded(layouts, columns_read(self.spec.tree), emptied):
            column = layouts[name].columns[at]
            raise FrescoError(
                "VIEW_INITIAL_ROWS",
                f"column {column.name} of {name} is recorded from number {column.first} on",
                where=f"view {self.spec.view}",
                todo="use USING replica, which reads the rows of before from the sources",
            )
        lost = taints(self._warehouse, reader, schemas, -1, reader.last)
        refuse_controls(columns_read(self.spec.tree), lost)

    def _schemas(self) -> dict[str, Schema]:
        wanted = set(psj_of(self.spec.tree).relations)
        captured = (one for access in self._access.values() for one in access.relations)
        return {c.relation.name: c.relation.schema for c in captured if c.relation.name in wanted}

    # Parts ----------------------------------------------------------------------------------------

    def _is_cut(self, message: object) -> bool:
        return (
            isinstance(message, ViewChange)
            and message.change == "add"
            and message.view == self.spec.view
        )

    def _waiting(self) -> StepResult:
        """The manifest of a step before it has joined."""
        number = max(UpdatesReader(str(self._warehouse)).last, 0)
        state = AskingState.of(inbox=self._inbox.snapshot(), control=Reached(number=number))
        result = self._noted(StepResult(snapshot=state))
        assert result is not None
        return result

    def _noted(self, result: StepResult | None) -> StepResult | None:
        """A step's result with the phase."""
        if result is None:
            return None
        phase = Phase(joined=self.joined, begin=self.begin, near=self._near)
        assert isinstance(result.snapshot, AskingState)
        state = result.snapshot.model_copy(update={"joining": phase})
        return result.model_copy(update={"snapshot": state})
