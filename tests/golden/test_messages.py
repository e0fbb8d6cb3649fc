"""The encoding of every message, pinned (DESIGN 10): a stage of today reads what yesterday's wrote.

`messages/<name>.json` holds one message as it travels: headers, and the body byte for byte. A
format that changes needs another FORMAT_VERSION, not another golden file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from streaming import messages
from streaming.messages import (
    FORMAT_VERSION,
    ActionList,
    Control,
    Message,
    Rel,
    RelRun,
    Rows,
    Suspend,
    Updates,
    ViewChange,
    decode,
    encode,
)
from streaming.packed_rows import unpack
from streaming.runtime.kafka import headers
from streaming.runtime.step import Outgoing

FOLDER = Path(__file__).parent / "messages"
RUNS = (
    RelRun(first=1, last=3, views=("balance", "total"), idle=("total",)),
    RelRun(first=4, last=4, views=()),
)
DELTA = Rows(rows=1, ipc=(FOLDER / "rows.b64").read_text().strip())
STAGED = Rows(rows=9000, path="_staging/integrator/000000000000004-0a.parquet", sha256="5f" * 32)

KINDS: dict[str, tuple[str, Message]] = {
    "rel": (
        "bank.rel.bank",
        Rel(
            group="bank",
            first=1,
            last=4,
            runs=RUNS,
            positions={"north": "0/16B3748", "south": "0/16B3999"},
            committed_ms=1_700_000_000_123,
            released=("g-17",),
        ),
    ),
    "rel_smallest": ("bank.rel.bank", Rel(group="bank", first=5, last=5, runs=(RUNS[1],))),
    "updates": (
        "bank.updates.bank",
        Updates(
            group="bank",
            first=1,
            last=4,
            runs=RUNS,
            relations={"north.entry": STAGED, "south.entry": DELTA},
            controls=(
                Control(number=2, relation="north.account", kind="truncate"),
                Control(number=3, relation="south.account", kind="tainted"),
            ),
        ),
    ),
    "actions": (
        "bank.actions.bank",
        ActionList(group="bank", view="balance", first=1, last=3, delta=STAGED),
    ),
    "actions_empty": (
        "bank.actions.bank",
        ActionList(group="bank", view="überweisung", first=4, last=4, complete=False),
    ),
    "actions_with_rel": (
        "bank.actions.bank",
        ActionList(
            group="bank",
            view="total",
            first=5,
            last=5,
            rel=(
                ViewChange(group="bank", view="balance", change="drop", number=4),
                Rel(group="bank", first=5, last=5, runs=(RUNS[1],)),
            ),
        ),
    ),
    "view": (
        "bank.rel.bank",
        ViewChange(
            group="bank",
            view="branch",
            change="add",
            number=4,
            manager="complete-N",
            every=100,
        ),
    ),
    "suspend": (
        "bank.actions.bank",
        Suspend(
            group="bank",
            view="balance",
            after=3,
            error={"code": "VIEW_INPUT_DAMAGED", "what": "w", "where": "", "todo": "t"},
        ),
    ),
}


def golden(name: str) -> dict[str, Any]:
    """A pinned message: topic, headers, body."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def travelling(topic: str, message: Message) -> dict[str, Any]:
    """The message as the product publishes it."""
    match message:
        case Suspend():
            first = last = message.after
        case ViewChange():
            first = last = message.number
        case _:
            first, last = message.first, message.last
    outgoing = Outgoing(
        topic=topic,
        sequence=12,
        first=first,
        last=last,
        kind=message.type,
        body=encode(message).decode(),
    )
    fields = headers("bank", "view:balance", 3, outgoing)
    return {
        "topic": topic,
        "headers": {key: value.decode() for key, value in fields},
        "body": outgoing.body,
    }


@pytest.mark.parametrize("name", KINDS)
def test_a_message_is_written_as_it_always_was(name: str) -> None:
    assert travelling(*KINDS[name]) == golden(name)


@pytest.mark.parametrize("name", KINDS)
def test_a_message_that_was_written_then_is_read_now(name: str) -> None:
    assert decode(golden(name)["body"].encode()) == KINDS[name][1]


def test_every_kind_of_message_is_pinned() -> None:
    kinds = set(get_args(get_args(Message)[0]))
    assert {type(message) for _, message in KINDS.values()} == kinds
    assert {file.stem for file in FOLDER.glob("*.json")} == set(KINDS)


def test_the_headers_say_who_wrote_it_when_and_in_which_format() -> None:
    said = golden("actions")["headers"]
    assert said["format"] == str(FORMAT_VERSION)
    assert (said["producer"], said["sequence"], said["generation"]) == ("view:balance", "12", "3")


def test_a_message_with_a_field_of_another_format_is_refused() -> None:
    body = json.loads(golden("actions")["body"])
    with pytest.raises(ValidationError):
        decode(json.dumps(body | {"colour": "red"}).encode())
    with pytest.raises(ValidationError):
        decode(json.dumps(body | {"type": "answer"}).encode())


def test_messages_cannot_be_changed() -> None:
    models = [one for one in vars(messages).values() if isinstance(one, type)]
    for model in models:
        if issubclass(model, BaseModel) and model.__module__ == messages.__name__:
            assert model.model_config["frozen"], model
            assert model.model_config["extra"] == "forbid", model


def test_rows_that_travelled_inline_are_read_now(tmp_path: Path) -> None:
    message = decode(golden("updates")["body"].encode())
    assert isinstance(message, Updates)
    table = unpack(message.relations["south.entry"], tmp_path)
    assert table.to_pydict() == {"_number": [7], "_multiplicity": [-1], "c0": ["ä"]}
