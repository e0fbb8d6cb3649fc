"""The stage of a view over views: its parents' action lists in, its own out (ryco-pyco 3.2; DESIGN 5).

A mediator waits, number by number, for the parents' lists that REL promises, and hands them on with the
base relations' rows; the manager behind it is a replica manager like any other. Lists come from the
topics of the parents' groups, where the merge reads them too; they may come before the numbers that they
belong to, and wait then.

Why it is exact after a crash. The manager's state is a checkpoint, with the parents' rows among its
leaves, and what it was handed since. The base relations' part of that is read from `_updates`, which had
it before any message said so. No table has the parents' part: the changelog learns of a list only when
the merge commits it, which this view's own list may still hold up, parents' manifests are soon removed,
and a topic is cut. So each manifest names the parents' rows that its step has handed on, in files of this
stage (`ParentRows`), and what waits in the mediator; with the manifest they are there, without it they
were not handed on. The next checkpoint takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.messages import INLINE_LIMIT, ActionList, Rows, Suspend, Updates
from streaming.metrics import Metrics
from streaming.runtime.kafka import Topics
from streaming.runtime.snapshots import Checkpoint, ReplicaState
from streaming.runtime.step import Manifest
from streaming.scalars.expression import Schema
from streaming.stages.evaluators import Evaluators
from streaming.stages.integrator_stage import IntegratorStage
from streaming.stages.view_stage import ViewStage
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.over_views.mediator import Mediator

SMALL = INLINE_LIMIT // 8
"""Characters of parents' rows that a manifest carries itself; more of them go into a file."""
WAITING = 2 * INLINE_LIMIT
"""The same for the rows of messages that wait in the mediator."""


class OverviewStage(ViewStage):
    """Stage `view:<name>` of a view with parents.

    Args:
        views: the views that it scans, and their merge groups.
    """

    def __init__(
        self,
        spec: ManagedView,
        views: Mapping[str, str],
        evaluators: Evaluators,
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
        checkpoint_batches: int,
    ) -> None:
        self._views = views
        self._operators = DuckOperators(
            lambda table: packing.pack(table, self._stage), self._unpacked
        )
        self._mediator: Mediator[Signed] = Mediator(spec, views, self._operators)
        self._handed = ParentRows(self._mediator.parents, warehouse)
        self._ending: list[Suspend] = []
        self._kept_files: frozenset[str] = frozenset()
        super().__init__(spec, evaluators, warehouse, actions_topic, metrics, checkpoint_batches)

    def topics(self, topics: Topics) -> tuple[str, ...]:
        groups = sorted(set(self._mediator.parents.values()))
        return (*super().topics(topics), *map(topics.actions, groups))

    # Step -----------------------------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """The mediator as the manifest has it, then the manager from what it was handed."""
        self._mediator = Mediator(self.spec, self._views, self._operators)
        saved = ReplicaState.loaded(snapshot) if snapshot else None
        self._handed = ParentRows(
            self._mediator.parents, self._warehouse, saved.handed if saved else None
        )
        self._ending = []
        if saved:
            self._mediator.restore(saved.mediator)
        super().restore(snapshot)
        self._kept_files = frozenset(saved.files if saved else ())

    def _taken(self, records: pa.Table) -> list[Updates] | None:
        """UpdateView: what the mediator hands on now that these messages have come."""
        parents = self._mediator.parents
        told = self._inbox.take(
            records, {IntegratorStage.name, *(f"view:{parent}" for parent in parents)}
        )
        if not told:
            return None
        handed: list[Updates] = []
        for message in told:
            if self.suspended is not None or self._ending:
                break
            if isinstance(message, Updates):
                message = self._needed_of(message)
            if isinstance(message, Updates | ActionList | Suspend):
                for each in self._mediator.handle(message):
                    if isinstance(each, Updates):
                        handed.append(each)
                    else:
                        self._ending.append(each)
        return handed

    def _needed_of(self, message: Updates) -> Updates:
        """The message without what this view has no use for: it may wait in every manifest."""
        rows = {n: message.relations[n] for n in self._captured() if n in message.relations}
        lean = {"relations": rows, "logs": {}, "delivered": {}, "parts": (), "rel": ()}
        return message.model_copy(update=lean)

    def _handle(self, messages: list[Updates]) -> list[ActionList | Suspend]:
        answer = super()._handle(messages)
        self._handed.add(messages)
        return answer

    def _passed_on(self, sent: list[ActionList | Suspend]) -> list[ActionList | Suspend]:
        """The manager's lists as the mediator lets them through, up to the view's end if it ends."""
        out = [each for one in sent for each in self._mediator.passed_on(one)] + self._ending
        self._ending = []
        ends = next((at for at, one in enumerate(out) if isinstance(one, Suspend)), len(out))
        return out[: ends + 1]

    def _fold(self) -> Checkpoint:
        folded = super()._fold()
        self._handed.clear()
        return folded

    def _kept_state(self) -> dict[str, Any]:
        self._handed.settle(str(self._staging.folder.relative_to(self._warehouse)), self._staged)
        self._mediator.put_aside(WAITING, lambda rows: self._staged(self._unpacked(rows)))
        return {
            **super()._kept_state(),
            "mediator": self._mediator.snapshot(),
            "handed": self._handed.snapshot(),
        }

    def applied(self, manifest: Manifest) -> None:
        self._kept_files = frozenset(ReplicaState.loaded(manifest.snapshot).files)
        super().applied(manifest)

    def collect(self, passed: int) -> None:
        """Remove staged files that neither the merge nor a restart needs."""
        self._staging.collect(min(passed, self.handled), keep=self._kept_files)

    # Rows -----------------------------------------------------------------------------------------

    def _captured(self) -> dict[str, Schema]:
        found = super()._captured()
        return {name: found[name] for name in found if name not in self._mediator.parents}

    def _recorded(self, first: int, last: int) -> Updates:
        """As for any view, and the parents' rows among them as they were handed on."""
        recorded = super()._recorded(first, last)
        handed = {
            parent: packing.pack(table, self._staging.keeper(last))
            for parent, table in self._handed.tables().items()
        }
        return recorded.model_copy(update={"relations": {**recorded.relations, **handed}})

    def _stage(self, content: bytes) -> str:
        """A file that stays until a manifest has named it and a later one does no more."""
        return self._staging.keeper(self._mediator.number + 1)(content)

    def _staged(self, table: pa.Table) -> Rows:
        return packing.staged(table, self._stage)

    def _unpacked(self, rows: Rows) -> pa.Table:
        return packing.unpack(rows, self._warehouse)


