"""The stage of a view manager that asks the sources (DESIGN 5, 7 and 9).

A step takes the numbered updates of a micro-batch, lets the machines and the sources answer each other
until only held answers are left (`dialogue`), and puts what came of it into its manifest: the action
lists and the machines' state, answers that are held included. Two runs of a step may be answered
differently, each rightly; the manifest makes one of them the truth, and a restart asks nothing again.

A source that cannot be asked holds up this stage alone: the step waits and asks again until it can, and
says so in the log, in the metrics and in `_state/<stage>/trouble.json`, which `fresco status` shows. What
is wrong with the view's own data suspends the view.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import rows as packing
from streaming.algebra.duckops import DuckOperators
from streaming.algebra.evaluator import ViewError
from streaming.algebra.query import SourceAnswer, SourceQuery
from streaming.algebra.signed import Signed
from streaming.errors import FrescoError
from streaming.messages import ActionList, Rows, Suspend, Updates
from streaming.metrics import Metrics
from streaming.runtime.choosing import Choice
from streaming.runtime.dialogue import Dialogue, is_trouble
from streaming.runtime.inbox import Inbox
from streaming.runtime.staging import Staging
from streaming.runtime.step import Manifest, StepResult
from streaming.runtime.trouble import forget_trouble, tell_trouble
from streaming.sources.query import PostgresSource
from streaming.sources.schema import CapturedRelation
from streaming.viewmanagers.base import ViewSpec, suspension

log = logging.getLogger("fresco")

WAITS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between attempts at a source in trouble; the last one for all that follow."""
_STAGED = re.compile(r"(\d{15})-[0-9a-f]+\.parquet$")


class StageStopped(Exception):
    """The stage was told to stop while it waited for a source; its step never happened."""


