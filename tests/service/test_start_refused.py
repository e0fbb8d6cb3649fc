"""What keeps a pipeline from starting is said in one coded error: what, where, and what to do.

Each case is a `fresco run` in a process of its own, which ends with status 1 before any Spark has
started. The processes are forked from one that has done nothing but import the program: importing
takes longer than most refusals.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
import yaml
from conftest import Bank
from kafka import KafkaAdminClient, KafkaProducer
from services import BANK_CONFIG, write_pipeline

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.ports import LOOPBACK
from streaming.pipeline.catalog import save_catalog
from streaming.pipeline.plan import plan_pipeline
from streaming.runtime.kafka import Topics

Settings = dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """What a start that failed has said."""

    says: str

    def names(self, *parts: str) -> None:
        """Every part is said; a trace is not."""
        for part in parts:
            assert part in self.says, f"{part!r} is not in: {self.says}"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """conf/bank.yaml with a copy of its views, to be made wrong."""
    found: Settings = yaml.safe_load(BANK_CONFIG.read_text())
    views = tmp_path / "views"
    views.mkdir()
    for file in (BANK_CONFIG.parent / found["views"]).glob("*.sql"):
        (views / file.name).write_text(file.read_text())
    return found | {"pipeline": "refused", "views": str(views)}


@pytest.fixture(scope="module")
def imported() -> ForkServerContext:
    """Processes that begin with the program imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["streaming.cli.commands", "streaming.service.service"])
    return context


