"""One commit for all views, exactly once, whatever crashes or races (DESIGN 8, 9)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warehouse_rows import BALANCE, LINES, ODD, delta, next_epoch, write_catalog

from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch, merge_runs
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import WriterOptions

VIEWS = [BALANCE, LINES]
SPLIT = WriterOptions(file_bytes=2000)


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_catalog(tmp_path, "g", VIEWS)
    return tmp_path


def writer(folder: Path, options: WriterOptions | None = None) -> GroupWriter:
    return GroupWriter(str(folder), "bank", "g", VIEWS, options)


def epoch(number: int, first: int = -1, last: int = -1, **more: object) -> Epoch:
    """Epoch `number`, which covers one transaction unless told otherwise."""
    first = number - 1 if first < 0 else first
    before = None if number == 1 else Epoch("g", number - 1, (), ((0, first - 1),), first - 1)
    return next_epoch(before, "g", ((first, max(first, last)),), **more)


def totals(folder: Path, **at: int) -> dict[int, Decimal]:
    rows = Warehouse(folder).read("balance", **at).to_pylist()
    assert len({row["account"] for row in rows}) == len(rows)
    return {row["account"]: row["total"] for row in rows}


def opened(*accounts: int, number: int = 0) -> dict[str, object]:
    return {"balance": delta(BALANCE, [(number, 1, at, Decimal(100)) for at in accounts])}


def transfer(number: int, one: int, other: int, was: int, amount: int) -> list[tuple]:
    moved = ((one, was, was - amount), (other, was, was + amount))
    return [
        row
        for account, before, after in moved
        for row in (
            (number, -1, account, Decimal(before)),
            (number, 1, account, Decimal(after)),
        )
    ]


def test_all_views_move_in_one_version_and_the_metadata_says_how_far(folder: Path) -> None:
    w = writer(folder)
    w.commit({**opened(1, 2), "lines": delta(LINES, [(0, 2, "a", 1)])}, epoch(1))
    change = {
        "balance": delta(BALANCE, transfer(1, 1, 2, 100, 5)),
        "lines": delta(LINES, [(1, 1, "b", 1), (1, -1, "a", 1)]),
    }
    before = w.state.version
    done = w.commit(change, epoch(2, positions={"north": "0/16"}, suspended={"lines": 0}))
    assert (done.version, done.changes) == (before + 1, 6)
    last = w.last()
    assert last is not None
    assert (last.epoch, last.covered, last.frontier) == (2, ((0, 1),), 1)
    assert (last.positions, last.suspended) == ({"north": "0/16"}, {"lines": 0})
    assert totals(folder) == {1: Decimal(95), 2: Decimal(105)}
    assert w.state.handle.history(1)[0]["userMetadata"] == last.to_json()


def test_a_repeated_epoch_does_nothing(folder: Path) -> None:
    w = writer(folder)
    assert not w.commit(opened(1), epoch(1)).repeated
    version = w.state.version, w.changes.version
    assert w.commit(opened(1), epoch(1)).repeated
    assert writer(folder).commit(opened(1), epoch(1)).repeated
    assert (w.state.version, w.changes.version) == version


def test_numbers_can_advance_without_rows(folder: Path) -> None:
    w = writer(folder)
    w.commit(opened(1), epoch(1))
    w.commit({}, epoch(2, first=1, last=900))
    last = w.last()
    assert last is not None and last.frontier == 900
    assert totals(folder, transaction=900) == {1: Decimal(100)}


@pytest.mark.parametrize("at", ["changes", "state"])
def test_a_crash_before_either_commit_is_made_good_by_the_repeat(folder: Path, at: str) -> None:
    w = writer(folder)
    w.commit(opened(1, 2), epoch(1))

    def crash(table: str) -> None:
        if table == at:
            raise Crash

    w.before_commit = crash
    change = {"balance": delta(BALANCE, transfer(1, 1, 2, 100, 5))}
    with pytest.raises(Crash):
        w.commit(change, epoch(2))
    assert totals(folder) == {1: Decimal(100), 2: Decimal(100)}
    with pytest.raises(FrescoError, match="READ_ABOVE_FRONTIER"):
        Warehouse(folder).changes("balance", upto=1)
    writer(folder).commit(change, epoch(2))
    assert totals(folder) == {1: Decimal(95), 2: Decimal(105)}
    assert Warehouse(folder).changes("balance", after=0).num_rows == 4


def test_of_two_writers_of_one_epoch_one_commits(folder: Path) -> None:
    writer(folder).commit(opened(1, 2), epoch(1))
    ready = threading.Barrier(2, timeout=60)
    change = {"balance": delta(BALANCE, transfer(1, 1, 2, 100, 5))}
    outcomes: list[bool] = []

    def run() -> None:
        w = writer(folder)
        met: set[str] = set()

        def meet(table: str) -> None:
            if table not in met:
                met.add(table)
                ready.wait()

        w.before_commit = meet
        outcomes.append(w.commit(change, epoch(2)).repeated)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert sorted(outcomes) == [False, True]
    assert totals(folder) == {1: Decimal(95), 2: Decimal(105)}
    assert Warehouse(folder).changes("balance").num_rows == 6


@pytest.mark.parametrize("at", ["changes", "state"])
def test_a_paused_writer_wakes_with_a_stale_handle_and_repeats_nothing(
    folder: Path, at: str
) -> None:
    paused = writer(folder)
    paused.commit(opened(1, 2), epoch(1))
    change = {"balance": delta(BALANCE, transfer(1, 1, 2, 100, 5))}
    later = {"balance": delta(BALANCE, [(2, 1, 3, Decimal(1))])}

    def meanwhile(table: str) -> None:
        if table == at:
            paused.before_commit = lambda _: None
            other = writer(folder)
            other.commit(change, epoch(2))
            other.commit(later, epoch(3))

    paused.before_commit = meanwhile
    assert paused.commit(change, epoch(2)).repeated
    assert totals(folder) == {1: Decimal(95), 2: Decimal(105), 3: Decimal(1)}
    assert Warehouse(folder).changes("balance").num_rows == 7


def test_an_older_start_is_refused(folder: Path) -> None:
    w = writer(folder)
    w.commit(opened(1), epoch(1, generation=2))
    with pytest.raises(FrescoError, match="WAREHOUSE_FENCED"):
        writer(folder).commit(opened(2, number=1), epoch(2, generation=1))
    assert totals(folder) == {1: Decimal(100)}


def test_a_gap_between_epochs_is_refused(folder: Path) -> None:
    w = writer(folder)
    w.commit(opened(1), epoch(1))
    with pytest.raises(FrescoError, match="WAREHOUSE_EPOCH"):
        w.commit(opened(2, number=2), epoch(3))


REFUSED: list[tuple[str, Callable[[], dict]]] = [
    ("WAREHOUSE_NEGATIVE", lambda: {"lines": delta(LINES, [(1, -1, "never", 1)])}),
    ("WAREHOUSE_NEGATIVE", lambda: {"lines": delta(LINES, [(1, -3, "twice", 1)])}),
    ("WAREHOUSE_NEGATIVE", lambda: {"balance": delta(BALANCE, transfer(1, 8, 9, 1, 1))}),
    ("WAREHOUSE_KEY", lambda: opened(1, number=1)),
    ("WAREHOUSE_KEY", lambda: {"balance": delta(BALANCE, [(1, 2, 7, Decimal(1))])}),
    ("WAREHOUSE_SCHEMA", lambda: {"balance": delta(LINES, [(1, 1, "x", 1)])}),
    ("WAREHOUSE_SCHEMA", lambda: {"unknown": delta(LINES, [(1, 1, "x", 1)])}),
]


@pytest.mark.parametrize(("code", "change"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_visible(
    folder: Path, code: str, change: Callable[[], dict]
) -> None:
    w = writer(folder)
    w.commit({**opened(1, 2), "lines": delta(LINES, [(0, 2, "twice", 1)])}, epoch(1))
    files = sorted(folder.rglob("*.parquet"))
    versions = w.state.version, w.changes.version
    good = {"balance": delta(BALANCE, transfer(1, 1, 2, 100, 5))}
    with pytest.raises(FrescoError, match=code):
        w.commit({**good, **change()}, epoch(2))
    assert sorted(folder.rglob("*.parquet")) == files
    w.state.refresh()
    w.changes.refresh()
    assert (w.state.version, w.changes.version) == versions


def test_a_view_is_added_and_another_dropped_while_running(folder: Path) -> None:
    w = writer(folder)
    w.commit({**opened(1), "lines": delta(LINES, [(0, 1, "a", 1)])}, epoch(1))
    w.add_view(ODD)
    assert w.last() == epoch(1, written_ms=w.last().written_ms)
    row = (1, 1, 5, "x", 0.5, None, b"", None, True, 1, Decimal("0.5"), None, None)
    w.commit({ODD.name: delta(ODD, [row])}, epoch(2), drop=["lines"])
    write_catalog(folder, "g", [BALANCE, ODD])
    warehouse = Warehouse(folder)
    assert warehouse.read(ODD.name).to_pylist()[0]["a.b c;"] == 0.5
    assert not w.state.files("lines")
    again = GroupWriter(str(folder), "bank", "g", [BALANCE, ODD])
    again.commit({ODD.name: delta(ODD, [(2, -1, *row[2:])])}, epoch(3))
    assert warehouse.read(ODD.name).num_rows == 0
    other = ViewTable("lines", tuple(type(c)(c.name, "double") for c in LINES.schema))
    with pytest.raises(FrescoError, match="WAREHOUSE_SCHEMA"):
        again.add_view(other)


def test_a_dropped_view_may_come_back_with_other_columns(folder: Path) -> None:
    w = writer(folder)
    w.commit({"lines": delta(LINES, [(0, 1, "a", 1)])}, epoch(1))
    w.commit({}, epoch(2), drop=["lines"])
    back = ViewTable("lines", (BALANCE.schema[0], LINES.schema[0]))
    w.add_view(back)
    w.commit({"lines": delta(back, [(2, 1, 7, "b")])}, epoch(3))
    write_catalog(folder, "g", [BALANCE, back])
    assert Warehouse(folder).read("lines").to_pylist() == [{"account": 7, "text": "b"}]


CHANGES = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 3)), max_size=30), max_size=6
)


@settings(max_examples=25, deadline=None, print_blob=True)
@given(CHANGES)
def test_any_history_leaves_the_sum_of_its_changes(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[tuple[int, int]]]
) -> None:
    """Over many small files, so that lookups, rewrites and splits all happen."""
    folder = tmp_path_factory.mktemp("w")
    write_catalog(folder, "g", VIEWS)
    w = writer(folder, SPLIT)
    lines: Counter[tuple[str, int]] = Counter({(f"row {at}" * 9, at): 1 for at in range(200)})
    base = [(0, count, *row) for row, count in lines.items()]
    w.commit({"lines": delta(LINES, base), **opened(*range(200))}, epoch(1))
    states = [Counter(lines)]
    balance = dict.fromkeys(range(200), Decimal(100))
    for number, changes in enumerate(history, 1):
        rows, moves = [], []
        for at, count in changes:
            row = (f"row {at}" * 9, at)
            count = max(count, -lines[row])
            lines[row] += count
            rows.append((number, count, *row))
            moves += [(number, -1, at, balance[at]), (number, 1, at, balance[at] + count)]
            balance[at] += count
        delta_rows = {"lines": delta(LINES, rows), "balance": delta(BALANCE, moves)}
        w.commit(delta_rows, epoch(number + 1))
        states.append(+lines)
    warehouse = Warehouse(folder)
    for number, state in enumerate(states):
        found = warehouse.read("lines", transaction=number).to_pylist()
        assert Counter((row["text"], row["number"]) for row in found) == state
    assert totals(folder) == balance
    w.close()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=10))
def test_runs_are_kept_in_normal_form(pairs: list[tuple[int, int]]) -> None:
    runs = [(first, first + length) for first, length in pairs]
    numbers = {n for first, last in runs for n in range(first, last + 1)}
    merged = merge_runs(runs)
    assert {n for first, last in merged for n in range(first, last + 1)} == numbers
    assert all(one[1] + 1 < other[0] for one, other in pairwise(merged))
