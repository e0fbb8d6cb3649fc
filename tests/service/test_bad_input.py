"""Records that cannot be used suspend the views over their relation, and nobody else (DESIGN 11).

Two sources, `east` and `west`, exist as topics only; their events are written here as Debezium writes
them. The third, `shop`, is a database under capture whose table is altered. One pipeline takes it all,
so that each wrong thing meets views that have to go on.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
import yaml
from conftest import Bank
from kafka import KafkaProducer
from services import Pipeline, Process, until, write_pipeline
from shop import capture_shop

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.status import pipeline_status
from tests.sourcelog import Record, SourceLog

Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]
EAST = ("good", "garbled", "lacking", "misnamed", "owed")
WEST = ("steady", "stuck")
COLUMNS = {"id": "bigint", "amount": "numeric(18,2)"}


@dataclass
class World:
    """The running pipeline, the logs of its sources and the database of the third."""

    pipeline: Pipeline
    service: Process
    producer: KafkaProducer
    east: SourceLog
    west: SourceLog
    shop: str = field(repr=False)

    def send(self, records: Sequence[Record]) -> list[tuple[str, int, int]]:
        """Publish; returns topic, partition and offset of each."""
        waiting = [
            self.producer.send(topic, value=value.encode() if value is not None else None)
            for topic, value in records
        ]
        done = [future.get(timeout=60) for future in waiting]
        return [(one.topic, one.partition, one.offset) for one in done]

    def commit(self, log: SourceLog, changes: Sequence[Change]) -> list[tuple[str, int, int]]:
        return self.send(log.commit(changes))

    def shows(self, view: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Return once a view has these rows."""
        until(lambda: self.rows(view) == sorted(rows), f"{rows} in {view}", alive=self.service)

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        if self.pipeline.newest() is None:
            return []
        return [(one, float(amount)) for one, amount in self.pipeline.rows(view)]

    def suspended(self, view: str) -> dict[str, str]:
        """The error of a view, once the group's newest epoch says that it is suspended."""
        until(
            lambda: view in (newest.suspended if (newest := self.pipeline.newest()) else ()),
            f"the suspension of {view}",
            alive=self.service,
        )
        stages = {one.stage: one for one in pipeline_status(self.pipeline.warehouse).stages}
        error = stages[f"view:{view}"].error
        assert error is not None
        return dict(error)

    def metric(self, name: str) -> float:
        """A metric's value, as Prometheus would read it."""
        port = self.service.says.partition("metrics on http://127.0.0.1:")[2].partition("/")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split(" ")[1]) for line in lines if line.startswith(name + " "))


def row(number: int, amount: str = "1.00") -> dict[str, Any]:
    return {"id": number, "amount": amount}


def insert(table: str, number: int) -> Change:
    return (table, "c", None, row(number))


def source(
    tables: Sequence[str], columns: dict[str, str] = COLUMNS, snapshot: bool = False
) -> dict[str, Any]:
    return {
        "tables": {table: f"public.{table}" for table in tables},
        "columns": {table: columns for table in tables},
        "keys": {table: ["id"] for table in tables},
        "decimals": "string",
        "snapshot": snapshot,
        "full_rows": True,
    }


