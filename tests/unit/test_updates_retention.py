"""What is older than the retention leaves `_updates`, and nothing that anybody still needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from verified_bank import Bank, transfers
from warehouse_rows import LINES, delta, next_epoch

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.proof.verdicts import verify_pipeline
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.moments import number_at
from streaming.warehouse.retention import EVERY_MS, UpdatesRetention, first_since
from streaming.warehouse.updates import UpdatesReader, UpdatesWriter
from streaming.warehouse.upkeep import Upkeep, UpkeepOptions

HOUR = 3_600_000
RELATION = Relation(LINES.name, LINES.schema)
EVERYTHING = 1 << 62


def number_map(first: int, times: list[int | None]) -> pa.Table:
    numbers = list(range(first, first + len(times)))
    return pa.table(
        {
            "number": numbers,
            "source": ["north"] * len(numbers),
            "transaction": [str(number) for number in numbers],
            "position": numbers,
            "committed_ms": pa.array(times, pa.int64()),
        }
    )


def written(folder: Path, *steps: list[int | None]) -> UpdatesWriter:
    """`_updates` with a step, and so a file, for each list of commit times; a row each."""
    writer = UpdatesWriter(str(folder), "bank", [RELATION])
    first = 0
    for sequence, times in enumerate(steps, 1):
        rows = [(number, 1, "x", number) for number in range(first, first + len(times))]
        writer.append(sequence, {LINES.name: delta(LINES, rows)}, number_map(first, times))
        first += len(times)
    return writer


def numbers(folder: Path) -> list[int]:
    found = UpdatesReader(str(folder)).updates(LINES.name, LINES.schema, -1, EVERYTHING)
    return sorted(found["_number"].to_pylist())


def test_what_committed_before_the_retention_goes_file_by_file(tmp_path: Path) -> None:
    writer = written(tmp_path, [0, 0], [HOUR, HOUR], [2 * HOUR, 3 * HOUR])
    retention = UpdatesRetention(writer.table, hours=2)
    assert retention.run(3 * HOUR + HOUR // 2, needed=EVERYTHING) == 4
    assert numbers(tmp_path) == [4, 5]
    reader = UpdatesReader(str(tmp_path))
    assert reader.kept_from == 4 and reader.kept_since == 3 * HOUR // 2
    assert reader.transactions(-1, EVERYTHING)["number"].to_pylist() == [4, 5]


def test_a_number_that_somebody_needs_stays_however_old_it_is(tmp_path: Path) -> None:
    writer = written(tmp_path, [0, 0], [0, 0], [0, 0])
    retention = UpdatesRetention(writer.table, hours=1)
    assert retention.run(9 * HOUR, needed=3) == 2
    assert numbers(tmp_path) == [2, 3, 4, 5]
    assert UpdatesReader(str(tmp_path)).kept_from == 3
    assert retention.run(10 * HOUR, needed=0) == 0


def test_a_round_comes_at_most_once_a_minute(tmp_path: Path) -> None:
    writer = written(tmp_path, [0], [0])
    retention = UpdatesRetention(writer.table, hours=1)
    assert retention.run(9 * HOUR, needed=0) == 0
    assert retention.run(9 * HOUR + EVERY_MS - 1, needed=1) == 0
    assert retention.run(9 * HOUR + EVERY_MS, needed=1) == 2


def test_numbers_do_not_go_while_an_earlier_one_is_young(tmp_path: Path) -> None:
    """Sources' clocks differ, and a held transaction is numbered after younger ones."""
    table = written(tmp_path, [0, 9], [5, 1], [2, 3]).table
    assert [first_since(table, moment) for moment in (0, 2, 5, 6, 9, 10)] == [0, 1, 1, 1, 1, 6]


@pytest.mark.parametrize(
    ("steps", "bound"),
    [([[None, None]], 0), ([[0, None]], 1), ([[None, 0], [None, None]], 2)],
)
def test_a_number_without_a_known_commit_time_goes_only_with_a_later_one(
    tmp_path: Path, steps: list[list[int | None]], bound: int
) -> None:
    assert first_since(written(tmp_path, *steps).table, HOUR) == bound


def test_what_another_driver_adds_meanwhile_stays(tmp_path: Path) -> None:
    writer = written(tmp_path, [0], [0])
    retention = UpdatesRetention(writer.table, hours=1)
    refresh, added = writer.table.refresh, []

    def overtaken() -> None:
        """Another driver commits whenever this one has looked."""
        refresh()
        other = UpdatesWriter(str(tmp_path), "bank", [RELATION])
        added.append(other.recorded() + 1)
        other.append(added[-1], {LINES.name: delta(LINES, [(added[-1], 1, "y", 0)])})

    writer.table.refresh = overtaken  # type: ignore[method-assign]
    retention.run(9 * HOUR, needed=EVERYTHING)
    assert added and [one for one in numbers(tmp_path) if one > 1] == added


def test_what_was_cut_is_not_written_again_and_folds_with_the_rest(tmp_path: Path) -> None:
    writer = written(tmp_path, *([[0]] * 4))
    UpdatesRetention(writer.table, hours=1).run(9 * HOUR, needed=2)
    Upkeep(None, [writer.table], UpkeepOptions(small_files=2)).run(60)
    again = UpdatesWriter(str(tmp_path), "bank", [RELATION])
    assert not again.append(1, {LINES.name: delta(LINES, [(0, 1, "x", 0)])})
    assert numbers(tmp_path) == [2, 3]


def test_a_read_as_of_a_time_whose_commit_times_are_gone_is_refused(tmp_path: Path) -> None:
    updates = written(tmp_path, [0, HOUR], [2 * HOUR, 3 * HOUR], [4 * HOUR, 5 * HOUR])
    writer = GroupWriter(str(tmp_path), "bank", "g", [LINES])
    early = next_epoch(None, "g", ((0, 1),), committed_ms=HOUR)
    writer.commit({}, early)
    writer.commit({}, next_epoch(early, "g", ((2, 5),), committed_ms=5 * HOUR))
    moments = [HOUR, 5 * HOUR // 2, 9 * HOUR // 2, 6 * HOUR]
    place = TableFolder.of(str(tmp_path))
    assert [number_at(place, "g", moment) for moment in moments] == [1, 2, 4, 5]
    assert UpdatesRetention(updates.table, 4).run(15 * HOUR // 2, needed=EVERYTHING) == 4
    with pytest.raises(FrescoError, match="READ_EPOCH_EXPIRED"):
        number_at(place, "g", moments[1])
    assert [number_at(place, "g", moment) for moment in moments[2:]] == [4, 5]


def test_verify_refuses_a_history_without_its_beginning_and_says_what_still_can_be_done(
    tmp_path: Path,
) -> None:
    bank = Bank(tmp_path, transfers(3, 3))
    bank.record_updates()
    bank.commit(0, 3)
    bank.updates.append(2, {}, number_map(0, [0] * 4))
    assert verify_pipeline(tmp_path).holds
    assert UpdatesRetention(bank.updates.table, 1).run(9 * HOUR, needed=EVERYTHING) > 0
    with pytest.raises(FrescoError) as refused:
        verify_pipeline(tmp_path)
    assert refused.value.code == "VERIFY_RETENTION"
    assert "retention.updates_hours" in refused.value.todo
    assert "verify --source" in refused.value.todo
