"""Reading by path alone: every view at one state, true names, coded errors (DESIGN 8, 11)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warehouse_rows import BALANCE, LINES, ODD, delta, next_epoch, write_catalog

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.warehouse.changelog import write_changes
from streaming.warehouse.epoch import Epoch, Runs
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesWriter

VIEWS = [BALANCE, LINES, ODD]
ODD_ROW = (1, "x", 0.5, None, b"", None, True, 1, Decimal("0.5"), None, None)


def commit(
    writer: GroupWriter, before: Epoch | None, added: Runs, changes: dict, **more: object
) -> Epoch:
    epoch = next_epoch(before, "g", added, **more)
    writer.commit(changes, epoch)
    return epoch


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Epoch 1 covers 0, epoch 2 covers 1..3; account 1 grows by one with each number."""
    write_catalog(tmp_path, "g", VIEWS)
    writer = GroupWriter(str(tmp_path), "bank", "g", VIEWS)
    first = {
        "balance": delta(BALANCE, [(0, 1, 1, Decimal(0)), (0, 1, 2, Decimal(9))]),
        "lines": delta(LINES, [(0, 2, "a", 1)]),
        ODD.name: delta(ODD, [(0, 1, *ODD_ROW)]),
    }
    before = commit(writer, None, ((0, 0),), first, committed_ms=1000)
    grown = [(n, sign, 1, Decimal(n + (sign - 1) // 2)) for n in (1, 2, 3) for sign in (-1, 1)]
    change = {
        "balance": delta(BALANCE, grown),
        "lines": delta(LINES, [(2, 1, "a", 1), (3, -3, "a", 1)]),
    }
    commit(writer, before, ((1, 3),), change, committed_ms=4000, suspended={ODD.name: 0})
    updates = UpdatesWriter(str(tmp_path), "bank", [Relation("n.e", (Column("id", "int"),))])
    map_rows = {
        "number": [1, 2, 3],
        "source": ["n"] * 3,
        "transaction": ["7", "8", "9"],
        "position": ["a", "b", "c"],
        "committed_ms": [2000, 3000, 4000],
    }
    updates.append(1, {}, pa.table(map_rows))
    return Warehouse(tmp_path)


def change_catalog(folder: Path, change: Callable[[dict], None]) -> None:
    path = folder / "_catalog" / "views.json"
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def balance_of_1(warehouse: Warehouse, **at: object) -> int:
    rows = warehouse.read("balance", **at).to_pylist()
    return int(next(row["total"] for row in rows if row["account"] == 1))


def test_a_view_is_read_with_its_true_names_and_duplicates(warehouse: Warehouse) -> None:
    lines = warehouse.read("lines", transaction=2)
    assert lines.to_pylist() == [{"text": "a", "number": 1}] * 3
    once = warehouse.read("lines", transaction=2, expanded=False)
    assert once.to_pylist() == [{"text": "a", "number": 1, "_n": 3}]
    odd = warehouse.read(ODD.name, suspended_as_of=True)
    assert odd.column_names == [column.name for column in ODD.schema]
    assert list(odd.to_pylist()[0].values()) == list(ODD_ROW)


def test_every_number_up_to_the_frontier_answers(warehouse: Warehouse) -> None:
    assert [balance_of_1(warehouse, transaction=n) for n in range(4)] == [0, 1, 2, 3]
    assert [warehouse.read("lines", transaction=n).num_rows for n in range(4)] == [2, 2, 3, 0]
    assert balance_of_1(warehouse) == balance_of_1(warehouse, epoch=2) == 3
    assert balance_of_1(warehouse, epoch=1) == 0


def test_a_moment_means_the_sources_commit_times(warehouse: Warehouse) -> None:
    found = {ms: balance_of_1(warehouse, time=ms) for ms in (0, 1000, 2500, 3000, 3999, 4000)}
    assert found == {0: 0, 1000: 0, 2500: 1, 3000: 2, 3999: 2, 4000: 3}
    assert balance_of_1(warehouse, time=datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)) == 2
    with pytest.raises(FrescoError, match=r"READ_AT.*zone"):
        warehouse.read("balance", time=datetime(2024, 1, 1))


def test_a_snapshot_holds_several_views_at_one_state(warehouse: Warehouse) -> None:
    found = warehouse.snapshot(["balance", "lines", ODD.name], transaction=2, suspended_as_of=True)
    assert found.number == 2
    assert found.tables["lines"].num_rows == 3
    assert found.suspended == {ODD.name: 0}


def test_a_read_says_which_epoch_it_is_of(warehouse: Warehouse) -> None:
    assert warehouse.read("balance").schema.metadata[b"fresco.epoch"] == b"2"


def test_changes_and_names_are_listed(warehouse: Warehouse) -> None:
    assert warehouse.views() == sorted(view.name for view in VIEWS)
    assert warehouse.groups() == ["g"]
    assert [one.frontier for one in warehouse.epochs("g")] == [0, 3]
    assert warehouse.changes("balance", after=1, upto=2).num_rows == 2
    assert warehouse.changes("balance").column_names[2:] == ["account", "total"]
    assert warehouse.spec("balance")["key"] == [0]


@pytest.mark.parametrize(
    ("code", "view", "at"),
    [
        ("READ_UNKNOWN_VIEW.*did you mean balance", "balanse", {}),
        ("READ_ABOVE_FRONTIER", "balance", {"transaction": 4}),
        ("READ_ABOVE_FRONTIER", "balance", {"transaction": -1}),
        ("READ_NO_EPOCH", "balance", {"epoch": 3}),
        ("READ_AT", "balance", {"epoch": 1, "transaction": 1}),
    ],
)
def test_what_cannot_be_read_has_a_code(
    warehouse: Warehouse, code: str, view: str, at: dict[str, int]
) -> None:
    with pytest.raises(FrescoError, match=code):
        warehouse.read(view, **at)


def test_a_relation_that_is_not_there_is_answered_with_a_near_one(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    with pytest.raises(FrescoError) as refused:
        warehouse.updates("n.f")
    assert refused.value.code == "READ_UNKNOWN_RELATION"
    assert "n.f" in refused.value.what and "relations" in refused.value.todo
    change_catalog(
        tmp_path,
        lambda told: told["relations"].append({"name": "n.e", "schema": [["id", "int"]]}),
    )
    with pytest.raises(FrescoError, match=r"READ_UNKNOWN_RELATION.*did you mean n\.e\?"):
        warehouse.updates("n.f")
    assert warehouse.updates("n.e").num_rows == 0


def test_views_of_two_groups_are_not_read_at_one_state(tmp_path: Path) -> None:
    write_catalog(tmp_path, "g", [BALANCE])
    change_catalog(
        tmp_path,
        lambda told: told["views"].append({**told["views"][0], "name": "apart", "group": "h"}),
    )
    with pytest.raises(FrescoError) as refused:
        Warehouse(tmp_path).snapshot(["balance", "apart"])
    assert refused.value.code == "READ_GROUPS" and "g, h" in refused.value.what
    assert refused.value.where == "balance, apart" and "one group at a time" in refused.value.todo


@pytest.mark.parametrize(
    "text",
    [
        '{"views": [{"name": "v"',
        "",
        "\udcff",
        "[]",
        "null",
        "{}",
        '{"views": 7}',
        '{"views": ["v"]}',
        '{"views": {"v": "w"}}',
        '{"views": [{"name": "v"}]}',
        '{"views": [{"name": "v", "group": "g", "schema": [{"name": "a"}]}]}',
        '{"views": [{"name": "v", "group": "g", "schema": ["a"]}]}',
        '{"views": [{"name": "v", "group": "g", "schema": [], "key": 1}]}',
        '{"views": [], "relations": [{"schema": []}]}',
    ],
)
def test_a_catalog_that_is_none_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "_catalog" / "views.json"
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FrescoError) as refused:
        Warehouse(tmp_path).views()
    assert refused.value.code == "READ_CATALOG"
    assert refused.value.where == str(path) and "restore" in refused.value.todo


def test_a_changelog_that_contradicts_the_state_is_not_read_over(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Somebody has written into the changelog: what it takes back is not there."""
    assert warehouse.read("lines", transaction=1).num_rows == 2
    foreign = GroupWriter(str(tmp_path), "bank", "g", VIEWS)
    rows = delta(LINES, [(1, -1, "never was", 1)])
    foreign.changes.commit([write_changes(foreign.changes.place, LINES, rows)])
    foreign.close()
    assert warehouse.read("lines", transaction=0).num_rows == 2
    with pytest.raises(FrescoError) as refused:
        warehouse.read("lines", transaction=1)
    assert refused.value.code == "READ_CHANGELOG" and refused.value.where == "lines"
    assert "number 1" in refused.value.what and "fresco verify" in refused.value.todo


def test_a_folder_without_catalog_or_epoch_says_so(tmp_path: Path) -> None:
    with pytest.raises(FrescoError, match="READ_NO_WAREHOUSE"):
        Warehouse(tmp_path).views()
    write_catalog(tmp_path, "g", VIEWS)
    with pytest.raises(FrescoError, match="READ_NO_EPOCH"):
        Warehouse(tmp_path).read("balance")
    GroupWriter(str(tmp_path), "bank", "g", VIEWS)
    with pytest.raises(FrescoError, match="READ_NO_EPOCH"):
        Warehouse(tmp_path).read("balance")


def test_inside_a_commit_that_is_not_complete_no_state_is_recorded(tmp_path: Path) -> None:
    write_catalog(tmp_path, "g", [LINES])
    writer = GroupWriter(str(tmp_path), "bank", "g", [LINES])
    rows = [(3, 1, "b", 1)]
    before = commit(writer, None, ((0, 0),), {"lines": delta(LINES, [(0, 1, "a", 1)])})
    commit(writer, before, ((1, 3),), {"lines": delta(LINES, rows)}, complete=False)
    warehouse = Warehouse(tmp_path)
    assert warehouse.read("lines", transaction=0).num_rows == 1
    assert warehouse.read("lines", transaction=3).num_rows == 2
    with pytest.raises(FrescoError, match="READ_NOT_RECORDED"):
        warehouse.read("lines", transaction=2)


@settings(max_examples=7, deadline=None, print_blob=True)
@given(st.permutations(range(1, 8)), st.data())
def test_rows_may_overtake_and_every_covered_number_still_answers(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], data: st.DataObject
) -> None:
    """Numbers commit in any order, several at once (MVC 4); AS OF goes by the frontier."""
    folder = tmp_path_factory.mktemp("w")
    write_catalog(folder, "g", [LINES])
    writer = GroupWriter(str(folder), "bank", "g", [LINES])
    rows = {n: [(n, 1, f"row {data.draw(st.integers(0, 3))}", 0)] for n in range(8)}
    before = commit(writer, None, ((0, 0),), {"lines": delta(LINES, rows[0])})
    while order:
        size = data.draw(st.integers(1, 3))
        batch, order = order[:size], order[size:]
        change = delta(LINES, [row for n in batch for row in rows[n]])
        before = commit(writer, before, tuple((n, n) for n in batch), {"lines": change})
        warehouse = Warehouse(folder)
        for number in range(before.frontier + 1):
            found = warehouse.read("lines", transaction=number).column("text").to_pylist()
            wanted = Counter(row[2] for n in range(number + 1) for row in rows[n])
            assert Counter(found) == wanted, (number, before.covered)
    writer.close()
