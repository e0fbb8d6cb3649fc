"""Every type's edges are read alike of a snapshot, of the log, by a query and by `verify --source`.

All four are compared with what is written down in `mysqledges`, over time zones of server, session and
Python, and over sql_modes of the server that would change what a client is told.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import askedpostgres as asked
import numpy as np
import pyarrow as pa
import pytest
from askedmariadb import captured, log_end, log_of, source, until_rows
from mysqledges import DOCUMENTS, EDGES, MADE
from mysqlservers import EVERY, database_server

from streaming.algebra.tree import Join, Scan
from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_session import PLAIN
from streaming.ask.mariadb.mysql_url import connect, parse_url
from streaming.ask.mariadb.mysql_values import columns_of
from streaming.capture.envelope import CapturedTable, Envelope
from streaming.capture.initial_scan import InitialScan, begin
from streaming.capture.initial_scan import ScanProgress as TableScan
from streaming.capture.log_events import RowChange
from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.cdc.debezium import Decoder
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.proof.databases import Database
from streaming.proof.mariadb_tables import read_tables
from streaming.scalars.types import delta_schema
from tests.sourcelog import Topics

SURROUNDINGS = (
    ("+00:00", "", "UTC"),
    ("+09:30", "PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "America/New_York"),
    ("-11:00", "TRADITIONAL,PIPES_AS_CONCAT", "Pacific/Kiritimati"),
)
"""Time zone and sql_mode of the server, time zone of Python."""


@pytest.fixture(scope="module", params=EVERY)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("server")) as running:
        running.execute("CREATE DATABASE shop")
        yield running


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> DuckOperators:
    return asked.operators(tmp_path_factory.mktemp("staged"))


@contextmanager
def surrounded(server: Mariadb, zone: str, mode: str, python: str) -> Iterator[None]:
    """The server's settings for new sessions, and Python's time zone."""
    before = os.environ.get("TZ")
    server.execute(f"SET GLOBAL time_zone = '{zone}', GLOBAL sql_mode = '{mode}'")
    os.environ["TZ"] = python
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()
        server.execute("SET GLOBAL time_zone = '+00:00', GLOBAL sql_mode = ''")


# Four ways to read --------------------------------------------------------------------------------


def snapshot_events(server: Mariadb, table: str) -> list[dict[str, Any]]:
    """The rows of a table as a snapshot publishes them."""
    place, envelope = (
        CapturedTable("shop", table, f"shop.shop.{table}", ("id",)),
        Envelope("shop", "n"),
    )
    with connect(parse_url(server.url("shop"), "shop"), "shop", conv=PLAIN) as connection:
        snapshot = InitialScan(connection, begin(connection), 1, 0, "precise")
        messages = snapshot.rows(envelope, place, TableScan(place))
        return [json.loads(value or b"")["payload"]["after"] for _, _, value in messages]


def logged_events(server: Mariadb, table: str, at: Any, count: int) -> list[dict[str, Any]]:
    """The rows of a table as the log has them since a place."""
    changes = until_rows(log_of(server, at, table), count)
    return [dict(one.after or {}) for one in changes if isinstance(one, RowChange)]


def decoded(relation: CapturedRelation, images: Sequence[dict[str, Any]]) -> pa.Table:
    """What a reader makes of such rows."""
    events = [
        {
            "op": "c",
            "before": None,
            "after": image,
            "source": {"file": "binlog.000002", "pos": 5},
            "transaction": {"id": "file=binlog.000002,pos=4", "total_order": at},
        }
        for at, image in enumerate(images, 1)
    ]
    decoder = Decoder([relation], [CapturedSource("shop", "shop", log=MYSQL_LOG)])
    found = decoder.decode(Topics().batch([(relation.topic, json.dumps(one)) for one in events]))
    assert found.bad == ()
    rows = found.rows[relation.relation.name]
    assert set(rows["unfit"].to_pylist()) | set(rows["missing"].to_pylist()) == {None}
    return pa.table({f"c{at}": rows[f"a{at}"] for at in range(len(relation.relation.schema))})


def queried(server: Mariadb, relation: CapturedRelation, ops: DuckOperators) -> pa.Table:
    """What a view manager is told that asks the source."""
    table = relation.relation.name.partition(".")[2]
    asking = source(server, ops, table)
    names = ", ".join(f"`{column.name}`" for column in relation.relation.schema)
    tree = asked.view(f"SELECT {names} FROM shop.{table}", [relation])
    (answer,) = asked.asked(asking, (tree, {})).rows  # type: ignore[arg-type]
    asking.close()
    found = answer.table
    assert set(found["multiplicity"].to_pylist()) == {1} if "multiplicity" in found else True
    return found.select([f"c{at}" for at in range(len(relation.relation.schema))])


def verified(server: Mariadb, relation: CapturedRelation) -> pa.Table:
    """What `verify --source` compares with."""
    name = relation.relation.name
    database = Database(server.url("shop"), {name.partition(".")[2]: f"{name}"})
    found = read_tables("shop", database, [relation.relation], {name: ()})[name]
    return pa.table(list(found.columns), names=[f"c{at}" for at in range(found.num_columns)])


def plain(table: pa.Table) -> list[list[Any]]:
    """Columns of values that compare to the last bit, by the first column."""
    columns = []
    for column in table.sort_by("c0").columns:
        if pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        values = column.to_pylist()
        columns.append([repr(v) if isinstance(v, float) else v for v in values])
    return columns


def expected(type_: str, value: Any) -> Any:
    """A value of the table as `plain` gives it."""
    if value is not None and type_.startswith(("date", "timestamp")):
        unit = "D" if type_ == "date" else "us"
        return int(np.datetime64(value, unit).astype(np.int64))
    return repr(value) if isinstance(value, float) else value


# The table ----------------------------------------------------------------------------------------


def make(server: Mariadb, table: str, types: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """A table of these types, filled with rows of SQL's values; where the log stood before them."""
    columns = ", ".join(f"v{at} {type_}" for at, type_ in enumerate(types))
    server.execute(
        f"SET sql_mode = ''; DROP TABLE IF EXISTS shop.{table};"
        f" CREATE TABLE shop.{table} (id INT PRIMARY KEY, {columns})"
    )
    at = log_end(server)
    for number, row in enumerate(rows):
        server.execute(
            "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', NAMES utf8mb4;"
            f" INSERT IGNORE INTO shop.{table} VALUES ({number}, {', '.join(row)})"
        )
    return at


