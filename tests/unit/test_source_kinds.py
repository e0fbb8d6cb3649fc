"""A kind of source that the project does not know, registered from outside: one object, one entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.ask.postgres.postgres_kind import POSTGRES
from streaming.ask.source_kinds import KINDS, kind_of_connection
from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.captured.log_format import LogFormat
from streaming.cdc.intake import Intake
from streaming.configuration.pipeline_config import parse_config
from streaming.errors import FrescoError
from streaming.pipeline.source_schemas import source_relations
from tests.engines import ENGINE
from tests.intakeworld import insert, net, relations
from tests.sourcelog import Record, SourceLog, Topics

TOY_LOG = LogFormat(
    place={"scn": "VARCHAR"},
    position="TRY_CAST(substr(e.source.scn, 5) AS BIGINT)",
    transaction="upper({id})",
    end={"commit": {"scn": "VARCHAR"}},
    end_position="TRY_CAST(substr(e.commit.scn, 5) AS BIGINT)",
    whole_rows="SET SUPPLEMENTAL LOG ON {table}",
    marks_unchanged=False,
)


def read_schemas(
    connection: str, source: str, prefix: str, tables: Mapping[str, str], decimals: str, /
) -> list[CapturedRelation]:
    columns = [("id", "int4"), ("v", "text")]
    return [captured(f"{source}.{name}", f"{prefix}.{t}", columns) for name, t in tables.items()]


TOY = replace(
    POSTGRES,
    databases=("toy",),
    schemes=("toy",),
    log=TOY_LOG,
    read_schemas=read_schemas,
    require_whole_rows=lambda captor: None,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.ask.source_kinds.KINDS", [*KINDS, TOY])


def in_toy_s_words(record: Record) -> Record:
    """The same record of PostgreSQL's connector as the toy's writes it."""
    topic, value = record
    event = json.loads(value or "null")
    if not event:
        return record

    if "source" in event:
        event["source"]["scn"] = f"scn-{event['source'].pop('lsn')}"
        if event.get("transaction"):
            event["transaction"]["id"] = f"x{event['transaction']['id'].partition(':')[0]}"
    elif event.get("status") in ("BEGIN", "END"):
        key, _, position = event["id"].partition(":")
        event |= {"id": f"x{key}", "commit": {"scn": f"scn-{position}"}}
    return topic, json.dumps(event)


def stepped(records: list[Record], log: LogFormat) -> dict[Any, Any]:
    source = CapturedSource("north", "north", snapshot=False, log=log)
    intake = Intake(relations(), [], {"main": []}, sources=[source], engine=ENGINE)
    result = intake.step(Topics().batch(records), 0)
    assert result.bad == () and result.last == 2
    return net(result)


def test_its_events_are_decoded_by_what_it_says_of_its_log() -> None:
    log = SourceLog("north")
    records = [
        *log.commit([insert("account", 1), insert("entry", 5)]),
        *log.commit([insert("entry", 6, "b")]),
    ]
    toys = [in_toy_s_words(record) for record in records]
    assert toys != records
    assert stepped(toys, TOY_LOG) == stepped(records, POSTGRES.log)


def config(**source: Any) -> Any:
    tables = {"tables": {"entry": "public.entry"}}
    raw = {"pipeline": "p", "views": "v", "warehouse": "w", "sources": {"north": tables | source}}
    return parse_config(raw, folder=Path("/p"), where="p.yaml")


def test_it_is_named_in_a_configuration_and_read_by_its_connection() -> None:
    assert kind_of_connection("toy://somewhere") is TOY
    (relation,) = source_relations(config(database="toy", connection="toy://somewhere"), "north")
    assert relation.relation.name == "north.entry" and relation.topic == "north.public.entry"
    with pytest.raises(FrescoError) as caught:
        source_relations(config(database="toy", connection="postgresql://h/d"), "north")
    assert caught.value.code == "CONFIG_VALUE"


def test_one_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(FrescoError) as caught:
        source_relations(config(database="postgress", connection="postgresql://h/d"), "north")
    assert caught.value.code == "CONFIG_VALUE" and caught.value.where == "sources.north.database"
    assert caught.value.todo == "did you mean 'postgres'?"
