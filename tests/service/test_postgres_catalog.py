"""The catalog of a real PostgreSQL: schemas, keys, replica identity, and what publications hand on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from streaming.ask.postgres import pg_catalog
from streaming.ask.postgres.pg_catalog import (
    check_replica_identity,
    connected,
    read_origin,
    read_schemas,
    topic_name,
)
from streaming.ask.postgres.published import check_published
from streaming.captured.checked import Checked, failed, table_locked
from streaming.demo.embedded.postgres_server import Postgres, create_databases
from streaming.errors import FrescoError
from streaming.sql.parse import parse

TABLES = """
CREATE TABLE "Order Items" (
    b int NOT NULL, a text NOT NULL, "Price, net" numeric(18, 2), free numeric, at timestamp(3),
    zone timestamptz, span interval, tags text[], doc jsonb, raw bytea, gone int,
    twice int GENERATED ALWAYS AS (b * 2) STORED, PRIMARY KEY (a, b));
ALTER TABLE "Order Items" DROP COLUMN gone;
CREATE TABLE whole (x int);
ALTER TABLE whole REPLICA IDENTITY FULL;
"""


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("catalog")
    folder.parent.chmod(0o755)
    folder.parent.parent.chmod(0o755)
    folder.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Postgres(folder, port)
    server.start()
    try:
        create_databases(server.dsn("postgres"), ["north"])
        with psycopg.connect(server.dsn("north"), autocommit=True) as connection:
            connection.execute(TABLES)
        yield server.dsn("north")
    finally:
        server.stop()


def test_types_and_keys_come_from_the_catalog(dsn: str) -> None:
    (relation,) = read_schemas(dsn, "north", "pre", {"items": "public.Order Items"})
    assert relation.relation.name == "north.items"
    assert relation.topic == topic_name("pre", "public.Order Items") == "pre.public.Order_Items"
    assert relation.counted_as == "public.Order Items"
    assert [(c.name, c.type) for c in relation.relation.schema] == [
        ("b", "int"),
        ("a", "string"),
        ("Price, net", "decimal(18,2)"),
        ("free", "decimal(38,18)"),
        ("at", "timestamp_ntz"),
        ("zone", "timestamp"),
        ("doc", "string"),
        ("raw", "binary"),
    ]
    assert relation.relation.key == (1, 0), "in the key's own order"
    left_out = (("span", "interval"), ("tags", "text[]"), ("twice", "integer generated"))
    assert relation.refused == relation.relation.left_out == left_out


def test_a_table_that_is_not_there_is_named(dsn: str) -> None:
    with pytest.raises(FrescoError, match="SOURCE_TABLE_MISSING"):
        read_schemas(dsn, "north", "pre", {"items": "public.order items"})


def test_a_replica_identity_that_is_not_full_is_refused_with_the_statement(dsn: str) -> None:
    check_replica_identity(dsn, "north", ["public.whole"])
    with pytest.raises(FrescoError) as refused:
        check_replica_identity(dsn, "north", ["public.whole", "public.Order Items"])
    assert refused.value.code == "SOURCE_REPLICA_IDENTITY"
    statement = 'ALTER TABLE "public"."Order Items" REPLICA IDENTITY FULL;'
    assert refused.value.todo == f"run: {statement}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)
    check_replica_identity(dsn, "north", ["public.Order Items"])


def test_a_database_that_does_not_answer_is_named() -> None:
    with pytest.raises(FrescoError, match="SOURCE_UNREACHABLE"):
        check_replica_identity("postgresql://u@127.0.0.1:1/x", "north", ["public.whole"])


def test_a_server_that_goes_away_while_it_is_read_is_not_one_that_refuses(dsn: str) -> None:
    """`fresco snapshots` waits for the one and ends at the other."""
    with pytest.raises(FrescoError, match="SOURCE_UNREACHABLE"), connected(dsn, "north") as one:
        one.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(FrescoError, match="SOURCE_QUERY_REFUSED"), connected(dsn, "north") as one:
        one.execute("SELECT * FROM nothing")


# What a publication hands on ----------------------------------------------------------------------

CAPTURED = """
CREATE SCHEMA p;
CREATE TABLE p.plain (id int PRIMARY KEY, v text);
CREATE TABLE p.root (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE p."part 1" PARTITION OF p.root FOR VALUES FROM (0) TO (10);
CREATE TABLE p.parent (id int, v text);
CREATE TABLE p.child () INHERITS (p.parent);
CREATE UNLOGGED TABLE p.fast (id int);
CREATE VIEW p.seen AS SELECT * FROM p.plain;
"""


@pytest.fixture
def published(dsn: str) -> Iterator[Callable[..., list[Checked]]]:
    """The checks of tables of schema p after statements; everything is dropped at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CAPTURED)

        def checks(*tables: str, after: str = "", known: str | None = None) -> list[Checked]:
            for statement in filter(None, after.split(";")):
                connection.execute(statement)  # type: ignore[call-overload]
            return check_published(dsn, "north", [f"p.{one}" for one in tables], known)

        yield checks
        for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
            connection.execute(f'DROP PUBLICATION "{name}"')
        connection.execute("DROP SCHEMA p CASCADE")