def test_the_edges_of_every_type_are_read_alike(server: Mariadb, ops: DuckOperators) -> None:
    longest = max(map(len, EDGES.values()))
    rows = [[value_at(pairs, n) for pairs in EDGES.values()] for n in range(longest + 1)]
    wanted = [
        [expected(type_, value) for _, value in pairs] + [None] * (longest + 1 - len(pairs))
        for type_, pairs in EDGES.items()
    ]
    at = make(server, "edges", list(EDGES), rows)
    (relation,) = captured(server, "edges")
    assert relation.refused == ()
    for surroundings in SURROUNDINGS:
        with surrounded(server, *surroundings):
            taken = snapshot_events(server, "edges")
            logged = logged_events(server, "edges", at, len(rows))
            found = {
                "snapshot": plain(decoded(relation, taken)),
                "log": plain(decoded(relation, logged)),
                "query": plain(queried(server, relation, ops)),
                "verify": plain(verified(server, relation)),
            }
        wrong = [
            (way, type_, value, instead)
            for way, columns in found.items()
            for type_, column, values in zip(EDGES, columns[1:], wanted, strict=True)
            for value, instead in zip(values, column, strict=True)
            if value != instead
        ]
        assert wrong == [], surroundings
        assert taken == logged, surroundings


_KEYS = ("bit(9)", "bit(64)", "date", "datetime(5)", "binary(4)", "varchar(9)", "decimal(38,10)")


@pytest.mark.parametrize("some", [_KEYS, pytest.param([*EDGES], marks=pytest.mark.deep)], ids=len)
def test_values_find_themselves_as_keys(
    some: Sequence[str], server: Mariadb, ops: DuckOperators
) -> None:
    """Alone and with the row's number."""
    count = max(len(EDGES[type_]) for type_ in some)
    make(server, "edges", some, [[value_at(EDGES[t], n) for t in some] for n in range(count)])
    (relation,) = captured(server, "edges")
    rows = decoded(relation, snapshot_events(server, "edges"))
    schema, asking = relation.relation.schema, source(server, ops, "edges")
    scan, every = Scan(relation.relation.name, schema), range(count)
    for at, (type_, column) in enumerate(zip(some, columns_of(relation)[1:], strict=True), 1):
        if column.key is None:
            continue
        taken = [pa.array([7] * count), pa.array([1] * count), rows["c0"], rows[f"c{at}"]]
        form = delta_schema((schema[0], schema[at]))
        known = ops.value(pa.table(taken, names=form.names).cast(form))
        values = rows[f"c{at}"].combine_chunks()
        same = [
            (a, b) for a in every for b in every if values[a].is_valid and values[a] == values[b]
        ]
        for on, wanted in (
            (((1, at),), same),
            (((0, 0), (1, at)), [(a, b) for a, b in same if a == b]),
        ):
            tree = Join(Scan("@left", (schema[0], schema[at])), scan, on, None)
            (answer,) = asked.asked(asking, (tree, {"@left": known})).rows
            found = [answer.table.column(name).to_pylist() for name in ("c0", "c2")]
            assert sorted(zip(*found, strict=True)) == wanted, (type_, on)
    asking.close()