class ParentRows:
    """The parents' rows that a manager was handed since its checkpoint, as a manifest refers to them.

    Args:
        saved: from `snapshot`.
    """

    def __init__(
        self,
        parents: Iterable[str],
        warehouse: Path,
        saved: Mapping[str, Iterable[Rows]] | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._pieces = {parent: list((saved or {}).get(parent, ())) for parent in parents}

    def add(self, messages: Iterable[Updates]) -> None:
        """What is in these messages."""
        for updates in messages:
            for parent, pieces in self._pieces.items():
                rows = updates.relations.get(parent)
                if rows is not None and rows.rows:
                    pieces.append(rows)

    def settle(self, own: str, keep: Callable[[pa.Table], Rows]) -> None:
        """Leave nothing in files of others, and in the manifest itself no more than is small.

        Args:
            own: the folder that `keep` writes to, relative to the warehouse.
        """
        for parent, pieces in self._pieces.items():
            loose = [rows for rows in pieces if not (rows.path or "").startswith(f"{own}/")]
            inside = sum(len(rows.ipc or "") for rows in loose)
            if inside > SMALL or any(rows.path is not None for rows in loose):
                kept = [rows for rows in pieces if rows not in loose]
                self._pieces[parent] = [*kept, keep(self._together(loose))]

    def tables(self) -> dict[str, pa.Table]:
        """Parent -> its rows, where there are any."""
        return {parent: self._together(found) for parent, found in self._pieces.items() if found}

    def _together(self, pieces: Iterable[Rows]) -> pa.Table:
        return pa.concat_tables([packing.unpack(rows, self._warehouse) for rows in pieces])

    def clear(self) -> None:
        """A checkpoint holds them now."""
        for pieces in self._pieces.values():
            pieces.clear()

    def snapshot(self) -> dict[str, tuple[Rows, ...]]:
        """The references."""
        return {parent: tuple(found) for parent, found in self._pieces.items()}
