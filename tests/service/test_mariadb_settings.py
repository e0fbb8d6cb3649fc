"""Every setting of a real MariaDB that `mysqlcheck` lists, made wrong and mended by what is advised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from askedmariadb import log_end, log_of, until_rows
from mysqlservers import database_server
from twodatabases import mariadb_server

from streaming.ask.mariadb.mysql_check import (
    SETTINGS,
    Cascade,
    CheckedTable,
    Server,
    _server_checks,
    _table_checks,
    check_server,
    require,
)
from streaming.capture.log_events import RowChange
from streaming.captured.checked import Checked
from streaming.demo.embedded import mariadb_server as mariadb
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.errors import FrescoError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as running:
        running.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "CREATE TABLE shop.v (id INT) WITH SYSTEM VERSIONING",
        )
        yield running


@contextmanager
def server_with(folder: Path, settings: Mapping[str, str]) -> Iterator[Mariadb]:
    """A server with other settings than the embedded stack's; "" takes one out."""
    wanted = {**mariadb.MARIADB_SETTINGS, **settings}
    kept = {name: value for name, value in wanted.items() if value}
    with mock.patch.object(mariadb, "MARIADB_SETTINGS", kept), mariadb_server(folder) as running:
        running.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        yield running


def found(server: Mariadb, *tables: str, ours: bool | None = True) -> list[Checked]:
    return check_server(server.url("shop"), "shop", tables or ("shop.t",), ours)


MADE = {
    "binlog_format": ("SOURCE_ROW_IMAGE", "binlog_format = MIXED"),
    "binlog_row_image": ("SOURCE_ROW_IMAGE", "binlog_row_image = NOBLOB"),
    "binlog_row_metadata": ("SOURCE_ROW_IMAGE", "binlog_row_metadata = MINIMAL"),
    "system_versioning_asof": (
        "SOURCE_PAST_ROWS",
        "system_versioning_asof = '2020-01-01 00:00:00'",
    ),
    "binlog_expire_logs_seconds": (
        "SOURCE_LOG_RETENTION",
        "binlog_expire_logs_seconds = 3600",
    ),
    "sync_binlog": ("SOURCE_LOG_DURABILITY", "sync_binlog = 0"),
    "innodb_flush_log_at_trx_commit": (
        "SOURCE_LOG_DURABILITY",
        "innodb_flush_log_at_trx_commit = 2",
    ),
}
AT_START = {"log_bin", "log_slave_updates"}
OF_OTHERS = {
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "log_replica_updates",
    "max_binlog_total_size",
}
"""What MySQL has, or a newer MariaDB."""


def test_the_embedded_stack_s_mariadb_passes_without_a_warning(server: Mariadb) -> None:
    assert [one.level for one in found(server, "shop.t", "shop.v")] == ["ok"]


def test_every_setting_of_the_list_is_made_wrong_somewhere() -> None:
    assert {one.name for one in SETTINGS} == {*MADE, *AT_START, *OF_OTHERS}


@pytest.mark.parametrize("name", MADE)
def test_a_setting_that_is_wrong_is_named_with_the_statement_that_mends_it(
    server: Mariadb, name: str
) -> None:
    code, wrong = MADE[name]
    (setting,) = (one for one in SETTINGS if one.name == name)
    server.execute(f"SET GLOBAL {wrong}")
    try:
        (one,) = found(server, "shop.t", "shop.v")
    finally:
        server.execute(setting.statement)
    assert (one.code, one.level) == (code, setting.rule.level)
    assert name in one.says and one.todo == setting.statement
    assert [one.level for one in found(server, "shop.t", "shop.v")] == ["ok"]


def test_several_are_told_in_one_error(server: Mariadb) -> None:
    names = ("binlog_format", "binlog_row_image")
    server.execute(*(f"SET GLOBAL {MADE[name][1]}" for name in names))
    try:
        with pytest.raises(FrescoError, match="SOURCE_ROW_IMAGE") as refused:
            require("shop", found(server))
    finally:
        server.execute(refused.value.todo.removeprefix("run: "))
    assert all(f"SET GLOBAL {name} = " in refused.value.todo for name in names)
    require("shop", found(server))


