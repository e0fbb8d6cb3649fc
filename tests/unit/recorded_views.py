"""A warehouse of any relations and views, whose epochs a test writes by hand through the real writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming.algebra.tree import Relation
from streaming.messages import Control
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch, Runs, merge_runs
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesWriter
from tests.unit.verified_bank import arrow
from tests.unit.warehouse_rows import frontier_of

Rows = Sequence[Sequence[object]]
"""(number, multiplicity, value, ...)."""


class Recorded:
    """Group "g" of a pipeline.

    Args:
        views: name -> SELECT.
    """

    def __init__(
        self, folder: Path, relations: Sequence[Relation], views: Mapping[str, str], level: str = ""
    ) -> None:
        self.relations = {one.name: one for one in relations}
        clause = f"WITH {level} CONSISTENCY " if level else ""
        known, parsed = dict(self.relations), []
        for name, sql in views.items():
            parsed.append(parse_view(f"CREATE MATERIALIZED VIEW {name} {clause}AS {sql}", known))
            known[name] = parsed[-1].relation
        save_catalog(folder, parsed, {"g": list(views)}, self.relations)
        self.tables = {view.name: ViewTable(view.name, view.schema, ()) for view in parsed}
        self.writer = GroupWriter(str(folder), "p", "g", list(self.tables.values()))
        self.updates = UpdatesWriter(str(folder), "p", list(relations))
        self.covered: Runs = ()

    def record(
        self,
        updates: Mapping[str, Rows],
        controls: Sequence[Control] = (),
        last: int | None = None,
    ) -> None:
        """`_updates` in one step."""
        deltas = {name: arrow(self.relations[name].schema, rows) for name, rows in updates.items()}
        self.updates.append(1, deltas, controls=controls, last=last)

    def publish(self, first: int, last: int, changes: Mapping[str, Rows], **said: Any) -> None:
        """An epoch that covers [first..last] too; `said` are other attributes of `Epoch`."""
        self.covered = merge_runs(self.covered, [(first, last)])
        before = self.writer.last()
        stated = {
            "epoch": before.epoch + 1 if before else 1,
            "added": ((first, last),),
            "covered": self.covered,
            "frontier": frontier_of(self.covered),
            **said,
        }
        deltas = {
            name: arrow(table.schema, changes.get(name, ())) for name, table in self.tables.items()
        }
        self.writer.commit(deltas, Epoch("g", **stated))
