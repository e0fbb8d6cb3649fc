"""The connector's settings: each entry of the list made to happen, and mended as it says (oddity 27)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from streaming.captured.captured_schema import captured
from streaming.cdc.connector_settings import (
    PLACEHOLDER,
    SETTINGS,
    Wanted,
    check_connector,
    check_decimals,
)
from streaming.cdc.placeholder import UNAVAILABLE, check_placeholder
from streaming.configuration.pipeline_config import parse_config
from streaming.demo.embedded.parts import StackSource, connector_config
from streaming.errors import FrescoError
from streaming.pipeline.source_schemas import source_relations
from streaming.service.surroundings import examined_connector, refuse

NORTH = StackSource("north")
RIGHT = connector_config(NORTH, host="h", port=1, user="u", password="${file:f:p}")
WANTED = Wanted(
    "north",
    "north",
    "north.notifications",
    ["public.account", "public.entry"],
    ["public.account.id", "public.entry.amount"],
    decimals="string",
)
MYSQL = replace(WANTED, mysql=True, tables=["store.account"], columns=["store.account.id"])
MYSQL_RIGHT = {
    **{key: value for key, value in RIGHT.items() if key != "table.include.list"},
}

WRONG: dict[str, list[str | None]] = {
    "provide.transaction.metadata": ["false", None],
    "skipped.operations": ["t", "d,t", None],
    "table.include.list": ["public.account", r"public\.(account|x)", "other.*"],
    "table.exclude.list": ["public.entry", r"public\..*"],
    "schema.include.list": ["private"],
    "schema.exclude.list": ["PUBLIC"],
    "database.include.list": ["shop"],
    "database.exclude.list": ["st.*"],
    "gtid.source.includes": ["x"],
    "gtid.source.excludes": ["x"],
    "snapshot.mode": ["no_data", "never", "initial_only"],
    "snapshot.isolation.mode": ["read_committed", "read_uncommitted"],
    "snapshot.locking.mode": ["none"],
    "snapshot.include.collection.list": ["public.account"],
    "snapshot.select.statement.overrides": ["public.entry", "north.public.entry"],
    "slot.drop.on.stop": ["true"],
    "errors.tolerance": ["all"],
    "event.processing.failure.handling.mode": ["warn", "skip"],
    "inconsistent.schema.handling.mode": ["warn"],
    "producer.override.acks": ["1", "0"],
    "producer.override.max.in.flight.requests.per.connection": ["5"],
    "topic.naming.strategy": ["io.debezium.schema.DefaultUnicodeTopicNamingStrategy"],
    "topic.delimiter": ["_"],
    "topic.transaction": ["tx"],
    "notification.enabled.channels": ["log", None],
    "notification.sink.topic.name": ["elsewhere", None],
    "transaction.metadata.factory": ["com.x.Mine"],
    "time.precision.mode": ["connect", "nanoseconds", "microseconds", "isostring"],
    "decimal.handling.mode": ["double", "precise", None],
    "bigint.unsigned.handling.mode": ["precise"],
    "binary.handling.mode": ["hex", "base64-url-safe"],
    "unavailable.value.placeholder": ["hex:00ff"],
    "column.include.list": [r"public\.account\..*"],
    "column.exclude.list": [r"public\.entry\.amount"],
    "column.mask.*": [r"public\.account\.id"],
    "column.truncate.*": [".*"],
    "converters": ["mine"],
    "field.name.adjustment.mode": ["avro"],
    "transforms": ["unwrap", "route,unwrap"],
    "value.converter": ["io.confluent.connect.avro.AvroConverter", None],
    "value.converter.replace.null.with.default": ["true", None],
    "value.converter.decimal.format": ["NUMERIC"],
}
CASES = [(one, value) for one in SETTINGS for value in WRONG.get(one.name, [])]


def base(mysql: bool) -> tuple[dict[str, str], Wanted]:
    return (MYSQL_RIGHT, MYSQL) if mysql else (RIGHT, WANTED)


def test_every_setting_of_the_list_is_made_to_happen() -> None:
    assert [one.name for one in SETTINGS] == list(WRONG)


def test_the_connectors_of_our_own_stacks_are_right() -> None:
    """Row 22 stands here: the converter must not put a column's default where NULL is."""
    assert [one.level for one in check_connector("c", RIGHT, WANTED)] == ["ok"]
    assert [one.level for one in check_connector("c", MYSQL_RIGHT, MYSQL)] == ["ok"]


