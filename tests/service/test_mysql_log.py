"""What a real MySQL writes into its log: nothing of it is lost or misread, or it is refused by name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from askedmariadb import captured, log_end, log_of
from mysqlservers import connected, database_server
from test_mariadb_log import until_end

from streaming.ask.mariadb.mysql_check import check_server
from streaming.ask.mariadb.mysql_session import PLAIN, MysqlSession
from streaming.ask.mariadb.mysql_url import connect, parse_url
from streaming.capture.initial_scan import begin
from streaming.capture.log_events import Begin, Commit, RowChange, Truncate
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.errors import FrescoError

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    with database_server("mysql-9", tmp_path_factory.mktemp("mysql")) as running:
        running.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, s VARCHAR(2000))",
            "CREATE TABLE shop.other (id INT)",
            "CREATE TABLE shop.done (n INT)",
        )
        yield running


def logged(server: Mariadb, *statements: str, tables: tuple[str, ...] = ("t",)) -> list[Any]:
    """The log's events of captured tables, from these statements of one session."""
    return [
        (one.op, dict(one.before or {}), dict(one.after or {}))
        if isinstance(one, RowChange)
        else ("t", one.table)
        for one in events(server, *statements, tables=tables)
        if isinstance(one, RowChange | Truncate)
    ]


def events(server: Mariadb, *statements: str, tables: tuple[str, ...] = ("t",)) -> list[Any]:
    """All events of the log from these statements of one session, until the row of `done`."""
    server.execute("DELETE FROM shop.t")
    at = log_end(server)
    with connected(server, "shop") as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    server.execute("INSERT INTO shop.done VALUES (1)")
    found = until_end(log_of(server, at, *tables, "done"))
    return [one for one in found[:-1] if one is not None]


def test_transactions_have_their_gtids_and_rows_and_end_where_the_next_begins(
    server: Mariadb,
) -> None:
    found = events(
        server,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "BEGIN", "UPDATE t SET id = id + 10", "DELETE FROM t WHERE id = 11", "COMMIT",
        "TRUNCATE TABLE t",
    )  # fmt: skip
    shapes = " ".join(type(one).__name__ for one in found)
    whole = "Begin RowChange RowChange Commit Begin RowChange RowChange RowChange Commit"
    assert shapes == f"{whole} Begin Ddl Truncate Commit Begin"
    begins = [one for one in found if isinstance(one, Begin)]
    commits = [one for one in found if isinstance(one, Commit)]
    assert len(commits) == 3 and [one.at for one in begins[1:4]] == [one.at for one in commits]
    numbers = [int(one.gtid.rpartition(":")[2]) for one in begins[:3]]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_what_was_rolled_back_is_not_told(server: Mariadb) -> None:
    found = logged(
        server,
        "BEGIN", "INSERT INTO t VALUES (20, '')", "SAVEPOINT a", "INSERT INTO t VALUES (21, '')",
        "CREATE TEMPORARY TABLE t1 (i INT)", "ROLLBACK TO a", "INSERT INTO t VALUES (22, '')", "COMMIT",
        "BEGIN", "INSERT INTO t VALUES (30, '')", "ROLLBACK",
    )  # fmt: skip
    assert [after["id"] for _, _, after in found] == [20, 22]


def test_a_foreign_key_s_actions_stand_in_the_log(server: Mariadb) -> None:
    server.execute(
        "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
        "CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES shop.parent (id)"
        " ON DELETE CASCADE ON UPDATE SET NULL)",
        "INSERT INTO shop.parent VALUES (1), (2)",
        "INSERT INTO shop.child VALUES (10, 1), (20, 2)",
    )
    found = logged(
        server, "DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 3", tables=("child",)
    )
    assert found == [
        ("d", {"id": 10, "p": 1}, {}),
        ("u", {"id": 20, "p": 2}, {"id": 20, "p": None}),
    ]


@pytest.mark.parametrize(
    ("setting", "statement", "code"),
    [
        ("binlog_transaction_compression = ON", "INSERT INTO t VALUES (1, '')", "CAPTURE_EVENT"),
        (
            "binlog_row_value_options = PARTIAL_JSON",
            "UPDATE j SET d = JSON_SET(d, '$.a', 2)",
            "ROW_IMAGE",
        ),
        ("binlog_row_image = MINIMAL", "UPDATE j SET n = n + 1", "ROW_IMAGE"),
    ],
)
def test_what_a_session_logs_in_part_or_packed_ends_the_capture_by_name(
    server: Mariadb, setting: str, statement: str, code: str
) -> None:
    server.execute(
        "DROP TABLE IF EXISTS shop.j",
        "CREATE TABLE shop.j (id INT PRIMARY KEY, n INT, d JSON)",
        "INSERT INTO shop.j VALUES (1, 1, JSON_OBJECT('a', 1, 'b', REPEAT('x', 5000)))",
    )
    with pytest.raises(FrescoError, match=code):
        logged(server, f"SET SESSION {setting}", statement, tables=("t", "j"))


def test_the_settings_that_lose_are_seen_by_doctor(server: Mariadb) -> None:
    def wrong() -> str:
        checks = check_server(server.url("shop"), "shop", ["shop.t"])
        return " ".join(one.says for one in checks if one.level == "wrong")

    assert wrong() == ""
    for setting, usual in (
        ("binlog_transaction_compression", "OFF"),
        ("binlog_row_metadata", "FULL"),
    ):
        other = {"OFF": "ON", "FULL": "MINIMAL"}[usual]
        server.execute(f"SET GLOBAL {setting} = '{other}'")
        try:
            assert setting in wrong()
        finally:
            server.execute(f"SET GLOBAL {setting} = '{usual}'")


