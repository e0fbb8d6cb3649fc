"""`fresco doctor` over the embedded stack: nothing of what surrounds its topics is wrong or doubtful."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import psycopg
from conftest import Bank
from kafka import KafkaConsumer
from services import BANK_CONFIG, until

from streaming.embedded.description import POSTGRES_USER, Source, connector_config
from streaming.embedded.kafka import create_topics
from streaming.embedded.ports import LOOPBACK
from streaming.runtime.doctor import examine

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
        source = Source("nulls", ("public.defaulted",), options=(("database.dbname", "north"),))
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
