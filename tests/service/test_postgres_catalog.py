"""The catalog of a real PostgreSQL: schemas, keys and replica identity."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from streaming.embedded.postgres import Postgres, create_databases
from streaming.errors import FrescoError
from streaming.sources.postgres import (
    check_replica_identity,
    connected,
    read_schemas,
    topic_name,
)

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
    assert relation.refused == (("span", "interval"), ("tags", "text[]"))


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
