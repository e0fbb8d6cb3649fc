"""Answers of a real PostgreSQL: at a state that is known exactly, from few rows read."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import askedpostgres as asked
import psycopg
import pytest
from askedpostgres import execute, known, source
from services import until
from writers import at_work

from streaming.algebra.source_queries import SourceQuery
from streaming.algebra.tree import Join, Scan
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.ask.postgres.pg_state import PgState, PgStateCodec
from streaming.demo.embedded.postgres_server import Postgres
from streaming.demo.pace import Pace
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.scalars.expression import Column

BIG = 100_000
ANSWERS, TRANSACTIONS, AHEAD = 60, 250, 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("asked")) as running:
        yield running


@pytest.fixture(scope="module")
def dsn(server: Postgres) -> str:
    return server.dsn("north")


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> DuckOperators:
    return asked.operators(tmp_path_factory.mktemp("staged"))


# The state ----------------------------------------------------------------------------------------


def test_an_answer_holds_exactly_the_transactions_its_state_saw(
    dsn: str, ops: DuckOperators
) -> None:
    """Six writers commit, some slowly, some roll back; every answer is compared with what it says."""
    execute(dsn, "CREATE TABLE led (xid text, n int)", "CREATE TABLE other (xid text, n int)")
    done, lock = set[str](), threading.Lock()

    def write(seed: int, pace: Pace) -> None:
        rng = random.Random(seed)
        with psycopg.connect(dsn) as connection:
            while pace.may_write():
                (xid,) = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone()  # type: ignore[misc]
                for n in range(rng.randint(1, 3)):
                    connection.execute("INSERT INTO led VALUES (%s, %s)", (xid, n))
                    connection.execute("INSERT INTO other VALUES (%s, %s)", (xid, n))
                if rng.random() < 0.3:
                    time.sleep(rng.random() * 0.02)
                if rng.random() < 0.2:
                    connection.rollback()
                    continue
                connection.commit()
                with lock:
                    done.add(xid)
                pace.wrote()

    asking, found = source(dsn, ops, "led", "other"), asked.captured(dsn, "led", "other")
    trees = [asked.view(f"SELECT xid, n FROM north.{name}", found) for name in ("led", "other")]
    answers, pace = [], Pace(AHEAD)
    with at_work(pace, [partial(write, seed) for seed in range(6)]):
        while len(answers) < ANSWERS or len(done) < TRANSACTIONS:
            pace.read(pace.written)
            answers.append(asked.asked(asking, *((tree, {}) for tree in trees)))
    before = 0
    for answer in answers:
        led, other = (asked.listed(rows) for rows in answer.rows)
        assert led == other, "both parts are of one snapshot"
        assert {xid for xid, _ in led} == {xid for xid in done if answer.state.saw(xid, 0)}
        codec = PgStateCodec()
        assert codec.back(codec.note(answer.state)) == answer.state
        assert answer.state.upto >= before
        before = answer.state.upto
    assert any(answer.state.xip for answer in answers)  # type: ignore[attr-defined]
    asking.close()


def test_the_log_s_short_ids_are_widened_by_the_epoch_that_is_near() -> None:
    state = PgState(0, xmin=(5 << 32) + 3, xmax=(5 << 32) + 9, xip=frozenset({(5 << 32) + 4}))
    assert state.saw("2", 0) and state.saw("3", 0) is True
    assert not state.saw("4", 0), "it was running"
    assert state.saw("5", 0) and not state.saw("9", 0)
    assert state.saw(str(2**32 - 1), 0), "the last of the epoch before"
    assert not PgState(0, 2**32 - 5, 2**32 - 5).saw("1", 0), "the first of the epoch after"


def test_a_statement_without_parts_asks_for_the_state_alone(dsn: str, ops: DuckOperators) -> None:
    asking = source(dsn, ops, "led")
    answer = asking.answer(SourceQuery("v", 0, 3, "north", ()))
    assert (answer.rows, answer.id, answer.step) == ((), 0, 3)
    before = answer.state.upto
    asking.mark()
    later = asking.answer(SourceQuery("v", 0, 4, "north", ())).state
    assert later.upto > before, "a mark moves the log"
    asking.close()


# How much is read ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(dsn: str) -> list[Any]:
    execute(
        dsn,
        "CREATE TABLE big (id bigint PRIMARY KEY, g int, x numeric(18,2), t text)",
        f"INSERT INTO big SELECT i, i % 1000, i / 3.0, 'text ' || i FROM generate_series(1, {BIG}) i",
        "CREATE TABLE small (g int PRIMARY KEY, name text)",
        "INSERT INTO small SELECT i, 'name ' || i FROM generate_series(0, 999) i",
        "ANALYZE big", "ANALYZE small",
    )  # fmt: skip
    return asked.captured(dsn, "big", "small")


def with_known(found: list[Any]) -> Join:
    scan = Scan("north.big", found[0].relation.schema)
    schema = (Column("id", "bigint"), Column("t", "string"))
    return Join(Scan("@left", schema), scan, ((0, 0), (1, 3)), None)


def keys(count: int, ops: DuckOperators) -> Signed:
    rows = [(i * 7 % BIG + 1, f"text {i * 7 % BIG + 1}") for i in range(count)]
    return known(["bigint", "string"], rows, ops)


def test_keys_in_arrays_and_in_a_temporary_table_find_the_same(
    big: list[Any], dsn: str, ops: DuckOperators
) -> None:
    rows = keys(3000, ops)
    arrays = PostgresSource("north", dsn, big, ops)
    table = PostgresSource("north", dsn, big, ops, array_limit=100)
    one, other = (
        asked.asked(asking, (with_known(big), {"@left": rows})) for asking in (arrays, table)
    )
    assert len(asked.listed(one.rows[0])) == 3000
    assert asked.listed(one.rows[0]) == asked.listed(other.rows[0])
    assert set(one.rows[0].table.column("_number").to_pylist()) == {7}, "the known rows' number"
    arrays.close()
    table.close()


def scans(dsn: str, table: str) -> tuple[int, int, int]:
    """(sequential scans, rows they read, index scans) of a table, as far as they are published."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(  # type: ignore[return-value]
            "SELECT seq_scan, seq_tup_read, idx_scan FROM pg_stat_user_tables WHERE relname = %s",
            (table,),
        ).fetchone()


