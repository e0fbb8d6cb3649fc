"""The catalogs are looked at while a pipeline runs, and who follows waits for who numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from streaming.captured.captured_schema import CapturedRelation
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import entry_of, parse_view
from streaming.pipeline.plan import keep_layouts, layouts_now, replanned
from streaming.service import schema_watch
from streaming.service.schema_watch import SchemaWatch
from tests.changingviews import COLUMNS, Driver, Shop

WIDER = [COLUMNS[0], ("account", "int8"), COLUMNS[2]]
COLOURED = [*COLUMNS, ("colour", "text")]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path)
    source = made.config.sources["north"].model_copy(
        update={"connection": SecretStr("postgresql://")}
    )
    made.config = made.config.model_copy(update={"sources": {"north": source}})

    def read(config: Config, name: str) -> list[CapturedRelation]:
        return made.captured()

    monkeypatch.setattr(schema_watch, "source_relations", read)
    made.put(1, 1, 1)
    driver = Driver(made)
    driver.round()
    driver.close()
    return made


def watch(shop: Shop, *, numbers: bool = True) -> SchemaWatch:
    """One that looks only when it is asked to."""
    return SchemaWatch(shop.config, shop.planned().layouts, numbers, seconds=3600)


def test_a_look_finds_what_has_changed_and_nothing_else(shop: Shop) -> None:
    found = watch(shop)
    assert found.look() == ()
    shop.columns = list(reversed(COLUMNS))
    assert found.look() == ()
    shop.columns = WIDER
    assert [one.relation.name for one in found.look()] == ["north.entry", "north.other"]
    found.stop()


@pytest.mark.parametrize(
    ("code", "told"), [("SOURCE_UNREACHABLE", 0), ("SOURCE_TABLE_MISSING", 1)], ids=["away", "gone"]
)
def test_a_source_that_cannot_be_looked_at_is_no_change(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: str,
    told: int,
) -> None:
    def refused(config: Config, name: str) -> list[CapturedRelation]:
        raise FrescoError(code, "it is not there")

    found = watch(shop)
    monkeypatch.setattr(schema_watch, "source_relations", refused)
    assert found.look() == found.look() == ()
    said = [one for one in caplog.records if one.levelname == "WARNING" and code in one.message]
    assert len(said) == told
    found.stop()


def test_who_does_not_number_waits_until_the_columns_are_stored(shop: Shop) -> None:
    planned = shop.planned()
    follows = SchemaWatch(shop.config, planned.layouts, False, seconds=3600)
    shop.columns = COLOURED
    assert follows.look() == (), "nobody decodes by them yet"
    keep_layouts(shop.warehouse, layouts_now(shop.config, planned.layouts, shop.captured()))
    found = follows.look()
    assert found
    after = replanned(shop.config, planned, found, numbers=False)
    assert after.generation == planned.generation + 1
    follows.stop()


def test_a_view_over_columns_that_nobody_decodes_by_yet_waits(shop: Shop) -> None:
    """The command has seen a new column before the service has looked."""
    driver = Driver(shop)
    shop.columns = COLOURED
    shop.shape = lambda row: {**row, "colour": "red"}
    text = "CREATE MATERIALIZED VIEW later AS SELECT id, account FROM north.entry"
    spec = replace(parse_view(text, driver.members.catalog().known(0)), layout=1)
    requests = driver.members.requests
    request = requests.put("add", "later", entry_of(spec, "shop"))
    driver.round()
    assert driver.members.newest_asked > driver.members.generation
    assert not any("later" in name for name in driver.views())
    driver.look()
    driver.settle()
    assert "error" not in (requests.told(request.number, "done") or {})
    driver.close()
