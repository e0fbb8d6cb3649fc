"""A source without a connection is described by the schema part of its own events (DESIGN 6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Bank
from kafka import KafkaProducer

from streaming.configuration.pipeline_config import Config, parse_config
from streaming.demo.embedded.kafka_broker import create_topics
from streaming.errors import FrescoError
from streaming.pipeline.plan import plan_pipeline

RECORDED = Path(__file__).parent.parent / "golden" / "debezium" / "bank_with_schema.jsonl"
VIEW = "CREATE MATERIALIZED VIEW owners AS SELECT owner, branch FROM told.account"


def config(bank: Bank, folder: Path, prefix: str) -> Config:
    views = folder / "views"
    views.mkdir()
    (views / "owners.sql").write_text(VIEW)
    source = {"prefix": prefix, "tables": {"account": "public.account"}, "full_rows": True}
    raw = {
        "pipeline": "told",
        "warehouse": "warehouse",
        "views": "views",
        "kafka": {"bootstrap": bank.bootstrap},
        "sources": {"told": source},
    }
    return parse_config(raw, folder=folder)


def test_the_schema_part_of_the_first_event_tells_columns_and_key(
    bank: Bank, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    events = [line for line in lines if line["topic"] == "north.public.account"]
    create_topics(bank.bootstrap, ["told.public.account"])
    producer = KafkaProducer(bootstrap_servers=bank.bootstrap, acks="all")
    for event in events:
        key, value = (event[part] and event[part].encode() for part in ("key", "value"))
        producer.send("told.public.account", key=key, value=value)
    producer.close()
    pipeline = plan_pipeline(config(bank, tmp_path, "told"))
    account = pipeline.relations["told.account"]
    assert [(c.name, c.type) for c in account.schema] == [
        ("id", "bigint"),
        ("owner", "string"),
        ("branch", "string"),
    ]
    assert account.key == (0,)


def test_a_topic_that_cannot_tell_is_refused_with_what_to_do(bank: Bank, tmp_path: Path) -> None:
    create_topics(bank.bootstrap, ["mute.public.account"])
    with pytest.raises(FrescoError) as refused:
        plan_pipeline(config(bank, tmp_path, "mute"))
    assert refused.value.code == "SOURCE_NO_SCHEMA"
    assert "mute.public.account" in refused.value.where
    assert "columns" in refused.value.todo
