"""The stage of a view manager that asks the sources (DESIGN 5, 7 and 9).

A step takes the numbered updates of a micro-batch, lets the machines and the sources answer each other
until only held answers are left (`dialogue`), and puts what came of it into its manifest: the action
lists and the machines' state, answers that are held included. Two runs of a step may be answered
differently, each rightly; the manifest makes one of them the truth, and a restart asks nothing again.

A source that cannot be asked holds up this stage: the step waits and asks again until it can, and says so
in the log, in the metrics and in `_state/<stage>/trouble.json`, which `fresco status` shows. Its group
waits with it for as long as the source's `patience` lasts. Then the view is suspended, as it is by what
is wrong with its own data; it comes back by itself when the source answers (`returning`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.algebra.source_queries import SourceAnswer, SourceQuery
from streaming.algebra.tree import relations as scanned
from streaming.ask.asked import TIMEOUT, AskedSource
from streaming.ask.source_kinds import asked_source
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError, about
from streaming.messages import ActionList, Rows, Suspend, Updates
from streaming.metrics import Metrics
from streaming.pipeline.choosing import Choice
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.inbox import Inbox
from streaming.runtime.kafka import Topics
from streaming.runtime.snapshots import AskingState, Reached
from streaming.runtime.stage_progress import view_progress
from streaming.runtime.staging import Staging
from streaming.runtime.step import Manifest, StepResult
from streaming.stages.broken_stage import BrokenStage
from streaming.stages.dialogue import Dialogue, is_trouble
from streaming.stages.stage_trouble import forget_trouble, tell_trouble, told_refused
from streaming.viewmanagers.base import ManagedView, suspension

log = logging.getLogger("fresco")

PATIENCE = 60.0
WAITS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between attempts at a source in trouble; the last one for all that follow."""


class SourceAway(Exception):
    """A source has been in trouble for longer than the view waits."""

    def __init__(self, error: FrescoError) -> None:
        super().__init__(str(error))
        self.error = error


class StageStopped(Exception):
    """The stage was told to stop while it waited for a source; its step never happened."""


@dataclass(frozen=True)
class Access:
    """How a source is asked.

    Attributes:
        connection: its URL.
        relations: what is captured of it.
        timeout: seconds a statement may take.
        patience: seconds that the view waits for it while it cannot be asked.
    """

    connection: str = field(repr=False)
    relations: Sequence[CapturedRelation]
    timeout: float = TIMEOUT
    patience: float = PATIENCE