@pytest.mark.parametrize(("setting", "value"), CASES, ids=[f"{s.name}={v}" for s, v in CASES])
def test_a_setting_that_loses_or_alters_is_refused_with_the_setting_to_make(
    setting: Any, value: str | None
) -> None:
    right, wanted = base(setting.of == "mysql")
    key = setting.name.replace("*", "hash.SHA-256.with.salt.secretsalt")
    if setting.name == "value.converter.decimal.format":
        right, wanted = (
            right | {"decimal.handling.mode": "precise"},
            replace(wanted, decimals="precise"),
        )
    wrong = {name: text for name, text in right.items() if name != key}
    if value is not None:
        wrong[key] = value
    wrong |= {"transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
    wrong |= {"transforms.route.type": "org.apache.kafka.connect.transforms.InsertHeader"}
    (found,) = check_connector("c", wrong, wanted)
    assert (found.level, found.code) == ("wrong", "SOURCE_CONNECTOR_SETTING")
    assert setting.name in found.says and setting.loses in found.says
    assert "secretsalt" not in str(found)
    # As the remedy says, to the letter.
    if found.todo.startswith("set "):
        name, _, made = found.todo.removeprefix("set ").partition(" ")[0].partition("=")
        mended = wrong | {name: made}
    else:
        mended = {name: text for name, text in wrong.items() if name != key}
    assert [one.level for one in check_connector("c", mended, wanted)] == ["ok"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("table.include.list", r"public\..*"),
        ("table.include.list", "public.entry, PUBLIC.ACCOUNT"),
        ("column.exclude.list", r"public\.other\..*"),
        ("column.mask.with.5.chars", r"public\.other\.name"),
        ("snapshot.select.statement.overrides", "public.other"),
        ("tombstones.on.delete", "false"),
        ("value.converter.schemas.enable", "true"),
        ("time.precision.mode", "adaptive_time_microseconds"),
        ("snapshot.mode", "always"),
        ("transforms", ""),
    ],
)
def test_settings_that_change_nothing_for_what_is_captured_are_right(key: str, value: str) -> None:
    assert [one.level for one in check_connector("c", RIGHT | {key: value}, WANTED)] == ["ok"]


def test_a_source_without_snapshot_or_transactions_asks_for_neither() -> None:
    config = RIGHT | {"snapshot.mode": "no_data", "provide.transaction.metadata": "false"}
    del config["notification.enabled.channels"], config["notification.sink.topic.name"]
    spare = replace(WANTED, snapshot=False, metadata=False)
    assert [one.level for one in check_connector("c", config, spare)] == ["ok"]
    assert len([one for one in check_connector("c", config, WANTED) if one.bad]) == 4


# The worker -------------------------------------------------------------------------------------