def test_a_replica_that_does_not_log_what_it_takes_is_refused(server: Mariadb) -> None:
    server.execute("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'u'")
    try:
        (one,) = found(server)
        assert (one.code, one.bad) == ("SOURCE_LOG_PARTS", True)
        assert one.says.startswith("log_slave_updates is OFF") and "restart" in one.todo
    finally:
        server.execute("RESET SLAVE ALL")
    assert [one.level for one in found(server)] == ["ok"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"log-bin": ""}, ["log_bin is OFF: there is no log"]),
        ({"binlog-do-db": "other"}, ["the log leaves database shop out"]),
        ({"binlog-ignore-db": "shop"}, ["the log leaves database shop out"]),
    ],
)
def test_what_only_a_start_of_the_server_sets(
    tmp_path: Path, settings: Mapping[str, str], says: list[str]
) -> None:
    tmp_path.chmod(0o755)
    with server_with(tmp_path, settings) as running:
        got = found(running)
        assert [one.bad for one in got] == [True], got
        assert [one.says.startswith(text) for one, text in zip(got, says, strict=True)] == [True]
        assert "restart" in got[0].todo


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({"binlog_row_value_options": "PARTIAL_JSON"}, "wrong"),
        ({"binlog_transaction_compression": "ON"}, "wrong"),
        ({"log_replica_updates": "OFF"}, "wrong"),
        ({"max_binlog_total_size": "1000000"}, "warning"),
        ({}, None),
    ],
)
def test_settings_that_this_server_does_not_have(variables: dict[str, str], level: str) -> None:
    right = {
        "log_bin": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
    }
    asked = Server(False, right | variables, follows=True)
    levels = [
        one.level for one in _server_checks("log", asked, [CheckedTable(("a", "b"), "BASE TABLE")])
    ]
    assert levels == ([level] if level else [])


# Tables -------------------------------------------------------------------------------------------

BUILT_IN = {
    "InnoDB": ("ok", ""),
    "MyISAM": ("warning", "SOURCE_ENGINE_TRANSACTIONS"),
    "Aria": ("warning", "SOURCE_ENGINE_TRANSACTIONS"),
    "CSV": ("warning", "SOURCE_ENGINE_TRANSACTIONS"),
    "MEMORY": ("wrong", "SOURCE_ENGINE"),
    "MRG_MyISAM": ("wrong", "SOURCE_ENGINE"),
}
ADDED = {
    "ARCHIVE": ("warning", "SOURCE_ENGINE_TRANSACTIONS"),
    "BLACKHOLE": ("wrong", "SOURCE_ENGINE"),
    "FEDERATED": ("wrong", "SOURCE_ENGINE"),
    "SPIDER": ("wrong", "SOURCE_ENGINE"),
    "CONNECT": ("wrong", "SOURCE_ENGINE"),
}


@pytest.mark.parametrize("engine", [*BUILT_IN, *ADDED])
def test_engines_are_judged_by_what_the_log_has_of_them(server: Mariadb, engine: str) -> None:
    """The statement that mends one is tried; those of other packages are judged by their names."""
    level, code = {**BUILT_IN, **ADDED}[engine]
    if engine in ADDED:
        table = CheckedTable(("shop", "x"), "BASE TABLE", engine.upper())
        judged = list(_table_checks("x", Server(True, {}), table, True))
        assert [(one.level, one.code) for one in judged] == [(level, code)]
        return
    server.execute(f"CREATE TABLE shop.e_{engine} (id INT NOT NULL) ENGINE = {engine}")
    (one,) = found(server, f"shop.e_{engine}")
    assert (one.level, one.code) == (level, code)
    if one.todo and engine != "MRG_MyISAM":
        server.execute(one.todo.partition(";")[0])
        assert [one.level for one in found(server, f"shop.e_{engine}")] == ["ok"]


def test_a_view_and_a_sequence_are_no_tables(server: Mariadb) -> None:
    server.execute("CREATE VIEW shop.seen AS SELECT * FROM shop.t", "CREATE SEQUENCE shop.s")
    for name in ("seen", "s"):
        (one,) = found(server, f"shop.{name}")
        assert (one.code, one.bad) == ("SOURCE_TABLE_KIND", True), name


