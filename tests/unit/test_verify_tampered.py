"""Whatever is changed in a record, `verify` names it: number or epoch, row, expected, found.

A true warehouse is copied and one of its files changed in one row. What the witness must say is
found in plain Python: the record is folded number by number and compared with the bank's states.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from verified_bank import Bag, Bank, transfers

from streaming.proof.verdicts import Judged, Verdict, verify_pipeline
from streaming.readers import Warehouse

ROUNDS = 12
EPOCHS = ((0, 0), (1, 5), (6, 12))
Row = dict[str, Any]


@pytest.fixture(scope="module")
def true_bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    made = Bank(tmp_path_factory.mktemp("true"), transfers(12, 7))
    made.record_updates()
    for first, last in EPOCHS:
        made.commit(first, last)
    assert verify_pipeline(made.folder).holds
    return made


def line(verdict: Verdict, name: str) -> Judged:
    return next(one for one in verdict.lines if one.name == name)


def rows_of(file: Path) -> list[Row]:
    found: list[Row] = pq.ParquetFile(file).read().to_pylist()
    return found


def write(file: Path, rows: list[Row]) -> None:
    schema = pq.ParquetFile(file).schema_arrow
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def files(folder: Path, table: str, view: str = "*") -> list[Path]:
    found = sorted((folder / table).glob(f"view={view}/*.parquet"))
    return [file for file in found if file.parent.name != "view=fresco_views"]


def more(row: Row) -> list[Row]:
    count = "multiplicity" if "multiplicity" in row else "_n"
    return [{**row, count: row[count] + 1 if row[count] != -1 else -2}]


def gone(_: Row) -> list[Row]:
    return []


def another_value(row: Row) -> list[Row]:
    """The first value that is compared exactly, by its smallest step."""
    view = next(name for name in ("balance", "doubles", "total") if name in row)
    name, step = {
        "balance": ("balance", Decimal("0.01")),
        "doubles": ("account", 1),
        "total": ("total", Decimal("-0.01")),
    }[view]
    return [{**row, view: {**row[view], name: row[view][name] + step}}]


def another_number(row: Row) -> list[Row]:
    return [{**row, "number": row["number"] + (1 if row["number"] < 12 else -1)}]


TAMPERINGS: dict[str, list[Callable[[Row], list[Row]]]] = {
    "g_changes": [more, gone, another_value, another_number],
    "g": [more, gone, another_value],
}


@dataclass(frozen=True)
class Wrong:
    """A recorded state that is not the true one."""

    number: int
    epoch: int | None
    expected: Bag
    found: Bag


def wrongs(folder: Path, made: Bank, view: str) -> Iterator[Wrong]:
    """The view's wrong states in the order in which `verify` meets them."""
    changes = [row for file in files(folder, "g_changes", view) for row in rows_of(file)]
    bag: Bag = Counter()
    ends = {last: epoch for epoch, (_, last) in enumerate(EPOCHS, start=1)}
    for number, true in enumerate(state[view] for state in made.states):
        for row in changes:
            if row["number"] == number:
                bag[tuple(row[view].values())] += row["multiplicity"]
        if {row: n for row, n in bag.items() if n} != dict(true):
            yield Wrong(number, None, true, Counter(bag))
        if number in ends:
            table = Warehouse(folder).read(view, epoch=ends[number], expanded=False)
            recorded = {tuple(row.values())[:-1]: row["_n"] for row in table.to_pylist()}
            if recorded != dict(true):
                yield Wrong(number, ends[number], true, Counter(recorded))


@pytest.mark.parametrize("table", TAMPERINGS)
def test_any_one_row_changed_in_any_file_is_told_by_number_row_and_counts(
    true_bank: Bank, tmp_path: Path, table: str
) -> None:
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FRESCO_SEED={seed}")
    chance = random.Random(seed)
    for round_ in range(ROUNDS):
        folder = tmp_path / str(round_)
        shutil.copytree(true_bank.folder, folder)
        file = chance.choice(files(folder, table))
        rows, tamper = rows_of(file), chance.choice(TAMPERINGS[table])
        at = chance.randrange(len(rows))
        write(file, [*rows[:at], *tamper(rows[at]), *rows[at + 1 :]])
        view = file.parent.name.removeprefix("view=")
        first = next(wrongs(folder, true_bank, view))
        found = line(verify_pipeline(folder), view)
        told = f"{tamper.__name__} of {rows[at]}"
        witness = found.witness
        assert not found.holds and witness is not None, told
        assert (witness.number, witness.epoch) == (first.number, first.epoch), told
        assert witness.expected != witness.found, told
        assert (witness.expected, witness.found) == (
            first.expected[witness.row], first.found[witness.row],
        ), told  # fmt: skip


