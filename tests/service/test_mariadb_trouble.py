"""A MariaDB that is wrong, slow or gone, and one that is started again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import askedpostgres as asked
import pytest
from askedmariadb import captured, log_end, log_files, log_of, source, until_rows
from services import until
from twodatabases import mariadb_server

from streaming.ask.mariadb.mysql_catalog import read_schemas
from streaming.ask.mariadb.mysql_check import check_rights, check_server, require
from streaming.ask.mariadb.mysql_session import PLAIN, MysqlSession
from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.ask.mariadb.mysql_url import asking, connect, parse_url
from streaming.capture.capturing import PASSING, Capture
from streaming.capture.initial_scan import gtid_at
from streaming.capture.position import PublishedPosition
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.errors import FrescoError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as running:
        running.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.odd (id INT PRIMARY KEY)",
            "INSERT INTO shop.odd VALUES (1), (2)",
        )
        yield running


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> DuckOperators:
    return asked.operators(tmp_path_factory.mktemp("staged"))


def store_config(url: str, **more: bool) -> Config:
    """A pipeline that captures the server."""
    source = {"database": "mariadb", "connection": url, "tables": {"odd": "shop.odd"}, **more}
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", "sources": {"shop": source}}
    return parse_config(raw, folder=Path("/"))


def test_what_is_wrong_with_a_source_has_a_code_and_no_password(
    server: Mariadb, ops: DuckOperators
) -> None:
    url = server.url("shop")
    with pytest.raises(FrescoError, match="SOURCE_TABLE_MISSING"):
        captured(server, "absent")
    wrong = url.replace(server.password, "secret-guess")
    with pytest.raises(FrescoError, match="SOURCE_CREDENTIALS") as refused:
        read_schemas(wrong, "shop", "shop", {"odd": "shop.odd"})
    assert "secret-guess" not in str(refused.value)
    with pytest.raises(FrescoError, match="SOURCE_UNREACHABLE"):
        read_schemas("mariadb://u:p@127.0.0.1:1/x", "shop", "shop", {"odd": "shop.odd"})
    behind = MysqlSession("shop", url, timeout=5, remembered=1 << 60)
    with pytest.raises(FrescoError, match="SOURCE_BEHIND"), behind.snapshot():
        pass
    behind.close()
    slow = MysqlSession("shop", url, timeout=0.2)
    with (
        pytest.raises(FrescoError, match="SOURCE_QUERY_TIMEOUT"),
        slow.snapshot() as (connection, _),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT SLEEP(1) FROM shop.odd")
    slow.close()


def test_a_log_without_whole_rows_is_refused_with_the_statements_that_fix_it(
    server: Mariadb,
) -> None:
    url = server.url("shop")
    require("shop", check_server(url, "shop", ["odd"], ours=True))
    server.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        with pytest.raises(FrescoError, match="SOURCE_ROW_IMAGE") as refused:
            require("shop", check_server(url, "shop", ["odd"]))
        assert "SET GLOBAL binlog_row_image = 'FULL';" in refused.value.todo
    finally:
        server.execute("SET GLOBAL binlog_row_image = 'FULL'")


def test_a_log_of_which_the_beginning_has_been_purged_is_told(server: Mariadb) -> None:
    at = log_end(server)
    server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    last = log_end(server).file

    def purged() -> bool:
        """A file that somebody reads is left: those who leave are noticed at the next heartbeat."""
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return log_files(server) == [last]

    until(purged, "the log to be purged")
    with pytest.raises(FrescoError) as refused:
        until_rows(log_of(server, at, "odd"), 1)
    error = refused.value
    assert error.code == "CAPTURE_LOG_PURGED" and error.where == "source shop"
    assert f"its log from {at.file} on" in error.what
    assert "new snapshot" in error.todo and "binlog_expire_logs_seconds" in error.todo


@pytest.mark.parametrize(
    ("setting", "change", "says"),
    [
        (
            "SET GLOBAL binlog_row_image = 'FULL'",
            "SET SESSION binlog_row_image = 'MINIMAL'; UPDATE shop.wide SET b = b + 1",
            "does not hold whole rows",
        ),
        (
            "SET GLOBAL binlog_row_metadata = 'MINIMAL'",
            "INSERT INTO shop.wide VALUES (2, 2, 2)",
            "does not name its columns",
        ),
    ],
)
def test_rows_that_are_not_whole_in_the_log_stop_the_reader_at_their_place(
    server: Mariadb, setting: str, change: str, says: str
) -> None:
    """The settings are looked at when a capture begins; a session or somebody may set others later."""
    server.execute(
        "CREATE OR REPLACE TABLE shop.wide (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO shop.wide VALUES (1, 1, 1)",
    )
    require("shop", check_server(server.url("shop"), "shop", ["wide"]))
    at = log_end(server)
    try:
        server.execute(setting, change)
        with pytest.raises(FrescoError) as refused:
            until_rows(log_of(server, at, "wide"), 1)
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    error = refused.value
    assert error.code == "CAPTURE_ROW_IMAGE" and says in error.what
    assert re.fullmatch(rf"source shop, log {at.file}:\d+", error.where), error.where
    assert "= 'FULL'" in error.todo and "new snapshot" in error.todo


def test_a_log_that_is_another_than_it_was_is_not_read_on(server: Mariadb) -> None:
    """Another server's, or the same one's after RESET MASTER: places mean something else there."""
    server.execute("INSERT INTO shop.odd VALUES (7)")
    url, at = server.url("shop"), log_end(server)
    with connect(parse_url(url, "shop"), "shop", conv=PLAIN) as connection:
        known = PublishedPosition(at, 1, gtid_at(connection, at) or "", 1)
    capture = Capture(store_config(url), "shop", print)
    assert known.gtid
    gone = replace(known, at=LogPlace("other-bin.000009", 4))
    for same in (known, replace(known, gtid=""), gone):
        capture._check_same_log(same)

    def refused(progress: PublishedPosition) -> FrescoError:
        with pytest.raises(FrescoError) as found:
            capture._check_same_log(progress)
        assert found.value.code == "CAPTURE_LOG_CHANGED" and found.value.where == "source shop"
        assert "in a new pipeline" in found.value.todo
        return found.value

    another = "of server 9, now"
    assert another in refused(replace(known, server=9)).what
    assert another in refused(replace(known, server=9, gtid="")).what, "as of a MySQL"
    assert another in refused(replace(gone, server=9)).what
    assert "stood 0-9-9 of server 1" in refused(replace(known, gtid="0-9-9")).what
    server.execute("RESET MASTER")
    with pytest.raises(FrescoError, match="CAPTURE_LOG_PURGED"):  # there is no such place any more
        until_rows(log_of(server, LogPlace(log_end(server).file, 1 << 20), "odd"), 1)
    server.execute("INSERT INTO shop.odd VALUES (8)")  # and now there is one, by chance
    error = refused(replace(known, at=log_end(server)))
    assert f"stood {known.gtid} of server 1, now 0-1-1 of server 1" in error.what


def test_a_capture_does_not_begin_behind_a_prepared_transaction(server: Mariadb) -> None:
    """Its rows would be in neither the snapshot nor the log that comes."""
    capture = Capture(store_config(server.url("shop")), "shop", print)
    capture._check_nothing_prepared()
    server.execute("XA START 'a'; INSERT INTO shop.odd VALUES (99); XA END 'a'; XA PREPARE 'a'")
    try:
        with pytest.raises(FrescoError, match=r"CAPTURE_XA.*XA RECOVER"):
            capture._begun(None, {}, None)  # type: ignore[arg-type]
    finally:
        server.execute("XA ROLLBACK 'a'")
    capture._check_nothing_prepared()


def test_a_user_who_lacks_a_right_is_told_which_and_not_waited_for(server: Mariadb) -> None:
    """A right does not come by itself, as a server does that is away (`PASSING`)."""
    server.execute(
        "CREATE OR REPLACE USER poor IDENTIFIED BY 'poor-secret'", "GRANT SELECT ON shop.* TO poor"
    )
    url = server.url("shop").replace(f"fresco:{server.password}@", "poor:poor-secret@")

    def refused(act: Callable[[], object], right: str) -> None:
        with pytest.raises(FrescoError) as found:
            act()
        error = found.value
        assert error.code == "CAPTURE_REFUSED" and right in error.what, error
        assert error.code not in PASSING and error.where == "source shop"
        assert "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR" in error.todo
        assert "poor-secret" not in str(error)

    from_now = Capture(store_config(url, snapshot=False), "shop", print)
    refused(lambda: from_now._begun(None, {}, None), "BINLOG MONITOR")  # type: ignore[arg-type]
    reading = log_of(server, log_end(server), "odd", url=url)
    refused(lambda: until_rows(reading, 1), "REPLICATION SLAVE")
    assert check_rights(server.url(), "shop").level == "ok"
    lacking = check_rights(url, "shop")
    assert (lacking.level, lacking.code) == ("warning", "SOURCE_LOG_RIGHTS")
    server.execute(lacking.todo.replace("the capture's user", "poor"))
    assert check_rights(url, "shop").level == "ok"
    for statement, code in (
        ("SELECT user FROM mysql.global_priv", r"SOURCE_QUERY_REFUSED.*denied.*needs SELECT"),
        ("KILL CONNECTION_ID()", "SOURCE_UNREACHABLE"),
    ):
        with (
            pytest.raises(FrescoError, match=code),
            asking(parse_url(url, "shop"), "shop") as cursor,
        ):
            cursor.execute(statement)


def test_a_killed_connection_is_opened_again_by_itself(server: Mariadb, ops: DuckOperators) -> None:
    asking = source(server, ops, "odd")
    tree = asked.view("SELECT id FROM shop.odd", captured(server, "odd"))
    before = asked.listed(asked.asked(asking, (tree, {})).rows[0])  # type: ignore[arg-type]
    connection = asking.session._connection
    assert connection is not None
    server.execute(f"KILL {connection.thread_id()}")
    assert asked.listed(asked.asked(asking, (tree, {})).rows[0]) == before  # type: ignore[arg-type]
    assert asking.session.connects == 2
    asking.close()


def test_the_server_keeps_its_data_and_its_log_over_a_restart(tmp_path: Path) -> None:
    with mariadb_server(tmp_path) as first:
        first.execute("CREATE DATABASE kept", "CREATE TABLE kept.t (a INT)")
        first.execute("INSERT INTO kept.t VALUES (5)")
    with mariadb_server(tmp_path) as again:
        url = parse_url(again.url("kept"), "kept")
        with connect(url, "kept", conv=PLAIN) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT a, @@global.binlog_row_metadata FROM t")
            assert cursor.fetchone() == ("5", "FULL")
            cursor.execute("SHOW BINARY LOGS")
            assert len(cursor.fetchall()) >= 2