def test_a_partitioned_table_is_warned_of_where_a_connector_captures_it(server: Mariadb) -> None:
    server.execute("CREATE TABLE shop.p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    assert [one.level for one in found(server, "shop.p")] == ["ok"]
    (one,) = found(server, "shop.p", ours=None)
    assert (one.level, one.code) == ("warning", "SOURCE_PARTITIONS")


def test_what_may_be_as_it_likes(server: Mariadb) -> None:
    """No key, defaults, triggers, a temporary table of the same name, compression, no checksums."""
    server.execute(
        "CREATE TABLE shop.free (a INT DEFAULT 7, b TIMESTAMP NULL, c INT AS (a + 1) VIRTUAL)",
        "CREATE TRIGGER shop.tr BEFORE INSERT ON shop.free FOR EACH ROW SET NEW.a = 1",
        "SET GLOBAL log_bin_compress = ON, GLOBAL binlog_checksum = NONE, GLOBAL time_zone = '+09:30'",
    )
    try:
        assert [one.level for one in found(server, "shop.free")] == ["ok"]
    finally:
        server.execute(
            "SET GLOBAL log_bin_compress = OFF, GLOBAL binlog_checksum = CRC32,"
            " GLOBAL time_zone = '+00:00'"
        )


# MySQL --------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_what_a_mysql_is_judged_by_and_that_it_logs_cascades(tmp_path: Path) -> None:
    with database_server("mysql-9", tmp_path) as running:
        running.execute(
            "CREATE DATABASE shop; CREATE DATABASE elsewhere; USE shop",
            "CREATE TABLE shop.p (id INT PRIMARY KEY); CREATE TABLE shop.t (id INT PRIMARY KEY, p INT,"
            " FOREIGN KEY (p) REFERENCES shop.p (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        )
        assert [one.level for one in found(running)] == ["ok"]
        for name, value in (
            ("binlog_format", "MIXED"),
            ("binlog_row_image", "MINIMAL"),
            ("binlog_row_metadata", "MINIMAL"),
            ("binlog_row_value_options", "PARTIAL_JSON"),
            ("binlog_transaction_compression", "ON"),
            ("sync_binlog", "0"),
            ("binlog_expire_logs_seconds", "60"),
        ):
            number = value if value.isdigit() else f"'{value}'"
            running.execute(f"SET GLOBAL {name} = {number}")
            (one,) = found(running)
            assert one.says.startswith(f"{name} is {value}"), one
            running.execute(one.todo)
            assert [one.level for one in found(running)] == ["ok"]
        at = log_end(running)
        running.execute(
            "INSERT INTO shop.p VALUES (1), (2); INSERT INTO shop.t VALUES (1, 1), (2, 2)",
            "DELETE FROM shop.p WHERE id = 1; UPDATE shop.p SET id = 3 WHERE id = 2",
        )
        events = until_rows(log_of(running, at, "t"), 4)
        changes = [one for one in events if isinstance(one, RowChange)]
        assert [(one.op, dict(one.after or {})) for one in changes[2:]] == [
            ("d", {}),
            ("u", {"id": 2, "p": 3}),
        ]


@pytest.mark.parametrize(
    ("variables", "mariadb", "refused"),
    [
        ({"innodb_native_foreign_keys": "OFF"}, False, False),
        ({"innodb_native_foreign_keys": "ON"}, False, True),
        ({}, False, True),
        ({}, True, True),
    ],
)
def test_cascades_are_logged_where_the_sql_layer_does_them(
    variables: dict[str, str], mariadb: bool, refused: bool
) -> None:
    key = Cascade("k", ("`p`",), ("`shop`", "`p`"), ("`id`",), "CASCADE", "")
    table = CheckedTable(("shop", "t"), "BASE TABLE", "INNODB", cascades=(key,))
    judged = list(_table_checks("t", Server(mariadb, variables), table, True))
    assert [one.code for one in judged] == (["SOURCE_CASCADES"] if refused else [])