@pytest.fixture(scope="module")
def world(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A pipeline with one view over each relation, and one over both a good and a garbled one."""
    folder = tmp_path_factory.mktemp("bad")
    views = folder / "views"
    views.mkdir()
    froms = {table: f"east.{table}" for table in EAST} | {table: f"west.{table}" for table in WEST}
    for table, relation in froms.items():
        (views / f"{table}.sql").write_text(
            f"CREATE MATERIALIZED VIEW {table}_rows AS SELECT id, amount FROM {relation}\n"
        )
    (views / "both.sql").write_text(
        "CREATE MATERIALIZED VIEW both_rows AS\n"
        "SELECT g.id, b.amount FROM east.good g JOIN east.garbled b ON b.id = g.id\n"
    )
    for column in ("amount", "pieces"):
        (views / f"{column}.sql").write_text(
            f"CREATE MATERIALIZED VIEW {column}_rows AS SELECT id, {column} FROM shop.orders\n"
        )
    columns = {**COLUMNS, "pieces": "int"}
    settings = {
        "pipeline": "bad",
        "views": str(views),
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {
            "east": source(EAST),
            "west": source(WEST),
            "shop": source(["orders"], columns, snapshot=True),
        },
        "metrics": {"port": 0},
    }
    topics = [f"east.public.{table}" for table in EAST] + [f"west.public.{t}" for t in WEST]
    create_topics(bank.bootstrap, [*topics, "east.transaction", "west.transaction"])
    producer = KafkaProducer(bootstrap_servers=bank.bootstrap, acks="all")
    pipeline = write_pipeline(folder, settings, {})
    with pipeline.running() as service:
        logs = SourceLog("east"), SourceLog("west")
        found = World(pipeline, service, producer, *logs, capture_shop(bank))
        found.commit(found.east, [insert(table, 1) for table in EAST])
        found.commit(found.west, [insert(table, 1) for table in WEST])
        for table in froms:
            found.shows(f"{table}_rows", [(1, 1.0)])
        yield found
    producer.close()


def damage_not_json(record: Record) -> Record:
    return record[0], '{"before": null, "after": {"id": 2, "amo'


def damage_field(record: Record) -> Record:
    """An event that lacks the primary key."""
    event = json.loads(record[1] or "")
    del event["after"]["id"]
    return record[0], json.dumps(event)


def damage_envelope(record: Record) -> Record:
    """A row of some other producer, without Debezium's envelope."""
    return record[0], json.dumps({"relation": "nowhere", "payload": [1, 2, 3]})


@pytest.mark.parametrize(
    ("table", "damage", "code"),
    [
        ("garbled", damage_not_json, "SOURCE_NOT_JSON"),
        ("lacking", damage_field, "SOURCE_FIELD_MISSING"),
        ("misnamed", damage_envelope, "SOURCE_NOT_AN_EVENT"),
    ],
)
def test_an_undecodable_record_suspends_the_views_over_its_relation_only(
    world: World, table: str, damage: Callable[[Record], Record], code: str
) -> None:
    good = world.rows("good_rows")
    number = len(good) + 1
    records = world.east.commit([insert("good", number), insert(table, 2)])
    records[2] = damage(records[2])
    topic, partition, offset = world.send(records)[2]
    place = f"topic {topic}, partition {partition}, offset {offset}"

    error = world.suspended(f"{table}_rows")
    assert error["code"] == "VIEW_INPUT_DAMAGED"
    assert f"east.{table}, number " in error["where"] and "fresco status" in error["todo"]
    kept = pipeline_status(world.pipeline.warehouse).bad_records
    assert [one["code"] for one in kept if one["where"] == place] == [code]
    assert re.search(f"{code}: .*{re.escape(place)}", world.service.says)
    world.shows("good_rows", [*good, (number, 1.0)])
    world.commit(world.east, [insert("good", number + 1), insert(table, 3)])
    world.shows("good_rows", [*good, (number, 1.0), (number + 1, 1.0)])
    newest = world.pipeline.newest()
    assert newest is not None and newest.suspended[f"{table}_rows"] < newest.frontier
    assert world.rows(f"{table}_rows") == [(1, 1.0)]
    read = Warehouse(world.pipeline.warehouse).read(f"{table}_rows", suspended_as_of=True)
    assert b"fresco.suspended_after" in (read.schema.metadata or {})
    assert world.metric(f'fresco_bad_records_total{{topic="{topic}"}}') == 1
    assert world.metric(f'fresco_view_suspended{{view="{table}_rows"}}') == 1


def test_a_view_that_joins_a_damaged_relation_is_suspended_too(world: World) -> None:
    assert world.suspended("both_rows")["code"] == "VIEW_INPUT_DAMAGED"


def test_oddity_17_a_column_dropped_at_the_database_stops_only_the_views_that_read_it(
    world: World,
) -> None:
    good = world.rows("good_rows")
    with psycopg.connect(world.shop) as connection:
        connection.execute("UPDATE orders SET amount = 8.25")
    world.shows("amount_rows", [(1, 8.25)])
    with psycopg.connect(world.shop) as connection:
        connection.execute("ALTER TABLE orders DROP COLUMN amount, ADD COLUMN colour text")
        connection.execute("INSERT INTO orders VALUES (2, 5, 'red')")
        connection.execute("UPDATE orders SET pieces = 4 WHERE id = 1")
    world.shows("pieces_rows", [(1, 4.0), (2, 5.0)])
    with psycopg.connect(world.shop) as connection:
        connection.execute("DELETE FROM orders WHERE id = 1")
    world.shows("pieces_rows", [(2, 5.0)])

    error = world.suspended("amount_rows")
    assert error["code"] == "VIEW_COLUMN_CHANGED"
    assert "column amount of shop.orders is missing in the event" in error["what"]
    assert re.search("topic shop.public.orders, partition 0, offset [0-9]+", error["where"])
    assert world.rows("amount_rows") == [(1, 8.25)]
    kept = pipeline_status(world.pipeline.warehouse).bad_records
    assert [one["code"] for one in kept if "topic shop." in one["where"]] == [
        "SOURCE_FIELD_MISSING"
    ]
    assert "events of shop.orders have fields that are not captured: colour" in world.service.says
    world.commit(world.east, [insert("good", len(good) + 1)])
    world.shows("good_rows", [*good, (len(good) + 1, 1.0)])


def test_a_retraction_without_its_row_suspends_the_view_only(world: World) -> None:
    good = world.rows("good_rows")
    number = len(good) + 1
    world.commit(world.east, [insert("good", number), ("owed", "d", row(77), None)])
    error = world.suspended("owed_rows")
    assert error["code"] == "VIEW_RETRACTION_MISSING"
    assert "owed" in error["where"] + error["what"] and error["todo"]
    world.shows("good_rows", [*good, (number, 1.0)])
    assert world.rows("owed_rows") == [(1, 1.0)]


def test_an_end_that_never_comes_true_holds_its_source_and_says_so(world: World) -> None:
    *events, _ = world.west.commit([insert("stuck", 2)])
    transaction = str(world.west.transaction)
    world.send([*events, world.west.end(transaction, {"stuck": 2})])
    world.commit(world.west, [insert("steady", 2)])
    good = world.rows("good_rows")
    world.commit(world.east, [insert("good", len(good) + 1)])
    world.shows("good_rows", [*good, (len(good) + 1, 1.0)])
    assert world.rows("steady_rows") == world.rows("stuck_rows") == [(1, 1.0)]
    until(lambda: world.metric("fresco_held_rows") == 2, "the held rows", alive=world.service)
    until(
        lambda: "SOURCE_TRANSACTION_INCOMPLETE" in world.service.says,
        "a warning that names the transaction",
        20,
        world.service,
    )
    assert f"transaction {transaction}" in world.service.says
    assert world.metric('fresco_incomplete_seconds{source="west"}') > 0
    stages = {one.stage: one for one in pipeline_status(world.pipeline.warehouse).stages}
    assert stages["integrator"].lacking == {"west": transaction}


def test_what_went_on_is_complete_and_a_restart_over_the_new_table_changes_nothing(
    world: World,
) -> None:
    before = world.pipeline.newest()
    assert before is not None and world.service.stops() == 0
    verdict = verify_pipeline(world.pipeline.warehouse)
    levels = {line.name: line.achieved for line in verdict.lines if line.kind == "view"}
    going_on = ("good", "steady", "stuck", "pieces", "amount")
    assert {levels[f"{name}_rows"] for name in going_on} == {"complete"}
    assert verdict.problems and all("relation east.owed" in one for one in verdict.problems)
    good = world.rows("good_rows")
    _ask_the_shop(world)
    with world.pipeline.running() as world.service:
        world.commit(world.east, [insert("good", len(good) + 1)])
        world.shows("good_rows", [*good, (len(good) + 1, 1.0)])
        with psycopg.connect(world.shop) as connection:
            connection.execute("INSERT INTO orders VALUES (3, 6, 'blue')")
        world.shows("pieces_rows", [(2, 5.0), (3, 6.0)])
        after = world.pipeline.newest()
        assert after is not None and after.suspended == before.suspended


def _ask_the_shop(world: World) -> None:
    """The shop's columns come from its database from now on, which has not all that a view reads."""
    settings = yaml.safe_load(world.pipeline.config.read_text())
    shop = settings["sources"]["shop"]
    for told in ("columns", "keys", "full_rows"):
        del shop[told]
    shop["connection"] = world.shop
    world.pipeline.config.write_text(yaml.safe_dump(settings, sort_keys=False))