def sql_of(one: Checked) -> str:
    """The statements of a remedy."""
    return ";".join(part for part in one.todo.split(";") if part.split()[0].isupper())


@pytest.mark.parametrize(
    ("table", "publication", "code", "says"),
    [
        ("root", "FOR TABLE p.root", "SOURCE_NOT_PUBLISHED", "partitions of p.root"),
        ("root", "FOR ALL TABLES", "SOURCE_NOT_PUBLISHED", "partitions of p.root"),
        ("plain", "FOR TABLE p.plain WITH (publish = 'insert, update, truncate')",
         "SOURCE_PUBLICATION", "does not publish delete"),
        ("plain", "FOR TABLE p.plain WITH (publish = 'insert, update, delete')",
         "SOURCE_PUBLICATION", "does not publish truncate"),
        ("plain", "FOR TABLE p.plain (id)", "SOURCE_PUBLICATION", "the columns v"),
        ("plain", "FOR TABLE p.plain WHERE (id > 0)", "SOURCE_PUBLICATION", "filter drops"),
        ("plain", "FOR TABLE p.parent", "SOURCE_NOT_PUBLISHED", "p.plain is not in"),
        ("part 1", "FOR TABLE p.root WITH (publish_via_partition_root)",
         "SOURCE_NOT_PUBLISHED", "as those of p.root"),
    ],
)  # fmt: skip
def test_what_a_publication_leaves_out_is_refused_with_the_statement_that_mends_it(
    published: Callable[..., list[Checked]], table: str, publication: str, code: str, says: str
) -> None:
    made = published(table, after=f"CREATE PUBLICATION pub {publication}", known="pub")
    (wrong,) = [one for one in made if one.bad]
    assert wrong.code == code and says in wrong.says
    mended = published(table, after=sql_of(wrong), known="pub")
    assert [one for one in mended if one.bad] == []


def test_oddity_24_what_is_in_no_log_of_a_partitioned_table_is_warned_of(
    published: Callable[..., list[Checked]],
) -> None:
    via_root = "CREATE PUBLICATION pub FOR TABLE p.root WITH (publish_via_partition_root)"
    (found,) = published("root", after=via_root)
    assert (found.level, found.code) == ("warning", "SOURCE_PARTITIONS")


def test_rows_that_a_snapshot_sees_and_the_log_does_not_are_refused(
    published: Callable[..., list[Checked]],
) -> None:
    made = published("parent", "fast", after="CREATE PUBLICATION pub FOR ALL TABLES")
    codes = {one.code for one in made if one.bad}
    assert codes == {"SOURCE_INHERITED", "SOURCE_UNLOGGED"}
    for one in made:
        if one.code in ("SOURCE_INHERITED", "SOURCE_UNLOGGED"):
            published(after=sql_of(one))
    assert not [one for one in published("parent", "fast") if one.bad]


def test_a_partition_elsewhere_is_refused_and_row_security_is_warned_of(
    published: Callable[..., list[Checked]],
) -> None:
    via_root = "CREATE PUBLICATION pub FOR TABLE p.plain, p.root WITH (publish_via_partition_root)"
    published(
        after=f"""{via_root}; CREATE FOREIGN DATA WRAPPER nowhere;
        CREATE SERVER far FOREIGN DATA WRAPPER nowhere; ALTER PUBLICATION pub DROP TABLE p.root;
        CREATE FOREIGN TABLE p.away PARTITION OF p.root FOR VALUES FROM (10) TO (20) SERVER far"""
    )
    found = {one.code: one for one in published("root")}
    assert (
        found["SOURCE_FOREIGN"].bad and "p.away is a foreign table" in found["SOURCE_FOREIGN"].says
    )
    published(after=found["SOURCE_FOREIGN"].todo)
    assert "SOURCE_FOREIGN" not in {one.code for one in published("root")}
    published(after="DROP FOREIGN DATA WRAPPER nowhere CASCADE")
    (secured,) = published("plain", after="ALTER TABLE p.plain ENABLE ROW LEVEL SECURITY")
    assert (secured.level, secured.code) == ("warning", "SOURCE_ROW_SECURITY")