def test_a_change_of_what_the_table_says_of_its_views_is_told(
    true_bank: Bank, tmp_path: Path
) -> None:
    shutil.copytree(true_bank.folder, tmp_path / "copy")
    for file in (tmp_path / "copy" / "g").glob("view=fresco_views/*.parquet"):
        rows = rows_of(file)
        said = {**rows[0]["fresco_views"], "state": "suspended", "last_good": 1}
        write(file, [{**rows[0], "fresco_views": said}, *rows[1:]])
    verdict = verify_pipeline(tmp_path / "copy")
    assert not verdict.holds
    assert any("fresco_views" in one for one in verdict.problems), verdict.problems


def test_a_missing_update_is_told_at_its_number_by_every_view_over_its_relation(
    true_bank: Bank, tmp_path: Path
) -> None:
    shutil.copytree(true_bank.folder, tmp_path / "copy")
    (file,) = (tmp_path / "copy" / "_updates").glob("relation=north*entry/*.parquet")
    rows = rows_of(file)
    write(file, rows[:-1])
    verdict = verify_pipeline(tmp_path / "copy")
    for view in ("balance", "total", "g"):
        witness = line(verdict, view).witness
        assert witness is not None and witness.number == rows[-1]["number"]
    assert line(verdict, "doubles").holds


def test_two_rows_whose_values_are_exchanged_do_not_cancel_out(tmp_path: Path) -> None:
    made = Bank(tmp_path, transfers(8, 3))
    made.record_updates()
    one, other, *rest = sorted(made.states[8]["balance"])
    exchanged = [(one[0], *other[1:]), (other[0], *one[1:]), *rest]
    made.commit(0, 7)
    made.commit(8, 8, states={8: {"balance": Counter(exchanged)}})
    witness = line(verify_pipeline(tmp_path), "balance").witness
    assert witness is not None and witness.number == 8
    assert witness.row[0] in (one[0], other[0])


def test_a_sum_of_minus_one_cent_is_not_zero(tmp_path: Path) -> None:
    """DuckDB's own hash is the same for 0.00 and -0.01 in a wide decimal."""
    made = Bank(tmp_path, [[("north.entry", 1, (1, 1, 5)), ("south.entry", 1, (2, 1, -5))], []])
    made.record_updates()
    made.commit(0, 0)
    made.commit(1, 1, states={1: {"total": Counter({(Decimal("-0.01"), 2): 1})}})
    witness = line(verify_pipeline(tmp_path), "total").witness
    assert witness is not None
    assert (witness.number, witness.row[1], witness.expected + witness.found) == (1, 2, 1)


def test_the_first_witness_stays_when_much_is_wrong(tmp_path: Path) -> None:
    made = Bank(tmp_path, transfers(8, 3))
    made.record_updates()
    made.commit(0, 1)
    frozen = made.states[1]["total"]
    made.commit(2, 8, states={number: {"total": frozen} for number in range(2, 9)})
    verdict = verify_pipeline(tmp_path)
    witness = line(verdict, "total").witness
    first = next(n for n in range(2, 9) if made.states[n]["total"] != frozen)
    assert witness is not None and (witness.number, witness.epoch) == (first, None)
    assert line(verdict, "total").achieved == "none"


def test_a_row_that_a_table_holds_in_two_halves_is_a_problem(
    true_bank: Bank, tmp_path: Path
) -> None:
    shutil.copytree(true_bank.folder, tmp_path / "copy")
    halves = [
        (file, [*({**row, "_n": 1} for _ in range(row["_n"])), *rows[:at], *rows[at + 1 :]])
        for file in files(tmp_path / "copy", "g", "doubles")
        for rows in [rows_of(file)]
        for at, row in enumerate(rows)
        if row["_n"] > 1
    ]
    write(*halves[0])
    verdict = verify_pipeline(tmp_path / "copy")
    assert line(verdict, "doubles").achieved == "complete"
    assert not verdict.holds
    assert [problem for problem in verdict.problems if "stands twice at epoch" in problem]
