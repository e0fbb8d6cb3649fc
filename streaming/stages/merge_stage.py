"""The merge stage: REL entries and action lists in, one atomic warehouse transaction out (MVC 4, 5).

The machine paints the view update table and says which rows are ready; this stage turns each batched
warehouse transaction into one commit of the group's table. What to commit is in the manifest, rows by
reference, so a crash between the manifest and the commit is repaired by committing again.

A group's table takes one commit after the other, so the paper's disciplines (MVC 4.3) differ in when a
batch is made: under "declared" a step commits all that is ready, batch by batch; under "sequential" and
"dependent" the machine holds back what may not go beside what it has not been told of as committed, and a
step tells it of those of the step before. What is held back, by that or by its age, goes with a step
without messages (`pulse`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.errors import FrescoError, ProtocolError
from streaming.merge.algorithms import founded_like
from streaming.merge.batching import BatchedTransaction
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.machine import MergeMachine
from streaming.merge.routing import RoutedMerge
from streaming.messages import ActionList, Message, Rel, Rows, Suspend, Updates, ViewChange
from streaming.metrics import Metrics
from streaming.packed_rows import unpack
from streaming.runtime.error_owner import of_its_view
from streaming.runtime.inbox import Inbox
from streaming.runtime.snapshots import MergingState
from streaming.runtime.stage_names import role_of
from streaming.runtime.step import Manifest, StepResult
from streaming.scalars.expression import NUMBER
from streaming.stages.rel_riding import refuse_rerouted
from streaming.stages.stage_trouble import tell_refused
from streaming.viewchanges.regrouping import Regrouping
from streaming.warehouse.epoch import Epoch, merge_runs
from streaming.warehouse.group_writer import GroupWriter, Planned
from streaming.warehouse.upkeep import Upkeep

if TYPE_CHECKING:
    from streaming.spark.spark_session import Session

log = logging.getLogger("fresco")
Refusals = dict[str, tuple[int, FrescoError]]
"""View -> the first number at which it cannot go on, and why."""

UPKEEP_SECONDS = 0.3
"""Time for upkeep after a commit, at most once in `UPKEEP_EVERY` seconds."""
UPKEEP_EVERY = 5.0


class MergeStage:
    """Stage `merge:<group>`."""

    def __init__(
        self,
        make_machine: Callable[[], MergeMachine | BlockMerge],
        writer: GroupWriter,
        upkeep: Upkeep,
        metrics: Metrics,
        spark: Session | None,
        root: Path,
        regrouping: Regrouping | None = None,
        *,
        routed: bool = False,
    ) -> None:
        """Args:
        regrouping: views that come and go; None where they never do.
        routed: REL comes with the action lists.
        """
        self._make, self._routed = make_machine, routed
        self._take(make_machine())
        self.group = self.machine.group
        self.name = f"merge:{self.group}"
        self.writer, self._upkeep, self._metrics = writer, upkeep, metrics
        self._spark, self._root, self._regrouping = spark, root, regrouping
        self._inbox = Inbox()
        self._causes: dict[str, dict[str, str]] = {}
        """View -> why it was suspended last: for the commits, the machine needs no reasons."""
        self._refused: dict[str, list[str]] = {}
        """View whose rows the table could not take -> its managers until then, which are not heard."""
        self._ready: dict[int, dict[str, pa.Table]] = {}
        """Batch -> its rows, from a step's check to its commit."""
        self._saved: MergingState | None = None
        """What the last step has saved."""
        self._tidied = time.monotonic()
        self.published = -1
        """Every action list up to it is in a commit that is durable."""

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """A fresh machine with the manifest's state."""
        saved = MergingState.loaded(snapshot) if snapshot else None
        self._inbox = Inbox(saved.inbox if saved else None)
        self._refused = {view: list(one) for view, one in saved.refused.items()} if saved else {}
        self._ready = {}
        self._restore(saved)

    def _restore(self, saved: MergingState | None) -> None:
        """All that painting changes."""
        self._saved = saved
        self._take(self._make())
        self._causes = dict(saved.causes) if saved else {}
        if self._regrouping is not None:
            self._regrouping.restore(saved.views if saved else None)
        if saved:
            refuse_rerouted(self.name, saved.routed, self._routed)
            if self._regrouping is not None:
                machine = saved.machine["merge"] if self._routed else saved.machine
                self._take(founded_like(self.machine, machine))
            self._heard.restore(saved.machine)

    def _take(self, machine: MergeMachine | BlockMerge) -> None:
        self.machine = machine
        self._heard = RoutedMerge(machine) if self._routed else machine

    def run(self, records: pa.Table) -> StepResult | None:
        """Paint with every new message, then take the batches that are due."""
        unheard = {one for producers in self._refused.values() for one in producers}
        if self._routed:  # REL rides on what they send; the machine leaves out the rest
            unheard = set()
        messages = self._inbox.take(records, unheard=unheard) if records.num_rows else []
        messages.sort(key=lambda one: not isinstance(one, Rel | ViewChange))
        refused: dict[str, int] = {}
        broken: dict[str, int] = {}
        while True:
            batches, breaks = self._painted(messages, refused, broken)
            found = breaks or self._refusals(batches)
            if not found:
                break
            causes = self._causes
            self._restore(self._saved)  # the inbox stays: its messages are painted again
            self._tell_committed()
            self._causes = causes
            for view, (number, error) in found.items():
                if refused.get(view, number + 1) <= number:
                    raise error
                refused[view] = number
                self._causes[view] = error.as_dict()
        self._leave_out(refused)
        if not (records.num_rows or batches or refused):
            return None
        for colour, cells in self.machine.cells_by_colour().items():
            self._metrics.vut_cells.labels(self.group, colour).set(cells)
        state = MergingState.of(
            inbox=self._inbox.snapshot(),
            machine=self._heard.snapshot(),
            routed=self._routed,
            published=self.published,
            causes=self._causes,
            refused=self._refused,
            views=self._regrouping.snapshot() if self._regrouping is not None else None,
        )
        return StepResult(snapshot=state, writes={"batches": batches})

    def _painted(
        self, messages: Sequence[Message], refused: Mapping[str, int], broken: dict[str, int]
    ) -> tuple[list[dict[str, Any]], Refusals]:
        """The batches that are due after these messages; or the view whose message breaks the protocol.

        Args:
            refused: view -> the number before which it is suspended.
            broken: view -> how many of its messages are good, of those of which one is not; a view
                that is found to be one is added.
        """
        said: Counter[str] = Counter()
        for message in messages:
            if isinstance(message, Updates):
                continue
            if isinstance(message, ActionList | Suspend):
                if said[message.view] >= broken.get(message.view, len(messages)):
                    continue
                said[message.view] += 1
            try:
                self._heard.handle(message)
            except ProtocolError as error:
                if self._routed or not isinstance(message, ActionList | Suspend):
                    raise  # it may be the integrator's, whose REL rides on the list
                if message.view not in self.machine.views:
                    raise
                broken[message.view] = said[message.view] - 1
                return [], {message.view: (self.machine.last_listed(message.view) + 1, error)}
            if isinstance(message, Suspend) and message.view not in refused:
                self._causes[message.view] = message.error
        for view, number in refused.items():
            self.machine.refuse(view, number)
        batches = []
        while (batch := self.machine.take_batch(int(time.time() * 1000))) is not None:
            changed = self._regrouping.describe(batch) if self._regrouping else {}
            causes = {view: self._causes.get(view, {}) for view, _ in batch.suspended}
            batches.append({**_describe(batch), "causes": causes, **changed})
        return batches, {}

    def _refusals(self, batches: Sequence[Mapping[str, Any]]) -> Refusals:
        """What the table cannot take of them; the rows of what it can are kept for `apply`."""
        damaged: Refusals = {}
        self._ready = {batch["sequence"]: self._changes(batch, damaged) for batch in batches}
        if damaged:
            return damaged
        wanted = [
            Planned(
                batch["sequence"],
                self._ready[batch["sequence"]],
                batch.get("drop", ()),
                self._regrouping.tables(batch) if self._regrouping else (),
            )
            for batch in batches
        ]
        return self.writer.refused(wanted)

    def _leave_out(self, refused: Mapping[str, int]) -> None:
        """The managers of refused views are not heard any more; one that joins later has another name."""
        for view in refused:
            names = {one for one in self._inbox.producers() if role_of(one) == f"view:{view}"}
            self._refused[view] = sorted(names | {*self._refused.get(view, ())})
            self._metrics.suspended.labels(view).set(1)
            log.error("view %s is suspended: %s", view, FrescoError(**self._causes[view]))

    def apply(self, manifest: Manifest) -> None:
        """One commit for each batch, in order; a repeated one is skipped by its epoch.

        It is skipped before its rows are read: their staged files may be gone by then.
        """
        last = self.writer.last()
        for batch in manifest.writes["batches"]:
            if last is not None and batch["sequence"] <= last.epoch:
                continue
            started = time.perf_counter()
            changes = self._ready.pop(batch["sequence"], None) or self._changes(batch)
            epoch = self._epoch(batch, manifest.generation)
            if self._regrouping is not None:
                self._regrouping.open(batch)
            drop = batch.get("drop", ())
            done = self.writer.commit(changes, epoch, drop=drop, spark=self._spark)
            seconds = time.perf_counter() - started
            self._metrics.commits.labels(self.group).inc()
            self._metrics.commit_seconds.labels(self.group).observe(seconds)
            self._metrics.frontier.labels(self.group).set(batch["frontier"])
            self._metrics.rows.labels(self.name).inc(done.changes)
            if batch["committed_ms"] is not None:
                fresh = max(0.0, time.time() - batch["committed_ms"] / 1000)
                for view in changes:
                    self._metrics.freshness.labels(view).observe(fresh)
        if self._regrouping is not None and isinstance(self.machine, MergeMachine):
            self._regrouping.settle(self.machine, self._causes)

    def applied(self, manifest: Manifest) -> None:
        """Upkeep between commits, within its time budget."""
        self._tell_committed()
        for view, stages in self._refused.items():
            for stage in stages:
                tell_refused(self._root / "_state" / stage.replace(":", "-"), self._causes[view])
        self.published = self.machine.settled
        self._saved = MergingState.loaded(manifest.snapshot)
        if time.monotonic() - self._tidied >= UPKEEP_EVERY:
            self._upkeep.run(UPKEEP_SECONDS)
            self._tidied = time.monotonic()

    def _tell_committed(self) -> None:
        """Whatever a manifest has submitted is committed once it is applied."""
        inner = self.machine.inner if isinstance(self.machine, BlockMerge) else self.machine
        for sequence in list(inner.submission.commits.submitted):
            self.machine.committed(sequence)

    def _changes(
        self, batch: Mapping[str, Any], damaged: Refusals | None = None
    ) -> dict[str, pa.Table]:
        """view -> the rows this batch applies, from the lists its parts name.

        Args:
            damaged: is told of lists whose rows cannot be read; None: such a one is an error.

        Raises:
            FrescoError: ROWS_DAMAGED.
        """
        lists: dict[str, pa.Table] = {}
        found: dict[str, list[pa.Table]] = {}
        for part in batch["parts"]:
            delta = batch["deltas"].get(part["list"])
            if delta is None:
                continue
            view = part["view"]
            try:
                if part["list"] not in lists:
                    lists[part["list"]] = unpack(Rows.model_validate(delta), self._root)
                rows = _inside(lists[part["list"]], part["first"], part["last"])
                if view in found and rows.schema != found[view][0].schema:
                    raise pa.ArrowInvalid(f"columns {rows.schema}, after {found[view][0].schema}")
                found.setdefault(view, []).append(rows)
            except Exception as error:
                own = of_its_view(error, view)
                if damaged is None or own is None:
                    raise
                damaged.setdefault(view, (part["first"], own))
        return {view: pa.concat_tables(tables) for view, tables in found.items()}

    def _epoch(self, batch: Mapping[str, Any], generation: int) -> Epoch:
        covered = merge_runs(
            [(0, batch["frontier"])] if batch["frontier"] >= 0 else [], map(tuple, batch["ahead"])
        )
        return Epoch(
            group=self.group,
            epoch=batch["sequence"],
            added=merge_runs(map(tuple, batch["ranges"])),
            covered=covered,
            frontier=batch["frontier"],
            committed_ms=batch["committed_ms"],
            positions=batch["positions"],
            suspended=batch["suspended"],
            generation=generation,
            dependencies=tuple(batch["depends_on"]),
            released=tuple(batch["released"]),
            complete=self.machine.algorithm == "spa",
            views=batch.get("views", {}),
            causes={view: error for view, error in batch.get("causes", {}).items() if error},
        )


def _inside(rows: pa.Table, first: int, last: int) -> pa.Table:
    """The rows of these numbers."""
    inside = pc.and_(pc.greater_equal(rows[NUMBER], first), pc.less_equal(rows[NUMBER], last))
    return rows if pc.all(inside).as_py() else rows.filter(inside)


def _describe(batch: BatchedTransaction) -> dict[str, Any]:
    """A batch as JSON values, for the manifest."""
    return {
        "sequence": batch.sequence,
        "ranges": batch.ranges,
        "frontier": batch.frontier,
        "ahead": batch.ahead,
        "depends_on": batch.depends_on,
        "suspended": dict(batch.suspended),
        "positions": batch.positions,
        "committed_ms": batch.committed_ms,
        "released": batch.released,
        "parts": [
            {"view": part.view, "list": part.list_id, "first": part.first, "last": part.last}
            for part in batch.parts
        ],
        "deltas": {list_id: rows.model_dump(mode="json") for list_id, rows in batch.deltas},
    }
