# ruff: noqa: E501  (tables, one specification a line)
"""View files, and the catalog of views that a warehouse keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.catalog import (
    PATH,
    Catalog,
    load_catalog,
    load_views,
    parse_view,
    replace_catalog,
    save_catalog,
    tokens_of,
)
from tests.golden.bank_relations import BANK

BANK_VIEWS = Path(__file__).parents[2] / "conf" / "bank" / "views"
SELECT = "SELECT id, owner FROM north.account"


def refusal(text: str) -> FrescoError:
    with pytest.raises(FrescoError) as raised:
        parse_view(text, BANK, origin="v.sql")
    return raised.value


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT 'O''Brien'", "SELECT 'O' 'Brien'", False),
        ("SELECT 'a'", "SELECT `a`", False),
        ("SELECT 'it''s' -- or so\n FROM t;", "SELECT\n'it\\'s' FROM /* here */ t", True),
        ("SELECT 'a\\_b'", "SELECT 'a_b'", False),
        ("SELECT a ? b", "SELECT a ? b", True),
        ("SELECT a ? b", "SELECT a ?  b", False),
    ],
)
def test_sql_is_the_same_where_spark_reads_the_same_words(one, other, same):
    assert (tokens_of(one) == tokens_of(other)) is same


@pytest.mark.parametrize(
    ("clauses", "level", "every", "mode", "refresh"),
    [
        ("", "complete", None, "replica", None),
        ("WITH COMPLETE CONSISTENCY", "complete", None, "replica", None),
        ("with strong consistency", "strong", None, "replica", None),
        ("WITH CONVERGENT CONSISTENCY", "convergent", None, "replica", None),
        ("WITH COMPLETE EVERY 100", "complete", 100, "replica", None),
        ("WITH COMPLETE EVERY 100 CONSISTENCY USING c_strobe", "complete", 100, "c_strobe", None),
        ("WITH STRONG CONSISTENCY USING eca", "strong", None, "eca", None),
        ("WITH STRONG CONSISTENCY USING recompute EVERY '5 Minutes'", "strong", None, "recompute", "5 minutes"),
        ("USING sweep -- the mediator\n", "complete", None, "sweep", None),
    ],
)  # fmt: skip
def test_a_view_says_its_level_and_mode(clauses, level, every, mode, refresh):
    view = parse_view(f"CREATE MATERIALIZED VIEW v {clauses} AS {SELECT}", BANK)
    assert (view.level, view.every, view.mode, view.refresh) == (level, every, mode, refresh)
    assert view.sql == SELECT
    assert view.relations == ("north.account",)
    assert view.key == (0,)


def test_comments_may_stand_anywhere_and_a_semicolon_may_end_it():
    text = f"-- AS SELECT\nCREATE /* WITH */ MATERIALIZED VIEW v -- x\nAS\n{SELECT}\n;\n"
    assert parse_view(text, BANK).sql == SELECT


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("CREATE VIEW v AS SELECT 1", "VIEW_SYNTAX", "v.sql:1:8"),
        ("CREATE MATERIALIZED VIEW v", "VIEW_SYNTAX", "v.sql:1:27"),
        ("CREATE MATERIALIZED VIEW v AS ", "VIEW_SYNTAX", "v.sql:1:31"),
        (f"CREATE MATERIALIZED VIEW v\nWTH STRONG AS {SELECT}", "VIEW_SYNTAX", "v.sql:2:1"),
        (f"CREATE MATERIALIZED VIEW _v AS {SELECT}", "VIEW_NAME", "v.sql:1:26"),
        (f"CREATE MATERIALIZED VIEW `v` AS {SELECT}", "VIEW_NAME", "v.sql:1:26"),
        (f"CREATE MATERIALIZED VIEW {'v' * 64} AS {SELECT}", "VIEW_NAME", "v.sql:1:26"),
        (f"CREATE MATERIALIZED VIEW v WITH STRANG AS {SELECT}", "VIEW_LEVEL_UNKNOWN", "v.sql:1:33"),
        (f"CREATE MATERIALIZED VIEW v USING replika AS {SELECT}", "VIEW_MODE_UNKNOWN", "v.sql:1:34"),
        (f"CREATE MATERIALIZED VIEW v USING eca AS {SELECT}", "VIEW_LEVEL_MODE", "v.sql:1:34"),
        (f"CREATE MATERIALIZED VIEW v USING replica EVERY 'x' AS {SELECT}", "VIEW_SYNTAX", "v.sql:1:48"),
        (f"CREATE MATERIALIZED VIEW v WITH COMPLETE EVERY 0 AS {SELECT}", "VIEW_SYNTAX", "v.sql:1:48"),
        ("CREATE MATERIALIZED VIEW v\nAS SELECT id,\n ownr FROM north.account", "SQL_UNKNOWN_COLUMN", "v.sql:3:2"),
        ("CREATE MATERIALIZED VIEW v\nAS DROP TABLE x", "SQL_NOT_SELECT", None),
        (f"CREATE MATERIALIZED VIEW v AS {SELECT}; {SELECT}", "SQL_NOT_SELECT", None),
    ],
)  # fmt: skip
def test_a_specification_is_refused_where_it_is_wrong(text, code, where):
    error = refusal(text)
    assert error.code == code
    assert where is None or error.where == where
    assert error.todo


def test_a_mode_and_a_level_are_refused_with_the_nearest():
    assert (
        "did you mean replica?"
        in refusal(f"CREATE MATERIALIZED VIEW v USING replika AS {SELECT}").todo
    )
    assert (
        "did you mean strong?"
        in refusal(f"CREATE MATERIALIZED VIEW v WITH STRANG AS {SELECT}").todo
    )
    assert "WITH STRONG" in refusal(f"CREATE MATERIALIZED VIEW v USING eca AS {SELECT}").todo


def test_the_banks_views_are_as_described():
    views = {view.name: view for view in load_views(BANK_VIEWS, BANK)}
    keys = {
        name: view.key and [view.schema[p].name for p in view.key] for name, view in views.items()
    }
    assert keys == {
        "balance": ["database", "account", "owner", "branch"],
        "branch_total": ["database", "branch"],
        "large_entry": ["database", "entry"],
        "owner_entries": None,
        "total": (),
    }
    assert {(v.level, v.mode) for v in views.values()} == {("complete", "replica")}
    total = views["total"]
    assert total.relations == ("north.entry", "south.entry")
    assert [(c.name, c.type) for c in total.schema] == [
        ("total", "decimal(28,2)"),
        ("entries", "bigint"),
    ]


def folder(path: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (path / f"{name}.sql").write_text(text, encoding="utf-8")
    return path


def view_text(name: str, select: str) -> str:
    return f"CREATE MATERIALIZED VIEW {name} AS {select}"


def test_two_files_that_define_one_view_are_both_named(tmp_path):
    folder(tmp_path, a=view_text("v", SELECT), b=view_text("V", SELECT))
    with pytest.raises(FrescoError) as raised:
        load_views(tmp_path, BANK)
    assert raised.value.code == "VIEW_DUPLICATE"
    assert "a.sql" in raised.value.what and "b.sql" in raised.value.what


def test_a_folder_without_views_is_an_error(tmp_path):
    with pytest.raises(FrescoError, match="VIEW_NONE"):
        load_views(tmp_path, BANK)


def test_a_view_may_scan_another_and_comes_after_it(tmp_path):
    folder(
        tmp_path,
        a=view_text("child", "SELECT owner, COUNT(*) AS n FROM parent GROUP BY owner"),
        b=view_text("parent", SELECT),
    )
    views = load_views(tmp_path, BANK)
    assert [view.name for view in views] == ["parent", "child"]
    assert views[1].relations == ("parent",)


def test_views_that_scan_each_other_are_refused(tmp_path):
    folder(tmp_path, a=view_text("a", "SELECT id FROM b"), b=view_text("b", "SELECT id FROM a"))
    with pytest.raises(FrescoError, match="VIEW_CYCLE"):
        load_views(tmp_path, BANK)


# The stored catalog -------------------------------------------------------------------------------


@pytest.fixture
def bank(tmp_path):
    views = tmp_path / "views"
    shutil.copytree(BANK_VIEWS, views)
    return views


def groups(views) -> dict[str, list[str]]:
    return {"bank": [view.name for view in views]}


def test_a_catalog_is_stored_once_and_read_back_whole(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    stored = (tmp_path / PATH).read_bytes()
    save_catalog(tmp_path, views, groups(views), BANK)
    assert (tmp_path / PATH).read_bytes() == stored
    assert [p.name for p in (tmp_path / PATH).parent.iterdir()] == ["views.json"]
    catalog = load_catalog(tmp_path)
    assert [v.tree for v in catalog.views] == [v.tree for v in views]
    assert [v.key for v in catalog.views] == [v.key for v in views]
    assert catalog.relations == BANK
    assert catalog.groups == {"bank": tuple(v.name for v in views)}


def test_the_stored_form_is_the_one_readers_rely_on(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    value = json.loads((tmp_path / PATH).read_text())
    total = next(entry for entry in value["views"] if entry["name"] == "total")
    assert total["group"] == "bank" and total["key"] == []
    assert total["schema"][0] == {"name": "total", "type": "decimal(28,2)"}
    assert {entry["name"] for entry in value["relations"]} == set(BANK)


def test_a_start_whose_views_differ_is_refused_naming_them(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    (bank / "total.sql").unlink()
    folder(bank, extra=view_text("extra", SELECT))
    changed = (bank / "large_entry.sql").read_text().replace("> 500", "> 600")
    folder(bank, large_entry=changed)
    after = load_views(bank, BANK)
    with pytest.raises(FrescoError) as raised:
        save_catalog(tmp_path, after, groups(after), BANK)
    error = raised.value
    assert error.code == "CATALOG_VIEWS_CHANGED"
    assert "extra is new" in error.what
    assert "total is gone" in error.what
    assert "large_entry differs in its SQL" in error.what
    assert "fresco view add" in error.todo and "fresco view drop" in error.todo


def test_layout_and_comments_do_not_make_another_view(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    text = (bank / "total.sql").read_text().replace("SELECT SUM", "SELECT -- all\n   SUM")
    folder(bank, total=text)
    after = load_views(bank, BANK)
    save_catalog(tmp_path, after, groups(after), BANK)


def test_a_text_in_the_place_of_a_column_is_another_view(tmp_path, bank):
    folder(bank, same=view_text("same", "SELECT id FROM north.account WHERE owner = 'branch'"))
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    folder(bank, same=view_text("same", "SELECT id FROM north.account WHERE owner = branch"))
    after = load_views(bank, BANK)
    with pytest.raises(FrescoError, match="same differs in its SQL"):
        save_catalog(tmp_path, after, groups(after), BANK)


def test_a_retyped_column_is_a_changed_view(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    entry = BANK["north.entry"]
    wider = tuple(
        c.__class__(c.name, "decimal(20,4)" if c.name == "amount" else c.type) for c in entry.schema
    )
    relations = {**BANK, "north.entry": entry.__class__(entry.name, wider, entry.key)}
    after = load_views(bank, relations)
    with pytest.raises(FrescoError, match="total differs in its columns"):
        save_catalog(tmp_path, after, groups(after), relations)


def test_a_replaced_catalog_is_what_the_next_start_compares_with(tmp_path, bank):
    views = load_views(bank, BANK)
    save_catalog(tmp_path, views, groups(views), BANK)
    fewer = views[1:]
    replace_catalog(tmp_path, Catalog(tuple(fewer), {"bank": tuple(v.name for v in fewer)}, BANK))
    save_catalog(tmp_path, fewer, groups(fewer), BANK)


def test_a_damaged_catalog_is_named(tmp_path):
    (tmp_path / PATH).parent.mkdir()
    (tmp_path / PATH).write_text("{")
    with pytest.raises(FrescoError, match="CATALOG_DAMAGED"):
        load_catalog(tmp_path)
