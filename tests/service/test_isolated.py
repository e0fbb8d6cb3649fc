"""Sessions over delta tables in two real databases: killed at each step, triggers dropped: strong."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import askedpostgres as asked
import isolatedpair as world
import psycopg
import pytest
from isolatedpair import Pair, session, stage_of
from psycopg.conninfo import make_conninfo
from services import until

from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.demo.anomalies import lock_order
from streaming.demo.embedded.postgres_server import Postgres
from streaming.errors import FrescoError
from streaming.isolated import delta_install
from streaming.isolated.delta_install import install, remove, role_of
from streaming.isolated.delta_tables import delta_table_of
from streaming.isolated.isolated_stage import IsolatedStage
from streaming.isolated.session_loop import SessionLoop
from streaming.metrics import Metrics

MOMENTS = [
    "before evaluate",
    "after evaluate",
    "before install",
    "after install",
    "commit changes",
    "commit state",
    "before deletion",
    "after deletion",
    "before idle",
]
SEED = 905


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("isolated")) as running:
        yield running


@pytest.fixture
def pair(server: Postgres, tmp_path: Path) -> Pair:
    return Pair.made(server, tmp_path / "warehouse")


def settled(pair: Pair) -> None:
    """Sessions until everything that has been written is visible, and judged."""
    stage, stepper = stage_of(pair)
    for _ in range(2):  # the first may be one that had begun before
        session(stage, stepper)
    epochs = pair.judge()
    newest = {name: max(states) for name, states in pair.states.items()}
    shown = world.shown(pair, "ticks")
    assert shown == {(newest["north"], newest["south"]): 1}, (shown, newest, SEED)
    assert not epochs[-1].suspended
    for name, dsn in pair.dsns.items():
        with psycopg.connect(dsn) as connection:
            for one in stage.group.connections[name][1]:
                left = f'SELECT count(*) FROM fresco_shop."{one.counted_as}"'
                assert connection.execute(left.encode()).fetchone() == (0,), one.counted_as
    stage.close()


def test_killed_at_every_step_each_state_is_one_of_the_databases(pair: Pair) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["isolatedpair", "askedpostgres", "streaming.ask.postgres.pg_source"]
    )
    bare = Pair(pair.dsns, pair.folder)  # the writers' records change while it is handed over
    with pair.at_work(SEED):
        for at, moment in enumerate(MOMENTS):
            child = context.Process(target=world.killed_at, args=(bare, moment, 1 + at % 2))
            child.start()
            child.join(60)
            assert child.exitcode == -signal.SIGKILL, (moment, child.exitcode, SEED)
    settled(pair)
    assert len(pair.judge()) >= len(MOMENTS) // 2


def work(pair: Pair, name: str, times: int) -> None:
    """So many transactions at one database."""
    rng = random.Random(f"{SEED} {max(pair.states[name])}")
    with psycopg.connect(pair.dsns[name]) as connection:
        for _ in range(times):
            pair.transaction(name, connection, rng)


def test_triggers_dropped_switched_off_and_put_back(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """The views over that relation stop with the reason, the others go on, all comes back by itself."""
    stage, stepper = stage_of(pair)
    work(pair, "south", 9)
    session(stage, stepper)
    asked.execute(pair.dsns["south"], "DROP TRIGGER fresco_shop_rows ON c")
    work(pair, "south", 3)
    work(pair, "north", 5)
    session(stage, stepper)
    assert stage.absent.suspended.keys() == {"costs", "names"}
    error = stage.absent.suspended["names"]["error"]
    assert (error["code"], error["where"]) == ("SOURCE_TRIGGER_MISSING", "south.c")
    assert pair.judge()[-1].suspended == {"costs": 0, "names": 0}
    assert world.shown(pair, "ticks") == {(5, 12): 1}, "the others go on"
    assert pair.install("south") == ["mended", "present"]
    session(stage, stepper)
    assert pair.judge()[-1].suspended == {} and stage.absent.suspended == {}
    stage.close()
    for away in ("ALTER TABLE c DISABLE TRIGGER USER", "DROP TRIGGER fresco_shop_truncate ON c"):
        asked.execute(pair.dsns["south"], away)
        work(pair, "south", 4)
        assert pair.install("south") == ["mended", "present"]
        caplog.clear()
        settled(pair)  # nobody looked meanwhile; a new start finds out all the same
        for view in ("costs", "names"):
            assert f"view {view} is computed anew: SOURCE_TRIGGER_GAP: the triggers of south.c" in (
                caplog.text
            )


def test_rows_that_the_table_cannot_take_suspend_their_view_alone_until_it_is_computed_anew(
    pair: Pair,
) -> None:
    """A person empties a delta table: a row that had come there goes, and never came."""
    stage, stepper = stage_of(pair)
    work(pair, "north", 3)
    work(pair, "south", 3)
    session(stage, stepper)
    assert said(stage) == (0, {})
    customer = next(iter(pair.states["south"][3]))[0]
    (delta,) = (one for one in stage.group.connections["north"][1] if one.counted_as == "public.o")
    asked.execute(
        pair.dsns["north"],
        f"INSERT INTO o VALUES (50, {customer}, 1)",
        f'DELETE FROM fresco_shop."{delta.counted_as}"',
    )
    asked.execute(pair.dsns["north"], "DELETE FROM o WHERE id = 50")
    work(pair, "north", 2)
    session(stage, stepper)
    assert said(stage) == (1, {"costs": 0, "pairs": 0})
    error = stage.absent.suspended["costs"]["error"]
    assert error["code"] == "WAREHOUSE_NEGATIVE" and "id=50" in error["what"]
    assert world.shown(pair, "ticks") == {(5, 3): 1}, "the others go on"
    stage.close()
    settled(pair)  # the next start tries at once


def said(stage: IsolatedStage) -> tuple[int, dict[str, int]]:
    """The newest commit's number and suspended views."""
    last = stage.writer.last()
    assert last is not None
    return last.frontier, dict(last.suspended)