class AskingStage:
    """Stage `view:<name>` of a mode that asks."""

    def __init__(
        self,
        spec: ManagedView,
        choice: Choice,
        sources: Mapping[str, Access],
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
        name: str = "",
    ) -> None:
        """Args:
        sources: those that the view asks, by name.
        name: the stage's; `view:<name>` when not given.
        """
        self.spec, self.choice = spec, choice
        self.name = name or f"view:{spec.view}"
        self._access, self._warehouse = sources, warehouse
        self._topic, self._metrics = actions_topic, metrics
        self._staging = Staging(warehouse, self.name)
        self._stage = self._staging.keeper(0)
        self._state = warehouse / "_state" / self.name.replace(":", "-")
        self._state.mkdir(parents=True, exist_ok=True)
        self._stopping = threading.Event()
        self._dialogue: Dialogue | None = None
        self._sources: dict[str, AskedSource] = {}
        self._inbox = Inbox()
        self._kept: frozenset[str] = frozenset()
        self.suspended: dict[str, str] | None = None
        self.number = spec.start - 1
        """The last number of a durable manifest."""
        self.handled = spec.start - 1
        """The last number of which staged updates are of no use any more."""
        self.left = False
        """Whether a durable manifest says that the view is suspended: it takes no more updates."""

    @property
    def needed(self) -> int:
        """The first number that must stay in `_updates`: a restart replays none."""
        return self.number + 1

    def topics(self, topics: Topics) -> tuple[str, ...]:
        """Those that it reads."""
        return (topics.updates(self.spec.group),)

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The machines as the manifest has them."""
        self.close()
        self._stopping.clear()
        saved = AskingState.loaded(snapshot) if snapshot else None
        self._inbox = Inbox(saved.inbox if saved else None)
        self.suspended = saved.suspended if saved else None
        self._dialogue = None
        forget_trouble(self._state)
        self._settle(saved)
        if self.suspended is not None:
            return
        self._dialogue = self._new_dialogue(saved.durable if saved else {})
        if saved:
            self._dialogue.restore(saved.machines)

    def run(self, records: pa.Table) -> StepResult | None:
        """All new messages, one after the other; the first error of the view's data suspends it.

        Raises:
            StageStopped: it was told to stop while a source was in trouble.
        """
        dialogue, messages = self._dialogue, list[Updates]()
        if records.num_rows:
            messages = [one for one in self._inbox.take(records) if isinstance(one, Updates)]
        elif dialogue is None or not (told_refused(self._state) or dialogue.rest()):
            return None
        return self._worked(messages)

    def _worked(self, messages: Sequence[Updates]) -> StepResult:
        """What comes of the messages, or without any of what has waited."""
        dialogue = self._dialogue
        sent: list[ActionList | Suspend] = []
        number = messages[-1].last if messages else self.number
        # Above the last durable number, so that nothing is collected before its manifest is there.
        self._stage = self._staging.keeper(max(number, self.number + 1))
        machines: dict[str, Any] | None = None
        if dialogue is not None:
            try:
                if refused := told_refused(self._state):
                    raise ViewError(
                        refused["code"],
                        refused["what"],
                        where=refused["where"],
                        todo=refused["todo"],
                    )
                for work in map(dialogue.deliver, messages) if messages else (dialogue.flush(),):
                    for actions in work:
                        sent.append(actions)
                machines = dialogue.snapshot()
            except SourceAway as away:
                self._tell(None)
                sent.append(self._suspend(dialogue, away.error))
            except Exception as error:
                own = of_its_view(error, self.spec.view)
                if own is None:
                    raise
                sent.append(self._suspend(dialogue, own, error))
            self._count(dialogue)
        return StepResult(
            snapshot=AskingState.of(
                inbox=self._inbox.snapshot(),
                control=Reached(number=number),
                machines=machines,
                durable={name: source.durable for name, source in self._sources.items()},
                suspended=self.suspended,
            ),
            messages=tuple((self._topic, message) for message in sent),
        )

    def apply(self, manifest: Manifest) -> None:
        """Nothing to commit: a view manager only answers."""

    def applied(self, manifest: Manifest) -> None:
        """Tell the metrics; note which staged files the machines still refer to."""
        self._settle(AskingState.loaded(manifest.snapshot))
        self._metrics.view_frontier.labels(self.spec.view).set(self.number)
        self._metrics.suspended.labels(self.spec.view).set(self.suspended is not None)
        for message in manifest.messages:
            if message.kind == "actions":
                self._metrics.action_lists.labels(self.spec.view).inc()

    def collect(self, passed: int) -> None:
        """Remove staged files that neither the merge nor the machines' state needs."""
        self._staging.collect(min(passed, self.number), keep=self._kept)

    def halt(self) -> None:
        """Let a step that waits for a source end; from any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Leave the sources."""
        if self._dialogue is not None:
            self._dialogue.close()

    def broken(self, error: FrescoError) -> BrokenStage | None:
        """What takes its place when it cannot take a step; None while others wait for more of it."""
        topic, metrics = self._topic, self._metrics
        return BrokenStage(self.spec, self.name, error, self._warehouse, topic, metrics)

    # Parts of a step ------------------------------------------------------------------------------

    def _settle(self, saved: AskingState | None) -> None:
        """What a durable manifest says of numbers and files; `collect` may run beside it."""
        self.left = saved is not None and saved.suspended is not None
        if saved is None:
            self._kept, self.number, self.handled = frozenset(), self.spec.start - 1, -1
            return
        self._kept, self.number = frozenset(saved.files), saved.number
        self.handled = view_progress(saved, self.name, self.spec.start).handled

    def _suspend(
        self, dialogue: Dialogue, error: FrescoError, cause: BaseException | None = None
    ) -> Suspend:
        """The view stays as its last list left it, and its sources are left alone."""
        if cause not in (None, error):
            log.error("view %s cannot be maintained", self.spec.view, exc_info=cause)
        self.suspended = about(error.as_dict(), self.spec.view)
        log.error("view %s is suspended: %s", self.spec.view, error)
        dialogue.close()
        self._dialogue = None
        return suspension(self.spec, dialogue.manager.sent, error.as_dict())

    def _count(self, dialogue: Dialogue) -> None:
        for what, times in dialogue.counted().items():
            self._metrics.source_asked.labels(self.spec.view, what).inc(times)

    def _new_dialogue(self, durable: Mapping[str, int]) -> Dialogue:
        operators = self._new_operators()
        self._sources = self._new_sources(operators, durable)
        return Dialogue(self.spec, self.choice, operators, self._sources, self._keep, self._ask)

    def _new_operators(self) -> DuckOperators:
        return DuckOperators(
            lambda table: packing.pack(table, self._stage),
            lambda rows: packing.unpack(rows, self._warehouse),
        )

    def _new_sources(
        self, operators: DuckOperators, durable: Mapping[str, int]
    ) -> dict[str, AskedSource]:
        return {
            name: asked_source(
                name,
                access.connection,
                [one for one in access.relations if one.relation.name in scanned(self.spec.tree)],
                operators,
                timeout=access.timeout,
                remembered=int(durable.get(name, 0)),
            )
            for name, access in self._access.items()
        }

    def _keep(self, table: pa.Table) -> Rows:
        return packing.staged(table, self._stage)

    # Trouble --------------------------------------------------------------------------------------

    def _ask(self, source: AskedSource, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        """The source's answer, as soon as it can be asked.

        Raises:
            SourceAway: it has been in trouble for longer than the view waits.
        """
        attempts, said, since = 0, "", time.monotonic()
        while True:
            try:
                answer = source.answer(query)
            except FrescoError as error:
                if not is_trouble(error):
                    raise
                if str(error) != said:
                    said = str(error)
                    self._tell(error)
                if time.monotonic() - since > self._access[source.name].patience:
                    raise SourceAway(error) from error
                if self._stopping.wait(WAITS[min(attempts, len(WAITS) - 1)]):
                    raise StageStopped(self.name) from error
                attempts += 1
                continue
            if said:
                self._tell(None)
            return answer

    def _tell(self, error: FrescoError | None) -> None:
        """Say what the view waits for, or that it goes on."""
        self._metrics.waiting.labels(self.spec.view).set(error is not None)
        if error is None:
            log.warning("view %s goes on", self.spec.view)
            forget_trouble(self._state)
            return
        log.warning("view %s waits: %s", self.spec.view, error)
        tell_trouble(self._state, error)
