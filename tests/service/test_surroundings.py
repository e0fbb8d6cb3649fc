"""`fresco doctor` over the embedded stack: nothing of what surrounds its topics is wrong or doubtful."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from conftest import Bank
from kafka import KafkaConsumer
from services import BANK_CONFIG, until

from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.captured.captured_schema import CapturedSource
from streaming.cdc.connector_settings import PLACEHOLDER
from streaming.cdc.debezium import Decoder
from streaming.cdc.record_shapes import check_shapes
from streaming.configuration.pipeline_config import load_config, parse_config
from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.pipeline.source_schemas import source_relations
from streaming.runtime.kafka import Broker
from streaming.service.doctor import examine
from tests.sourcelog import Topics

TODAY = {"skipped.operations": "t", "value.converter.replace.null.with.default": "true"}


def test_the_embedded_stack_passes_its_own_doctor_without_a_warning(
    bank: Bank, tmp_path: Path
) -> None:
    environment = {**bank.environment, "FRESCO_WAREHOUSE": str(tmp_path)}
    with mock.patch.dict(os.environ, environment):
        found = examine(BANK_CONFIG)
        assert {one.level for one in found} == {"ok"}, found
        assert {"connector fresco-north of north", "publication of south"} <= {
            one.check for one in found
        }


def test_what_was_changed_since_is_found(bank: Bank, tmp_path: Path) -> None:
    """A publication and a connector of their own, as somebody may leave them."""
    environment = {**bank.environment, "FRESCO_WAREHOUSE": str(tmp_path)}
    rest = bank.stack.stack.connect.rest
    config = dict(rest.ask("GET", "/connectors/fresco-south/config"))
    with mock.patch.dict(os.environ, environment):
        with psycopg.connect(bank.dsns["south"], autocommit=True) as connection:
            connection.execute("ALTER PUBLICATION fresco_south SET (publish = 'insert, update')")
            try:
                wrong = [one for one in examine(BANK_CONFIG) if one.bad]
            finally:
                connection.execute(
                    "ALTER PUBLICATION fresco_south SET"
                    " (publish = 'insert, update, delete, truncate')"
                )
        assert {one.code for one in wrong} == {"SOURCE_PUBLICATION"}
        rest.put("fresco-south", config | TODAY)
        try:
            wrong = [one for one in examine(BANK_CONFIG) if one.bad]
        finally:
            rest.put("fresco-south", config)
            bank.stack.stack.connect.wait_running(["fresco-south"])
    assert {one.says.partition(":")[0] for one in wrong} == set(TODAY)


def test_records_that_are_right_betray_nothing(bank: Bank, tmp_path: Path) -> None:
    """Where nobody may look at the connectors, their records are looked at."""
    environment = {**bank.environment, "FRESCO_WAREHOUSE": str(tmp_path), "FRESCO_CONNECT": ""}
    with mock.patch.dict(os.environ, environment):
        doubtful = [one for one in examine(BANK_CONFIG) if one.level != "ok"]
    assert [one.check for one in doubtful] == [
        *(f"placeholder of {name}" for name in ("north", "south")),
        "connector settings",
    ]


WRONG_SETTINGS = {
    "connect": ({"time.precision.mode": "connect", "decimal.handling.mode": "double",
                 "binary.handling.mode": "hex"}, {"six", "money", "octets"}),
    "nanoseconds": ({"time.precision.mode": "nanoseconds", "decimal.handling.mode": "precise",
                     "binary.handling.mode": "base64-url-safe"}, {"six", "three", "money", "octets"}),
    "microseconds": ({"time.precision.mode": "microseconds"}, {"three"}),
    "isostring": ({"time.precision.mode": "isostring"}, {"six", "three", "day"}),
}  # fmt: skip
"""What a connector is given, and the columns whose newest values betray it."""


@pytest.mark.parametrize(
    "mode",
    ["connect", *(pytest.param(one, marks=pytest.mark.deep) for one in list(WRONG_SETTINGS)[1:])],
)
def test_oddity_27_a_real_connector_s_records_betray_its_settings(bank: Bank, mode: str) -> None:
    stack, (options, columns) = bank.stack.stack, WRONG_SETTINGS[mode]
    with psycopg.connect(bank.dsns["north"], autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS public.shaped (id int PRIMARY KEY, six timestamp(6), three"
            " timestamp(3), day date, money numeric(10,2), whole numeric(10,0), octets bytea);"
            "ALTER TABLE public.shaped REPLICA IDENTITY FULL; TRUNCATE public.shaped;"
            "INSERT INTO public.shaped SELECT n, now() - n * interval '1 day', now(), now(), n + 0.25, n,"
            " decode(repeat('fbefbeff17', 9), 'hex') FROM generate_series(1, 4) AS n"
        )
        source = StackSource(
            f"shaped_{mode}",
            ("public.shaped",),
            options=(("database.dbname", "north"), *options.items()),
        )
        create_topics(stack.bootstrap, source.topics)
        config = connector_config(
            source,
            host=LOOPBACK,
            port=stack.postgres.port,
            user=POSTGRES_USER,
            password=stack.connect.secret("password"),
        )
        stack.connect.rest.put(source.connector, config)
        raw = {
            "pipeline": "p",
            "warehouse": "w",
            "views": "v",
            "kafka": {"bootstrap": bank.bootstrap},
        }
        tables = {"tables": {"shaped": "public.shaped"}}
        broker = Broker(parse_config(raw | {"sources": {"shaped": tables}}, folder=Path("/")))
        try:
            stack.connect.wait_running([source.connector])
            (topic,) = source.row_topics
            until(lambda: len(broker.newest([topic], 9).get(topic, ())) == 4, "the snapshot's rows")
            (relation,) = read_schemas(
                bank.dsns["north"], "shaped", source.name, {"shaped": "public.shaped"}, "string"
            )
            records = broker.newest([topic], 9)[topic]
        finally:
            broker.close()
            stack.connect.rest.ask("DELETE", f"/connectors/{source.connector}")
    found = list(check_shapes(relation, CapturedSource("shaped", source.name), records))
    named = {one.says.split()[2] for one in found}
    assert named >= columns, (named, records[0])
    assert all(one.code == "SOURCE_RECORD_SHAPE" and one.bad for one in found)
    asked = {word for one in found for word in options if word in one.todo}
    assert asked == set(options), [one.todo for one in found]


KNOWN = "__debezium_unavailable_value"


@pytest.mark.parametrize("said", [KNOWN, "unchanged-31f0"])
def test_oddity_35_debezium_s_own_placeholder_is_warned_of_and_another_tells_all_apart(
    bank: Bank, tmp_path: Path, said: str
) -> None:
    """A large row's value is set to Debezium's text, and then left as it is while another changes."""
    stack, name = bank.stack.stack, f"large_{said[-1]}"
    table = f"public.{name}"
    source = StackSource(
        name, (table,), options=(("database.dbname", "north"), (PLACEHOLDER, said))
    )
    create_topics(stack.bootstrap, source.topics)
    config = connector_config(
        source, host=LOOPBACK, port=stack.postgres.port, user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )  # fmt: skip
    raw = {
        "pipeline": "p",
        "warehouse": str(tmp_path / "w"),
        "views": str(tmp_path),
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {
            name: {
                "tables": {"t": table},
                "connection": bank.dsns["north"],
                "connect": bank.environment["FRESCO_CONNECT"],
                "decimals": "string",
            }
        },
    }
    (tmp_path / "v.sql").write_text(f"CREATE MATERIALIZED VIEW v AS SELECT id, s FROM {name}.t\n")
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(raw))
    with psycopg.connect(bank.dsns["north"], autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {table} (id int, s text, n int, PRIMARY KEY (id));"
            f"ALTER TABLE {table} ALTER s SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;".encode()
        )
        stack.connect.rest.put(source.connector, config)
        try:
            stack.connect.wait_running([source.connector])
            connection.execute(
                f"INSERT INTO {table} VALUES (1, repeat('x', 4000), 1), (2, repeat('y', 4000), 1);"
                f"UPDATE {table} SET s = '{KNOWN}' WHERE id = 1;"
                f"UPDATE {table} SET n = 2 WHERE id = 2".encode()
            )
            found = [one for one in examine(file) if one.check == f"placeholder of {name}"]
            (relation,) = source_relations(load_config(file), name)
            broker = Broker(load_config(file))
            (topic,) = source.row_topics
            try:
                until(lambda: len(broker.newest([topic], 9).get(topic, ())) == 4, "the events")
                records = broker.newest([topic], 9)[topic]
            finally:
                broker.close()
        finally:
            stack.connect.rest.ask("DELETE", f"/connectors/{source.connector}")
    batch = Topics().batch([(topic, one) for one in records])
    rows = Decoder([relation]).decode(batch).rows[f"{name}.t"]
    updated = dict((row["a0"], row["a1"]) for row in rows.to_pylist() if row["op"] == "u")
    assert updated[2] == "y" * 4000, "what stands still"
    if said == KNOWN:
        assert updated[1] == "x" * 4000, "nobody can tell, so it is warned of"
        assert [one.code for one in found] == ["SOURCE_PLACEHOLDER_KNOWN"]
    else:
        assert updated[1] == KNOWN and not found


def test_oddity_22_null_in_a_column_with_a_default_stays_null(bank: Bank) -> None:
    """In the snapshot and in the stream, through the converter that our stacks describe."""
    stack = bank.stack.stack
    with psycopg.connect(bank.dsns["north"], autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.defaulted"
            " (id int PRIMARY KEY, s text DEFAULT 'new', n int DEFAULT 7, d date DEFAULT '2026-01-01');"
            "ALTER TABLE public.defaulted REPLICA IDENTITY FULL;"
            "INSERT INTO public.defaulted VALUES (1, NULL, NULL, NULL)"
        )
        source = StackSource(
            "nulls", ("public.defaulted",), options=(("database.dbname", "north"),)
        )
        create_topics(stack.bootstrap, source.topics)
        config = connector_config(
            source,
            host=LOOPBACK,
            port=stack.postgres.port,
            user=POSTGRES_USER,
            password=stack.connect.secret("password"),
        )
        stack.connect.rest.put(source.connector, config)
        try:
            stack.connect.wait_running([source.connector])
            rows = KafkaConsumer(
                *source.row_topics, bootstrap_servers=stack.bootstrap, auto_offset_reset="earliest"
            )
            seen: list[dict[str, object]] = []

            def come(count: int) -> bool:
                for records in rows.poll(timeout_ms=200).values():
                    seen.extend(json.loads(one.value)["after"] for one in records)
                return len(seen) >= count

            until(lambda: come(1), "the snapshot's row")
            connection.execute("INSERT INTO public.defaulted VALUES (2, NULL, NULL, NULL)")
            until(lambda: come(2), "the stream's row")
            rows.close()
        finally:
            stack.connect.rest.ask("DELETE", f"/connectors/{source.connector}")
    assert seen == [{"id": n, "s": None, "n": None, "d": None} for n in (1, 2)]
