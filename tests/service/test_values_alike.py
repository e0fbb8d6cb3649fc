"""Snapshot, log and the server's own SELECT spell every value alike (issue: values of PostgreSQL).

A real Debezium captures one table for each type, with its edges: read in the snapshot, and inserted again
afterwards. What our decoding makes of either is compared with what `verify --source` reads, in a database
of another time zone and a Python of another; the deep part has Connect's JVM in others too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import psycopg
import pyarrow as pa
import pytest
from conftest import Bank
from kafka import KafkaConsumer, TopicPartition
from psycopg import sql
from services import until

from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.cdc.debezium import Decoder
from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases
from streaming.demo.embedded.stack import Stack
from streaming.proof.databases import Database, _read_all
from streaming.proof.proof_engine import open_engine
from streaming.scalars import written
from streaming.service.old_date_search import check_dates

DAY = ["2024-02-29", "0001-01-01", "1582-10-04", "1582-10-15", "1500-02-28", "1883-11-18", "1900-01-01",
       "9999-12-31", "10000-01-01", "294276-12-31", "5874897-12-31", "infinity", "-infinity"]  # fmt: skip
MOMENT = ["2024-03-31 02:30:00.000001", "2024-03-31 01:30:00", "0044-03-15 12:00:00 BC", "0001-01-01",
          "1582-10-10 01:02:03.000004", "1582-10-04 23:59:59.999999", "1883-11-18 12:01:02",
          "9999-12-31 23:59:59.999999", "10000-01-01", "4713-01-01 BC", "infinity", "-infinity",
          "1969-12-31 23:59:59.999999", "294246-12-31"]  # fmt: skip
VALUES: dict[str, Sequence[str]] = {
    "smallint": ["-32768", "32767"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["NaN", "Infinity", "-Infinity", "-0", "0.1", "3.4028235e38", "1e-45", "16777217"],
    "double precision": ["NaN", "Infinity", "-Infinity", "-0", "0.1", "1.7976931348623157e308", "5e-324",
                         "9007199254740993"],
    "boolean": ["true", "false"],
    "text": ["", "a\nb\t\"'\\", "\\N", "NULL", "null", "é€😀\u202e", "x" * 9000,
             "__debezium_unavailable_value",
             "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
    "varchar(40)": ["x ", "__debezium_unavailable_value"],
    "char(4)": ["ab", "abcd", ""],
    "uuid": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "json": ['{"a" :1, "a": 1e2}', '"__debezium_unavailable_value"', "null"],
    "jsonb": ['{"a" :1.50, "b":null}'],
    "bytea": ["", "\\x00ff5c", "__debezium_unavailable_value"],
    "numeric(18,2)": ["0", "-0.01", "9999999999999999.99"],
    "numeric(10,0)": ["12", "-3", "1000"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38],
    "numeric(38,10)": ["0.0000000001", "9" * 28 + "." + "9" * 10],
    "numeric": ["1.10", "1e-18", "-12345678901234567890.000000000000000001", "100"],
    "date": DAY,
    "timestamp": MOMENT,
    "timestamp(3)": ["2024-03-31 02:30:00.001", *MOMENT[2:4], "infinity", "-infinity"],
    "timestamp(0)": ["2024-03-31 02:30:00", "infinity", "-infinity"],
    "timestamptz": [one if "inf" in one else f"{one}+00".replace(" BC+00", "+00 BC") for one in MOMENT],
    "timestamptz(3)": ["2024-03-31 02:30:00.001+00", "0044-03-15 12:00:00+00 BC", "10000-01-01+00",
                       "infinity"],
}  # fmt: skip
UNFIT: dict[str, Sequence[str]] = {
    "numeric(9,2)": ["NaN"],
    "decimal": ["NaN", "Infinity", "-Infinity", "1e30", "0.0000000000000000001"],
    "timestamp(6)": ["294276-12-31 23:59:59.999999", "294247-01-11"],
    "timestamp(2)": ["294276-12-31 23:59:59.99"],
    "timestamptz(6)": ["294276-12-31 23:59:59.999999+00"],
}
"""Refused by name in snapshot and log alike."""
OLD = ["0044-03-15 BC", "0001-12-31 BC", "4713-01-01 BC", "1582-10-05", "1582-10-10", "1582-10-14"]
"""Days that a snapshot tells as others: refused by the catalog."""
TABLES = {f"t{at}": pair for at, pair in enumerate([*VALUES.items(), *UNFIT.items()])}
AGAIN = 1000
"""Added to the number of a row that comes in the log."""


@contextmanager
def python_zone(zone: str) -> Iterator[None]:
    with mock.patch.dict(os.environ, {"TZ": zone}):
        time.tzset()
        yield
    time.tzset()


def fill(dsn: str, first: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET timezone TO 'UTC'")
        for name, (type_, values) in TABLES.items():
            for at, value in enumerate([*values, None]):
                row = sql.SQL("INSERT INTO {} VALUES ({}, {}::" + type_ + ")").format(
                    sql.Identifier(name), first + at, sql.Literal(value)
                )
                connection.execute(row)


def records_of(bootstrap: str, topics: Sequence[str], least: int) -> pa.Table:
    """All records of the topics, once there are so many."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=1000)
    places = [TopicPartition(topic, 0) for topic in topics]
    consumer.assign(places)
    until(lambda: sum(consumer.end_offsets(places).values()) >= least, f"{least} records", 120)
    consumer.seek_to_beginning()
    found = [(one.topic, one.partition, one.offset, one.key, one.value) for one in consumer]
    consumer.close()
    columns = list(zip(*found, strict=True))
    types = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
    names = ("topic", "partition", "offset", "key", "value")
    return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})