def fresco_run(config: Path, log: Path, environment: Mapping[str, str]) -> None:
    """`fresco run` in a fresh process, with its output in a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(output, standard.fileno())
    os.environ |= {"COLUMNS": "200", **environment}
    sys.argv = ["fresco", "run", "--config", str(config)]
    from streaming.cli.commands import main

    main()


@pytest.fixture
def refused(bank: Bank, tmp_path: Path, imported: ForkServerContext) -> Callable[..., Refused]:
    """Runs `fresco run` over settings; checks its status and that no trace and no secret is shown."""

    def run(settings: Settings, **environment: str) -> Refused:
        pipeline = write_pipeline(tmp_path, settings, {**bank.environment, **environment})
        log = tmp_path / "run.log"
        process = imported.Process(
            target=fresco_run, args=(pipeline.config, log, pipeline.environment), daemon=True
        )
        process.start()
        process.join(120)
        status = process.exitcode
        process.kill()
        says = re.sub(r"\s+", " ", log.read_text(errors="replace"))
        assert status == 1, says
        for trace in ("Traceback", 'File "', "Using Spark"):
            assert trace not in says
        password = re.search(":([^:@]+)@", bank.environment["FRESCO_NORTH"])
        assert password is not None and password[1] not in says
        assert " do: " in says and " where: " in says
        return Refused(says)

    return run


def write_view(settings: Mapping[str, Any], file: str, text: str) -> None:
    (Path(settings["views"]) / file).write_text(text)


def test_a_table_without_full_row_images_is_refused_with_the_statement_that_gives_them(
    bank: Bank, settings: Settings, refused: Callable[..., Refused]
) -> None:
    with psycopg.connect(bank.dsns["north"]) as connection:
        connection.execute('CREATE TABLE "Half told" (id bigint PRIMARY KEY, a int)')
    settings["sources"]["north"]["tables"]["half"] = "public.Half told"
    try:
        refused(settings).names(
            "SOURCE_REPLICA_IDENTITY",
            "source north",
            'ALTER TABLE "public"."Half told" REPLICA IDENTITY FULL;',
        )
    finally:
        with psycopg.connect(bank.dsns["north"]) as connection:
            connection.execute('DROP TABLE "Half told"')


def test_a_table_that_is_not_there_is_named(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    settings["sources"]["south"]["tables"]["loan"] = "public.loan"
    refused(settings).names("SOURCE_TABLE_MISSING", "public.loan", "source south")


def test_topics_that_are_not_there_are_named(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    settings["kafka"]["create_source_topics"] = False
    settings["sources"]["north"]["prefix"] = "elsewhere"
    refused(settings).names(
        "KAFKA_TOPIC_MISSING", "elsewhere.public.entry", "elsewhere.transaction", "--create"
    )


def test_oddity_21_a_transaction_topic_of_three_partitions_is_refused(
    bank: Bank, settings: Settings, refused: Callable[..., Refused]
) -> None:
    settings["sources"]["north"]["prefix"] = "wide"
    tables = settings["sources"]["north"]["tables"].values()
    create_topics(bank.bootstrap, [*(f"wide.{one}" for one in tables), "wide.notifications"])
    admin = KafkaAdminClient(bootstrap_servers=bank.bootstrap)
    compacted = {"num_partitions": 3, "configs": {"cleanup.policy": "compact"}}
    admin.create_topics({"wide.transaction": compacted}, wait_for_metadata=True)
    admin.close()
    found = refused(settings)
    found.names("KAFKA_PARTITIONS", "wide.transaction", "--partitions 1", "1 more: `fresco doctor`")


def test_a_new_warehouse_over_topics_that_hold_another_s_messages_is_refused(
    bank: Bank, tmp_path: Path, settings: Settings, refused: Callable[..., Refused]
) -> None:
    settings["pipeline"] = "used"
    pipeline = write_pipeline(tmp_path, settings, bank.environment)
    with mock.patch.dict(os.environ, bank.environment):
        (group,) = plan_pipeline(pipeline.read_config()).groups
    topic = Topics("used").rel(group)
    create_topics(bank.bootstrap, [topic])
    producer = KafkaProducer(bootstrap_servers=bank.bootstrap)
    producer.send(topic, b"{}")
    producer.close()
    refused(settings).names("KAFKA_TOPICS_USED", topic, "another name", bank.bootstrap)


def test_a_syntax_error_is_placed_by_line_and_column(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    text = "CREATE MATERIALIZED VIEW wrong\nAS SELECT id, FROM north.entry WHERE\n"
    write_view(settings, "wrong.sql", text)
    found = refused(settings)
    found.names("SQL_SYNTAX")
    assert re.search(r"wrong\.sql\W+(line )?2\b", found.says), found.says


def test_an_unknown_column_is_placed_and_a_near_one_offered(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    write_view(
        settings, "wrong.sql", "CREATE MATERIALIZED VIEW wrong\nAS SELECT amuont FROM north.entry\n"
    )
    found = refused(settings)
    found.names("SQL_UNKNOWN_COLUMN", "amuont", "amount")
    assert re.search(r"wrong\.sql\W+(line )?2\b", found.says), found.says


def test_two_views_of_one_name_are_both_placed(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    write_view(
        settings, "again.sql", "CREATE MATERIALIZED VIEW total\nAS SELECT id FROM north.entry"
    )
    refused(settings).names("VIEW_DUPLICATE", "total", "total.sql", "again.sql")


def test_a_view_that_changed_since_the_first_start_is_refused(
    bank: Bank, tmp_path: Path, settings: Settings, refused: Callable[..., Refused]
) -> None:
    before = write_pipeline(tmp_path, settings, bank.environment)
    with mock.patch.dict(os.environ, bank.environment):
        planned = plan_pipeline(before.read_config())
    save_catalog(before.warehouse, planned.views, planned.groups, planned.relations)
    text = (Path(settings["views"]) / "large_entry.sql").read_text()
    write_view(settings, "large_entry.sql", text.replace("> 500", "> 400"))
    (Path(settings["views"]) / "total.sql").unlink()
    refused(settings).names(
        "CATALOG_VIEWS_CHANGED",
        "large_entry differs in its SQL",
        "total is gone",
        "view add",
        "views.json",
    )


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_a_metrics_port_in_use_is_named(
    settings: Settings, refused: Callable[..., Refused], taken_port: int
) -> None:
    refused(settings, FRESCO_METRICS_PORT=str(taken_port)).names(
        "METRICS_PORT_IN_USE", f"{LOOPBACK}:{taken_port}", "metrics.port"
    )


def test_a_broker_that_does_not_answer_is_named(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    with socket.socket() as nobody:
        nobody.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{nobody.getsockname()[1]}"
        settings["kafka"]["options"] = {"bootstrap.timeout.ms": "1000"}
        refused(settings, FRESCO_KAFKA=address).names(
            "KAFKA_UNREACHABLE", address, "kafka.bootstrap"
        )


def test_wrong_credentials_name_the_source_and_show_no_password(
    bank: Bank, settings: Settings, refused: Callable[..., Refused]
) -> None:
    wrong = re.sub(":[^:@]+@", ":not-the-password@", bank.environment["FRESCO_SOUTH"])
    found = refused(settings, FRESCO_SOUTH=wrong)
    found.names("SOURCE_UNREACHABLE", "source south", "password authentication failed")
    assert "not-the-password" not in found.says


def test_a_misspelt_key_is_answered_with_the_right_one(
    settings: Settings, refused: Callable[..., Refused]
) -> None:
    settings["kafka"]["bootsrap"] = settings["kafka"].pop("bootstrap")
    refused(settings).names("CONFIG_KEY", "bootsrap", "did you mean 'bootstrap'?")
