"""The stage of a group of `isolated` views: sessions over delta tables, no Kafka (moro-sartori 5.6).

A step of the stage is a round of a session, and each ends with a manifest, so that a crash at any moment
repeats one round at most:

    look     the triggers and TID(old) of every source are read and kept          (step 1)
    round    what the machine asks next is evaluated and kept                     (step 2)
    install  the last round's manifest holds the changes of all views; applying it commits them to the
             group's table under the session's number, once (`GroupWriter`)       (step 3)
    delete   the ids' rows are deleted, once that commit is durable               (step 4)

A session that finds nothing leaves no trace. Sessions have numbers of their own, 0 for the initial state:
the group's table is read like any other's, but its numbers are not the integrator's. Its commit time is
the moment at which the sources were read, since delta tables do not tell when a transaction committed.

**What goes wrong.** A source that cannot be asked holds up the group: the step fails and is repeated. A
trigger that is not there, an expression without a value, or rows that the table cannot take (a change
came that no trigger saw) suspends the views concerned: they stay as they are, the commit says so, the
others go on. A suspended view is computed anew, as the difference to the rows it shows, as soon as its
triggers are back, or, for a value or for rows, after a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.durable import files_of
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.isolated.absent_views import Absent
from streaming.isolated.delta_query import DeltaTableSource, Gap, Looked, PartFailed
from streaming.isolated.isolated_manager import Isolated
from streaming.isolated.session_group import SessionGroup, ViewFailed, shown_rows
from streaming.isolated.session_messages import (
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    Installed,
    ReadIds,
    StartSession,
)
from streaming.messages import ActionList, Rows
from streaming.metrics import Metrics
from streaming.runtime.snapshots import SessionsState
from streaming.runtime.staging import Staging
from streaming.runtime.step import Manifest, StepResult
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_writer import GroupWriter, Planned
from streaming.warehouse.upkeep import Upkeep

UPKEEP_SECONDS, UPKEEP_EVERY = 0.3, 5.0


class IsolatedStage:
    """Stage `isolated:<group>`."""

    def __init__(
        self,
        group: SessionGroup,
        writer: GroupWriter,
        upkeep: Upkeep,
        metrics: Metrics,
        warehouse: Path,
    ) -> None:
        self.group = group
        self.name = f"isolated:{group.group}"
        self.writer, self._upkeep, self._metrics = writer, upkeep, metrics
        self._warehouse = warehouse
        self._staging = Staging(warehouse, self.name)
        self._stage: Callable[[bytes], str] = self._staging.keeper(0)
        self._tables = {table.name: table for table in group.tables}
        self._tidied = time.monotonic()
        self._sources: dict[str, DeltaTableSource] = {}
        self.restore(None)

    @property
    def busy(self) -> bool:
        """A session is under way, or the next one need not wait."""
        return self._again or self.machine.step != "idle"

    # State ----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The machine as the manifest has it."""
        self.close()
        saved = SessionsState.loaded(snapshot) if snapshot else SessionsState.of(machine=None)
        self.operators = DuckOperators(
            lambda table: packing.pack(table, self._stage),
            lambda rows: packing.unpack(rows, self._warehouse),
        )
        self.machine: Isolated[Signed] = Isolated(
            self.group.group, self.group.trees, self.operators
        )
        if snapshot:
            self.machine.restore(saved.machine)
        self.absent = Absent(self.machine, saved.marks, saved.suspended, self.group.broken)
        self.epoch = saved.epoch
        self._again = False
        self._read_ms = saved.read_ms
        self._positions: dict[str, str] = dict(saved.positions)
        self._sources = {
            name: DeltaTableSource(
                name,
                dsn,
                relations,
                self.operators,
                pipeline=self.group.pipeline,
                remembered=saved.durable.get(name, 0),
            )
            for name, (dsn, relations) in self.group.connections.items()
        }

    def _result(self, writes: dict[str, Any] | None = None) -> StepResult:
        return StepResult(
            snapshot=SessionsState.of(
                machine=self.machine.snapshot(),
                marks=self.absent.marks,
                suspended=self.absent.suspended,
                epoch=self.epoch,
                read_ms=self._read_ms,
                positions=self._positions,
                durable={name: source.durable for name, source in self._sources.items()},
            ),
            writes=writes or {},
        )

    def close(self) -> None:
        """Leave the sources."""
        for source in self._sources.values():
            source.close()

    # Step -----------------------------------------------------------------------------------------

    def run(self, records: pa.Table) -> StepResult | None:
        """The next round; None where nothing has happened at the sources.

        Raises:
            FrescoError: SOURCE_*, a source that cannot be asked now.
        """
        self._stage = self._staging.keeper(max(0, self.machine.number + 1))
        match self.machine.step:
            case "idle":
                return self._look()
            case "evaluate":
                return self._round()
            case "install":
                self.machine.handle(Installed(self.machine.number))
                return self._delete()
            case _:
                return self._delete()

    def _look(self) -> StepResult | None:
        """Step 1, and who takes part."""
        self._again = False
        looked = {name: source.look() for name, source in self._sources.items()}
        read_ms = int(time.time() * 1000)
        told = self.absent.told
        changed = self.absent.look(looked)
        if self.absent.told != told and self.epoch:
            self.epoch += 1
            self._again = True  # the others go on once it has been said
            return self._result(self._writes({}, ()))
        self._start(looked)
        if self.machine.step == "idle":
            return self._result() if changed else None
        self._read_ms = read_ms
        self._positions = {name: str(one.state.upto) for name, one in looked.items()}
        self._metrics.sessions.labels(self.group.group).inc()
        return self._result()

    def _start(self, looked: Mapping[str, Looked]) -> None:
        """A session over the views that are there, if it has anything to do."""
        if not self.machine.present:
            return
        for message in self.machine.handle(StartSession()):
            assert isinstance(message, ReadIds)
            relations = [scan.relation for scan in self.machine.scans[message.source]]
            ids = looked[message.source].ids(relations)
            self.machine.handle(Ids(self.machine.session, message.source, ids))

    def _round(self) -> StepResult:
        """Step 2, one round: what is asked now, at each source in one snapshot."""
        try:
            for request in self.machine.resume():
                assert isinstance(request, Evaluate)
                rows = self._evaluate(request)
                answer = Evaluated(self.machine.session, request.request, request.source, rows)
                self.machine.handle(answer)
        except Gap:
            self.machine.abandon()
            self._again = True  # the next look sees what is wrong
            return self._result()
        except ViewFailed as failed:
            self.absent.fail(failed.view, failed.error)
            self._again = True
            return self._result()
        if self.machine.step != "install":
            return self._result()
        lists = [each for each in self.machine.resume() if isinstance(each, ActionList)]
        changed = {each.view: self._change(each) for each in lists}
        changes = {view: rows for view, rows in changed.items() if rows is not None}
        if refused := self._refused(changes):
            self.machine.withdraw()
            for view, error in refused.items():
                self.absent.fail(view, error)
            self._again = True
            return self._result()
        self.epoch += 1
        self.absent.rejoin()
        number = self.machine.number
        return self._result(self._writes(changes, ((number, number),)))

    def _evaluate(self, request: Evaluate[Signed]) -> tuple[Signed, ...]:
        _, walks = self.machine.asked[request.request]
        source = self._sources[request.source]
        try:
            rows = source.evaluate(request.parts, self.absent.marks)
        except PartFailed as failed:
            raise ViewFailed(walks[failed.index].view, failed.error) from failed
        counted = self._metrics.source_asked
        for view in sorted({walk.view for walk in walks}):
            counted.labels(view, "statements").inc()
        return rows

    def _refused(self, changes: Mapping[str, Rows]) -> dict[str, FrescoError]:
        """What the table cannot take, by view: a change that no trigger saw came before it."""
        tables = {view: packing.unpack(rows, self._warehouse) for view, rows in changes.items()}
        found = self.writer.refused([Planned(self.epoch + 1, tables)])
        todo = "a change passed the triggers by; the view is computed anew by itself"
        return {
            view: FrescoError(error.code, error.what, where=error.where, todo=todo)
            for view, (_, error) in found.items()
        }

    def _change(self, each: ActionList) -> Rows | None:
        """What a list changes: of a view computed whole, the difference to the rows that it shows."""
        if each.view not in self.machine.fresh or self.writer.last() is None:
            return each.delta
        place, ops = TableFolder.of(self._warehouse), self.operators
        shown = shown_rows(place, self.group.group, self._tables[each.view], ops)
        wanted = ops.renumbered(self.machine.results[each.view], 0)
        delta = ops.minus(wanted, shown)
        return ops.pack(ops.renumbered(delta, each.last)) if ops.size(delta) else None

    def _writes(
        self, changes: Mapping[str, Rows], added: tuple[tuple[int, int], ...]
    ) -> dict[str, Any]:
        """What `apply` commits."""
        return {
            "epoch": self.epoch,
            "added": added,
            "frontier": self.machine.number,
            "committed_ms": self._read_ms,
            "positions": self._positions,
            "suspended": self.absent.told,
            "causes": {view: note["error"] for view, note in self.absent.suspended.items()},
            "changes": {view: rows.model_dump(mode="json") for view, rows in changes.items()},
        }

    def _delete(self) -> StepResult:
        """Step 4."""
        if self.machine.step == "delete":
            for message in self.machine.resume():
                assert isinstance(message, DeleteIds)
                self._sources[message.source].delete(message.relations, message.ids)
                self.machine.handle(Deleted(self.machine.session, message.source))
        return self._result()

    # Step 3 ---------------------------------------------------------------------------------------

    def apply(self, manifest: Manifest) -> None:
        """One warehouse transaction for all views of the group; a repeated one is skipped."""
        writes = manifest.writes
        if not writes:
            return
        last = self.writer.last()
        if last is not None and writes["epoch"] <= last.epoch:
            return
        started = time.perf_counter()
        changes = {
            view: packing.unpack(Rows.model_validate(rows), self._warehouse)
            for view, rows in writes["changes"].items()
        }
        frontier, group = writes["frontier"], self.group.group
        epoch = Epoch(
            group=group,
            epoch=writes["epoch"],
            added=tuple((first, last_) for first, last_ in writes["added"]),
            covered=((0, frontier),) if frontier >= 0 else (),
            frontier=frontier,
            committed_ms=writes["committed_ms"],
            positions=writes["positions"],
            suspended=writes["suspended"],
            generation=manifest.generation,
            complete=False,
            sessions=True,
            causes=writes.get("causes", {}),
        )
        done = self.writer.commit(changes, epoch)
        self._metrics.commits.labels(group).inc()
        self._metrics.commit_seconds.labels(group).observe(time.perf_counter() - started)
        self._metrics.frontier.labels(group).set(frontier)
        self._metrics.rows.labels(self.name).inc(done.changes)

    def applied(self, manifest: Manifest) -> None:
        """Upkeep between sessions; staged files that no manifest refers to any more are removed."""
        for view in self._tables:
            self._metrics.suspended.labels(view).set(view in self.absent.suspended)
        if self.busy or time.monotonic() - self._tidied < UPKEEP_EVERY:
            return
        written = map(Rows.model_validate, manifest.writes.get("changes", {}).values())
        kept = {*SessionsState.loaded(manifest.snapshot).files, *files_of(list(written))}
        self._staging.collect(self.machine.number, keep=frozenset(kept))
        self._upkeep.run(UPKEEP_SECONDS)
        self._tidied = time.monotonic()