class AskingStage:
    """Stage `view:<name>` of a mode that asks.

    Args:
        connections: source -> connection string and captured relations, of each the view asks.
    """

    def __init__(
        self,
        spec: ViewSpec,
        choice: Choice,
        connections: Mapping[str, tuple[str, Sequence[CapturedRelation]]],
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
    ) -> None:
        self.spec, self.choice = spec, choice
        self.name = f"view:{spec.view}"
        self._connections, self._warehouse = connections, warehouse
        self._topic, self._metrics = actions_topic, metrics
        self._staging = Staging(warehouse, self.name)
        self._stage = self._staging.keeper(0)
        self._state = warehouse / "_state" / self.name.replace(":", "-")
        self._state.mkdir(parents=True, exist_ok=True)
        self._stopping = threading.Event()
        self._dialogue: Dialogue | None = None
        self._sources: dict[str, PostgresSource] = {}
        self._inbox = Inbox()
        self._kept: frozenset[str] = frozenset()
        self.suspended: dict[str, str] | None = None
        self.number = spec.start - 1
        """The last number of a durable manifest."""
        self.handled = spec.start - 1
        """The last number of which staged updates are of no use any more."""

    @property
    def needed(self) -> int:
        """The first number that must stay in `_updates`: a restart replays none."""
        return self.number + 1

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The machines as the manifest has them."""
        self.close()
        self._stopping.clear()
        self._inbox = Inbox(snapshot["inbox"] if snapshot else None)
        self.suspended = snapshot["suspended"] if snapshot else None
        self._dialogue = None
        forget_trouble(self._state)
        self._settle(snapshot)
        if self.suspended is not None:
            return
        self._dialogue = self._new_dialogue(snapshot["durable"] if snapshot else {})
        if snapshot:
            self._dialogue.restore(snapshot["machines"])

    def run(self, records: pa.Table) -> StepResult | None:
        """All new messages, one after the other; the first error of the view's data suspends it.

        Raises:
            StageStopped: it was told to stop while a source was in trouble.
        """
        dialogue, messages = self._dialogue, list[Updates]()
        if records.num_rows:
            messages = [one for one in self._inbox.take(records) if isinstance(one, Updates)]
        elif dialogue is None or not dialogue.rest():
            return None
        sent: list[ActionList | Suspend] = []
        number = messages[-1].last if messages else self.number
        # Above the last durable number, so that nothing is collected before its manifest is there.
        self._stage = self._staging.keeper(max(number, self.number + 1))
        machines: dict[str, Any] | None = None
        if dialogue is not None:
            try:
                for work in map(dialogue.deliver, messages) if messages else (dialogue.flush(),):
                    for actions in work:
                        sent.append(actions)
                machines = dialogue.snapshot()
            except ViewError as error:
                sent.append(self._suspend(dialogue, error))
            self._count(dialogue)
        return StepResult(
            snapshot={
                "inbox": self._inbox.snapshot(),
                "control": {"number": number},
                "machines": machines,
                "durable": {name: source.durable for name, source in self._sources.items()},
                "suspended": self.suspended,
            },
            messages=tuple((self._topic, message) for message in sent),
        )

    def apply(self, manifest: Manifest) -> None:
        """Nothing to commit: a view manager only answers."""

    def applied(self, manifest: Manifest) -> None:
        """Tell the metrics; note which staged files the machines still refer to."""
        self._settle(manifest.snapshot)
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

    # Parts of a step ------------------------------------------------------------------------------

    def _settle(self, snapshot: Mapping[str, Any] | None) -> None:
        """What a durable manifest says of numbers and files; `collect` may run beside it."""
        if snapshot is None:
            self._kept, self.number, self.handled = frozenset(), self.spec.start - 1, -1
            return
        paths = frozenset(_paths(snapshot["machines"]))
        own = str(self._staging.folder.relative_to(self._warehouse))
        others = [path for path in paths if not path.startswith(f"{own}/")]
        number = int(snapshot["control"]["number"])
        self._kept = paths
        self.number = number
        self.handled = min([number, *(_last_of(path) - 1 for path in others)])

    def _suspend(self, dialogue: Dialogue, error: ViewError) -> Suspend:
        """The view stays as its last list left it, and its sources are left alone."""
        self.suspended = error.as_dict()
        log.error("view %s is suspended: %s", self.spec.view, error)
        dialogue.close()
        self._dialogue = None
        return suspension(self.spec, dialogue.manager.sent, error.as_dict())

    def _count(self, dialogue: Dialogue) -> None:
        for what, times in dialogue.counted().items():
            self._metrics.source_asked.labels(self.spec.view, what).inc(times)

    def _new_dialogue(self, durable: Mapping[str, int]) -> Dialogue:
        operators = DuckOperators(
            lambda table: packing.pack(table, self._stage),
            lambda rows: packing.unpack(rows, self._warehouse),
        )
        self._sources = {
            name: PostgresSource(
                name, dsn, relations, operators, remembered=int(durable.get(name, 0))
            )
            for name, (dsn, relations) in self._connections.items()
        }
        return Dialogue(self.spec, self.choice, operators, self._sources, self._keep, self._ask)

    def _keep(self, table: pa.Table) -> Rows:
        return packing.staged(table, self._stage)

    # Trouble --------------------------------------------------------------------------------------

    def _ask(self, source: PostgresSource, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        """The source's answer, however long the source is in trouble."""
        attempts, said = 0, ""
        while True:
            try:
                answer = source.answer(query)
            except FrescoError as error:
                if not is_trouble(error):
                    raise
                if str(error) != said:
                    said = str(error)
                    self._tell(error)
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


def _paths(value: Any) -> Iterator[str]:
    """Every staged path inside a snapshot's references."""
    if isinstance(value, Mapping):
        if isinstance(path := value.get("path"), str) and "sha256" in value:
            yield path
        for item in value.values():
            yield from _paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _paths(item)


def _last_of(path: str) -> int:
    """The last number of a staged file, by its name."""
    match = _STAGED.search(path)
    return int(match[1]) if match else 0
