"""Oddity 38: the query that reads a wide table's events is planned once and not at each step."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.captured.log_format import POSTGRES_LOG
from streaming.cdc.debezium import Decoder
from streaming.cdc.row_query import row_query
from streaming.engines.duck import kept_plans
from tests.sourcelog import SourceLog, Topics

TYPES = ("int4", "text", "numeric(10,2)", "timestamp", "bool", "float8")


def wide(columns: int, name: str = "wide") -> CapturedRelation:
    described = [(f"c{at}", TYPES[at % len(TYPES)]) for at in range(columns)]
    return captured(
        f"north.{name}", f"north.public.{name}", [("id", "int8"), *described], key=["id"]
    )


class Counting:
    """A DuckDB that notes what it plans: what is prepared, and each other query that reads texts."""

    def __init__(self) -> None:
        self._duck = duckdb.connect()
        self.planned: list[str] = []

    def execute(self, sql: str) -> Any:
        if sql.startswith("PREPARE") or ("FROM texts" in sql and not sql.startswith("INSERT")):
            self.planned.append(sql)
        return self._duck.execute(sql)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._duck, name)


class World:
    def __init__(self, *relations: CapturedRelation) -> None:
        self.engine: Any = Counting()
        self.decoder = Decoder(relations, engine=self.engine)
        self.log, self.topics = SourceLog("north"), Topics()

    def decode(self, *ids: int, table: str = "wide", spoil: bool = False) -> pa.Table:
        """The rows of a transaction that inserts these."""
        records = self.log.commit([(table, "c", None, {"id": id_, "c0": id_}) for id_ in ids])
        if spoil:
            records[1] = (records[1][0], "{not json")
        found = self.decoder.decode(self.topics.batch(records))
        assert len(found.bad) == spoil
        return found.rows[f"north.{table}"]


def numbers(rows: pa.Table) -> list[Any]:
    return rows["a1"].to_pylist()


def test_a_query_is_planned_once_whatever_else_the_engine_does() -> None:
    world = World(wide(60))
    assert numbers(world.decode(1, 2)) == [1, 2]
    first = len(world.engine.planned)
    for id_ in range(3, 8):
        world.engine.register("others", pa.table({"x": [id_]}))
        world.engine.execute("CREATE OR REPLACE TEMP TABLE another AS SELECT * FROM others")
        assert numbers(world.decode(id_)) == [id_]
    assert first > 0 and len(world.engine.planned) == first
    prepared = "SELECT count(*) FROM duckdb_prepared_statements()"
    assert world.engine.execute(prepared).fetchone() == (first,)


def test_a_text_that_is_no_json_leaves_nothing_behind() -> None:
    world = World(wide(5))
    assert numbers(world.decode(1, 2, 3, spoil=True)) == [2, 3]
    assert numbers(world.decode(4)) == [4]


def test_a_large_batch_is_handed_over_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(wide(5))
    copied = world.decode(*range(20))
    monkeypatch.setattr(kept_plans, "COPIED", 10)
    assert (
        world.decode(*range(20))
        .drop_columns(["offset", "transaction", "position"])
        .equals(copied.drop_columns(["offset", "transaction", "position"]))
    )
    assert any(one.startswith("SELECT") for one in world.engine.planned)


def test_the_plans_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [f"t{at}" for at in range(5)]
    world = World(*(wide(5, name) for name in tables))
    world.decode(1, table="t0")
    monkeypatch.setattr(kept_plans, "KEPT", 3 * len(world.engine.planned[-1]))
    for _ in range(2):
        for name in tables:
            assert numbers(world.decode(1, table=name)) == [1]
    prepared = "SELECT count(*) FROM duckdb_prepared_statements()"
    assert world.engine.execute(prepared).fetchone()[0] <= 3


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_query_of_the_widest_table_there_is_can_be_parsed(wrapped: bool) -> None:
    """PostgreSQL's 1,600 columns; DuckDB takes expressions of 1,000 levels."""
    sql = row_query(wide(1599), POSTGRES_LOG, wrapped, False, False)
    assert len(duckdb.extract_statements(sql)) == 1


@pytest.mark.deep
def test_rows_of_the_widest_table_there_is() -> None:
    world = World(wide(1599))
    for id_ in (1, 2):
        assert numbers(world.decode(id_)) == [id_]
