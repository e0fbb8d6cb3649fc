"""`fresco view`, `fresco skip`: what is refused before anything is written, and what is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from streaming.cli.commands import app
from streaming.viewchanges.requests import Requests
from tests.changingviews import Driver, Shop

NEW = "SELECT id FROM north.entry WHERE amount > 10"


def fresco(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})


def code(result: Result) -> str:
    """Of the error that a command ended with."""
    assert result.exit_code == 1, result.output
    return str(json.loads(result.stdout)["error"]["code"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("commands"))
    made.write("owed", "SELECT account, total FROM totals WHERE total > 5")
    made.put(1, 1, 11)
    driver = Driver(made)
    driver.round()
    driver.round()
    made.spoiled()
    driver.step("integrator")
    driver.close()
    yield made


@pytest.fixture(scope="module")
def config(shop: Shop) -> Path:
    tables = {"entry": "public.entry", "other": "public.other"}
    settings: dict[str, Any] = {
        "pipeline": "shop",
        "warehouse": str(shop.warehouse),
        "views": str(shop.views),
        "sources": {"north": {"tables": tables, "snapshot": False}},
    }
    file = shop.folder / "shop.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def test_a_warehouse_that_holds_no_pipeline_is_named(tmp_path: Path) -> None:
    assert code(fresco("view", "list", "-w", tmp_path, "--json")) == "CATALOG_NONE"
    assert code(fresco("view", "drop", "x", "-w", tmp_path, "--json")) == "CATALOG_NONE"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("totals", NEW, "VIEW_EXISTS"),
        ("Totals", NEW, "VIEW_EXISTS"),
        ("wrong", "SELECT amuont FROM north.entry", "SQL_UNKNOWN_COLUMN"),
        ("wrong", "SELECT id FROM north.nowhere", "SQL_UNKNOWN_RELATION"),
    ],
)
def test_a_view_that_cannot_be_is_refused_and_nothing_is_written(
    shop: Shop, config: Path, name: str, text: str, expected: str
) -> None:
    file = shop.write(name, text, shop.folder)
    before = sorted(shop.views.iterdir())
    assert code(fresco("view", "add", file, "-c", config, "--json")) == expected
    assert sorted(shop.views.iterdir()) == before
    assert Requests(shop.warehouse).all() == []


def test_what_cannot_be_dropped_or_resumed_is_named(shop: Shop, config: Path) -> None:
    assert (
        code(fresco("view", "add", shop.folder / "no.sql", "-c", config, "--json")) == "VIEW_FILE"
    )
    drop, resume = ("view", "drop"), ("view", "resume")
    assert code(fresco(*drop, "nothing", "-c", config, "--json")) == "VIEW_UNKNOWN"
    assert code(fresco(*drop, "totals", "-c", config, "--json")) == "VIEW_HAS_CHILDREN"
    assert code(fresco(*resume, "totals", "-c", config, "--json")) == "VIEW_NOT_SUSPENDED"
    assert Requests(shop.warehouse).all() == []


def test_a_bad_record_is_skipped_with_a_reason(shop: Shop) -> None:
    topic, place = "north.public.entry", ("-w", shop.warehouse)
    missing = fresco("skip", topic, 0, 99, "--reason", "x", *place, "--json")
    assert code(missing) == "RECORD_NOT_BAD"
    done = fresco("skip", topic, 0, 1, "--reason", "a test [record]", *place)
    assert done.exit_code == 0 and "is skipped: a test [record]" in done.stdout
    assert "fresco view resume" in done.stdout
    again = fresco("skip", topic, 0, 1, "--reason", "another", *place, "--json")
    assert code(again) == "RECORD_DECIDED"
    status = fresco("status", *place)
    assert "skipped by" in status.stdout and "a test [record]" in status.stdout


@pytest.mark.parametrize("among", [False, True])
def test_a_view_that_is_refused_leaves_no_file_of_ours(
    shop: Shop, config: Path, monkeypatch: pytest.MonkeyPatch, among: bool
) -> None:
    """The copy goes; the owner's own file, which was among the views before, is set aside."""
    name = "mine" if among else "copied"
    file = shop.write(name, NEW, shop.views if among else shop.folder)
    error = {"code": "VIEW_ARITHMETIC", "what": "no value", "where": "", "todo": ""}

    def refused(requests: Requests, number: int, word: str) -> Any:
        return {"error": error} if word == "done" else None

    with monkeypatch.context() as patch:
        patch.setattr(Requests, "told", refused)
        assert code(fresco("view", "add", file, "-c", config, "--json")) == "VIEW_ARITHMETIC"
    left = sorted(one.name for one in shop.views.glob(f"{name}*"))
    assert left == (["mine.sql.dropped"] if among else [])
    assert file.exists() is not among
    requests = Requests(shop.warehouse)
    requests.say(requests.all()[-1].number, "done", error=error)


def test_a_request_is_told_until_it_is_made(shop: Shop, config: Path) -> None:
    file = shop.write("new", NEW, shop.folder)
    asked = fresco("view", "add", file, "-c", config, "--wait", "0", "--json")
    told = json.loads(asked.stdout)
    assert (told["view"], told["state"]) == ("new", "is to join; loads its rows")
    assert (shop.views / "new.sql").read_text() == file.read_text()
    again = fresco("view", "add", shop.views / "new.sql", "-c", config, "--json")
    assert code(again) == "VIEW_CHANGE_PENDING"
    other = shop.write("NEW", NEW, shop.folder)
    assert code(fresco("view", "add", other, "-c", config, "--json")) == "VIEW_CHANGE_PENDING"
    listed = fresco("view", "list", "-c", config)
    assert "is to join; loads its rows" in listed.stdout and "maintained" not in listed.stdout
    assert "waits" in listed.stdout and "SERVICE_NOT_RUNNING" in listed.stdout
    assert "view new is to join" in fresco("status", "-c", config).stdout
    dropped = fresco("view", "drop", "new", "-c", config, "--wait", "0")
    assert dropped.exit_code == 0 and "the next start" in dropped.stdout
    assert not (shop.views / "new.sql").exists() and (shop.views / "new.sql.dropped").exists()
    fresco("view", "drop", "owed", "-c", config, "--wait", "0")
    fresco("view", "drop", "entries", "-c", config, "--wait", "0")
    assert code(fresco("view", "drop", "totals", "-c", config, "--json")) == "VIEW_HAS_CHILDREN"