def test_columns_that_no_client_sees_do_not_shift_those_it_does(server: Mariadb) -> None:
    """Generated, invisible, and those that an index over an expression hides."""
    server.execute(
        "CREATE TABLE shop.hid (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, i INT INVISIBLE,"
        " st INT AS (a * 2) STORED, js JSON, b VARCHAR(9), KEY ((a + 5)),"
        " KEY ((CAST(js->'$' AS UNSIGNED ARRAY))))"
    )
    (relation,) = captured(server, "hid")
    names = [column.name for column in relation.relation.schema]
    found = logged(
        server, "INSERT INTO hid (id, a, i, js, b) VALUES (1, 5, 7, '[1, 2]', 'x')", tables=("hid",)
    )
    row = {"id": 1, "a": 5, "v": 6, "i": 7, "st": 10, "js": "[1, 2]", "b": "x"}
    assert [set(names), found] == [set(row), [("c", {}, row)]]


def test_a_vector_and_a_geometry_are_left_out_and_others_are_read(server: Mariadb) -> None:
    server.execute(
        "CREATE TABLE shop.vec (id INT PRIMARY KEY, v VECTOR(3), g GEOMETRY, d DECIMAL(5,2))"
    )
    (relation,) = captured(server, "vec")
    assert [name for name, _ in relation.refused] == ["v", "g"]
    found = logged(
        server,
        "INSERT INTO vec VALUES (1, TO_VECTOR('[1,2,3]'), POINT(1, 2), 1.5)",
        tables=("vec",),
    )
    assert [(after["id"], after["d"]) for _, _, after in found] == [(1, "AJY=")]


def test_a_user_who_may_not_lock_is_told_what_to_grant(server: Mariadb) -> None:
    server.execute(
        "CREATE USER asker IDENTIFIED BY 'asking-secret'", "GRANT SELECT ON shop.* TO asker"
    )
    url = server.url("shop").replace(f"fresco:{server.password}@", "asker:asking-secret@")
    session = MysqlSession("shop", url, timeout=10)
    with pytest.raises(FrescoError, match=r"SOURCE_QUERY_REFUSED.*GRANT RELOAD") as refused:
        session.pin()
    assert "asking-secret" not in str(refused.value)
    server.execute("GRANT RELOAD, REPLICATION CLIENT ON *.* TO asker")
    session.pin()
    session.close()


def test_prepared_transactions_end_a_capture_over_captured_tables_only(server: Mariadb) -> None:
    other = ["INSERT INTO other VALUES (1)", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'"]
    assert logged(server, "XA START 'a'", *other) == []
    own = ["INSERT INTO t VALUES (4, '')", "XA END 'd'", "XA PREPARE 'd'", "XA COMMIT 'd'"]
    with pytest.raises(FrescoError, match="CAPTURE_XA"):
        logged(server, "XA START 'd'", *own)


def test_a_snapshot_stands_exactly_at_its_place_while_others_write(server: Mariadb) -> None:
    """Each transaction moves an amount, so a sum that is not 0 was torn."""
    server.execute(
        "CREATE TABLE shop.acc (id INT PRIMARY KEY, x INT)",
        f"INSERT INTO shop.acc VALUES {', '.join(f'({n}, 0)' for n in range(8))}",
    )
    stopping = threading.Event()
    start = log_end(server)

    def worker(seed: int) -> None:
        with connected(server, "shop") as session, session.cursor() as cursor:
            for n in range(10_000):
                if stopping.is_set():
                    return
                try:
                    cursor.execute("BEGIN")
                    cursor.execute(f"UPDATE acc SET x = x - 1 WHERE id = {(seed + n) % 8}")
                    cursor.execute(f"UPDATE acc SET x = x + 1 WHERE id = {(seed + n + 3) % 8}")
                    cursor.execute("COMMIT")
                except Exception as error:
                    if "Deadlock" not in str(error):
                        raise

    threads = [threading.Thread(target=worker, args=(seed,)) for seed in (0, 4)]
    for thread in threads:
        thread.start()
    taken: list[tuple[Any, dict[int, int]]] = []
    try:
        for _ in range(15):
            with connect(parse_url(server.url("shop"), "shop"), "shop", conv=PLAIN) as connection:
                at = begin(connection)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT id, x FROM shop.acc")
                    taken.append((at, {int(key): int(x) for key, x in cursor.fetchall()}))
        session = MysqlSession("shop", server.url("shop"), timeout=10)
        with session.snapshot() as (_, seen):
            assert seen.upto >= taken[-1][0].number - 1
        session.close()
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    server.execute("INSERT INTO shop.done VALUES (1)")
    rows, at_place, waiting = {n: 0 for n in range(8)}, {}, [at for at, _ in taken]
    reader = log_of(server, start, "acc", "done")
    for event in reader.events():
        if isinstance(event, RowChange) and event.table[1] == "done":
            break
        if isinstance(event, Begin):
            while waiting and waiting[0] <= event.at:
                at_place[waiting.pop(0)] = dict(rows)
        if isinstance(event, RowChange) and event.after:
            rows[int(event.after["id"])] = int(event.after["x"])
    reader.close()
    for at in waiting:
        at_place[at] = dict(rows)
    assert len({str(at) for at, _ in taken}) > 3
    for at, seen_rows in taken:
        assert sum(seen_rows.values()) == 0 and seen_rows == at_place[at], at