def test_a_column_that_goes_away_stops_the_views_that_read_it(pair: Pair) -> None:
    """While the service runs, and while it was away; the others go on, and it comes back by itself."""
    before, (stage, stepper) = world.trees(pair), stage_of(pair)
    work(pair, "south", 4)
    work(pair, "north", 4)
    session(stage, stepper)
    asked.execute(pair.dsns["north"], "ALTER TABLE o RENAME COLUMN amount TO amounts")
    work(pair, "south", 2)
    session(stage, stepper)
    assert stage.absent.suspended["costs"]["error"]["code"] == "VIEW_COLUMN_CHANGED"
    assert said(stage) == (1, {"costs": 0})
    stage.close()
    error = FrescoError("VIEW_COLUMN_CHANGED", "the view no longer fits its relations: no amount")
    stage, stepper = stage_of(pair, before, {"costs": error})
    work(pair, "south", 1)
    session(stage, stepper)
    assert stage.absent.suspended["costs"]["error"] == error.as_dict()
    assert said(stage) == (2, {"costs": 0}), "the others go on"
    stage.close()
    asked.execute(pair.dsns["north"], "ALTER TABLE o RENAME COLUMN amounts TO amount")
    settled(pair)


def test_what_triggers_are_made_to_see(pair: Pair) -> None:
    """Replicated changes too; and the application does not feel that its table is altered."""
    settled(pair)
    with psycopg.connect(pair.dsns["south"]) as connection:
        connection.execute("SET session_replication_role = replica")
        pair.transaction("south", connection, random.Random(SEED))
    asked.execute(
        pair.dsns["south"], "ALTER TABLE c ADD COLUMN more text", "ALTER TABLE c DROP COLUMN more"
    )
    work(pair, "south", 3)
    settled(pair)


def test_the_service_needs_no_more_than_it_is_granted(pair: Pair, server: Postgres) -> None:
    asked.execute(
        server.dsn("postgres"),
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'secret'",
    )
    owner = dict(pair.dsns)
    pair.dsns = {
        name: make_conninfo(dsn, user="reader", password="secret") for name, dsn in owner.items()
    }
    with pytest.raises(FrescoError, match="SOURCE_INSTALL_REFUSED"):
        pair.install("north")
    for name, dsn in owner.items():
        tables = [delta_table_of(one, "shop") for one in pair.captured(name)]
        assert {one.what for one in install(dsn, name, tables, "reader")} == {"mended"}
    stage, stepper = stage_of(pair)
    session(stage, stepper)
    pair.dsns, granted = owner, pair.dsns
    work(pair, "north", 4)
    session(stage, stepper)
    assert world.shown(pair, "ticks") == {(4, 0): 1}
    pair.judge()
    stage.close()
    for name, dsn in owner.items():
        assert granted[name] != dsn
        tables = [delta_table_of(one, "shop") for one in pair.captured(name)]
        assert {one.what for one in remove(dsn, name, tables)} == {"removed"}
        assert {one.what for one in remove(dsn, name, tables)} == {"absent"}
        asked.execute(dsn, "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM reader")