def value_at(pairs: Sequence[tuple[str, Any]], row: int) -> str:
    """SQL of the value in a row."""
    return pairs[row][0] if row < len(pairs) else "NULL"


def test_json_is_read_alike(server: Mariadb, ops: DuckOperators) -> None:
    rows = [["'" + text.replace("\\", "\\\\") + "'"] for text in DOCUMENTS] + [
        [one] for one in MADE
    ]
    at = make(server, "documents", ["json"], rows)
    (relation,) = captured(server, "documents")
    logged = logged_events(server, "documents", at, len(rows))
    assert logged == snapshot_events(server, "documents")
    told = plain(decoded(relation, logged))
    assert told == plain(queried(server, relation, ops)) == plain(verified(server, relation))
    written = [json.loads(text) for text in DOCUMENTS]
    assert [json.loads(text) for text in told[1]][: len(written)] == written


# Character sets -----------------------------------------------------------------------------------


_SOME = (
    *range(1, 0x530), *range(0x10D0, 0x1100), *range(0x2010, 0x2400), *range(0x2550, 0x25A0),
    *range(0x3000, 0x3100), *range(0x4E00, 0x4F00), *range(0xAC00, 0xAC80), *range(0xFF00, 0xFFF0),
    *range(0x1F600, 0x1F640), 0x20000, 0x10FFFF,
)  # fmt: skip
_ALL = (*range(1, 0xD800), *range(0xE000, 0x10000), *_SOME[-66:])


def letters_of(server: Mariadb, points: Sequence[int]) -> dict[str, str]:
    """Of each character set that the server has, those of some characters that are in it."""
    parts = ["".join(map(chr, points[at : at + 8192])) for at in range(0, len(points), 8192)]
    found: dict[str, str] = {}
    with connect(parse_url(server.url("shop"), "shop"), "shop") as one, one.cursor() as cursor:
        cursor.execute("SELECT character_set_name FROM information_schema.character_sets")
        names = {str(name) for (name,) in cursor.fetchall()} - {"binary"}
        assert len(names) > 35
        for name in sorted(names):
            found[name] = ""
            for part in parts:
                text = f"_utf8mb4 x'{part.encode().hex()}'"
                cursor.execute(f"SELECT CONVERT(CONVERT({text} USING {name}) USING utf8mb4)")
                (kept,) = cursor.fetchone()
                assert len(kept) == len(part)
                found[name] += "".join(a for a, b in zip(part, kept, strict=True) if a == b)
    return found


@pytest.mark.parametrize("points", [_SOME, pytest.param(_ALL, marks=pytest.mark.deep)], ids=len)
def test_the_characters_of_every_character_set_are_read_alike(
    points: Sequence[int], server: Mariadb, ops: DuckOperators
) -> None:
    """In texts, and in the labels of ENUM and SET; several character sets in one table."""
    letters = letters_of(server, points)
    names = list(letters)
    for first in range(0, len(names), 7):
        some = names[first : first + 7]
        types, row = [], []
        for name in some:
            known = letters[name]
            labels = [*[c for c in known[-40:] if c.isalpha()][:5], "ab"]
            listed = ", ".join(f"'{label}'" for label in labels)
            for kind in ("longtext", "varchar(60)", "char(9)", f"enum({listed})", f"set({listed})"):
                types.append(f"{kind} CHARACTER SET {name} COLLATE {name}_bin")
            for text in (known, known[:60], known[-9:]):
                row.append(f"_utf8mb4 x'{text.encode().hex()}'")
            row += ["1", "3"]
        table = f"letters{first}"
        at = make(server, table, types, [row, ["NULL"] * len(types)])
        (relation,) = captured(server, table)
        logged = logged_events(server, table, at, 2)
        assert logged == snapshot_events(server, table), some
        told = plain(decoded(relation, logged))
        assert told == plain(queried(server, relation, ops)) == plain(verified(server, relation))
        for position, name in enumerate(some):
            assert told[1 + 5 * position][0] == letters[name], name
