"""Somebody else writes to Fresco's tables without end: every writer gives up with one coded error.

The other's commits are real ones, each just before Fresco's own, so that delta-rs refuses that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from warehouse_rows import BALANCE, LINES, delta, next_epoch, write_catalog

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.warehouse.delta_table import TableHandle
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesWriter

ENTRY = Relation("north.entry", (Column("id", "int"),))
GROWN = Relation("north.entry", (Column("id", "int"), Column("amount", "int")))


class Shared(TableHandle):
    """A table that another writes to, just before each of the next commits."""

    def __init__(self, table: TableHandle, times: int) -> None:
        super().__init__(table.place, table.handle, table.partition)
        self.times = times
        self.met = 0

    def _another(self) -> None:
        if self.met < self.times:
            self.met += 1
            properties = {"somebody.else": str(self.met)}
            other = DeltaTable(self.place.uri)
            other.alter.set_table_properties(properties, raise_if_not_exists=False)

    def commit(self, *what: Any) -> None:
        self._another()
        super().commit(*what)

    def add_columns(self, *what: Any) -> None:
        self._another()
        super().add_columns(*what)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[GroupWriter]:
    write_catalog(tmp_path, "g", [BALANCE, LINES])
    writer = GroupWriter(str(tmp_path), "bank", "g", [BALANCE])
    writer.commit({"balance": delta(BALANCE, [(0, 1, 1, 5)])}, next_epoch(None, "g", ((0, 0),)))
    yield writer
    writer.close()


def data_files(table: TableHandle) -> set[str]:
    return {
        str(path) for path in Path(table.place.uri).rglob("*.parquet") if "_log" not in str(path)
    }


def refused(table: TableHandle, act: Callable[[], object], what: str) -> None:
    """The act is refused; nothing of it is visible, and no file of it is left."""
    version, before = table.version, data_files(table)
    with pytest.raises(FrescoError) as caught:
        act()
    error = caught.value
    assert error.code == "WAREHOUSE_CONFLICT" and what in error.what and "8 times" in error.what
    assert error.where == table.place.uri.removesuffix("_changes")
    assert "nothing but one Fresco" in error.todo
    assert DeltaTable(table.place.uri).version() == version + 8, "the other's commits only"
    assert data_files(table) == before


@pytest.mark.parametrize("which", ["changes", "state"])
def test_an_epoch_that_always_meets_another_commit_is_given_up(
    writer: GroupWriter, tmp_path: Path, which: str
) -> None:
    table: TableHandle = getattr(writer, which)
    change = {"balance": delta(BALANCE, [(1, 1, 2, 7)])}
    second = next_epoch(writer.last(), "g", ((1, 1),))
    setattr(writer, which, Shared(table, 8))
    refused(table, lambda: writer.commit(change, second), "epoch 2")
    assert len(Warehouse(tmp_path).read("balance")) == 1
    setattr(writer, which, Shared(table, 7))
    assert not writer.commit(change, second).repeated
    assert len(Warehouse(tmp_path).read("balance")) == 2


@pytest.mark.parametrize("which", ["changes", "state"])
def test_the_columns_of_a_view_that_joins_too(writer: GroupWriter, which: str) -> None:
    table: TableHandle = getattr(writer, which)
    setattr(writer, which, Shared(table, 8))
    refused(table, lambda: writer.add_view(LINES), "columns")
    setattr(writer, which, Shared(table, 7))
    assert writer.add_view(LINES) == LINES
    assert not writer.commit(
        {"lines": delta(LINES, [(1, 1, "a", 1)])}, next_epoch(writer.last(), "g", ((1, 1),))
    ).repeated


def test_recorded_updates_and_their_new_columns_too(tmp_path: Path) -> None:
    updates = UpdatesWriter(str(tmp_path), "bank", [ENTRY])
    rows = delta_schema(ENTRY.schema).empty_table()
    table = updates.table
    updates.table = Shared(table, 8)
    refused(table, lambda: updates.append(1, {ENTRY.name: rows}), "step 1")
    updates.table = Shared(table, 7)
    assert updates.append(1, {ENTRY.name: rows}) and updates.recorded() == 1
    updates.table = Shared(table, 8)
    refused(table, lambda: updates.add_relations([GROWN]), "columns")
    updates.table = Shared(table, 7)
    updates.add_relations([GROWN])
    grown = delta_schema(GROWN.schema).empty_table()
    assert updates.append(2, {GROWN.name: grown})
