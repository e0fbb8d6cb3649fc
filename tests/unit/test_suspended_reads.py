"""A suspended view is never read as if it were current (DESIGN 8, 11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from typer.testing import CliRunner
from warehouse_rows import delta, next_epoch, write_catalog

from streaming.algebra.tree import Relation
from streaming.cli.commands import app
from streaming.cli.ddl import ddl
from streaming.errors import FrescoError
from streaming.pipeline.view_file import read_header
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import TableHandle, ViewTable, state_schema
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import WriterOptions
from streaming.warehouse.updates import UpdatesWriter

COLUMNS = (Column("id", "bigint"),)
CHEAP, LOWSTOCK = ViewTable("cheap", COLUMNS), ViewTable("lowstock", COLUMNS)
GONE = {"code": "VIEW_COLUMN_CHANGED", "what": "column price is gone", "where": "", "todo": ""}
SUSPENDED: dict[str, Any] = {"suspended": {"cheap": 2}, "causes": {"cheap": GONE}}
BOTH = "SELECT (SELECT max(id) FROM cheap) AS c, (SELECT max(id) FROM lowstock) AS l"


def ids(view: ViewTable, *numbers: int) -> dict[str, pa.Table]:
    """Row n comes with number n."""
    return {view.name: delta(view, [(n, 1, n) for n in numbers])}


class Shop:
    """Two views; row n of each comes with transaction n, `cheap` stands still after 2."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.warehouse = folder, Warehouse(folder)
        write_catalog(folder, "shop", [CHEAP, LOWSTOCK])
        self.writer = GroupWriter(str(folder), "shop", "shop", [CHEAP, LOWSTOCK])
        self.last: Epoch | None = None

    def commit(self, first: int, last: int, *changes: dict[str, pa.Table], **more: Any) -> None:
        drop = more.pop("drop", ())
        self.last = next_epoch(self.last, "shop", ((first, last),), **more)
        merged = {name: rows for one in changes for name, rows in one.items()}
        self.writer.commit(merged, self.last, drop=drop)

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, "--warehouse", str(self.folder)])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Epoch 1 covers 0..1; epoch 2 covers 2..4 and suspends `cheap` after 2; epoch 3 covers 5..6."""
    made = Shop(tmp_path)
    made.commit(0, 1, ids(CHEAP, 0, 1), ids(LOWSTOCK, 0, 1), committed_ms=1000)
    made.commit(2, 4, ids(CHEAP, 2), ids(LOWSTOCK, 2, 3, 4), committed_ms=4000, **SUSPENDED)
    made.commit(5, 6, ids(LOWSTOCK, 5, 6), committed_ms=6000, **SUSPENDED)
    updates = UpdatesWriter(str(tmp_path), "shop", [Relation("n.e", COLUMNS)])
    map_rows = {
        "number": [1, 2, 3, 4, 5, 6],
        "source": ["n"] * 6,
        "transaction": list("123456"),
        "position": list("123456"),
        "committed_ms": [1000, 2000, 3000, 4000, 5000, 6000],
    }
    updates.append(1, {}, pa.table(map_rows))
    return made


LATER: list[dict[str, int]] = [
    {},
    {"transaction": 3},
    {"transaction": 6},
    {"epoch": 2},
    {"epoch": 3},
    {"time": 3000},
]
FINE: list[dict[str, int]] = [{"transaction": 1}, {"transaction": 2}, {"epoch": 1}, {"time": 2999}]


def highest(rows: pa.Table) -> int:
    return max(rows["id"].to_pylist())


@pytest.mark.parametrize("at", LATER)
def test_no_reader_shows_a_suspended_view_above_its_last_good_number_unasked(
    shop: Shop, at: dict[str, int]
) -> None:
    reads = [
        lambda: shop.warehouse.read("cheap", **at),
        lambda: shop.warehouse.snapshot(["lowstock", "cheap"], **at),
        lambda: shop.warehouse.sql(BOTH, **at),
    ]
    for read in reads:
        with pytest.raises(FrescoError) as refused:
            read()
        assert refused.value.code == "READ_SUSPENDED" and "cheap" in refused.value.where
        assert "after transaction" in refused.value.what and "transaction 2" in refused.value.what
        assert "VIEW_COLUMN_CHANGED: column price is gone" in refused.value.what
        assert "--suspended-as-of" in refused.value.todo
    assert highest(shop.warehouse.read("lowstock", **at)) >= 3, "the others are read as ever"


@pytest.mark.parametrize("at", FINE)
def test_states_up_to_its_last_good_number_are_read_as_ever(shop: Shop, at: dict[str, int]) -> None:
    found = shop.warehouse.snapshot(["cheap", "lowstock"], **at)
    assert highest(found.tables["cheap"]) == highest(found.tables["lowstock"]) == found.number
    assert found.suspended == {}
    assert b"fresco.suspended_after" not in shop.warehouse.read("cheap", **at).schema.metadata


@pytest.mark.parametrize("at", LATER)
def test_whoever_asks_gets_its_last_good_state_and_is_told(shop: Shop, at: dict[str, int]) -> None:
    read = shop.warehouse.read("cheap", **at, suspended_as_of=True)
    assert sorted(read["id"].to_pylist()) == [0, 1, 2]
    assert read.schema.metadata[b"fresco.suspended_after"] == b"2"
    found = shop.warehouse.snapshot(["cheap", "lowstock"], **at, suspended_as_of=True)
    assert found.suspended == {"cheap": 2} and highest(found.tables["lowstock"]) >= 3
    answer = shop.warehouse.sql(BOTH, **at, suspended_as_of=True)
    assert answer["c"].to_pylist() == [2] and answer["l"].to_pylist()[0] >= 3
    assert json.loads(answer.schema.metadata[b"fresco.suspended_as_of"]) == {"cheap": 2}


def test_its_changes_end_at_its_last_good_number(shop: Shop) -> None:
    for upto in (None, 3, 6):
        with pytest.raises(FrescoError, match="READ_SUSPENDED"):
            shop.warehouse.changes("cheap", upto=upto)
        assert shop.warehouse.changes("cheap", upto=upto, suspended_as_of=True).num_rows == 3
    assert shop.warehouse.changes("cheap", upto=2).num_rows == 3


def test_rows_that_have_overtaken_count_as_later_ones(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(0, 1, ids(CHEAP, 0, 1), ids(LOWSTOCK, 0, 1))
    shop.commit(4, 4, ids(LOWSTOCK, 4), **SUSPENDED)
    assert shop.last is not None and shop.last.frontier == 1
    with pytest.raises(FrescoError, match="READ_SUSPENDED"):
        shop.warehouse.snapshot(["cheap", "lowstock"])
    assert shop.warehouse.read("cheap", transaction=1).num_rows == 2


def test_a_commit_that_has_not_passed_the_last_good_number_is_current(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(0, 1, ids(CHEAP, 0, 1), ids(LOWSTOCK, 0, 1), **SUSPENDED)
    assert shop.warehouse.read("cheap").num_rows == 2
    shop.commit(2, 2, ids(CHEAP, 2), ids(LOWSTOCK, 2), **SUSPENDED)
    assert shop.warehouse.snapshot(["cheap", "lowstock"]).suspended == {}


def test_oddity_30_a_view_that_never_had_a_state_has_none_to_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    never: dict[str, Any] = {"suspended": {"cheap": -1}, "causes": {"cheap": GONE}}
    shop.commit(0, 3, ids(LOWSTOCK, 0, 3), **never)
    for at in ({}, {"transaction": 0}, {"epoch": 1}):
        for asked in (False, True):
            with pytest.raises(FrescoError) as refused:
                shop.warehouse.read("cheap", **at, suspended_as_of=asked)
            assert refused.value.code == "READ_VIEW_NO_STATE" and "cheap" in refused.value.where
            assert "VIEW_COLUMN_CHANGED" in refused.value.what
    readings: list[Callable[[], object]] = [
        lambda: shop.warehouse.snapshot(["lowstock", "cheap"], suspended_as_of=True),
        lambda: shop.warehouse.sql(BOTH, suspended_as_of=True),
        lambda: shop.warehouse.changes("cheap"),
        lambda: shop.warehouse.changes("cheap", suspended_as_of=True),
    ]
    for reading in readings:
        with pytest.raises(FrescoError, match="READ_VIEW_NO_STATE"):
            reading()
    answered = shop.run("sql", "SELECT * FROM cheap", "--suspended-as-of", "--json")
    assert answered.exit_code == 1
    assert json.loads(answered.stdout)["error"]["code"] == "READ_VIEW_NO_STATE"


def test_fresco_sql_refuses_says_and_shows(shop: Shop) -> None:
    refused = shop.run("sql", BOTH, "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["code"] == "READ_SUSPENDED"
    refused = shop.run("sql", BOTH, "--transaction", "6")
    assert refused.exit_code == 1 and "READ_SUSPENDED" in refused.stderr and not refused.stdout
    asked = shop.run("sql", BOTH, "--suspended-as-of", "--json")
    assert json.loads(asked.stdout) == {"c": 2, "l": 6, "_suspended_as_of": {"cheap": 2}}
    assert "cheap is suspended" in asked.stderr and "transaction 2" in asked.stderr
    asked = shop.run("sql", BOTH, "--suspended-as-of")
    assert asked.exit_code == 0 and "cheap is suspended" in asked.stderr
    fine = shop.run("sql", BOTH, "--transaction", "2", "--suspended-as-of", "--json")
    assert json.loads(fine.stdout) == {"c": 2, "l": 2} and not fine.stderr


def test_json_rows_hold_every_column_or_are_refused(shop: Shop) -> None:
    """An object has one value to a name: the second of two columns would be lost."""
    answered = shop.run("sql", "SELECT 1 AS a, 2 AS a", "--json")
    assert answered.exit_code == 1 and "AS" in json.loads(answered.stdout)["error"]["todo"]
    clash = "SELECT id AS _suspended_as_of FROM cheap"
    assert shop.run("sql", clash, "--json", "--suspended-as-of").exit_code == 1


def test_a_view_that_came_back_inside_a_commit_is_read_inside_it(tmp_path: Path) -> None:
    """It rejoined at 5, in a commit of 5..7: its first list is there at 5, and not before."""
    shop = Shop(tmp_path)
    shop.commit(0, 1, ids(CHEAP, 0, 1), ids(LOWSTOCK, 0, 1), views={"cheap": 0, "lowstock": 0})
    more: dict[str, Any] = {**SUSPENDED, "suspended": {"cheap": 1}}
    shop.commit(2, 4, ids(LOWSTOCK, 2, 3, 4), views={"cheap": 0, "lowstock": 0}, **more)
    rejoined = delta(CHEAP, [*((5, 1, n) for n in range(6)), (6, 1, 6), (7, 1, 7)])
    views = {"cheap": 5, "lowstock": 0}
    shop.commit(5, 7, {"cheap": rejoined}, ids(LOWSTOCK, 5, 6, 7), views=views, drop=["cheap"])
    write_catalog(tmp_path, "shop", [ViewTable("cheap", COLUMNS, since=5), LOWSTOCK])
    found = {n: highest(shop.warehouse.read("cheap", transaction=n)) for n in (5, 6, 7)}
    assert found == {5: 5, 6: 6, 7: 7}
    assert highest(shop.warehouse.read("cheap")) == 7
    for at in ({"transaction": 4}, {"epoch": 2}, {"epoch": 1}):
        with pytest.raises(FrescoError, match=r"READ_VIEW_NOT_THERE.*transaction 5"):
            shop.warehouse.read("cheap", **at)


def test_a_dropped_view_is_told_by_name(shop: Shop) -> None:
    path = shop.folder / "_catalog" / "views.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "dropped": {"dear": 4}}))
    for at in ({}, {"transaction": 3}):
        with pytest.raises(FrescoError) as refused:
            shop.warehouse.sql("SELECT * FROM dear", **at)
        assert refused.value.code == "READ_VIEW_DROPPED" and "transaction 4" in refused.value.what
        assert "dear" in refused.value.where and "cheap, lowstock" in refused.value.todo


# Other engines ------------------------------------------------------------------------------------


def by_duckdb(folder: Path, question: str) -> list[tuple[Any, ...]]:
    name = f"extensions/v{duckdb.__version__}/delta.duckdb_extension"
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{files('duckdb_extension_delta').joinpath(name)}'")
        for statement in ddl(str(folder), "duckdb"):
            connection.execute(statement)
        return connection.execute(question).fetchall()


EVERYTHING = "SELECT * FROM fresco_views ORDER BY view"
FINE_ROWS = [(name, "maintained", None, None, None) for name in ("cheap", "lowstock")]
GONE_ROW = ("cheap", "suspended", 2, "VIEW_COLUMN_CHANGED", "column price is gone")


def test_another_engine_sees_in_the_same_commit_how_each_view_stands(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(0, 2, ids(CHEAP, 0, 1, 2), ids(LOWSTOCK, 0, 1, 2))
    assert by_duckdb(tmp_path, EVERYTHING) == FINE_ROWS
    shop.commit(3, 3, ids(LOWSTOCK, 3), **SUSPENDED)
    assert by_duckdb(tmp_path, EVERYTHING) == [GONE_ROW, FINE_ROWS[1]]
    assert by_duckdb(tmp_path, "SELECT max(id) FROM cheap") == [(2,)], "as of then"
    shop.commit(4, 4)
    assert by_duckdb(tmp_path, EVERYTHING) == FINE_ROWS
    shop.commit(5, 5, views={"lowstock": 0}, drop=["cheap"])
    assert by_duckdb(tmp_path, EVERYTHING) == [FINE_ROWS[1]]


def test_what_a_table_says_of_its_views_is_written_only_when_it_changes(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(0, 2, ids(CHEAP, 0, 1, 2), ids(LOWSTOCK, 0, 1, 2))
    (first,) = shop.writer.state.files("fresco_views")
    shop.commit(3, 3, ids(LOWSTOCK, 3))
    assert shop.writer.state.files("fresco_views") == [first]
    shop.writer = GroupWriter(str(tmp_path), "shop", "shop", [CHEAP, LOWSTOCK])
    shop.commit(4, 4, ids(LOWSTOCK, 4))
    assert shop.writer.state.files("fresco_views") == [first], "nor by another start"
    shop.commit(5, 5, **SUSPENDED)
    (second,) = shop.writer.state.files("fresco_views")
    assert second != first
    assert shop.writer.changes.files("fresco_views") == [], "the changelog is the views'"


def test_a_commit_that_met_another_one_says_it_all_the_same(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(0, 2, ids(CHEAP, 0, 1, 2), ids(LOWSTOCK, 0, 1, 2))
    other = GroupWriter(str(tmp_path), "shop", "shop", [CHEAP, LOWSTOCK])
    meets = iter([True])

    def another(table: str) -> None:
        if table == "state" and next(meets, False):
            other.add_view(ViewTable("later", COLUMNS))

    shop.writer.before_commit = another
    shop.commit(3, 3, ids(LOWSTOCK, 3), **SUSPENDED)
    assert not next(meets, False), "another commit came in between"
    assert by_duckdb(tmp_path, EVERYTHING) == [GONE_ROW, FINE_ROWS[1]]


def test_of_a_table_of_an_older_version_the_companion_says_that_it_does_not_know(
    tmp_path: Path,
) -> None:
    write_catalog(tmp_path, "shop", [CHEAP, LOWSTOCK])
    place = TableFolder.of(tmp_path).below("shop")
    TableHandle.create(
        place, state_schema([CHEAP, LOWSTOCK]), "view", ["_id"], WriterOptions().table
    )
    unknown = by_duckdb(tmp_path, EVERYTHING)
    assert [row[:2] for row in unknown] == [("cheap", "unknown"), ("lowstock", "unknown")]
    shop = Shop(tmp_path)
    shop.commit(0, 2, ids(CHEAP, 0, 1, 2), ids(LOWSTOCK, 0, 1, 2), **SUSPENDED)
    assert by_duckdb(tmp_path, EVERYTHING) == [GONE_ROW, FINE_ROWS[1]]


@pytest.mark.parametrize("name", ["fresco_views", "Fresco_Views"])
def test_no_view_takes_the_companions_name(name: str) -> None:
    with pytest.raises(FrescoError, match="VIEW_NAME"):
        read_header(f"CREATE MATERIALIZED VIEW {name} AS SELECT 1")


@pytest.mark.parametrize("engine", ["spark", "duckdb", "trino"])
def test_every_engine_is_given_the_companion(shop: Shop, engine: str) -> None:
    last = ddl(str(shop.folder), engine)[-1]
    sqlglot.parse_one(last, read=engine)
    assert "VIEW" in last and "fresco_views" in last and "last_good" in last