def test_one_right_publication_is_enough_where_the_connector_s_is_not_known(
    published: Callable[..., list[Checked]],
) -> None:
    other = "CREATE PUBLICATION inserts FOR ALL TABLES WITH (publish = 'insert')"
    assert [one.level for one in published("plain", after=other)] == ["wrong"]
    right = "CREATE PUBLICATION mine FOR TABLE p.plain"
    assert [one.level for one in published("plain", after=right)] == ["ok"]
    assert [one.level for one in published("plain", known="inserts")] == ["wrong"]


def test_a_connector_that_has_not_begun_yet_has_no_publication_which_is_no_fault(
    published: Callable[..., list[Checked]],
) -> None:
    (found,) = published("plain")
    assert (found.level, found.code) == ("warning", "SOURCE_NOT_PUBLISHED")
    (found,) = published("plain", known="dbz")
    assert "does not exist yet" in found.says


def test_partitions_need_whole_rows_too(dsn: str, published: Callable[..., list[Checked]]) -> None:
    published(after="ALTER TABLE p.root REPLICA IDENTITY FULL")
    with pytest.raises(FrescoError, match="SOURCE_REPLICA_IDENTITY") as refused:
        check_replica_identity(dsn, "north", ["p.root"])
    published(after=refused.value.todo.removeprefix("run: "))
    check_replica_identity(dsn, "north", ["p.root"])


def test_a_view_is_named_as_one(dsn: str, published: Callable[..., list[Checked]]) -> None:
    with pytest.raises(FrescoError, match=r"SOURCE_TABLE_KIND: p\.seen is a view"):
        read_schemas(dsn, "north", "pre", {"seen": "p.seen"})


# Which server it is -------------------------------------------------------------------------------


