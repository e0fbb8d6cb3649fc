"""A PostgreSQL server for tests that ask it, and nothing else of the stack."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from streaming import packed_rows as packing
from streaming.algebra.source_queries import QueryPart, SourceAnswer, SourceQuery
from streaming.algebra.tree import Relation, Tree
from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.captured.captured_schema import CapturedRelation
from streaming.demo.embedded.postgres_server import Postgres, create_databases
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse


@contextmanager
def server(folder: Path) -> Iterator[Postgres]:
    """A server of its own with the database `north`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = Postgres(folder, port)
    running.start()
    try:
        create_databases(running.dsn("postgres"), ["north"])
        yield running
    finally:
        running.stop()


def operators(folder: Path, **how: Any) -> DuckOperators:
    """The operators of a view manager whose staging is a folder."""
    staged = iter(range(10**9))

    def stage(content: bytes) -> str:
        name = f"{next(staged)}.parquet"
        (folder / name).write_bytes(content)
        return name

    return DuckOperators(
        lambda table: packing.pack(table, stage), lambda rows: packing.unpack(rows, folder), **how
    )


def captured(dsn: str, *tables: str) -> list[CapturedRelation]:
    return read_schemas(dsn, "north", "north", {name: f"public.{name}" for name in tables})


def relations(found: list[CapturedRelation]) -> dict[str, Relation]:
    return {one.relation.name: one.relation for one in found}


def view(sql: str, found: list[CapturedRelation]) -> Tree:
    return parse(sql, relations(found))


def asked(
    source: PostgresSource, *parts: tuple[Tree, Mapping[str, Signed]]
) -> SourceAnswer[Signed]:
    listed = tuple(QueryPart(tree, inputs) for tree, inputs in parts)
    return source.answer(SourceQuery("v", 1, 1, source.name, listed))


def listed(value: Signed) -> list[tuple[Any, ...]]:
    """The rows, each as often as it occurs, sorted."""
    table = value.table
    rows = zip(*(c.to_pylist() for c in table.columns[2:]), strict=True)
    counts = table.column("_multiplicity").to_pylist()
    found = [row for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    return sorted(found, key=repr)


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def source(dsn: str, ops: DuckOperators, *tables: str, **how: Any) -> PostgresSource:
    """What answers queries to tables of `north`."""
    return PostgresSource("north", dsn, captured(dsn, *tables), ops, **how)


def known(types: list[str], rows: list[tuple[Any, ...]], ops: DuckOperators) -> Signed:
    """Known rows of these column types, all under number 7."""
    schema = tuple(Column(f"k{i}", t) for i, t in enumerate(types))
    return Signed(delta_schema(schema), bag={(7, row): 1 for row in rows})