@pytest.fixture
def worker() -> Iterator[Any]:
    """A worker that answers with `connectors`; `.asked` are the headers it was asked with."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
            body = json.dumps(server.connectors).encode()  # type: ignore[attr-defined]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.asked, server.connectors = [], {}  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def source_of(url: str) -> Any:
    raw = {"pipeline": "p", "warehouse": "w", "views": "v"}
    sources = {"north": {"tables": {"entry": "public.entry"}, "connect": url}}
    return parse_config(raw | {"sources": sources}, folder=Path("/p")).sources["north"]


def address_of(url: str) -> str:
    return str(source_of(url).connect.get_secret_value())


def connector(config: dict[str, str], state: str = "RUNNING") -> dict[str, Any]:
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": state}]}
    return {"info": {"config": config}, "status": status}


def test_the_connector_is_found_by_its_prefix_and_judged(worker: Any) -> None:
    url = f"http://me:pass%20word@127.0.0.1:{worker.server_port}/"
    other = connector({**RIGHT, "topic.prefix": "other", "skipped.operations": "t"})
    worker.connectors = {"fresco-north": connector(RIGHT), "else": other}
    found, publication = examined_connector(address_of(url), WANTED)
    assert [one.level for one in found] == ["ok"] and publication == "fresco_north"
    assert worker.asked[0]["Authorization"] == "Basic bWU6cGFzcyB3b3Jk"
    worker.connectors["fresco-north"] = connector({**RIGHT, "time.precision.mode": "connect"})
    found, _ = examined_connector(address_of(url), WANTED)
    with pytest.raises(FrescoError, match=r"SOURCE_CONNECTOR_SETTING: time\.precision\.mode"):
        refuse(found)


def test_nan_under_precise_decimals_is_warned_of() -> None:
    columns = ["public.entry.amount"]
    precise = replace(WANTED, decimals="precise")
    (found,) = check_decimals(precise, columns)
    assert (found.level, found.code) == ("warning", "SOURCE_DECIMALS_NAN")
    assert "public.entry.amount" in found.says and "decimals: string" in found.todo
    assert not [
        *check_decimals(replace(precise, mysql=True), columns),
        *check_decimals(precise, []),
    ]
    assert not [*check_decimals(replace(precise, decimals="string"), columns)]


def test_oddity_35_the_placeholder_is_what_the_connector_says(worker: Any, tmp_path: Path) -> None:
    worker.connectors = {
        "else": connector({**RIGHT, "topic.prefix": "other", PLACEHOLDER: "another"}),
        "mine": connector({**RIGHT, PLACEHOLDER: "«same»"}),
    }
    source = {
        "tables": {"entry": "public.entry"},
        "columns": {"entry": {"id": "int", "note": "text"}},
        "full_rows": True,
        "prefix": WANTED.prefix,
        "connect": f"http://127.0.0.1:{worker.server_port}",
    }
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", "sources": {"north": source}}
    (relation,) = source_relations(parse_config(raw, folder=tmp_path), "north")
    assert relation.placeholder == "«same»"
    worker.connectors = {}
    (relation,) = source_relations(parse_config(raw, folder=tmp_path), "north")
    assert relation.placeholder == UNAVAILABLE


def test_a_placeholder_that_everybody_knows_is_warned_of_where_rows_may_be_large() -> None:
    def found(*types: str, said: str = UNAVAILABLE) -> list[Any]:
        columns = [(f"c{at}", type_) for at, type_ in enumerate(types)]
        relation = captured("north.t", "north.public.t", columns)
        return [*check_placeholder("north", [replace(relation, placeholder=said)])]

    for types in (["int", "text"], ["bytea"], ["jsonb"], ["varchar"], ["varchar(600)"]):
        (one,) = found(*types)
        assert (one.level, one.code) == ("warning", "SOURCE_PLACEHOLDER_KNOWN")
        assert "public.t " in one.says
        assert not found(*types, said="unchanged-1"), types
    assert not found("int", "numeric") and not found("varchar(400)", "uuid", "int")


def test_a_connector_that_is_not_there_yet_is_warned_of_and_one_that_failed_too(
    worker: Any,
) -> None:
    source = address_of(f"http://127.0.0.1:{worker.server_port}")
    (missing,), _ = examined_connector(source, WANTED)
    assert (missing.level, missing.code) == ("warning", "SOURCE_CONNECTOR_MISSING")
    worker.connectors = {"c": connector(RIGHT, "FAILED")}
    found, _ = examined_connector(source, WANTED)
    assert [one.code for one in found if one.level != "ok"] == ["SOURCE_CONNECTOR_FAILED"]


def test_a_worker_that_does_not_answer_is_doubtful_and_shows_no_secret() -> None:
    (found,), publication = examined_connector("http://me:secret@127.0.0.1:1", WANTED)
    assert (found.level, found.code) == ("warning", "SOURCE_CONNECT_UNREACHABLE")
    assert "secret" not in str(found) and publication is None


def test_an_address_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(FrescoError, match=r"CONFIG_VALUE.*http") as refused:
        source_of("ftp://me:secret@h")
    assert "secret" not in str(refused.value)
    assert source_of("").connect is None
