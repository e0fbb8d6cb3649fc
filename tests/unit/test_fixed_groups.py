"""Groups whose views stay, views that no group takes: refused before anything is written (DESIGN 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from streaming.configuration.source_config import SourceConfig
from streaming.errors import FrescoError
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.service.members import settle_catalog
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_drop
from streaming.viewchanges.requests import Requests
from streaming.viewchanges.skip import skip
from tests.changingviews import Driver, Shop, relations

IDS = "SELECT id FROM north.entry"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def begun(shop: Shop, **settings: Any) -> None:
    """Its catalog is stored."""
    shop.config = shop.config.model_copy(update=settings)
    settle_catalog(shop.warehouse, shop.planned())


def written(shop: Shop, header: str, text: str = IDS) -> Path:
    file = shop.folder / "new.sql"
    file.write_text(f"CREATE MATERIALIZED VIEW new {header} AS {text}\n")
    return file


def refused(shop: Shop, code: str, file: Path) -> str:
    with pytest.raises(FrescoError, match=code) as found:
        ask_to_add(shop.config, file)
    assert not Requests(shop.warehouse).all() and not (shop.views / "new.sql").exists()
    return found.value.what


def test_the_last_view_of_a_group_stays(shop: Shop) -> None:
    begun(shop)
    ask_to_drop(shop.warehouse, "totals")
    with pytest.raises(FrescoError, match="VIEW_LAST"):
        ask_to_drop(shop.warehouse, "entries")
    assert [one.view for one in Requests(shop.warehouse).all()] == ["totals"]


def test_a_view_of_blocks_or_of_sessions_does_not_join(shop: Shop) -> None:
    north = SourceConfig(
        tables=shop.config.sources["north"].tables, connection=SecretStr("postgresql://a@h/n")
    )
    begun(shop, sources={"north": north})
    refused(shop, "VIEW_ADD_MODE", written(shop, "WITH COMPLETE EVERY 5"))
    refused(shop, "VIEW_ADD_MODE", written(shop, "WITH STRONG CONSISTENCY USING isolated"))


def test_a_view_joins_the_one_group_that_it_shares_a_relation_with(shop: Shop) -> None:
    begun(shop, grouping="disjoint")
    other = "SELECT id FROM north.other"
    assert "shares no relation" in refused(shop, "VIEW_ADD_GROUP", written(shop, "", other))
    assert ask_to_add(shop.config, written(shop, "")).entry is not None


def test_a_view_that_would_hold_two_groups_together_is_refused(shop: Shop) -> None:
    shop.write("words", "SELECT id, words FROM north.other")
    begun(shop, grouping="disjoint")
    both = "SELECT e.id, o.words FROM north.entry e JOIN north.other o ON e.id = o.id"
    assert "hold groups together" in refused(shop, "VIEW_ADD_GROUP", written(shop, "", both))


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("WITH COMPLETE EVERY 5", "VIEW_CHANGE_BLOCKS"),
        ("WITH STRONG CONSISTENCY USING isolated", "VIEW_CHANGE_ISOLATED"),
    ],
)
def test_a_group_of_blocks_or_of_sessions_keeps_its_views(
    shop: Shop, header: str, code: str
) -> None:
    known = {one.relation.name: one.relation for one in relations()}
    text = f"CREATE MATERIALIZED VIEW {{}} {header} AS {IDS}"
    views = [parse_view(text.format(name), known) for name in ("one", "two")]
    save_catalog(shop.warehouse, views, {"shop": ["one", "two"]}, known)
    with pytest.raises(FrescoError, match=code):
        ask_to_drop(shop.warehouse, "one")
    assert not Requests(shop.warehouse).all()


def test_a_record_that_lacks_a_column_is_used_and_not_skipped(shop: Shop) -> None:
    driver = Driver(shop)
    shop.put(1, 1, 4)
    driver.round()
    begin, row, end = shop.log.commit([("entry", "c", None, {"id": 2, "account": 1})])
    shop.publish([begin, row, end])
    driver.round()
    driver.close()
    with pytest.raises(FrescoError, match="RECORD_COLUMN"):
        skip(shop.warehouse, "north.public.entry", 0, 1, "no reason")