def test_tables_whose_rows_come_without_triggers_are_refused(pair: Pair) -> None:
    dsn = pair.dsns["north"]
    asked.execute(
        dsn,
        "DROP TABLE IF EXISTS parted",
        "CREATE TABLE parted (id bigint) PARTITION BY HASH (id)",
    )
    (found,) = read_schemas(dsn, "north", "north", {"parted": "public.parted"})
    with pytest.raises(FrescoError, match="SOURCE_TABLE_UNFIT"):
        install(dsn, "north", [delta_table_of(found, "shop")], role_of(dsn, "north"))


def test_a_table_whose_writers_do_not_end_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation waits for them and holds up later ones: so it does for moments only."""
    dsn = pair.dsns["north"]
    asked.execute(dsn, "DROP TRIGGER fresco_shop_rows ON o")
    monkeypatch.setattr(delta_install, "LOCK_MS", 100)
    monkeypatch.setattr(delta_install, "ATTEMPTS", 2)
    with psycopg.connect(dsn) as writer:
        writer.execute("INSERT INTO o VALUES (-1, 0, 0)")
        with pytest.raises(FrescoError) as refused:
            pair.install("north")
        asked.execute(dsn, "INSERT INTO o VALUES (-2, 0, 0)")
        writer.rollback()
    error = refused.value
    assert error.code == "SOURCE_TABLE_LOCKED" and error.where == "source north"
    assert "north.o" in error.what and "0.1 s, 2 times" in error.what
    assert "idle in transaction" in error.todo
    assert pair.install("north") == ["mended", "present"]


def test_a_server_that_is_too_old_is_refused_with_the_mode_that_can(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_install, "OLDEST", 990_000)
    with pytest.raises(FrescoError) as refused:
        pair.install("north")
    assert refused.value.code == "SOURCE_VERSION" and refused.value.where == "source north"
    assert "need PostgreSQL 99 or newer" in refused.value.what
    assert "USING replica" in refused.value.todo


def test_a_notification_starts_a_session_and_a_lost_channel_costs_time_only(pair: Pair) -> None:
    stage, stepper = stage_of(pair)
    session(stage, stepper)
    failed: list[FrescoError] = []
    loop = SessionLoop(
        stage,
        stepper,
        [(dsn, "fresco_shop") for dsn in pair.dsns.values()],
        300.0,
        failed.append,
        Metrics(),
        pair.folder,
    )
    try:
        until(lambda: all(one.listening.is_set() for one in loop._listeners), "listeners")
        work(pair, "north", 1)
        until(lambda: world.shown(pair, "ticks") == {(1, 0): 1}, "what was notified", 60)
        for dsn in pair.dsns.values():
            asked.execute(
                dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()",
            )
        until(lambda: not any(one.listening.is_set() for one in loop._listeners), "the loss", 60)
        work(pair, "north", 1)  # nobody hears it, but a channel that opens again looks by itself
        until(lambda: world.shown(pair, "ticks") == {(2, 0): 1}, "what nobody heard", 60)
    finally:
        loop.stop()
    assert not failed
    pair.judge()


def test_a_database_that_lets_a_reader_pass_a_lock_shows_no_figure_1(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule cannot be played then; the demo says so and does not wait for ever."""
    monkeypatch.setattr(lock_order, "SECONDS", 0.5)
    monkeypatch.setattr(lock_order, "_TR2", "SELECT t, x FROM r ORDER BY t")
    with pytest.raises(FrescoError) as late:
        lock_order.figure_1(server, SEED)
    assert late.value.code == "DEMO_LOCK" and late.value.where == "figure-1"
    assert "does not wait" in late.value.what and "lock rows" in late.value.todo
