"""The stage of a complete-N view in a group of such views: a list for each block of N numbers (MVC 6.3).

The numbers of a block that has begun wait in the manifest until the block is whole; then they are one
message to the manager, and of its list the rows of each block become one change from the block's state
before to its state after: rows that came and went inside it are gone, the rest bears the block's last
number. So the changelog holds every Nth state, and the merge gets a list for each block in which REL asks
for work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.ask.splitting import split
from streaming.merge.blocks import Blocks, work_of
from streaming.messages import ActionList, Rows, Suspend, Updates
from streaming.metrics import Metrics
from streaming.packed_rows import pack, unpack
from streaming.runtime.snapshots import ReplicaState
from streaming.scalars.expression import MULTIPLICITY, NUMBER, column_name
from streaming.stages.evaluators import Evaluators
from streaming.stages.view_stage import ViewStage
from streaming.viewmanagers.base import ManagedView
from streaming.warehouse.net_changes import net_changes


class BlockStage(ViewStage):
    """Stage `view:<name>` of a view that is complete every N numbers.

    Args:
        every: N.
    """

    def __init__(
        self,
        spec: ManagedView,
        every: int,
        evaluators: Evaluators,
        warehouse: Path,
        actions_topic: str,
        metrics: Metrics,
        checkpoint_batches: int,
    ) -> None:
        self._blocks = Blocks(every)
        self._begun: Updates | None = None
        """The numbers of the block that is not whole."""
        self._wanted: frozenset[int] = frozenset()
        """The blocks handed on for which the merge waits."""
        super().__init__(spec, evaluators, warehouse, actions_topic, metrics, checkpoint_batches)

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Also what has begun."""
        self._begun = ReplicaState.loaded(snapshot).begun if snapshot else None
        super().restore(snapshot)

    def _kept_state(self) -> dict[str, Any]:
        return {**super()._kept_state(), "begun": self._begun}

    def _taken(self, records: pa.Table) -> list[Updates] | None:
        """The whole blocks as one message, and none while there is none."""
        messages = super()._taken(records)
        if not messages or self.suspended is not None:
            return messages
        heard = self._together([*([self._begun] if self._begun else []), *messages])
        number = heard.last
        block = self._blocks.block_of(number)
        end = number if self._blocks.last_of(block) == number else self._blocks.last_of(block - 1)
        if end < heard.first:
            self._begun = heard
            return []
        self._begun = None
        if end < number:
            heard, rest = split(heard, end)
            rows = {name: self._rows(heard.relations[name]) for name in heard.relations}
            heard = self._of(heard, {n: t.filter(_upto(t, end)) for n, t in rows.items()})
            later = {n: t.filter(pc.invert(_upto(t, end))) for n, t in rows.items()}
            self._begun = self._of(rest, later)
        blocks, _ = self._blocks.cut(heard.runs)
        view, begins = self.spec.view, {self._blocks.block_of(self.spec.start)}
        wanted = {k for k, runs in blocks.items() if view in work_of(runs)}
        self._wanted = frozenset(wanted | begins & blocks.keys())
        return [heard]

    def _passed_on(self, sent: list[ActionList | Suspend]) -> list[ActionList | Suspend]:
        """The lists block by block; a view that stops inside a block stops before it."""
        out: list[ActionList | Suspend] = []
        for one in sent:
            out += self._by_block(one) if isinstance(one, ActionList) else [one]
        return out

    def _by_block(self, actions: ActionList) -> list[ActionList]:
        rows = None if actions.delta is None else self._netted(self._rows(actions.delta))
        lists = []
        for block in sorted(self._wanted):
            first, last = self._blocks.first_of(block), self._blocks.last_of(block)
            if first < actions.first or last > actions.last:
                continue
            found = None if rows is None else rows.filter(pc.equal(rows[NUMBER], last))
            delta = self._pack(found) if found is not None and found.num_rows else None
            update = {"first": first, "last": last, "delta": delta}
            lists.append(actions.model_copy(update=update))
        return lists

    def _netted(self, rows: pa.Table) -> pa.Table:
        """The rows of each block under its last number, what cancels left out."""
        width, every = len(self.spec.tree.schema), self._blocks.every
        numbers = rows[NUMBER].to_numpy()
        lasts = pa.array(-(-numbers // every) * every)
        rows = rows.set_column(0, rows.schema.field(0), lasts)
        net = net_changes(rows.append_column(column_name(width), lasts), width + 1)
        kept = rows.take(net["row"])
        times = pa.array(net["plus"].to_numpy() - net["minus"].to_numpy(), pa.int64())
        place = rows.schema.get_field_index(MULTIPLICITY)
        kept = kept.set_column(place, rows.schema.field(place), times)
        return kept.take(pa.array(np.argsort(kept[NUMBER].to_numpy(), kind="stable")))

    # Messages -------------------------------------------------------------------------------------

    def _together(self, messages: Sequence[Updates]) -> Updates:
        """Messages that follow each other as one."""
        if len(messages) == 1:
            return messages[0]
        tables: dict[str, list[pa.Table]] = {}
        for message in messages:
            for name, rows in message.relations.items():
                tables.setdefault(name, []).append(self._rows(rows))
        runs, controls = _all(one.runs for one in messages), _all(one.controls for one in messages)
        whole = messages[-1].model_copy(
            update={"first": messages[0].first, "runs": runs, "controls": controls}
        )
        return self._of(whole, {name: pa.concat_tables(found) for name, found in tables.items()})

    def _of(self, message: Updates, tables: Mapping[str, pa.Table]) -> Updates:
        """The message with these rows."""
        stage = self._staging.keeper(message.last)
        packed = {name: pack(rows, stage) for name, rows in tables.items() if rows.num_rows}
        return message.model_copy(update={"relations": packed})

    def _rows(self, rows: Rows) -> pa.Table:
        return unpack(rows, self._warehouse)


def _upto(rows: pa.Table, number: int) -> pa.ChunkedArray:
    return pc.less_equal(rows[NUMBER], number)


def _all(several: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(item for one in several for item in one)