def test_few_keys_use_the_index_also_two_relations_away(
    big: list[Any], dsn: str, ops: DuckOperators
) -> None:
    """Nothing of the 10^5 rows but what the keys ask for is read; the neighbour is reduced too."""
    asking = PostgresSource("north", dsn, big, ops)
    both = Join(with_known(big), Scan("north.small", big[1].relation.schema), ((3, 0),), None)
    before = scans(dsn, "big")
    (rows,) = asked.asked(asking, (both, {"@left": keys(10, ops)})).rows
    assert len(asked.listed(rows)) == 10
    asking.close()  # its counts are published when it goes
    until(lambda: scans(dsn, "big")[2] > before[2], "the index scans of big", 20)
    assert scans(dsn, "big")[:2] == before[:2]


def test_no_known_rows_no_statement(big: list[Any], dsn: str, ops: DuckOperators) -> None:
    asking = PostgresSource("north", dsn, big, ops)
    (rows,) = asked.asked(asking, (with_known(big), {"@left": keys(0, ops)})).rows
    assert asked.listed(rows) == [] and asking.statements == 0
    asking.close()


def test_a_pinned_state_stays_while_the_source_goes_on(dsn: str, ops: DuckOperators) -> None:
    execute(dsn, "CREATE TABLE pins (a int)", "INSERT INTO pins VALUES (1)")
    asking, found = source(dsn, ops, "pins"), asked.captured(dsn, "pins")
    tree = asked.view("SELECT a FROM north.pins", found)
    pinned = asking.pin()
    for value in (2, 3):
        execute(dsn, f"INSERT INTO pins VALUES ({value})")
        answer = asked.asked(asking, (tree, {}))
        assert (asked.listed(answer.rows[0]), answer.state) == ([(1,)], pinned)
        asking.mark()
    asking.release()
    answer = asked.asked(asking, (tree, {}))
    assert asked.listed(answer.rows[0]) == [(1,), (2,), (3,)] and answer.state.upto > pinned.upto
    asking.close()
