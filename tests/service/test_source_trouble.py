"""A source that is down, slow, restarted, restored from a backup, or that refuses us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import askedpostgres as asked
import psycopg
import pytest
from services import until

from streaming.algebra.source_queries import SourceQuery
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.demo.embedded.postgres_server import Postgres
from streaming.errors import FrescoError

STATE = SourceQuery("v", 0, 1, "north", ())  # type: ignore[var-annotated]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("trouble")) as running:
        with psycopg.connect(running.dsn("north"), autocommit=True) as connection:
            connection.execute("CREATE TABLE r (a int)")
        yield running


def source(
    server: Postgres, tmp_path: Path, dsn: str | None = None, **how: float
) -> PostgresSource:
    found = asked.captured(server.dsn("north"), "r")
    ops = asked.operators(tmp_path)
    return PostgresSource("north", dsn or server.dsn("north"), found, ops, **how)  # type: ignore[arg-type]


def refused(asking: PostgresSource, query: SourceQuery = STATE) -> FrescoError:  # type: ignore[type-arg]
    with pytest.raises(FrescoError) as found:
        asking.answer(query)
    return found.value


def test_a_connection_that_was_cut_is_made_anew_once(server: Postgres, tmp_path: Path) -> None:
    asking = source(server, tmp_path)
    asking.answer(STATE)
    with psycopg.connect(server.dsn("north"), autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'fresco'"
        )
    asking.answer(STATE)
    assert asking.session.connects == 2
    asking.close()


def test_a_wrong_password_is_said_without_a_password(server: Postgres, tmp_path: Path) -> None:
    dsn = server.dsn("north").replace(server.password, "s3cret-word")
    error = refused(source(server, tmp_path, dsn))
    assert error.code == "SOURCE_CREDENTIALS"
    assert "s3cret-word" not in str(error) and server.password not in str(error)
    for broken, code in (
        ("postgresql://u:s3cret-word@127.0.0.1:port/x", "SOURCE_UNREACHABLE"),
        ("password=s3cret-word s3cret-word", "SOURCE_CONNECTION"),
        ("host=127.0.0.1 port=1 password=s3cret-word", "SOURCE_UNREACHABLE"),
    ):
        error = refused(source(server, tmp_path, broken))
        assert error.code == code and "s3cret-word" not in str(error)


def test_a_query_that_takes_too_long_is_given_up_and_can_be_asked_again(
    server: Postgres, tmp_path: Path
) -> None:
    asking = source(server, tmp_path, timeout=0.2)
    tree = asked.view("SELECT a FROM north.r", asked.captured(server.dsn("north"), "r"))
    with psycopg.connect(server.dsn("north")) as blocking:
        blocking.execute("LOCK TABLE r IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(FrescoError, match=r"SOURCE_QUERY_TIMEOUT.*longer than 0\.2 s"):
            asked.asked(asking, (tree, {}))
        blocking.rollback()
    assert asked.listed(asked.asked(asking, (tree, {})).rows[0]) == []
    assert asking.session.connects == 1, "the connection is still good"
    asking.close()


def test_a_table_that_went_away_is_named(server: Postgres, tmp_path: Path) -> None:
    with psycopg.connect(server.dsn("north"), autocommit=True) as connection:
        connection.execute("CREATE TABLE gone (a int)")
        found = asked.captured(server.dsn("north"), "gone")
        connection.execute("DROP TABLE gone")
    asking = PostgresSource("north", server.dsn("north"), found, asked.operators(tmp_path))
    tree = asked.view("SELECT a FROM north.gone", found)
    with pytest.raises(FrescoError, match=r'SOURCE_QUERY_REFUSED.*relation "public\.gone" '):
        asked.asked(asking, (tree, {}))
    asking.answer(STATE)
    asking.close()


def test_a_source_behind_what_it_had_written_is_refused(server: Postgres, tmp_path: Path) -> None:
    asking = source(server, tmp_path)
    asking.answer(STATE)
    later = source(server, tmp_path, remembered=asking.durable + (1 << 30))
    error = refused(later)
    assert error.code == "SOURCE_BEHIND" and "failed over" in str(error)
    source(server, tmp_path, remembered=asking.durable).answer(STATE)


def test_a_server_that_stops_is_unreachable_and_answers_when_it_is_back(
    server: Postgres, tmp_path: Path
) -> None:
    asking = source(server, tmp_path)
    before = asking.answer(STATE).state
    threads = threading.active_count()
    server.stop()
    assert refused(asking).code == "SOURCE_UNREACHABLE"
    assert refused(asking).code == "SOURCE_UNREACHABLE"
    server.start()
    assert asking.answer(STATE).state.upto >= before.upto
    assert threading.active_count() <= threads + 2
    asking.close()


def test_a_standby_is_refused_and_answers_once_it_is_the_primary(
    server: Postgres, tmp_path: Path
) -> None:
    """Its snapshots do not say which transactions they show: nothing could be compensated."""
    asking = source(server, tmp_path)
    asking.answer(STATE)
    server.stop()
    (server.folder / "postgres" / "data" / "standby.signal").touch()
    server.start()
    error = refused(asking)
    assert error.code == "SOURCE_STANDBY" and error.where == "source north"
    assert "target_session_attrs=primary" in error.todo
    with pytest.raises(FrescoError, match="SOURCE_STANDBY"):
        asking.pin()
    dsn = f"{server.dsn('north')}?target_session_attrs=primary"
    error = refused(source(server, tmp_path, dsn))
    assert error.code == "SOURCE_UNREACHABLE" and server.password not in str(error)
    asked.execute(server.dsn("north"), "SELECT pg_promote()")
    asking.answer(STATE)
    source(server, tmp_path, dsn).answer(STATE)
    asking.close()


def test_a_relation_that_is_not_captured_is_not_asked_for(server: Postgres, tmp_path: Path) -> None:
    """As when a view joins over a table that the running service's configuration lacks."""
    asked.execute(server.dsn("north"), "CREATE TABLE later (a int)")
    tree = asked.view("SELECT a FROM north.later", asked.captured(server.dsn("north"), "later"))
    asking = source(server, tmp_path)
    with pytest.raises(FrescoError) as found:
        asked.asked(asking, (tree, {}))
    assert found.value.code == "SOURCE_TABLE_UNKNOWN" and found.value.where == "source north"
    assert "north.later" in found.value.what and "sources.north.tables" in found.value.todo
    asking.answer(STATE)
    asking.close()


def test_a_truncate_waits_for_the_end_of_a_pinned_state(server: Postgres, tmp_path: Path) -> None:
    """A truncated table is empty to snapshots that were taken before, too."""
    found = asked.captured(server.dsn("north"), "r")
    asked.execute(server.dsn("north"), "INSERT INTO r VALUES (1), (2)")
    asking = source(server, tmp_path)
    question = (asked.view("SELECT a FROM north.r", found), {})
    asking.pin()
    truncating = threading.Thread(
        target=asked.execute, args=(server.dsn("north"), "TRUNCATE r"), daemon=True
    )
    truncating.start()
    until(lambda: waits_for_a_lock(server.dsn("north")), "the truncate to wait")
    assert asked.listed(asked.asked(asking, question).rows[0]) == [(1,), (2,)]
    asking.release()
    truncating.join(30)
    assert not truncating.is_alive()
    assert asked.listed(asked.asked(asking, question).rows[0]) == []
    asking.close()


def waits_for_a_lock(dsn: str) -> bool:
    """Whether a session of the database waits for another's lock."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        ).fetchone()
    return found is not None and found[0] > 0