def captured_twice(stack: Stack, source: StackSource, zone: str) -> pa.Table:
    """The source's events: its rows in the snapshot, and again in the log."""
    create_databases(stack.dsn(POSTGRES_USER), [source.name])
    with psycopg.connect(stack.dsn(source.name), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {source.name} SET timezone TO '{zone}'")
        connection.execute(f"ALTER DATABASE {source.name} SET datestyle TO 'SQL, DMY'")
        for name, (type_, _) in TABLES.items():
            connection.execute(f"CREATE TABLE {name} (n int PRIMARY KEY, x {type_})")
            connection.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    fill(stack.dsn(source.name), 0)
    create_topics(stack.bootstrap, source.topics)
    config = connector_config(
        source, host=LOOPBACK, port=stack.postgres.port, user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )  # fmt: skip
    stack.connect.rest.put(source.connector, config)
    rows = sum(len(values) + 1 for _, values in TABLES.values())
    records_of(stack.bootstrap, source.row_topics, rows)
    fill(stack.dsn(source.name), AGAIN)
    found = records_of(stack.bootstrap, source.row_topics, 2 * rows)
    stack.connect.rest.ask("DELETE", f"/connectors/{source.connector}")
    return found


def check_alike(stack: Stack, source: StackSource, zone: str, decimals: Any = "string") -> None:
    """Compare all values in the three ways."""
    events, dsn = captured_twice(stack, source, zone), stack.dsn(source.name)
    tables = {name: f"public.{name}" for name in TABLES}
    captured = read_schemas(dsn, source.name, source.name, tables, decimals)
    assert not any(one.refused for one in captured)
    decoded = Decoder(captured, [CapturedSource(source.name, source.name)]).decode(events)
    assert decoded.bad == ()
    for one in captured:
        name = one.relation.name.partition(".")[2]
        type_, values = TABLES[name]
        rows = decoded.rows[one.relation.name]
        numbers = rows["a0"].to_pylist()
        spelled = dict(zip(numbers, written.values(rows["a1"]), strict=True))
        assert sorted(numbers) == [*range(len(values) + 1), *range(AGAIN, AGAIN + len(values) + 1)]
        unread = {n for n, lost in zip(numbers, rows["unfit"].to_pylist(), strict=True) if lost}
        if type_ in UNFIT:
            if decimals == "precise" and type_ == "decimal":
                continue  # NaN and the infinities come as NULL
            if decimals == "precise" and type_ == "numeric(9,2)":
                continue
            assert unread == {n for n in numbers if n % AGAIN < len(values)}, type_
            continue
        assert not unread, (type_, unread)
        said = selected(dsn, one, zone)
        for at, value in enumerate([*values, None]):
            three = spelled[at], spelled[AGAIN + at], said[at]
            assert len(set(map(repr, three))) == 1, (type_, value, three)
            assert (three[0] is None) == (value is None), (type_, value)


def selected(dsn: str, captured: CapturedRelation, zone: str) -> dict[int, Any]:
    """Number -> the value as `verify --source` reads it."""
    name = captured.relation.name.partition(".")[2]
    engine: duckdb.DuckDBPyConnection = open_engine()

    source = captured.relation.name.partition(".")[0]
    database = Database(dsn, {name: f"public.{name}"})
    tables = _read_all(
        engine, [captured.relation], {source: database}, {captured.relation.name: ()}
    )
    table = engine.execute(f"SELECT c0, c1 FROM {tables[captured.relation.name]}").to_arrow_table()
    return dict(zip(table["c0"].to_pylist(), written.values(table["c1"]), strict=True))


def alike(name: str, *options: tuple[str, str], with_schema: bool = False) -> StackSource:
    tables = tuple(f"public.{table}" for table in TABLES)
    return StackSource(name, tables, with_schema, options)


def test_snapshot_log_and_server_spell_every_value_alike(bank: Bank) -> None:
    with python_zone("America/St_Johns"):
        check_alike(bank.stack.stack, alike("alike"), "Asia/Tokyo")
    _refuses_old_days(bank.stack.stack.dsn("alike"))


def _refuses_old_days(dsn: str) -> None:
    """Oddity 32: what a snapshot cannot tell is found in the tables before one is trusted."""
    columns, reads = {"public.old": ["d", "Other, day"]}, {"public.old": ["d"]}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute('CREATE TABLE old (d date, "Other, day" date)')
        for day in DAY:
            connection.execute("INSERT INTO old VALUES (%s::text::date, NULL)", [day])
        assert check_dates(dsn, "alike", columns, reads, 10) == []
        for day in OLD:
            for column, level in (("d", "wrong"), ('"Other, day"', "warning")):
                row = sql.SQL("INSERT INTO old ({}) VALUES ({}::date) RETURNING ctid").format(
                    sql.SQL(column), sql.Literal(day if "BC" in day else f"{day}")
                )
                connection.execute("SET datestyle TO ISO")
                connection.execute(row)
                (found,) = check_dates(dsn, "alike", columns, reads, 10)
                assert (found.level, found.code) == (level, "SOURCE_OLD_DATES"), day
                assert column.strip('"') in found.says
                connection.execute(f"DELETE FROM old WHERE {column} IN ('{day}')")
        assert check_dates(dsn, "alike", columns, reads, 10) == []
        connection.execute("INSERT INTO old VALUES (NULL, '1582-10-10'), ('1582-10-10', NULL)")
        levels = [one.level for one in check_dates(dsn, "alike", columns, reads, 10)]
        assert levels == ["wrong", "warning"], "in rows of their own"
        connection.execute("TRUNCATE old")
        connection.execute("INSERT INTO old VALUES ('1582-10-10', NULL)")
        (found,) = check_dates(dsn, "alike", columns, reads, 10)
        connection.execute(found.todo.partition(";")[0])
        (found,) = check_dates(dsn, "alike", {"public.old": ["gone"]}, {}, 10)
        assert (found.level, found.code) == ("warning", "SOURCE_OLD_DATES_UNKNOWN")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("jvm", "zone", "python"),
    [
        ("America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"),
        ("Asia/Tokyo", "America/St_Johns", "UTC"),
        ("Pacific/Kiritimati", "UTC", "America/New_York"),
        ("Etc/GMT+12", "Europe/London", "Asia/Kathmandu"),
    ],
)
def test_they_do_in_every_zone_and_mode(tmp_path: Path, jvm: str, zone: str, python: str) -> None:
    java = mock.patch.dict(os.environ, {"JAVA_TOOL_OPTIONS": f"-Duser.timezone={jvm}"})
    with java, python_zone(python), Stack(tmp_path, databases=["one"]) as stack:
        stack.capture([])
        check_alike(stack, alike("plain"), zone)
        check_alike(stack, alike("schemas", with_schema=True), zone)
        precise = ("decimal.handling.mode", "precise")
        check_alike(stack, alike("precise", precise), zone, "precise")