def test_oddity_33_the_server_is_known_and_its_log_only_goes_on(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        (system,) = connection.execute(
            "SELECT system_identifier FROM pg_control_system()"
        ).fetchone() or (0,)
    before = read_origin(dsn, "north")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE written AS SELECT generate_series(1, 1000) AS x")
    now = read_origin(dsn, "north")
    assert before is not None and now is not None
    assert (now.system, now.timeline) == (str(system), 1)
    assert (now.position or 0) > (before.position or 0) > 0


def test_a_user_who_may_not_ask_keeps_nothing_from_going_on(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'r'")
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    assert read_origin(make_conninfo(dsn, user="reader", password="r"), "north") is None


def test_no_question_waits_for_ever_for_a_locked_table(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that has locked a table holds up neither a start nor `doctor`: it is told of."""
    monkeypatch.setattr(pg_catalog, "LOCK_SECONDS", 1)
    tables = ["public.halves"]
    with psycopg.connect(dsn) as other:
        other.execute("CREATE TABLE halves (x int) PARTITION BY RANGE (x)")
        other.execute("CREATE TABLE half PARTITION OF halves FOR VALUES FROM (0) TO (9)")
        other.execute("ALTER TABLE halves REPLICA IDENTITY FULL")
        other.execute("ALTER TABLE half REPLICA IDENTITY FULL")
        other.execute("CREATE PUBLICATION halved FOR TABLE halves")
        other.commit()
        other.execute("LOCK TABLE halves, half IN ACCESS EXCLUSIVE MODE")
        (relation,) = read_schemas(dsn, "north", "pre", {"halves": "public.halves"})
        assert [column.name for column in relation.relation.schema] == ["x"]
        asked: tuple[Callable[[], object], ...] = (
            lambda: check_published(dsn, "north", tables),
            lambda: check_replica_identity(dsn, "north", tables),
            lambda: rows_of(dsn, "halves"),
        )
        for ask in asked:
            with pytest.raises(FrescoError, match="1 s were waited") as refused:
                ask()
            assert "pg_stat_activity" in refused.value.todo
        found = failed("publication of north", table_locked("north", 1, "SELECT 1"))
        assert (found.level, found.code) == ("warning", "SOURCE_TABLE_LOCKED")
        other.execute(refused.value.todo.partition("among: ")[2])
        other.rollback()
        check_replica_identity(dsn, "north", tables)
        other.execute("DROP PUBLICATION halved")
        other.execute("DROP TABLE halves")


def rows_of(dsn: str, table: str) -> list[tuple[object, ...]]:
    with connected(dsn, "north") as connection:
        return connection.execute(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        ).fetchall()


TYPED = """
CREATE TYPE bits AS ENUM ('a'); CREATE DOMAIN amount AS numeric(10,2);
CREATE TYPE "timestamp(3)" AS ENUM ('b');
CREATE SCHEMA other; CREATE TYPE other.mood AS ENUM ('c');
CREATE TABLE typed (id int PRIMARY KEY, b bits, a amount, t "timestamp(3)", m other.mood, n numeric(10,2),
    d date, u uuid, ts timestamp(3), flag boolean);
"""


@pytest.mark.parametrize("path", ["public", "other, public", "public, pg_catalog", ""])
def test_oddity_34_a_type_is_known_by_what_it_is_and_not_by_its_name(dsn: str, path: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS typed; DROP DOMAIN IF EXISTS amount")
        connection.execute(
            'DROP SCHEMA IF EXISTS other CASCADE; DROP TYPE IF EXISTS bits, "timestamp(3)"'
        )
        connection.execute(TYPED)
        name = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = {}").format(name, sql.SQL(path or "''"))
        )
        try:
            (found,) = read_schemas(dsn, "north", "pre", {"typed": "public.typed"})
        finally:
            connection.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(name))
    kept = {c.name: t for c, t in zip(found.relation.schema, found.source_types, strict=True)}
    assert kept == {
        "id": "integer", "n": "numeric(10,2)", "d": "date", "u": "uuid",
        "ts": "timestamp(3) without time zone", "flag": "boolean",
    }  # fmt: skip
    assert dict(found.refused) == {
        "b": "public.bits", "a": "public.amount", "t": 'public."timestamp(3)"', "m": "other.mood",
    }  # fmt: skip
    with pytest.raises(FrescoError) as refused:
        parse("SELECT id, b FROM north.typed", {"north.typed": found.relation})
    assert refused.value.code == "SQL_COLUMN_TYPE"
    assert "b" in refused.value.what and "public.bits" in refused.value.what
    assert "decimals" in refused.value.todo and refused.value.where == "line 1, column 12"


def test_oddity_35_from_which_size_on_values_are_stored_apart_comes_from_the_catalog(
    dsn: str,
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS narrow, parted")
        connection.execute(
            "CREATE TABLE narrow (t text) WITH (toast_tuple_target = 256, fillfactor = 90)"
        )
        connection.execute("CREATE TABLE parted (id int, t text) PARTITION BY LIST (id)")
        connection.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
        connection.execute(
            "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2) WITH (toast_tuple_target = 300)"
        )
    tables = {"narrow": "public.narrow", "whole": "public.whole", "parted": "public.parted"}
    found = {one.relation.name: one.toasts_from for one in read_schemas(dsn, "n", "p", tables)}
    assert found == {"n.narrow": 256, "n.whole": 2032, "n.parted": 300}


@pytest.mark.parametrize(
    ("made", "mended"),
    [
        ("CREATE TYPE public.uuid AS ENUM ('a')", "ALTER TYPE public.uuid RENAME TO uuids"),
        ("CREATE TABLE public.date (x int)", "ALTER TABLE public.date RENAME TO dates"),
        ("CREATE DOMAIN public.numeric AS int", "ALTER TYPE public.numeric RENAME TO numerics"),
    ],
)
def test_oddity_34_a_type_that_debezium_takes_for_a_built_in_one_is_refused(
    dsn: str, made: str, mended: str
) -> None:
    """Seen with 3.6.1: dates come as texts, uuids not at all, while a type of that name is there."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS typed; CREATE TABLE typed (d date, u uuid, n numeric)"
        )
        connection.execute("ALTER TABLE typed REPLICA IDENTITY FULL")
        connection.execute(made)
        try:
            found = [one for one in check_published(dsn, "north", ["public.typed"]) if one.bad]
            (wrong,) = (one for one in found if one.code == "SOURCE_TYPE_NAME")
            statement = wrong.todo.partition(" RENAME")[0].replace('"', "")
            assert statement == mended.partition(" RENAME")[0]
            connection.execute(mended)
            assert not any(
                one.code == "SOURCE_TYPE_NAME"
                for one in check_published(dsn, "north", ["public.typed"])
            )
        finally:
            connection.execute("DROP TYPE IF EXISTS uuids; DROP TABLE IF EXISTS dates")
            connection.execute("DROP DOMAIN IF EXISTS numerics")
