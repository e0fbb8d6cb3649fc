"""Upkeep changes no row and hides no epoch (DESIGN 8)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from warehouse_rows import LINES, delta, next_epoch, write_catalog

from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import TableOptions, WriterOptions
from streaming.warehouse.upkeep import Upkeep, UpkeepDone, UpkeepOptions, drop_below, vacuum

FEW = UpkeepOptions(small_files=3)


class Clock:
    """Seconds that pass when told to, and one for each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def lines(number: int) -> pa.Table:
    return delta(LINES, [(number, 1, f"{number} {at}" * 5, at) for at in range(50)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_catalog(tmp_path, "g", [LINES])
    return tmp_path


def written(folder: Path, count: int = 6) -> GroupWriter:
    table = TableOptions(checkpoint_interval=3)
    options = WriterOptions(file_bytes=1500, table=table)
    writer = GroupWriter(str(folder), "bank", "g", [LINES], options)
    epoch: Epoch | None = None
    for number in range(count):
        epoch = next_epoch(epoch, "g", ((number, number),))
        writer.commit({"lines": lines(number)}, epoch)
    writer.options = WriterOptions(table=table)
    return writer


def content(folder: Path, number: int) -> list[tuple]:
    found = Warehouse(folder).read("lines", transaction=number).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_folding_keeps_every_state_and_the_last_epoch(folder: Path) -> None:
    writer = written(folder)
    states = [content(folder, number) for number in range(6)]
    epochs = Warehouse(folder).epochs("g")
    done = Upkeep(writer, options=FEW).run(60)
    assert done.folded >= 12 and done.written == 2
    assert len(writer.state.files("lines")) == len(writer.changes.files()) == 1
    assert Warehouse(folder).epochs("g") == epochs
    assert writer.last() == epochs[-1]
    assert [content(folder, number) for number in range(6)] == states
    writer.commit({"lines": lines(6)}, next_epoch(epochs[-1], "g", ((6, 6),)))
    assert len(content(folder, 6)) == len(states[5]) + 50


def test_a_folded_file_is_sorted_and_says_so(folder: Path) -> None:
    writer = written(folder)
    Upkeep(writer, options=FEW).run(60)
    for one in writer.state.files():
        ids = pa.parquet.read_table(Path(folder, "g", one.path)).column("_id").to_pylist()
        assert ids == sorted(ids)
        assert (one.low["_id"], one.high["_id"], one.rows) == (ids[0], ids[-1], len(ids))


def test_a_spent_budget_stops_upkeep(folder: Path) -> None:
    writer = written(folder)
    assert Upkeep(writer, options=FEW, clock=Clock()).run(0) == UpkeepDone()


def test_a_fold_that_meets_a_commit_leaves_no_trace(folder: Path) -> None:
    writer = written(folder)
    late = written(folder)
    epoch = writer.last()
    late.state.refresh = lambda: None  # type: ignore[method-assign]
    writer.commit({"lines": lines(6)}, next_epoch(epoch, "g", ((6, 6),)))
    before = sorted(folder.glob("g/**/*.parquet"))
    Upkeep(late, options=FEW).run(60)
    writer.state.refresh()
    assert len(content(folder, 6)) == 350
    assert writer.last().epoch == 7
    named = {one.path.split("/")[-1] for one in writer.state.files()}
    new = {one.name for one in folder.glob("g/**/*.parquet")} - {one.name for one in before}
    assert new <= named


def test_vacuum_deletes_what_no_kept_version_reads_and_old_states_still_answer(
    folder: Path,
) -> None:
    writer = written(folder)
    states = [content(folder, number) for number in range(6)]
    Upkeep(writer, options=FEW).run(60)
    assert vacuum(writer.state, hours=0) > 0
    assert writer.last().epoch == 6
    warehouse = Warehouse(folder)
    with pytest.raises(FrescoError, match="READ_EPOCH_EXPIRED"):
        warehouse.read("lines", epoch=2)
    assert [content(folder, number) for number in range(6)] == states


def test_dropped_changes_are_missed_by_name(folder: Path) -> None:
    writer = written(folder)
    Upkeep(writer, options=FEW).run(60)
    vacuum(writer.state, hours=0)
    numbers = sorted(one.high["number"] for one in writer.changes.files())
    assert drop_below(writer.changes, numbers[-1] + 1) == len(numbers)
    with pytest.raises(FrescoError, match="READ_EPOCH_EXPIRED"):
        Warehouse(folder).read("lines", transaction=2)
    assert len(content(folder, 5)) == 300


def test_checkpoints_come_with_the_commits(folder: Path) -> None:
    written(folder)
    assert list(folder.glob("g/_delta_log/*.checkpoint.parquet"))
    assert (folder / "g/_delta_log/_last_checkpoint").exists()
